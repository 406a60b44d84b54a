/* Latents of a second data set: its clip with the key of a clip of the first one. */
#ifndef WEFT_TRAIN_STEP_PAIRED_LATENTS_H
#define WEFT_TRAIN_STEP_PAIRED_LATENTS_H

#include "data/dataset.h"

typedef struct weft_paired_latents weft_paired_latents;

/* Opens a latent cache, whose samples have the part `part`. Every sample of `first` must be in the
 * cache; otherwise the error names the first one that is missing. `key` (borrowed): the key of the
 * config that names the second set. */
weft_status weft_paired_latents_open(const char *folder, const char *part, const char *key,
                                     const weft_dataset *first, weft_paired_latents **latents);
void weft_paired_latents_close(weft_paired_latents *latents); /* accepts NULL */
/* Reads the f32 latents of sample `id`, which must have `floats` elements, into `to`. */
weft_status weft_paired_latents_read(weft_paired_latents *latents, uint64_t id, int64_t floats,
                                     float *to);

#endif
