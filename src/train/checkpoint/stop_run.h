/* Ends a run before its last step: after an interrupt, or after outlier steps. */
#ifndef WEFT_TRAIN_CHECKPOINT_STOP_RUN_H
#define WEFT_TRAIN_CHECKPOINT_STOP_RUN_H

#include "train/checkpoint/run_checkpoints.h"

/* Collective. Handles an interrupt between steps: a checkpoint has the last step. `what` was
 * stopped. *together: all ranks stopped with nothing in flight. WEFT_E_CANCELLED; rank 0 has
 * printed the message. */
weft_status weft_stop_between_steps(weft_comm *comm, const char *what, bool *together);
/* Collective. Stops after an interrupt, when the checkpoint of step `done` is being written. No
 * rank exits before the checkpoint is complete, because a launcher ends the job when one of its
 * processes ends. Only rank 0 knows the result. Rank 0 prints it at once, because the launcher
 * may kill the job before all ranks have exited. WEFT_E_CANCELLED, or on rank 0 the error of the
 * checkpoint. */
weft_status weft_stop_after_step(const weft_run_checkpoints *checkpoints, int64_t done,
                                 bool *together);
/* Collective. Adds the last good checkpoint to the error `status` of the outlier guard. */
weft_status weft_stop_outliers(const weft_run_checkpoints *checkpoints, int64_t done,
                               weft_status_code status);

/* Time between a launcher's signal and its kill, compared with the time that stopping needs. */
typedef struct weft_kill_timeout {
    double longest; /* seconds of the longest step */
    bool warned;
} weft_kill_timeout;
/* Rank 0: warns once if a step and a checkpoint take longer than the launcher waits. Both times are
 * known after the first checkpoint. */
void weft_kill_timeout_check(weft_kill_timeout *timeout, const weft_run_checkpoints *checkpoints);

#endif
