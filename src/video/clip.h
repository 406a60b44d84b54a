/* The training loader's view of a video: a bucket of floats. */
#ifndef WEFT_VIDEO_CLIP_H
#define WEFT_VIDEO_CLIP_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_clip_request {
    int64_t frames, height, width; /* the bucket */
    /* Frames are taken at start_seconds + k / fps (the frame shown then); 0: every frame. */
    double fps;
    double start_seconds; /* from the first frame */
    /* Where the crop sits when the aspect differs: 0.5 is the centre. The frame is scaled so that
     * it covers the bucket, what sticks out is cut off. */
    double crop_x, crop_y; /* 0 .. 1 */
    int threads;           /* decoder threads; 0: 1 */
} weft_clip_request;

/* Reads a clip of u8 [T, H, W, 3]; T = request->frames. Too short a video is WEFT_E_SHAPE, and the
 * message says how many frames there were. `rgb` is the caller's, of frames*height*width*3. */
weft_status weft_clip_read_u8(const char *path, const weft_clip_request *request, uint8_t *rgb);
/* The same as floats in [-1, 1]: u / 127.5 - 1. */
weft_status weft_clip_read(const char *path, const weft_clip_request *request, float *clip);
/* From a video in memory (the bytes are borrowed during the call); `name` stands in messages. */
weft_status weft_clip_read_memory(const void *bytes, int64_t size, const char *name,
                                  const weft_clip_request *request, float *clip);

/* How many frames weft_clip_read could give at `fps` (0: all frames): decodes the whole video. */
weft_status weft_clip_count(const char *path, double fps, int64_t *frames);

#endif
