/* The main thread's state of a group: its worker and the job that the worker has. */
#ifndef WEFT_SERVE_SUPERVISOR_PARTS_H
#define WEFT_SERVE_SUPERVISOR_PARTS_H

#include "serve/worker_process.h"

/* One per group; lives as long as the main thread serves. */
struct weft_supervisor {
    weft_server *server;
    weft_served_group *group;
    weft_worker worker;
    bool used;       /* the worker has had a job */
    bool cold;       /* the running job is the first of its worker */
    double start;    /* measured seconds of the running job's start; negative: unknown */
    double denoised; /* weft_now() of the end of its steps; 0: they have not ended */
    bool signalled;  /* the worker was asked to stop its job */
    bool discards;   /* without saving it */
    double stopped;  /* weft_now() of that request */
    int64_t next;    /* number of the job for which another was stopped; 0: none */
    bool retired;    /* the worker, which has no job, was asked to end */
    double retiring; /* weft_now() of that request */
    /* the first and the last report of the steps that are measured on shared ranks */
    struct weft_step_report {
        double at, crowd_seconds;
        int64_t done;
    } reports[2];
    double retry;        /* weft_now() from which jobs start again: the disk was full */
    int64_t versions[2]; /* of the queue and of the progress at the last choice */
    /* how the job ended, until it is stored */
    bool ended;
    weft_worker_end end;
    weft_queue_change change;
};

#endif
