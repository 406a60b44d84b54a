/* The steps of a section, or of a video without sections: their noise levels, and the denoiser that
 * evaluates each. Steps are counted from the first one of the section, over all its stages
 * (latent_stages.h). For generator_denoise.c. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_STEPS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_STEPS_H

#include "generate/generator/generator.h"

int64_t weft_steps_of_section(const weft_generator *p);
const weft_solver_step *weft_levels_of_section(const weft_generator *p);
/* Stages of a section, 1 in pipelines with one size of latents, and the steps of a stage. */
int64_t weft_steps_stages(const weft_generator *p);
int64_t weft_steps_of_stage(const weft_generator *p, int64_t stage);
/* Whether guidance sets the prediction of a step to 0, without an evaluation of the model. */
bool weft_steps_predict_zero(const weft_generator *p, int64_t step);
weft_generator_part *weft_steps_denoiser(weft_generator *p, const weft_noise_level *level,
                                         int64_t step);
/* Steps before `until` that a denoiser evaluates. */
int64_t weft_steps_own(weft_generator *p, const weft_generator_part *part, int64_t until);
/* Draws of noise reserved for a section, or for a block of frames with levels of its own. */
enum { WEFT_DRAWS_OF_SECTION = 1 << 16 };
/* Index of the first random value of a draw in the sampler's stream of a video, in the current
 * section and stage. No two draws share values, also if the latents change their size. */
uint64_t weft_steps_noise_at(const weft_generator *p, int64_t draw);
/* Noise for trajectories of one number. */
weft_status_code weft_steps_no_noise(void *user, int64_t draw, float *noise);
/* Counts the evaluations of each denoiser (in the order of weft_generator_denoisers) in a
 * trajectory, per window. Runs the sampler on a scalar, without the models. */
weft_status weft_generator_answers(weft_generator *p, int64_t count[WEFT_GENERATOR_DENOISERS]);
/* Sets the section being denoised after `done` steps of a batch. */
void weft_generator_find_section(weft_generator *p, int64_t done);

#endif
