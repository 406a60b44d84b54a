/* A noise level, the common interface of all noise processes and samplers. */
#ifndef WEFT_DIFFUSION_LEVEL_H
#define WEFT_DIFFUSION_LEVEL_H

#include <stdbool.h>

/*   x        = alpha data + sigma noise
 *   prediction = model(in x, time)
 *   denoised   = skip x + out prediction
 *
 * `straight`: 1 if the prediction is dx/dsigma along a line from data to noise, -1 if it is the
 * negative of this, else 0. */
typedef struct weft_noise_level {
    double alpha, sigma;
    double in, time;
    double skip, out;
    int straight;
} weft_noise_level;

/* A solver step. `to` usually equals `from` of the next step; DDIM's schedulers round them
 * differently. `mid` is between both in ln(alpha / sigma). `last`: the step ends at data. */
typedef struct weft_solver_step {
    weft_noise_level from, mid, to;
    bool last;
    /* PNDM rounds the levels inside a step to times of its table: the end of the first jump, the
     * middle of a Runge-Kutta step, and the start of a repeated step. in 0: no such level */
    weft_noise_level jump, half, again;
} weft_solver_step;

#endif
