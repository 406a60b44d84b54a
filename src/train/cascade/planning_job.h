#ifndef WEFT_TRAIN_CASCADE_PLANNING_JOB_H
#define WEFT_TRAIN_CASCADE_PLANNING_JOB_H

#include "train/cascade/cascade_planner_internal.h"

/* Creates the job of an iteration: its samples, without skipped ones, and the options of
 * its cascades. The samples are copied. */
weft_status weft_planning_job_create(weft_cascade_planner *planner, int64_t step,
                                     const weft_placed_sample *sample, int64_t samples,
                                     weft_planning_job **out);
void weft_planning_job_free(weft_planning_job *job); /* accepts NULL */
/* Drops one reference. Call under the lock. Accepts NULL. */
void weft_planning_job_release(weft_planning_job *job);
/* Asks the job's search to stop soon. Accepts NULL. */
void weft_planning_job_end(weft_planning_job *job);
/* Returns true if plans may use groups of `degree` ranks. */
bool weft_planning_wants_degree(const weft_cascade_planner *planner, int64_t degree);

#endif
