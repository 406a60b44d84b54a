/* Samplers: from noise to data down a list of noise levels, with a model as a callback. A sampler
 * is a row; it knows slopes and noise levels, and neither process nor model. */
#ifndef WEFT_DIFFUSION_SAMPLER_H
#define WEFT_DIFFUSION_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_sampler_callbacks {
    /* slope[count] = dx/dsigma (guidance already applied) at x[count] and sigma, in step `step`. */
    weft_status_code (*slope)(void *user, int64_t step, const float *x, double sigma, float *slope);
    /* After each step, `done` of `steps`; may be NULL. Anything but WEFT_OK ends the sampling. */
    weft_status_code (*progress)(void *user, int64_t done, int64_t steps);
    void *user;
} weft_sampler_callbacks;

/* The step that runs. */
typedef struct weft_sampling {
    const double *sigma; /* [steps + 1] */
    int64_t step, steps;
    float *x; /* [count] */
    int64_t count;
    float *history; /* [row.history][count]: kept from step to step, as the row has left it */
    float *scratch; /* [row.scratch][count] */
    const weft_sampler_callbacks *callbacks;
} weft_sampling;

typedef struct weft_sampler {
    const char *name;
    const char *help;
    int history, scratch; /* arrays of count floats */
    weft_status_code (*step)(weft_sampling *s);
} weft_sampler;

extern const weft_sampler weft_sampler_euler, weft_sampler_heun;
extern const weft_sampler *const weft_samplers[];        /* NULL-terminated; the first by default */
const weft_sampler *weft_sampler_find(const char *name); /* NULL: none */

/* x[count] holds noise and ends as the sample. sigma[steps + 1] falls to 0. `work` has
 * weft_sampler_work(sampler, count) floats. Deterministic: same inputs, same bits. Euler calls the
 * model once a step; Heun twice, but once in the last step, where sigma reaches 0 (Karras et al.
 * 2022, Alg. 1). */
weft_status weft_sampler_run(const weft_sampler *sampler, const double *sigma, int64_t steps,
                             float *x, int64_t count, float *work,
                             const weft_sampler_callbacks *callbacks);
int64_t weft_sampler_work(const weft_sampler *sampler, int64_t count);

#endif
