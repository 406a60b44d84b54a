/* The plan of an iteration with the shortest expected seconds: several searches of expect.h, with
 * and without late dispatch and in several sets of degrees. `weft train` and the benchmarks plan by
 * this function.
 *
 *     search   1        2     3        4     ...
 *     ranks    planned  late  planned  late         in turn
 *     degrees  all      all   a node   a node       in turn
 *
 * Every search begins with the best plans of all searches before, of both dispatches. A plan that
 * is good on planned ranks is mostly good with late dispatch, too. */
#ifndef WEFT_PLAN_EXPECT_PLAN_H
#define WEFT_PLAN_EXPECT_PLAN_H

#include "plan/cascade/expect.h"

/* Searches of each dispatch. */
enum { WEFT_EXPECT_ROUNDS = 6, WEFT_EXPECT_SETS = 2 };

typedef struct weft_expect_request {
    /* The problem, the seed and `late` of `setup` are set by the search. */
    weft_expect_setup setup;
    /* Sets of degrees with a schedule of each, from which its searches begin. */
    int sets;
    const weft_cascade_problem *problem[WEFT_EXPECT_SETS];
    const weft_cascade_schedule *schedule[WEFT_EXPECT_SETS];
    const weft_placement *also; /* [also_count] further plans to begin with, of any policy */
    int also_count;             /* at most WEFT_EXPECT_ALSO */
    bool move;                  /* late dispatch is possible */
    /* Reports a plan that is shorter than all plans before; NULL: no reports. */
    void (*shorter)(void *user, const weft_placement *plan, bool late);
    void *user;
} weft_expect_request;
enum { WEFT_EXPECT_ALSO = 4 };

/* The best plans on planned ranks, [0], and with late dispatch, [1]. */
typedef struct weft_expect_plans {
    weft_placement plan[2]; /* in the caller's arena */
    /* Seconds in the validation scenarios; INFINITY: no plan. Late dispatch has WEFT_EXPECT_LATE
     * added, so the smaller value wins. */
    double value[2];
    bool late; /* the shorter one */
} weft_expect_plans;
weft_status weft_expect_plan(const weft_expect_request *request, weft_arena *arena,
                             weft_expect_plans *out);

#endif
