#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_GRAPHS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_GRAPHS_H

#include "generate/generator/generator_parts.h"

/* Calls `with` for every program of a generation except the programs of feature caches: text
 * encoders, denoisers and decoder (latent/vae_chunks.h), in the same order on all ranks. */
weft_status weft_generator_programs(weft_generator *generator, weft_vae_program_fn *with,
                                    void *user);

/* Opens the layout and the parts: builds and shards the graphs of the text encoders and the
 * experts, and compiles their programs. */
weft_status weft_generator_build(weft_generator *p);
/* Whether a single rank has both CFG branches of a denoiser with `rows` rows. Their inputs then
 * differ in the texts only (weft_generator_equal_inputs). */
bool weft_generator_has_equal_branches(const weft_generator *p, int64_t rows);
void weft_generator_parts_close(weft_generator_parts *parts);
void weft_generator_layout_close(weft_generator_layout *layout);
extern const weft_port weft_generator_numbers[WEFT_GENERATOR_NUMBERS];
double weft_generator_number(const weft_generator *p, weft_port port);
/* Timesteps per sample: one. If some frames are clean: one for every token of a window, or (Cosmos
 * 2) for every frame. */
int64_t weft_generator_times(const weft_generator *p);

/* Sets the shapes of the steps with reasoning_frames, or of the other steps. */
void weft_generator_set_reasoning(weft_generator *p, bool reasons);

#endif
