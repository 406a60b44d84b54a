/* The latents of rejected clips, found by the ids of the preferred clips. */
#ifndef WEFT_TRAIN_STEP_REJECTED_LATENTS_H
#define WEFT_TRAIN_STEP_REJECTED_LATENTS_H

#include "data/dataset.h"

typedef struct weft_rejected_latents weft_rejected_latents;

/* Opens a latent cache, whose samples have the part `part`. Every sample of `preferred` must be in
 * the cache; otherwise the error names the first one that is missing. */
weft_status weft_rejected_latents_open(const char *folder, const char *part,
                                       const weft_dataset *preferred,
                                       weft_rejected_latents **latents);
void weft_rejected_latents_close(weft_rejected_latents *latents); /* accepts NULL */
/* Reads the f32 latents of sample `id`, which must have `floats` elements, into `to`. */
weft_status weft_rejected_latents_read(weft_rejected_latents *latents, uint64_t id, int64_t floats,
                                       float *to);

#endif
