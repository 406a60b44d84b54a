#ifndef WEFT_PLAN_PIPELINE_PIPELINE_PRINT_H
#define WEFT_PLAN_PIPELINE_PIPELINE_PRINT_H

#include "base/memory.h"
#include "plan/pipeline/pipeline_plan.h"

/* Prints the table of a plan; `explain` adds the candidates. */
void weft_pipeline_plan_print(const weft_pp_costs *costs, const weft_pipeline_plan *plan,
                              bool explain, weft_buf *out);

#endif
