/* Videos: the reader returns the frames of the writer, with exact counts, seeks and conversions. */
#include "base/fs.h"
#include "base/memory.h"
#include "footage.h"
#include "video/clip.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *scratch(const char *name)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "/tmp/weft-video-%d-%s", (int)getpid(), name);
    return path.data;
}

/* A gradient with a square that moves two pixels a frame; the frame number is readable from it. */
static void paint(uint8_t *rgb, int64_t w, int64_t h, int64_t t)
{
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            uint8_t *p = rgb + (y * w + x) * 3;
            p[0] = (uint8_t)(40 + 120 * x / w);
            p[1] = (uint8_t)(60 + 100 * y / h);
            p[2] = 90;
            if (x >= 2 * t && x < 2 * t + 12 && y >= h / 3 && y < h / 3 + 12)
                p[0] = 230, p[1] = 230, p[2] = 40;
        }
}

static void write_video(const char *path, int64_t w, int64_t h, int64_t frames, double fps)
{
    const weft_video_tag tag = {"seed", "41"};
    const weft_video_writer_options o = {.width = w,
                                         .height = h,
                                         .fps = fps,
                                         .crf = 8,
                                         .key_interval = 12,
                                         .tags = &tag,
                                         .tag_count = 1};
    weft_video_writer *writer;
    cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK, "%s", weft_error_message());
    uint8_t *rgb = weft_alloc(w * h * 3);
    for (int64_t t = 0; t < frames; t++) {
        paint(rgb, w, h, t);
        cr_assert_eq(weft_video_writer_rgb(writer, rgb, w * 3), WEFT_OK);
    }
    cr_assert_eq(weft_video_writer_finish(writer), WEFT_OK, "%s", weft_error_message());
    weft_video_writer_close(writer);
    weft_free(rgb);
}

static double psnr(const uint8_t *a, int64_t a_stride, const uint8_t *b, int64_t w, int64_t h)
{
    double sum = 0;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w * 3; x++) {
            const double d = (double)a[y * a_stride + x] - b[y * w * 3 + x];
            sum += d * d;
        }
    return 10 * log10(255 * 255.0 * (double)(w * h * 3) / (sum + 1e-9));
}

static void round_trip(int64_t w, int64_t h)
{
    char *path = scratch("trip.mp4");
    write_video(path, w, h, 30, 24);
    weft_video_reader *r;
    cr_assert_eq(weft_video_reader_open(path, NULL, &r), WEFT_OK, "%s", weft_error_message());
    const weft_video_info *info = weft_video_reader_info(r);
    cr_assert_eq(info->width, w);
    cr_assert_eq(info->height, h);
    cr_assert_float_eq(info->fps, 24, 1e-6);
    uint8_t *want = weft_alloc(w * h * 3);
    int64_t count = 0;
    weft_video_frame f;
    bool got;
    while (weft_video_reader_next(r, &f, &got) == WEFT_OK && got) {
        paint(want, w, h, count);
        cr_assert_eq(f.index, count);
        cr_assert_float_eq(f.seconds, (double)count / 24, 1e-4);
        const double db = psnr(f.plane[0], f.stride[0], want, w, h);
        cr_assert(db > 30, "frame %d: %.1f dB", (int)count, db);
        count++;
    }
    cr_assert_eq(count, 30);
    cr_assert_eq(weft_video_reader_errors(r), 0);
    weft_video_reader_close(r);
    weft_free(want);
    unlink(path);
    weft_free(path);
}

Test(video, what_is_written_is_read)
{
    round_trip(96, 64);
}

Test(video, odd_sizes_keep_every_pixel)
{
    round_trip(75, 53);
}

Test(video, seeking_is_frame_exact)
{
    char *path = scratch("seek.mp4");
    write_video(path, 96, 64, 40, 25);
    weft_video_reader *r;
    cr_assert_eq(weft_video_reader_open(path, NULL, &r), WEFT_OK);
    uint8_t *all = weft_alloc(40 * 96 * 64 * 3);
    weft_video_frame f;
    bool got;
    for (int t = 0; t < 40; t++) {
        cr_assert_eq(weft_video_reader_next(r, &f, &got), WEFT_OK);
        for (int y = 0; y < 64; y++)
            memcpy(all + (t * 64 + y) * 96 * 3, f.plane[0] + y * f.stride[0], 96 * 3);
    }
    const int64_t order[] = {39, 0, 17, 16, 12, 11, 30, 31, 5, 38};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        cr_assert_eq(weft_video_reader_seek(r, order[i]), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_video_reader_next(r, &f, &got), WEFT_OK);
        cr_assert(got);
        cr_assert_eq(f.index, order[i]);
        for (int y = 0; y < 64; y++)
            cr_assert_arr_eq(f.plane[0] + y * f.stride[0], all + (order[i] * 64 + y) * 96 * 3,
                             96 * 3, "frame %d row %d", (int)order[i], y);
    }
    cr_assert_eq(weft_video_reader_seek(r, 40), WEFT_OK);
    cr_assert_eq(weft_video_reader_next(r, &f, &got), WEFT_OK);
    cr_assert_not(got);
    weft_video_reader_close(r);
    weft_free(all);
    unlink(path);
    weft_free(path);
}

Test(video, clips_come_cropped_resampled_and_scaled)
{
    char *path = scratch("clip.mp4");
    write_video(path, 128, 64, 24, 24);
    weft_clip_request q = {
        .frames = 6, .height = 32, .width = 32, .fps = 12, .crop_x = 0.5, .crop_y = 0.5};
    float *clip = weft_alloc(6 * 32 * 32 * 3 * (int64_t)sizeof *clip);
    cr_assert_eq(weft_clip_read(path, &q, clip), WEFT_OK, "%s", weft_error_message());
    /* Frame k shows source frame 2k: compare with the painted one, cropped by hand. */
    uint8_t *full = weft_alloc(128 * 64 * 3), *cut = weft_alloc(64 * 64 * 3),
            *want = weft_alloc(32 * 32 * 3);
    for (int k = 0; k < 6; k++) {
        paint(full, 128, 64, 2 * k);
        for (int y = 0; y < 64; y++)
            memcpy(cut + y * 64 * 3, full + (y * 128 + 32) * 3, 64 * 3);
        weft_image_resize(cut, 64, 64, 3, want, 32, 32);
        double sum = 0;
        for (int i = 0; i < 32 * 32 * 3; i++) {
            const double d = clip[k * 32 * 32 * 3 + i] - (want[i] / 127.5 - 1);
            cr_assert(clip[k * 32 * 32 * 3 + i] >= -1 && clip[k * 32 * 32 * 3 + i] <= 1);
            sum += d * d;
        }
        cr_assert(sqrt(sum / (32 * 32 * 3)) < 0.06, "frame %d differs by %.3f", k,
                  sqrt(sum / (32 * 32 * 3)));
    }
    /* The same values are read from memory. */
    char *bytes;
    int64_t size;
    cr_assert_eq(weft_file_read(path, 1 << 24, &bytes, &size), WEFT_OK);
    float *again = weft_alloc(6 * 32 * 32 * 3 * (int64_t)sizeof *clip);
    cr_assert_eq(weft_clip_read_memory(bytes, size, "memory", &q, again), WEFT_OK);
    cr_assert_eq(memcmp(clip, again, 6 * 32 * 32 * 3 * sizeof *clip), 0);
    /* Twelve frames at 12 fps are the complete second; thirteen do not exist. */
    int64_t count;
    cr_assert_eq(weft_clip_count(path, 12, &count), WEFT_OK);
    cr_assert_eq(count, 12);
    q.frames = 13;
    float *more = weft_alloc(13 * 32 * 32 * 3 * (int64_t)sizeof *more);
    cr_assert_eq(weft_clip_read(path, &q, more), WEFT_E_SHAPE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_FRAMES, "%s", weft_error_message());
    cr_assert_eq(weft_error_fields()->number, 24);
    q.fps = 48; /* repeats */
    cr_assert_eq(weft_clip_read(path, &q, more), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(memcmp(more, more + 32 * 32 * 3, 32 * 32 * 3 * sizeof *more), 0);
    weft_free(more);
    /* At 48 fps the second has 48 frames: the last source frame is shown for its whole tick. */
    cr_assert_eq(weft_clip_count(path, 48, &count), WEFT_OK);
    cr_assert_eq(count, 48);
    uint8_t *twice = weft_alloc(49 * 32 * 32 * 3);
    q.frames = 48;
    cr_assert_eq(weft_clip_read_u8(path, &q, twice), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(memcmp(twice + 46 * 32 * 32 * 3, twice + 47 * 32 * 32 * 3, 32 * 32 * 3), 0);
    q.frames = 49;
    cr_assert_eq(weft_clip_read_u8(path, &q, twice), WEFT_E_SHAPE);
    weft_free(twice);
    weft_free(again);
    weft_free(bytes);
    weft_free(full);
    weft_free(cut);
    weft_free(want);
    weft_free(clip);
    unlink(path);
    weft_free(path);
}

enum { SIDE = 32, CELL = SIDE * SIDE * 3 };

/* Windows of `path` at their own rate are slices of the frames that reading from the start
 * gives. */
static void check_windows(const char *path, int windows)
{
    const weft_video_options o = {
        .width = SIDE, .height = SIDE, .cover = true, .cover_x = 0.5, .cover_y = 0.5};
    weft_video_reader *r;
    weft_video_frame f;
    bool got;
    int64_t count = 0, room = 0, times = 0;
    uint8_t *all = NULL, window[3 * CELL];
    double *at = NULL;
    cr_assert_eq(weft_video_reader_open(path, &o, &r), WEFT_OK, "%s", weft_error_message());
    const double tick =
        weft_video_reader_info(r)->fps > 0 ? 1 / weft_video_reader_info(r)->fps : 0.02;
    while (weft_video_reader_next(r, &f, &got) == WEFT_OK && got && count < 3000) {
        cr_assert_eq(weft_grow((void **)&all, count, &room, CELL), WEFT_OK);
        cr_assert_eq(weft_grow((void **)&at, count, &times, sizeof *at), WEFT_OK);
        for (int y = 0; y < SIDE; y++)
            memcpy(all + count * CELL + y * SIDE * 3, f.plane[0] + y * f.stride[0], SIDE * 3);
        at[count++] = f.seconds;
    }
    weft_video_reader_close(r);
    for (int i = 1; count > 3 && i <= windows; i++) {
        int64_t k = (count - 3) * i / windows;
        const double start = at[k];
        while (k > 0 && at[k - 1] + 0.5 * tick >= start && at[k] > start)
            k--;
        const weft_clip_request q = {.frames = 3,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .crop_x = 0.5,
                                     .crop_y = 0.5,
                                     .start_seconds = start};
        cr_assert_eq(weft_clip_read_u8(path, &q, window), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(memcmp(window, all + k * CELL, sizeof window), 0, "%s: frame %d (%.4f s)",
                     path, (int)k, start);
    }
    weft_free(all);
    weft_free(at);
}

Test(video, windows_are_slices_of_the_whole)
{
    char *path = scratch("window.mp4");
    write_video(path, 96, 64, 130, 24); /* three GOPs, with B frames */
    check_windows(path, 40);
    unlink(path);
    weft_free(path);
    const char *shared = getenv("WEFT_SHARED"),
               *files[] = {"vfr",         "odd_dims", "interlaced", "rot180",
                           "no_duration", "subtitle", "res_change"};
    weft_buf folder = {0};
    weft_names names = {0};
    weft_buf_printf(&folder, "%s/videos/odd", shared ? shared : "../shared");
    if (!weft_path_is_dir(folder.data))
        cr_skip("no shared footage");
    cr_assert_eq(weft_list_dir(folder.data, false, &names), WEFT_OK);
    for (int64_t i = 0; i < names.count; i++)
        for (size_t k = 0; k < sizeof files / sizeof *files; k++)
            if (strstr(names.name[i], files[k])) {
                char *file = weft_path_join(folder.data, names.name[i]);
                check_windows(file, 5);
                weft_free(file);
                break;
            }
    weft_names_free(&names);
    weft_buf_free(&folder);
}

Test(video, float_clips_are_written_in_both_orders)
{
    enum { T = 4, H = 32, W = 48 };
    char *a = scratch("a.mp4"), *b = scratch("b.mp4");
    float *last = weft_alloc(T * H * W * 3 * (int64_t)sizeof *last),
          *first = weft_alloc(T * H * W * 3 * (int64_t)sizeof *last);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < H * W; i++)
            for (int c = 0; c < 3; c++) {
                const float v = sinf((float)(i % W) * 0.1f + (float)t + (float)c);
                last[(t * H * W + i) * 3 + c] = first[(c * T + t) * H * W + i] = v;
            }
    const weft_video_writer_options o = {.width = W, .height = H, .fps = 16};
    cr_assert_eq(weft_video_write_clip(a, last, T, false, &o), WEFT_OK);
    cr_assert_eq(weft_video_write_clip(b, first, T, true, &o), WEFT_OK);
    char *bytes_a, *bytes_b;
    int64_t size_a, size_b;
    cr_assert_eq(weft_file_read(a, 1 << 20, &bytes_a, &size_a), WEFT_OK);
    cr_assert_eq(weft_file_read(b, 1 << 20, &bytes_b, &size_b), WEFT_OK);
    cr_assert_eq(size_a, size_b, "the same clip gives the same file");
    cr_assert_eq(memcmp(bytes_a, bytes_b, (size_t)size_a), 0);
    cr_assert_eq(weft_float_to_u8(-1), 0);
    cr_assert_eq(weft_float_to_u8(1), 255);
    cr_assert_eq(weft_float_to_u8(2), 255);
    cr_assert_eq(weft_float_to_u8(NAN), 0);
    cr_assert_eq(weft_float_to_u8(0), 128);
    weft_free(bytes_a);
    weft_free(bytes_b);
    weft_free(last);
    weft_free(first);
    unlink(a);
    unlink(b);
    weft_free(a);
    weft_free(b);
}

Test(video, pictures_are_png)
{
    uint8_t *rgb = weft_alloc(20 * 10 * 3), *png, *sheet;
    int64_t bytes, w, h;
    paint(rgb, 20, 10, 1);
    cr_assert_eq(weft_png_encode(rgb, 20, 10, &png, &bytes), WEFT_OK);
    cr_assert_eq(memcmp(png, "\x89PNG\r\n\x1a\n", 8), 0);
    const uint8_t *videos[2] = {rgb, rgb};
    const int64_t frames[2] = {1, 1};
    const weft_sheet of_both = {videos,       frames,       .videos = 2, .width = 20,
                                .height = 10, .columns = 3, .zoom = 1,   .gap = 2};
    cr_assert_eq(weft_sheet_make(&of_both, &sheet, &w, &h), WEFT_OK);
    cr_assert_eq(w, 3 * 22 + 2);
    cr_assert_eq(h, 2 * 12 + 2);
    for (int y = 0; y < 10; y++) /* cells of the image's size have its pixels unchanged */
        cr_assert_arr_eq(sheet + ((2 + y) * w + 2 + 22) * 3, rgb + y * 60, 60);
    weft_free(sheet);
    weft_free(png);
    weft_free(rgb);
}

Test(video, nothing_half_written_stays)
{
    char *path = scratch("abort.mp4");
    const weft_video_writer_options o = {.width = 32, .height = 32, .fps = 8};
    weft_video_writer *writer;
    cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK);
    uint8_t rgb[32 * 32 * 3] = {0};
    cr_assert_eq(weft_video_writer_rgb(writer, rgb, 96), WEFT_OK);
    weft_video_writer_close(writer);
    cr_assert_not(weft_path_exists(path));
    weft_free(path);
    cr_assert_eq(weft_video_writer_open("/nonexistent/x.mp4", &o, &writer), WEFT_E_IO);
    cr_assert_str_eq(weft_error_fields()->file, "/nonexistent/x.mp4");
}

Test(video, what_is_no_video_is_said)
{
    char *path = scratch("not.mp4");
    weft_video_info info;
    cr_assert_eq(weft_video_probe(path, &info), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_file_write_atomic(path, "", 0), WEFT_OK);
    cr_assert_eq(weft_video_probe(path, &info), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_UNREADABLE, "%s", weft_error_message());
    cr_assert_eq(weft_file_write_atomic(path, "hello, this is text, not a video", 32), WEFT_OK);
    cr_assert_eq(weft_video_probe(path, &info), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_UNREADABLE, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->file, path);
    unlink(path);
    weft_free(path);
}

Test(video, an_allocation_that_fails_is_an_error)
{
    char *path = scratch("alloc.mp4");
    write_video(path, 32, 32, 2, 8);
    for (int64_t n = 1; n < 100; n++) {
        weft_video_reader *r;
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_video_reader_open(path, NULL, &r);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK) {
            weft_video_reader_close(r);
            cr_assert(n > 3);
            unlink(path);
            weft_free(path);
            return;
        }
    }
    cr_assert_fail("the reader never opens");
}

/* "30000/1001" */
static double ratio(const char *text)
{
    const char *slash = text ? strchr(text, '/') : NULL;
    return slash ? atof(text) / atof(slash + 1) : 0;
}

/* The rate of every file is ffprobe's average, but where its container claims 1000 frames a second
 * of 30. */
Test(video, real_footage_has_its_frame_rate)
{
    json_t *manifest = footage_manifest();
    size_t i;
    json_t *entry;
    int64_t tried = 0;
    json_array_foreach(json_object_get(manifest, "entries"), i, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        double fps = ratio(json_string_value(json_object_get(entry, "fps")));
        weft_video_info info;
        weft_buf name = footage_path(file);
        if (fps > 0 && weft_video_probe(name.data, &info) == WEFT_OK) {
            fps = strstr(file, "subtitle_track") ? 30 : fps;
            cr_expect(fabs(info.fps - fps) < 1e-6 * fps, "%s: %g frames/s, is %g", file, info.fps,
                      fps);
            tried++;
        }
        weft_buf_free(&name);
    }
    cr_assert(tried > 70, "%" PRId64 " files only", tried);
    json_decref(manifest);
}

/* Every file of the shared footage: as many frames as ffmpeg decodes, or an error where it has
 * none. */
Test(video, real_footage_is_counted_like_ffmpeg)
{
    json_t *manifest = footage_manifest();
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(manifest, "entries"), i, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        const int64_t frames = json_integer_value(json_object_get(entry, "frames"));
        if (!file || frames > 3000 || strncmp(file, "odd/", 4) != 0)
            continue;
        weft_buf name = footage_path(file);
        weft_video_reader *r;
        const weft_video_options o = {
            .format = WEFT_VIDEO_SMALL, .width = 32, .height = 18, .threads = 2};
        int64_t count = 0;
        if (weft_video_reader_open(name.data, &o, &r) == WEFT_OK) {
            weft_video_frame f;
            bool got;
            while (weft_video_reader_next(r, &f, &got) == WEFT_OK && got)
                count++;
            weft_video_reader_close(r);
        }
        cr_expect_eq(count, frames, "%s: %d frames, ffmpeg gives %d", file, (int)count,
                     (int)frames);
        weft_buf_free(&name);
    }
    json_decref(manifest);
}
