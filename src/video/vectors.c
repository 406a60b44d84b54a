#include "video/vectors.h"

#include "video/reader_internal.h"

#include "base/memory.h"

#include <libavutil/motion_vector.h>

/* FFmpeg gives vectors in stored pixels. */
weft_status weft_motion_export(const AVFrame *frame, const weft_video_info *info,
                               weft_motion **list, int64_t *capacity, int64_t *count)
{
    const AVFrameSideData *side = av_frame_get_side_data(frame, AV_FRAME_DATA_MOTION_VECTORS);
    *count = 0;
    if (!side)
        return WEFT_OK;
    const AVMotionVector *mv = (const AVMotionVector *)(const void *)side->data;
    const int64_t available = (int64_t)(side->size / sizeof *mv);
    if (available > *capacity) {
        weft_motion *grown = weft_realloc(*list, available * (int64_t)sizeof *grown);
        WEFT_TRY(WEFT_ALLOCATED(grown, "motion vectors"));
        *list = grown;
        *capacity = available;
    }
    const double sx = info->pixel_aspect;
    const double fw = frame->width * sx, fh = frame->height;
    int64_t kept = 0;
    for (int64_t i = 0; i < available; i++) {
        if (mv[i].source >= 0) /* past references only */
            continue;
        const double scale = mv[i].motion_scale ? mv[i].motion_scale : 1;
        const double x = mv[i].dst_x * sx, y = mv[i].dst_y, w = mv[i].w * sx, h = mv[i].h;
        const double dx = -mv[i].motion_x / scale * sx, dy = -mv[i].motion_y / scale;
        weft_motion m = {(float)x, (float)y, (float)w, (float)h, (float)dx, (float)dy};
        if (info->rotation == 90)
            m = (weft_motion){(float)(fh - y), (float)x, (float)h, (float)w, (float)-dy, (float)dx};
        else if (info->rotation == 180)
            m = (weft_motion){(float)(fw - x), (float)(fh - y), (float)w,
                              (float)h,        (float)-dx,      (float)-dy};
        else if (info->rotation == 270)
            m = (weft_motion){(float)y, (float)(fw - x), (float)h, (float)w, (float)dy, (float)-dx};
        (*list)[kept++] = m;
    }
    *count = kept;
    return WEFT_OK;
}
