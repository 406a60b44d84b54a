/* Latents of a data set, encoded once: WebDataset shards in the run's folder that the loader reads.
 */
#ifndef WEFT_TRAIN_LATENTS_H
#define WEFT_TRAIN_LATENTS_H

#include "train/step.h"

#define WEFT_LATENT_PART "latent.npy" /* f32 (T',Y',X',Z): the posterior's mean, not normalised */
#define WEFT_TEXT_PART                                                                             \
    "text.npy" /* f32 (L,D): the caption's embedding, where the text encoder is not trained */

/* Makes sure that <run->out>/latents/<key>/ holds the latents of every sample for this stage's
 * sizes (and embeddings, with a text encoder that stays), and writes that folder into `folder`. All
 * ranks encode; rank 0 writes. */
weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_stage *stage, const weft_place_of_run *place,
                                char folder[512]);
/* The embedding of the empty caption from that folder: f32 (L,D), owned by the caller. */
weft_status weft_latents_no_text(const char *folder, const weft_text_shape *text,
                                 float **embedding);

/* Mean and standard deviation of each latent channel over up to `samples` samples of the training
 * set. */
weft_status weft_latents_measure(const weft_run *run, const weft_model *autoencoder,
                                 const weft_stage *stage, const weft_place_of_run *place,
                                 weft_store *store, int64_t samples, double mean[WEFT_MAX_CHANNELS],
                                 double deviation[WEFT_MAX_CHANNELS]);

#endif
