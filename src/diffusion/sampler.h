/* Samplers: from noise to data along the flow, with a model as a callback. */
#ifndef WEFT_DIFFUSION_SAMPLER_H
#define WEFT_DIFFUSION_SAMPLER_H

#include "base/config.h"

typedef enum weft_sampler_kind { WEFT_SAMPLER_EULER, WEFT_SAMPLER_HEUN } weft_sampler_kind;
extern const char *const weft_sampler_names[]; /* "euler", "heun", NULL */

typedef struct weft_sampler_callbacks {
    /* velocity[count] of the model (guidance already applied) at x[count] and sigma. */
    weft_status_code (*velocity)(void *user, const float *x, double sigma, float *velocity);
    /* After each step, `done` of `steps`; may be NULL. Anything but WEFT_OK ends the sampling. */
    weft_status_code (*progress)(void *user, int64_t done, int64_t steps);
    void *user;
} weft_sampler_callbacks;

/* x[count] holds noise and ends as the sample. sigma[steps + 1] from weft_flow_schedule. `work` has
 * weft_sampler_work(kind, count) floats. Deterministic: same inputs, same bits. Euler calls the
 * model once a step; Heun twice, but once in the last step, where sigma reaches 0 (Karras et al.
 * 2022, Alg. 1). */
weft_status weft_sampler_run(weft_sampler_kind kind, const double *sigma, int64_t steps, float *x,
                             int64_t count, float *work, const weft_sampler_callbacks *callbacks);
int64_t weft_sampler_work(weft_sampler_kind kind, int64_t count);

/* guided = unconditional + scale (conditional - unconditional), in place of `conditional`. */
void weft_guidance(float *conditional, const float *unconditional, double scale, int64_t count);

#endif
