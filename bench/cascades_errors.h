/* Plans under price errors (bench/cascades "robust"). */
#ifndef WEFT_BENCH_CASCADES_ERRORS_H
#define WEFT_BENCH_CASCADES_ERRORS_H

#include "cascades_plans.h"

enum { MOST_ITERATIONS = 40 };

/* A comparison. */
typedef struct errors_setup {
    const char *name; /* of the stage */
    const weft_workload *stage;
    int64_t samples;
    int iterations;
    const int64_t *degree; /* [WEFT_POLICY_COUNT] of equal groups */
    bool played;           /* plans are played by the planner's simulation, not executed */
    int64_t evaluations;   /* plans that a search tries; 0: as many as in a run */
} errors_setup;
/* Runs and prints the comparison. */
void compare_errors(planner *p, const errors_setup *setup);

#endif
