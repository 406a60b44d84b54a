#ifndef WEFT_VIDEO_VECTORS_H
#define WEFT_VIDEO_VECTORS_H

#include "video/reader.h"

typedef struct AVFrame AVFrame;

/* Appends the decoder's motion vectors of `frame` from past pictures to a growing list. Vectors are
 * rotated and scaled like the frame. */
weft_status weft_motion_export(const AVFrame *frame, const weft_video_info *info,
                               weft_motion **list, int64_t *capacity, int64_t *count);

#endif
