#ifndef WEFT_PLAN_CASCADE_BOUND_H
#define WEFT_PLAN_CASCADE_BOUND_H

#include "plan/cascade/cascade.h"

weft_status weft_cascade_lower_bound(const weft_cascade_problem *problem, double upper,
                                     weft_cascade_bound *out);

#endif
