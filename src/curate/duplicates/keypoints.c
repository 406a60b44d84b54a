#include "curate/duplicates/keypoints.h"

#include "video/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCALES = 5,
    AREA = 22400, /* pixels of the finest scale: 200 x 112 for 16:9 */
    MOST = AREA + 1200,
    LEAST_SIDE = 40,
    MOST_SIDE = 512,
    PATCH = 16,
    FREQUENCIES = 8, /* frequencies in each direction */
    WINDOW = 2,      /* radius in pixels of the corner measure */
    CANDIDATES = 512
};
static const int wanted[SCALES] = {8, 7, 6, 6, 5};

static void box_mean(const uint8_t *plane, int64_t stride, int64_t width, int64_t height,
                     int columns, int rows, uint8_t *to)
{
    const int64_t w = width / columns, h = height / rows;
    for (int v = 0; v < rows; v++)
        for (int u = 0; u < columns; u++) {
            int64_t sum = w * h / 2;
            for (int64_t y = v * h; y < (v + 1) * h; y++)
                for (int64_t x = u * w; x < (u + 1) * w; x++)
                    sum += plane[y * stride + x];
            to[v * columns + u] = (uint8_t)(sum / (w * h));
        }
}

void weft_thumbnail_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                         int64_t height, weft_thumbnail *thumbnail)
{
    box_mean(plane[0], stride[0], width, height, WEFT_THUMBNAIL_WIDTH, WEFT_THUMBNAIL_HEIGHT,
             thumbnail->luma[0]);
    box_mean(plane[1], stride[1], width, height, WEFT_THUMBNAIL_COLUMNS, WEFT_THUMBNAIL_ROWS,
             thumbnail->cb);
    box_mean(plane[2], stride[2], width, height, WEFT_THUMBNAIL_COLUMNS, WEFT_THUMBNAIL_ROWS,
             thumbnail->cr);
}

/* ---- points -------------------------------------------------------------------------------- */

typedef struct tables {
    float cosine[FREQUENCIES][PATCH]; /* under a window that makes the patch's border count less */
    uint8_t u[64], v[64];             /* frequencies by bit: (1, 0) first, then by u + v */
} tables;

static void fill_tables(tables *t)
{
    int bits = 0;
    for (int k = 0; k < FREQUENCIES; k++)
        for (int x = 0; x < PATCH; x++)
            t->cosine[k][x] = cosf(3.14159265f / PATCH * ((float)x + 0.5f) * (float)k) *
                              sinf(3.14159265f / PATCH * ((float)x + 0.5f));
    for (int sum = 1; sum <= 2 * (FREQUENCIES - 1); sum++)
        for (int u = sum < FREQUENCIES ? sum : FREQUENCIES - 1; u >= 0 && sum - u < FREQUENCIES;
             u--) {
            t->u[bits] = (uint8_t)u;
            t->v[bits++] = (uint8_t)(sum - u);
        }
}

/* Describes the patch around a pixel. Mirroring flips the signs of odd u. Of both words, the one
 * with a positive first sign, that of (1, 0), is used. */
static void describe(const tables *t, const uint8_t *image, int width, int x0, int y0,
                     weft_point *point)
{
    float rows[PATCH][FREQUENCIES], mean = 0;
    for (int y = 0; y < PATCH; y++)
        for (int x = 0; x < PATCH; x++)
            mean += image[(y0 + y) * width + x0 + x];
    mean /= PATCH * PATCH;
    for (int y = 0; y < PATCH; y++) {
        float line[PATCH];
        for (int x = 0; x < PATCH; x++)
            line[x] = (float)image[(y0 + y) * width + x0 + x] - mean;
        for (int k = 0; k < FREQUENCIES; k++) {
            float sum = 0;
            for (int x = 0; x < PATCH; x++)
                sum += line[x] * t->cosine[k][x];
            rows[y][k] = sum;
        }
    }
    bool turned = false;
    for (int bit = 0; bit < FREQUENCIES * FREQUENCIES - 1; bit++) {
        float sum = 0;
        for (int y = 0; y < PATCH; y++)
            sum += rows[y][t->u[bit]] * t->cosine[t->v[bit]][y];
        bool positive = sum > 0;
        if (bit == 0)
            turned = !positive;
        positive ^= turned && (t->u[bit] & 1);
        point->word[bit / 32] |= (uint32_t)positive << (bit % 32);
    }
    point->is_mirrored = turned;
}

typedef struct corner {
    float strength;
    int x, y;
} corner;

static int stronger_first(const void *a, const void *b)
{
    const corner *p = a, *q = b;
    if (p->strength != q->strength)
        return p->strength < q->strength ? 1 : -1;
    return p->y != q->y ? (p->y > q->y) - (p->y < q->y) : (p->x > q->x) - (p->x < q->x);
}

/* Corner measure of Harris and Stephens, here det / trace, of sums over a window. */
static void measure_corners(const uint8_t *image, int w, int h, float *strength)
{
    static const int side = 2 * WINDOW + 1;
    float sums[3][MOST_SIDE + 8] = {{0}}; /* over the columns' last rows */
    float product[5][3][MOST_SIDE + 8];
    memset(strength, 0, (size_t)(w * h) * sizeof *strength);
    for (int y = 1; y < h - 1; y++) {
        float(*now)[MOST_SIDE + 8] = product[y % side];
        const uint8_t *row = image + y * w, *up = row - w, *down = row + w;
        for (int x = 1; x < w - 1; x++) {
            if (y > side) {
                sums[0][x] -= now[0][x];
                sums[1][x] -= now[1][x];
                sums[2][x] -= now[2][x];
            }
            const float gx = (float)(row[x + 1] - row[x - 1]), gy = (float)(down[x] - up[x]);
            sums[0][x] += now[0][x] = gx * gx;
            sums[1][x] += now[1][x] = gx * gy;
            sums[2][x] += now[2][x] = gy * gy;
        }
        if (y < side)
            continue;
        for (int x = 1 + WINDOW; x < w - 1 - WINDOW; x++) {
            float s[3];
            for (int k = 0; k < 3; k++)
                s[k] =
                    sums[k][x - 2] + sums[k][x - 1] + sums[k][x] + sums[k][x + 1] + sums[k][x + 2];
            strength[(y - WINDOW) * w + x] = (s[0] * s[2] - s[1] * s[1]) / (s[0] + s[2] + 100);
        }
    }
}

static int list_corners(const float *strength, int w, int h, corner list[CANDIDATES])
{
    int count = 0;
    for (int y = PATCH / 2; y + PATCH / 2 <= h; y++)
        for (int x = PATCH / 2; x + PATCH / 2 <= w; x++) {
            const float *s = strength + y * w + x;
            if (s[0] < 200 || s[0] <= s[-1] || s[0] < s[1] || s[0] <= s[-w] || s[0] < s[w] ||
                s[0] <= s[-w - 1] || s[0] <= s[-w + 1] || s[0] < s[w - 1] || s[0] < s[w + 1])
                continue;
            if (count < CANDIDATES) {
                list[count++] = (corner){s[0], x, y};
                continue;
            }
            int weakest = 0;
            for (int i = 1; i < count; i++)
                weakest = list[i].strength < list[weakest].strength ? i : weakest;
            if (list[weakest].strength < s[0])
                list[weakest] = (corner){s[0], x, y};
        }
    qsort(list, (size_t)count, sizeof *list, stronger_first);
    return count;
}

/* Adds the strongest separate corners of one scale. Allows at most two per ninth of the frame while
 * other ninths have corners, so that a logo does not use all keypoints. */
static void add_keypoints(const tables *t, const uint8_t *image, int w, int h, int scale,
                          const float *strength, weft_keypoints *keypoints)
{
    corner list[CANDIDATES];
    const int count = list_corners(strength, w, h, list), first = keypoints->count;
    const int apart = w < h ? w / 12 : h / 8;
    int xs[WEFT_KEYPOINTS], ys[WEFT_KEYPOINTS], in[9] = {0};
    for (int i = 0; i < 2 * count && keypoints->count - first < wanted[scale]; i++) {
        const corner *c = &list[i % count];
        int *here = &in[3 * c->y / h * 3 + 3 * c->x / w];
        bool near = i < count && *here >= 2;
        for (int k = first; k < keypoints->count && !near; k++)
            near = abs(xs[k] - c->x) < apart && abs(ys[k] - c->y) < apart;
        if (near)
            continue;
        weft_point *p = &keypoints->point[keypoints->count];
        xs[keypoints->count] = c->x;
        ys[keypoints->count++] = c->y;
        ++*here;
        *p = (weft_point){.scale = (uint8_t)scale,
                          .x = (uint8_t)((2 * c->x + 1) * 128 / w),
                          .y = (uint8_t)((2 * c->y + 1) * 128 / h)};
        describe(t, image, w, c->x - PATCH / 2, c->y - PATCH / 2, p);
    }
}

static int side_of(double pixels)
{
    const int side = (int)(pixels + 0.5);
    return side < LEAST_SIDE / 2 ? LEAST_SIDE / 2 : side > MOST_SIDE ? MOST_SIDE : side;
}

void weft_keypoints_make(const uint8_t *luma, int64_t stride, int64_t width, int64_t height,
                         double aspect, weft_keypoints *keypoints)
{
    uint8_t packed[256 * 256], image[MOST];
    float strength[MOST];
    tables t;
    *keypoints = (weft_keypoints){0};
    if (width * height > (int64_t)sizeof packed || !(aspect > 0))
        return;
    for (int64_t y = 0; y < height; y++)
        memcpy(packed + y * width, luma + y * stride, (size_t)width);
    fill_tables(&t);
    for (int scale = 0; scale < SCALES; scale++) {
        const double coarser = pow(2, scale / 3.0);
        const int w = side_of(sqrt(AREA * aspect) / coarser),
                  h = side_of(sqrt(AREA / aspect) / coarser);
        if (w * h > MOST)
            continue; /* a strip */
        weft_image_resize(packed, width, height, 1, image, w, h);
        measure_corners(image, w, h, strength);
        add_keypoints(&t, image, w, h, scale, strength, keypoints);
    }
}
