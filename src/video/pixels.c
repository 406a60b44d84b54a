#include "video/pixels.h"

#include "base/memory.h"
#include "video/deinterlace.h"
#include "video/tone.h"

#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <math.h>
#include <string.h>

/* A conversion of libswscale, recreated when the input format changes. */
typedef struct scaler {
    struct SwsContext *context;
    int key[7];
} scaler;

struct weft_converter {
    weft_video_options options;
    int rotation;
    int64_t display_w, display_h;
    int64_t flat_w, flat_h; /* output size before the rotation */
    scaler scale, second;
    AVFrame *woven;                      /* deinterlaced */
    uint8_t *flat[3], *turned[3], *wide; /* plane buffers; wide: RGB48 of HDR and wide gamut */
    int64_t flat_stride[3];
    uint32_t *row_sum;
    int64_t row_sum_capacity;
    weft_tone *tone;
};

static int64_t plane_bytes_per_pixel(weft_video_format format)
{
    return format == WEFT_VIDEO_RGB24 ? 3 : 1;
}

static int plane_count(weft_video_format format)
{
    return format == WEFT_VIDEO_RGB24 ? 1 : 3;
}

/* Size of plane p of an image of w x h. */
static void plane_size(weft_video_format format, int p, int64_t w, int64_t h, int64_t *pw,
                       int64_t *ph)
{
    const bool half = format == WEFT_VIDEO_YUV420P && p > 0;
    *pw = half ? (w + 1) / 2 : w;
    *ph = half ? (h + 1) / 2 : h;
}

weft_status weft_converter_create(const weft_video_options *options, int rotation,
                                  int64_t display_w, int64_t display_h, weft_converter **out)
{
    weft_converter *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the frame converter"));
    c->options = *options;
    if (c->options.crop_w <= 0 || c->options.crop_h <= 0) {
        c->options.crop_x = c->options.crop_y = 0;
        c->options.crop_w = display_w;
        c->options.crop_h = display_h;
    }
    c->rotation = rotation;
    c->display_w = display_w;
    c->display_h = display_h;
    const bool sideways = rotation == 90 || rotation == 270;
    c->flat_w = sideways ? options->height : options->width;
    c->flat_h = sideways ? options->width : options->height;
    for (int p = 0; p < plane_count(options->format); p++) {
        int64_t w, h;
        plane_size(options->format, p, c->flat_w, c->flat_h, &w, &h);
        /* Rows are padded for the vector code of libswscale. */
        c->flat_stride[p] =
            weft_aligned(w * plane_bytes_per_pixel(options->format)) + WEFT_ALIGNMENT;
        c->flat[p] = weft_alloc_aligned(c->flat_stride[p] * (h + 1));
        c->turned[p] =
            rotation ? weft_alloc_aligned(w * h * plane_bytes_per_pixel(options->format)) : NULL;
        if (!c->flat[p] || (rotation && !c->turned[p])) {
            weft_converter_free(c);
            return weft_no_memory("a %" PRId64 " x %" PRId64 " frame of frame converter",
                                  options->width, options->height);
        }
    }
    *out = c;
    return WEFT_OK;
}

void weft_converter_free(weft_converter *c)
{
    if (!c)
        return;
    for (int p = 0; p < 3; p++) {
        weft_free(c->flat[p]);
        weft_free(c->turned[p]);
    }
    weft_free(c->wide);
    weft_free(c->row_sum);
    weft_tone_free(c->tone);
    av_frame_free(&c->woven);
    sws_freeContext(c->scale.context);
    sws_freeContext(c->second.context);
    weft_free(c);
}

/* The crop in stored pixels: the rotation is undone and the axes are scaled from display to stored
 * size, which also undoes the pixel aspect. The corner is moved onto the chroma grid. */
static void stored_crop(const weft_converter *c, const AVFrame *frame,
                        const AVPixFmtDescriptor *desc, int64_t rect[4])
{
    const weft_video_options *o = &c->options;
    const double dw = (double)c->display_w, dh = (double)c->display_h;
    double x0 = (double)o->crop_x / dw, y0 = (double)o->crop_y / dh;
    double x1 = x0 + (double)o->crop_w / dw, y1 = y0 + (double)o->crop_h / dh;
    double sx0 = x0, sx1 = x1, sy0 = y0, sy1 = y1;
    if (c->rotation == 90) /* stored (x, y) shows at (1 - y, x) */
        sx0 = y0, sx1 = y1, sy0 = 1 - x1, sy1 = 1 - x0;
    else if (c->rotation == 180)
        sx0 = 1 - x1, sx1 = 1 - x0, sy0 = 1 - y1, sy1 = 1 - y0;
    else if (c->rotation == 270)
        sx0 = 1 - y1, sx1 = 1 - y0, sy0 = x0, sy1 = x1;
    const int64_t ax = 1 << desc->log2_chroma_w, ay = 1 << desc->log2_chroma_h;
    int64_t left = llround(sx0 * frame->width) / ax * ax, right = llround(sx1 * frame->width);
    int64_t top = llround(sy0 * frame->height) / ay * ay, bottom = llround(sy1 * frame->height);
    left = left < 0 ? 0 : left > frame->width - 1 ? (frame->width - 1) / ax * ax : left;
    top = top < 0 ? 0 : top > frame->height - 1 ? (frame->height - 1) / ay * ay : top;
    right = right > frame->width ? frame->width : right <= left ? left + 1 : right;
    bottom = bottom > frame->height ? frame->height : bottom <= top ? top + 1 : bottom;
    rect[0] = left, rect[1] = top, rect[2] = right - left, rect[3] = bottom - top;
}

/* The planes of `frame` moved to the crop's corner. */
static void crop_planes(const AVFrame *frame, const AVPixFmtDescriptor *desc, const int64_t rect[4],
                        const uint8_t *plane[4])
{
    for (int p = 0; p < 4; p++)
        plane[p] = frame->data[p];
    if (desc->flags & (AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM))
        return; /* rect is then the complete frame, or the crop is ignored: such video is rare */
    bool moved[4] = {false};
    for (int k = 0; k < desc->nb_components; k++) {
        const AVComponentDescriptor *comp = &desc->comp[k];
        if (moved[comp->plane] || !plane[comp->plane])
            continue;
        moved[comp->plane] = true;
        const bool chroma = (k == 1 || k == 2) && !(desc->flags & AV_PIX_FMT_FLAG_RGB);
        const int64_t x = rect[0] >> (chroma ? desc->log2_chroma_w : 0);
        const int64_t y = rect[1] >> (chroma ? desc->log2_chroma_h : 0);
        plane[comp->plane] += y * frame->linesize[comp->plane] + x * comp->step;
    }
}

static bool full_range(const AVFrame *frame)
{
    return frame->color_range == AVCOL_RANGE_JPEG || frame->format == AV_PIX_FMT_YUVJ420P ||
           frame->format == AV_PIX_FMT_YUVJ422P || frame->format == AV_PIX_FMT_YUVJ444P ||
           frame->format == AV_PIX_FMT_YUVJ440P;
}

static const int *matrix_of(const AVFrame *frame)
{
    int space = SWS_CS_ITU601;
    switch (frame->colorspace) {
    case AVCOL_SPC_BT709: space = SWS_CS_ITU709; break;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL: space = SWS_CS_BT2020; break;
    case AVCOL_SPC_SMPTE240M: space = SWS_CS_SMPTE240M; break;
    case AVCOL_SPC_FCC: space = SWS_CS_FCC; break;
    case AVCOL_SPC_UNSPECIFIED: space = frame->height >= 720 ? SWS_CS_ITU709 : SWS_CS_ITU601; break;
    default: break;
    }
    return sws_getCoefficients(space);
}

/* Colour ranges are set before libswscale chooses the conversion. Otherwise libswscale may choose a
 * fast path that ignores the ranges. */
static weft_status make_scaler(scaler *s, const int key[7])
{
    static const char *const names[] = {"srcw", "srch", "src_format", "src_range",
                                        "dstw", "dsth", "dst_format"};
    if (s->context && memcmp(s->key, key, sizeof s->key) == 0)
        return WEFT_OK;
    sws_freeContext(s->context);
    s->context = sws_alloc_context();
    WEFT_TRY(WEFT_ALLOCATED(s->context, "the frame converter"));
    memcpy(s->key, key, sizeof s->key);
    for (int i = 0; i < 7; i++)
        av_opt_set_int(s->context, names[i], key[i], 0);
    av_opt_set_int(s->context, "sws_flags",
                   SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, 0);
    if (sws_init_context(s->context, NULL, NULL) < 0) {
        sws_freeContext(s->context);
        s->context = NULL;
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_AT(.value = av_get_pix_fmt_name(key[2])),
                          "frames of pixel format %s, %d x %d, cannot be converted",
                          av_get_pix_fmt_name(key[2]), key[0], key[1]);
    }
    return WEFT_OK;
}

/* Planes of one size and pixel format. Not changed if they are a source. */
typedef struct pixels {
    uint8_t *plane[4];
    int stride[4];
    int w, h, format;
    const int *matrix; /* coefficients of libswscale */
    bool full;         /* full colour range */
} pixels;

/* Returns the pixels of a decoded frame inside `rect`; `plane`: their planes (crop_planes). */
static pixels pixels_of(const AVFrame *frame, const uint8_t *const plane[4], const int64_t rect[4])
{
    pixels p = {.w = (int)rect[2],
                .h = (int)rect[3],
                .format = frame->format,
                .matrix = matrix_of(frame),
                .full = full_range(frame)};
    for (int i = 0; i < 4; i++) {
        p.plane[i] = (uint8_t *)(uintptr_t)plane[i];
        p.stride[i] = frame->linesize[i];
    }
    return p;
}

/* Returns pixels of the output size in BT.709, without planes. */
static pixels output_pixels(const weft_converter *c, int format)
{
    return (pixels){.w = (int)c->flat_w,
                    .h = (int)c->flat_h,
                    .format = format,
                    .matrix = sws_getCoefficients(SWS_CS_ITU709),
                    .full = format == AV_PIX_FMT_RGB24 || format == AV_PIX_FMT_RGB48LE ||
                            format == AV_PIX_FMT_YUVJ444P};
}

/* Returns the converter's output planes. */
static pixels flat_pixels(const weft_converter *c, int format)
{
    pixels p = output_pixels(c, format);
    for (int i = 0; i < 3; i++) {
        p.plane[i] = c->flat[i];
        p.stride[i] = (int)c->flat_stride[i];
    }
    return p;
}

static weft_status scale_to(scaler *s, const pixels *from, const pixels *to)
{
    const int key[7] = {from->w, from->h, from->format, from->full, to->w, to->h, to->format};
    WEFT_TRY(make_scaler(s, key));
    sws_setColorspaceDetails(s->context, from->matrix, from->full, to->matrix, to->full, 0, 1 << 16,
                             1 << 16);
    if (sws_scale(s->context, (const uint8_t *const *)from->plane, from->stride, 0, from->h,
                  to->plane, to->stride) <= 0)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_NOWHERE,
                          "the pixels of a frame cannot be converted");
    return WEFT_OK;
}

/* HDR and wide gamut to RGB24. */
static weft_status convert_tone(weft_converter *c, const AVFrame *frame, const pixels *from,
                                uint8_t *rgb, int64_t rgb_stride)
{
    const int64_t wide_stride = c->flat_w * 6 + 64;
    if (!c->wide)
        c->wide = weft_alloc_aligned(wide_stride * c->flat_h);
    WEFT_TRY(WEFT_ALLOCATED(c->wide, "tone mapping"));
    if (!weft_tone_fits(c->tone, frame->color_trc, frame->color_primaries)) {
        weft_tone_free(c->tone);
        c->tone = NULL;
        WEFT_TRY(weft_tone_create(frame->color_trc, frame->color_primaries, &c->tone));
    }
    pixels to = output_pixels(c, AV_PIX_FMT_RGB48LE);
    to.plane[0] = c->wide;
    to.stride[0] = (int)wide_stride;
    WEFT_TRY(scale_to(&c->scale, from, &to));
    weft_tone_map(c->tone, c->wide, wide_stride, rgb, rgb_stride, c->flat_w, c->flat_h);
    return WEFT_OK;
}

/* One plane and its size in pixels. */
typedef struct plane_view {
    uint8_t *data;
    int64_t stride, w, h;
} plane_view;

/* Means of the pixels of each output cell. Loop order: output row, its source rows (added up over
 * the whole width, vectorised), output columns. Reads each source byte once. `sum`: from->w
 * elements of scratch memory. */
static void box_average(const plane_view *from, const AVComponentDescriptor *comp, uint32_t *sum,
                        const uint8_t map[256], const plane_view *to)
{
    const int64_t step = comp->step, w = from->w, h = from->h, to_w = to->w, to_h = to->h;
    const bool deep = comp->depth > 8;
    const int shift = comp->shift + comp->depth - 8;
    for (int64_t oy = 0; oy < to_h; oy++) {
        const int64_t y0 = oy * h / to_h;
        int64_t y1 = (oy + 1) * h / to_h;
        y1 = y1 > y0 ? y1 : y0 + 1;
        memset(sum, 0, (size_t)w * sizeof *sum);
        for (int64_t y = y0; y < y1; y++) {
            const uint8_t *row = from->data + y * from->stride + comp->offset;
            const uint16_t *row16 = (const uint16_t *)(const void *)row;
            if (deep)
                for (int64_t x = 0; x < w; x++)
                    sum[x] += (uint32_t)row16[x * (step / 2)] >> shift;
            else if (step == 1)
                for (int64_t x = 0; x < w; x++)
                    sum[x] += row[x];
            else
                for (int64_t x = 0; x < w; x++)
                    sum[x] += row[x * step];
        }
        uint8_t *out = to->data + oy * to->stride;
        for (int64_t ox = 0; ox < to_w; ox++) {
            const int64_t x0 = ox * w / to_w;
            int64_t x1 = (ox + 1) * w / to_w;
            x1 = x1 > x0 ? x1 : x0 + 1;
            uint32_t total = 0;
            for (int64_t x = x0; x < x1; x++)
                total += sum[x];
            const uint32_t n = (uint32_t)((x1 - x0) * (y1 - y0));
            const uint32_t mean = (total + n / 2) / n;
            out[ox] = map[mean > 255 ? 255 : mean];
        }
    }
}

static void range_map(bool full, bool chroma, int transfer, uint8_t map[256])
{
    for (int i = 0; i < 256; i++) {
        double v = full ? i : chroma ? 128 + (i - 128) * 255.0 / 224 : (i - 16) * 255.0 / 219;
        if (!chroma)
            v = 255 * weft_tone_luma(transfer, v / 255);
        map[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : lround(v));
    }
}

/* True if box_average can read the format directly: planar or semi-planar YUV or gray of 8 to 16
 * little-endian bits. */
static bool simple_yuv(const AVPixFmtDescriptor *desc)
{
    if (desc->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                       AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT))
        return false;
    for (int k = 0; k < desc->nb_components; k++)
        if (desc->comp[k].depth > 8 && (desc->flags & AV_PIX_FMT_FLAG_BE))
            return false;
    return desc->nb_components == 1 || desc->nb_components == 3;
}

static weft_status convert_small(weft_converter *c, const AVFrame *frame, const pixels *from,
                                 const AVPixFmtDescriptor *desc)
{
    if (!simple_yuv(desc)) {
        const pixels to = flat_pixels(c, AV_PIX_FMT_YUVJ444P);
        return scale_to(&c->scale, from, &to);
    }
    if (c->row_sum_capacity < from->w) {
        weft_free(c->row_sum);
        c->row_sum = weft_alloc_aligned(from->w * (int64_t)sizeof *c->row_sum);
        c->row_sum_capacity = c->row_sum ? from->w : 0;
        WEFT_TRY(WEFT_ALLOCATED(c->row_sum, "the frame converter"));
    }
    for (int k = 0; k < 3; k++) {
        if (k >= desc->nb_components) { /* gray */
            memset(c->flat[k], 128, (size_t)(c->flat_stride[k] * c->flat_h));
            continue;
        }
        uint8_t map[256];
        range_map(from->full, k > 0, frame->color_trc, map);
        const plane_view source = {from->plane[desc->comp[k].plane],
                                   from->stride[desc->comp[k].plane],
                                   k ? AV_CEIL_RSHIFT(from->w, desc->log2_chroma_w) : from->w,
                                   k ? AV_CEIL_RSHIFT(from->h, desc->log2_chroma_h) : from->h};
        const plane_view cells = {c->flat[k], c->flat_stride[k], c->flat_w, c->flat_h};
        box_average(&source, &desc->comp[k], c->row_sum, map, &cells);
    }
    return WEFT_OK;
}

static void rotate_plane(const uint8_t *from, int64_t stride, int64_t w, int64_t h, int64_t bytes,
                         int rotation, uint8_t *to)
{
    const int64_t to_w = rotation == 180 ? w : h;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            int64_t tx = w - 1 - x, ty = h - 1 - y; /* 180 */
            if (rotation == 90)
                tx = h - 1 - y, ty = x;
            else if (rotation == 270)
                tx = y, ty = w - 1 - x;
            memcpy(to + (ty * to_w + tx) * bytes, from + y * stride + x * bytes, (size_t)bytes);
        }
}

/* Tone maps to RGB, then converts to 4:2:0. */
static weft_status convert_tone_yuv(weft_converter *c, const AVFrame *frame, const pixels *from)
{
    pixels rgb = output_pixels(c, AV_PIX_FMT_RGB24);
    const pixels to = flat_pixels(c, AV_PIX_FMT_YUV420P);
    weft_status_code status = WEFT_OK;
    rgb.stride[0] = (int)(c->flat_w * 3);
    rgb.plane[0] = weft_alloc_aligned(c->flat_w * c->flat_h * 3 + 64);
    WEFT_TRY(WEFT_ALLOCATED(rgb.plane[0], "tone mapping"));
    WEFT_GO(convert_tone(c, frame, from, rgb.plane[0], rgb.stride[0]));
    WEFT_GO(scale_to(&c->second, &rgb, &to));
out:
    weft_free(rgb.plane[0]);
    return status;
}

weft_status weft_converter_run(weft_converter *c, const AVFrame *decoded, weft_video_frame *out)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(decoded->format);
    if (!desc || decoded->width < 1 || decoded->height < 1)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_NOWHERE, "a decoded frame has no pixels");
    const weft_video_format format = c->options.format;
    const AVFrame *frame = decoded;
    if (format != WEFT_VIDEO_SMALL) /* cells contain lines of both fields */
        WEFT_TRY(weft_deinterlace(decoded, &c->woven, &frame));
    int64_t rect[4];
    const uint8_t *plane[4];
    stored_crop(c, frame, desc, rect);
    crop_planes(frame, desc, rect, plane);
    const pixels from = pixels_of(frame, plane, rect);
    if (frame->colorspace == AVCOL_SPC_ICTCP)
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_NOWHERE,
                          "the colours are ICtCp, which weft does not convert");
    const bool tone =
        weft_tone_needed(frame->color_trc, frame->color_primaries) && desc->nb_components >= 3;
    if (format == WEFT_VIDEO_SMALL) {
        WEFT_TRY(convert_small(c, frame, &from, desc));
    } else if (tone && format == WEFT_VIDEO_RGB24) {
        WEFT_TRY(convert_tone(c, frame, &from, c->flat[0], c->flat_stride[0]));
    } else if (tone) {
        WEFT_TRY(convert_tone_yuv(c, frame, &from));
    } else {
        const pixels to =
            flat_pixels(c, format == WEFT_VIDEO_RGB24 ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_YUV420P);
        WEFT_TRY(scale_to(&c->scale, &from, &to));
    }
    for (int p = 0; p < plane_count(format); p++) {
        int64_t w, h;
        const int64_t bytes = plane_bytes_per_pixel(format);
        plane_size(format, p, c->flat_w, c->flat_h, &w, &h);
        out->plane[p] = c->flat[p];
        out->stride[p] = c->flat_stride[p];
        if (c->rotation) {
            rotate_plane(c->flat[p], c->flat_stride[p], w, h, bytes, c->rotation, c->turned[p]);
            out->plane[p] = c->turned[p];
            out->stride[p] = (c->rotation == 180 ? w : h) * bytes;
        }
    }
    out->width = c->options.width;
    out->height = c->options.height;
    return WEFT_OK;
}
