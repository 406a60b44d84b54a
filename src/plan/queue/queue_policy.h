/* The policies of a queue as functions of numbers: the job that a worker has next. `weft serve`
 * asks between the steps of its worker. The predicted waits have the same answers, and `weft
 * simulate serve` replays traces with the same functions.
 *
 *   fifo   order of acceptance; a running job is never stopped for another
 *   srpt   the job with the fewest remaining seconds, less `ageing` seconds per second since its
 *          acceptance
 *   edf    srpt while every job that can meet its deadline still meets it; otherwise the earliest
 *          deadline of these jobs
 *   fair   the owner that has used the fewest seconds, then the order of acceptance
 *
 * A higher priority comes first in every policy. Times are seconds of one clock. */
#ifndef WEFT_PLAN_QUEUE_POLICY_H
#define WEFT_PLAN_QUEUE_POLICY_H

#include "base/status.h"

typedef enum weft_queue_policy {
    WEFT_QUEUE_FIFO,
    WEFT_QUEUE_SRPT,
    WEFT_QUEUE_EDF,
    WEFT_QUEUE_FAIR,
    WEFT_QUEUE_POLICIES
} weft_queue_policy;

/* "srpt" */
const char *weft_queue_policy_name(weft_queue_policy policy);
/* WEFT_QUEUE_POLICIES: no policy has this name. */
weft_queue_policy weft_queue_policy_find(const char *name);

/* A job that is queued or has a worker. */
typedef struct weft_queue_entry {
    int64_t number; /* order of acceptance; unique */
    bool held;      /* a worker has the job */
    int64_t priority;
    double seconds;  /* predicted seconds that remain */
    int64_t rank;    /* order within a priority; jobs of equal rank are in order of acceptance */
    double arrival;  /* time of acceptance */
    double deadline; /* 0: none */
    int64_t owner;   /* index of the owner of the job */
    int64_t steps;   /* that remain, for forecasts; 0: unknown. Policies do not read it. */
} weft_queue_entry;

/* Seconds by which a second of waiting shortens a job: a job waits at most about 50 times its own
 * seconds while shorter ones arrive. */
#define WEFT_QUEUE_AGEING 0.02

typedef struct weft_queue_rules {
    weft_queue_policy policy;
    double ageing;   /* of srpt and edf */
    double start;    /* seconds from the start of a worker to its first step */
    double stop;     /* seconds from the end of a step to the end of a worker that is stopped */
    int64_t workers; /* equal workers, at least 1 */
} weft_queue_rules;

/* The question: a worker is idle, or has finished a step. */
typedef struct weft_queue_question {
    const weft_queue_rules *rules;
    const weft_queue_entry *entries; /* sorted by weft_queue_deadlines_compare */
    int64_t count;
    int64_t held;       /* index of the job of the worker; -1: the worker is idle */
    const double *used; /* seconds that each owner has used */
    double now;
} weft_queue_question;

/* *chosen: index of the job that the worker has next; -1: no job waits. A job other than `held` is
 * chosen if that pays although a worker stops and two start. */
weft_status weft_queue_choose(const weft_queue_question *question, int64_t *chosen);
/* Order by deadline, entries without one last; for qsort. */
int weft_queue_deadlines_compare(const void *a, const void *b);

#endif
