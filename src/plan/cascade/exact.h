#ifndef WEFT_PLAN_CASCADE_EXACT_H
#define WEFT_PLAN_CASCADE_EXACT_H

#include "plan/cascade/cascade.h"

/* Branch and bound (exact.c). `best` holds a schedule and receives a shorter one, if found.
 * *proved: no shorter schedule exists. */
weft_status weft_cascade_exact(const weft_cascade_problem *problem,
                               const weft_cascade_limits *limits, weft_cascade_schedule *best,
                               bool *proved, int64_t *visited);

#endif
