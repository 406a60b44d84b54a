/* Steps on a device without values (backend `virtual`). Compares the seconds predicted by the
 * device's rates with the executor's seconds, including waits for other ranks. */
#ifndef WEFT_TRAIN_ESTIMATE_DRY_RUN_H
#define WEFT_TRAIN_ESTIMATE_DRY_RUN_H

#include "train/step/stage_state.h"

enum { WEFT_REHEARSED = 5 }; /* steps per training stage; at least one per bucket */

typedef struct weft_dry_run {
    double predicted; /* seconds of all kernels in sequence, by the device's rates */
    double executed;  /* seconds of complete steps */
    double waited;    /* part of `executed` that waits for other ranks */
    int64_t steps;
} weft_dry_run;

/* Predicted seconds of the kernels of one run of `graph` on a backend `virtual`. */
double weft_dry_run_kernels(const weft_backend *backend, const weft_graph *graph);
/* Predicted seconds of the kernels of one step of a stage: the shortest time of a dry step. */
double weft_dry_run_seconds(const weft_stage_programs *steps);
/* Runs step `step` of a bound stage: its programs in the order of a training step
 * (train/step/step_run.h), without filling their inputs. The backend must be `virtual` or derived
 * from `virtual`. */
weft_status weft_dry_run_step(weft_dry_run *dry_run, weft_stage_state *train_stage, int64_t step);
/* Prints a line about a training stage. `peak`: bytes that this rank reserves, including
 * weights. */
void weft_dry_run_print(const weft_dry_run *dry_run, int64_t train_stage, int64_t peak);

#endif
