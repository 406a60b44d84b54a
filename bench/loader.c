/* Rates of reading shards from the page cache on one core:
 *
 *   start     open a loader over 1,000,000 samples in 1,000 shards, up to its first batch's items
 *   open      open and group every shard of a small set: the cost of a start
 *   tar       the same, and read every member
 *   checked   the same, and verify the checksums
 *   latents   the training loader over .npy parts
 *   batches   the training loader over clips: decoded clips per second, by threads
 *
 *   bench/loader DIR [BUCKET_FRAMES HEIGHT WIDTH]
 *   bench/loader                                      writes shards of its own */
#include "base/fs.h"
#include "base/log.h"
#include "data/dataset.h"
#include "data/loader_order.h"
#include "data/shard_file.h"
#include "format/tensors/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 5 };

static void fail(void)
{
    fprintf(stderr, "bench/loader: %s\n", weft_error_message());
    exit(1);
}

enum { SHARDS = 8, SAMPLES = 64, FRAMES = 16, SIDE = 32, CHANNELS = 16 }; /* latents of 1 MiB */

/* Writes 8 shards of 64 samples of 1 MiB with their checksums to `dir`: latents, or videos that are
 * never decoded. */
static void make_shards(const char *dir, bool latents)
{
    static const char meta[] =
        "{\"caption\": \"x\", \"frames\": 9, \"width\": 64, \"height\": 64, \"fps\": 24}";
    const int64_t bytes = 1 << 20;
    unsigned char *data = weft_alloc(bytes);
    weft_buf npy = {0};
    weft_storage *storage;
    if (!data || weft_make_dirs(dir) != WEFT_OK || weft_storage_open(dir, &storage) != WEFT_OK)
        fail();
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    weft_npy_format(WEFT_F32, 4, (int64_t[]){FRAMES, SIDE, SIDE, CHANNELS}, data, &npy);
    for (int shard = 0; shard < SHARDS; shard++) {
        char name[64];
        snprintf(name, sizeof name, "train-%06d.tar", shard);
        weft_shard_file *f;
        if (weft_shard_file_create(storage, name, &f) != WEFT_OK)
            fail();
        for (int i = 0; i < SAMPLES; i++) {
            snprintf(name, sizeof name, "s%d_%03d", shard, i);
            if (weft_shard_file_add(f, name, latents ? "latent.npy" : "mp4",
                                    latents ? npy.data : (const char *)data,
                                    latents ? npy.len : bytes) != WEFT_OK ||
                weft_shard_file_add(f, name, "json", meta, sizeof meta - 1) != WEFT_OK)
                fail();
        }
        if (weft_shard_file_finish(f, NULL, NULL) != WEFT_OK)
            fail();
        weft_shard_file_free(f);
    }
    weft_storage_close(storage);
    weft_buf_free(&npy);
    weft_free(data);
}

typedef enum depth { OPEN, READ, CHECK } depth;

/* Seconds of one pass over all shards; *bytes is their size. */
static double one_pass(const char *dir, depth how, int64_t *bytes, int64_t *samples)
{
    static volatile uint64_t sink;
    weft_dataset *dataset;
    uint64_t sum = 0;
    const double began = weft_now();
    if (weft_dataset_open(dir, NULL, false, &dataset) != WEFT_OK)
        fail();
    weft_part_bytes part = {0};
    for (int64_t i = 0; how > OPEN && i < weft_dataset_count(dataset); i++) {
        const weft_sample *s = weft_dataset_at(dataset, i);
        for (int p = 0; p < s->part_count; p++) {
            if (weft_dataset_read(dataset, s, &s->part[p], how == CHECK, &part) != WEFT_OK)
                fail();
            sum += (unsigned char)part.data[0];
        }
    }
    weft_free(part.data);
    sink = sum;
    (void)sink;
    const double seconds = weft_now() - began;
    *bytes = weft_dataset_bytes(dataset);
    *samples = weft_dataset_count(dataset);
    weft_dataset_close(dataset);
    return seconds;
}

static void report_pass(const char *dir, depth how)
{
    int64_t bytes = 0, samples = 0;
    double best = 1e30;
    one_pass(dir, how, &bytes, &samples); /* brings the files into the page cache */
    for (int i = 0; i < REPEATS; i++) {
        const double seconds = one_pass(dir, how, &bytes, &samples);
        best = seconds < best ? seconds : best;
    }
    static const char *const name[] = {"open and group 8 shards of 512 samples", "read all bytes",
                                       "read and verify the checksums"};
    if (how == OPEN && samples != SHARDS * SAMPLES) /* the user's shards */
        printf("| open and group %" PRId64 " samples | %.2f | - | - | - |\n", samples, best * 1e3);
    else if (how == OPEN)
        printf("| %s | %.2f | - | - | - |\n", name[how], best * 1e3);
    else
        printf("| %s | %.2f | %.2f | - | - |\n", name[how], best * 1e3, (double)bytes / 1e9 / best);
}

static void report_batches(const char *dir, weft_bucket bucket, int threads)
{
    const weft_loader_config config = {
        .shards = dir, .buckets = {1, &bucket}, .threads = threads, .prefetch = 2, .verify = true};
    weft_loader *loader;
    if (weft_loader_open(&config, 0, 1, NULL, 0, &loader) != WEFT_OK)
        fail();
    weft_batch batch;
    if (weft_loader_next(loader, &batch) != WEFT_OK)
        fail();
    int64_t clips = 0;
    const double began = weft_now();
    double seconds;
    do {
        if (weft_loader_next(loader, &batch) != WEFT_OK)
            fail();
        clips += batch.count;
        seconds = weft_now() - began;
    } while (seconds < 5);
    const double pixels = (double)(clips * bucket.frames * bucket.height * bucket.width);
    printf("| decoded batches, %d threads | - | %.2f | - | %.1f |\n", threads,
           pixels * 12 / 1e9 / seconds, (double)clips / seconds);
    weft_loader_close(loader);
}

/* The loader over the latents of make_shards, four to a batch: read, checked, handed over. */
static void report_latents(const char *dir)
{
    const weft_bucket bucket = {.batch = 4, .frames = FRAMES, .height = SIDE, .width = SIDE};
    const weft_loader_config config = {.shards = dir,
                                       .buckets = {1, (void *)&bucket},
                                       .threads = 1,
                                       .prefetch = 2,
                                       .verify = true};
    weft_loader *loader;
    weft_batch batch;
    double best = 1e30;
    if (weft_loader_open(&config, 0, 1, "latent.npy", CHANNELS, &loader) != WEFT_OK)
        fail();
    for (int r = 0; r <= REPEATS; r++) { /* the first brings the files into the page cache */
        const double began = weft_now();
        for (int i = 0; i < SHARDS * SAMPLES / 4; i++)
            if (weft_loader_next(loader, &batch) != WEFT_OK)
                fail();
        const double seconds = weft_now() - began;
        best = r > 0 && seconds < best ? seconds : best;
    }
    weft_loader_close(loader);
    printf("| latents to batches, verified | %.2f | %.2f | - | - |\n", best * 1e3,
           (double)SHARDS * SAMPLES * (1 << 20) / 1e9 / best);
}

enum { MANY_SHARDS = 1000, MANY_SAMPLES = 1000 };

/* A set of which nothing but the indexes is read: its shards are holes of the right size. */
static void make_indexes(const char *dir)
{
    static char key[MANY_SAMPLES][32];
    static weft_part_data part[MANY_SAMPLES][3];
    static weft_sample sample[MANY_SAMPLES];
    static const char *const suffix[] = {"json", "mp4", "txt"};
    static uint64_t sum[3 * MANY_SAMPLES];
    weft_storage *storage;
    if (weft_make_dirs(dir) != WEFT_OK || weft_storage_open(dir, &storage) != WEFT_OK)
        fail();
    for (int i = 0; i < MANY_SHARDS; i++) {
        char name[64], path[200];
        weft_index index = {.sample = sample, .count = MANY_SAMPLES, .parts = 3 * MANY_SAMPLES};
        snprintf(name, sizeof name, "train-%06d.tar", i);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        if (weft_file_write_atomic(path, "", 0) != WEFT_OK ||
            truncate(path, (off_t)MANY_SAMPLES << 20) != 0 ||
            weft_storage_facts_of(storage, name, &index.facts) != WEFT_OK)
            fail();
        for (int k = 0; k < MANY_SAMPLES; k++) {
            snprintf(key[k], sizeof key[k], "clip-%06d-%06d", i, k);
            for (int p = 0; p < 3; p++)
                part[k][p] = (weft_part_data){.suffix = suffix[p],
                                              .at = ((int64_t)k << 20) + p * 1024 + 512,
                                              .bytes = p == 1 ? 900000 : 300};
            sample[k] = (weft_sample){.key = key[k],
                                      .part = part[k],
                                      .fps = 24,
                                      .frames = 40 + k % 200,
                                      .width = k % 3 ? 640 : 360,
                                      .height = k % 3 ? 360 : 640,
                                      .part_count = 3,
                                      .captioned = true};
        }
        for (int p = 0; p < 3 * MANY_SAMPLES; p++)
            sum[p] = (uint64_t)(i * 3 * MANY_SAMPLES + p + 1);
        weft_index_set_sums(&index, sum, (uint64_t)i + 1);
        if (weft_index_save(storage, name, &index) != WEFT_OK)
            fail();
    }
    weft_storage_close(storage);
}

static void report_start(const char *dir)
{
    const weft_bucket buckets[] = {{1, 81, 320, 576}, {1, 81, 576, 320}, {2, 41, 320, 576}};
    const weft_loader_config config = {.shards = dir,
                                       .buckets = {WEFT_COUNT(buckets), (void *)buckets},
                                       .threads = 1,
                                       .prefetch = 1,
                                       .shuffle = 65536,
                                       .verify = true};
    double opened = 1e30, planned = 1e30;
    int64_t bytes = 0, samples = 0, count;
    for (int r = 0; r < REPEATS; r++) {
        weft_loader *loader;
        weft_item item[2];
        int bucket;
        const double began = weft_now();
        if (weft_loader_open(&config, 0, 1, NULL, 0, &loader) != WEFT_OK)
            fail();
        const double between = weft_now();
        if (weft_loader_peek(loader, 0, &bucket, item, &count) != WEFT_OK)
            fail();
        opened = between - began < opened ? between - began : opened;
        planned = weft_now() - between < planned ? weft_now() - between : planned;
        bytes = weft_loader_resident(loader);
        samples = weft_dataset_count(weft_loader_dataset(loader));
        weft_loader_close(loader);
    }
    if (samples != (int64_t)MANY_SHARDS * MANY_SAMPLES)
        fail();
    printf("| open a loader over 1,000,000 samples in 1,000 shards | %.2f | - | %.1f | - |\n"
           "| first items of this loader | %.2f | - | - | - |\n",
           opened * 1e3, (double)bytes / (double)samples, planned * 1e3);
}

int main(int argc, char **argv)
{
    char made[64] = "";
    const char *dir = argc > 1 ? argv[1] : made;
    printf("| measurement | ms | GB/s | bytes per sample | clips/s |\n|---|---|---|---|---|\n");
    if (argc < 2) {
        snprintf(made, sizeof made, "/tmp/weft-bench-loader-XXXXXX");
        if (!mkdtemp(made))
            return 1;
        make_shards(made, false);
        char many[80];
        snprintf(many, sizeof many, "%s/many", made);
        make_indexes(many);
        report_start(many);
    }
    for (depth d = OPEN; d <= CHECK; d++)
        report_pass(dir, d);
    if (*made) {
        char latents[80];
        snprintf(latents, sizeof latents, "%s/latents", made);
        make_shards(latents, true);
        report_latents(latents);
    }
    if (argc > 4) {
        const weft_bucket bucket = {.batch = 4,
                                    .frames = atoll(argv[2]),
                                    .height = atoll(argv[3]),
                                    .width = atoll(argv[4])};
        report_batches(dir, bucket, 1);
        report_batches(dir, bucket, 2);
    }
    if (*made && weft_remove_tree(made) != WEFT_OK)
        fail();
    return 0;
}
