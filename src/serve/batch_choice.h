/* Batches of equal jobs: jobs that differ in prompts and seed alone can be generated together. The
 * main thread's; the caller has the server's lock. */
#ifndef WEFT_SERVE_BATCH_CHOICE_H
#define WEFT_SERVE_BATCH_CHOICE_H

#include "serve/prices.h"
#include "serve/queue_view.h"

enum { WEFT_BATCH_JOBS = 16 };

/* The jobs that the worker has. */
typedef struct weft_job_set {
    char id[WEFT_BATCH_JOBS][WEFT_QUEUE_ID]; /* of the first job, then of the others */
    bool ended[WEFT_BATCH_JOBS];             /* the end of the job is in the queue */
    int count;
    double seconds; /* predicted seconds of all together, without the pace */
} weft_job_set;

/* Whether two requests can be generated together: equal values but prompts and seed, no files. */
bool weft_batch_is_equal(const json_t *a, const json_t *b);
/* Seconds of a video of a batch per second of a video alone; below 1 the batch is faster. Measured
 * seconds count if both were measured, else predicted ones. */
double weft_batch_ratio(const weft_price *alone, const weft_price *together);

/* Whether a batch makes another waiting job miss a deadline that it is expected to meet. `seconds`:
 * of the batch, without the pace. */
bool weft_batch_delays(const weft_queue_view *queue, const weft_queue_job *jobs, int count,
                       double seconds);

struct weft_server;
/* Adds jobs of the queue to jobs[0], up to `most` in total. The batch is predicted to be faster,
 * fits the memory limit, and keeps the deadlines of its jobs and of all others. *count: jobs in
 * total; 0: a price is being asked, call again later. *seconds: predicted seconds of all that
 * remain, without the pace. The added jobs are the caller's. */
weft_status weft_batch_choose(struct weft_server *server, int most, weft_queue_job *jobs,
                              int *count, double *seconds);
/* Records the seconds that a batch of `count` jobs took from its first step. */
void weft_batch_measured(struct weft_server *server, const json_t *request, int count,
                         double seconds);

#endif
