/* Jobs in child processes: a crash or a hang loses only its job. Private to curate/. */
#ifndef WEFT_CURATE_WORKER_POOL_H
#define WEFT_CURATE_WORKER_POOL_H

#include "curate/curate_work.h"

typedef struct weft_pool_outcome {
    weft_status_code status; /* status that the job returned */
    int signal;              /* signal that ended the job; 0: none */
    bool hung;               /* killed by the parent after silence */
    char message[1024];      /* message of the job's error */
} weft_pool_outcome;

/* Children that stay after their jobs, with the models that they opened, for later runs. */
typedef struct weft_pool_residents weft_pool_residents;

typedef struct weft_pool {
    int64_t count;
    int workers;
    double stall_seconds;
    int64_t memory; /* bytes a child can reserve; 0 (default): no limit */
    void *context;
    /* Runs a job, in the child. */
    weft_status_code (*job)(void *context, int64_t job, int threads, const weft_heartbeat *heart);
    /* Called in the parent when a job ends, in order of completion; an error stops the run. The
     * error folder-locked of a job is not of its video and stops the run without this call. */
    weft_status_code (*done)(void *context, int64_t job, const weft_pool_outcome *outcome);
    /* Called in the parent when a job has finished a part (weft_heartbeat_part); NULL: never. */
    void (*part)(void *context, int64_t job);
    /* Counts the models that jobs open (weft_heartbeat_loaded); borrowed. NULL: not counted. */
    int64_t *loaded;
    /* Called in the parent a few times a second; NULL: never. */
    void (*tick)(void *context);
    int threads; /* of each job */
    /* Borrowed; NULL (default): each job has a child of its own. Otherwise `serve` replaces `job`.
     * A child has the memory of its start, so `describe` makes a request with all that the job
     * needs; the request is released after it was sent. */
    weft_pool_residents *residents;
    weft_status_code (*describe)(void *context, int64_t job, json_t **request);
    /* Runs a request, in the child. An error ends the child. */
    weft_status_code (*serve)(void *context, const json_t *request, int threads,
                              const weft_heartbeat *heart);
} weft_pool;

weft_status weft_pool_residents_open(weft_pool_residents **residents);
/* Ends the children, which have no job. Accepts NULL. */
void weft_pool_residents_close(weft_pool_residents *residents);

/* Runs all jobs. All children have exited on return. WEFT_E_CANCELLED: interrupted. */
weft_status weft_pool_run(const weft_pool *pool);

#endif
