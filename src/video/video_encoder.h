/* Encoders of .mp4 files, in software and hardware: how their quality and speed are set. */
#ifndef WEFT_VIDEO_VIDEO_ENCODER_H
#define WEFT_VIDEO_VIDEO_ENCODER_H

#include "base/status.h"

#include <stdbool.h>

typedef struct AVCodecContext AVCodecContext;

/* Checks that `encoder` (FFmpeg's name, such as "libx265" or "hevc_vaapi") can be used: weft
 * knows how to set it, this FFmpeg has it, and it starts on this machine with `crf` and
 * `preset`. `key` is the name of the setting. */
weft_status weft_video_encoder_check(const char *encoder, int crf, const char *preset,
                                     const char *key);
/* Sets quality and speed of a context of a known encoder, which has its size and is not open.
 * `preset` "" or NULL, or one of another encoder: the encoder's standard. VAAPI and QSV encoders
 * get a device; their frames are sent by weft_frame_upload_send, and have an even size. Returns
 * FFmpeg's error, or 0. */
int weft_video_encoder_set(AVCodecContext *context, const char *encoder, int crf,
                           const char *preset);

#endif
