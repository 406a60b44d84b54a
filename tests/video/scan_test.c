/* The scan reports every frame, with skipped and damaged frames and any number of decoder threads.
 * */
#include "video/scan.h"

#include "../threads_of.h"
#include "base/fs.h"
#include "base/memory.h"
#include "footage.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    W = 160,
    H = 96,
    FRAMES = 130,
    CUT = 70,
    SMALL_W = 32,
    SMALL_H = 18,
    LARGE_W = 64,
    LARGE_H = 36
};

static char *scratch(const char *name)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "/tmp/weft-scan-%d-%s", (int)getpid(), name);
    return path.data;
}

/* A square that moves slowly over a gradient; another scene from frame CUT. */
static char *make_video(const char *name, int64_t key_interval)
{
    char *path = scratch(name);
    const weft_video_writer_options o = {
        .width = W, .height = H, .fps = 24, .crf = 16, .key_interval = key_interval};
    weft_video_writer *writer;
    cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK, "%s", weft_error_message());
    uint8_t *rgb = weft_alloc(W * H * 3);
    for (int t = 0; t < FRAMES; t++) {
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                uint8_t *p = rgb + (y * W + x) * 3;
                const bool square = x >= t && x < t + 14 && y > 30 && y < 50;
                p[0] = (uint8_t)(t < CUT ? 40 + x : 220 - x);
                p[1] = (uint8_t)(square    ? 220
                                 : t < CUT ? 60 + y
                                           : 30 + 2 * ((x / 8 + y / 8) & 1) * 40);
                p[2] = 90;
            }
        cr_assert_eq(weft_video_writer_rgb(writer, rgb, W * 3), WEFT_OK);
    }
    cr_assert_eq(weft_video_writer_finish(writer), WEFT_OK, "%s", weft_error_message());
    weft_video_writer_close(writer);
    weft_free(rgb);
    return path;
}

typedef struct seen {
    int64_t begun, frames, mixed, run, longest_run, vectors;
    double last_seconds, way; /* mean length of the vectors of the frames, summed */
    bool in_order;
    uint64_t sum, mixed_at_cut;
    int64_t fail_at;
} seen;

static weft_status_code begin(void *user, const weft_video_info *info)
{
    seen *s = user;
    *s = (seen){.begun = s->begun + 1, .in_order = true, .last_seconds = -1, .fail_at = s->fail_at};
    return info->width > 0 ? WEFT_OK : weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "no size");
}

static uint64_t mix(uint64_t sum, const weft_video_frame *f)
{
    for (int p = 0; p < 3; p++)
        for (int64_t y = 0; y < f->height; y++)
            for (int64_t x = 0; x < f->width; x++)
                sum = (sum ^ f->plane[p][y * f->stride[p] + x]) * 1099511628211u;
    return sum;
}

static weft_status_code take(void *user, const weft_video_frame *f, const weft_video_frame *large)
{
    seen *s = user;
    if (s->fail_at && s->frames == s->fail_at)
        return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "enough");
    s->in_order &= f->index == s->frames && f->seconds > s->last_seconds;
    s->last_seconds = f->seconds;
    s->frames++;
    s->mixed += f->mixed;
    s->run = f->mixed ? s->run + 1 : 0;
    s->longest_run = s->run > s->longest_run ? s->run : s->longest_run;
    s->mixed_at_cut += f->mixed && f->index >= CUT - 1 && f->index <= CUT;
    s->sum = mix(s->sum, f);
    if (large) {
        s->in_order &= large->index == f->index && large->width == LARGE_W;
        s->sum = mix(s->sum, large);
    }
    double way = 0;
    for (int64_t i = 0; i < f->motion_count; i++)
        way = fmax(way, hypot((double)f->motion[i].dx, (double)f->motion[i].dy));
    s->way += way;
    s->vectors += f->motion_count > 0;
    return WEFT_OK;
}

static bool near(const void *settings, const weft_video_frame *a, const weft_video_frame *b)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < a->width * a->height; i++)
        sum += abs(a->plane[0][i] - b->plane[0][i]);
    return (double)sum < *(const double *)settings * (double)(a->width * a->height);
}

static seen scan_it(const char *path, int threads, int64_t leave_out, double level,
                    weft_scan_result *result)
{
    seen s = {0};
    const weft_scan_options o = {.width = SMALL_W,
                                 .height = SMALL_H,
                                 .large_width = LARGE_W,
                                 .large_height = LARGE_H,
                                 .threads = threads,
                                 .leave_out = leave_out,
                                 .motion_vectors = true};
    const weft_scan_visitor v = {&s, begin, take, near, &level};
    cr_assert_eq(weft_video_scan(path, &o, &v, result), WEFT_OK, "%s", weft_error_message());
    cr_assert(s.in_order, "%s: frames out of order", path);
    cr_assert_eq(result->frames, s.frames);
    cr_assert_eq(result->decoded, s.frames - s.mixed);
    return s;
}

/* The results of the reader for a file: frames, and the sum of their thumbnails. */
static int64_t read_it(const char *path, uint64_t *sum)
{
    const weft_video_options o = {
        .format = WEFT_VIDEO_SMALL, .width = SMALL_W, .height = SMALL_H, .fast = true};
    weft_video_reader *r;
    weft_video_frame f;
    bool got;
    int64_t count = 0;
    *sum = 0;
    if (weft_video_reader_open(path, &o, &r) != WEFT_OK)
        return 0;
    for (; weft_video_reader_next(r, &f, &got) == WEFT_OK && got; count++)
        *sum = mix(*sum, &f);
    weft_video_reader_close(r);
    return count;
}

Test(scan, the_number_of_threads_changes_nothing)
{
    for (int k = 0; k < 2; k++) {
        char *path = make_video(k ? "one-part.mp4" : "parts.mp4", k ? 1000 : 24);
        weft_scan_result a, b;
        const seen one = scan_it(path, 1, 5, 4, &a);
        cr_assert_eq(one.frames, FRAMES);
        cr_assert_eq(one.begun, 1);
        cr_assert(one.mixed > FRAMES / 4, "%" PRId64 " frames were mixed", one.mixed);
        cr_assert(one.longest_run <= 5);
        cr_assert_eq(one.mixed_at_cut, 0, "a frame at the cut was mixed");
        for (int threads = 2; threads <= 7; threads += 5) {
            const seen more = scan_it(path, threads, 5, 4, &b);
            cr_assert_eq(more.sum, one.sum);
            cr_assert_eq(more.mixed, one.mixed);
        }
        unlink(path);
        weft_free(path);
    }
}

typedef struct slow {
    int64_t frames; /* looked at */
    uint64_t sum;
} slow;

static weft_status_code begin_slow(void *user, const weft_video_info *info)
{
    *(slow *)user = (slow){0};
    return info->width > 0 ? WEFT_OK : weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "no size");
}

static weft_status_code look_slowly(void *user, const weft_video_frame *f,
                                    const weft_video_frame *large)
{
    slow *s = user;
    if (s->frames++ == 0)
        wait_until_others_sleep(); /* no further frame fits */
    s->sum = mix(mix(s->sum, f), large);
    return WEFT_OK;
}

/* While the first frame is processed, decoding stops at the bound of queued bytes, for reported
 * parts and for parts that are decoded ahead. Frames are those of one thread. */
Test(scan, what_waits_is_bounded)
{
    for (int k = 0; k < 2; k++) {
        char *path = make_video(k ? "slow-one.mp4" : "slow-parts.mp4", k ? 1000 : 12);
        slow at[2];
        for (int threads = 1; threads <= 4; threads += 3) {
            /* a frame of 620 kB: thirteen of 130 fit */
            const weft_scan_options o = {.width = SMALL_W,
                                         .height = SMALL_H,
                                         .large_width = 576,
                                         .large_height = 360,
                                         .threads = threads};
            slow *s = &at[threads > 1];
            const weft_scan_visitor v = {s, begin_slow, look_slowly, near, &(double){0}};
            weft_scan_result r;
            cr_assert_eq(weft_video_scan(path, &o, &v, &r), WEFT_OK, "%s", weft_error_message());
            cr_assert_eq(r.frames, FRAMES);
            cr_assert(r.most_waiting > 0 && r.most_waiting <= WEFT_SCAN_WAITING,
                      "%d threads: %" PRId64 " bytes waited", threads, r.most_waiting);
        }
        cr_assert(at[0].sum == at[1].sum && at[0].frames == at[1].frames);
        unlink(path);
        weft_free(path);
    }
}

Test(scan, with_nothing_left_out_the_frames_are_the_readers)
{
    char *path = make_video("all.mp4", 24);
    seen s = {0};
    double level = 1e9;
    uint64_t sum;
    weft_scan_result result;
    const weft_scan_options o = {.width = SMALL_W, .height = SMALL_H, .threads = 2};
    const weft_scan_visitor v = {&s, begin, take, near, &level};
    cr_assert_eq(weft_video_scan(path, &o, &v, &result), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(read_it(path, &sum), FRAMES);
    cr_assert_eq(s.frames, FRAMES);
    cr_assert_eq(s.mixed, 0);
    cr_assert_eq(s.sum, sum);
    unlink(path);
    weft_free(path);
}

/* The square moves one pixel per frame. Motion vectors over several frames are reported per frame,
 * also for mixed distances. */
Test(scan, vectors_are_per_frame)
{
    char *path = make_video("vectors.mp4", 1000);
    weft_scan_result result;
    const seen all = scan_it(path, 1, 0, 4, &result), some = scan_it(path, 1, 5, 4, &result);
    cr_assert(all.vectors > FRAMES / 2 && some.vectors > FRAMES / 2 && some.mixed > 0);
    cr_assert_float_eq(all.way / (double)all.vectors, 1, 0.4, "%g", all.way / (double)all.vectors);
    cr_assert_float_eq(some.way / (double)some.vectors, 1, 0.4, "%g",
                       some.way / (double)some.vectors);
    unlink(path);
    weft_free(path);
}

Test(scan, a_callback_ends_the_pass)
{
    char *path = make_video("stop.mp4", 24);
    double level = 4;
    weft_scan_result result;
    for (int64_t at = 1; at < FRAMES; at += 60) {
        seen s = {.fail_at = at};
        const weft_scan_options o = {
            .width = SMALL_W, .height = SMALL_H, .threads = 3, .leave_out = 5};
        const weft_scan_visitor v = {&s, begin, take, near, &level};
        cr_assert_eq(weft_video_scan(path, &o, &v, &result), WEFT_E_CANCELLED);
        cr_assert_str_eq(weft_error_message(), "enough");
        cr_assert_eq(s.frames, at);
    }
    unlink(path);
    weft_free(path);
}

/* Inverted bytes in the middle of the file: the file is decoded by the reader from the start, and
 * the frames of the reader are reported. */
Test(scan, damage_leads_to_the_reader)
{
    char *path = make_video("whole.mp4", 24), *broken = scratch("broken.mp4");
    char *data;
    int64_t bytes;
    cr_assert_eq(weft_file_read(path, 1 << 24, &data, &bytes), WEFT_OK);
    for (int64_t i = bytes / 2; i < bytes / 2 + 600; i++)
        data[i] = (char)(data[i] ^ 0x5a);
    cr_assert_eq(weft_file_write_atomic(broken, data, bytes), WEFT_OK);
    uint64_t sum;
    weft_scan_result result;
    const int64_t count = read_it(broken, &sum);
    for (int threads = 1; threads < 4;
         threads++) { /* concealment may differ between threads of the decoder */
        seen s = {0};
        double level = 4;
        const weft_scan_options o = {
            .width = SMALL_W, .height = SMALL_H, .threads = threads, .leave_out = 5};
        const weft_scan_visitor v = {&s, begin, take, near, &level};
        cr_assert_eq(weft_video_scan(broken, &o, &v, &result), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(s.begun, 2);
        cr_assert_eq(s.frames, count);
        cr_assert(threads > 1 || s.sum == sum);
        cr_assert_eq(s.mixed, 0);
    }
    unlink(path);
    unlink(broken);
    weft_free(path);
    weft_free(broken);
    weft_free(data);
}

/* With any skipped frames, the number of frames is that of ffmpeg, for every shared file. */
Test(scan, real_footage_is_counted_like_ffmpeg)
{
    json_t *manifest = footage_manifest(), *entry;
    size_t i;
    int64_t mixed = 0;
    json_array_foreach(json_object_get(manifest, "entries"), i, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        const char *codec = json_string_value(json_object_get(entry, "codec"));
        const int64_t frames = json_integer_value(json_object_get(entry, "frames"));
        if (!file || !codec || strcmp(codec, "h264") != 0 || frames < 1)
            continue;
        weft_buf name = footage_path(file);
        weft_scan_result result;
        const seen s = scan_it(name.data, 2, 5, 1e9, &result);
        cr_expect_eq(s.frames, frames, "%s: %d frames, ffmpeg gives %d", file, (int)s.frames,
                     (int)frames);
        mixed += s.mixed;
        weft_buf_free(&name);
    }
    cr_expect(mixed > 3000, "%" PRId64 " frames were mixed", mixed);
    json_decref(manifest);
}
