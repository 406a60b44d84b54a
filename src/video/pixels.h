/* Conversion of decoded frames to the reader's output: crop, scale, colour, rotation, 8 bits. */
#ifndef WEFT_VIDEO_PIXELS_H
#define WEFT_VIDEO_PIXELS_H

#include "video/reader.h"

#include <libavutil/frame.h>

typedef struct weft_converter weft_converter;

/* Creates a converter. `rotation` is in clockwise degrees. display_w and display_h are the upright,
 * square-pixel size of the video, the coordinate system of the crop in `options`. options->width
 * and height are set. */
weft_status weft_converter_create(const weft_video_options *options, int rotation,
                                  int64_t display_w, int64_t display_h, weft_converter **out);
/* Fills out->plane, stride, width and height; the converter owns the planes. Size and pixel format
 * may differ between frames. */
weft_status weft_converter_run(weft_converter *converter, const AVFrame *frame,
                               weft_video_frame *out);
void weft_converter_free(weft_converter *converter);

#endif
