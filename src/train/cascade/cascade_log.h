/* Log of planned and executed iterations, in <out>/cascades:
 *
 *     plans.jsonl        a line per iteration; input of `parallel.cascades.plan`
 *     iterations.jsonl   planned and executed start and end of every cascade, idle shares, gap to
 *                        the lower bound, transferred bytes, errors of the estimates
 *     timeline.svg       the last iteration of a training stage: plan above, execution below
 *     trace.json         the same iteration for Perfetto */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_LOG_H
#define WEFT_TRAIN_CASCADE_CASCADE_LOG_H

#include "comm/comm.h"
#include "train/cascade/cascade_planner.h"

/* Timing of one iteration on all ranks. Times are seconds on the common clock (comm/common_clock.h)
 * since the first rank began, so times of different ranks are comparable. */
typedef struct weft_iteration_timing {
    int ranks;
    int64_t cascades;
    weft_cascade_timing *of;      /* [ranks][cascades] */
    double *start, *end;          /* [cascades] last rank began; last rank ended */
    double *seconds;              /* [cascades] end - start; NAN: no rank ran it */
    bool *cold;                   /* [cascades] first run of its program on any rank */
    double *idle;                 /* [ranks] share of the makespan */
    double *module;               /* [WEFT_CASCADE_MODULES] rank-seconds */
    double makespan, all, reduce; /* all: with the update; reduce: maximum of the ranks */
    /* summed: time at which the last rank had the reduced gradients; 0: the update reduced them.
     * exposed: seconds of the all-reduce after the last cascade; includes the update if the update
     * reduces. */
    double summed, exposed;
    double clock_age;                          /* seconds, of rank 0; see weft_iteration_done */
    double compiled;                           /* seconds of compilation, maximum of the ranks */
    int64_t in_place, received, sent, reduced; /* bytes, totals of all ranks */
    double peak;                               /* bytes of the largest program */
} weft_iteration_timing;
/* Collective. Gathers the timing of all ranks. `out` is freed with weft_iteration_timing_free on
 * every rank. */
weft_status weft_cascade_gather(weft_comm *comm, const weft_placed_iteration *plan,
                                const weft_iteration_done *done, weft_iteration_timing *out);
void weft_iteration_timing_free(weft_iteration_timing *executed);

typedef struct weft_cascade_log weft_cascade_log;
/* Opens the log on rank 0. Removes lines of iterations from `step` on, which a killed run left. */
weft_status weft_cascade_log_open(const char *run, const weft_plans_stamp *stamp, int64_t step,
                                  weft_cascade_log **out);
/* Appends an iteration. `text`: JSON line of the executed plan. */
weft_status weft_cascade_log_record(weft_cascade_log *log, const weft_placed_iteration *plan,
                                    const char *text, const weft_planning_stats *stats,
                                    const weft_cascade_fit *fit,
                                    const weft_iteration_timing *executed);
/* Writes timeline.svg and trace.json of the last iteration and frees the log. Accepts NULL. */
weft_status weft_cascade_log_close(weft_cascade_log *log);
/* Frees the log of an unfinished stage without writing charts. Accepts NULL. */
void weft_cascade_log_drop(weft_cascade_log *log);

/* Appends the table of one iteration, as `weft plan cascades` prints it. */
void weft_placed_print(const weft_placed_iteration *plan, weft_buf *out);
/* Appends the chart of a plan. `executed`: a second chart below shows the execution; NULL: none. */
weft_status weft_placed_svg(const char *title, const weft_placed_iteration *plan, int ranks,
                            const weft_iteration_timing *executed, weft_buf *svg);

#endif
