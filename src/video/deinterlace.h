/* Pictures whose lines were taken at two times become pictures of one. Private to video/. */
#ifndef WEFT_VIDEO_DEINTERLACE_H
#define WEFT_VIDEO_DEINTERLACE_H

#include "base/status.h"

#include <libavutil/frame.h>

/* The frame itself where it is not marked as interlaced, shows no combs (film in an interlaced
 * stream) or is of a format other than planar or semi-planar YUV; else a copy with the lines of the
 * earlier field, between which those of the later one stay where they fit and are interpolated
 * where they do not. *work (NULL at first; av_frame_free) keeps the copy. */
weft_status weft_deinterlace(const AVFrame *frame, AVFrame **work, const AVFrame **out);

#endif
