/* Videos longer than the model generates, as windows in sequence. Each window is conditioned on the
 * last frames of the previous one, and is decoded before the next one begins.
 *
 *     window 0   [ 0 1 2 3 4 5 6 7 8 ]                       frames 9, shared 1, of 20
 *     window 1                    [ 8 9 ... 15 16 ]
 *     window 2                                [ 16 17 18 19 x x x x x ]     x: generated, dropped
 *
 * Windows share only the overlapping frames, so peak memory is that of one window. */
#ifndef WEFT_GENERATE_JOBS_VIDEO_CONTINUATION_H
#define WEFT_GENERATE_JOBS_VIDEO_CONTINUATION_H

#include "base/status.h"

#include <stdint.h>

/* Sizes are in frames of the video. */
typedef struct weft_continuation {
    int64_t frames, window, shared, count; /* count: number of windows; 1 if shared is 0 */
    int64_t at;                            /* current window */
    int64_t written;                       /* frames of the video that were output */
    float *tail;                           /* (shared, frame): last frames of the previous window */
    int64_t frame;                         /* floats per frame */
} weft_continuation;

/* Number of windows of a video of `frames` frames. */
int64_t weft_continuation_windows(int64_t frames, int64_t window, int64_t shared);
/* `shared` < `window`; 0: one window of all frames. `pixels`: pixels per frame. */
weft_status weft_continuation_open(int64_t frames, int64_t window, int64_t shared, int64_t pixels,
                                   weft_continuation *continuation);
void weft_continuation_close(weft_continuation *continuation);
/* Takes decoded frames first..first + count - 1 of window `at`, (count, frame). Frames *from..*from
 * + *fresh - 1 of `frames` are the next frames of the video. If a window is decoded again, frames
 * that were output before are not counted as fresh. */
void weft_continuation_push(weft_continuation *continuation, int64_t first, int64_t count,
                            const float *frames, int64_t *from, int64_t *fresh);
/* Seed of window `at`; the first window uses the video's own seed. */
uint64_t weft_continuation_seed(const weft_continuation *continuation, uint64_t seed);

#endif
