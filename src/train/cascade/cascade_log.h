/* What iterations of cascades were planned as and what they came to, in <out>/cascades:
 *
 *     plans.jsonl        a line per iteration, which `parallel.cascades.plan` replays
 *     iterations.jsonl   planned and executed start and end of every cascade, idle shares, the
 *                        gap to the lower bound, bytes handed on, how far costs were off
 *     timeline.svg       the last iteration of a stage, plan above execution
 *     trace.json         the same for Perfetto
 */
#ifndef WEFT_TRAIN_CASCADE_LOG_H
#define WEFT_TRAIN_CASCADE_LOG_H

#include "train/cascade_ahead.h"

/* One iteration as all ranks saw it. Seconds of the common clock (runtime/common_clock.h) from when
 * the first rank began, so that times of two ranks can be compared. */
typedef struct weft_executed {
    int ranks;
    int64_t cascades;
    weft_cascade_done *of; /* [ranks][cascades] */
    double *start, *end;   /* [cascades] from when all its ranks were there to the last one's end */
    double *seconds;       /* [cascades] of that; NAN: nobody took part */
    bool *cold;            /* [cascades] the first run of its program on some rank */
    double *idle;          /* [ranks] share of the makespan */
    double *module;        /* [WEFT_CASCADE_MODULES] rank-seconds */
    double makespan, all, reduce; /* all: with the update */
    /* When the last rank had the sums of gradients, 0: the update made them; and how long after the
     * last cascade that was, with the update where that made them. */
    double summed, exposed;
    double clock_age;                          /* of rank 0; see weft_iteration_done */
    double compiled;                           /* of the rank that compiled longest */
    int64_t in_place, received, sent, reduced; /* bytes, sums over ranks */
    double peak;                               /* of any program */
} weft_executed;
/* Collective; `out` is freed with weft_executed_free on every rank. */
weft_status weft_cascade_gather(weft_comm *comm, const weft_placed_iteration *plan,
                                const weft_iteration_done *done, weft_executed *out);
void weft_executed_free(weft_executed *executed);

typedef struct weft_cascade_log weft_cascade_log;
/* On rank 0. What the folder says of iterations from `step` on, by a run that was killed, is
 * removed. */
weft_status weft_cascade_log_open(const char *run, const weft_plans_stamp *stamp, int64_t step,
                                  weft_cascade_log **out);
/* `text`: the line of the plan as it was executed. */
weft_status weft_cascade_log_note(weft_cascade_log *log, const weft_placed_iteration *plan,
                                  const char *text, const weft_ahead_news *news,
                                  const weft_cascade_fit *fit, const weft_executed *executed);
/* Writes the pictures of the iteration that was noted last; accepts NULL. */
weft_status weft_cascade_log_close(weft_cascade_log *log);
/* Of a stage that is not brought to its end: no pictures. Accepts NULL. */
void weft_cascade_log_drop(weft_cascade_log *log);

/* The table of `weft plan cascades` of one iteration. */
void weft_placed_print(const weft_placed_iteration *plan, weft_buf *out);
/* Its chart; with `executed` (or NULL) that below it. */
weft_status weft_placed_svg(const char *title, const weft_placed_iteration *plan, int ranks,
                            const weft_executed *executed, weft_buf *svg);

#endif
