/* Predicted memory of a rank in each phase of a run, and its peak. `weft train` prints the peak
 * before the first phase; `weft inspect graph` prints it without starting a run.
 *
 *     program and libraries ─┬─ weights and optimizer ─┬─ setup: unsharded model
 *     with graphs            │                         ├─ stage: programs, batches, copies
 *                            │                         └─ latents: encoders, their batches
 *                            └─ resident before the run reserves memory */
#ifndef WEFT_TRAIN_ESTIMATE_MEMORY_ESTIMATE_H
#define WEFT_TRAIN_ESTIMATE_MEMORY_ESTIMATE_H

#include "train/step/stage_programs.h"

/* Bytes of a rank on the backend's device and on the host. Both are one memory if the backend
 * computes in host memory. `offloaded` is not part of either: memory.offload and memory.states keep
 * these bytes in a file, or in host memory if the device is not the host. */
typedef struct weft_run_bytes {
    int64_t device;    /* weights, optimizer, programs, microbatch buffers */
    int64_t host;      /* program and libraries, batches, checkpoint staging */
    int64_t offloaded; /* maximum over training stages, plus states */
    int64_t process;   /* part of `host`: program and libraries, with graphs; varies by start */
} weft_run_bytes;
static inline int64_t weft_run_bytes_sum(weft_run_bytes b) /* all but offloaded bytes */
{
    return b.device + b.host;
}
static inline int64_t weft_run_bytes_reserved(weft_run_bytes b) /* the same at every start */
{
    return weft_run_bytes_sum(b) - b.process;
}

/* Predicts the peak memory of this rank. `store` contains every parameter and state of the run; on
 * a meta device they have no memory. `process_bytes`: program and libraries (process_memory.h).
 * `out` receives a line with the peak and its terms. */
weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_exec_config *exec, weft_compiled_steps *steps,
                            weft_store *store, int64_t process_bytes, weft_run_bytes *peak,
                            weft_buf *out);

typedef struct weft_rank_memory {
    int64_t reserved; /* predicted peak without program and libraries */
    int64_t bytes, weights;
} weft_rank_memory;
/* Collective. Replaces `memory` and the report `out` with those of the rank that reserves the most;
 * ties go to the lowest rank. */
weft_status weft_run_memory_max_rank(weft_comm *comm, weft_rank_memory *memory, weft_buf *out);

/* ---- terms ----------------------------------------------------------------------------------- */

/* Bytes of the checkpoint staging buffer, which is used during a training stage. */
weft_status weft_run_staging_bytes(const weft_run *run, const weft_run_models *models,
                                   const weft_exec_config *exec, weft_store *store, int64_t *bytes);
/* Bytes of the programs and batches of training stage `index`. `terms` receives them as text; NULL:
 * not needed. */
weft_status weft_run_stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_exec_config *exec, weft_compiled_steps *steps,
                                 weft_run_bytes *bytes, weft_buf *terms);
/* Peak bytes outside the stage's steps: latent encoding or an unsharded model before the stage, or
 * latent statistics after the last stage. Latents that are already cached (exec->encoded) need
 * nothing. */
weft_status weft_run_setup_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_exec_config *exec, weft_compiled_steps *steps,
                                 weft_run_bytes *most, weft_buf *terms);

#endif
