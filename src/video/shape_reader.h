#ifndef WEFT_VIDEO_SHAPE_READER_H
#define WEFT_VIDEO_SHAPE_READER_H

#include "video/shapes.h"

/* Reads the colour, shape and direction of the object in a video u8 [frames, height, width, 3];
 * frames >= 2. Fits a plane to the background of each frame; pixels that differ from the plane are
 * the object. The hue, the path of the centroid, and the outline compared with blurred templates
 * give the words. Tolerates blur and noise. WEFT_E_ARG: fewer than 2 frames; WEFT_E_MEMORY. */
weft_status weft_shape_read(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width,
                            weft_shape_reading *out);

#endif
