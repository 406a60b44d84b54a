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

/* ---- its terms ------------------------------------------------------------------------------- */

/* What libraries take when they are first used, decoders above all, and of the nets that judge an
 * autoencoder the code that is made for each of their convolutions: measured. */
static inline int64_t weft_run_first_use(const weft_run *run)
{
    const int64_t perceives = weft_run_perceives(run) ? 5 << 20 : 0,
                  fights = weft_run_fights(run) ? 7 << 20 : 0;
    return (20 << 20) + perceives + fights;
}

/* Bytes of copies that wait to be written while a stage runs. */
weft_status weft_run_staging_bytes(const weft_run_models *models, const weft_place_of_run *place,
                                   weft_store *store, int64_t *bytes);
/* Of a stage's programs and batches; `terms` (NULL: nobody asks) gets them as text. */
weft_status weft_run_stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_place_of_run *place, weft_step_cache *steps,
                                 int64_t *bytes, weft_buf *terms);
/* And of what is there before it (latents of a transformer, a model that is cut) or behind the last
 * (statistics of an autoencoder's latents): the most at a time. */
weft_status weft_run_beside_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                  const weft_place_of_run *place, weft_step_cache *steps,
                                  int64_t *most, weft_buf *terms);

#endif
