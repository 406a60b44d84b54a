#include "evaluate/flow_sampling.h"

#include <math.h>

enum { MAX_RADIUS = 4 };

weft_plane weft_plane_of(weft_plane plane, int64_t first, int64_t channels)
{
    plane.at += first;
    plane.channels = channels;
    return plane;
}

static float *position(const weft_plane *p, int64_t row, int64_t column)
{
    return p->at + (row * p->columns + column) * p->step;
}

void weft_plane_copy(weft_plane from, float factor, weft_plane to)
{
    for (int64_t i = 0; i < to.rows * to.columns; i++)
        for (int64_t c = 0; c < to.channels; c++)
            to.at[i * to.step + c] = factor * from.at[i * from.step + c];
}

void weft_plane_add(weft_plane from, float factor, weft_plane to)
{
    for (int64_t i = 0; i < to.rows * to.columns; i++)
        for (int64_t c = 0; c < to.channels; c++)
            to.at[i * to.step + c] += factor * from.at[i * from.step + c];
}

/* Two neighbouring positions and the weight of the second. */
typedef struct between {
    int64_t low, high;
    float weight;
} between;

/* `at` is clamped to the array of `count` positions. */
static between neighbours(float at, int64_t count)
{
    at = fmaxf(0, fminf(at, (float)(count - 1)));
    const int64_t low = (int64_t)at;
    return (between){low, low + 1 < count ? low + 1 : low, at - (float)low};
}

static void blend(const weft_plane *from, between y, between x, float factor, int64_t channels,
                  float *to)
{
    const float *a = position(from, y.low, x.low), *b = position(from, y.low, x.high),
                *c = position(from, y.high, x.low), *d = position(from, y.high, x.high);
    for (int64_t k = 0; k < channels; k++)
        to[k] = factor * ((1 - y.weight) * ((1 - x.weight) * a[k] + x.weight * b[k]) +
                          y.weight * ((1 - x.weight) * c[k] + x.weight * d[k]));
}

void weft_plane_resize(weft_plane from, float factor, weft_plane to)
{
    const float down[2] = {(float)from.rows / (float)to.rows,
                           (float)from.columns / (float)to.columns};
#pragma omp parallel for
    for (int64_t r = 0; r < to.rows; r++)
        for (int64_t q = 0; q < to.columns; q++)
            blend(&from, neighbours(((float)r + 0.5f) * down[0] - 0.5f, from.rows),
                  neighbours(((float)q + 0.5f) * down[1] - 0.5f, from.columns), factor, to.channels,
                  position(&to, r, q));
}

void weft_plane_warp(weft_plane from, weft_plane flow, weft_plane to)
{
#pragma omp parallel for
    for (int64_t r = 0; r < to.rows; r++)
        for (int64_t q = 0; q < to.columns; q++) {
            const float *f = position(&flow, r, q);
            blend(&from, neighbours((float)r + f[1], from.rows),
                  neighbours((float)q + f[0], from.columns), 1, to.channels, position(&to, r, q));
        }
}

void weft_plane_halve(weft_plane from, weft_plane to)
{
    for (int64_t r = 0; r < to.rows; r++)
        for (int64_t q = 0; q < to.columns; q++) {
            const float *a = position(&from, 2 * r, 2 * q), *b = position(&from, 2 * r, 2 * q + 1),
                        *c = position(&from, 2 * r + 1, 2 * q),
                        *d = position(&from, 2 * r + 1, 2 * q + 1);
            float *y = position(&to, r, q);
            for (int64_t k = 0; k < to.channels; k++)
                y[k] = 0.25f * (a[k] + b[k] + c[k] + d[k]);
        }
}

/* Scalar product in four partial sums. */
static float dot(const float *a, const float *b, int64_t count)
{
    float sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* All offsets of a position have the same fraction, so the products at whole positions are computed
 * once and blended. */
static void correlate_one(const float *of, const weft_plane *b, float x, float y, int radius,
                          float factor, float *to)
{
    enum { SIDE = 2 * MAX_RADIUS + 2 };
    const int side = 2 * radius + 1;
    const float whole[2] = {floorf(y), floorf(x)}, part[2] = {y - whole[0], x - whole[1]};
    float product[SIDE][SIDE];
    for (int i = 0; i <= side; i++)
        for (int k = 0; k <= side; k++) {
            const float row = whole[0] + (float)(i - radius),
                        column = whole[1] + (float)(k - radius);
            const bool inside =
                row >= 0 && row < (float)b->rows && column >= 0 && column < (float)b->columns;
            product[i][k] =
                inside ? factor * dot(of, position(b, (int64_t)row, (int64_t)column), b->channels)
                       : 0;
        }
    for (int k = 0; k < side; k++) /* offset of columns */
        for (int i = 0; i < side; i++)
            to[k * side + i] =
                (1 - part[0]) * ((1 - part[1]) * product[i][k] + part[1] * product[i][k + 1]) +
                part[0] * ((1 - part[1]) * product[i + 1][k] + part[1] * product[i + 1][k + 1]);
}

void weft_plane_correlate(weft_plane a, weft_plane b, weft_plane flow, double flow_factor,
                          int level, int radius, float factor, weft_plane to)
{
    const float down = 1 / (float)(1 << level);
#pragma omp parallel for
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t q = 0; q < a.columns; q++) {
            const float *f = position(&flow, r, q);
            correlate_one(position(&a, r, q), &b, ((float)q + (float)flow_factor * f[0]) * down,
                          ((float)r + (float)flow_factor * f[1]) * down, radius, factor,
                          position(&to, r, q));
        }
}
