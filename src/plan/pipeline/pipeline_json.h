#ifndef WEFT_PLAN_PIPELINE_PIPELINE_JSON_H
#define WEFT_PLAN_PIPELINE_PIPELINE_JSON_H

#include "base/json.h"
#include "base/memory.h"
#include "plan/pipeline/pipeline_plan.h"

/* Read and check costs, allocated in `arena`. `name` is the file name in messages. */
weft_status weft_pp_costs_load(weft_arena *arena, const char *path, weft_pp_costs *out);
weft_status weft_pp_costs_from_json(weft_arena *arena, const json_t *json, const char *name,
                                    weft_pp_costs *out);
/* Returns a new reference; NULL: out of memory. A caller that writes the file adds the checksum
 * (plan_checksum.h). */
json_t *weft_pipeline_plan_json(const weft_pp_costs *costs, const weft_pipeline_plan *plan);
/* Reads the stages and the schedule of a plan. Checks that both are complete and legal, and that
 * the file has not been edited. */
weft_status weft_pipeline_plan_load(const char *path, weft_pipeline_plan *out);

#endif
