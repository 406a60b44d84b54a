#include "curate/bars.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    DARK_LUMA = 22, /* maximum luma of black */
    SAME = 6,       /* maximum difference of bar pixels, in levels */
    OTHER = 12,     /* minimum difference of content pixels, in levels */
    LEAST_LINES = 2 /* minimum lines of a non-black bar */
};

/* One line along a side: pixel i is at `at + i * step` of each plane. */
typedef struct line {
    int64_t at[3], step[3];
    int count;
} line;

typedef struct image {
    const uint8_t *const *plane;
    const int64_t *stride;
    int width, height;
} image;

/* Line `index` from side `side`. */
static line line_of(const image *p, int side, int index)
{
    const bool upright = side >= 2, far = side & 1;
    const int position = far ? (upright ? p->width : p->height) - 1 - index : index;
    line l = {.count = upright ? p->height : p->width};
    for (int k = 0; k < 3; k++) {
        l.at[k] = upright ? position : position * p->stride[k];
        l.step[k] = upright ? p->stride[k] : 1;
    }
    return l;
}

static bool is_black(const image *p, const line *l)
{
    int bright = 0;
    for (int i = 0; i < l->count; i++)
        bright += p->plane[0][l->at[0] + i * l->step[0]] > DARK_LUMA;
    return bright <= l->count / 100;
}

static void mean_colour(const image *p, const line *l, int colour[3])
{
    for (int k = 0; k < 3; k++) {
        int sum = 0;
        for (int i = 0; i < l->count; i++)
            sum += p->plane[k][l->at[k] + i * l->step[k]];
        colour[k] = (sum + l->count / 2) / l->count;
    }
}

/* Pixels of the line that differ from the colour by more than `levels` in luma or chroma. */
static int differing(const image *p, const line *l, const int colour[3], int tolerance)
{
    int count = 0;
    for (int i = 0; i < l->count; i++) {
        bool differs = false;
        for (int k = 0; k < 3; k++)
            differs |= abs(p->plane[k][l->at[k] + i * l->step[k]] - colour[k]) > tolerance;
        count += differs;
    }
    return count;
}

static int black_lines(const image *p, int side, int most)
{
    int lines = 0;
    for (; lines < most; lines++) {
        const line l = line_of(p, side, lines);
        if (!is_black(p, &l))
            break;
    }
    return lines;
}

/* Counts the lines of one colour. *sharp: most of the second line after them has other colours; the
 * first one may be a mixture of bar and content. */
static int even_lines(const image *p, int side, int most, bool *sharp)
{
    int colour[3], lines = 0;
    line l = line_of(p, side, 0);
    mean_colour(p, &l, colour);
    for (; lines < most; lines++) {
        l = line_of(p, side, lines);
        if (differing(p, &l, colour, SAME) > l.count / 100)
            break;
    }
    l = line_of(p, side, lines + 1);
    *sharp = lines > 0 && lines < most && 2 * differing(p, &l, colour, OTHER) > l.count;
    return lines;
}

void weft_bars_find(const uint8_t *const plane[3], const int64_t stride[3], int width, int height,
                    weft_bars *bars)
{
    const image p = {plane, stride, width, height};
    memset(bars, 0, sizeof *bars);
    for (int side = 0; side < WEFT_BAR_SIDES; side++) {
        const int most = (side < 2 ? height : width) / 2;
        bool sharp;
        bars->black[side] = (uint8_t)black_lines(&p, side, most);
        bars->even[side] = (uint8_t)even_lines(&p, side, most, &sharp);
        bars->sharp |= (uint8_t)(sharp << side);
    }
}

void weft_bars_of_frame(const weft_bars *bars, int bar[WEFT_BAR_SIDES])
{
    bool black = false;
    for (int k = 0; k < WEFT_BAR_SIDES; k++)
        black |= bars->black[k] > 0;
    for (int k = 0; k < WEFT_BAR_SIDES; k++) {
        const bool coloured = !black && (bars->sharp >> k & 1) && bars->even[k] >= LEAST_LINES;
        bar[k] = coloured ? bars->even[k] : bars->black[k];
    }
}

void weft_even_bars_add(weft_even_bars *all, const weft_bars *bars, int width, int height)
{
    if (bars->even[0] >= height / 2 && bars->even[2] >= width / 2)
        return; /* a frame of one colour shows no bars */
    for (int k = 0; k < WEFT_BAR_SIDES; k++) {
        const int lines = bars->even[k];
        int64_t *sharp = all->sharp[k];
        if (all->frames == 0 || lines < all->least[k]) {
            sharp[1] = all->frames && lines + 1 == all->least[k] ? sharp[0] : 0;
            sharp[0] = 0;
            all->least[k] = lines;
        }
        if ((bars->sharp >> k & 1) && lines <= all->least[k] + 1)
            sharp[lines - all->least[k]]++;
    }
    all->frames++;
}

void weft_even_bars_end(const weft_even_bars *all, int bar[WEFT_BAR_SIDES])
{
    for (int k = 0; k < WEFT_BAR_SIDES; k++) {
        const bool is = all->least[k] >= LEAST_LINES &&
                        3 * (all->sharp[k][0] + all->sharp[k][1]) >= all->frames;
        bar[k] = all->frames && is ? all->least[k] : 0;
    }
}
