/* Plans with the shortest expected iteration under measured price errors.
 *
 * The makespan of a plan whose groups all end together is the maximum of its groups' times, so a
 * few cascades that take longer than predicted make most of the advantage of a tight plan void.
 * This search minimises the mean over scenarios of
 *
 *     max(makespan + last, summing + sums)
 *
 * in which hand-offs take their seconds, and sums of gradients (`sums` seconds in all, `last` of
 * their last part) begin with the last backward (weft_placed_sums_behind). A scenario draws one
 * factor per cascade from the record of measured over predicted seconds. All plans are compared on
 * the same factors (common random numbers), which depend on the seed only. */
#ifndef WEFT_PLAN_EXPECT_H
#define WEFT_PLAN_EXPECT_H

#include "plan/cascade/dispatch.h"

/* Ratios of measured to predicted seconds, the newest replace the oldest. */
enum { WEFT_PRICE_ERRORS = 256 };
typedef struct weft_price_errors {
    double ratio[WEFT_PRICE_ERRORS];
    int64_t count; /* that were added so far */
} weft_price_errors;
void weft_price_errors_add(weft_price_errors *errors, double ratio);
/* The ratio below which `share` of the record is; 1 where the record is empty. */
double weft_price_errors_quantile(const weft_price_errors *errors, double share);
/* factor[scenarios][count]: of each cascade one value of each of `scenarios` equal parts of the
 * record `of[c]`, in a random order. The seed alone decides. */
weft_status weft_price_errors_draw(const weft_price_errors *const *of, int64_t count,
                                   int64_t scenarios, uint64_t seed, double *factor);

/* Seconds of ranks over those of other ranks with the same work, from the time that each of them
 * computed in cascades. */
typedef struct weft_rank_speeds {
    int64_t ranks;
    double *sum, *weight; /* [ranks] of logarithms; old ones count less with each new one */
} weft_rank_speeds;
weft_status weft_rank_speeds_create(int64_t ranks, weft_rank_speeds *out);
void weft_rank_speeds_free(weft_rank_speeds *speeds);
/* One cascade with gradients: busy[degree] seconds on device[degree], of `predicted`. */
void weft_rank_speeds_add(weft_rank_speeds *speeds, const int32_t *device, const double *busy,
                          int64_t degree, double predicted);
/* slow[ranks]: the factor of ranks that take at least 1.15 times as long as the median, else 1. */
void weft_rank_speeds_get(const weft_rank_speeds *speeds, double *slow);

typedef struct weft_expect_setup {
    const weft_cascade_list *list;
    const weft_cascade_problem *problem; /* of the list */
    const weft_cluster *cluster;         /* for weft_assign */
    weft_assign_options place;
    int64_t scenarios;
    const double *factor;           /* [scenarios][count] */
    const double *slow;             /* [devices]; NULL: 1 */
    const bool *trains;             /* [count]; NULL: all */
    const weft_dispatch_hand *hand; /* [count]; NULL: hand-offs take no time */
    double sums, last;              /* seconds of sums of gradients; of their last part */
    bool late; /* cascades are dispatched to idle devices, else run as planned */
    uint64_t seed;
    int64_t evaluations;      /* plans to try; 0: 400 */
    bool (*stop)(void *user); /* true ends the search with the best plan so far; NULL: none */
    void *user;
} weft_expect_setup;

/* Mean objective of a placement. */
weft_status weft_expect_value(const weft_expect_setup *setup, const weft_placement *placement,
                              double *value);
/* Improves on `from`, a schedule of the problem, and on `also[also_count]`, placements of any rule.
 * `out`: the best plan, with the starts of an iteration without errors; *value: its objective. */
weft_status weft_expect_search(const weft_expect_setup *setup, const weft_cascade_schedule *from,
                               const weft_placement *also, int also_count, weft_arena *arena,
                               weft_placement *out, double *value);

#endif
