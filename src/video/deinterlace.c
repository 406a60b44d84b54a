#include "video/deinterlace.h"

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <stdbool.h>

/* A pixel is a comb tooth if it is brighter or darker than both vertical neighbours. The limit is
 * COMB levels of 255 in the geometric mean (the measure of Telecide and TIVTC). Progressive frames
 * have few teeth: thin lines, noise. */
enum { COMB = 12, FRAME_SHARE = 250 };

static bool usable(const AVPixFmtDescriptor *desc)
{
    if (!desc || desc->nb_components < 1 ||
        desc->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                       AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT | AV_PIX_FMT_FLAG_BE))
        return false;
    return desc->comp[0].step * 8 <= 16; /* luma in its own plane */
}

static int64_t sample(const uint8_t *row, int64_t x, bool deep)
{
    return deep ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

static bool tooth(int64_t above, int64_t own, int64_t below, int64_t limit)
{
    return (above - own) * (below - own) > limit;
}

/* True if more than one in FRAME_SHARE luma pixels is a comb tooth. */
static bool has_combs(const AVFrame *f, bool deep, int64_t limit)
{
    int64_t teeth = 0;
    for (int64_t y = 1; y + 1 < f->height; y++) {
        const uint8_t *row = f->data[0] + y * f->linesize[0];
        for (int64_t x = 0; x < f->width; x++)
            teeth += tooth(sample(row - f->linesize[0], x, deep), sample(row, x, deep),
                           sample(row + f->linesize[0], x, deep), limit);
    }
    return teeth * FRAME_SHARE > (int64_t)f->width * f->height;
}

/* Replaces the comb teeth in the later field's lines, and the neighbours of each tooth, because
 * combs begin and end softly. */
static void mend_plane(const AVFrame *from, AVFrame *to, int plane, int64_t width, int64_t height,
                       bool deep, int64_t limit)
{
    for (int64_t y = from->top_field_first ? 1 : 0; y < height; y += 2) {
        const uint8_t *row = from->data[plane] + y * from->linesize[plane];
        const uint8_t *above = y > 0 ? row - from->linesize[plane] : row + from->linesize[plane];
        const uint8_t *below = y + 1 < height ? row + from->linesize[plane] : above;
        uint8_t *out = to->data[plane] + y * to->linesize[plane];
        for (int64_t x = 0; x < width; x++) {
            bool mend = false;
            for (int64_t k = x > 1 ? x - 2 : 0; k <= x + 2 && k < width && !mend; k++)
                mend = tooth(sample(above, k, deep), sample(row, k, deep), sample(below, k, deep),
                             limit);
            if (!mend)
                continue;
            const int64_t mean = (sample(above, x, deep) + sample(below, x, deep) + 1) / 2;
            if (deep)
                ((uint16_t *)(void *)out)[x] = (uint16_t)mean;
            else
                out[x] = (uint8_t)mean;
        }
    }
}

static weft_status copy_frame(const AVFrame *frame, AVFrame **work)
{
    if (*work && ((*work)->width != frame->width || (*work)->height != frame->height ||
                  (*work)->format != frame->format))
        av_frame_free(work);
    if (!*work) {
        *work = av_frame_alloc();
        WEFT_TRY(WEFT_ALLOCATED(*work, "the deinterlacing"));
        (*work)->width = frame->width;
        (*work)->height = frame->height;
        (*work)->format = frame->format;
        if (av_frame_get_buffer(*work, 0) < 0) {
            av_frame_free(work);
            return weft_no_memory("the deinterlacing");
        }
    }
    av_image_copy((*work)->data, (*work)->linesize, (const uint8_t **)(uintptr_t)frame->data,
                  frame->linesize, frame->format, frame->width, frame->height);
    (*work)->color_range = frame->color_range;
    (*work)->colorspace = frame->colorspace;
    (*work)->color_trc = frame->color_trc;
    (*work)->color_primaries = frame->color_primaries;
    return WEFT_OK;
}

weft_status weft_deinterlace(const AVFrame *frame, AVFrame **work, const AVFrame **out)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(frame->format);
    *out = frame;
    if (!frame->interlaced_frame || !usable(desc) || frame->height < 4)
        return WEFT_OK;
    const bool deep = desc->comp[0].depth > 8;
    const int64_t level = COMB * ((int64_t)1 << (desc->comp[0].depth + desc->comp[0].shift - 8)),
                  limit = level * level;
    if (!has_combs(frame, deep, limit))
        return WEFT_OK;
    WEFT_TRY(copy_frame(frame, work));
    for (int p = 0; p < av_pix_fmt_count_planes(frame->format); p++) {
        const int64_t w = p ? AV_CEIL_RSHIFT(frame->width, desc->log2_chroma_w) : frame->width;
        const int64_t h = p ? AV_CEIL_RSHIFT(frame->height, desc->log2_chroma_h) : frame->height;
        const bool pairs =
            p && av_pix_fmt_count_planes(frame->format) == 2; /* Cb and Cr side by side */
        mend_plane(frame, *work, p, pairs ? 2 * w : w, h, deep, limit);
    }
    *out = *work;
    return WEFT_OK;
}
