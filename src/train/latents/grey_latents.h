/* Latents of grey frames. A control video of VACE has them where no pixels are given. */
#ifndef WEFT_TRAIN_LATENTS_GREY_LATENTS_H
#define WEFT_TRAIN_LATENTS_GREY_LATENTS_H

#include "train/step/train_step.h"

/* Collective. Ensures that the latent cache in `folder` has latents of grey frames for each size of
 * the training stage. Rank 0 encodes what is missing, as weft generate does. */
weft_status weft_grey_latents_ensure(const weft_run *run, const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, const char *folder);
/* Reads the latents of a size from the cache: f32 (T',Y',X',Z), not normalised, owned by the
 * caller. */
weft_status weft_grey_latents_read(const weft_run_models *models, const char *folder,
                                   const weft_bucket *size, float **latents);

#endif
