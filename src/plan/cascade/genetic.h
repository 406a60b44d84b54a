#ifndef WEFT_PLAN_CASCADE_GENETIC_H
#define WEFT_PLAN_CASCADE_GENETIC_H

#include "base/memory.h"
#include "plan/cascade/cascade.h"

weft_status weft_cascade_solve(const weft_cascade_problem *problem,
                               const weft_cascade_search *search, weft_arena *arena,
                               weft_cascade_result *out);

#endif
