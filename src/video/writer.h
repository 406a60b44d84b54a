/* Video writer, atomic. The extension of the path selects the format:
 *
 *   .mp4    H.264 (libx264), sound as AAC
 *   .webm   VP9 (libvpx), sound as Opus
 *   .gif    a palette of 256 colours for each frame (video/palette.h), at most 50 frames/s
 *   .png    one frame, lossless */
#ifndef WEFT_VIDEO_WRITER_H
#define WEFT_VIDEO_WRITER_H

#include "base/status.h"
#include "video/reader.h"
#include "video/sound.h"

#include <stdint.h>

typedef struct weft_video_tag {
    const char *key, *value; /* e.g. {"seed", "7"}; copied. NULL value: omitted */
} weft_video_tag;

typedef struct weft_video_writer_options {
    int64_t width, height; /* mp4, webm: odd sizes are stored as 4:4:4, even as 4:2:0 */
    double fps;            /* frame rate, and the time base for explicit times */
    int crf;               /* mp4, webm: lower is better; 0 (default): 18 for H.264 */
    const char *preset;    /* NULL: "medium" */
    const char *encoder;   /* mp4: encoder of FFmpeg (video_encoder.h); NULL: libx264 */
    int threads;           /* 0: 1; its output does not depend on the machine */
    int64_t key_interval;  /* mp4, webm: maximum frames between key frames; 0: 2 seconds */
    const weft_video_tag *tags;
    int tag_count;
    /* mp4, webm: sound from the first frame on, copied; NULL: none. Other formats have no sound. */
    const weft_sound *sound;
} weft_video_writer_options;

typedef struct weft_video_writer weft_video_writer;

/* True if the extension of `path` is a supported format. */
bool weft_video_writer_knows(const char *path);
/* Checks that a video can be written to `path`: the extension, the encoder of this FFmpeg, one
 * frame for .png, at most 50 frames/s for .gif. `frames` 0 or `fps` 0: unknown. */
weft_status weft_video_writer_check(const char *path, int64_t frames, double fps);
/* Value of a tag that a weft_video_writer stored in the file; heap. NULL: none. */
char *weft_video_writer_tag(const char *path, const char *key);

/* Opens a writer to a temporary file next to `path`. weft_video_writer_finish renames the file to
 * `path`. */
weft_status weft_video_writer_open(const char *path, const weft_video_writer_options *options,
                                   weft_video_writer **out);
/* One frame, packed u8 [height, width, 3]; `stride` is the bytes between rows. */
weft_status weft_video_writer_rgb(weft_video_writer *writer, const uint8_t *rgb, int64_t stride);
/* Writes one decoded frame (RGB24 or YUV420P) of the writer's size. `seconds` is its presentation
 * time from the start of the video. Negative: the next constant-rate time. */
weft_status weft_video_writer_frame(weft_video_writer *writer, const weft_video_frame *frame,
                                    double seconds);
/* Writes one frame of planar floats in [-1, 1]: red, green, blue planes [height, width], clamped.
 * Value v becomes round((v + 1) * 127.5). NaN becomes black. */
weft_status weft_video_writer_float(weft_video_writer *writer, const float *red, const float *green,
                                    const float *blue);
weft_status weft_video_writer_finish(weft_video_writer *writer); /* flush, fsync, rename */
/* Frees the writer. Without finish, deletes the temporary file. Accepts NULL. */
void weft_video_writer_close(weft_video_writer *writer);

/* Writes a complete clip of floats in [-1, 1], [T, H, W, 3] or, with `channels_first`, [3, T, H,
 * W]. */
weft_status weft_video_write_clip(const char *path, const float *clip, int64_t frames,
                                  bool channels_first, const weft_video_writer_options *options);

#endif
