/* Frames of a shot for operators: evenly spread, scaled, without borders. */
#ifndef WEFT_CURATE_OPERATORS_SHOT_FRAMES_H
#define WEFT_CURATE_OPERATORS_SHOT_FRAMES_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

/* Frames of one size, u8 [count, height, width, 3]. */
typedef struct weft_shot_frames {
    int64_t count, width, height;
    uint8_t *rgb;         /* owned */
    int64_t index[256];   /* in the video */
    double seconds[256];  /* since the start of the video */
    int64_t wanted, side; /* the request */
} weft_shot_frames;

/* Decoders of one video, at the requested sizes. */
typedef struct weft_shot_decoder weft_shot_decoder;

/* `path` is borrowed. `beat` is called while frames are decoded; NULL: never. */
weft_status weft_shot_decoder_open(const char *path, double stall_seconds, void (*beat)(void *),
                                   void *user, weft_shot_decoder **source);
void weft_shot_decoder_close(weft_shot_decoder *source); /* accepts NULL */
/* Decodes `count` frames (1 to 256, fewer in a shorter shot) of a shot of a record. Frames show the
 * area "picture" of the shot and have `side` pixels on the shorter side (0: as in the video). The
 * result is borrowed until the next call for another shot. */
weft_status weft_shot_decoder_get(weft_shot_decoder *source, const json_t *shot, int64_t count,
                                  int64_t side, const weft_shot_frames **frames);
/* Seconds spent in decoding so far. */
double weft_shot_decoder_seconds(const weft_shot_decoder *source);

#endif
