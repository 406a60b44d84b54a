#include "video/palette.h"

#include "base/memory.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* Pixels are counted in cells of 6 bits of each channel: a pixel is at most 3 from the mean. */
enum { BITS = 6, SHIFT = 8 - BITS, CELLS = 1 << (3 * BITS) };

typedef struct cell {
    int64_t pixels, sum[3];
    int16_t nearest; /* 1 + colour of the palette; 0: not looked up yet */
} cell;

/* Cells `first` .. `first + count - 1` in the list of used cells. */
typedef struct box {
    int64_t first, count, pixels;
    double mean[3], spread; /* summed squared distance from the mean along `axis` */
    int axis;
} box;

struct weft_palette {
    int64_t width;
    cell *cells;   /* [CELLS] */
    int32_t *used; /* [CELLS] */
    int *error[2]; /* [(width + 2) * 3] of this row and the next, in 1/16 */
    uint8_t colour[WEFT_PALETTE_COLOURS][3];
    int colours;
};

weft_status weft_palette_create(int64_t width, weft_palette **out)
{
    weft_palette *p = weft_alloc(sizeof *p);
    if (p) {
        *p = (weft_palette){.width = width,
                            .cells = weft_calloc(CELLS, sizeof *p->cells),
                            .used = weft_calloc(CELLS, sizeof *p->used)};
        for (int i = 0; i < 2; i++)
            p->error[i] = weft_calloc((width + 2) * 3, sizeof *p->error[i]);
    }
    if (!p || !p->cells || !p->used || !p->error[0] || !p->error[1]) {
        weft_palette_free(p);
        return weft_no_memory("a palette");
    }
    *out = p;
    return WEFT_OK;
}

void weft_palette_free(weft_palette *p)
{
    if (!p)
        return;
    weft_free(p->cells);
    weft_free(p->used);
    weft_free(p->error[0]);
    weft_free(p->error[1]);
    weft_free(p);
}

static int64_t cell_of(const uint8_t *rgb)
{
    return (int64_t)(rgb[0] >> SHIFT) << (2 * BITS) | (rgb[1] >> SHIFT) << BITS | rgb[2] >> SHIFT;
}

/* Returns the number of cells in use. */
static int64_t count_pixels(weft_palette *p, const uint8_t *rgb, int64_t pixels)
{
    int64_t used = 0;
    memset(p->cells, 0, CELLS * sizeof *p->cells);
    for (int64_t i = 0; i < pixels; i++, rgb += 3) {
        const int64_t at = cell_of(rgb);
        cell *c = &p->cells[at];
        if (!c->pixels++)
            p->used[used++] = (int32_t)at;
        for (int k = 0; k < 3; k++)
            c->sum[k] += rgb[k];
    }
    return used;
}

static void measure(const weft_palette *p, box *b)
{
    double sum[3] = {0}, square[3] = {0};
    b->pixels = 0;
    for (int64_t i = b->first; i < b->first + b->count; i++) {
        const cell *c = &p->cells[p->used[i]];
        b->pixels += c->pixels;
        for (int k = 0; k < 3; k++) {
            sum[k] += (double)c->sum[k];
            square[k] += (double)c->sum[k] * (double)c->sum[k] / (double)c->pixels;
        }
    }
    b->spread = -1;
    for (int k = 0; k < 3; k++) {
        b->mean[k] = sum[k] / (double)b->pixels;
        const double spread = square[k] - sum[k] * b->mean[k];
        if (spread > b->spread) {
            b->spread = spread;
            b->axis = k;
        }
    }
}

/* Cells above the mean move to `upper`; false: all are alike. */
static bool cut(weft_palette *p, box *b, box *upper)
{
    int64_t low = b->first, high = b->first + b->count;
    while (low < high) {
        const int32_t at = p->used[low];
        const cell *c = &p->cells[at];
        if ((double)c->sum[b->axis] <= b->mean[b->axis] * (double)c->pixels) {
            low++;
            continue;
        }
        p->used[low] = p->used[--high];
        p->used[high] = at;
    }
    if (low == b->first || low == b->first + b->count)
        return false;
    *upper = (box){.first = low, .count = b->first + b->count - low};
    b->count = low - b->first;
    measure(p, b);
    measure(p, upper);
    return true;
}

static void choose(weft_palette *p, const uint8_t *rgb, int64_t pixels)
{
    box boxes[WEFT_PALETTE_COLOURS] = {{.count = count_pixels(p, rgb, pixels)}};
    int count = 1;
    measure(p, boxes);
    while (count < WEFT_PALETTE_COLOURS) {
        int widest = 0;
        for (int i = 1; i < count; i++)
            widest = boxes[i].spread > boxes[widest].spread ? i : widest;
        if (boxes[widest].spread <= 0)
            break;
        if (cut(p, &boxes[widest], &boxes[count]))
            count++;
        else
            boxes[widest].spread = 0;
    }
    p->colours = count;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 3; k++)
            p->colour[i][k] = (uint8_t)(boxes[i].mean[k] + 0.5);
}

static int nearest_to(const weft_palette *p, const int rgb[3])
{
    int best = 0, least = INT_MAX;
    for (int i = 0; i < p->colours; i++) {
        const int r = rgb[0] - p->colour[i][0], g = rgb[1] - p->colour[i][1],
                  b = rgb[2] - p->colour[i][2], distance = r * r + g * g + b * b;
        if (distance < least) {
            least = distance;
            best = i;
        }
    }
    return best;
}

/* The colour nearest to the mean of the cell's pixels; without pixels, to its middle. */
static int look_up(weft_palette *p, const int rgb[3])
{
    const uint8_t at[3] = {(uint8_t)rgb[0], (uint8_t)rgb[1], (uint8_t)rgb[2]};
    cell *c = &p->cells[cell_of(at)];
    if (!c->nearest) {
        int own[3];
        for (int k = 0; k < 3; k++)
            own[k] = c->pixels ? (int)((c->sum[k] + c->pixels / 2) / c->pixels)
                               : (rgb[k] >> SHIFT << SHIFT) + (1 << SHIFT >> 1);
        c->nearest = (int16_t)(nearest_to(p, own) + 1);
    }
    return c->nearest - 1;
}

static void draw_row(weft_palette *p, const uint8_t *rgb, bool leftward, uint8_t *index)
{
    int *now = p->error[0] + 3, *next = p->error[1] + 3;
    const int64_t step = leftward ? -1 : 1;
    memset(p->error[1], 0, (size_t)(p->width + 2) * 3 * sizeof *next);
    for (int64_t n = 0, x = leftward ? p->width - 1 : 0; n < p->width; n++, x += step) {
        int wish[3];
        for (int k = 0; k < 3; k++) {
            const int v = rgb[x * 3 + k] + (now[x * 3 + k] + 8) / 16;
            wish[k] = v < 0 ? 0 : v > 255 ? 255 : v;
        }
        const int colour = look_up(p, wish);
        index[x] = (uint8_t)colour;
        for (int k = 0; k < 3; k++) {
            const int error = wish[k] - p->colour[colour][k];
            now[(x + step) * 3 + k] += error * 7;
            next[(x - step) * 3 + k] += error * 3;
            next[x * 3 + k] += error * 5;
            next[(x + step) * 3 + k] += error;
        }
    }
    int *swap = p->error[0];
    p->error[0] = p->error[1];
    p->error[1] = swap;
}

void weft_palette_draw(weft_palette *p, const uint8_t *rgb, int64_t height,
                       uint32_t colours[WEFT_PALETTE_COLOURS], uint8_t *index, int64_t stride)
{
    choose(p, rgb, p->width * height);
    for (int i = 0; i < WEFT_PALETTE_COLOURS; i++) {
        const uint8_t *c = p->colour[i < p->colours ? i : 0];
        colours[i] = 0xff000000u | (uint32_t)c[0] << 16 | (uint32_t)c[1] << 8 | c[2];
    }
    memset(p->error[0], 0, (size_t)(p->width + 2) * 3 * sizeof **p->error);
    for (int64_t y = 0; y < height; y++) /* rows in turns from the left and from the right */
        draw_row(p, rgb + y * p->width * 3, y % 2 != 0, index + y * stride);
}
