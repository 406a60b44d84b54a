/* Videos without data shards: the same batches as from shards, clips of long videos, captions, and
 * the stored index of sizes. */
#include "base/fs.h"
#include "data/loader_items.h"
#include "data/loader_order.h"
#include "data/loader_report.h"
#include "data/loose_videos.h"
#include "data/shard_write.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, LONG = 23 };

static char root[] = "/tmp/weft-loose-XXXXXX";

static const char *in(const char *name)
{
    static char path[4][700];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static void put(const char *name, const char *text)
{
    char *folder = strdup(in(name));
    *strrchr(folder, '/') = 0;
    cr_assert_eq(weft_make_dirs(folder), WEFT_OK);
    free(folder);
    cr_assert_eq(weft_file_write_atomic(in(name), text, (int64_t)strlen(text)), WEFT_OK);
}

/* A video whose frame i has the grey value first + step i. */
static void put_video(const char *name, int frames, float first, float step)
{
    put(name, "");
    float *clip = malloc(sizeof(float) * (size_t)(frames * SIDE * SIDE * 3));
    for (int i = 0; i < frames; i++)
        for (int k = 0; k < SIDE * SIDE * 3; k++)
            clip[i * SIDE * SIDE * 3 + k] = first + step * (float)i;
    const weft_video_writer_options options = {
        .width = SIDE, .height = SIDE, .fps = 8, .preset = "ultrafast"};
    cr_assert_eq(weft_video_write_clip(in(name), clip, frames, false, &options), WEFT_OK, "%s",
                 weft_error_message());
    free(clip);
}

static void setup(void)
{
    cr_assert(mkdtemp(root));
}

static void teardown(void)
{
    (void)!weft_remove_tree(root);
}

static weft_bucket buckets[2] = {{4, 5, 32, 32}, {2, 9, 32, 32}};

static weft_loader *open_at(const char *place, double clip_seconds, int rank, int ranks)
{
    const weft_loader_config config = {.shards = place,
                                       .split = "train",
                                       .clip_seconds = clip_seconds,
                                       .buckets = {2, buckets},
                                       .seed = 3,
                                       .threads = 2,
                                       .prefetch = 2,
                                       .verify = true,
                                       .random_start = true};
    weft_loader *loader;
    cr_assert_eq(weft_loader_open(&config, rank, ranks, NULL, 0, &loader), WEFT_OK, "%s",
                 weft_error_message());
    return loader;
}

static void expect_same(weft_loader *a, weft_loader *b, int steps)
{
    for (int i = 0; i < steps; i++) {
        weft_batch x, y;
        cr_assert_eq(weft_loader_next(a, &x), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_loader_next(b, &y), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(x.step, y.step);
        cr_assert_eq(x.bucket, y.bucket);
        cr_assert_eq(x.count, y.count);
        const int64_t floats = buckets[x.bucket].frames * SIDE * SIDE * 3;
        for (int64_t k = 0; k < x.count; k++) {
            cr_assert_eq(x.id[k], y.id[k]);
            cr_assert_eq(x.replaced[k], y.replaced[k]);
            cr_assert_str_eq(x.caption[k], y.caption[k]);
        }
        cr_assert_eq(memcmp(x.video, y.video, (size_t)(x.count * floats) * 4), 0, "step %d", i);
    }
}

/* A folder of `weft curate` gives bitwise the batches of its shards, on any number of ranks. */
Test(loose_videos, batches_of_the_shards, .init = setup, .fini = teardown)
{
    for (int i = 0; i < 7; i++) {
        char name[64], meta[200];
        snprintf(name, sizeof name, "cur/clips/c%d.mp4", i);
        put_video(name, 6 + 2 * i, -0.8f + 0.2f * (float)i, 0.02f);
        snprintf(name, sizeof name, "cur/metas/c%d.json", i);
        snprintf(meta, sizeof meta,
                 "{\"caption\":\"grey %d\",\"frames\":%d,\"fps\":8,\"width\":32,\"height\":32}", i,
                 6 + 2 * i);
        put(name, meta);
    }
    const weft_shard_config config = {.heldout = 0, .max_samples = 3, .max_bytes = 1 << 20};
    weft_shard_report report;
    char cur[700], shards[700];
    snprintf(cur, sizeof cur, "%s/cur", root);
    snprintf(shards, sizeof shards, "%s/shards", root);
    cr_assert_eq(weft_shard_run(&config, cur, shards, &report), WEFT_OK);
    for (int rank = -1; rank < 2; rank++) { /* -1: one rank */
        weft_loader *a = open_at(cur, 0, rank < 0 ? 0 : rank, rank < 0 ? 1 : 2),
                    *b = open_at(shards, 0, rank < 0 ? 0 : rank, rank < 0 ? 1 : 2);
        expect_same(a, b, 9);
        const weft_loader_report r = weft_loader_get_report(a);
        cr_assert_eq(r.samples[WEFT_SAMPLE_USED], 7);
        cr_assert_eq(r.unused_frames, weft_loader_get_report(b).unused_frames);
        weft_loader_close(a);
        weft_loader_close(b);
    }
}

/* Frames of another aspect are cropped, and the report counts them. */
Test(loose_videos, crops_are_counted, .init = setup, .fini = teardown)
{
    static weft_bucket wide = {2, 5, 16, 32};
    put_video("raw/a.mp4", 6, 0, 0);
    put_video("raw/b.mp4", 7, 0, 0);
    const weft_loader_config config = {
        .shards = in("raw"), .buckets = {1, &wide}, .threads = 1, .prefetch = 1};
    weft_loader *l;
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &l), WEFT_OK, "%s", weft_error_message());
    const weft_loader_report r = weft_loader_get_report(l);
    cr_assert_eq(r.cropped, 2);
    cr_assert_float_eq(r.cropped_share, 0.5, 1e-9);
    weft_loader_close(l);
}

/* A long video is divided into clips; each has its own frames, and a short rest is counted. */
Test(loose_videos, clips_of_a_long_video, .init = setup, .fini = teardown)
{
    put_video("raw/a.b/long.one.mp4", LONG, -0.9f, 0.075f);
    put_video("raw/small.webm", 2, 0, 0);
    weft_loader *l = open_at(in("raw"), 1, 0, 1);
    const weft_dataset *ds = weft_loader_dataset(l);
    cr_assert_eq(weft_dataset_count(ds), 4);
    cr_assert_str_eq(weft_dataset_at(ds, 0)->key, "a.b/long%2Eone@0000");
    cr_assert_str_eq(weft_dataset_at(ds, 2)->key, "a.b/long%2Eone@0002");
    cr_assert_eq(weft_dataset_at(ds, 2)->frames, LONG - 16);
    cr_assert_str_eq(weft_dataset_at(ds, 3)->key, "small");
    const weft_loader_report r = weft_loader_get_report(l);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], 3);
    cr_assert_eq(r.samples[WEFT_SAMPLE_TOO_SHORT], 1);
    cr_assert_eq(r.all_frames, LONG + 2);
    cr_assert_eq(r.cropped, 0);
    for (int i = 0; i < 6; i++) {
        weft_batch b;
        cr_assert_eq(weft_loader_next(l, &b), WEFT_OK, "%s", weft_error_message());
        for (int64_t k = 0; k < b.count; k++) {
            cr_assert_not(b.replaced[k]);
            const float *frame = b.video + k * 5 * SIDE * SIDE * 3;
            const int first = (int)((frame[0] + 0.9f) / 0.075f + 0.5f);
            const int clip = (int)b.sample[k];
            cr_assert(first >= 8 * clip && first + 5 <= (clip < 2 ? 8 * clip + 8 : LONG),
                      "clip %d begins at frame %d", clip, first);
            for (int t = 0; t < 5; t++)
                cr_assert_float_eq(frame[t * SIDE * SIDE * 3], -0.9f + 0.075f * (float)(first + t),
                                   0.03f, "clip %d frame %d", clip, t);
        }
    }
    /* resumes at the same sample */
    json_t *state = weft_loader_state(l);
    weft_loader *again = open_at(in("raw"), 1, 0, 1);
    cr_assert_eq(weft_loader_restore(again, state, "state"), WEFT_OK, "%s", weft_error_message());
    expect_same(l, again, 3);
    json_decref(state);
    weft_loader_close(again);
    weft_loader_close(l);
}

static void expect_caption(const weft_dataset *ds, const char *key, const char *caption)
{
    weft_part_bytes text = {0};
    for (int64_t i = 0; i < weft_dataset_count(ds); i++) {
        const weft_sample *s = weft_dataset_at(ds, i);
        if (strcmp(s->key, key))
            continue;
        cr_assert_eq(s->captioned, *caption != 0, "%s", key);
        cr_assert_eq(weft_dataset_caption(ds, s, true, &text), WEFT_OK);
        cr_assert_str_eq(text.data, caption, "%s", key);
        weft_free(text.data);
        return;
    }
    cr_assert_fail("no sample %s", key);
}

/* Captions of a text, a .json, a table and cues; a poster is not a sample. */
Test(loose_videos, captions_of_files, .init = setup, .fini = teardown)
{
    static const char *const names[] = {"text", "meta", "listed", "deep/listed", "cues", "none"};
    for (int i = 0; i < WEFT_COUNT(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "raw/%s.mp4", names[i]);
        put_video(name, 16, 0, 0);
    }
    put("raw/text.txt", "of a text \n");
    put("raw/text.jpg", "a poster");
    put("raw/meta.json", "{\"caption\": \"of metadata\"}");
    put("raw/captions.csv", "file,caption\nlisted.mp4,of a table\ndeep/listed.mp4,of a path\n"
                            "text.mp4,not used\n");
    put("raw/cues.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\nfirst\n\n"
                        "00:01.000 --> 00:02.000\nsecond\n");
    weft_dataset *ds;
    cr_assert_eq(weft_dataset_open_with(in("raw"), &(weft_dataset_options){.clip_seconds = 1}, &ds),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_dataset_count(ds), 12);
    expect_caption(ds, "text@0000", "of a text");
    expect_caption(ds, "meta@0001", "of metadata");
    expect_caption(ds, "listed@0000", "of a table");
    expect_caption(ds, "deep/listed@0000", "of a path");
    expect_caption(ds, "cues@0000", "first");
    expect_caption(ds, "cues@0001", "second");
    expect_caption(ds, "none@0000", "");
    weft_dataset_close(ds);
}

static int64_t opened(const char *place, const char *split, int64_t *count)
{
    weft_storage *storage;
    weft_loose_videos videos;
    weft_arena *arena = weft_arena_create();
    cr_assert_eq(weft_storage_open(place, &storage), WEFT_OK);
    cr_assert_eq(weft_loose_videos_find(storage, split, arena, &videos), WEFT_OK, "%s",
                 weft_error_message());
    const int64_t n = videos.opened;
    *count = videos.count;
    for (int64_t i = 0; i < videos.count; i++)
        cr_assert(videos.video[i].sample.unreadable || videos.video[i].sample.width == SIDE);
    weft_free(videos.video);
    weft_storage_close(storage);
    weft_arena_free(arena);
    return n;
}

/* Only new and changed videos are opened; a damaged index opens all; a split is a folder. */
Test(loose_videos, sizes_are_stored, .init = setup, .fini = teardown)
{
    int64_t count;
    put_video("raw/train/a.mp4", 8, 0, 0);
    put_video("raw/train/b.mp4", 8, 0, 0);
    put("raw/other/broken.mp4", "not a video");
    cr_assert_eq(opened(in("raw"), NULL, &count), 3);
    cr_assert_eq(count, 3);
    cr_assert_eq(opened(in("raw"), NULL, &count), 0);
    cr_assert_eq(count, 3);
    put_video("raw/train/b.mp4", 9, 0.5f, 0);
    cr_assert_eq(opened(in("raw"), NULL, &count), 1);
    put("raw/.weft-videos.index", "damaged");
    cr_assert_eq(opened(in("raw"), "train", &count), 2);
    cr_assert_eq(count, 2);
    weft_dataset *ds;
    cr_assert_eq(weft_dataset_open(in("raw"), "heldout", false, &ds), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_dataset_open(in("raw"), "other", false, &ds), WEFT_OK);
    cr_assert(weft_dataset_at(ds, 0)->unreadable);
    weft_dataset_close(ds);
}
