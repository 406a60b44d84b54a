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
/* Calls `each` for every frame: mask[height, width], 1 where the picture is at least half white. */
typedef void weft_mask_fn(void *user, int64_t frame, const uint8_t *mask);
weft_status weft_mask_read(const char *path, const weft_canvas *canvas, weft_mask_fn *each,
                           void *user);
/* The same numbers as weft_pictures_read gives, a box at a time (weft_box_fn: `film` is the user),
 * of a file of which one frame is in memory. */
typedef struct weft_film weft_film;
weft_status weft_film_open(const char *path, const weft_canvas *canvas, weft_film **film);
weft_status_code weft_film_box(void *film, const int64_t first[3], const int64_t size[3],
                               float *to);
void weft_film_close(weft_film *film); /* accepts NULL */
/* Says it when a file's frames are stretched or cut. */
weft_status weft_picture_tell(const char *path, const weft_canvas *canvas);

#endif
