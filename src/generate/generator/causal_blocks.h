/* Videos of causal models, whose blocks of frames are denoised in sequence. A block sees earlier
 * blocks through a cache of their keys and values (model/frame_cache.h). A call of the model with
 * the finished block, at timestep 0 or of the context, fills the cache. Without the cache, each
 * call has all frames.
 *
 * A video that begins with given frames may be one block after them (weft_generator_shape.kept),
 * if given frames do not see the other frames. Before the first step, a call with the given frames
 * fills the cache. */
#ifndef WEFT_GENERATE_GENERATOR_CAUSAL_BLOCKS_H
#define WEFT_GENERATE_GENERATOR_CAUSAL_BLOCKS_H

#include "generate/generator/generator.h"
#include "generate/generator/generator_rows.h"

/* Lays out the blocks of a model with weft_grid.caches, and checks the options. */
weft_status weft_causal_blocks_lay(weft_generator *p);
/* Lays out a video whose first frames are given, with a cache. Without effect if the model has no
 * such cache, or an option needs all frames in each step. The latents are the same. */
weft_status weft_causal_blocks_keep_given(weft_generator *p);
/* Checks the layout of the ranks. */
weft_status weft_causal_blocks_check_ranks(const weft_generator *p);
/* Clears the cache before a video. Masked keys and values are multiplied by 0, so values of an
 * earlier video that are not finite would reach this one. */
weft_status weft_causal_blocks_forget(const weft_generator *p);
/* Latent frames of a call of a causal model. */
int64_t weft_causal_blocks_frames(const weft_generator *p);
/* Latent frames of a call with the cache: the block, or given frames that fill the cache. */
int64_t weft_causal_blocks_frames_of(const weft_generator *p, const weft_denoiser_query *query);
/* First float of the current block in the latents of a call. */
int64_t weft_causal_blocks_begin(const weft_generator *p);
/* Sets the places of the tokens of a call with the cache, which are the same for all rows. A rank
 * without rows needs the places, too: it computes its part of the position tables. */
void weft_causal_blocks_fill_places(const weft_generator *p, const weft_denoiser_query *query);
/* Sets the visible keys of the current block in row r; x: its latents. */
void weft_causal_blocks_fill_row(const weft_generator *p, const weft_denoiser_query *query,
                                 int64_t r, const float *x);

#endif
