#ifndef WEFT_PLAN_CASCADE_FLEXSP_H
#define WEFT_PLAN_CASCADE_FLEXSP_H

#include "base/memory.h"
#include "plan/cascade/grouping.h"

/* Partitions the devices and assigns samples as FlexSP does (plan/cascade/flexsp.c). */
weft_status weft_grouping_flexsp(const weft_policy_request *request, weft_arena *arena,
                                 weft_grouping *out);

#endif
