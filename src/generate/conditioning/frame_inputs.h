/* Reads images, videos and masks as float frames of the size that is generated. */
#ifndef WEFT_GENERATE_CONDITIONING_FRAME_INPUTS_H
#define WEFT_GENERATE_CONDITIONING_FRAME_INPUTS_H

#include "base/status.h"
#include "video/reader.h"

#include <stdbool.h>
#include <stdint.h>

/* How an image of another aspect ratio fits: stretched, as in the reference pipelines, or cropped
 * equally on both sides. */
typedef enum weft_fit { WEFT_FIT_STRETCH, WEFT_FIT_CROP } weft_fit;

/* The generated size, and the rectangle that shows the file's frames. Pixels outside the rectangle
 * repeat its edge. */
typedef struct weft_canvas {
    int64_t frames, height, width;
    int64_t x, y, w, h; /* w 0: the whole canvas */
    weft_fit fit;
} weft_canvas;

/* The rectangle (x, y, width, height) of frames of the given size that the canvas shows: all, or
 * the largest central one with the aspect ratio of the canvas. */
void weft_canvas_cut(const weft_canvas *canvas, int64_t width, int64_t height, int64_t cut[4]);
/* The first frame of an image or video file: heap u8 [height, width, 3], in the file's size. */
weft_status weft_picture_load(const char *path, uint8_t **rgb, int64_t *width, int64_t *height);
/* Images of a file in memory, and of a source: its first frame from `start` seconds on. Messages
 * name the file `name`. */
weft_status weft_picture_load_memory(const void *bytes, int64_t size, const char *name,
                                     uint8_t **rgb, int64_t *width, int64_t *height);
weft_status weft_picture_load_source(const weft_video_source *from, const char *name, double start,
                                     uint8_t **rgb, int64_t *width, int64_t *height);
/* Fills video[frames, height, width, 3] in [-1,1]. An image is repeated in every frame. Of a video,
 * the first frames are used; a video with fewer frames is WEFT_E_SHAPE. */
weft_status weft_pictures_read(const char *path, const weft_canvas *canvas, float *video);
/* Like weft_pictures_read, with the last frames of a video. Reads the file from the beginning. */
weft_status weft_pictures_read_last(const char *path, const weft_canvas *canvas, float *video);
/* Calls `each` for every frame with mask[height, width]: 1 where the mask is at least half
 * white. */
typedef void weft_mask_fn(void *user, int64_t frame, const uint8_t *mask);
weft_status weft_mask_read(const char *path, const weft_canvas *canvas, weft_mask_fn *each,
                           void *user);
/* Returns the values of weft_pictures_read one box at a time (weft_box_fn; the user pointer is
 * `frame_source`). One frame of the file is in memory at a time. */
typedef struct weft_frame_source weft_frame_source;
weft_status weft_frame_source_open(const char *path, const weft_canvas *canvas,
                                   weft_frame_source **frame_source);
weft_status_code weft_frame_source_box(void *frame_source, const int64_t first[3],
                                       const int64_t size[3], float *to);
void weft_frame_source_close(weft_frame_source *frame_source); /* accepts NULL */
/* Warns if the file's frames are stretched or cropped. */
weft_status weft_picture_warn_resized(const char *path, const weft_canvas *canvas);

#endif
