/* The objective of a denoiser over packed rows of tokens (data/loader_packing.h), and its inputs.
 *
 *   R rows of N tokens with up to K samples; pt, py, px the patch, C latent channels, L text tokens
 *
 *   batch.latents, batch.noise   f32 (R,N pt,py,px,C)  the patches of the samples, then zeros
 *   batch.key                    i64 (R,K)    key of noise and time of each sample
 *   batch.owner                  f32 (R,N,K)  1: the sample of a token
 *   batch.weight                 f32 (R,N)    weight of a token in the loss; 0: padding
 *   batch.segments               i32 (R,K,4)  tokens of each sample
 *   batch.text_segments          i32 (R,K,4)  and their text tokens
 *   batch.frame, .line, .column  i32 (R,N)    place of a token in its sample
 *   captions                     of R K samples (prompt/text_conditioning.h)
 *
 * Noise, time and places of a sample are as in a batch of its bucket. The loss is the mean over the
 * elements of all samples of the batch. */
#ifndef WEFT_TRAIN_GRAPH_PACKED_ROWS_H
#define WEFT_TRAIN_GRAPH_PACKED_ROWS_H

#include "train/graph/step_inputs.h"

/* Rejects models and buckets that cannot be packed. */
weft_status weft_packed_rows_check(const weft_run *run, const weft_run_models *models,
                                   const char *path);
/* Adds the loss of a batch of `rows` rows. */
weft_value weft_packed_rows_loss(weft_graph *g, const weft_run *run, const weft_run_models *models);
/* Fills the inputs of this rank's rows. The arguments of weft_inputs_fill. */
weft_status weft_packed_rows_fill(const weft_inputs *inputs, int64_t step, const weft_batch *batch,
                                  weft_input_lookup *find, void *user);

#endif
