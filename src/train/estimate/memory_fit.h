/* memory.limit: what a run's stages keep for their backward, make again or move away, so that no
 * rank takes more than the limit, at the least cost. */
#ifndef WEFT_TRAIN_RUN_FIT_H
#define WEFT_TRAIN_RUN_FIT_H

#include "train/activation_plan.h"
#include "train/run_memory.h"

/* fates[] by stage, for weft_place_of_run.stage_fates, which `place` need not have; freed by
 * weft_run_fates_free, also on failure. The planner chooses (plan/pipeline/keep.h) from what this
 * rank's graphs keep and by this machine's rates, or those of memory.profile; the peak is that of
 * the programs planned with it, on every rank. `told` gets a line for each stage that does not keep
 * all. Collective over `together`; NULL: this rank decides for itself. WEFT_E_MEMORY: nothing will
 * do; the message says what the least is.
 *
 * `stored` (NULL: none): the activation plan of the run, the same on all ranks. A stage uses the
 * stored choice if the config, the layout and the sizes are those it was made for and its peak is
 * within the limit; otherwise the new choice replaces it. */
weft_status weft_run_fit(const weft_run *run, const weft_run_models *models,
                         const weft_place_of_run *place, weft_comm *together, weft_store *store,
                         int64_t process, weft_activation_plan *stored, weft_fates *fates,
                         weft_buf *told);
void weft_run_fates_free(weft_fates *fates, int64_t stages); /* and the array; accepts NULL */

#endif
