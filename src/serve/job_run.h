/* Starts jobs on a worker and records how they end. The caller has the lock. */
#ifndef WEFT_SERVE_JOB_RUN_H
#define WEFT_SERVE_JOB_RUN_H

#include "serve/supervisor_parts.h"

/* Starts the process of the group if there is none. `lock`: of its worker. */
weft_status weft_job_run_open(weft_supervisor *group, int lock);
/* Starts jobs[0], and the others of its batch, of `seconds` predicted seconds. */
weft_status weft_job_run_start(weft_supervisor *group, const weft_queue_job *jobs, int count,
                               double seconds, int lock);
/* Records how the job ended, until it is stored. */
void weft_job_run_end(weft_supervisor *group, const weft_worker_end *end);

#endif
