/* Latents between two stages of sizes (Helios, PyramidFlow): halved and doubled, and noise whose
 * four values in a block of 2x2 cells are correlated. Doubled latents have blocks of equal cells.
 * Their sum with the noise has independent cells, as noise of the next stage has.
 *
 * Latents are (frames, rows, columns, channels), and change in place. */
#ifndef WEFT_DIFFUSION_BLOCK_NOISE_H
#define WEFT_DIFFUSION_BLOCK_NOISE_H

#include <stdint.h>

typedef struct weft_latent_size {
    int64_t frames, rows, columns, channels;
} weft_latent_size;

/* Halves rows and columns, which are even: a cell is twice the mean of its block, so that
 * independent noise keeps its deviation. */
void weft_latents_halve(const weft_latent_size *from, float *x);
/* Doubles rows and columns: each cell fills a block. `x` has space for the result. */
void weft_latents_double(const weft_latent_size *from, float *x);
/* Lower triangle whose product with its transpose is the covariance of a block:
 * (1 + gamma) I - gamma, plus 1e-8 on the diagonal. gamma is above 0 and at most 1/3. */
void weft_block_noise_factor(double gamma, double factor[4][4]);
/* x = keep x + noise n, where n has the covariance of `factor`. normal(user, i) returns the
 * independent normal number of element i of x. */
void weft_block_noise_add(const weft_latent_size *size, double keep, double noise,
                          const double factor[4][4], float (*normal)(const void *user, int64_t i),
                          const void *user, float *x);

#endif
