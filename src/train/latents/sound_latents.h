/* Encodes the sound of clips for the latent cache. */
#ifndef WEFT_TRAIN_LATENTS_SOUND_LATENTS_H
#define WEFT_TRAIN_LATENTS_SOUND_LATENTS_H

#include "data/dataset.h"
#include "train/graph/objective.h"

/* Zero-initialised: no sound, so all functions do nothing. */
typedef struct weft_sound_latents {
    const weft_run *run;
    const weft_run_models *models;
    const weft_train_stage *stage;
    weft_sound_encoder **encoder; /* [buckets]; NULL: images, which have no sound */
    int64_t *samples;             /* [buckets] */
    int buckets;
    float *sound; /* [channels][most samples] */
    float *part;  /* weft_run_sound_floats of the last clip */
    int64_t floats;
} weft_sound_latents;

/* Compiles the encoders of a training stage's clips. Reserves no memory. */
weft_status weft_sound_latents_plan(const weft_run *run, const weft_run_models *models,
                                    const weft_train_stage *stage, const weft_backend *backend,
                                    weft_sound_latents *latents);
/* Bytes that weft_sound_latents_bind reserves. */
int64_t weft_sound_latents_bytes(const weft_sound_latents *latents);
/* Reserves memory, and loads the weights into `store`. */
weft_status weft_sound_latents_bind(weft_sound_latents *latents, weft_store *store);
/* Encodes the sound of a clip of a bucket into latents->part. A video whose sound cannot be decoded
 * counts as one without sound, with a warning. */
weft_status weft_sound_latents_encode(weft_sound_latents *latents, const weft_dataset *dataset,
                                      const weft_sample *sample, int bucket);
void weft_sound_latents_free(weft_sound_latents *latents);

#endif
