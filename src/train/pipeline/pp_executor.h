/* Executes a pipeline schedule: runs this rank's tasks (F, B or W of a pipeline stage and a
 * microbatch) in order, and transfers values between stages.
 *
 *   stage s, `slots` records            microbatch m uses record m mod slots. The schedule
 *   ┌────────┬────────┬────────┐        determines the number of slots: the microbatches in
 *   │ mb 3   │ mb 4   │ mb 2   │        flight at a time
 *   └────────┴────────┴────────┘
 *     a record (microbatch buffer): received values, saved activations, values to send, gradients;
 *     with memory.offload a part of the saved activations is in an offload buffer
 *
 * A receive is posted as soon as its record is free and all sends from the record have completed.
 * Only the task that needs the record waits for both. A send starts from the record itself when its
 * program has run. Messages between two stages have their own queue, with microbatches in the same
 * order on both sides. Any legal schedule therefore runs without deadlock: every awaited value is
 * sent by an earlier task of the schedule. A send waits only for its receive, which is posted
 * before the receiver's forward of the microbatch. A value for a stage of the same rank is read in
 * place. */
#ifndef WEFT_TRAIN_PIPELINE_PP_EXECUTOR_H
#define WEFT_TRAIN_PIPELINE_PP_EXECUTOR_H

#include "exec/offload_memory.h"
#include "exec/program.h"
#include "exec/trace/run_trace.h"
#include "train/pipeline/pp_layout.h"

typedef struct weft_pp_executor weft_pp_executor;

/* Plans steps of `microbatches` microbatches. steps[b] has the programs of bucket b. All inputs are
 * borrowed; no memory is reserved. */
weft_status weft_pp_executor_plan(const weft_pp_layout *pp, weft_pp_step *const *steps, int buckets,
                                  int64_t microbatches, weft_pp_executor **run);
void weft_pp_executor_free(weft_pp_executor *run); /* accepts NULL */
/* Bytes that binding reserves: microbatch buffers, and the inputs of all microbatches. */
int64_t weft_pp_executor_bytes(const weft_pp_executor *run);
/* Bytes of the offload buffers. */
int64_t weft_pp_executor_offloaded_bytes(const weft_pp_executor *run);
/* Reserves the memory. The programs must already be bound. `group` has the pipeline's ranks, and
 * `mesh` covers all its members. */
weft_status weft_pp_executor_bind(weft_pp_executor *run, weft_group *group, const weft_mesh *mesh);
/* The input `name` of a microbatch of bucket `bucket`, to fill before the step. Valid until the
 * next call. NULL: this rank does not need the input. */
weft_tensor *weft_pp_executor_input(weft_pp_executor *run, int64_t microbatch, int bucket,
                                    const char *name);
/* Runs a step. `bucket_of`: bucket by microbatch. */
weft_status weft_pp_executor_step(weft_pp_executor *run, const int *bucket_of);
/* Adds tasks, their programs (compiled with `profile`), messages and waits of the following steps
 * to `timeline` (borrowed). NULL: stops the trace. */
void weft_pp_executor_trace(weft_pp_executor *run, weft_timeline *timeline);
/* Totals of all steps so far. */
typedef struct weft_pp_task_times {
    int64_t sent;                     /* bytes sent to pipeline stages of other ranks */
    double waited;                    /* seconds waiting for pipeline stages of other ranks */
    weft_comm_times inside;           /* communication inside the programs */
    weft_offload_times offload_times; /* offload and prefetch of the programs */
} weft_pp_task_times;
weft_pp_task_times weft_pp_executor_times(const weft_pp_executor *run);

#endif
