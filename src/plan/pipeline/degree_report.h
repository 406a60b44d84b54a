/* Degrees as text, JSON and a picture. */
#ifndef WEFT_PLAN_DEGREES_REPORT_H
#define WEFT_PLAN_DEGREES_REPORT_H

#include "base/json.h"
#include "plan/pipeline/degrees.h"

#define WEFT_LAYOUT_FORMAT "weft.layout/1"
#define WEFT_PULSE_FORMAT  "weft.pulse/1"
/* {"format": "weft.layout/1", "best": {...}, "candidates": [...]}: the best and `others` more. */
json_t *weft_degrees_plan_json(const weft_degrees_plan *plan, int64_t others);
void weft_degrees_plan_print(const weft_degrees_plan *plan, int64_t others, weft_buf *out);
/* Stacked bars of the causes; those that do not fit are left out. Appends an SVG document. */
void weft_degrees_plan_draw(const weft_degrees_plan *plan, int64_t others, weft_buf *out);

#endif
