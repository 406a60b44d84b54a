/* Plans under price errors (bench/cascades "robust"). */
#ifndef WEFT_BENCH_CASCADES_ERRORS_H
#define WEFT_BENCH_CASCADES_ERRORS_H

#include "cascades_plans.h"

/* Runs and prints the comparison; degree[WEFT_POLICY_COUNT]: of equal groups. */
void compare_errors(planner *p, const weft_workload *stage, int64_t samples, int iterations,
                    const int64_t *degree, const char *name);

#endif
