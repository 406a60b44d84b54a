/* Bars: lines of one colour along the sides of the picture, black or of any other colour. */
#ifndef WEFT_CURATE_BARS_H
#define WEFT_CURATE_BARS_H

#include <stdint.h>

enum { WEFT_BAR_SIDES = 4 }; /* top, bottom, left, right */

/* Lines at each side of one frame, each up to half of the picture. */
typedef struct weft_bars {
    uint8_t black[WEFT_BAR_SIDES]; /* lines of black */
    uint8_t even[WEFT_BAR_SIDES];  /* lines of the colour of the outermost line */
    uint8_t sharp; /* bit k: the picture begins across the whole of side k, right after even[k] */
} weft_bars;

/* `plane` are Y, Cb, Cr, u8 [height, width], full range, with strides. */
void weft_bars_find(const uint8_t *const plane[3], const int64_t stride[3], int width, int height,
                    weft_bars *bars);
/* The bars of one frame, as far as one frame shows them: those of black if it has any, otherwise
 * those of another colour at which the picture begins sharply. */
void weft_bars_of_frame(const weft_bars *bars, int bar[WEFT_BAR_SIDES]);

/* Bars of another colour than black of a shot: the lines that all of its frames have, if the
 * picture begins sharply after them in a third of the frames or more. A wall or a sky is of one
 * colour in some frames only, or has no sharp end. */
typedef struct weft_even_bars {
    int64_t frames;
    int least[WEFT_BAR_SIDES];
    int64_t sharp[WEFT_BAR_SIDES][2]; /* frames whose sharp lines are `least`, and one more */
} weft_even_bars;
void weft_even_bars_add(weft_even_bars *all, const weft_bars *bars, int width, int height);
void weft_even_bars_end(const weft_even_bars *all, int bar[WEFT_BAR_SIDES]);

#endif
