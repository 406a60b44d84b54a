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

/* Bytes of a rank, of the backend's device and of the host: one memory where the backend computes
 * in the host's. `elsewhere`: what memory.offload and memory.states keep in a file, or, of a device
 * other than the host, in the host's memory, beside both. */
typedef struct weft_run_bytes {
    int64_t device;    /* weights, optimizer, programs, records of stages */
    int64_t host;      /* program and libraries, batches, copies for checkpoints */
    int64_t elsewhere; /* the most of any stage, and states */
} weft_run_bytes;
static inline int64_t weft_run_bytes_sum(weft_run_bytes b) /* of a process, but what is elsewhere */
{
    return b.device + b.host;
}

/* `store` has every parameter and state of the run (one on the device "virtual" has them without
 * memory); `process` is what was resident before it. *peak is what is there at the worst time, and
 * `told` gets a line that says its sum and the terms. */
weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_place_of_run *place, weft_step_cache *steps,
                            weft_store *store, int64_t process, weft_run_bytes *peak,
                            weft_buf *told);

/* Collective: `told` becomes what the rank with most `bytes` has there, of equals the first. */
weft_status weft_run_memory_most(weft_comm *comm, int64_t bytes, weft_buf *told);

/* ---- its terms ------------------------------------------------------------------------------- */

/* Bytes that libraries take when they are first used: measured. A run decodes clips unless the
 * latents of all its stages are cached. `place` NULL: it decodes. */
int64_t weft_run_first_use(const weft_run *run, const weft_place_of_run *place);

/* Bytes of the process before the run reserves memory, with the libraries of the backend's products
 * resident: what weft_run_memory takes as `process`. */
weft_status weft_run_process_bytes(const weft_backend *backend, int64_t *bytes);

/* Bytes of copies that wait to be written while a stage runs. */
weft_status weft_run_staging_bytes(const weft_run_models *models, const weft_place_of_run *place,
                                   weft_store *store, int64_t *bytes);
/* Of a stage's programs and batches; `terms` (NULL: nobody asks) gets them as text. */
weft_status weft_run_stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_place_of_run *place, weft_step_cache *steps,
                                 weft_run_bytes *bytes, weft_buf *terms);
/* And of what is there before it (latents of a transformer, a model that is cut) or behind the last
 * (statistics of an autoencoder's latents): the most at a time. Nothing for latents that are cached
 * already (place->encoded). */
weft_status weft_run_beside_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                  const weft_place_of_run *place, weft_step_cache *steps,
                                  weft_run_bytes *most, weft_buf *terms);

#endif
