/* Measured seconds of jobs, for the forecasts. The caller has the lock. */
#ifndef WEFT_SERVE_JOB_MEASURES_H
#define WEFT_SERVE_JOB_MEASURES_H

#include "serve/supervisor_parts.h"

/* Predicted seconds of each running job after its finished steps, without the pace; 0: not known.
 */
double weft_job_measure_remaining(const weft_supervisor *group);
/* Expected seconds of the start of a job that is about to start on shared ranks. */
double weft_job_measure_expected_start(const weft_supervisor *group);
/* Measures the seconds from the start of a job to its first step, at its first progress. */
void weft_job_measure_start(weft_supervisor *group);
/* Notes a progress of a job on shared ranks. */
void weft_job_measure_steps(weft_supervisor *group);
/* Measures the seconds of the steps of the last run of a finished job on shared ranks. */
void weft_job_measure_shared_end(const weft_supervisor *group);
/* An idle worker of shared ranks has ended. */
void weft_job_measure_retired(const weft_supervisor *group);
/* Compares the seconds of a finished job with the predicted ones. */
void weft_job_measure_end(const weft_supervisor *group);
/* Records the seconds of jobs that ran from the first step to the last one, for batches. */
void weft_job_measure_batch(const weft_supervisor *group);

#endif
