/* Rates of storages, for bench/storage.sh. Prints one number.
 *
 *   make DIR SHARDS SAMPLES   writes shards of latents of 1 MiB
 *   pack DIR SHARDS CLIP...   writes shards of clips of 640 x 360 (49 frames)
 *   get PLACE NAME            MB/s of reading an object, in pieces that are announced
 *   copy PLACE NAME DIR       MB/s of copying an object to a folder, as models are copied
 *   put PLACE NAME FILE       MB/s of writing an object
 *   samples PLACE PASSES [MS] samples/s of the loader over the latents of a place, with checksums;
 *                             after each batch MS milliseconds per sample pass, as for a step of a GPU
 *   clips PLACE PASSES        clips/s of the loader over clips: 17 frames of 256 x 256, decoded
 *   threads PLACE NAME N      peak resident KiB while N threads read pieces at the same time */
#include "base/fs.h"
#include "base/location.h"
#include "base/log.h"
#include "data/loader.h"
#include "data/shard_file.h"
#include "format/tensors/npy.h"
#include "storage/remote_files.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 16, SIDE = 32, CHANNELS = 16, BYTES = 1 << 20, PIECE = 8 << 20 };
enum { CLIP_FRAMES = 17, CLIP_SIDE = 256 };

static void fail(void)
{
    fprintf(stderr, "bench/storage: %s\n", weft_error_message());
    exit(1);
}

static void need(weft_status_code status)
{
    if (status != WEFT_OK)
        fail();
}

static void make(const char *dir, int shards, int samples)
{
    unsigned char *data = weft_alloc(BYTES);
    weft_storage *storage;
    if (!weft_location_is_remote(dir))
        need(weft_make_dirs(dir));
    need(weft_storage_open(dir, &storage));
    for (int s = 0; s < shards; s++) {
        char name[64];
        weft_shard_file *f;
        snprintf(name, sizeof name, "train-%06d.tar", s);
        need(weft_shard_file_create(storage, name, &f));
        for (int i = 0; i < samples; i++) {
            weft_buf npy = {0};
            for (int64_t k = 0; k < BYTES; k += 4) { /* floats near 1, different in every sample */
                const uint32_t bits =
                    0x3f800000u + ((uint32_t)(k + i + s * samples) * 40503u >> 12);
                memcpy(data + k, &bits, 4);
            }
            weft_npy_format(WEFT_F32, 4, (int64_t[]){FRAMES, SIDE, SIDE, CHANNELS}, data, &npy);
            snprintf(name, sizeof name, "s%d_%04d", s, i);
            need(weft_shard_file_add(f, name, "latent.npy", npy.data, npy.len));
            weft_buf_free(&npy);
        }
        need(weft_shard_file_finish(f, NULL, NULL));
        weft_shard_file_free(f);
    }
    weft_storage_close(storage);
    weft_free(data);
}

static void pack(const char *dir, int shards, int clips, char *const *path)
{
    static const char meta[] =
        "{\"caption\": \"x\", \"frames\": 49, \"width\": 640, \"height\": 360, \"fps\": 24}";
    weft_storage *storage;
    if (!weft_location_is_remote(dir))
        need(weft_make_dirs(dir));
    need(weft_storage_open(dir, &storage));
    for (int s = 0; s < shards; s++) {
        char name[64], *clip;
        int64_t bytes;
        weft_shard_file *f;
        snprintf(name, sizeof name, "train-%06d.tar", s);
        need(weft_shard_file_create(storage, name, &f));
        for (int i = s; i < clips; i += shards) {
            snprintf(name, sizeof name, "c%04d", i);
            need(weft_file_read(path[i], 1 << 28, &clip, &bytes));
            need(weft_shard_file_add(f, name, "mp4", clip, bytes));
            need(weft_shard_file_add(f, name, "json", meta, sizeof meta - 1));
            weft_free(clip);
        }
        need(weft_shard_file_finish(f, NULL, NULL));
        weft_shard_file_free(f);
    }
    weft_storage_close(storage);
}

static double get(const char *place, const char *name)
{
    weft_storage *storage;
    weft_storage_facts facts;
    const double began = weft_now();
    need(weft_storage_open(place, &storage));
    need(weft_storage_facts_of(storage, name, &facts));
    char *piece = weft_alloc_aligned(PIECE);
    weft_storage_expect(storage, name, 0, facts.bytes);
    for (int64_t at = 0; at < facts.bytes; at += PIECE)
        need(weft_storage_read(storage, name, at,
                               facts.bytes - at < PIECE ? facts.bytes - at : PIECE, piece));
    weft_free(piece);
    weft_storage_close(storage);
    return (double)facts.bytes / 1e6 / (weft_now() - began);
}

static double copy(const char *place, char *name, const char *dir)
{
    weft_storage *storage;
    weft_storage_facts facts;
    const double began = weft_now();
    need(weft_make_dirs(dir));
    need(weft_storage_open(place, &storage));
    need(weft_storage_facts_of(storage, name, &facts));
    need(weft_remote_receive(storage, &name, 1, dir));
    weft_storage_close(storage);
    return (double)facts.bytes / 1e6 / (weft_now() - began);
}

static double put(const char *place, const char *name, const char *path)
{
    weft_storage *storage;
    weft_storage_file *out;
    int64_t bytes = 0;
    const double began = weft_now();
    FILE *in = fopen(path, "rb");
    char *piece = weft_alloc_aligned(PIECE);
    need(weft_storage_open(place, &storage));
    need(weft_storage_begin(storage, name, &out));
    for (size_t n; in && (n = fread(piece, 1, PIECE, in)) > 0; bytes += (int64_t)n)
        need(weft_storage_write(out, piece, (int64_t)n));
    need(weft_storage_commit(out));
    weft_storage_file_free(out);
    weft_storage_close(storage);
    weft_free(piece);
    if (in)
        fclose(in);
    return (double)bytes / 1e6 / (weft_now() - began);
}

static void pass_time(double seconds)
{
    const double until = weft_now() + seconds;
    for (double left; (left = until - weft_now()) > 0;)
        nanosleep(&(struct timespec){(time_t)left, (long)((left - floor(left)) * 1e9)}, NULL);
}

static double samples(const char *place, int passes, bool clips, double step)
{
    const weft_bucket latents = {.batch = 4, .frames = FRAMES, .height = SIDE, .width = SIDE},
                      bucket = clips ? (weft_bucket){.batch = 4,
                                                     .frames = CLIP_FRAMES,
                                                     .height = CLIP_SIDE,
                                                     .width = CLIP_SIDE}
                                     : latents;
    const weft_loader_config config = {.shards = place,
                                       .buckets = {1, (void *)&bucket},
                                       .threads = 2,
                                       .prefetch = 8,
                                       .verify = true};
    weft_loader *loader;
    weft_batch batch;
    const double began = weft_now();
    need(weft_loader_open(&config, 0, 1, clips ? NULL : "latent.npy", clips ? 0 : CHANNELS,
                          &loader));
    const int64_t count = passes * weft_loader_bucket_samples(loader, 0);
    for (int64_t i = 0; i < count; i += bucket.batch) {
        need(weft_loader_next(loader, &batch));
        pass_time(step * (double)bucket.batch);
    }
    const double rate = (double)count / (weft_now() - began);
    weft_loader_close(loader);
    return rate;
}

/* ---- memory of connections ----------------------------------------------------------------- */

typedef struct reading {
    weft_storage *storage;
    const char *name;
    int64_t bytes;
    atomic_llong next;
} reading;

static void *read_pieces(void *user)
{
    reading *r = user;
    char *piece = weft_alloc_aligned(PIECE);
    for (int64_t at; (at = atomic_fetch_add(&r->next, PIECE)) < r->bytes;)
        need(weft_storage_read(r->storage, r->name, at,
                               r->bytes - at < PIECE ? r->bytes - at : PIECE, piece));
    weft_free(piece);
    return NULL;
}

static double peak_kib(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %lf", &kib);
    if (f)
        fclose(f);
    return kib;
}

static double threads(const char *place, const char *name, int count)
{
    pthread_t thread[64];
    weft_storage_facts facts;
    reading r = {.name = name};
    need(weft_storage_open(place, &r.storage));
    need(weft_storage_facts_of(r.storage, name, &facts));
    r.bytes = facts.bytes;
    for (int i = 0; i < count && i < 64; i++)
        if (pthread_create(&thread[i], NULL, read_pieces, &r) != 0)
            return 0;
    for (int i = 0; i < count && i < 64; i++)
        pthread_join(thread[i], NULL);
    weft_storage_close(r.storage);
    return peak_kib();
}

int main(int argc, char **argv)
{
    const char *verb = argc > 2 ? argv[1] : "";
    if (!strcmp(verb, "make") && argc == 5)
        make(argv[2], atoi(argv[3]), atoi(argv[4]));
    else if (!strcmp(verb, "get") && argc == 4)
        printf("%.1f\n", get(argv[2], argv[3]));
    else if (!strcmp(verb, "copy") && argc == 5)
        printf("%.1f\n", copy(argv[2], argv[3], argv[4]));
    else if (!strcmp(verb, "put") && argc == 5)
        printf("%.1f\n", put(argv[2], argv[3], argv[4]));
    else if (!strcmp(verb, "samples") && (argc == 4 || argc == 5))
        printf("%.1f\n",
               samples(argv[2], atoi(argv[3]), false, argc == 5 ? atof(argv[4]) / 1000 : 0));
    else if (!strcmp(verb, "clips") && argc == 4)
        printf("%.1f\n", samples(argv[2], atoi(argv[3]), true, 0));
    else if (!strcmp(verb, "pack") && argc > 4)
        pack(argv[2], atoi(argv[3]), argc - 4, argv + 4);
    else if (!strcmp(verb, "threads") && argc == 5)
        printf("%.0f\n", threads(argv[2], argv[3], atoi(argv[4])));
    else
        return 2;
    return 0;
}
