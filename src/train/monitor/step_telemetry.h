/* Rank telemetry of a run: this rank's entry for the next step, and the entries of all ranks from
 * the last step (rank_telemetry.h). */
#ifndef WEFT_TRAIN_MONITOR_STEP_TELEMETRY_H
#define WEFT_TRAIN_MONITOR_STEP_TELEMETRY_H

#include "comm/comm.h"
#include "train/monitor/stragglers.h"

typedef struct weft_step_telemetry {
    int64_t floats;
    float *own, *all; /* [floats] heap, owned */
    /* any rank was interrupted before the last step; same on all ranks */
    bool interrupted;
    weft_step_timing timing; /* timing of the last step on this rank */
} weft_step_telemetry;

weft_status weft_step_telemetry_create(int64_t floats, weft_step_telemetry *telemetry);
void weft_step_telemetry_free(weft_step_telemetry *telemetry);
/* Sets this rank's entry: the timing of its last step and its stop flag. */
void weft_step_telemetry_write(weft_step_telemetry *telemetry, int rank, bool interrupted);
/* Records this rank's step timing, to be sent with the next step. Passes all ranks' timings of the
 * step before, received with this step, to `stragglers` (NULL: off). `seconds`: of the step, of
 * which `waits` for other ranks and `data` for batches. */
void weft_step_telemetry_record(weft_step_telemetry *telemetry, weft_stragglers *stragglers,
                                double seconds, double waits, double data);

#endif
