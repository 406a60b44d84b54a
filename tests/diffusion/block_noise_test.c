/* Sizes of latents, compared with lists by hand, and the covariance of noise between sizes. */
#include "diffusion/block_noise.h"

#include "base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Two frames of 2x4 cells with two channels. */
enum { FRAMES = 2, ROWS = 2, COLUMNS = 4, CHANNELS = 2 };
static const weft_latent_size wide = {FRAMES, ROWS, COLUMNS, CHANNELS};

Test(block_noise, halves)
{
    float x[FRAMES * ROWS * COLUMNS * CHANNELS];
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++)
        x[i] = (float)i;
    /* the first block has cells 0, 2, 8 and 10 of channel 0 */
    const float expected[] = {10, 12, 18, 20, 42, 44, 50, 52};
    weft_latents_halve(&wide, x);
    cr_expect_eq(memcmp(x, expected, sizeof expected), 0);
}

Test(block_noise, doubles)
{
    const float from[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float expected[] = {1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4,
                              5, 6, 5, 6, 7, 8, 7, 8, 5, 6, 5, 6, 7, 8, 7, 8};
    const weft_latent_size small = {FRAMES, 1, 2, CHANNELS};
    float x[FRAMES * ROWS * COLUMNS * CHANNELS];
    memcpy(x, from, sizeof from);
    weft_latents_double(&small, x);
    cr_expect_eq(memcmp(x, expected, sizeof expected), 0);
}

Test(block_noise, factor)
{
    for (int k = 0; k < 2; k++) {
        const double gamma = k ? 0.1 : 1. / 3;
        double l[4][4];
        weft_block_noise_factor(gamma, l);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                double sum = 0;
                for (int n = 0; n < 4; n++)
                    sum += l[i][n] * l[j][n];
                cr_expect_float_eq(sum, i == j ? 1 + 1e-8 : -gamma, 1e-14);
                cr_expect(j <= i || l[i][j] == 0);
            }
    }
}

static float normal(const void *user, int64_t i)
{
    return weft_random_normal(*(const uint64_t *)user, WEFT_RNG_TEST, (uint64_t)i);
}

/* Covariance of the cells of a block and of equal cells of other channels. */
Test(block_noise, covariance)
{
    enum { SIDE = 64, COUNT = 4 * SIDE * SIDE * 2 };
    static float x[COUNT];
    const weft_latent_size size = {4, SIDE, SIDE, 2};
    const uint64_t seed = 3;
    double l[4][4], sum[4][4] = {{0}}, across = 0;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    weft_block_noise_factor(0.25, l);
    weft_block_noise_add(&size, 0.5, 2, (const double(*)[4])l, normal, &seed, x);
    for (int b = 0; b < COUNT / 8; b++) {
        const int t = b / (SIDE * SIDE / 4), y = b / (SIDE / 2) % (SIDE / 2), at = b % (SIDE / 2);
        double own[4];
        for (int k = 0; k < 4; k++)
            own[k] = (double)x[((t * SIDE + 2 * y + k / 2) * SIDE + 2 * at + k % 2) * 2] - 0.5;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sum[i][j] += own[i] * own[j] / 4 / (COUNT / 8);
        across += own[0] * ((double)x[((t * SIDE + 2 * y) * SIDE + 2 * at) * 2 + 1] - 0.5) / 4 /
                  (COUNT / 8);
    }
    /* 4096 blocks: deviations of about 1/64 */
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            cr_expect_float_eq(sum[i][j], i == j ? 1 : -0.25, 0.08);
    cr_expect_float_eq(across, 0, 0.08);
}
