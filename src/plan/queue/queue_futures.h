/* Predicted ends of jobs that later jobs may overtake. The queue is replayed with several sampled
 * futures: later jobs come at random, as often as the past ones did, and are like the past ones. */
#ifndef WEFT_PLAN_QUEUE_FUTURES_H
#define WEFT_PLAN_QUEUE_FUTURES_H

#include "plan/queue/queue_outlook.h"
#include "plan/queue/queue_replay.h"

/* Most futures of a prediction; past jobs that make a future, and the fewest that do. */
enum { WEFT_QUEUE_FUTURES = 32, WEFT_QUEUE_PAST = 64, WEFT_QUEUE_PAST_LEAST = 8 };

/* The number and rank of the first later job. */
#define WEFT_QUEUE_LATER (INT64_MAX / 2)

/* The past that makes the futures. */
typedef struct weft_queue_past {
    const weft_queue_run *jobs; /* accepted jobs; may have arrived in any order */
    int64_t count;
    double gap; /* mean seconds between arrivals; 0: no later jobs */
} weft_queue_past;

/* Mean seconds between `count` arrivals since `first`. More work than the workers do would never
 * end, so a gap that implies it, such as of jobs that were sent together, is lengthened. */
double weft_queue_past_gap(const weft_queue_run *jobs, int64_t count, double first, double now,
                           int64_t workers);
/* Number of futures of a prediction for `count` jobs: fewer for long queues, so that it takes a few
 * milliseconds; 0: the queue is too long, or the past too short. */
int64_t weft_queue_futures_of(const weft_queue_rules *rules, int64_t count,
                              const weft_queue_past *past);
/* The jobs[0..count) are unfinished, with numbers and ranks below WEFT_QUEUE_LATER; `used`:
 * [owners]. outlooks: [count]. futures: 0: no later jobs come. Equal arguments give equal
 * outlooks. */
weft_status weft_queue_foresee(const weft_queue_rules *rules, const weft_queue_run *jobs,
                               int64_t count, const double *used, int64_t owners, double now,
                               const weft_queue_past *past, int64_t futures,
                               weft_queue_outlook *outlooks);

/* Replays a trace, and predicts each job at its arrival from the past jobs. Refuses a trace that
 * takes much longer than minutes. */
weft_status weft_queue_predict_trace(const weft_queue_rules *rules, const weft_queue_run *jobs,
                                     int64_t count, int64_t owners,
                                     weft_queue_prediction *prediction);

#endif
