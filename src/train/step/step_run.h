/* One training step: fills the inputs of its contributions, runs its programs and its update, and
 * collects its metrics.
 *
 *     begin ── contributions: fill, run ── update ── end: metrics, guard, telemetry, totals
 *
 * Iterations of cascades replace the contributions (train/cascade/cascade_trainer.h). */
#ifndef WEFT_TRAIN_STEP_STEP_RUN_H
#define WEFT_TRAIN_STEP_STEP_RUN_H

#include "exec/trace/run_trace.h"
#include "train/monitor/train_logger.h"
#include "train/step/stage_state.h"

/* Lives for a step. */
typedef struct weft_step_run {
    weft_train_context *context;   /* borrowed */
    weft_stage_state *train_stage; /* borrowed */
    weft_batch batch;              /* last batch of the stage's loader */
    weft_timeline timeline;        /* trace of the step, if `traced` */
    bool traced;
    bool launches;            /* the host continues before the programs have ended */
    double began, waited;     /* time, and comm wait seconds, at the start of the step */
    int64_t packed_positions; /* token places of the packed rows so far, with padding */
    double data_wait_seconds; /* seconds that the step waited for batches */
    weft_step_figures figures;
} weft_step_run;

/* Collective if `traced`. Begins the next step of the stage. */
weft_status weft_step_run_begin(weft_train_context *context, weft_stage_state *train_stage,
                                bool traced, weft_step_run *step);
/* Fills and runs the programs of the stage, with the update. *last: the program with the update. */
weft_status weft_step_run_programs(weft_step_run *step, const weft_step **last);
/* Runs the update after all gradients are complete, for contributions that the caller ran. */
weft_status weft_step_run_update(weft_step_run *step, const weft_step *update);
/* Counts the step as done and completes its figures. WEFT_E_NUMERIC: the outlier guard gives up.
 * *figures is valid in this case, too. */
weft_status weft_step_run_end(weft_step_run *step, const weft_step *last);
/* Writes this rank's timeline, if the step was traced, to <out>/trace-<stage>-<rank>.json. */
weft_status weft_step_run_write_trace(weft_step_run *step);
void weft_step_run_free(weft_step_run *step);

#endif
