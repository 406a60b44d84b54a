/* Layouts as text and JSON. */
#ifndef WEFT_PLAN_PIPELINE_DEGREE_REPORT_H
#define WEFT_PLAN_PIPELINE_DEGREE_REPORT_H

#include "base/json.h"
#include "plan/pipeline/degree_search.h"

#define WEFT_LAYOUT_FORMAT "weft.layout/1"
/* {"format": "weft.layout/1", "best": {...}, "candidates": [...]}: the best layout and `others`
 * more. */
json_t *weft_degrees_plan_json(const weft_degrees_plan *plan, int64_t others);
void weft_degrees_plan_print(const weft_degrees_plan *plan, int64_t others, weft_buf *out);

#endif
