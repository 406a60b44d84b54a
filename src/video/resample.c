#include "video/resample.h"

#include "base/interpolation.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double sinc(double x)
{
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

static double lanczos(double x)
{
    return x > -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static const struct {
    double (*at)(double);
    double reach;
} kernels[] = {[WEFT_RESAMPLE_LANCZOS] = {lanczos, 3},
               [WEFT_RESAMPLE_BICUBIC] = {bicubic, 2},
               [WEFT_RESAMPLE_BILINEAR] = {bilinear, 1}};

/* Weights are integers in units of 1/2^BITS, so that sums are identical on every machine. */
enum { BITS = 22 };

/* Source pixels, from `first` on, of one output pixel. */
typedef struct taps {
    int64_t first, count;
    int32_t *weight;
} taps;

/* taps[to]; one block, free with weft_free. */
static taps *lay_taps(weft_resample filter, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to, stretch = scale > 1 ? scale : 1;
    const double reach = kernels[filter].reach * stretch;
    const int64_t most = 2 * (int64_t)ceil(reach) + 1;
    taps *t = weft_alloc(to * (int64_t)sizeof *t + to * most * 4 + most * 8);
    if (!t)
        return NULL;
    double *exact = (double *)(t + to);
    int32_t *weight = (int32_t *)(exact + most);
    for (int64_t i = 0; i < to; i++, weight += most) {
        const double centre = ((double)i + 0.5) * scale;
        int64_t first = (int64_t)(centre - reach + 0.5), end = (int64_t)(centre + reach + 0.5);
        double sum = 0;
        first = centre - reach + 0.5 < 0 ? 0 : first;
        end = end > from ? from : end;
        for (int64_t k = first; k < end; k++)
            sum += exact[k - first] = kernels[filter].at(((double)k - centre + 0.5) / stretch);
        for (int64_t k = 0; k < end - first; k++)
            weight[k] = (int32_t)lround(exact[k] / sum * (1 << BITS));
        t[i] = (taps){first, end - first, weight};
    }
    return t;
}

static uint8_t mix(const taps *t, const uint8_t *from, int64_t step)
{
    int64_t sum = (int64_t)1 << (BITS - 1);
    for (int64_t k = 0; k < t->count; k++)
        sum += t->weight[k] * (int64_t)from[(t->first + k) * step];
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static weft_status resize_columns(weft_resample filter, const uint8_t *from, int64_t from_w,
                                  int64_t h, int64_t channels, uint8_t *to, int64_t to_w)
{
    taps *t = lay_taps(filter, from_w, to_w);
    WEFT_TRY(WEFT_ALLOCATED(t, "resizing an image"));
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < to_w; x++)
            for (int64_t c = 0; c < channels; c++)
                to[(y * to_w + x) * channels + c] =
                    mix(&t[x], from + y * from_w * channels + c, channels);
    weft_free(t);
    return WEFT_OK;
}

static weft_status resize_rows(weft_resample filter, const uint8_t *from, int64_t from_h,
                               int64_t row, uint8_t *to, int64_t to_h)
{
    taps *t = lay_taps(filter, from_h, to_h);
    WEFT_TRY(WEFT_ALLOCATED(t, "resizing an image"));
    for (int64_t y = 0; y < to_h; y++)
        for (int64_t x = 0; x < row; x++)
            to[y * row + x] = mix(&t[y], from + x, row);
    weft_free(t);
    return WEFT_OK;
}

weft_status weft_image_resample(weft_resample filter, const uint8_t *from, int64_t from_w,
                                int64_t from_h, int64_t channels, uint8_t *to, int64_t to_w,
                                int64_t to_h)
{
    const int64_t row = to_w * channels;
    if (from_h == to_h && from_w == to_w) {
        memcpy(to, from, (size_t)(to_h * row));
        return WEFT_OK;
    }
    if (from_h == to_h)
        return resize_columns(filter, from, from_w, from_h, channels, to, to_w);
    if (from_w == to_w)
        return resize_rows(filter, from, from_h, row, to, to_h);
    uint8_t *between;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(between, from_h * row, "resizing an image"));
    WEFT_GO(resize_columns(filter, from, from_w, from_h, channels, between, to_w));
    WEFT_GO(resize_rows(filter, between, from_h, row, to, to_h));
out:
    weft_free(between);
    return status;
}

/* Resizes the middle dim of from[outer, from_count, inner] to to[outer, to_count, inner]. */
static weft_status resize_dim(weft_resample filter, const float *from, int64_t outer,
                              int64_t from_count, int64_t inner, float *to, int64_t to_count)
{
    taps *t = lay_taps(filter, from_count, to_count);
    WEFT_TRY(WEFT_ALLOCATED(t, "resizing an image"));
    for (int64_t i = 0; i < outer * to_count * inner; i++) {
        const taps *own = &t[i / inner % to_count];
        const float *at =
            from + (i / inner / to_count * from_count + own->first) * inner + i % inner;
        double sum = 0;
        for (int64_t k = 0; k < own->count; k++)
            sum += (double)own->weight[k] * (double)at[k * inner];
        to[i] = (float)(sum / (1 << BITS));
    }
    weft_free(t);
    return WEFT_OK;
}

weft_status weft_image_resample_f32(weft_resample filter, const float *from, int64_t from_w,
                                    int64_t from_h, int64_t channels, float *to, int64_t to_w,
                                    int64_t to_h)
{
    float *between;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(between, from_h * to_w * channels, "resizing an image"));
    WEFT_GO(resize_dim(filter, from, from_h, from_w, channels, between, to_w));
    WEFT_GO(resize_dim(filter, between, 1, from_h, to_w * channels, to, to_h));
out:
    weft_free(between);
    return status;
}

/* Neighbours of `to` output pixels; free with weft_free. */
static weft_neighbours *find_neighbours(bool bicubic, int64_t from, int64_t to)
{
    const float step = (float)from / (float)to;
    weft_neighbours *n = weft_alloc(to * (int64_t)sizeof *n);
    for (int64_t i = 0; n && i < to; i++)
        n[i] =
            bicubic ? weft_neighbours_cubic(step, i, from) : weft_neighbours_linear(step, i, from);
    return n;
}

weft_status weft_image_interpolate(bool bicubic, const uint8_t *from, int64_t from_w,
                                   int64_t from_h, int64_t channels, float *to, int64_t to_w,
                                   int64_t to_h)
{
    weft_neighbours *row = find_neighbours(bicubic, from_h, to_h),
                    *column = find_neighbours(bicubic, from_w, to_w);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(row && column, "resizing an image"));
    for (int64_t i = 0; i < to_h * to_w * channels; i++) {
        const weft_neighbours *y = &row[i / channels / to_w], *x = &column[i / channels % to_w];
        float sum = 0;
        for (int j = 0; j < y->count; j++) {
            float line = 0;
            for (int k = 0; k < x->count; k++)
                line += x->weight[k] *
                        (float)from[(y->at[j] * from_w + x->at[k]) * channels + i % channels];
            sum += y->weight[j] * line;
        }
        to[i] = sum;
    }
out:
    weft_free(row);
    weft_free(column);
    return status;
}
