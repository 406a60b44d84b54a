/* Cuts a sequence of operators into pipeline stages (PULSE §IV, Eq. 1-5, Algorithm 1).
 *
 * Stage q is the operators [cut[q], cut[q+1]). A skip connection i -> j with j > i + 1 is
 * *collocated* when i is in stage q and j in stage p-1-q. It is also collocated when both are in
 * the middle stage of an odd number of stages. Both stages run on one device, which keeps the skip
 * tensor in its own memory. The objective is the slowest stage,
 *     max over q of  sum of forward seconds + lambda * (latency + output bytes / bandwidth),
 * and ties are broken by the busiest pair of mirrored stages. This is Eq. 1 with the latency of
 * Eq. 2. "Output bytes" are the output of the stage's last operator plus, where the mode allows it,
 * the skips that leave the stage without being collocated. */
#ifndef WEFT_PLAN_PARTITION_H
#define WEFT_PLAN_PARTITION_H

#include "plan/ops/op_list.h"

/* One operator of a sequence, for one microbatch. All values are finite and >= 0. */
typedef struct weft_pp_op {
    const char *name;        /* borrowed, may be NULL */
    double forward;          /* seconds */
    double backward;         /* seconds, input and weight gradients together */
    double output_bytes;     /* read by the next operator */
    double parameter_bytes;  /* weights in the compute dtype */
    double activation_bytes; /* saved for the backward */
} weft_pp_op;

typedef struct weft_pp_costs {
    weft_pp_op *op; /* [op_count] */
    int64_t op_count;
    weft_skip *skip; /* [skip_count]; from < to */
    int64_t skip_count;
    double lambda;    /* weight of communication in Eq. 1 */
    double bandwidth; /* bytes/s between devices; required if lambda > 0 */
    double latency;   /* seconds per message */
} weft_pp_costs;

typedef enum weft_collocation {
    WEFT_COLLOCATE_AUTO, /* ALL if possible, otherwise PRICE */
    WEFT_COLLOCATE_ALL,  /* every skip is collocated: the constraint of Eq. 4 */
    WEFT_COLLOCATE_COST, /* a skip may be sent; its bytes count as output of its first stage */
    WEFT_COLLOCATE_NONE, /* skips are ignored: plain linear partition */
} weft_collocation;

typedef struct weft_partition {
    int64_t pp_stages;
    int64_t *cut; /* [stages + 1], owned; cut[0] = 0, strictly rising, cut[pp_stages] = op_count */
    /* [skip_count], owned; NULL without skips. Also true for a skip that stays on its device */
    bool *collocated;
    double bottleneck;     /* seconds, the objective */
    weft_collocation mode; /* mode in use, never AUTO */
    bool proved;           /* no partition of this mode is better */
    int64_t tries;         /* bottlenecks that weft_partition_solve tried */
} weft_partition;

/* Checks ranges: indices, signs, finite numbers. An error names the operator or skip. */
weft_status weft_pp_costs_check(const weft_pp_costs *costs);

/* Finds the best partition into `pp_stages` stages. O(p n^2 log n / 64) per tried bottleneck and
 * about log2(n^2) tries for ALL; O(p n^2) for NONE; up to O(p n^4) for PRICE. Above a work limit,
 * PRICE collocates the heaviest skips greedily (proved = false). WEFT_E_INFEASIBLE names the
 * reason. */
weft_status weft_partition_solve(const weft_pp_costs *costs, int64_t pp_stages,
                                 weft_collocation mode, weft_partition *out);

/* Baseline: numbers of operators per stage as equal as possible (cuts at the rounded fractions),
 * regardless of cost and skips. `block` gives an ascending block number per operator; blocks are
 * not cut. NULL: every operator is a block. */
weft_status weft_partition_blockwise(const weft_pp_costs *costs, int64_t pp_stages,
                                     const int64_t *block, weft_partition *out);

/* Makes a partition from cuts (copied): sets `collocated` and the objective. */
weft_status weft_partition_from_cuts(const weft_pp_costs *costs, int64_t pp_stages,
                                     const int64_t *cut, weft_collocation mode,
                                     weft_partition *out);
void weft_partition_free(weft_partition *partition);

/* Returns the stage of operator `op`. */
int64_t weft_partition_stage_of(const weft_partition *partition, int64_t op);

#endif
