/* Reference images of samples, from several latent caches (train/graph/identity_inputs.h). */
#ifndef WEFT_TRAIN_STEP_IDENTITY_IMAGES_H
#define WEFT_TRAIN_STEP_IDENTITY_IMAGES_H

#include "exec/store/store.h"
#include "train/step/stage_state.h"

/* Rejects samples of `first` without an image in any of the sets. */
weft_status weft_identity_images_check(const weft_run_pair *pair, weft_paired_latents *const *set,
                                       int sets, const weft_dataset *first);
/* Reads the images of `count` samples into `to` (count,T,..) and marks them in `given` (count,T);
 * NULL: not an input. Present images come first, in the order of the sets; zeros follow. */
weft_status weft_identity_images_read(const weft_run_pair *pair, weft_paired_latents *const *set,
                                      int sets, const uint64_t *id, int64_t count,
                                      const weft_tensor *to, const weft_tensor *given);

#endif
