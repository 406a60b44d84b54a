/* Random traces of jobs for weft_queue_replay: Poisson arrivals of jobs of several lengths. */
#ifndef WEFT_PLAN_QUEUE_TRACE_H
#define WEFT_PLAN_QUEUE_TRACE_H

#include "plan/queue/queue_replay.h"

enum { WEFT_QUEUE_TRACE_LIST = 32 };

typedef struct weft_queue_trace_options {
    int64_t jobs, owners, steps, workers;
    uint64_t seed;
    double load;                         /* seconds of work that arrive per second of all workers */
    double error;                        /* standard deviation of log(actual / predicted seconds) */
    double sizes[WEFT_QUEUE_TRACE_LIST]; /* [size_count] seconds of a job, equally likely */
    int size_count;
    /* [deadline_count] times of a job's seconds, equally likely */
    double deadlines[WEFT_QUEUE_TRACE_LIST];
    int deadline_count; /* 0: no deadlines */
} weft_queue_trace_options;

/* *jobs: [options->jobs], heap (weft_free). Equal seeds give equal traces, and a longer trace
 * begins with the shorter one. */
weft_status weft_queue_trace_make(const weft_queue_trace_options *options, weft_queue_run **jobs);

#endif
