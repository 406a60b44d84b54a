/* Checks, before the first step, of the clips that steps decode: faces and masks. */
#ifndef WEFT_TRAIN_LATENTS_CHECKED_CLIPS_H
#define WEFT_TRAIN_LATENTS_CHECKED_CLIPS_H

#include "train/graph/run_pair.h"
#include "train/step/train_step.h"

/* Collective. Checks masks and backgrounds, and decodes the clips of all data sets that are not
 * cached, unless an earlier start has done so: the latent cache `folder` of the first data set
 * remembers the contents of the sets.
 * WEFT_E_CANCELLED on all ranks if any rank was interrupted. */
weft_status weft_checked_clips_ensure(const weft_run *run, const weft_run_models *models,
                                      const weft_exec_config *exec, const char *folder);

#endif
