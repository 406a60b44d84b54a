/* Late dispatch: rank 0 decides where and when each cascade of an iteration starts.
 *
 *     rank 0   dispatcher's thread ── s2.dit on [1 3] at 0.42 s ──> courier's thread of every rank
 *                  ^                                                  sends and receives rows,
 *                  └── s1.vae of rank 3 ended at 0.41 s ──            wakes the rank's own thread
 *
 * The rule is plan/cascade/dispatch.h. All ranks see the decisions in one order, so no two groups
 * wait for each other in a circle. The decisions form the executed plan, whose starts give the same
 * order: an executor that is given that plan runs the same programs on the same ranks in the same
 * order, with bitwise the same results. Against the planned groups, sums of gradients differ by
 * rounding only, as between any two plans.
 *
 * On a device with a modelled clock the dispatcher waits until the end of all running cascades is
 * known before it decides, and takes the ends in the order of the clock: decisions do not depend on
 * which thread runs first. Elsewhere it decides when the report of an end arrives, by the clock
 * that all ranks share. */
#ifndef WEFT_TRAIN_CASCADE_LATE_H
#define WEFT_TRAIN_CASCADE_LATE_H

#include "runtime/common_clock.h"
#include "train/cascade_hand.h"

typedef struct weft_late_setup {
    weft_comm *comm;
    double *modelled; /* modelled time of this rank's thread; NULL: `common` counts */
    const weft_common_clock *common;
    int per_node;       /* ranks of a node; 0: one node */
    const double *slow; /* [ranks] on rank 0: factor on seconds; NULL: 1 */
    bool retire;        /* ranks that are predicted to get no further gradients get none */
} weft_late_setup;

/* What this rank's thread does next. */
typedef struct weft_late_task {
    int32_t index; /* cascade to run; -1: none */
    bool last;     /* this rank gets no further cascade with gradients */
    bool over;     /* the iteration has no further cascade for this rank */
    double time;   /* modelled time of the decision */
} weft_late_task;

typedef struct weft_late weft_late;
/* A copy of `plan` that receives decisions, without `late`: it is executed as it is. Freed with
 * weft_late_plan_free. */
weft_status weft_late_plan(const weft_placed_iteration *plan, int ranks,
                           weft_placed_iteration *out);
void weft_late_plan_free(weft_placed_iteration *plan);
/* `plan` is of weft_late_plan, `hands` is open over it without an order, done[] is that of the
 * iteration, which began at `begin`. Starts the rank's thread. Everything is borrowed. */
weft_status weft_late_open(const weft_late_setup *setup, weft_placed_iteration *plan,
                           weft_hands *hands, double begin, weft_cascade_done *done,
                           weft_late **out);
/* Waits for the next task. */
weft_status weft_late_next(weft_late *late, weft_late_task *task);
/* This rank's part of its task is done. */
weft_status weft_late_ended(weft_late *late, int32_t index);
/* Waits for the threads. After an error: after weft_comm_give_up. Accepts NULL. */
weft_status weft_late_close(weft_late *late);

#endif
