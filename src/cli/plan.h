/* The commands of `weft plan`; each is in cli/plan_<name>.c. They share the verb's option table. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/verb.h"
#include "base/json.h"
#include "plan/cost.h"

weft_status weft_plan_cascades_run(const weft_args *args);
weft_status weft_plan_pipeline_run(const weft_args *args);
weft_status weft_plan_layout_run(const weft_args *args);
weft_status weft_plan_memory_run(const weft_args *args);
extern const weft_section weft_plan_pipeline_section, weft_plan_layout_section, weft_plan_memory_section;

/* The operators of a named model: a DiT (plan/dit_costs.h) or one with long skips (plan/unet_costs.h). */
weft_status weft_plan_model_load(weft_arena *arena, const char *name, weft_op_list *out);
/* Indented, on standard output; NULL is an error too. */
weft_status weft_plan_print_json(const json_t *json);

#endif
