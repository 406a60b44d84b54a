/* Writing H.264 in mp4 (libx264 through libavcodec), atomically. */
#ifndef WEFT_VIDEO_WRITER_H
#define WEFT_VIDEO_WRITER_H

#include "base/status.h"
#include "video/reader.h"

#include <stdint.h>

typedef struct weft_video_tag {
    const char *key, *value; /* e.g. {"seed", "7"}; stored in the mp4's metadata */
} weft_video_tag;

typedef struct weft_video_writer_options {
    int64_t width, height; /* odd sizes are stored as 4:4:4, even ones as 4:2:0 */
    double fps;            /* of constant-rate writing, and the time base otherwise */
    int crf;               /* 0: 18; lower is better */
    const char *preset;    /* NULL: "medium" */
    int threads;           /* 0: 1, whose output does not depend on the machine */
    int64_t key_interval;  /* frames between key frames at most; 0: 2 seconds */
    const weft_video_tag *tags;
    int tag_count;
} weft_video_writer_options;

typedef struct weft_video_writer weft_video_writer;

/* Bytes go to a temporary file beside `path`; only weft_video_writer_finish gives it its name. */
weft_status weft_video_writer_open(const char *path, const weft_video_writer_options *options,
                                   weft_video_writer **out);
/* One frame, packed u8 [height, width, 3]; `stride` is the bytes between rows. */
weft_status weft_video_writer_rgb(weft_video_writer *writer, const uint8_t *rgb, int64_t stride);
/* One frame of a decoded format (RGB24 or YUV420P) of the writer's size; `seconds` is its
 * presentation time from the clip's start, negative: the next constant-rate time. */
weft_status weft_video_writer_frame(weft_video_writer *writer, const weft_video_frame *frame,
                                    double seconds);
/* One frame from planar floats in [-1, 1]: red, green, blue planes [height, width], clamped. Value
 * v becomes round((v + 1) * 127.5). NaN becomes black. */
weft_status weft_video_writer_float(weft_video_writer *writer, const float *red, const float *green,
                                    const float *blue);
weft_status weft_video_writer_finish(weft_video_writer *writer); /* flush, fsync, rename */
/* Also aborts: without finish nothing stays on disk. Accepts NULL. */
void weft_video_writer_close(weft_video_writer *writer);

/* A whole clip of floats in [-1, 1], [T, H, W, 3] or, `channels_first`, [3, T, H, W]. */
weft_status weft_video_write_clip(const char *path, const float *clip, int64_t frames,
                                  bool channels_first, const weft_video_writer_options *options);

#endif
