/* Seconds of jobs by the number of their ranks, as functions of the price and of the jobs that have
 * ended. On equal ranks, a job takes
 *
 *     predicted seconds of its steps * (pace + crowded * crowd) + steps * step
 *
 * `crowd` is the share of the other ranks that run jobs, which take memory bandwidth and caches.
 * `step` is time of each step that the price lacks, such as the waits of ranks for each other. The
 * three numbers are fitted to the last jobs. Functions of numbers. */
#ifndef WEFT_SERVE_RANK_SECONDS_H
#define WEFT_SERVE_RANK_SECONDS_H

#include "plan/queue/elastic_sizes.h"

#include <stdbool.h>

enum { WEFT_RANK_RUNS = 24 };

/* Steps that were measured. */
typedef struct weft_rank_run {
    double predicted; /* seconds by the price */
    double steps;
    double crowd;  /* mean, 0 to 1 */
    double actual; /* seconds */
    bool cold;     /* of the first job of a worker, which is slower */
} weft_rank_run;

typedef struct weft_rank_seconds {
    weft_rank_run runs[WEFT_RANK_RUNS]; /* the oldest is replaced */
    int64_t count;                      /* of all runs; 0: nothing is known */
    bool is_warm;                       /* the runs are not cold */
    double pace, crowded, step;         /* fitted */
    double slowness;                    /* mean seconds with a crowd of 1, per second alone */
    /* means of the last jobs: seconds of a start on an idle worker, of a start with a new worker,
     * and of the end of a video per predicted second of its decoding */
    double warm, cold, ending;
    int64_t warms, colds, endings;
} weft_rank_seconds;

/* Seconds on 1, 2, 4 and 8 ranks. */
typedef struct weft_rank_table {
    weft_rank_seconds at[WEFT_ELASTIC_DEGREES];
} weft_rank_table;

/* Fits the seconds to one more run. A cold one counts only while all are. */
void weft_rank_seconds_add(weft_rank_seconds *seconds, const weft_rank_run *run);
/* Adds a value to a mean of the last ones. */
void weft_rank_mean_add(double *mean, int64_t *count, double value);
/* The seconds on `1 << degree` ranks, without the runs. Unknown ones are taken from other numbers
 * of ranks, or else are a pace of 1 and starts of 0 seconds. The pace of another number of ranks is
 * rooted: half of its logarithm is expected to be the machine's. The other half is due to the
 * number of ranks, such as waits for each other. An unknown end has the pace. */
weft_rank_seconds weft_rank_table_of(const weft_rank_table *table, int degree);
/* Seconds of steps. */
double weft_rank_seconds_of(const weft_rank_seconds *seconds, double predicted, double steps,
                            double crowd);

#endif
