/* Deinterlacing: converts frames with two fields of different times to frames of one time. Private
 * to video/. */
#ifndef WEFT_VIDEO_DEINTERLACE_H
#define WEFT_VIDEO_DEINTERLACE_H

#include "base/status.h"

#include <libavutil/frame.h>

/* Deinterlaces `frame`. *out is `frame` if it is not marked as interlaced, shows no combing
 * (progressive content in an interlaced stream), or is not planar or semi-planar YUV. Otherwise
 * *out is a copy with the lines of the earlier field. Lines of the later field stay where they fit
 * and are interpolated elsewhere. *work owns the copy: initially NULL, free with av_frame_free. */
weft_status weft_deinterlace(const AVFrame *frame, AVFrame **work, const AVFrame **out);

#endif
