/* Figures of a replayed queue, as text and JSON. */
#ifndef WEFT_PLAN_QUEUE_REPORT_H
#define WEFT_PLAN_QUEUE_REPORT_H

#include "base/json.h"
#include "base/memory.h"
#include "plan/queue/queue_futures.h"

typedef struct weft_queue_score {
    weft_queue_policy policy;
    int64_t jobs, deadlines;                /* deadlines: jobs with one */
    int64_t met;                            /* jobs that ended before their deadlines */
    double mean, median, p95, p99, longest; /* seconds from arrival to end */
    int64_t stops;                          /* running jobs that were stopped for others */
    double bound;                           /* least mean on one worker; 0: several workers */
    weft_queue_prediction prediction;       /* jobs 0: not asked */
} weft_queue_score;

/* A row of a table of predictions, after the heads of its columns if it is the `first`. Jobs 0:
 * prints nothing. */
void weft_queue_prediction_print(const weft_queue_prediction *prediction, const char *policy,
                                 bool first, weft_buf *out);
json_t *weft_queue_prediction_json(const weft_queue_prediction *prediction);

/* Replays a trace with the rules of one policy. `jobs` receives the results. `owners`: number of
 * owners. */
weft_status weft_queue_score_replay(const weft_queue_rules *rules, weft_queue_run *jobs,
                                    int64_t count, int64_t owners, weft_queue_score *score);
/* A table with a row per policy. */
void weft_queue_scores_print(const weft_queue_score *scores, int count, weft_buf *out);
/* The figures with the rules (json_decref). NULL: out of memory. */
json_t *weft_queue_scores_json(const weft_queue_score *scores, int count,
                               const weft_queue_rules *rules);

#endif
