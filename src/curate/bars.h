/* Bars: lines of one colour along the sides of a frame, black or of any other colour. */
#ifndef WEFT_CURATE_BARS_H
#define WEFT_CURATE_BARS_H

#include <stdint.h>

enum { WEFT_BAR_SIDES = 4 }; /* top, bottom, left, right */

/* Lines at each side of one frame, at most half of the frame. */
typedef struct weft_bars {
    uint8_t black[WEFT_BAR_SIDES]; /* black lines */
    uint8_t even[WEFT_BAR_SIDES];  /* lines of the colour of the outermost line */
    uint8_t sharp; /* bit k: content starts sharply after even[k], over all of side k */
} weft_bars;

/* Measures one frame. `plane` are Y, Cb, Cr, u8 [height, width], full range, with strides. */
void weft_bars_find(const uint8_t *const plane[3], const int64_t stride[3], int width, int height,
                    weft_bars *bars);
/* Bars of one frame, judged from this frame alone. Black bars if it has any, otherwise bars of
 * another colour with a sharp inner edge. */
void weft_bars_of_frame(const weft_bars *bars, int bar[WEFT_BAR_SIDES]);

/* Non-black bars of a shot: the lines common to all frames, if content starts sharply there, or
 * one line later, in at least a third of the frames. A wall or a sky has one colour in some frames
 * only, or has no sharp edge. */
typedef struct weft_even_bars {
    int64_t frames;
    int least[WEFT_BAR_SIDES];
    int64_t sharp[WEFT_BAR_SIDES][2]; /* frames with sharp lines of `least`, and `least` + 1 */
} weft_even_bars;
void weft_even_bars_add(weft_even_bars *all, const weft_bars *bars, int width, int height);
void weft_even_bars_end(const weft_even_bars *all, int bar[WEFT_BAR_SIDES]);

#endif
