/* From a decoder's frame to what the reader delivers: crop, scale, colour, rotation, 8 bits. */
#ifndef WEFT_VIDEO_PIXELS_H
#define WEFT_VIDEO_PIXELS_H

#include "video/reader.h"

#include <libavutil/frame.h>

typedef struct weft_converter weft_converter;

/* `rotation` is in clockwise degrees; display_w/h is the upright, square-pixel size of the video,
 * which the crop of `options` refers to. options->width and height are set. */
weft_status weft_converter_create(const weft_video_options *options, int rotation,
                                  int64_t display_w, int64_t display_h, weft_converter **out);
/* Fills out->plane, stride, width and height; the planes belong to the converter. Frames may change
 * size and pixel format from one to the next. */
weft_status weft_converter_run(weft_converter *converter, const AVFrame *frame,
                               weft_video_frame *out);
void weft_converter_free(weft_converter *converter);

#endif
