/* Inputs of a denoiser program, except texts: latents, sound, times, images, history and sizes. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_ROWS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_ROWS_H

#include "generate/generator/generator_parts.h"
#include "transform/numeric/cfg_branches.h"

/* One evaluation of a denoiser program; the rows of its batch differ in their prompts only. */
typedef struct weft_denoiser_query {
    weft_program *program;
    const weft_noise_level *level;
    int64_t frame;      /* first latent frame of the window */
    const float *times; /* timestep of each latent frame; NULL: of `level` */
} weft_denoiser_query;

/* Inputs whose rows do not depend on the prompt: the rows of both CFG branches are equal. */
extern const weft_cfg_inputs weft_generator_equal_inputs;

/* Sets row r of each input that the program has. `x`: sampled values of the row's item
 * (weft_generator_shape.sampled_floats). `prompt`: false for the row of a negative prompt. */
void weft_generator_fill_row(const weft_generator *generator, const weft_denoiser_query *query,
                             int64_t r, bool prompt, const float *x);
/* Checks that the rows of weft_generator_equal_inputs are equal in both halves of the batch. */
weft_status_code weft_generator_check_rows(const weft_denoiser_query *query);

/* Sets the inputs of row r that weaken the model in a branch of guidance. */
void weft_generator_weaken_row(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                               int64_t branch);

#endif
