/* Searches for plans with the shortest expected iteration under measured errors of the estimates.
 *
 * The makespan of a plan whose groups all end together is the maximum of the groups' times. A few
 * cascades that take longer than predicted therefore cancel most of the gain of a tight plan. This
 * search minimises the mean over scenarios of
 *
 *     max(makespan + last, summing + reduce)
 *
 * Latent transfers take their seconds. The gradient all-reduce (`reduce` seconds in all, `last`
 * for its last part) begins with the last backward (weft_placed_reductions_after). A scenario
 * draws one factor per cascade from the record of measured / predicted seconds. All plans are
 * compared on the same factors (common random numbers), which depend on the seed only. */
#ifndef WEFT_PLAN_EXPECT_H
#define WEFT_PLAN_EXPECT_H

#include "plan/cascade/dispatch.h"

/* Record of measured / predicted seconds. New ratios replace the oldest. */
enum { WEFT_PRICE_ERRORS = 256 };
typedef struct weft_price_errors {
    double ratio[WEFT_PRICE_ERRORS];
    int64_t count; /* ratios added so far */
} weft_price_errors;
void weft_price_errors_add(weft_price_errors *errors, double ratio);
/* Returns the quantile `share` of the record; 1 if the record is empty. */
double weft_price_errors_quantile(const weft_price_errors *errors, double share);
/* Fills factor[scenarios][count]. The record of[c] is split into `scenarios` equal parts, and
 * cascade c gets one value of each part, in random order. The result depends on the seed only. */
weft_status weft_price_errors_draw(const weft_price_errors *const *of, int64_t count,
                                   int64_t scenarios, uint64_t seed, double *factor);

/* Relative seconds of ranks for the same work, from the compute time of each rank in cascades. */
typedef struct weft_rank_speeds {
    int64_t ranks;
    double *sum, *weight; /* [ranks] decaying sums of log ratios */
} weft_rank_speeds;
weft_status weft_rank_speeds_create(int64_t ranks, weft_rank_speeds *out);
void weft_rank_speeds_free(weft_rank_speeds *speeds);
/* Adds one cascade with gradients: busy[degree] seconds on device[degree]; `predicted`: seconds. */
void weft_rank_speeds_add(weft_rank_speeds *speeds, const int32_t *device, const double *busy,
                          int64_t degree, double predicted);
/* Sets slow[ranks]: the factor of ranks that need at least 1.15 times the median seconds, else
 * 1. */
void weft_rank_speeds_get(const weft_rank_speeds *speeds, double *slow);

typedef struct weft_expect_setup {
    const weft_cascade_list *list;
    const weft_cascade_problem *problem; /* problem of `list` */
    const weft_cluster *cluster;         /* argument of weft_assign */
    weft_assign_options assign;
    int64_t scenarios;
    const double *factor; /* [scenarios][count] */
    /* Number of scenarios on which the found plan and `also` are compared. These differ from the
     * scenarios of the search, to which the found plan is fitted. 0: use the scenarios of the
     * search. */
    int64_t validations;
    const double *validation;           /* [validations][count] */
    const double *slow;                 /* [devices]; NULL: 1 */
    const bool *trains;                 /* [count]; NULL: all */
    const weft_dispatch_hand *transfer; /* [count]; NULL: transfers take no time */
    double reduce, last;                /* seconds of the gradient all-reduce; of its last part */
    bool late;                          /* true: dispatch to idle devices; false: planned devices */
    /* searches of late dispatch, for weft_expect_value only; NULL: none */
    const weft_dispatch_replan *replan;
    uint64_t seed;
    int64_t evaluations;      /* number of plans to try; 0 (default): 400 */
    bool (*stop)(void *user); /* true ends the search; NULL: none */
    void *user;
} weft_expect_setup;

/* Share of the objective that late dispatch must save to be preferred to planned devices. */
#define WEFT_EXPECT_LATE 0.002
/* Sets *value to the mean objective of a placement in the scenarios of the search.
 * INFINITY: `stop` ended the function early. */
weft_status weft_expect_value(const weft_expect_setup *setup, const weft_placement *placement,
                              double *value);
/* Improves on `from`, a schedule of the problem, and on `also[also_count]`, placements of any
 * policy. `out`: the best plan in the validation scenarios, with the starts of an iteration without
 * errors. *value: its objective in the validation scenarios. */
weft_status weft_expect_search(const weft_expect_setup *setup, const weft_cascade_schedule *from,
                               const weft_placement *also, int also_count, weft_arena *arena,
                               weft_placement *out, double *value);

#endif
