/* How fast shards are read, from the page cache on one core:
 *
 *   tar       every shard opened and grouped, every member's bytes read (a 64-bit sum over them)
 *   open      the same without reading the bytes: what a start costs
 *   batches   the training loader: decoded clips and pixels per second, by threads
 *
 *   bench/loader DIR [BUCKET_FRAMES HEIGHT WIDTH]     or without arguments over shards made on the
 * spot */
#include "data/loader.h"
#include "base/fs.h"
#include "base/log.h"
#include "data/dataset.h"
#include "format/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5 };

static void fail(void)
{
    fprintf(stderr, "bench/loader: %s\n", weft_error_message());
    exit(1);
}

/* 8 shards of 64 samples of 1 MB, in `dir`. */
static void make_shards(const char *dir)
{
    static const char meta[] =
        "{\"caption\": \"x\", \"frames\": 9, \"width\": 64, \"height\": 64, \"fps\": 24}";
    const int64_t bytes = 1 << 20;
    unsigned char *data = weft_alloc(bytes);
    if (!data || weft_make_dirs(dir) != WEFT_OK)
        fail();
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int shard = 0; shard < 8; shard++) {
        char path[512], name[64];
        snprintf(path, sizeof path, "%s/train-%06d.tar", dir, shard);
        weft_tar_writer *w;
        if (weft_tar_create(path, &w) != WEFT_OK)
            fail();
        for (int i = 0; i < 64; i++) {
            snprintf(name, sizeof name, "s%d_%03d.mp4", shard, i);
            if (weft_tar_add(w, name, data, bytes) != WEFT_OK)
                fail();
            snprintf(name, sizeof name, "s%d_%03d.json", shard, i);
            if (weft_tar_add(w, name, meta, sizeof meta - 1) != WEFT_OK)
                fail();
        }
        if (weft_tar_finish(w, NULL, NULL) != WEFT_OK)
            fail();
        weft_tar_free(w);
    }
    weft_free(data);
}

static uint64_t sum_bytes(const unsigned char *data, int64_t bytes)
{
    uint64_t sum = 0, word;
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, data + i, 8);
        sum += word;
    }
    for (; i < bytes; i++)
        sum += data[i];
    return sum;
}

/* Seconds of one pass over all shards; *bytes is their size. */
static double one_pass(const char *dir, bool read, int64_t *bytes, int64_t *samples)
{
    static volatile uint64_t sink;
    weft_dataset *dataset;
    uint64_t sum = 0;
    const double began = weft_now();
    if (weft_dataset_open(dir, NULL, false, &dataset) != WEFT_OK)
        fail();
    weft_part_bytes part = {0};
    for (int64_t i = 0; read && i < weft_dataset_count(dataset); i++) {
        const weft_sample *s = weft_dataset_at(dataset, i);
        for (int p = 0; p < s->part_count; p++) {
            if (weft_dataset_read(dataset, s, &s->part[p], true, &part) != WEFT_OK)
                fail();
            sum += sum_bytes((const unsigned char *)part.data, part.bytes);
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

static void report_pass(const char *dir, bool read)
{
    int64_t bytes = 0, samples = 0;
    double best = 1e30;
    one_pass(dir, read, &bytes, &samples); /* brings the files into the page cache */
    for (int i = 0; i < REPEATS; i++) {
        const double seconds = one_pass(dir, read, &bytes, &samples);
        best = seconds < best ? seconds : best;
    }
    printf("%-8s %lld samples, %.1f MB: %8.2f ms, %8.2f GB/s\n", read ? "tar" : "open",
           (long long)samples, (double)bytes / 1e6, best * 1e3, (double)bytes / 1e9 / best);
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
    printf("batches  %d threads: %.1f clips/s, %.1f frames/s, %.1f Mpixel/s, %.2f GB/s of floats\n",
           threads, (double)clips / seconds, (double)(clips * bucket.frames) / seconds,
           pixels / 1e6 / seconds, pixels * 12 / 1e9 / seconds);
    weft_loader_close(loader);
}

int main(int argc, char **argv)
{
    char made[64] = "";
    const char *dir = argc > 1 ? argv[1] : made;
    if (argc < 2) {
        snprintf(made, sizeof made, "/tmp/weft-bench-loader-XXXXXX");
        if (!mkdtemp(made))
            return 1;
        make_shards(made);
    }
    report_pass(dir, false);
    report_pass(dir, true);
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
