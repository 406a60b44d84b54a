#include "curate/bars.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    DARK_LUMA = 22,  /* maximum luma of black */
    SAME = 6,        /* maximum difference of bar pixels, in levels */
    OTHER = 12,      /* minimum difference of content pixels, in levels */
    LEAST_LINES = 2, /* minimum lines of a non-black bar */
    CONSTANT = 2,    /* maximum change of the mean of the outer lines, in levels */
    SPREAD_LINES = 9 /* maximum lines with spread content: a coding block of 16 of 256 lines */
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
    const int most = l->count / 100;
    int bright = 0;
    for (int i = 0; i < l->count && bright <= most; i++)
        bright += p->plane[0][l->at[0] + i * l->step[0]] > DARK_LUMA;
    return bright <= most;
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

/* True if more than `most` pixels of the line differ from the colour by more than `tolerance`
 * levels in luma or chroma. */
static bool differs(const image *p, const line *l, const int colour[3], int tolerance, int most)
{
    int count = 0;
    for (int i = 0; i < l->count && count <= most; i++) {
        bool other = false;
        for (int k = 0; k < 3; k++)
            other |= abs(p->plane[k][l->at[k] + i * l->step[k]] - colour[k]) > tolerance;
        count += other;
    }
    return count > most;
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

/* True if the mean of line `index` differs from the colour by at most `levels`. */
static bool has_colour(const image *p, int side, int index, const int colour[3], int levels)
{
    const line l = line_of(p, side, index);
    int mean[3];
    mean_colour(p, &l, mean);
    bool same = true;
    for (int k = 0; k < 3; k++)
        same &= abs(mean[k] - colour[k]) <= levels;
    return same;
}

/* True if most pixels of line `index` have other colours than the bar and the line two before it:
 * the line in between may be a mixture of bar and content. */
static bool starts_sharply(const image *p, int side, int index, const int colour[3])
{
    const line l = line_of(p, side, index), before = line_of(p, side, index - 2);
    int count = 0;
    for (int i = 0; i < l.count; i++) {
        bool from_bar = false, from_line = false;
        for (int k = 0; k < 3; k++) {
            const int v = p->plane[k][l.at[k] + i * l.step[k]];
            from_bar |= abs(v - colour[k]) > OTHER;
            from_line |= abs(v - p->plane[k][before.at[k] + i * before.step[k]]) > OTHER;
        }
        count += from_bar && from_line;
    }
    return 2 * count > l.count;
}

/* Lines of a bar from `from` into which coding blocks have spread a little of the content. A sky or
 * a wall changes its colour gradually: if the outer lines do, the means of the next lines must be
 * closer to the colour. */
static int spread_lines(const image *p, int side, int from, int most, const int colour[3])
{
    const bool constant = has_colour(p, side, from / 2, colour, CONSTANT);
    int lines = from;
    for (; lines < most && lines < from + SPREAD_LINES; lines++) {
        const line l = line_of(p, side, lines);
        if (differs(p, &l, colour, OTHER, l.count / 4) ||
            !has_colour(p, side, lines, colour, constant ? OTHER : SAME))
            break;
    }
    return lines - from;
}

/* Counts the lines of one colour. *sharp: content starts sharply after them. */
static int even_lines(const image *p, int side, int most, bool *sharp)
{
    int colour[3], lines = 0;
    line l = line_of(p, side, 0);
    mean_colour(p, &l, colour);
    for (; lines < most; lines++) {
        l = line_of(p, side, lines);
        if (differs(p, &l, colour, SAME, l.count / 100))
            break;
    }
    if (lines >= LEAST_LINES)
        lines += spread_lines(p, side, lines, most, colour);
    *sharp = lines > 0 && lines < most && starts_sharply(p, side, lines + 1, colour);
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
        bar[k] = all->frames && is ? all->least[k] + (all->sharp[k][1] > all->sharp[k][0]) : 0;
    }
}
