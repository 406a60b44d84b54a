/* Runs a queue on a clock: jobs arrive, workers do their steps, and weft_queue_choose decides at
 * the end of every step. With jobs that have all arrived, the result is the forecast of a queue. */
#ifndef WEFT_PLAN_QUEUE_REPLAY_H
#define WEFT_PLAN_QUEUE_REPLAY_H

#include "plan/queue/queue_policy.h"

typedef struct weft_queue_run {
    weft_queue_entry entry; /* held: is running at the begin */
    double actual;          /* seconds that the job takes from now; entry.seconds is a prediction */
    int64_t steps;          /* equal parts of `actual`, at least 1 */
    /* results */
    double start, end; /* the first start of a worker, and the end; a held job starts at `now` */
    int64_t position;  /* order of the starts */
    int64_t stops;     /* how often the job was stopped for another */
} weft_queue_run;

/* Runs all jobs from the time `now`. `used` ([owners], seconds) is updated. */
weft_status weft_queue_replay(const weft_queue_rules *rules, weft_queue_run *jobs, int64_t count,
                              double *used, double now);
/* The mean of end - arrival that no schedule on one worker undercuts: the shortest remaining time
 * first, without costs of a change, from the actual seconds. */
weft_status weft_queue_least_mean(const weft_queue_run *jobs, int64_t count, double *mean);

#endif
