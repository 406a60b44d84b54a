/* A noise level, as every process tells it to every sampler. */
#ifndef WEFT_DIFFUSION_LEVEL_H
#define WEFT_DIFFUSION_LEVEL_H

#include <stdbool.h>

/*   x        = alpha data + sigma noise
 *   answer   = model(in x, time)
 *   denoised = skip x + out answer
 *
 * `straight`: the answer is itself dx/dsigma (1) or its opposite (-1), along a line from data to
 * noise; 0: it is something else. */
typedef struct weft_level {
    double alpha, sigma;
    double in, time;
    double skip, out;
    int straight;
} weft_level;

/* A step of a sampler. `to` is mostly the next one's `from`; DDIM's schedulers round them apart.
 * `mid` lies between them in ln(alpha / sigma). `last`: the end is where data is expected. */
typedef struct weft_leg {
    weft_level from, mid, to;
    bool last;
} weft_leg;

#endif
