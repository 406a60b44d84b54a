#include "base/fs.h"
#include "base/json.h"
#include "data/decoder_memory.h"
#include "data/loader_packing.h"
#include "data/loader_report.h"
#include "data/loader_share.h"
#include "data/shard_write.h"
#include "format/tar/tar.h"
#include "format/tar/tar_write.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIPS = 10, SIDE = 32 };

/* Clip i: 6 + i frames of one grey value that identifies the clip. */
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
        const weft_video_writer_options options = {
            .width = SIDE, .height = SIDE, .fps = 8, .preset = "ultrafast"};
        cr_assert_eq(weft_video_write_clip(path, clip, frames, false, &options), WEFT_OK, "%s",
                     weft_error_message());
        char meta[256];
        snprintf(path, sizeof path, "%s/metas/c%02d.json", root, i);
        snprintf(meta, sizeof meta,
                 "{\"caption\":\"grey %d\",\"frames\":%d,\"fps\":8,\"width\":%d,\"height\":%d}", i,
                 frames, SIDE, SIDE);
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
    cr_assert_eq(weft_shard_run(&config, curated, shards, &report), WEFT_OK, "%s",
                 weft_error_message());
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
    return (weft_loader_config){.shards = shards,
                                .split = "train",
                                .buckets = {2, buckets},
                                .seed = 3,
                                .threads = threads,
                                .prefetch = 3,
                                .random_start = true};
}

static weft_loader *open_loader(int64_t threads, int rank, int ranks)
{
    const weft_loader_config config = config_of(threads);
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, rank, ranks, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
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
            cr_assert_float_eq((double)value, -0.9 + 0.18 * clip, 0.03,
                               "caption and pixels of clip %d do not belong together", clip);
        }
    }
    for (int lane = 0; lane < 2; lane++) {
        const int64_t samples = weft_loader_bucket_samples(loader, lane);
        for (int c = lane ? 3 : 0; c < (lane ? CLIPS : 3);
             c++) /* every clip within one of its fair share */
            cr_assert(llabs(seen[c] * samples - taken[lane]) <= samples,
                      "clip %d: %d times in %" PRId64, c, seen[c], taken[lane]);
    }
    cr_assert_float_eq((double)taken[0] / (double)(taken[0] + taken[1]), 0.3, 0.02);
    weft_loader_close(loader);
}

/* A longer bucket of another aspect does not take clips from the one of their own. */
Test(loader, aspect_comes_before_length, .init = setup, .fini = teardown)
{
    weft_bucket two[2] = {{2, 5, 32, 32}, {2, 6, 32, 16}};
    weft_loader_config config = config_of(1);
    config.buckets = (weft_section_list){2, two};
    weft_loader *loader = NULL;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_loader_bucket_samples(loader, 0), CLIPS);
    weft_loader_close(loader);
}

static void expect_samples(weft_bucket *two, double fps, int64_t first, int64_t second)
{
    weft_loader_config config = config_of(1);
    config.buckets = (weft_section_list){two[1].batch ? 2 : 1, two};
    config.fps = fps;
    config.random_start = false;
    weft_loader *loader = NULL;
    weft_batch batch;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_loader_bucket_samples(loader, 0), first);
    if (two[1].batch)
        cr_assert_eq(weft_loader_bucket_samples(loader, 1), second);
    for (int s = 0; s < 4; s++) {
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        for (int64_t i = 0; i < batch.count; i++)
            cr_assert_not(batch.replaced[i], "%s", batch.caption[i]);
    }
    weft_loader_close(loader);
}

/* Of the buckets within 5 % of the nearest aspect ratio the longest is chosen. A bucket that is 14 %
 * off is not chosen, even if it is longer. */
Test(loader, only_equal_aspects_are_equally_near, .init = setup, .fini = teardown)
{
    weft_bucket near[2] = {{2, 5, 32, 32}, {2, 6, 31, 32}},
                far[2] = {{2, 5, 32, 32}, {2, 6, 28, 32}};
    expect_samples(near, 0, 0, CLIPS);
    expect_samples(far, 0, CLIPS, 0);
}

/* n frames at 8 fps are (n - 1) / 2 + 1 frames at 4 fps and 2 n - 1 frames at 16 fps. A bucket of this
 * length accepts the clip, a bucket of one more frame does not. */
Test(loader, a_frame_rate_counts_every_frame, .init = setup, .fini = teardown)
{
    weft_bucket all[2] = {{2, 3, 32, 32}}, last[2] = {{2, 3, 32, 32}, {1, 8, 32, 32}},
                none[2] = {{2, 3, 32, 32}, {1, 9, 32, 32}},
                most[2] = {{2, 11, 32, 32}, {1, 29, 32, 32}},
                more[2] = {{2, 11, 32, 32}, {1, 30, 32, 32}};
    expect_samples(all, 4, CLIPS, 0);
    expect_samples(last, 4, CLIPS - 1, 1); /* the clip of 15 frames */
    expect_samples(none, 4, CLIPS, 0);
    expect_samples(most, 16, CLIPS - 1, 1);
    expect_samples(more, 16, CLIPS, 0);
}

enum { COUNTED = 13 }; /* frames of each clip of make_counting; their rate is 8 fps */

/* Three equal clips, in which frame k has a grey value that identifies it. */
static void make_counting(const char *curated, const char *out)
{
    char path[700];
    snprintf(path, sizeof path, "%s/clips", curated);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    snprintf(path, sizeof path, "%s/metas", curated);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    float *clip = malloc(sizeof(float) * COUNTED * SIDE * SIDE * 3);
    for (int i = 0; i < COUNTED * SIDE * SIDE * 3; i++)
        clip[i] = -0.9f + 0.15f * (float)(i / (SIDE * SIDE * 3));
    for (int i = 0; i < 3; i++) {
        const weft_video_writer_options options = {
            .width = SIDE, .height = SIDE, .fps = 8, .preset = "ultrafast"};
        const char *meta = "{\"caption\":\"\",\"frames\":13,\"fps\":8,\"width\":32,\"height\":32}";
        snprintf(path, sizeof path, "%s/clips/n%d.mp4", curated, i);
        cr_assert_eq(weft_video_write_clip(path, clip, COUNTED, false, &options), WEFT_OK, "%s",
                     weft_error_message());
        snprintf(path, sizeof path, "%s/metas/n%d.json", curated, i);
        cr_assert_eq(weft_file_write_atomic(path, meta, (int64_t)strlen(meta)), WEFT_OK);
    }
    free(clip);
    const weft_shard_config config = {.max_samples = 4, .max_bytes = 1 << 20};
    weft_shard_report report;
    cr_assert_eq(weft_shard_run(&config, curated, out, &report), WEFT_OK, "%s",
                 weft_error_message());
}

/* Frame j of a sample at `fps` is the clip's frame nearest to the time start + j / fps. Windows begin
 * at each of the `starts` frames at which one fits, the last included. */
static void expect_frames(const char *path, double fps, int64_t frames, int64_t starts)
{
    weft_bucket size = {2, frames, SIDE, SIDE};
    weft_loader_config config = config_of(1);
    config.shards = path;
    config.buckets = (weft_section_list){1, &size};
    config.fps = fps;
    weft_loader *loader;
    weft_batch batch;
    const int64_t each = SIDE * SIDE * 3;
    const double rate = fps > 0 ? fps : 8;
    int64_t seen[COUNTED] = {0};
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    for (int step = 0; step < 60; step++) {
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        for (int64_t i = 0; i < batch.count; i++) {
            cr_assert_not(batch.replaced[i]);
            const float *video = batch.video + i * frames * each;
            const int64_t start = llround(((double)video[each / 2] + 0.9) / 0.15 / 8 * rate);
            cr_assert(start >= 0 && start < starts,
                      "a window of %" PRId64 " frames at %g fps "
                      "begins at frame %" PRId64,
                      frames, rate, start);
            seen[start]++;
            for (int64_t j = 0; j < frames; j++) {
                const double shown = ((double)video[j * each + each / 2] + 0.9) / 0.15,
                             wanted = (double)(start + j) / rate * 8;
                cr_assert_float_eq(shown, wanted, 0.7,
                                   "frame %" PRId64 " at %g fps from %" PRId64 ": %.2f, not %.2f",
                                   j, rate, start, shown, wanted);
            }
        }
    }
    for (int64_t i = 0; i < starts; i++)
        cr_assert(seen[i] > 0, "no window of %" PRId64 " frames at %g fps begins at %" PRId64,
                  frames, rate, i);
    weft_loader_close(loader);
}

/* A clip at another rate has every frame of that rate: none is missing at its begin, within it, or at
 * its end. */
Test(loader, frames_at_a_rate_are_the_clips, .init = setup, .fini = teardown)
{
    char curated[600], counting[600];
    snprintf(curated, sizeof curated, "%s/numbered", root);
    snprintf(counting, sizeof counting, "%s/counting", root);
    make_counting(curated, counting);
    expect_frames(counting, 0, 11, 3);
    expect_frames(counting, 8, 13, 1);
    expect_frames(counting, 8, 11, 3);
    expect_frames(counting, 4, 7, 1); /* frames 0, 2, ... 12 */
    expect_frames(counting, 4, 5, 3);
    expect_frames(counting, 3, 5, 1); /* the nearest to 0, 2.7, 5.3, 8 and 10.7 */
    expect_frames(counting, 16, 25, 1);
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
                cr_assert_eq(
                    memcmp(own.video, all.video + own.first * each, (size_t)(own.count * each) * 4),
                    0);
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

/* While the caller works on a batch, `prefetch` others are being decoded. */
/* Two ranks with the same items read them once, and have the batches of a rank that reads all. */
Test(loader, members_read_parts_and_exchange_them, .init = setup, .fini = teardown)
{
    weft_loader *whole = open_loader(1, 0, 1), *member[2];
    weft_item_range own[2] = {{0, 4}, {0, 2}};
    for (int m = 0; m < 2; m++) {
        weft_loader_config config = config_of(2);
        config.own = own;
        config.member = m;
        config.members = 2;
        cr_assert_eq(weft_loader_open(&config, m, 2, NULL, 0, &member[m]), WEFT_OK, "%s",
                     weft_error_message());
    }
    for (int s = 0; s < 10; s++) {
        weft_batch all, batch[2];
        weft_buf heads[2] = {{0}};
        cr_assert_eq(weft_loader_next(whole, &all), WEFT_OK);
        for (int m = 0; m < 2; m++) {
            cr_assert_eq(weft_loader_next(member[m], &batch[m]), WEFT_OK, "%s",
                         weft_error_message());
            cr_assert_eq(weft_loader_share_wait(member[m], s), WEFT_OK);
            weft_loader_share_heads(member[m], s, &heads[m]);
        }
        for (int m = 0; m < 2; m++) {
            const weft_buf *other = &heads[1 - m];
            const weft_share_data to = weft_loader_share_data(member[m], s, 1 - m),
                                  from = weft_loader_share_data(member[1 - m], s, 1 - m);
            cr_assert_eq(weft_loader_share_take(member[m], s, other->data, other->len), WEFT_OK,
                         "%s", weft_error_message());
            cr_assert_eq(weft_loader_share_take(member[m], s, other->data, other->len - 1),
                         WEFT_E_INTERNAL);
            cr_assert_eq(to.bytes, from.bytes);
            memcpy(to.data, from.data, (size_t)to.bytes);
            const weft_bucket *b = &buckets[all.bucket];
            cr_assert_eq(batch[m].count, all.count);
            cr_assert_eq(memcmp(batch[m].id, all.id, (size_t)all.count * 8), 0);
            cr_assert_eq(memcmp(batch[m].video, all.video,
                                (size_t)(all.count * b->frames * b->height * b->width * 3) * 4),
                         0);
            for (int64_t i = 0; i < all.count; i++)
                cr_assert_str_eq(batch[m].caption[i], all.caption[i]);
        }
        weft_buf_free(&heads[0]);
        weft_buf_free(&heads[1]);
    }
    const int64_t read[2] = {weft_loader_read_bytes(member[0]), weft_loader_read_bytes(member[1])};
    cr_assert(read[0] > 0 && read[1] > 0);
    cr_assert_eq(read[0] + read[1], weft_loader_read_bytes(whole));
    weft_loader_close(whole);
    for (int m = 0; m < 2; m++)
        weft_loader_close(member[m]);
}

/* ---- packed rows --------------------------------------------------------------------------- */

enum { ROW = 23, ROWS = 3, WINDOW = 8 };

/* A token is a frame: samples have 5 or 9. */
static weft_loader *open_rows(int rank, int ranks)
{
    static const int64_t tokens[2] = {5, 9};
    weft_loader_config config = config_of(2);
    config.packing = (weft_row_packing){ROW, ROWS, 4, WINDOW};
    config.bucket_tokens = tokens;
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, rank, ranks, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    return loader;
}

/* Whether the items of a batch fill rows in sequence, with the clips that their captions name. */
static void expect_rows(const weft_batch *b)
{
    int64_t end = 0, row = 0, all = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const weft_packed_item *p = &b->packed[i];
        const int clip = atoi(b->caption[i] + 5);
        const int64_t tokens = p->bucket ? 9 : 5;
        cr_assert_eq(p->bucket, clip > 2);
        cr_assert_eq(p->size[0], tokens);
        cr_assert(p->row == row || p->row == row + 1);
        cr_assert_eq(p->token, p->row == row ? end : 0);
        cr_assert_leq(p->token + tokens, ROW);
        cr_assert_eq(p->at, all * SIDE * SIDE * 3);
        cr_assert_float_eq((double)b->video[p->at + 77], -0.9 + 0.18 * clip, 0.03);
        row = p->row;
        end = p->token + tokens;
        all += tokens;
    }
}

Test(loader, rows_have_every_sample_once_per_epoch, .init = setup, .fini = teardown)
{
    weft_loader *loader = open_rows(0, 1);
    int seen[CLIPS] = {0};
    int64_t tokens = 0, expected, samples = 0;
    enum { STEPS = 60 };
    cr_assert_eq(weft_loader_peek_tokens(loader, STEPS, &expected), WEFT_OK);
    for (int s = 0; s < STEPS; s++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        expect_rows(&batch);
        cr_assert_eq(batch.count, batch.all_samples);
        for (int64_t i = 0; i < batch.count; i++)
            seen[atoi(batch.caption[i] + 5)]++;
        tokens += batch.all_tokens;
        samples += batch.all_samples;
    }
    cr_assert_eq(tokens, expected);
    /* 5 + 9 + 9 fills a row, which a batch of one bucket never does */
    cr_assert_gt(tokens, STEPS * ROWS * ROW * 93 / 100, "%" PRId64 " tokens", tokens);
    for (int c = 0; c < CLIPS; c++) /* the window delays a sample */
        cr_assert(llabs(seen[c] * CLIPS - samples) <= CLIPS * WINDOW, "clip %d: %d times", c,
                  seen[c]);
    weft_loader_close(loader);
}

Test(loader, rows_do_not_depend_on_ranks_and_resume, .init = setup, .fini = teardown)
{
    enum { STEPS = 12, HALF = 7 };
    weft_loader *whole = open_rows(0, 1), *rank[3];
    json_t *state = NULL;
    for (int r = 0; r < 3; r++)
        rank[r] = open_rows(r, 3);
    for (int s = 0; s < STEPS; s++) {
        weft_batch all, own;
        int64_t at = 0;
        cr_assert_eq(weft_loader_next(whole, &all), WEFT_OK);
        if (s == HALF) /* other processes resume from the state of one */
            for (int r = 0; r < 3; r++) {
                weft_loader_close(rank[r]);
                rank[r] = open_rows(r, 3);
                cr_assert_eq(weft_loader_restore(rank[r], state, "state"), WEFT_OK, "%s",
                             weft_error_message());
            }
        for (int r = 0; r < 3; r++) {
            cr_assert_eq(weft_loader_next(rank[r], &own), WEFT_OK, "%s", weft_error_message());
            cr_assert_eq(own.first, at);
            cr_assert_eq(own.all_tokens, all.all_tokens);
            expect_rows(&own);
            for (int64_t i = 0; i < own.count; i++, at++) {
                cr_assert_eq(own.id[i], all.id[at]);
                cr_assert_eq(own.epoch[i], all.epoch[at]);
                cr_assert_eq(own.packed[i].token, all.packed[at].token);
            }
        }
        cr_assert_eq(at, all.count);
        if (s == HALF - 1)
            state = weft_loader_state(whole);
    }
    json_array_append_new(json_object_get(state, "waiting"), json_integer(1));
    cr_assert_eq(weft_loader_restore(whole, state, "state"), WEFT_E_FORMAT);
    json_decref(state);
    weft_loader_close(whole);
    for (int r = 0; r < 3; r++)
        weft_loader_close(rank[r]);
}

Test(loader, decodes_ahead_as_many_as_it_is_told, .init = setup, .fini = teardown)
{
    for (int64_t prefetch = 1; prefetch <= 3; prefetch++) {
        weft_loader_config config = config_of(1);
        config.prefetch = prefetch;
        weft_loader *loader;
        weft_batch batch;
        cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK);
        for (int s = 0; s < 3; s++) {
            cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
            int64_t ahead;
            while ((ahead = weft_loader_get_report(loader).decoded_batches) < prefetch)
                usleep(1000);
            cr_assert_eq(ahead, prefetch);
        }
        weft_loader_close(loader);
    }
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
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_OK, "%s",
                 weft_error_message());
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
    cr_assert_eq(weft_error_class(), WEFT_MSG_SAMPLES_NONE, "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), "10 of 10 samples"), "%s", weft_error_message());
}

/* Every sample and every frame is used or dropped for one reason. */
static void balance(const weft_loader *loader, weft_loader_report *r)
{
    *r = weft_loader_get_report(loader);
    int64_t samples = 0, frames = 0;
    for (int i = 0; i < WEFT_SAMPLE_OUTCOMES; i++) {
        samples += r->samples[i];
        frames += r->frames[i];
    }
    cr_assert_eq(samples, r->all_samples);
    cr_assert_eq(r->all_samples, weft_dataset_count(weft_loader_dataset(loader)));
    cr_assert_eq(frames, r->all_frames);
    cr_assert_eq(r->window_frames + r->unused_frames, r->frames[WEFT_SAMPLE_USED]);
    json_t *account = weft_loader_report_json(loader);
    const json_t *used = json_object_get(account, "used");
    const char *reason;
    json_t *entry;
    int64_t dropped = 0;
    json_object_foreach(json_object_get(account, "dropped"), reason, entry) dropped +=
        json_integer_value(json_object_get(entry, "samples"));
    cr_assert_eq(json_integer_value(json_object_get(used, "samples")) + dropped, r->all_samples);
    cr_assert_eq((int64_t)json_array_size(json_object_get(account, "list")), dropped);
    json_decref(account);
}

Test(loader, counts_what_it_does_not_use, .init = setup, .fini = teardown)
{
    weft_bucket two[2] = {{2, 8, 32, 32}, {2, 12, 64, 64}};
    weft_loader_config config = config_of(1);
    config.buckets = (weft_section_list){2, two};
    weft_loader *loader;
    weft_loader_report r;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    balance(loader, &r);
    /* lengths 6 .. 15: two are shorter than 8; the bucket of 12 has more pixels than any clip */
    cr_assert_eq(r.all_frames, 105);
    cr_assert_eq(r.samples[WEFT_SAMPLE_TOO_SHORT], 2);
    cr_assert_eq(r.frames[WEFT_SAMPLE_TOO_SHORT], 6 + 7);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], 8);
    cr_assert_eq(r.window_frames, 64);
    cr_assert_eq(r.unused_frames, 105 - 13 - 64);
    weft_buf text = {0};
    weft_loader_format_report(loader, &text);
    cr_assert(strstr(text.data, "8 of 10 samples and 64 of 105 frames"), "%s", text.data);
    cr_assert(strstr(text.data, "28 frames of used samples lie outside"), "%s", text.data);
    cr_assert(
        strstr(text.data, "2 of 10 samples are shorter than every bucket (13 frames in total)"),
        "%s", text.data);
    weft_buf_free(&text);
    weft_loader_close(loader);
}

typedef struct part {
    const char *name;
    const void *data;
    int64_t bytes;
} part;

static void write_tar(const char *name, const part *parts, int count)
{
    char path[700];
    weft_tar_writer *w;
    snprintf(path, sizeof path, "%s/%s", shards, name);
    cr_assert_eq(weft_tar_create(path, &w), WEFT_OK);
    for (int i = 0; i < count; i++)
        cr_assert_eq(weft_tar_add(w, parts[i].name, parts[i].data, parts[i].bytes), WEFT_OK);
    cr_assert_eq(weft_tar_finish(w, NULL, NULL), WEFT_OK);
    weft_tar_free(w);
}

/* A clip that is cut, one that is noise with a good .json, one of which nothing can be opened, a
 * sample without a video: each costs itself, is replaced in its batch, listed and counted. */
Test(loader, damaged_samples_cost_themselves, .init = setup, .fini = teardown)
{
    char path[700], *clip;
    int64_t bytes;
    static unsigned char noise[3000];
    for (int i = 0; i < 3000; i++)
        noise[i] = (unsigned char)(i * 7919 >> 3);
    snprintf(path, sizeof path, "%s/curated/clips/c09.mp4", root);
    cr_assert_eq(weft_file_read(path, 1 << 26, &clip, &bytes), WEFT_OK);
    const char *meta = "{\"frames\":15,\"fps\":8,\"width\":32,\"height\":32}";
    const int64_t n = (int64_t)strlen(meta);
    const part parts[] = {{"cut.mp4", clip, bytes / 2}, {"cut.json", meta, n},
                          {"noise.mp4", noise, 3000},   {"noise.json", meta, n},
                          {"closed.mp4", noise, 3000},  {"text.txt", "words", 5}};
    write_tar("train-000009.tar", parts, 6);
    weft_free(clip);
    weft_loader *loader = open_loader(2, 0, 1);
    weft_loader_report r;
    balance(loader, &r);
    cr_assert_eq(r.all_samples, CLIPS + 4);
    cr_assert_eq(r.samples[WEFT_SAMPLE_UNREADABLE], 1);
    cr_assert_eq(r.samples[WEFT_SAMPLE_NO_PART], 1);
    int64_t replaced = 0, shown = 0;
    for (int s = 0; s < 30; s++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        for (int64_t i = 0; i < batch.count; i++) {
            const char *key = weft_dataset_at(weft_loader_dataset(loader), batch.sample[i])->key;
            cr_assert_eq(key[0], 'c');
            cr_assert_neq(key[1], 'u');
            replaced += batch.replaced[i];
            shown++;
        }
    }
    balance(loader, &r);
    cr_assert_eq(r.samples[WEFT_SAMPLE_UNDECODABLE], 2);
    cr_assert_eq(r.frames[WEFT_SAMPLE_UNDECODABLE], 30);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], CLIPS);
    cr_assert(replaced > 0 && replaced < shown / 2);
    cr_assert_eq(weft_loader_outcome(loader, CLIPS), WEFT_SAMPLE_UNDECODABLE);
    weft_loader_close(loader);
}

/* A clip whose table of times claims 2^31 - 1 entries, for which FFmpeg reports "out of memory",
 * costs itself like any other damaged sample. */
Test(loader, a_clip_that_asks_for_too_much_memory_costs_itself, .init = setup, .fini = teardown)
{
    char path[700], *clip;
    int64_t bytes;
    snprintf(path, sizeof path, "%s/curated/clips/c09.mp4", root);
    cr_assert_eq(weft_file_read(path, 1 << 26, &clip, &bytes), WEFT_OK);
    char *table = memmem(clip, (size_t)bytes, "stts", 4);
    cr_assert(table);
    memcpy(table + 8, "\x7f\xff\xff\xff", 4);
    const char *meta = "{\"frames\":15,\"fps\":8,\"width\":32,\"height\":32}";
    const part parts[] = {{"vast.mp4", clip, bytes}, {"vast.json", meta, (int64_t)strlen(meta)}};
    weft_video_info info;
    snprintf(path, sizeof path, "%s/vast.mp4", root);
    cr_assert_eq(weft_file_write_atomic(path, clip, bytes), WEFT_OK);
    cr_assert_eq(weft_video_probe(path, &info), WEFT_E_TOO_LARGE);
    cr_assert(strstr(weft_error_message(), "vast.mp4"), "%s", weft_error_message());
    write_tar("train-000009.tar", parts, 2);
    weft_free(clip);
    weft_loader *loader = open_loader(2, 0, 1);
    for (int s = 0; s < 30; s++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
    }
    cr_assert_eq(weft_loader_outcome(loader, CLIPS), WEFT_SAMPLE_UNDECODABLE);
    weft_loader_close(loader);
}

static weft_status_code open_in(const char *folder, const char *split)
{
    weft_dataset *ds;
    const weft_status_code status = weft_dataset_open(folder, split, false, &ds);
    if (status == WEFT_OK)
        weft_dataset_close(ds);
    return status;
}

/* A folder without shards of the split is an error that lists its files by suffix and names
 * data.split; compressed shards are named as such. */
Test(loader, a_folder_without_shards_lists_its_files, .init = setup, .fini = teardown)
{
    char folder[700], path[800];
    snprintf(folder, sizeof folder, "%s/none", root);
    cr_assert_eq(weft_make_dirs(folder), WEFT_OK);
    static const char *const names[] = {"train-000000.tar.gz", "train-000001.tar.gz", "a.mp4"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        cr_assert_eq(weft_file_write_atomic(path, "x", 1), WEFT_OK);
    }
    cr_assert_eq(open_in(folder, "train"), WEFT_E_NOT_FOUND);
    const char *message = weft_error_text();
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARDS_NOT_FOUND, "%s", message);
    cr_assert_str_eq(weft_error_fields()->value, "train");
    cr_assert(strstr(message, "2 .tar.gz") && strstr(message, "1 .mp4") &&
                  strstr(message, "data.split") && strstr(message, "gunzip"),
              "%s", message);
    snprintf(path, sizeof path, "%s/train-000000.tar.gz", folder);
    cr_assert_eq(open_in(path, NULL), WEFT_E_UNSUPPORTED);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FORMAT_UNSUPPORTED);
    cr_assert_eq(open_in(shards, "other"), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARDS_NOT_FOUND);
    cr_assert(strstr(weft_error_text(), "3 .tar,"), "%s", weft_error_message());
}

/* Two samples with one key are refused, with the names of both shards, because either may be wrong.
 * A repeated suffix is refused, too. */
Test(loader, keys_that_come_twice, .init = setup, .fini = teardown)
{
    const part again[] = {{"new.txt", "a", 1}, {"c03.txt", "b", 1}},
               twice[] = {{"new.txt", "a", 1}, {"new.TXT", "b", 1}};
    weft_dataset *ds;
    write_tar("train-000009.tar", again, 2);
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARD_DAMAGED, "%s", weft_error_message());
    cr_assert(strstr(weft_error_fields()->file, "train-000009.tar"), "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "c03");
    cr_assert(strstr(weft_error_text(), "train-00000"), "%s", weft_error_message());
    write_tar("train-000009.tar", twice, 2);
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARD_DAMAGED, "%s", weft_error_message());
    cr_assert(strstr(weft_error_fields()->file, "train-000009.tar"), "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "new");
    cr_assert(strstr(weft_error_text(), ".txt"), "%s", weft_error_message());
}

/* Images and clips in one set of shards: images are in the bucket of one frame, with their pixels. */
Test(loader, pictures_beside_clips, .init = setup, .fini = teardown)
{
    enum { PICTURES = 5 };
    static uint8_t rgb[SIDE * SIDE * 3];
    char path[700], *file[PICTURES];
    char names[PICTURES][16];
    part parts[PICTURES];
    for (int i = 0; i < PICTURES; i++) {
        memset(rgb, 40 * (i + 1), sizeof rgb);
        snprintf(path, sizeof path, "%s/p.png", root);
        cr_assert_eq(weft_png_write(path, rgb, SIDE, SIDE), WEFT_OK, "%s", weft_error_message());
        snprintf(names[i], sizeof names[i], "p%d.png", i);
        parts[i] = (part){.name = names[i]};
        cr_assert_eq(weft_file_read(path, 1 << 20, &file[i], &parts[i].bytes), WEFT_OK);
        parts[i].data = file[i];
    }
    write_tar("train-000009.tar", parts, PICTURES);
    for (int i = 0; i < PICTURES; i++)
        weft_free(file[i]);
    weft_bucket three[3] = {{3, 1, 32, 32}, {4, 5, 32, 32}, {2, 9, 32, 32}};
    weft_loader_config config = config_of(2);
    config.buckets = (weft_section_list){3, three};
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_loader_bucket_samples(loader, 0), PICTURES);
    weft_loader_report r;
    balance(loader, &r);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], CLIPS + PICTURES);
    cr_assert_eq(r.frames[WEFT_SAMPLE_USED], 105 + PICTURES);
    int seen[PICTURES] = {0}, clips = 0;
    for (int s = 0; s < 45; s++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        for (int64_t i = 0; i < batch.count; i++) {
            const char *key = weft_dataset_at(weft_loader_dataset(loader), batch.sample[i])->key;
            cr_assert_eq(key[0] == 'p', batch.bucket == 0);
            if (key[0] == 'p') {
                const int p = atoi(key + 1);
                cr_assert_float_eq((double)batch.video[i * SIDE * SIDE * 3 + 77],
                                   40.0 * (p + 1) / 127.5 - 1, 1e-5);
                seen[p]++;
            } else {
                clips++;
            }
        }
    }
    for (int p = 1; p < PICTURES; p++)
        cr_assert(abs(seen[p] - seen[0]) <= 1);
    cr_assert(seen[0] > 0 && clips > 0);
    weft_loader_close(loader);
}

/* Each sample is used exactly once per epoch over all ranks, for 1, 2 and 3 ranks and batches that do
 * not divide the samples. This holds also if the run stops in the middle of an epoch and resumes on
 * another number of ranks. */
Test(loader, once_per_epoch_over_ranks_and_resumes, .init = setup, .fini = teardown)
{
    enum { EPOCHS = 4 };
    for (int64_t size = 1; size <= 7; size += 2) {
        weft_bucket one[1] = {{size, 5, 32, 32}};
        weft_loader_config config = config_of(2);
        config.buckets = (weft_section_list){1, one};
        int seen[EPOCHS][CLIPS] = {0};
        json_t *state = NULL;
        int64_t step = 0, total = 0;
        for (int ranks = 1; total < EPOCHS * CLIPS; ranks = ranks % 3 + 1) {
            weft_loader *loader[3];
            for (int r = 0; r < ranks; r++) {
                cr_assert_eq(weft_loader_open(&config, r, ranks, NULL, 0, &loader[r]), WEFT_OK);
                if (state)
                    cr_assert_eq(weft_loader_restore(loader[r], state, "state"), WEFT_OK, "%s",
                                 weft_error_message());
            }
            for (int k = 0; k < 3; k++, step++) {
                int64_t count = 0;
                for (int r = 0; r < ranks; r++) {
                    weft_batch batch;
                    cr_assert_eq(weft_loader_next(loader[r], &batch), WEFT_OK, "%s",
                                 weft_error_message());
                    cr_assert_eq(batch.step, step);
                    cr_assert_eq(batch.first, count);
                    count += batch.count;
                    for (int64_t i = 0; i < batch.count; i++)
                        if (batch.epoch[i] < EPOCHS)
                            seen[batch.epoch[i]][batch.sample[i]]++;
                }
                cr_assert_eq(count, size);
                total += count;
            }
            json_decref(state);
            state = weft_loader_state(loader[0]);
            for (int r = 0; r < ranks; r++)
                weft_loader_close(loader[r]);
        }
        json_decref(state);
        for (int e = 0; e < EPOCHS; e++)
            for (int c = 0; c < CLIPS; c++)
                cr_assert_eq(seen[e][c], 1, "batch %d, epoch %d: clip %d came %d times", (int)size,
                             e, c, seen[e][c]);
    }
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

/* The threads hold one decoded clip each: the largest of the buckets, as bytes. */
Test(loader, decoded_clips_are_counted_once_per_thread, .init = setup, .fini = teardown)
{
    for (int64_t threads = 1; threads <= 3; threads++) {
        const weft_loader_config config = config_of(threads);
        cr_expect_eq(weft_loader_plan_make(&config, 0, 1, 3).clip_bytes,
                     threads * 9 * SIDE * SIDE * 3);
    }
}

/* Decoders need memory while they decode, also from a single shard or a pattern. Data that cannot be
 * read need none, and are not an error here. */
Test(loader, memory_of_decoders_is_measured, .init = setup, .fini = teardown)
{
    char one[700], none[700];
    weft_decoder_memory setup = {.shards = shards,
                                 .split = "train",
                                 .threads = 2,
                                 .frames = 5,
                                 .height = SIDE,
                                 .width = SIDE};
    int64_t bytes = 0;
    cr_assert_eq(weft_decoder_memory_measure(&setup, &bytes), WEFT_OK);
    cr_expect(bytes > 2 * SIDE * SIDE * 3, "%lld bytes", (long long)bytes);
    snprintf(one, sizeof one, "%s/train-000000.tar", shards);
    setup.shards = one;
    cr_assert_eq(weft_decoder_memory_measure(&setup, &bytes), WEFT_OK);
    cr_expect(bytes > 2 * SIDE * SIDE * 3, "%lld bytes", (long long)bytes);
    snprintf(none, sizeof none, "%s/none", shards);
    setup.shards = none;
    cr_assert_eq(weft_decoder_memory_measure(&setup, &bytes), WEFT_OK);
    cr_expect_eq(bytes, 0);
    setup = (weft_decoder_memory){.shards = shards, .split = "other", .threads = 1};
    cr_assert_eq(weft_decoder_memory_measure(&setup, &bytes), WEFT_OK);
    cr_expect_eq(bytes, 0);
}
