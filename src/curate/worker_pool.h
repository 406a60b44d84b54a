/* Jobs in child processes: a crash or a hang costs its job only. Private to curate/. */
#ifndef WEFT_CURATE_POOL_H
#define WEFT_CURATE_POOL_H

#include "curate/curate_work.h"

typedef struct weft_pool_outcome {
    weft_status_code status; /* what the job returned */
    int signal;              /* that ended it; 0: none */
    bool hung;               /* killed by us after silence */
    char message[1024];      /* of its error */
} weft_pool_outcome;

typedef struct weft_pool {
    int64_t count;
    int workers;
    double stall_seconds;
    int64_t memory; /* bytes that a child can reserve; 0: no limit */
    void *context;
    /* In the child. */
    weft_status_code (*job)(void *context, int64_t job, int threads, const weft_heartbeat *heart);
    /* In the parent, in the order in which jobs end; an error stops the run. */
    weft_status_code (*done)(void *context, int64_t job, const weft_pool_outcome *outcome);
    int threads; /* of each job */
} weft_pool;

/* WEFT_E_CANCELLED when interrupted; children are gone when it returns. */
weft_status weft_pool_run(const weft_pool *pool);

#endif
