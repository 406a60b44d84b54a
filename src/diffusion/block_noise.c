#include "diffusion/block_noise.h"

#include <math.h>

/* Element of the block's cell `at` (0 to 3) at row y, column x and channel 0 of frame t; y and x
 * count blocks. */
static int64_t place(const weft_latent_size *s, int64_t t, int64_t y, int64_t x, int at)
{
    return ((t * s->rows + 2 * y + at / 2) * s->columns + 2 * x + at % 2) * s->channels;
}

/* Results are at or before their inputs, so elements change in order. */
void weft_latents_halve(const weft_latent_size *from, float *x)
{
    const int64_t rows = from->rows / 2, columns = from->columns / 2;
    float *to = x;
    for (int64_t i = 0; i < from->frames * rows * columns; i++) {
        const int64_t t = i / (rows * columns), y = i / columns % rows, at = i % columns;
        for (int64_t c = 0; c < from->channels; c++) {
            float sum = 0;
            for (int k = 0; k < 4; k++)
                sum += x[place(from, t, y, at, k) + c];
            *to++ = sum / 2;
        }
    }
}

/* Results are at or after their inputs, so elements change from the last to the first. */
void weft_latents_double(const weft_latent_size *from, float *x)
{
    const int64_t rows = 2 * from->rows, columns = 2 * from->columns, channels = from->channels;
    for (int64_t i = from->frames * rows * columns - 1; i >= 0; i--) {
        const int64_t t = i / (rows * columns), y = i / columns % rows / 2, at = i % columns / 2;
        const float *source = x + ((t * from->rows + y) * from->columns + at) * channels;
        for (int64_t c = channels - 1; c >= 0; c--)
            x[i * channels + c] = source[c];
    }
}

void weft_block_noise_factor(double gamma, double factor[4][4])
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            double rest = i == j ? 1 + 1e-8 : -gamma;
            for (int k = 0; k < j; k++)
                rest -= factor[i][k] * factor[j][k];
            factor[i][j] = j > i ? 0 : i == j ? sqrt(fmax(rest, 0)) : rest / factor[j][j];
        }
}

void weft_block_noise_add(const weft_latent_size *s, double keep, double noise,
                          const double factor[4][4], float (*normal)(const void *user, int64_t i),
                          const void *user, float *x)
{
    const int64_t rows = s->rows / 2, columns = s->columns / 2;
    for (int64_t i = 0; i < s->frames * rows * columns * s->channels; i++) {
        const int64_t c = i % s->channels, block = i / s->channels;
        const int64_t t = block / (rows * columns), y = block / columns % rows,
                      at = block % columns;
        float own[4];
        for (int k = 0; k < 4; k++)
            own[k] = normal(user, place(s, t, y, at, k) + c);
        for (int k = 0; k < 4; k++) {
            double sum = 0;
            for (int j = 0; j <= k; j++)
                sum += factor[k][j] * (double)own[j];
            float *to = &x[place(s, t, y, at, k) + c];
            *to = (float)(keep * (double)*to + noise * sum);
        }
    }
}
