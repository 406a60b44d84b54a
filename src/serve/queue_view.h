/* The unfinished jobs in their order with their expected times. The jobs are read from the store
 * once per change of the store. */
#ifndef WEFT_SERVE_QUEUE_VIEW_H
#define WEFT_SERVE_QUEUE_VIEW_H

#include "plan/queue/queue_futures.h"
#include "serve/share_view.h"

/* Times are seconds since 1970; the start of a job with a worker is unknown. */
typedef struct weft_queue_forecast {
    int64_t position;          /* jobs that run or start before this one */
    double start, end;         /* if no further job is accepted */
    weft_queue_outlook likely; /* with further jobs like the past ones */
} weft_queue_forecast;

/* The present state of the worker and the clock. */
typedef struct weft_queue_moment {
    const weft_queue_rules *rules;
    double now;      /* seconds since 1970 */
    double elapsed;  /* seconds since the worker of the running job started */
    double left;     /* remaining seconds by its progress, without `finish`; negative: unknown */
    int64_t steps;   /* steps that remain; 0: unknown */
    int64_t version; /* another value if `left` has changed */
    double pace;     /* measured seconds per predicted second, at each change of the store; 0: 1 */
    double finish;   /* measured seconds of the end of each video beyond the prediction */
    const weft_share_moment *share; /* the ranks that jobs share; NULL: one worker has all ranks */
    double first; /* predicted seconds of the jobs of the worker, at each change of the store,
                        without the pace; 0: of the first job */
    double step;  /* seconds until the end of the step that runs; 0: unknown */
} weft_queue_moment;

/* Zero-initialised: nothing was read. */
typedef struct weft_queue_view {
    weft_queue_entry *entries;      /* sorted, with the seconds that remain, by the pace; owned */
    weft_queue_forecast *forecasts; /* of the entries; owned */
    weft_elastic_size *sizes;       /* of the first WEFT_SHARE_JOBS, if jobs share ranks; owned */
    int64_t count;
    int64_t *mates; /* numbers of further jobs of the worker, in the batch of the first; owned */
    int64_t mate_count;
    weft_queue_run *past; /* [WEFT_QUEUE_PAST] the newest first, with their seconds by the pace */
    int64_t past_count;
    weft_elastic_size *past_sizes; /* [WEFT_QUEUE_PAST] of the past, if jobs share ranks; owned */
    weft_elastic_job *past_jobs;   /* [WEFT_QUEUE_PAST] the past, if jobs share ranks; owned */
    weft_queue_owners owners;
    double pace;              /* of the seconds */
    double first_seconds;     /* of the first job by the pace, without its progress and `finish` */
    double first_used;        /* seconds that its owner had used before it started */
    int64_t version;          /* of the store; 0: nothing was read */
    weft_queue_moment moment; /* of the forecasts */
} weft_queue_view;

/* Reads the jobs if the store has changed, and predicts their times if the store or the moment
 * differs from the last one's. A progress that confirms the last forecast of the running job counts
 * as no change for a second. */
weft_status weft_queue_view_update(weft_queue_view *view, weft_queue_store *store,
                                   const weft_queue_moment *moment);
/* The forecast of the job `number`; NULL: it is not in the queue. */
const weft_queue_forecast *weft_queue_view_find(const weft_queue_view *view, int64_t number);
/* The forecast of a job that would be accepted last, with its seconds without a pace. `owner`: its
 * name. `size`: of jobs that share ranks, with the pace. */
weft_status weft_queue_view_predict(const weft_queue_view *view, const weft_queue_entry *last,
                                    const char *owner, const weft_elastic_size *size,
                                    weft_queue_forecast *forecast);
/* *number: of the job that the worker has next by the rules; 0: no job waits. */
weft_status weft_queue_view_choose(const weft_queue_view *view, int64_t *number);
void weft_queue_view_free(weft_queue_view *view);

#endif
