#include "base/fs.h"
#include "base/json.h"
#include "data/loader.h"
#include "data/shard.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIPS = 10, SIDE = 32 };

/* Clip i: 6 + i frames of one grey value that tells the clip. */
static void make_curated(const char *root)
{
    char path[700];
    snprintf(path, sizeof path, "%s/clips", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    snprintf(path, sizeof path, "%s/metas", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    float *clip = malloc(sizeof(float) * (6 + CLIPS) * SIDE * SIDE * 3);
    for (int i = 0; i < CLIPS; i++) {
        const int frames = 6 + i;
        for (int k = 0; k < frames * SIDE * SIDE * 3; k++)
            clip[k] = -0.9f + 0.18f * (float)i;
        snprintf(path, sizeof path, "%s/clips/c%02d.mp4", root, i);
        const weft_video_writer_options options = {.width = SIDE, .height = SIDE, .fps = 8, .preset = "ultrafast"};
        cr_assert_eq(weft_video_write_clip(path, clip, frames, false, &options), WEFT_OK, "%s", weft_error_message());
        char meta[256];
        snprintf(path, sizeof path, "%s/metas/c%02d.json", root, i);
        snprintf(meta, sizeof meta, "{\"caption\":\"grey %d\",\"frames\":%d,\"fps\":8,\"width\":%d,\"height\":%d}", i, frames, SIDE, SIDE);
        cr_assert_eq(weft_file_write_atomic(path, meta, (int64_t)strlen(meta)), WEFT_OK);
    }
    free(clip);
}

static char root[] = "/tmp/weft-loader-XXXXXX";
static char shards[600];

static void setup(void)
{
    cr_assert(mkdtemp(root));
    char curated[600];
    snprintf(curated, sizeof curated, "%s/curated", root);
    snprintf(shards, sizeof shards, "%s/shards", root);
    make_curated(curated);
    const weft_shard_config config = {.heldout = 0, .max_samples = 4, .max_bytes = 1 << 20};
    weft_shard_report report;
    cr_assert_eq(weft_shard_run(&config, curated, shards, &report), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(report.written, CLIPS);
    cr_assert_eq(report.shards, 3);
}

static void teardown(void)
{
    (void)!weft_remove_tree(root);
}

static weft_bucket buckets[2] = {{4, 5, 32, 32}, {2, 9, 32, 32}};

static weft_loader_config config_of(int64_t threads)
{
    return (weft_loader_config){.shards = shards, .split = "train", .buckets = {2, buckets}, .seed = 3, .threads = threads,
                                .prefetch = 3, .random_start = true};
}

static weft_loader *open_loader(int64_t threads, int rank, int ranks)
{
    const weft_loader_config config = config_of(threads);
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, rank, ranks, NULL, 0, &loader), WEFT_OK, "%s", weft_error_message());
    return loader;
}

Test(loader, each_sample_once_per_epoch, .init = setup, .fini = teardown)
{
    weft_loader *loader = open_loader(2, 0, 1);
    /* frames 6..8 go to the first bucket, 9..15 to the second */
    cr_assert_eq(weft_loader_bucket_samples(loader, 0), 3);
    cr_assert_eq(weft_loader_bucket_samples(loader, 1), 7);
    int seen[CLIPS] = {0};
    int64_t taken[2] = {0};
    for (int s = 0; s < 200; s++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(batch.step, s);
        taken[batch.bucket] += batch.count;
        for (int64_t i = 0; i < batch.count; i++) {
            const int clip = atoi(batch.caption[i] + 5);
            seen[clip]++;
            const weft_bucket *b = &buckets[batch.bucket];
            const int64_t each = b->frames * b->height * b->width * 3;
            const float value = batch.video[i * each + each / 2];
            cr_assert_float_eq((double)value, -0.9 + 0.18 * clip, 0.03, "caption and pixels of clip %d do not belong together", clip);
        }
    }
    for (int lane = 0; lane < 2; lane++) {
        const int64_t samples = weft_loader_bucket_samples(loader, lane);
        for (int c = lane ? 3 : 0; c < (lane ? CLIPS : 3); c++) /* every clip within one of its fair share */
            cr_assert(llabs(seen[c] * samples - taken[lane]) <= samples, "clip %d: %d times in %lld", c, seen[c], (long long)taken[lane]);
    }
    cr_assert_float_eq((double)taken[0] / (double)(taken[0] + taken[1]), 0.3, 0.02);
    weft_loader_close(loader);
}

Test(loader, batches_do_not_depend_on_ranks_or_threads, .init = setup, .fini = teardown)
{
    weft_loader *whole = open_loader(1, 0, 1);
    for (int ranks = 2; ranks <= 3; ranks++) {
        weft_loader *part[3];
        for (int r = 0; r < ranks; r++)
            part[r] = open_loader(2, r, ranks);
        for (int s = 0; s < 12; s++) {
            weft_batch all, own;
            uint64_t ids[8];
            cr_assert_eq(weft_loader_next(whole, &all), WEFT_OK);
            int64_t count = 0;
            for (int r = 0; r < ranks; r++) {
                if (ranks == 3 && s == 0) /* catch up: 12 batches were taken by the pass before */
                    for (int k = 0; k < 12; k++)
                        cr_assert_eq(weft_loader_next(part[r], &own), WEFT_OK);
                cr_assert_eq(weft_loader_next(part[r], &own), WEFT_OK);
                cr_assert_eq(own.bucket, all.bucket);
                cr_assert_eq(own.first, count);
                for (int64_t i = 0; i < own.count; i++)
                    ids[count++] = own.id[i];
                const weft_bucket *b = &buckets[own.bucket];
                const int64_t each = b->frames * b->height * b->width * 3;
                cr_assert_eq(memcmp(own.video, all.video + own.first * each, (size_t)(own.count * each) * 4), 0);
            }
            cr_assert_eq(count, all.count);
            cr_assert_eq(memcmp(ids, all.id, (size_t)count * 8), 0);
        }
        for (int r = 0; r < ranks; r++)
            weft_loader_close(part[r]);
    }
    weft_loader_close(whole);
}

Test(loader, resumes_exactly, .init = setup, .fini = teardown)
{
    weft_loader *first = open_loader(2, 0, 1);
    weft_batch a, b;
    for (int s = 0; s < 17; s++)
        cr_assert_eq(weft_loader_next(first, &a), WEFT_OK);
    json_t *state = weft_loader_state(first);
    weft_loader *second = open_loader(1, 0, 1);
    for (int s = 0; s < 2; s++) /* has run ahead elsewhere */
        cr_assert_eq(weft_loader_next(second, &b), WEFT_OK);
    cr_assert_eq(weft_loader_restore(second, state, "state"), WEFT_OK, "%s", weft_error_message());
    for (int s = 17; s < 40; s++) {
        cr_assert_eq(weft_loader_next(first, &a), WEFT_OK);
        cr_assert_eq(weft_loader_next(second, &b), WEFT_OK);
        cr_assert_eq(a.step, b.step);
        cr_assert_eq(a.bucket, b.bucket);
        cr_assert_eq(memcmp(a.id, b.id, (size_t)a.count * 8), 0);
        cr_assert_eq(memcmp(a.epoch, b.epoch, (size_t)a.count * 8), 0);
    }
    json_object_set_new(state, "seed", json_integer(99));
    cr_assert_eq(weft_loader_restore(second, state, "state"), WEFT_E_CONFIG);
    json_decref(state);
    weft_loader_close(first);
    weft_loader_close(second);
}

Test(loader, a_cut_shard_costs_what_was_cut, .init = setup, .fini = teardown)
{
    char path[700];
    char *data;
    int64_t bytes;
    snprintf(path, sizeof path, "%s/train-000001.tar", shards);
    cr_assert_eq(weft_file_read(path, 1 << 26, &data, &bytes), WEFT_OK);
    cr_assert_eq(weft_file_write_atomic(path, data, bytes / 2), WEFT_OK);
    weft_free(data);
    weft_dataset *ds;
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_dataset_damaged(ds), 1);
    cr_assert(weft_dataset_count(ds) < CLIPS && weft_dataset_count(ds) >= 6 + 1);
    weft_dataset_close(ds);
    cr_assert_eq(weft_dataset_open(shards, "train", true, &ds), WEFT_E_FORMAT);
    cr_assert(strstr(weft_error_message(), "train-000001.tar"), "%s", weft_error_message());
}

Test(loader, says_why_nothing_fits, .init = setup, .fini = teardown)
{
    weft_bucket huge[1] = {{1, 500, 32, 32}};
    weft_loader_config config = config_of(1);
    config.buckets = (weft_section_list){1, huge};
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_E_ARG);
    cr_assert(strstr(weft_error_message(), "10 of 10 samples are shorter"), "%s", weft_error_message());
}

Test(webdataset, keys)
{
    int64_t len;
    const char *suffix;
    cr_assert(weft_webdataset_split("a/b.c/x.y.Z", &len, &suffix));
    cr_assert_eq(len, 7);
    cr_assert_str_eq(suffix, "y.Z");
    cr_assert_not(weft_webdataset_split("__index__", &len, &suffix));
    cr_assert_not(weft_webdataset_split("dir/", &len, &suffix));
    cr_assert_not(weft_webdataset_split("nodot", &len, &suffix));
}
