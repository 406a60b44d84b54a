/* The ranks of a job that starts: its request in the store names them with their layout. */
#ifndef WEFT_SERVE_JOB_RANKS_H
#define WEFT_SERVE_JOB_RANKS_H

#include "serve/queue_store.h"

/* Sets "ranks" and "layout" in the request of a queued job. *seconds: predicted seconds of the job
 * on these ranks; unchanged if the request has none. */
weft_status weft_job_set_ranks(weft_queue_store *store, weft_queue_job *job, int64_t ranks,
                               double *seconds);

#endif
