/* The programs of a training stage: one per bucket. A step with several contributions also has an
 * update program (optimizer.h). The programs are bound together and share one arena. */
#ifndef WEFT_TRAIN_STEP_STAGE_PROGRAMS_H
#define WEFT_TRAIN_STEP_STAGE_PROGRAMS_H

#include "train/pipeline/pp_executor.h"
#include "train/step/compiled_steps.h"

typedef struct weft_stage_programs {
    weft_step **bucket; /* [count] borrowed from the cache: buckets, then share and update */
    int buckets;
    weft_step *share;         /* reduces shared parameters of a pipeline; NULL: no pipeline */
    weft_step *update;        /* NULL: the buckets' programs include the update */
    int count;                /* entries of bucket[] */
    int64_t parts;            /* microbatches per batch; each runs a bucket's program once */
    int64_t runs;             /* microbatches per step, over all accumulated batches */
    const weft_pp_layout *pp; /* NULL: no pipeline */
    /* Axes along which every bucket's program reduces the telemetry, if the update is separate. 0:
     * the update reduces this rank's telemetry. */
    uint32_t reduced_axes;
} weft_stage_programs;

/* The execution config of any rank, as far as `run` and `models` (may be NULL) determine it.
 * `backend` is NULL if no backend has the name. The caller sets mesh, rank, communicator, pipeline,
 * telemetry and offload. */
weft_exec_config weft_exec_config_of(const weft_run *run, const weft_run_models *models);

/* Plans the programs or finds them in the cache. Nothing is bound. */
weft_status weft_stage_programs_plan(weft_compiled_steps *cache, const weft_run *run,
                                     const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, weft_stage_programs *steps);
void weft_stage_programs_free(weft_stage_programs *steps); /* frees the list, not the steps */
/* Plans the same one program at a time: `begin` makes an empty list, `next` adds a program while
 * `has_next`. */
weft_status weft_stage_programs_begin(const weft_run *run, const weft_train_stage *train_stage,
                                      const weft_exec_config *exec, weft_stage_programs *steps);
bool weft_stage_programs_has_next(const weft_stage_programs *steps);
weft_status weft_stage_programs_next(weft_compiled_steps *cache, const weft_run *run,
                                     const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, weft_stage_programs *steps);
/* Bytes that the programs reserve when bound together, with the microbatch buffers of a
 * pipeline. */
weft_status weft_stage_programs_bytes(const weft_stage_programs *steps, int64_t *bytes);
/* Bytes of the programs' offload buffers. */
weft_status weft_stage_programs_offloaded_bytes(const weft_stage_programs *steps, int64_t *bytes);
/* Plans, but does not bind, the executor of the pipeline schedule
 * (train/pipeline/pp_executor.h). */
weft_status weft_stage_programs_pipe(const weft_stage_programs *steps, weft_pp_executor **run);
/* Bytes in the store of all parameters and states of the programs. */
weft_status weft_stage_programs_weights(const weft_stage_programs *steps, int64_t *bytes);
/* Prints the layout over the ranks of `exec`, one line per axis. One rank: prints nothing. */
void weft_stage_programs_layout(const weft_stage_programs *steps,
                                const weft_train_stage *train_stage, const weft_exec_config *exec,
                                weft_buf *out);

#endif
