/* Simulates one training step of all ranks on virtual devices and links. Nothing is reserved and
 * nothing is computed.
 *
 *     config ─> programs of each kind of rank (train/estimate/rank_kinds.h)
 *                 ├─> estimate: kernels and collectives on a clock, the same for equal ranks
 *                 └─> execution: threads run the interpreter and the collectives of a run. Kernels
 *                     and messages advance each rank's clock (kernel/virtual/virtual.h)
 *
 * No thread sleeps. The same setup gives bitwise identical seconds. */
#ifndef WEFT_TRAIN_ESTIMATE_SIMULATED_STEP_H
#define WEFT_TRAIN_ESTIMATE_SIMULATED_STEP_H

#include "comm/comm.h"
#include "kernel/virtual/virtual.h"
#include "plan/cluster/cluster.h"
#include "train/config/train_config.h"
#include "train/step/stage_programs.h"

/* Whether the ranks also execute the step. AUTO: if the execution is estimated to take at most 60 s
 * of CPU time. */
typedef enum weft_execute {
    WEFT_EXECUTE_AUTO,
    WEFT_EXECUTE_ALWAYS,
    WEFT_EXECUTE_NEVER
} weft_execute;

typedef struct weft_simulated_setup {
    const weft_run *run; /* all pointers borrowed */
    const char *path;    /* path of the config, for messages */
    const weft_run_models *models;
    const weft_train_stage *train_stage;
    weft_device_type device;  /* figures of every rank's device, for the estimate; no rates */
    weft_virtual_rates rates; /* rates of the execution, from the device; the clock is ignored */
    weft_link_model links;    /* links within and between nodes */
    weft_execute execute;
    bool separate; /* plan the programs of every executed rank (tests) */
} weft_simulated_setup;

/* Estimates of one pipeline stage and one microbatch. */
typedef struct weft_simulated_stage {
    /* Seconds of F, B and W: kernels and waits for collectives. W is 0 if B includes it. */
    double seconds[WEFT_PP_TASK_KINDS];
    /* Bytes sent forward to stages of other ranks. Gradients of the same size return. */
    double sent;
} weft_simulated_stage;

typedef struct weft_simulated_rank {
    /* executed: seconds of the microbatches, to the last task and message */
    double seconds;
    /* executed: seconds of the reduction of shared parameters and the update */
    double update_seconds;
    double kernels;         /* kernel seconds of the microbatches */
    int64_t sent, messages; /* bytes and messages of a step's microbatches */
    int64_t bytes;          /* bytes that a rank would reserve */
} weft_simulated_rank;

typedef struct weft_simulated_step {
    weft_mesh mesh;
    int ranks, kinds; /* kinds: number of rank kinds planned */
    int64_t microbatches;
    int pp_stages; /* 0: without a pipeline, and without table, pp_stage, skip and print */
    weft_pp_schedule table;
    weft_simulated_stage *pp_stage; /* [pp_stages] */
    /* values passed to a later, not the next, pipeline stage of the same rank */
    weft_skip *skip;
    int skips;
    /* blocks of each pipeline stage as text; owned, like all pointers */
    char *print;
    weft_simulated_rank *rank;       /* [ranks] */
    double estimated_seconds;        /* without a pipeline: seconds of the microbatches */
    double estimated_update_seconds; /* seconds of the update on the slowest rank */
    /* Messages of rank 0 in a step by mesh axis: planned and executed */
    weft_sent planned[WEFT_MAX_AXES], sent[WEFT_MAX_AXES];
    bool executed;
    atomic_int left, done; /* execution: running ranks, and the sum of their finished steps */
    double estimate;       /* estimated CPU seconds of the execution */
    double seconds, update_seconds; /* executed: of the slowest rank */
    double idle;                    /* executed: share of the devices' time without a kernel */
} weft_simulated_step;
void weft_simulated_step_free(weft_simulated_step *step);

/* Simulates a step. Before an executed step, the ranks compare their collectives. */
weft_status weft_simulated_step_run(const weft_simulated_setup *setup, weft_simulated_step *step);

#endif
