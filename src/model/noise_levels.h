/* Noise levels of a model's sampling steps: its scheduler's own, or the levels that the pipeline of
 * its family sets in the scheduler (weft_own_levels). Sources: the pipelines of diffusers named in
 * docs/reference/models.md. */
#ifndef WEFT_MODEL_NOISE_LEVELS_H
#define WEFT_MODEL_NOISE_LEVELS_H

#include "diffusion/scheduler.h"
#include "model/family.h"

/* Fills the given->steps steps of a video of `tokens` tokens and given->pixels. given->sigma or
 * given->time replaces the levels; given->mu is not read. */
weft_status weft_noise_levels_set(const weft_family *family, const weft_scheduler *s,
                                  int64_t tokens, const weft_timestep_request *given,
                                  weft_solver_step *step);

#endif
