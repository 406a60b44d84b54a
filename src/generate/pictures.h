/* Pictures, videos and masks that a user gives, as numbers of the size that is made. */
#ifndef WEFT_GENERATE_PICTURES_H
#define WEFT_GENERATE_PICTURES_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A picture of another aspect: stretched, as the reference pipelines do, or what sticks out cut off
 * on both sides alike. */
typedef enum weft_fit { WEFT_FIT_STRETCH, WEFT_FIT_CROP } weft_fit;

/* The size that is made, and where in it the file's frames lie. What is outside of the rectangle
 * repeats its edge. */
typedef struct weft_canvas {
    int64_t frames, height, width;
    int64_t x, y, w, h; /* w 0: all of it */
    weft_fit fit;
} weft_canvas;

/* The first frame of a picture or video: heap u8 [height, width, 3], in its own size. */
weft_status weft_picture_load(const char *path, uint8_t **rgb, int64_t *width, int64_t *height);
/* video[frames, height, width, 3] in [-1,1]. A still picture is every frame; a video with fewer is
 * WEFT_E_SHAPE, of one with more the first are taken, as they lie in the file. */
weft_status weft_pictures_read(const char *path, const weft_canvas *canvas, float *video);
/* mask[frames, height, width]: 1 where the picture is at least half white. */
weft_status weft_mask_read(const char *path, const weft_canvas *canvas, uint8_t *mask);
/* Says it when a file's frames are stretched or cut. */
weft_status weft_picture_tell(const char *path, const weft_canvas *canvas);

#endif
