#include "generate/conditioning/frame_inputs.h"

#include "base/log.h"
#include "base/memory.h"
#include "video/reader.h"
#include "video/resample.h"

#include <math.h>
#include <string.h>

/* A file that is read frame by frame, with buffers for one cropped and one resized frame. */
typedef struct source {
    const char *path;
    weft_video_reader *reader;
    weft_canvas canvas;
    int64_t width, height;              /* size of the file's frames */
    int64_t cut_x, cut_y, cut_w, cut_h; /* crop rectangle */
    uint8_t *cut, *sized;
} source;

static weft_canvas whole(const weft_canvas *c)
{
    weft_canvas all = *c;
    if (!c->w)
        all.x = all.y = 0, all.w = c->width, all.h = c->height;
    return all;
}

void weft_canvas_cut(const weft_canvas *canvas, int64_t width, int64_t height, int64_t cut[4])
{
    const weft_canvas c = whole(canvas);
    int64_t w = width, h = height;
    if (c.fit == WEFT_FIT_CROP && width * c.h > height * c.w)
        w = (height * c.w + c.h / 2) / c.h;
    else if (c.fit == WEFT_FIT_CROP)
        h = (width * c.h + c.w / 2) / c.w;
    cut[2] = w > 0 ? w : 1;
    cut[3] = h > 0 ? h : 1;
    cut[0] = (width - cut[2]) / 2;
    cut[1] = (height - cut[3]) / 2;
}

/* Chooses the rectangle of the file's frames that the canvas shows. */
static void choose_cut(source *s)
{
    int64_t cut[4];
    weft_canvas_cut(&s->canvas, s->width, s->height, cut);
    s->cut_x = cut[0];
    s->cut_y = cut[1];
    s->cut_w = cut[2];
    s->cut_h = cut[3];
}

static void source_close(source *s)
{
    weft_video_reader_close(s->reader);
    weft_free(s->cut);
    weft_free(s->sized);
}

static weft_status source_open(const char *path, const weft_canvas *canvas, source *s)
{
    *s = (source){.path = path, .canvas = whole(canvas)};
    WEFT_TRY(weft_video_reader_open(path, &(weft_video_options){.format = WEFT_VIDEO_RGB24},
                                    &s->reader));
    const weft_video_info *info = weft_video_reader_info(s->reader);
    s->width = info->width;
    s->height = info->height;
    choose_cut(s);
    s->cut = weft_alloc(s->cut_w * s->cut_h * 3);
    s->sized = weft_alloc(s->canvas.w * s->canvas.h * 3);
    if (s->cut && s->sized)
        return WEFT_OK;
    source_close(s);
    return weft_no_memory("%s: a frame", path);
}

/* Reads the next frame, cropped and resized to the rectangle. */
static weft_status source_next(source *s, weft_resample filter, bool *got)
{
    weft_video_frame f;
    WEFT_TRY(weft_video_reader_next(s->reader, &f, got));
    if (!*got)
        return WEFT_OK;
    for (int64_t y = 0; y < s->cut_h; y++)
        memcpy(s->cut + y * s->cut_w * 3, f.plane[0] + (s->cut_y + y) * f.stride[0] + s->cut_x * 3,
               (size_t)s->cut_w * 3);
    return weft_image_resample(filter, s->cut, s->cut_w, s->cut_h, 3, s->sized, s->canvas.w,
                               s->canvas.h);
}

/* The pixel of the resized frame that canvas pixel (x, y) shows. */
static const uint8_t *pixel_at(const source *s, int64_t x, int64_t y)
{
    const weft_canvas *c = &s->canvas;
    int64_t u = x - c->x, v = y - c->y;
    u = u < 0 ? 0 : u >= c->w ? c->w - 1 : u;
    v = v < 0 ? 0 : v >= c->h ? c->h - 1 : v;
    return s->sized + (v * c->w + u) * 3;
}

static weft_status too_short(const source *s, int64_t frames)
{
    return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = s->path, WEFT_NUMBER(frames)),
                      "the video has %" PRId64 " frames, and %" PRId64
                      " are generated. Set --frames, or give a longer video.",
                      frames, s->canvas.frames);
}

/* Calls `put` for every frame of the canvas; an image is repeated for all frames. */
static weft_status each_frame(source *s, weft_resample filter,
                              void (*put)(const source *, int64_t frame, void *to), void *to)
{
    int64_t done = 0;
    bool got = true;
    while (done < s->canvas.frames) {
        WEFT_TRY(source_next(s, filter, &got));
        if (!got)
            break;
        put(s, done++, to);
    }
    if (!done)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = s->path),
                          "the file has no frame");
    if (done < s->canvas.frames && done > 1)
        return too_short(s, done);
    for (; done < s->canvas.frames; done++)
        put(s, done, to);
    return WEFT_OK;
}

static float number_of(uint8_t value)
{
    return 2 * ((float)value / 255) - 1;
}

static void put_floats(const source *s, int64_t frame, void *to)
{
    const weft_canvas *c = &s->canvas;
    float *out = (float *)to + frame * c->height * c->width * 3;
    for (int64_t y = 0; y < c->height; y++)
        for (int64_t x = 0; x < c->width; x++) {
            const uint8_t *from = pixel_at(s, x, y);
            for (int i = 0; i < 3; i++)
                *out++ = number_of(from[i]);
        }
}

typedef struct masking {
    uint8_t *mask; /* mask of one frame */
    weft_mask_fn *each;
    void *user;
} masking;

static void put_mask(const source *s, int64_t frame, void *to)
{
    const weft_canvas *c = &s->canvas;
    const masking *m = to;
    uint8_t *out = m->mask;
    for (int64_t y = 0; y < c->height; y++)
        for (int64_t x = 0; x < c->width; x++) {
            const uint8_t *from = pixel_at(s, x, y);
            *out++ = from[0] + from[1] + from[2] >= 3 * 128;
        }
    m->each(m->user, frame, m->mask);
}

static weft_status read_all(const char *path, const weft_canvas *canvas, weft_resample filter,
                            void (*put)(const source *, int64_t, void *), void *to)
{
    source s;
    WEFT_TRY(source_open(path, canvas, &s));
    const weft_status_code status = each_frame(&s, filter, put, to);
    source_close(&s);
    return status;
}

weft_status weft_pictures_read(const char *path, const weft_canvas *canvas, float *video)
{
    return read_all(path, canvas, WEFT_RESAMPLE_LANCZOS, put_floats, video);
}

/* Reads all frames of a source and keeps the last ones. */
static weft_status read_last(source *s, float *video)
{
    const int64_t frames = s->canvas.frames, floats = s->canvas.height * s->canvas.width * 3;
    int64_t done = 0;
    for (bool got = true; got; done += got) {
        WEFT_TRY(source_next(s, WEFT_RESAMPLE_LANCZOS, &got));
        if (got && done >= frames)
            memmove(video, video + floats, (size_t)((frames - 1) * floats) * sizeof *video);
        if (got)
            put_floats(s, done < frames ? done : frames - 1, video);
    }
    if (!done)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = s->path),
                          "the file has no frame");
    if (done > 1 && done < frames)
        return too_short(s, done);
    for (int64_t i = 1; i < frames && done == 1; i++)
        put_floats(s, i, video);
    return WEFT_OK;
}

weft_status weft_pictures_read_last(const char *path, const weft_canvas *canvas, float *video)
{
    source s;
    WEFT_TRY(source_open(path, canvas, &s));
    const weft_status_code status = read_last(&s, video);
    source_close(&s);
    return status;
}

weft_status weft_mask_read(const char *path, const weft_canvas *canvas, weft_mask_fn *each,
                           void *user)
{
    masking m = {weft_alloc(canvas->height * canvas->width), each, user};
    const weft_status_code status =
        m.mask ? read_all(path, canvas, WEFT_RESAMPLE_BILINEAR, put_mask, &m)
               : weft_no_memory("%s: a mask", path);
    weft_free(m.mask);
    return status;
}

/* ---- box by box ----------------------------------------------------------------------------- */

struct weft_frame_source {
    source source;
    int64_t current; /* frame in source.sized; -1: none yet */
    bool still;      /* the file has one frame */
};

weft_status weft_frame_source_open(const char *path, const weft_canvas *canvas,
                                   weft_frame_source **frame_source)
{
    weft_frame_source *f;
    WEFT_TRY(WEFT_NEW(f, 1, "%s", path));
    f->current = -1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(source_open(path, canvas, &f->source));
    *frame_source = f;
out:
    if (status != WEFT_OK)
        weft_free(f);
    return status;
}

void weft_frame_source_close(weft_frame_source *f)
{
    if (f)
        source_close(&f->source);
    weft_free(f);
}

/* Reads frame `wanted` into source.sized. */
static weft_status load_frame(weft_frame_source *f, int64_t wanted)
{
    bool got;
    if (wanted == f->current || f->still)
        return WEFT_OK;
    if (wanted != f->current + 1)
        WEFT_TRY(weft_video_reader_seek(f->source.reader, wanted));
    WEFT_TRY(source_next(&f->source, WEFT_RESAMPLE_LANCZOS, &got));
    if (got)
        f->current = wanted;
    else if (f->current < 0)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = f->source.path),
                          "the file has no frame");
    else if (f->current > 0)
        return too_short(&f->source, f->current + 1);
    f->still = !got;
    return WEFT_OK;
}

weft_status_code weft_frame_source_box(void *frame_source, const int64_t first[3],
                                       const int64_t size[3], float *to)
{
    weft_frame_source *f = frame_source;
    for (int64_t t = 0; t < size[0]; t++) {
        WEFT_TRY(load_frame(f, first[0] + t));
        for (int64_t y = 0; y < size[1]; y++)
            for (int64_t x = 0; x < size[2]; x++) {
                const uint8_t *from = pixel_at(&f->source, first[2] + x, first[1] + y);
                for (int i = 0; i < 3; i++)
                    *to++ = number_of(from[i]);
            }
    }
    return WEFT_OK;
}

/* Copies the first frame that is shown at `start` seconds or later. Closes the reader. */
static weft_status take_picture(weft_video_reader *reader, const char *name, double start,
                                uint8_t **rgb, int64_t *width, int64_t *height)
{
    const double fps = weft_video_reader_info(reader)->fps, slack = fps > 0 ? 0.5 / fps : 0.01;
    weft_video_frame f;
    bool got = false;
    weft_status_code status = WEFT_OK;
    do
        WEFT_GO(weft_video_reader_next(reader, &f, &got));
    while (got && f.seconds + slack < start);
    if (!got)
        WEFT_GO(
            weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = name), "the file has no frame"));
    uint8_t *to = weft_alloc(f.width * f.height * 3);
    WEFT_GO(WEFT_ALLOCATED(to, "%s: a frame", name));
    for (int64_t y = 0; y < f.height; y++)
        memcpy(to + y * f.width * 3, f.plane[0] + y * f.stride[0], (size_t)f.width * 3);
    *rgb = to;
    *width = f.width;
    *height = f.height;
out:
    weft_video_reader_close(reader);
    return status;
}

static const weft_video_options picture = {.format = WEFT_VIDEO_RGB24};

weft_status weft_picture_load(const char *path, uint8_t **rgb, int64_t *width, int64_t *height)
{
    weft_video_reader *reader;
    WEFT_TRY(weft_video_reader_open(path, &picture, &reader));
    return take_picture(reader, path, 0, rgb, width, height);
}

weft_status weft_picture_load_memory(const void *bytes, int64_t size, const char *name,
                                     uint8_t **rgb, int64_t *width, int64_t *height)
{
    weft_video_reader *reader;
    WEFT_TRY(weft_video_reader_open_memory(bytes, size, name, &picture, &reader));
    return take_picture(reader, name, 0, rgb, width, height);
}

weft_status weft_picture_load_source(const weft_video_source *from, const char *name, double start,
                                     uint8_t **rgb, int64_t *width, int64_t *height)
{
    weft_video_reader *reader;
    WEFT_TRY(weft_video_reader_open_source(from, name, &picture, &reader));
    return take_picture(reader, name, start, rgb, width, height);
}

weft_status weft_picture_warn_resized(const char *path, const weft_canvas *canvas)
{
    weft_video_info info;
    const weft_canvas c = whole(canvas);
    WEFT_TRY(weft_video_probe(path, &info));
    const double own = (double)info.width / (double)info.height, wanted = (double)c.w / (double)c.h,
                 change = own / wanted;
    if (change > 0.99 && change < 1.01)
        return WEFT_OK;
    if (c.fit == WEFT_FIT_STRETCH)
        weft_warning(WEFT_MSG_VIDEO_INPUT_RESIZED, WEFT_AT(.file = path),
                     "%" PRId64 "x%" PRId64 " is stretched to %" PRId64 "x%" PRId64
                     ", as in the reference pipelines; --fit "
                     "crop crops it",
                     info.width, info.height, c.w, c.h);
    else
        weft_warning(WEFT_MSG_VIDEO_INPUT_RESIZED, WEFT_AT(.file = path),
                     "%" PRId64 "x%" PRId64 " is cropped to %" PRId64 "x%" PRId64
                     ", which drops %.0f %% of its %s",
                     info.width, info.height, c.w, c.h,
                     100 * (1 - (change > 1 ? 1 / change : change)),
                     change > 1 ? "width" : "height");
    return WEFT_OK;
}
