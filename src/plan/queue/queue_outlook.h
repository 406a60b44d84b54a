/* A job's end as predicted from the ends in several futures, and how well such predictions were.
 * Pure functions of numbers. */
#ifndef WEFT_PLAN_QUEUE_OUTLOOK_H
#define WEFT_PLAN_QUEUE_OUTLOOK_H

#include <stdint.h>

/* The relative error by which a predicted wait may differ from the actual one. */
#define WEFT_QUEUE_NEAR 0.25

typedef struct weft_queue_outlook {
    double start, end;       /* end: its wait is close to the waits of the most futures */
    double earliest, latest; /* of the end: quantiles 5 % and 95 % */
    double bound; /* largest share of the futures that have waits near to one prediction */
} weft_queue_outlook;

/* The outlook of a job at `now`. starts, ends: [count] of the futures, at least one; sorted. */
void weft_queue_outlook_of(double *starts, double *ends, int64_t count, double now,
                           weft_queue_outlook *outlook);

/* How well the ends of a trace were predicted when their jobs arrived. */
typedef struct weft_queue_prediction {
    int64_t jobs;
    double error;    /* median of |predicted wait / actual wait - 1| */
    double near;     /* share of the jobs whose wait was near */
    double in_range; /* share of the jobs that ended between `earliest` and `latest` */
    double bound;    /* near of predictions that know the frequency and sizes of all jobs of the
                        trace, but not the jobs that come */
} weft_queue_prediction;

/* The prediction of a job at its arrival, and its end. */
typedef struct weft_queue_judged {
    double arrival, end;
    weft_queue_outlook outlook;
    double bound; /* near of predictions that know the frequency and sizes of all jobs */
    double error; /* result: |predicted wait / actual wait - 1| */
} weft_queue_judged;

/* jobs: [count], sorted by their errors. */
void weft_queue_judge(weft_queue_judged *jobs, int64_t count, weft_queue_prediction *prediction);

#endif
