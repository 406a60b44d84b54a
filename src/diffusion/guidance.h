/* Guidance: how what a model says with a prompt and without one become one answer. */
#ifndef WEFT_DIFFUSION_GUIDANCE_H
#define WEFT_DIFFUSION_GUIDANCE_H

#include <stdint.h>

typedef struct weft_guidance {
    const char *name;
    int rows; /* of the model's batch for a prompt: 1, or 2 with the empty prompt's beside it */
    /* In place of `conditional`; NULL: it stays. */
    void (*combine)(float *conditional, const float *unconditional, double scale, int64_t count);
} weft_guidance;

/* none; cfg: unconditional + scale (conditional - unconditional). */
extern const weft_guidance weft_guidance_none, weft_guidance_cfg;
/* What a scale asks for: 1 changes nothing and saves half the work. */
const weft_guidance *weft_guidance_of(double scale);

#endif
