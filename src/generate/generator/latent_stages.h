/* Sections of a video that are denoised in stages of growing latents (Helios, by Jin et al. 2024):
 *
 *     noise of the section --halved--> smallest latents --denoised--> doubled, with new noise
 *         --denoised--> ... --denoised--> latents of the video
 *
 * The latents of a stage are at the place of the section in x, and are not longer than the
 * section's. The history of a section has the size of the video in all stages. In stage k of n,
 * rows and columns of the video are divided by 2^(n - 1 - k). */
#ifndef WEFT_GENERATE_GENERATOR_LATENT_STAGES_H
#define WEFT_GENERATE_GENERATOR_LATENT_STAGES_H

#include "generate/generator/generator_parts.h"

/* Checks the options and the size of the video, and sets the stages and their steps. Does nothing
 * for pipelines with one size. The sections are known. */
weft_status weft_latent_stages_lay(weft_generator *p);
/* Computes the noise levels of all stages. */
weft_status weft_latent_stages_set_levels(weft_generator *p);
/* Sets the present stage. */
void weft_latent_stages_set(weft_generator *p, int64_t stage);
/* Rows and columns of the latents of a stage. */
void weft_latent_stages_area(const weft_generator *p, int64_t stage, int64_t area[2]);
/* ", 6x10 latents" for the denoiser of a stage with smaller latents, otherwise "". */
const char *weft_latent_stages_name(const weft_generator *p, const weft_generator_part *part,
                                    char text[64]);
/* Steps of a stage of section `section`. */
int64_t weft_latent_stages_steps(const weft_generator *p, int64_t section, int64_t stage);
/* The stage of a step of section `section`. */
int64_t weft_latent_stages_at(const weft_generator *p, int64_t section, int64_t step);
/* The steps of section `section`, all stages in sequence. */
const weft_solver_step *weft_latent_stages_levels(const weft_generator *p, int64_t section);
/* Makes the latents that the present stage begins with, from the noise of the section or from the
 * result of the stage before. */
void weft_latent_stages_begin(const weft_generator *p, float *x);

#endif
