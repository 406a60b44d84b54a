/* A trajectory in stages (Helios). Each stage denoises latents of another size, from its own first
 * level to 0. Only in the last stage do the model's times end near 0. The size doubles between
 * stages. */
#ifndef WEFT_DIFFUSION_SCHEDULER_STAGES_H
#define WEFT_DIFFUSION_SCHEDULER_STAGES_H

#include "diffusion/scheduler.h"

typedef struct weft_stage {
    /* Factors of the latents that the stage begins with, and of their noise (block_noise.h). The
     * noise of pixels of a block cancels the correlation of the pixels of doubled latents. */
    double keep, noise;
    double high, low; /* times of the model in the first and in the last of all possible steps */
} weft_stage;

weft_status weft_check_stages(const weft_scheduler *s, const char *where);
/* Returns stage `at` of s->stages. */
weft_stage weft_scheduler_stage(const weft_scheduler *s, int64_t at);
/* Fills the steps of stage request->stage. */
weft_status weft_lay_stage(const weft_scheduler *s, const weft_timestep_request *request,
                           weft_solver_step *step);

#endif
