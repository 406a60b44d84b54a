/* A video longer than its model makes, as windows one behind the other: each begins with the last
 * frames of the one before, which it is given, and is decoded before the next begins.
 *
 *     window 0   [ 0 1 2 3 4 5 6 7 8 ]                       frames 9, shared 1, of 20
 *     window 1                    [ 8 9 ... 15 16 ]
 *     window 2                                [ 16 17 18 19 x x x x x ]     x: made, and cut off
 *
 * Nothing but the shared frames goes from one to the next, so memory is that of one window. */
#ifndef WEFT_GENERATE_RELAY_H
#define WEFT_GENERATE_RELAY_H

#include "base/status.h"

#include <stdint.h>

/* In frames of the video. */
typedef struct weft_relay {
    int64_t frames, window, shared, count; /* count: windows; 1 where nothing is shared */
    int64_t at;                            /* the window that is made */
    int64_t written;                       /* frames of the video that are given out */
    float *tail;                           /* (shared, frame): the end of the one before */
    int64_t frame;                         /* floats of a frame */
} weft_relay;

/* Windows of such a video. */
int64_t weft_relay_windows(int64_t frames, int64_t window, int64_t shared);
/* shared < window, or 0: one window, of all frames. `pixels` of a picture. */
weft_status weft_relay_open(int64_t frames, int64_t window, int64_t shared, int64_t pixels,
                            weft_relay *relay);
void weft_relay_close(weft_relay *relay);
/* Decoded frames first.. of window `at`, (count, frame): of those *from..*from + *fresh - 1 are the
 * next of the video. A window that is decoded anew gives what it has given only once. */
void weft_relay_take(weft_relay *relay, int64_t first, int64_t count, const float *frames,
                     int64_t *from, int64_t *fresh);
/* Of window `at`: the video's own for the first. */
uint64_t weft_relay_seed(const weft_relay *relay, uint64_t seed);

#endif
