/* A step of a pipeline by all its ranks, threads of this process, on devices and links that are
 * modelled: programs, interpreter and exchanges are those of a run, and each rank's time is its own
 * clock (kernel/virtual/virtual.h), which kernels and messages move. Nothing sleeps, and
 * the same setup gives the same seconds to the bit. */
#ifndef WEFT_TRAIN_MODELLED_H
#define WEFT_TRAIN_MODELLED_H

#include "kernel/virtual/virtual.h"
#include "runtime/comm.h"
#include "train/run.h"
#include "train/stage_steps.h"

typedef struct weft_modelled_setup {
    const weft_run *run; /* with parallel.pp; all borrowed */
    const char *path;    /* of its config, for messages */
    const weft_run_models *models;
    const weft_stage *stage;
    weft_virtual_rates rates; /* of every rank's device; the clock is not looked at */
    weft_link_model links;
} weft_modelled_setup;

/* What a stage's programs take and send, one microbatch. */
typedef struct weft_modelled_stage {
    double seconds[WEFT_PIPE_KINDS]; /* kernels of F, B and W; W: 0 where it is a part of B */
    /* bytes forward to the next stage, and back as many; 0: that is on the same rank */
    double sent;
} weft_modelled_stage;

typedef struct weft_modelled_rank {
    double seconds;         /* of the microbatches, until its last task and message */
    double kernels;         /* of those */
    double behind;          /* then the sums of what stages share, and the update */
    int64_t sent, messages; /* by the microbatches of a step */
    int64_t bytes;          /* that it would reserve: weights, programs, records */
} weft_modelled_rank;

typedef struct weft_modelled_step {
    weft_mesh mesh;
    weft_schedule table;
    weft_modelled_stage *stage; /* [stages] */
    weft_modelled_rank *rank;   /* [ranks] */
    weft_skip *skip;            /* what stays on a rank from one of its stages to a later one */
    int ranks, stages, skips;
    int64_t microbatches;
    double seconds, behind; /* of the latest rank */
    double idle;            /* share of the devices' seconds with no kernel; without `behind` */
    char *print;            /* which block is in which stage; owned, as all of it */
} weft_modelled_step;
void weft_modelled_step_free(weft_modelled_step *step);

/* Of the second step; the first is not counted. WEFT_E_CONFIG: the run has no stages. */
weft_status weft_modelled_step_run(const weft_modelled_setup *setup, weft_modelled_step *step);

#endif
