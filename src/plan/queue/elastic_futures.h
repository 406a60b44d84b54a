/* Predicted ends of jobs on shared devices: the jobs are replayed with several sampled futures,
 * like the jobs of one worker (queue_futures.h). */
#ifndef WEFT_PLAN_ELASTIC_FUTURES_H
#define WEFT_PLAN_ELASTIC_FUTURES_H

#include "plan/queue/elastic_replay.h"
#include "plan/queue/queue_outlook.h"

/* The past that makes the futures. */
typedef struct weft_elastic_past {
    const weft_elastic_job *jobs; /* accepted jobs; may have arrived in any order */
    int64_t count;
    double gap; /* mean seconds between arrivals; 0: no later jobs */
} weft_elastic_past;

/* Mean seconds between `count` arrivals since `first`, lengthened if the devices could not do the
 * work; 0: the past is too short. */
double weft_elastic_past_gap(const weft_elastic_job *jobs, int64_t count, double first, double now,
                             int64_t devices);
/* Number of futures of a prediction for `count` jobs: fewer for long queues, so that it takes a few
 * milliseconds; 0: the queue is too long, or the past too short. */
int64_t weft_elastic_futures_of(const weft_elastic_rules *rules, int64_t count,
                                const weft_elastic_past *past);
/* jobs: [count] that have arrived by `now`. outlooks: [count]. futures: 0: no later jobs come.
 * Equal arguments give equal outlooks. */
weft_status weft_elastic_foresee(const weft_elastic_rules *rules, const weft_elastic_job *jobs,
                                 int64_t count, double now, const weft_elastic_past *past,
                                 int64_t futures, weft_queue_outlook *outlooks);
/* Replays a trace, and predicts each job at its arrival, with exact seconds, from the past jobs.
 * jobs: sorted by arrival; they receive the results of the replay. */
weft_status weft_elastic_predict_trace(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                       int64_t count, weft_queue_prediction *prediction);

#endif
