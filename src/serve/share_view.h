/* Jobs that share the ranks of the server (--policy share): several run at the same time, each on
 * ranks of its own. The decision is weft_elastic_choose (plan/queue/elastic_policy.h), which
 * `weft simulate serve --degrees` replays. Functions of numbers and of the text of a request. */
#ifndef WEFT_SERVE_SHARE_VIEW_H
#define WEFT_SERVE_SHARE_VIEW_H

#include "plan/queue/elastic_replay.h"
#include "serve/queue_store.h"
#include "serve/rank_seconds.h"

/* Most ranks to share, and most jobs of a decision and of an exact forecast. */
enum { WEFT_SHARE_RANKS = WEFT_ELASTIC_DEVICES, WEFT_SHARE_JOBS = 128 };

/* A job that a worker has. */
typedef struct weft_share_held {
    int64_t number, ranks;
    double left;   /* seconds until its end, while the other jobs run */
    int64_t steps; /* that remain, after the last step that has ended; 0: no step has ended; -1: all
                      have ended */
} weft_share_held;

/* The present state of the ranks. */
typedef struct weft_share_moment {
    double now; /* seconds since 1970 */
    int64_t ranks;
    bool elastic;  /* the ranks of a job can change between two steps */
    double change; /* seconds that a change of the ranks, or the start of a worker, takes */
    weft_elastic_starts starts; /* on 1, 2, 4 and 8 ranks, with the workers without a job */
    double slowness[WEFT_ELASTIC_DEGREES]; /* as `crowded` of weft_elastic_rules; 0: 1 */
    const weft_rank_table *table;          /* the seconds of jobs; NULL: as the prices say */
    weft_share_held held[WEFT_SHARE_RANKS];
    int count;
} weft_share_moment;

/* A job that starts. */
typedef struct weft_share_choice {
    int64_t number, ranks;
} weft_share_choice;

/* Seconds of a job by its ranks, alone, from the table and its request: {"steps", "degrees":
 * [{"ranks", "seconds", "decode_seconds", which are a part}], "ranks": of its last run}. A job that
 * has finished steps keeps its ranks unless `elastic`. Only remaining steps count. A job that was
 * accepted without degrees can have `all` ranks. */
void weft_share_size(const weft_queue_job *job, bool elastic, const weft_rank_table *table,
                     int64_t all, weft_elastic_size *size);
/* Seconds of a step by the price, without the table; 0: the price lacks these ranks. */
double weft_share_step_price(const weft_queue_job *job, int64_t ranks);
/* The ranks as an exponent of two: 0 to WEFT_ELASTIC_DEGREES - 1. */
int weft_share_degree(int64_t ranks);

struct weft_queue_view;
struct weft_queue_forecast;
/* Predicts the entries of the view, and then `last` with `size` (NULL: none). forecasts: [count],
 * and one more with `last`. Jobs beyond WEFT_SHARE_JOBS are predicted to follow in sequence. */
weft_status weft_share_predict(const struct weft_queue_view *view, const weft_queue_entry *last,
                               const weft_elastic_size *size,
                               struct weft_queue_forecast *forecasts);
/* The jobs that start now. choices: [WEFT_SHARE_RANKS]. */
weft_status weft_share_choose(const struct weft_queue_view *view, weft_share_choice *choices,
                              int *count);
/* The ranks that the job `number`, which is between two steps, has for its next step; 0: it waits.
 */
weft_status weft_share_resize(const struct weft_queue_view *view, int64_t number, int64_t *ranks);

#endif
