/* Tensors in files, videos, images and batches through the public headers. */
#include <weft/weft.h>

#include "pool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call) cr_assert_eq((call), WEFT_OK, "%s", weft_error_message())

static char root[] = "/tmp/weft-api-data-XXXXXX";
static char place[300];

static const char *in_root(const char *name)
{
    snprintf(place, sizeof place, "%s/%s", root, name);
    return place;
}

static void setup(void)
{
    cr_assert(mkdtemp(root));
}

static void teardown(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(api_data, .init = setup, .fini = teardown);

Test(api_data, safetensors_round_trip)
{
    const float a[6] = {1, -2, 0.5f, 3, 1e-3f, 7}, b[2] = {1.5f, -0.25f};
    const int64_t ids[3] = {1, 1LL << 40, -5}, a_dim[2] = {2, 3}, b_dim[1] = {2}, id_dim[1] = {3};
    weft_tensors_writer *w;
    weft_tensors *t;
    OK(weft_tensors_writer_create(root, "model", 0, &w));
    OK(weft_tensors_writer_metadata(w, "format", "test"));
    OK(weft_tensors_writer_declare(w, "a", WEFT_F32, 2, a_dim));
    OK(weft_tensors_writer_declare(w, "b", WEFT_BF16, 1, b_dim));
    OK(weft_tensors_writer_declare(w, "ids", WEFT_I64, 1, id_dim));
    OK(weft_tensors_writer_data(w, "a", WEFT_F32, a));
    OK(weft_tensors_writer_data(w, "b", WEFT_F32, b));
    OK(weft_tensors_writer_data(w, "ids", WEFT_I64, ids));
    OK(weft_tensors_writer_finish(w));
    weft_tensors_writer_free(w);

    OK(weft_tensors_open(in_root("model.safetensors"), &t));
    cr_expect_eq(weft_tensors_count(t), 3);
    cr_expect_str_eq(weft_tensors_metadata(t, "format"), "test");
    cr_expect_eq(weft_tensors_metadata(t, "other"), NULL);
    weft_stored_description d = WEFT_INIT(weft_stored_description);
    OK(weft_stored_describe(weft_tensors_at(t, 1), &d));
    cr_expect_str_eq(d.name, "b");
    cr_expect_eq(weft_tensors_find(t, "c"), NULL);
    float values[6];
    const weft_stored_tensor *stored = weft_tensors_find(t, "a");
    OK(weft_stored_describe(stored, &d));
    cr_assert_eq(d.rank, 2);
    cr_expect_eq(d.dim[0], 2);
    cr_expect_eq(d.dim[1], 3);
    OK(weft_stored_get_f32(stored, 0, 6, values));
    cr_expect_eq(memcmp(values, a, sizeof a), 0);
    OK(weft_stored_get_f32(stored, 4, 2, values));
    cr_expect_eq(values[1], 7);
    cr_expect_eq(weft_stored_get_f32(stored, 5, 2, values), WEFT_E_ARG);
    cr_expect_eq(weft_stored_get_f32(stored, -1, 2, values), WEFT_E_ARG);
    stored = weft_tensors_find(t, "b");
    OK(weft_stored_describe(stored, &d));
    cr_expect_eq(d.dtype, WEFT_BF16);
    cr_expect_str_eq(d.type, "bf16");
    OK(weft_stored_get_f32(stored, 0, 2, values));
    cr_expect_eq(memcmp(values, b, sizeof b), 0); /* exact in bf16 */
    weft_tensors_close(t);
}

Test(api_data, a_writer_that_does_not_finish_leaves_no_file)
{
    const int64_t dim[1] = {2};
    weft_tensors_writer *w;
    weft_tensors *t;
    OK(weft_tensors_writer_create(root, "half", 0, &w));
    OK(weft_tensors_writer_declare(w, "a", WEFT_F32, 1, dim));
    cr_expect_neq(weft_tensors_writer_finish(w), WEFT_OK);
    weft_tensors_writer_free(w);
    cr_expect_eq(weft_tensors_open(in_root("half.safetensors"), &t), WEFT_E_NOT_FOUND);
}

/* ---- videos ---------------------------------------------------------------------------------- */

enum { SIDE = 32 };

/* `frames` frames of one grey each: frame i is `grey` + 10 i. */
static void write_video(const char *path, int frames, int grey)
{
    uint8_t rgb[SIDE * SIDE * 3];
    weft_video_write_options options = WEFT_INIT(weft_video_write_options);
    weft_video_writer *w;
    options.width = options.height = SIDE;
    options.frames_per_second = 8;
    OK(weft_video_create(path, &options, &w));
    for (int i = 0; i < frames; i++) {
        memset(rgb, grey + 10 * i, sizeof rgb);
        OK(weft_video_writer_rgb(w, rgb, SIDE * 3));
    }
    OK(weft_video_writer_finish(w));
    weft_video_writer_close(w);
}

Test(api_data, video_round_trip)
{
    weft_video_read_options half = WEFT_INIT(weft_video_read_options);
    weft_video_description d = WEFT_INIT(weft_video_description);
    weft_video_image image = WEFT_INIT(weft_video_image);
    weft_video_reader *r;
    int got = 1, frames = 0;
    write_video(in_root("v.mp4"), 6, 60);
    half.width = half.height = SIDE / 2;
    OK(weft_video_open(place, &half, &r));
    OK(weft_video_describe(r, &d));
    cr_expect_eq(d.width, SIDE);
    cr_expect_float_eq(d.frames_per_second, 8, 1e-3);
    cr_expect_eq(d.has_audio, 0);
    for (;; frames++) {
        OK(weft_video_read(r, &image, &got));
        if (!got)
            break;
        cr_expect_eq(image.index, frames);
        cr_expect_eq(image.width, SIDE / 2);
        cr_expect_leq(abs(image.rgb[0] - (60 + 10 * frames)), 4, "frame %d: %d", frames,
                      image.rgb[0]);
    }
    cr_expect_eq(frames, 6);
    OK(weft_video_reader_seek_time(r, 4.0 / 8));
    OK(weft_video_read(r, &image, &got));
    cr_expect_eq(image.index, 4);
    OK(weft_video_reader_seek_time(r, image.seconds - 1.0 / 8));
    OK(weft_video_read(r, &image, &got));
    cr_expect_eq(image.index, 3);
    weft_video_reader_close(r);
    cr_expect_neq(weft_video_open(in_root("none.mp4"), NULL, &r), WEFT_OK);
}

/* An image is a video of one frame. */
Test(api_data, images)
{
    uint8_t rgb[4 * 2 * 3], pixel[3];
    weft_video_write_options size = WEFT_INIT(weft_video_write_options);
    weft_video_image image = WEFT_INIT(weft_video_image);
    weft_video_writer *w;
    weft_video_reader *r;
    int got = 0;
    for (int i = 0; i < 24; i++)
        rgb[i] = (uint8_t)(i * 10);
    size.width = 4;
    size.height = 2;
    size.frames_per_second = 1;
    OK(weft_video_create(in_root("i.png"), &size, &w));
    OK(weft_video_writer_rgb(w, rgb, 4 * 3));
    OK(weft_video_writer_finish(w));
    weft_video_writer_close(w);
    OK(weft_video_open(place, NULL, &r));
    OK(weft_video_read(r, &image, &got));
    cr_assert(got);
    cr_expect_eq(image.width, 4);
    cr_expect_eq(image.height, 2);
    for (int y = 0; y < 2; y++)
        cr_expect_eq(memcmp(image.rgb + y * image.stride, rgb + y * 12, 12), 0);
    weft_video_reader_close(r);
    const float clip[3] = {-1, 1, 5};
    weft_clip_to_u8(clip, 1, 1, 1, false, pixel);
    cr_expect_eq(pixel[0], 0);
    cr_expect_eq(pixel[1], 255);
    cr_expect_eq(pixel[2], 255);
}

Test(api_data, clips)
{
    enum { FRAMES = 3 };
    float values[FRAMES * 16 * 16 * 3];
    weft_clip_options options = WEFT_INIT(weft_clip_options);
    write_video(in_root("c.mp4"), 4, 100);
    options.frames = FRAMES;
    options.height = options.width = 16;
    OK(weft_clip_load(place, &options, values));
    for (int t = 0; t < FRAMES; t++)
        cr_expect_float_eq(values[t * 16 * 16 * 3], (100 + 10 * t) / 127.5 - 1, 0.04);
    options.frames = 9;
    cr_expect_eq(weft_clip_load(place, &options, values), WEFT_E_SHAPE);
    options.frames = 0;
    cr_expect_eq(weft_clip_load(place, &options, values), WEFT_E_ARG);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { CLIPS = 6, CLIP_FRAMES = 5 };

static void write_shards(void)
{
    char name[64], out[300];
    int64_t written = 0;
    weft_shard_options options = WEFT_INIT(weft_shard_options);
    cr_assert_eq(mkdir(in_root("curated"), 0777), 0);
    cr_assert_eq(mkdir(in_root("curated/clips"), 0777), 0);
    cr_assert_eq(mkdir(in_root("curated/metas"), 0777), 0);
    for (int i = 0; i < CLIPS; i++) {
        snprintf(name, sizeof name, "curated/clips/c%d.mp4", i);
        write_video(in_root(name), CLIP_FRAMES, 20 * i);
        snprintf(name, sizeof name, "curated/metas/c%d.json", i);
        FILE *file = fopen(in_root(name), "w");
        fprintf(file,
                "{\"caption\":\"grey %d\",\"frames\":%d,\"fps\":8,\"width\":%d,\"height\":%d}", i,
                CLIP_FRAMES, SIDE, SIDE);
        fclose(file);
    }
    options.max_samples = 4;
    snprintf(out, sizeof out, "%s/shards", root);
    OK(weft_shards_write(in_root("curated"), out, &options, &written));
    cr_expect_eq(written, CLIPS);
}

/* The caption has the number of the clip's grey. */
static void check_batch(const weft_batch_view *batch, int count)
{
    const int64_t each = CLIP_FRAMES * 16 * 16 * 3;
    cr_assert_eq(batch->count, count);
    for (int i = 0; i < count; i++) {
        int number = -1;
        cr_assert_eq(sscanf(batch->caption[i], "grey %d", &number), 1, "%s", batch->caption[i]);
        cr_expect_float_eq(batch->video[i * each], 20 * number / 127.5 - 1, 0.05, "clip %d: %g",
                           number, (double)batch->video[i * each]);
    }
}

Test(api_data, batches)
{
    const weft_clip_size clip = {.batch = 2, .frames = CLIP_FRAMES, .height = 16, .width = 16};
    weft_batch_options options = WEFT_INIT(weft_batch_options);
    weft_batch_view batch = WEFT_INIT(weft_batch_view);
    weft_batches *b, *again;
    char *position;
    uint64_t seen[CLIPS];
    static pool p; /* the threads of the loader use it, too */
    OK(use_pool(&p));
    write_shards();
    cr_expect_eq(weft_batches_open(in_root("shards"), &options, &b), WEFT_E_ARG);
    options.clip = &clip;
    options.clip_sizes = 1;
    options.verify = 1;
    OK(weft_batches_open(in_root("shards"), &options, &b));
    for (int i = 0; i < CLIPS / 2; i++) {
        OK(weft_batches_next(b, &batch));
        cr_expect_eq(batch.step, i);
        check_batch(&batch, 2);
        seen[2 * i] = batch.id[0];
        seen[2 * i + 1] = batch.id[1];
    }
    for (int i = 0; i < CLIPS; i++) /* an epoch has every sample once */
        for (int k = 0; k < i; k++)
            cr_expect_neq(seen[i], seen[k]);
    OK(weft_batches_save(b, &position));
    OK(weft_batches_next(b, &batch));
    const uint64_t next = batch.id[0];
    OK(weft_batches_open(in_root("shards"), &options, &again));
    OK(weft_batches_restore(again, position));
    OK(weft_batches_next(again, &batch));
    cr_expect_eq(batch.step, CLIPS / 2);
    cr_expect_eq(batch.id[0], next);
    cr_expect_neq(weft_batches_restore(again, "{"), WEFT_OK);
    weft_free(position);
    weft_batches_close(again);
    weft_batches_close(b);
    /* half of a batch on each of two ranks */
    options.ranks = 2;
    options.rank = 1;
    OK(weft_batches_open(in_root("shards"), &options, &b));
    OK(weft_batches_next(b, &batch));
    check_batch(&batch, 1);
    cr_expect_eq(batch.id[0], seen[1]);
    weft_batches_close(b);
    options.rank = 2;
    cr_expect_eq(weft_batches_open(in_root("shards"), &options, &b), WEFT_E_ARG);
    cr_expect(!p.foreign);
    cr_expect_eq(p.blocks, 0, "%lld blocks remain", (long long)p.blocks);
}
