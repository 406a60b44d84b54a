/* The memory of a run at its start: what is there already, and whether the
 * config can be kept. */
#ifndef WEFT_TRAIN_MEMORY_START_H
#define WEFT_TRAIN_MEMORY_START_H

#include "train/run_fit.h"

/* The folder of memory.offload takes a file now, not when the first value
 * leaves. */
weft_status weft_run_check_offload(const weft_run *run);
/* Warns where memory.states: offload has no effect: all states of `store` are
 * small. */
void weft_run_warn_states(weft_store *store);
/* Collective: rank 0 looks for all. *encoded (heap, the caller's): by stage,
 * its latents are cached already. */
weft_status weft_run_find_encoded(const weft_run *run, const weft_run_models *models,
                                  weft_comm *comm, bool **encoded);
/* Collective over place->comm. weft_run_fit with the activation plan of the run
 * folder, which is read and, if it changes, written. `dry`: no files. */
weft_status weft_run_fit_kept(const weft_run *run, const weft_run_models *models,
                              const weft_place_of_run *place, weft_store *store, int64_t process,
                              bool dry, weft_fates *fates, weft_buf *told);
/* Prints the measured peak of this process next to the prediction. */
void weft_run_tell_peak(int64_t predicted);

#endif
