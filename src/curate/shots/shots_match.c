#include "curate/shots/shots_match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8 };

/* Area inside black bars. Rows and columns that are dark in both frames are removed from each side,
 * at most a third. */
typedef struct area {
    int x, y, w, h;
} area;

static bool dark_line(const weft_shot_frame *a, const weft_shot_frame *b, int first, int step,
                      int n)
{
    for (int i = 0; i < n; i++)
        if (a->plane[0][first + i * step] > 26 || b->plane[0][first + i * step] > 26)
            return false;
    return true;
}

static area active_area(const weft_shot_frame *a, const weft_shot_frame *b)
{
    int top = 0, bottom = 0, left = 0, right = 0;
    while (top < SHOT_H / 3 && dark_line(a, b, top * SHOT_W, 1, SHOT_W))
        top++;
    while (bottom < SHOT_H / 3 && dark_line(a, b, (SHOT_H - 1 - bottom) * SHOT_W, 1, SHOT_W))
        bottom++;
    while (left < SHOT_W / 3 && dark_line(a, b, left, SHOT_W, SHOT_H))
        left++;
    while (right < SHOT_W / 3 && dark_line(a, b, SHOT_W - 1 - right, SHOT_W, SHOT_H))
        right++;
    /* Half a line at the edge of a bar may be blended with the bar. */
    top += top > 0, bottom += bottom > 0, left += left > 0, right += right > 0;
    return (area){left, top, SHOT_W - left - right, SHOT_H - top - bottom};
}

/* Measured inside the bars, which stay black if the content fades to white. */
static float spread_of(const weft_shot_frame *f)
{
    area in = active_area(f, f);
    if (in.w < SHOT_W / 2 || in.h < SHOT_H / 2) /* a dark frame: bars cannot be determined */
        in = (area){0, 0, SHOT_W, SHOT_H};
    const int count = in.w * in.h;
    int64_t spread = 0;
    for (int p = 0; p < 3; p++) {
        int histogram[256] = {0}, seen = 0, median = 0;
        for (int y = in.y; y < in.y + in.h; y++)
            for (int x = in.x; x < in.x + in.w; x++)
                histogram[f->plane[p][y * SHOT_W + x]]++;
        while (median < 255 && (seen += histogram[median]) * 2 < count)
            median++;
        for (int v = 0; v < 256; v++)
            spread += (int64_t)histogram[v] * abs(v - median);
    }
    return (float)spread / (float)count;
}

static void fill_statistics(weft_shot_frame *f)
{
    int64_t sum = 0, square = 0, edges = 0;
    for (int i = 0; i < SHOT_AREA; i++) {
        const int y = f->plane[0][i];
        sum += y;
        square += y * y;
        if (i % SHOT_W)
            edges += abs(y - f->plane[0][i - 1]);
        if (i >= SHOT_W)
            edges += abs(y - f->plane[0][i - SHOT_W]);
    }
    f->mean = (float)sum / SHOT_AREA;
    f->deviation = sqrtf(fmaxf(0, (float)square / SHOT_AREA - f->mean * f->mean));
    f->edges = (float)edges / (2 * SHOT_AREA);
    f->spread = spread_of(f);
}

void weft_shot_frame_fill(weft_shot_frame *f, const weft_video_frame *from)
{
    for (int p = 0; p < 3; p++) {
        for (int y = 0; y < SHOT_H; y++)
            memcpy(f->plane[p] + y * SHOT_W, from->plane[p] + y * from->stride[p], SHOT_W);
        for (int y = 0; y < COARSE_H; y++)
            for (int x = 0; x < COARSE_W; x++) {
                const uint8_t *at = f->plane[p] + 2 * y * SHOT_W + 2 * x;
                f->coarse[p * COARSE_AREA + y * COARSE_W + x] =
                    (uint8_t)((at[0] + at[1] + at[SHOT_W] + at[SHOT_W + 1] + 2) / 4);
            }
    }
    for (int y = 0; y < SHOT_H; y++) {
        uint32_t s = 0, q = 0;
        for (int x = 0; x < SHOT_W; x++) {
            const uint32_t v = f->plane[0][y * SHOT_W + x];
            s += v;
            q += v * v;
            const int at = (y + 1) * (SHOT_W + 1) + x + 1;
            f->sum[at] = f->sum[at - SHOT_W - 1] + s;
            f->square[at] = f->square[at - SHOT_W - 1] + q;
        }
    }
    fill_statistics(f);
}

static uint32_t box(const uint32_t *integral, int x, int y)
{
    const uint32_t *at = integral + y * (SHOT_W + 1) + x;
    return at[BLOCK * (SHOT_W + 1) + BLOCK] - at[BLOCK * (SHOT_W + 1)] - at[BLOCK] + at[0];
}

/* Sum of products of two 8 x 8 blocks. */
static inline int32_t products(const uint8_t *a, const uint8_t *b)
{
    int32_t sum = 0;
    for (int y = 0; y < BLOCK; y++)
        for (int x = 0; x < BLOCK; x++)
            sum += (int32_t)a[y * SHOT_W + x] * b[y * SHOT_W + x];
    return sum;
}

/* Mean absolute difference of the means of a plane over the block at the same position. */
static float block_mean(const uint8_t *plane, int x, int y)
{
    int sum = 0;
    for (int v = 0; v < BLOCK; v++)
        for (int u = 0; u < BLOCK; u++)
            sum += plane[(y + v) * SHOT_W + x + u];
    return (float)sum / (BLOCK * BLOCK);
}

/* Variance (times 64) that a block needs to count as textured: a deviation of 3.5 levels. */
#define TEXTURE (12.0f * BLOCK * BLOCK)

/* Takes the best normalised correlation within reach for each block, which is invariant to gain and
 * offset. Flat blocks have no structure and compare their colours. Colours count only as far as the
 * textured blocks do not show the same content in another light. */
float weft_shot_mismatch(const weft_shot_frame *a, const weft_shot_frame *b, int reach_x,
                         int reach_y)
{
    float textured = 0, textured_wrong = 0, flat = 0, flat_wrong = 0;
    const area in = active_area(a, b);
    const int blocks_x = in.w / BLOCK, blocks_y = in.h / BLOCK;
    for (int by = 0; by < blocks_y; by++)
        for (int bx = 0; bx < blocks_x; bx++) {
            /* Blocks are spread evenly; pixels that do not fill a block are skipped between
             * blocks. */
            const int x0 = in.x + (blocks_x > 1 ? bx * (in.w - BLOCK) / (blocks_x - 1) : 0);
            const int y0 = in.y + (blocks_y > 1 ? by * (in.h - BLOCK) / (blocks_y - 1) : 0);
            const uint8_t *block = a->plane[0] + y0 * SHOT_W + x0;
            const float sa = (float)box(a->sum, x0, y0), qa = (float)box(a->square, x0, y0);
            const float va = qa - sa * sa / 64;
            const float sb0 = (float)box(b->sum, x0, y0), qb0 = (float)box(b->square, x0, y0);
            const float vb0 = qb0 - sb0 * sb0 / 64;
            if (sa < 24 * 64 && sb0 < 24 * 64 && va < 4 * 64 && vb0 < 4 * 64)
                continue; /* black bars */
            float best = 0;
            for (int dy = -reach_y; dy <= reach_y; dy++) {
                const int y = y0 + dy;
                if (y < in.y || y + BLOCK > in.y + in.h)
                    continue;
                for (int dx = -reach_x; dx <= reach_x; dx++) {
                    const int x = x0 + dx;
                    if (x < in.x || x + BLOCK > in.x + in.w)
                        continue;
                    const float sb = (float)box(b->sum, x, y), qb = (float)box(b->square, x, y);
                    const float vb = qb - sb * sb / 64;
                    const float cov =
                        (float)products(block, b->plane[0] + y * SHOT_W + x) - sa * sb / 64;
                    const float rho = cov / sqrtf((va + 128) * (vb + 128));
                    best = rho > best ? rho : best;
                }
            }
            const float most = va > vb0 ? va : vb0;
            const float weight = most / (most + TEXTURE);
            const float dl = fabsf(sa - sb0) / 64;
            const float dc =
                fabsf(block_mean(a->plane[1], x0, y0) - block_mean(b->plane[1], x0, y0)) +
                fabsf(block_mean(a->plane[2], x0, y0) - block_mean(b->plane[2], x0, y0));
            const float colour = fminf(1, (fmaxf(0, dl - 4) + 2 * fmaxf(0, dc - 3)) / 40);
            textured += weight;
            textured_wrong += weight * (1 - best);
            flat += 1 - weight;
            flat_wrong += (1 - weight) * colour;
        }
    const float all = textured + flat;
    if (all <= 0)
        return 0;
    float trust = 1;
    if (textured > 0.1f * all)
        trust = fminf(1, fmaxf(0, (textured_wrong / textured - 0.15f) / 0.25f));
    return (textured_wrong + trust * flat_wrong) / all;
}

float weft_shot_difference(const weft_shot_frame *a, const weft_shot_frame *b)
{
    int32_t luma = 0, chroma = 0;
    for (int i = 0; i < COARSE_AREA; i++)
        luma += abs(a->coarse[i] - b->coarse[i]);
    for (int i = COARSE_AREA; i < 3 * COARSE_AREA; i++)
        chroma += abs(a->coarse[i] - b->coarse[i]);
    return (float)(luma + chroma) / COARSE_AREA;
}
