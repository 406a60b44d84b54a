/* Late dispatch: rank 0 decides where and when each cascade of an iteration starts.
 *
 *     rank 0   dispatcher thread ── s2.dit on [1 3] at 0.42 s ──> courier thread of every rank
 *                  ^                                                 sends and receives rows,
 *                  └── s1.vae of rank 3 ended at 0.41 s ──           wakes the rank's own thread
 *
 * The rule is plan/cascade/dispatch.h. All ranks receive the decisions in one order, so groups
 * never wait for each other in a cycle. The decisions form the executed plan, whose starts give
 * the same order. An executor with that plan runs the same programs on the same ranks in the same
 * order, with bitwise identical results. Compared with the planned groups, reduced gradients
 * differ by rounding only, as between any two plans.
 *
 * On a device with a simulated clock the dispatcher decides after the ends of all running cascades
 * are known, in the order of the clock. Decisions therefore do not depend on thread timing. On
 * other devices the dispatcher decides when the report of an end arrives, by the common clock of
 * all ranks. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_LATE_H
#define WEFT_TRAIN_CASCADE_CASCADE_LATE_H

#include "comm/common_clock.h"
#include "plan/cascade/dispatch.h"
#include "train/cascade/latent_transfer.h"

typedef struct weft_late_setup {
    weft_comm *comm;
    double *simulated_time; /* clock of this rank's thread; NULL: use `common` */
    const weft_common_clock *common;
    int per_node;       /* ranks of a node; 0: one node */
    const double *slow; /* [ranks] slowdown factors, on rank 0; NULL: 1 */
    /* true: ranks predicted to get no further gradients start their all-reduce early; no cascade
     * with gradients is then dispatched to them */
    bool retire;
    /* [cascades] seconds of latent transfers, on rank 0; NULL: no time */
    const weft_dispatch_hand *transfer;
    /* searches of rank 0; NULL: idle ranks in the plan's order */
    const weft_dispatch_replan *replan;
} weft_late_setup;

/* Next task of this rank's thread. */
typedef struct weft_late_task {
    int32_t index; /* cascade to run; -1: none */
    bool last;     /* this rank gets no further cascade with gradients */
    bool over;     /* the iteration has no further cascade for this rank */
    double time;   /* simulated time of the decision */
} weft_late_task;

typedef struct weft_late weft_late;
/* Copies `plan` to a plan that receives decisions. `late` and `search` are false in the copy: later
 * executions follow the decisions. Freed with weft_late_plan_free. */
weft_status weft_late_plan(const weft_placed_iteration *plan, int ranks,
                           weft_placed_iteration *out);
void weft_late_plan_free(weft_placed_iteration *plan);
/* Starts late dispatch and this rank's courier (rank 0: dispatcher) thread. `plan` is from
 * weft_late_plan. `transfer` is open without an order. `begin` and done[] belong to the iteration.
 * All arguments are borrowed. */
weft_status weft_late_open(const weft_late_setup *setup, weft_placed_iteration *plan,
                           weft_latent_transfer *transfer, double begin, weft_cascade_timing *done,
                           weft_late **out);
/* Waits for the next task of this rank. */
weft_status weft_late_next(weft_late *late, weft_late_task *task);
/* Reports that this rank finished its part of cascade `index`. */
weft_status weft_late_ended(weft_late *late, int32_t index);
/* Waits for the threads and frees. *searches: number of searches of rank 0; 0 on other ranks. After
 * an error call weft_comm_abort first. Accepts NULL. */
weft_status weft_late_close(weft_late *late, int64_t *searches);

#endif
