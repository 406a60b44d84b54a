/* Latents of a second data set: its clip with the key of a clip of the first one. */
#ifndef WEFT_TRAIN_STEP_PAIRED_LATENTS_H
#define WEFT_TRAIN_STEP_PAIRED_LATENTS_H

#include "data/dataset.h"

/* f32 (T',Y',X',Z): the posterior's mean, not normalised. */
#define WEFT_LATENT_PART "latent.npy"
/* f32 (tokens,width) of the image encoder, in a cache of first frames that has one */
#define WEFT_IMAGE_PART "image.npy"

typedef struct weft_paired_latents weft_paired_latents;

/* Opens a latent cache. Every sample of `first` must be in the cache; otherwise the error names the
 * first one that is missing. `key` and `source` (borrowed): the key of the config that names the
 * second set, and its path. */
weft_status weft_paired_latents_open(const char *folder, const char *key, const char *source,
                                     const weft_dataset *first, weft_paired_latents **latents);
void weft_paired_latents_close(weft_paired_latents *latents); /* accepts NULL */
/* Reads the f32 part `part` of sample `id`, which must have `floats` elements, into `to`. */
weft_status weft_paired_latents_read(weft_paired_latents *latents, const char *part, uint64_t id,
                                     int64_t floats, float *to);

#endif
