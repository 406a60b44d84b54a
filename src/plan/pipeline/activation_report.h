/* Items and choices of the activation planner as JSON and text. */
#ifndef WEFT_PLAN_PIPELINE_ACTIVATION_REPORT_H
#define WEFT_PLAN_PIPELINE_ACTIVATION_REPORT_H

#include "base/json.h"
#include "plan/pipeline/activation_planner.h"

/* {"items": [{"name", "bytes", "recompute", "offload", "count"}], "window": seconds} */
weft_status weft_activation_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                            weft_activation_item **item, int64_t *items,
                                            double *window);
#define WEFT_MEMORY_FORMAT "weft.memory/1"
/* {"format": "weft.memory/1", "limit", "kept", "seconds", "proved", "items": [...]} */
json_t *weft_activation_choice_json(const weft_activation_item *item, int64_t items, double limit,
                                    const weft_activation_choice *greedy,
                                    const weft_activation_choice *exact);
void weft_activation_choice_print(const weft_activation_item *item, int64_t items, double limit,
                                  const weft_activation_choice *greedy,
                                  const weft_activation_choice *exact, weft_buf *out);

#endif
