/* Clips for training: reads a video as a float tensor of the size of a bucket. */
#ifndef WEFT_VIDEO_CLIP_H
#define WEFT_VIDEO_CLIP_H

#include "base/status.h"
#include "video/reader.h"

#include <stdint.h>

typedef struct weft_clip_request {
    int64_t frames, height, width; /* bucket size */
    /* Frame k is the one shown at start_seconds + k / fps. 0: every frame. */
    double fps;
    double start_seconds; /* offset from the first frame */
    /* Position of the crop, 0 .. 1, if the aspects differ; 0.5: centre. The frame is scaled to
     * cover the bucket and cropped. */
    double crop_x, crop_y; /* 0 .. 1 */
    int threads;           /* decoder threads; 0: 1 */
} weft_clip_request;

/* Reads a clip as u8 [T, H, W, 3]; T = request->frames. `rgb` has frames*height*width*3 bytes,
 * owned by the caller. WEFT_E_SHAPE: the video has fewer frames; the message has the count. */
weft_status weft_clip_read_u8(const char *path, const weft_clip_request *request, uint8_t *rgb);
/* Reads a clip as floats in [-1, 1]: u / 127.5 - 1. */
weft_status weft_clip_read(const char *path, const weft_clip_request *request, float *clip);
/* Reads a clip from a video in memory. `bytes` is borrowed during the call; messages name the video
 * `name`. */
weft_status weft_clip_read_memory(const void *bytes, int64_t size, const char *name,
                                  const weft_clip_request *request, float *clip);

/* Reads a clip from a source, of which only the parts around the clip are read. */
weft_status weft_clip_read_source(const weft_video_source *source, const char *name,
                                  const weft_clip_request *request, float *clip);

/* Number of frames available to weft_clip_read at `fps`; 0: all frames. Decodes the complete
 * video. */
weft_status weft_clip_count(const char *path, double fps, int64_t *frames);

#endif
