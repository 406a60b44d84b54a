#ifndef WEFT_DIFFUSION_SAMPLER_MULTISTEP_H
#define WEFT_DIFFUSION_SAMPLER_MULTISTEP_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_dpmpp, weft_sampler_cogvideox_dpm;

/* Weights of a step of DPM-Solver: of x, of fresh noise, and of the newest prediction and its first
 * and second differences over lambda, divided by h. */
typedef struct weft_dpm_weights {
    double x, noise, d[3];
} weft_dpm_weights;
/* Returns the weights of a step from a to b, h = lambda_b - lambda_a. Functions of exp(h) have
 * forms that are exact for infinite h. */
weft_dpm_weights weft_dpm_weigh(const weft_solver *o, const weft_noise_level *a,
                                const weft_noise_level *b, int64_t order);

#endif
