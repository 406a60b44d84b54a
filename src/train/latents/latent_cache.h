/* Latents of a data set, encoded once: WebDataset shards that the loader reads.
 *
 *     <latents>/<key>/train-0000-000000.tar   of rank 0, with its index: latents, captions
 *                     train-0001-000000.tar   of rank 1, ...
 *                     no_text.npy             the empty caption's embedding, where there is one
 *                     account.json, complete  what was encoded and what not, and how many
 *                     lock                    held by the run that encodes
 *
 * <key> is a hash of what made them: the encoders' files, the shards' contents, split, rate and the
 * clips' sizes. So the folder may be shared by any runs (data.latents). A sample that is in no
 * whole shard is encoded, by whichever run comes next: after a kill as after a loss. */
#ifndef WEFT_TRAIN_LATENTS_H
#define WEFT_TRAIN_LATENTS_H

#include "train/step.h"

/* f32 (T',Y',X',Z): the posterior's mean, not normalised. */
#define WEFT_LATENT_PART "latent.npy"
/* f32: what the denoiser is told of the caption, where no text encoder is trained: (L,D) of one
 * embedding, else packed (prompt/captions.h). */
#define WEFT_TEXT_PART "text.npy"

/* Makes sure that the latents of every sample are there for this stage's sizes (and embeddings,
 * with a text encoder that stays), and writes their folder into `folder`. Each rank encodes and
 * writes its share; a shard that lost bytes or was changed is told and its samples are encoded
 * again. WEFT_E_CANCELLED on all ranks alike where one was interrupted; what was encoded stays. */
weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_stage *stage, const weft_place_of_run *place,
                                char folder[512]);
/* What is told of the empty caption, from that folder: f32 (count), owned by the caller. */
weft_status weft_latents_no_text(const char *folder, int64_t count, float **told);

/* The graph of text encoder r over `batch` captions, matrices in the type of their files. NULL: no
 * memory. */
weft_graph *weft_text_graph(const weft_run *run, const weft_captions *captions, int r,
                            int64_t batch);
/* Weights of an encoder whose graph is `g`, from its files; the store has its parameters. */
weft_status weft_encoder_load(weft_store *store, const char *scope, const weft_family *family,
                              const weft_graph *g, const char *path);

/* Mean and standard deviation of each latent channel over up to `samples` samples of the training
 * set. WEFT_E_CANCELLED as above. */
weft_status weft_latents_measure(const weft_run *run, const weft_model *autoencoder,
                                 const weft_stage *stage, const weft_place_of_run *place,
                                 weft_store *store, int64_t samples, double mean[WEFT_MAX_CHANNELS],
                                 double deviation[WEFT_MAX_CHANNELS]);

/* Bytes that encoding for a stage reserves on this rank, beside what the store has: programs, clips
 * that are decoded ahead, and the weights of encoders that are not trained. */
weft_status weft_latents_bytes(const weft_run *run, const weft_run_models *models,
                               const weft_stage *stage, const weft_place_of_run *place,
                               int64_t *bytes);

#endif
