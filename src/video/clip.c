#include "video/clip.h"

#include "base/memory.h"
#include "video/image.h"

#include <math.h>
#include <string.h>

static weft_status check_request(const char *name, const weft_clip_request *q)
{
    if (q->frames < 1 || q->height < 1 || q->width < 1 || q->fps < 0 || !(q->crop_x >= 0) ||
        q->crop_x > 1 || !(q->crop_y >= 0) || q->crop_y > 1)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = name),
                          "a clip of %" PRId64 " frames, %" PRId64 " x %" PRId64
                          ", %g frames/s and crop (%g, %g) is "
                          "not possible; sizes are at least 1, crops 0 to 1",
                          q->frames, q->width, q->height, q->fps, q->crop_x, q->crop_y);
    return WEFT_OK;
}

static void copy_rows(const weft_video_frame *f, uint8_t *to)
{
    for (int64_t y = 0; y < f->height; y++)
        memcpy(to + y * f->width * 3, f->plane[0] + y * f->stride[0], (size_t)f->width * 3);
}

/* Fills rgb with the frames shown at start + k / fps: the last one whose time is not later. Half a
 * tick of tolerance absorbs rounded time stamps. */
static weft_status take_frames(weft_video_reader *r, const char *name, const weft_clip_request *q,
                               uint8_t *rgb)
{
    const int64_t bytes = q->height * q->width * 3;
    const double own_fps = weft_video_reader_info(r)->fps;
    const double slack = own_fps > 0 ? 0.5 / own_fps : 0.01;
    int64_t done = 0, seen = 0;
    double end = 0;
    weft_video_frame f;
    bool got;
    while (done < q->frames) {
        WEFT_TRY(weft_video_reader_next(r, &f, &got));
        if (!got)
            break;
        seen++;
        if (f.seconds + slack < q->start_seconds)
            continue;
        if (q->fps <= 0) {
            copy_rows(&f, rgb + done++ * bytes);
            continue;
        }
        /* Requested times before this frame repeat the previous frame, which is already in the
         * output. */
        while (done > 0 && done < q->frames &&
               q->start_seconds + (double)done / q->fps + slack < f.seconds) {
            memcpy(rgb + done * bytes, rgb + (done - 1) * bytes, (size_t)bytes);
            done++;
        }
        if (done < q->frames && q->start_seconds + (double)done / q->fps < f.seconds + slack)
            copy_rows(&f, rgb + done++ * bytes);
        end = f.seconds;
    }
    /* The last frame is shown for one more tick. */
    while (q->fps > 0 && done > 0 && done < q->frames &&
           q->start_seconds + (double)done / q->fps < end + slack * 2 - 1e-6) {
        memcpy(rgb + done * bytes, rgb + (done - 1) * bytes, (size_t)bytes);
        done++;
    }
    if (done < q->frames)
        return weft_error(WEFT_MSG_VIDEO_FRAMES, WEFT_AT(.file = name, WEFT_NUMBER(seen)),
                          "%" PRId64
                          " frames from %.3f s at %g frames/s are needed, and the video gives "
                          "%" PRId64 " (it has %" PRId64 " frames)",
                          q->frames, q->start_seconds, q->fps, done, seen);
    return WEFT_OK;
}

/* A video: a file, or bytes in memory, or a source. */
typedef struct clip_input {
    const char *name; /* path of a file */
    const void *bytes;
    int64_t size;
    const weft_video_source *source;
} clip_input;

static weft_status open_input(const clip_input *in, const weft_video_options *o,
                              weft_video_reader **r)
{
    return in->source  ? weft_video_reader_open_source(in->source, in->name, o, r)
           : in->bytes ? weft_video_reader_open_memory(in->bytes, in->size, in->name, o, r)
                       : weft_video_reader_open(in->name, o, r);
}

static weft_status read_u8(const clip_input *in, const weft_clip_request *q, uint8_t *rgb)
{
    WEFT_TRY(check_request(in->name, q));
    weft_video_reader *r = NULL;
    const weft_video_options o = {.format = WEFT_VIDEO_RGB24,
                                  .width = q->width,
                                  .height = q->height,
                                  .cover = true,
                                  .cover_x = q->crop_x,
                                  .cover_y = q->crop_y,
                                  .threads = q->threads};
    WEFT_TRY(open_input(in, &o, &r));
    weft_status_code status = WEFT_OK;
    if (q->start_seconds > 0)
        WEFT_GO(in->source ? weft_video_reader_seek_near(r, q->start_seconds)
                           : weft_video_reader_seek_time(r, q->start_seconds));
    WEFT_GO(take_frames(r, in->name, q, rgb));
out:
    weft_video_reader_close(r);
    return status;
}

weft_status weft_clip_read_u8(const char *path, const weft_clip_request *q, uint8_t *rgb)
{
    return read_u8(&(clip_input){.name = path}, q, rgb);
}

static weft_status read_float(const clip_input *in, const weft_clip_request *q, float *clip)
{
    WEFT_TRY(check_request(in->name, q));
    const int64_t count = q->frames * q->height * q->width * 3;
    uint8_t *rgb = weft_alloc_aligned(count);
    WEFT_TRY(WEFT_ALLOCATED(rgb, "%s: %" PRId64 " frames", in->name, q->frames));
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_u8(in, q, rgb));
    for (int64_t i = 0; i < count; i++)
        clip[i] = (float)rgb[i] * (1 / 127.5f) - 1;
out:
    weft_free(rgb);
    return status;
}

weft_status weft_clip_read(const char *path, const weft_clip_request *q, float *clip)
{
    return read_float(&(clip_input){.name = path}, q, clip);
}

weft_status weft_clip_read_memory(const void *bytes, int64_t size, const char *name,
                                  const weft_clip_request *q, float *clip)
{
    return read_float(&(clip_input){.name = name, .bytes = bytes, .size = size}, q, clip);
}

weft_status weft_clip_read_source(const weft_video_source *source, const char *name,
                                  const weft_clip_request *q, float *clip)
{
    return read_float(&(clip_input){.name = name, .source = source}, q, clip);
}

weft_status weft_clip_count(const char *path, double fps, int64_t *frames)
{
    weft_video_reader *r;
    const weft_video_options o = {
        .format = WEFT_VIDEO_SMALL, .width = 8, .height = 8, .fast = true};
    WEFT_TRY(weft_video_reader_open(path, &o, &r));
    const double own_fps = weft_video_reader_info(r)->fps;
    weft_video_frame f;
    bool got = true;
    int64_t count = 0;
    double end = 0;
    weft_status_code status = WEFT_OK;
    for (;;) {
        WEFT_GO(weft_video_reader_next(r, &f, &got));
        if (!got)
            break;
        count++;
        end = f.seconds;
    }
out:
    weft_video_reader_close(r);
    WEFT_TRY(status);
    const double tick = own_fps > 0 ? 1 / own_fps : 0.04;
    *frames = fps > 0 && count ? (int64_t)ceil((end + tick - 1e-6) * fps) : count;
    return WEFT_OK;
}
