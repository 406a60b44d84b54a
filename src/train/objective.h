/* What is trained, as a graph over the whole batch: inputs "batch.*", outputs "objective" (the
 * scalar loss) and figures beside it. */
#ifndef WEFT_TRAIN_OBJECTIVE_H
#define WEFT_TRAIN_OBJECTIVE_H

#include "train/run.h"

typedef struct weft_run_models {
    weft_wan_vae_config vae; /* trained, or (what: dit) the one that made the latents */
    weft_wan_dit_config dit;
    weft_bytes_config text;
} weft_run_models;

/* The models of a run. A DiT's VAE is read from run->vae_path; `path` names the config in messages.
 */
weft_status weft_run_models_read(const weft_run *run, const char *path, weft_run_models *models);

/* vae:  batch.video f32 (B,T,Y,X,3) in [-1,1], batch.key i64 (B): of the posterior's sample
 *       -> loss = l1 |x-y| + l2 (x-y)^2 + kl KL, "mse", "kl". Parameters under "vae".
 * dit:  batch.latents f32 (B,T',Y',X',Z) normalised, batch.tokens i32 (B,L), batch.key i64 (B): of
 * noise and time
 *       -> loss = flow matching. Parameters under "transformer" and "text_encoder". With
 * text_encoder.path batch.text f32 (B,L,D), its embeddings, in the place of the tokens. */
weft_value weft_objective_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size);

/* Video (B,T,Y,X,3) "batch.video" -> "latents" (B,T',Y',X',Z): the posterior's mean, not
 * normalised. */
void weft_encoder_build(weft_graph *g, const weft_wan_vae_config *vae, int64_t batch,
                        int64_t frames, int64_t height, int64_t width);

/* Tokens (B,L) "batch.tokens" -> "text" (B,L,D). */
void weft_text_build(weft_graph *g, const weft_bytes_config *text, int64_t batch);

#endif
