#include "curate/operators/technical_quality.h"

#include "base/compare.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { EDGE = 12, MOST_WIDTH = 64, CELL = 8, BLOCK = 16, DARK = 8, BRIGHT = 247 };

void weft_luma_of(const uint8_t *rgb, int64_t pixels, uint8_t *luma)
{
    for (int64_t i = 0; i < pixels; i++) /* BT.709 in 1/256 */
        luma[i] = (uint8_t)((54 * rgb[3 * i] + 183 * rgb[3 * i + 1] + 19 * rgb[3 * i + 2]) >> 8);
}

/* Pixels over which the luma continues to rise (sign 1) or fall (-1) to one side of x. */
static int64_t slope_length(const uint8_t *row, int64_t x, int64_t width, int side, int sign)
{
    int64_t n = 0;
    for (int64_t at = x; n < MOST_WIDTH / 2; n++, at += side) {
        const int64_t next = at + side;
        if (next < 0 || next >= width || (row[next] - row[at]) * side * sign <= 0)
            break;
    }
    return n;
}

/* Edges are steepest at x and at least EDGE levels high over two pixels. */
static double blur_of(const uint8_t *luma, int64_t width, int64_t height)
{
    int64_t edges = 0, sum = 0;
    for (int64_t y = 1; y + 1 < height; y += 2) {
        const uint8_t *row = luma + y * width;
        for (int64_t x = 2; x + 2 < width; x++) {
            const int step = row[x + 1] - row[x - 1], before = row[x] - row[x - 2],
                      after = row[x + 2] - row[x];
            const int sign = step > 0 ? 1 : -1, size = step * sign;
            if (size < EDGE || size < before * sign || size <= after * sign)
                continue;
            sum += slope_length(row, x, width, 1, sign) + slope_length(row, x, width, -1, sign);
            edges++;
        }
    }
    const double mean = edges > 0 ? (double)sum / (double)edges : MOST_WIDTH;
    return mean < 1 ? 1 : mean;
}

static double exposure_of(const uint8_t *luma, int64_t pixels)
{
    int64_t clipped = 0;
    for (int64_t i = 0; i < pixels; i++)
        clipped += luma[i] <= DARK || luma[i] >= BRIGHT;
    return pixels > 0 ? (double)clipped / (double)pixels : 0;
}

/* Adds the steps between neighbours to the phase of their border. */
static void add_steps(const uint8_t *luma, int64_t lines, int64_t length, int64_t line_stride,
                      int64_t stride, double sum[CELL], double count[CELL])
{
    for (int64_t l = 0; l < lines; l++)
        for (int64_t i = 1; i < length; i++) {
            const uint8_t *p = luma + l * line_stride + i * stride;
            sum[i % CELL] += abs(p[0] - p[-stride]);
            count[i % CELL]++;
        }
}

/* The steps at the strongest of the eight phases, relative to the steps at the others. */
static double phase_excess(const double sum[CELL], const double count[CELL])
{
    double best = 0, all = 0, total = 0;
    int at = 0;
    for (int k = 0; k < CELL; k++) {
        const double mean = count[k] > 0 ? sum[k] / count[k] : 0;
        if (mean > best)
            best = mean, at = k;
        all += sum[k];
        total += count[k];
    }
    const double others = total > count[at] ? (all - sum[at]) / (total - count[at]) : 0;
    /* a step of a hundredth of a level counts as none, so that flat frames are not divided by 0 */
    return best > 0.01 ? (best + 0.01) / (others + 0.01) - 1 : 0;
}

static double blockiness_of(const uint8_t *luma, int64_t width, int64_t height)
{
    double sum[CELL] = {0}, count[CELL] = {0}, down_sum[CELL] = {0}, down_count[CELL] = {0};
    add_steps(luma, height, width, width, 1, sum, count);
    add_steps(luma, width, height, 1, width, down_sum, down_count);
    return fmax(0, fmin(phase_excess(sum, count), phase_excess(down_sum, down_count)));
}

/* Standard deviation of noise in a block, from a filter that ignores planes and edges along x and y
 * (Immerkaer 1996). Negative: the block is clipped. */
static double block_noise(const uint8_t *p, int64_t stride)
{
    int64_t sum = 0, level = 0;
    for (int64_t y = 1; y < BLOCK - 1; y++)
        for (int64_t x = 1; x < BLOCK - 1; x++) {
            const uint8_t *q = p + y * stride + x;
            const int corners = q[-stride - 1] + q[-stride + 1] + q[stride - 1] + q[stride + 1],
                      sides = q[-stride] + q[-1] + q[1] + q[stride];
            sum += abs(corners - 2 * sides + 4 * q[0]);
            level += q[0];
        }
    const double n = (BLOCK - 2) * (BLOCK - 2), mean = (double)level / n;
    return mean <= DARK || mean >= BRIGHT ? -1 : sqrt(M_PI / 2) * (double)sum / (6 * n);
}

static double noise_of(const uint8_t *luma, int64_t width, int64_t height)
{
    const int64_t across = width / BLOCK, down = height / BLOCK;
    double *sigma = weft_calloc(across * down + 1, sizeof *sigma), noise = 0;
    int64_t n = 0;
    if (!sigma)
        return 0;
    for (int64_t y = 0; y < down; y++)
        for (int64_t x = 0; x < across; x++) {
            const double s = block_noise(luma + y * BLOCK * width + x * BLOCK, width);
            if (s >= 0)
                sigma[n++] = s;
        }
    if (n > 0)
        qsort(sigma, (size_t)n, sizeof *sigma, weft_compare_f64);
    const int64_t flattest = n < 10 ? n : n / 10;
    for (int64_t i = 0; i < flattest; i++)
        noise += sigma[i] / (double)flattest;
    weft_free(sigma);
    return noise;
}

double weft_technical_measure(weft_operator_measure measure, const uint8_t *luma, int64_t width,
                              int64_t height)
{
    switch (measure) {
    case WEFT_MEASURE_BLUR: return blur_of(luma, width, height);
    case WEFT_MEASURE_EXPOSURE: return exposure_of(luma, width * height);
    case WEFT_MEASURE_BLOCKINESS: return blockiness_of(luma, width, height);
    case WEFT_MEASURE_NOISE: return noise_of(luma, width, height);
    default: return 0;
    }
}

static double difference_of(const uint8_t *a, const uint8_t *b, int64_t pixels)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < pixels; i++)
        sum += abs(a[i] - b[i]);
    return pixels > 0 ? (double)sum / (double)pixels : 0;
}

static weft_status measure_difference(const uint8_t *rgb, int64_t count, int64_t pixels,
                                      double *score)
{
    uint8_t *luma;
    double sum = 0;
    WEFT_TRY(WEFT_NEW(luma, 2 * pixels, "two frames"));
    for (int64_t i = 0; i < count; i++) {
        weft_luma_of(rgb + i * pixels * 3, pixels, luma + i % 2 * pixels);
        sum += i ? difference_of(luma, luma + pixels, pixels) : 0;
    }
    weft_free(luma);
    *score = count > 1 ? sum / (double)(count - 1) : 0;
    return WEFT_OK;
}

weft_status weft_technical_quality(weft_operator_measure measure, const uint8_t *rgb, int64_t count,
                                   int64_t width, int64_t height, double *score)
{
    uint8_t *luma;
    double sum = 0;
    if (measure == WEFT_MEASURE_DIFFERENCE)
        return measure_difference(rgb, count, width * height, score);
    WEFT_TRY(WEFT_NEW(luma, width * height, "a frame"));
    for (int64_t i = 0; i < count; i++) {
        weft_luma_of(rgb + i * width * height * 3, width * height, luma);
        sum += weft_technical_measure(measure, luma, width, height);
    }
    weft_free(luma);
    *score = count > 0 ? sum / (double)count : 0;
    return WEFT_OK;
}
