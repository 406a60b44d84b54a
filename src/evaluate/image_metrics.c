#include "evaluate/image_metrics.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

double weft_psnr(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height, int64_t width)
{
    const int64_t count = frames * height * width * 3;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)count / sum) : INFINITY;
}

void weft_psnr_add(weft_psnr_mean *m, double psnr)
{
    if (isinf(psnr)) {
        m->identical++;
        return;
    }
    m->sum += psnr;
    m->differing++;
}

double weft_psnr_mean_of(const weft_psnr_mean *m)
{
    return m->differing ? m->sum / (double)m->differing : INFINITY;
}

json_t *weft_psnr_json(double psnr)
{
    return weft_json_finite(psnr);
}

const char *weft_psnr_text(const json_t *psnr, char text[32])
{
    if (json_is_number(psnr))
        snprintf(text, 32, "%.2f", json_number_value(psnr));
    else
        snprintf(text, 32, "inf");
    return text;
}

enum { RADIUS = 5, WINDOW = 2 * RADIUS + 1 };

static void luma_of(const uint8_t *rgb, int64_t count, float *luma)
{
    for (int64_t i = 0; i < count; i++)
        luma[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}

/* Computes five weighted means together: of x, y, x^2, y^2, xy. Filters along rows first, into
 * `rows` (5, height, width-10). */
static double frame_ssim(const float *x, const float *y, int64_t height, int64_t width,
                         const float weight[WINDOW], float *rows)
{
    const int64_t inner_w = width - 2 * RADIUS, inner_h = height - 2 * RADIUS,
                  plane = height * inner_w;
    for (int64_t r = 0; r < height; r++)
        for (int64_t c = 0; c < inner_w; c++) {
            float s[5] = {0};
            for (int k = 0; k < WINDOW; k++) {
                const float a = x[r * width + c + k], b = y[r * width + c + k], w = weight[k];
                s[0] += w * a;
                s[1] += w * b;
                s[2] += w * a * a;
                s[3] += w * b * b;
                s[4] += w * a * b;
            }
            for (int i = 0; i < 5; i++)
                rows[i * plane + r * inner_w + c] = s[i];
        }
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double total = 0;
    for (int64_t r = 0; r < inner_h; r++)
        for (int64_t c = 0; c < inner_w; c++) {
            double m[5] = {0};
            for (int i = 0; i < 5; i++)
                for (int k = 0; k < WINDOW; k++)
                    m[i] += (double)(weight[k] * rows[i * plane + (r + k) * inner_w + c]);
            const double vx = m[2] - m[0] * m[0], vy = m[3] - m[1] * m[1], cov = m[4] - m[0] * m[1];
            total += (2 * m[0] * m[1] + c1) * (2 * cov + c2) /
                     ((m[0] * m[0] + m[1] * m[1] + c1) * (vx + vy + c2));
        }
    return total / (double)(inner_w * inner_h);
}

weft_status weft_ssim(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height,
                      int64_t width, double *ssim)
{
    if (height < WINDOW || width < WINDOW)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_NOWHERE,
                          "SSIM needs frames of at least %dx%d pixels, not %" PRId64 "x%" PRId64,
                          WINDOW, WINDOW, width, height);
    const int64_t pixels = height * width;
    float *work;
    WEFT_TRY(WEFT_NEW(work, 7 * pixels, "SSIM of %" PRId64 " pixels", pixels));
    float weight[WINDOW], norm = 0;
    for (int k = 0; k < WINDOW; k++) {
        weight[k] = expf(-(float)((k - RADIUS) * (k - RADIUS)) / (2 * 1.5f * 1.5f));
        norm += weight[k];
    }
    for (int k = 0; k < WINDOW; k++)
        weight[k] /= norm;
    double total = 0;
    for (int64_t f = 0; f < frames; f++) {
        luma_of(a + f * pixels * 3, pixels, work);
        luma_of(b + f * pixels * 3, pixels, work + pixels);
        total += frame_ssim(work, work + pixels, height, width, weight, work + 2 * pixels);
    }
    weft_free(work);
    *ssim = total / (double)frames;
    return WEFT_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void weft_box_average(const uint8_t *from, int64_t frames, int64_t height, int64_t width,
                      int64_t bt, int64_t by, int64_t bx, uint8_t *to)
{
    for (int64_t t0 = 0; t0 < frames; t0 += bt)
        for (int64_t y0 = 0; y0 < height; y0 += by)
            for (int64_t x0 = 0; x0 < width; x0 += bx)
                for (int c = 0; c < 3; c++) {
                    const int64_t t1 = smaller(t0 + bt, frames), y1 = smaller(y0 + by, height),
                                  x1 = smaller(x0 + bx, width);
                    int64_t sum = 0;
                    const int64_t count = (t1 - t0) * (y1 - y0) * (x1 - x0);
                    for (int64_t t = t0; t < t1; t++)
                        for (int64_t y = y0; y < y1; y++)
                            for (int64_t x = x0; x < x1; x++)
                                sum += from[((t * height + y) * width + x) * 3 + c];
                    for (int64_t t = t0; t < t1; t++)
                        for (int64_t y = y0; y < y1; y++)
                            for (int64_t x = x0; x < x1; x++)
                                to[((t * height + y) * width + x) * 3 + c] =
                                    (uint8_t)((sum + count / 2) / count);
                }
}
