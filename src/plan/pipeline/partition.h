/* Cutting a sequence of operators into pipeline stages (PULSE §IV, Eq. 1-5, Algorithm 1).
 *
 * Stage q is the operators [cut[q], cut[q+1]). A skip connection i -> j with j > i + 1 is
 * *collocated* when i lies in stage q and j in stage p-1-q (both run on one device, which keeps the
 * skip tensor in its own memory), or when both lie in the middle stage of an odd number of stages.
 * The objective is the slowest stage,
 *     max over q of  sum of forward seconds + lambda * (latency + output bytes / bandwidth),
 * and among partitions that are equal in it the busiest pair of mirrored stages decides. This is
 * Eq. 1 with the latency of Eq. 2; "output bytes" are those of the stage's last operator, and of
 * the skips that leave the stage without being collocated, where the mode allows that. */
#ifndef WEFT_PLAN_PARTITION_H
#define WEFT_PLAN_PARTITION_H

#include "plan/cost/op_list.h"

/* One operator of a sequence, for one microbatch. All numbers finite and >= 0. */
typedef struct weft_pipe_op {
    const char *name;        /* borrowed, may be NULL */
    double forward;          /* seconds */
    double backward;         /* seconds, input and weight gradients together */
    double output_bytes;     /* what the next operator reads */
    double parameter_bytes;  /* weights as they are stored for compute */
    double activation_bytes; /* kept from forward to backward */
} weft_pipe_op;

typedef struct weft_pipe_costs {
    weft_pipe_op *op; /* [op_count] */
    int64_t op_count;
    weft_skip *skip; /* [skip_count]; from < to */
    int64_t skip_count;
    double lambda;    /* weight of communication in Eq. 1 */
    double bandwidth; /* bytes/s between devices; needed when lambda > 0 */
    double latency;   /* seconds per message */
} weft_pipe_costs;

typedef enum weft_collocation {
    WEFT_COLLOCATE_AUTO,  /* ALL where that is possible, else PRICE */
    WEFT_COLLOCATE_ALL,   /* every skip is collocated: the constraint of Eq. 4 */
    WEFT_COLLOCATE_PRICE, /* a skip may be sent; its bytes count as output of the stage it leaves */
    WEFT_COLLOCATE_NONE,  /* skips are ignored: plain linear partition */
} weft_collocation;

typedef struct weft_partition {
    int64_t stages;
    int64_t *cut; /* [stages + 1], owned; cut[0] = 0, strictly rising, cut[stages] = op_count */
    /* [skip_count], owned; NULL without skips. True too where no device is left */
    bool *collocated;
    double bottleneck;     /* seconds, the objective */
    weft_collocation mode; /* what was used: never AUTO */
    bool proved;           /* no partition of this mode is better */
} weft_partition;

/* Checks ranges: indices, signs, finite numbers; a message that names the operator or skip. */
weft_status weft_pipe_costs_check(const weft_pipe_costs *costs);

/* The best partition into `stages` stages. O(p n^2 log n / 64) per tried bottleneck and about
 * log2(n^2) tries for ALL; O(p n^2) for NONE; up to O(p n^4) for PRICE, which above a work limit
 * falls back to collocating the heaviest skips greedily (proved = false). WEFT_E_INFEASIBLE says
 * what does not fit. */
weft_status weft_partition_solve(const weft_pipe_costs *costs, int64_t stages,
                                 weft_collocation mode, weft_partition *out);

/* The baseline: as equal numbers of operators per stage as possible (cuts at the rounded
 * fractions), whatever they cost and whatever skips. `block` (NULL: every operator is one) gives a
 * rising block number per operator; blocks are not cut. */
weft_status weft_partition_blockwise(const weft_pipe_costs *costs, int64_t stages,
                                     const int64_t *block, weft_partition *out);

/* From given cuts (copied): fills `collocated` and the objective. */
weft_status weft_partition_from_cuts(const weft_pipe_costs *costs, int64_t stages,
                                     const int64_t *cut, weft_collocation mode,
                                     weft_partition *out);
void weft_partition_free(weft_partition *partition);

/* The stage that operator `op` is in. */
int64_t weft_partition_stage_of(const weft_partition *partition, int64_t op);

#endif
