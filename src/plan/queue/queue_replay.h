/* Runs a queue on a clock: jobs arrive, workers do their steps, and weft_queue_choose decides at
 * the end of every step. With jobs that have all arrived, the result is the forecast of a queue. */
#ifndef WEFT_PLAN_QUEUE_REPLAY_H
#define WEFT_PLAN_QUEUE_REPLAY_H

#include "plan/queue/queue_policy.h"

typedef struct weft_queue_run {
    weft_queue_entry entry; /* held: is running at the begin */
    double actual;          /* seconds that the job takes from now; entry.seconds is a prediction */
    int64_t steps;          /* parts of `actual`, at least 1: the first has `first` seconds, and the
                               others are equal */
    double first; /* seconds until the end of the step that runs; 0: all parts are equal */
    /* results */
    double start, end; /* the first start of a worker, and the end; a held job starts at `now` */
    int64_t position;  /* order of the starts */
    int64_t stops;     /* how often the job was stopped for another */
} weft_queue_run;

/* Called when a job has arrived, before the policy decides. `present`: the unfinished jobs with the
 * seconds and steps that remain; `newest`: index of the arrived one. */
typedef struct weft_queue_watch {
    weft_status (*arrived)(void *context, const weft_queue_run *present, int64_t count,
                           int64_t newest, const double *used, double now);
    void *context;
} weft_queue_watch;

/* Runs all jobs from the time `now`. `used` ([owners], seconds) is updated. */
weft_status weft_queue_replay(const weft_queue_rules *rules, weft_queue_run *jobs, int64_t count,
                              double *used, double now);
/* Stops when jobs[0..wanted) have ended; other results are undefined. `watch`: NULL: none. */
weft_status weft_queue_replay_first(const weft_queue_rules *rules, weft_queue_run *jobs,
                                    int64_t count, int64_t wanted, double *used, double now,
                                    const weft_queue_watch *watch);
/* The mean of end - arrival that no schedule on one worker undercuts: the shortest remaining time
 * first, without costs of a change, from the actual seconds. */
weft_status weft_queue_least_mean(const weft_queue_run *jobs, int64_t count, double *mean);

#endif
