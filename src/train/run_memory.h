/* What a run takes of memory on a rank, phase by phase, and the most of it: `weft train` says it
 * before the first phase begins, `weft inspect graph` without beginning one.
 *
 *     program and libraries ─┬─ weights and optimizer ─┬─ beginning: a whole model to be cut
 *     with graphs            │                         ├─ stage: programs, batches, copies
 *                            │                         └─ latents: encoders, their batches
 *                            └─ what is resident before the run reserves anything
 */
#ifndef WEFT_TRAIN_RUN_MEMORY_H
#define WEFT_TRAIN_RUN_MEMORY_H

#include "train/stage_steps.h"

/* `store` has every parameter and state of the run (one on the device "virtual" has them without
 * memory); `process` is what was resident before it. *peak is the sum of what is there at the worst
 * time, and `told` gets a line that says it and its terms. */
weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_place_of_run *place, weft_step_cache *steps,
                            weft_store *store, int64_t process, int64_t *peak, weft_buf *told);

/* The least share of each stage's blocks that the backward has to make again (pass/pass.h) so that
 * the run's peak on every rank is at most `limit` bytes: share[] by stage, for
 * weft_place_of_run.stage_share, which `place` need not have. Collective. WEFT_E_MEMORY: not even
 * all of it will do; the message says what the least is. */
weft_status weft_run_fit(const weft_run *run, const weft_run_models *models,
                         const weft_place_of_run *place, weft_store *store, int64_t process,
                         int64_t limit, int *share);

#endif
