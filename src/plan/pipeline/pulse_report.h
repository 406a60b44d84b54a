/* The layouts of PULSE as text and JSON. */
#ifndef WEFT_PLAN_PIPELINE_PULSE_REPORT_H
#define WEFT_PLAN_PIPELINE_PULSE_REPORT_H

#include "base/json.h"
#include "plan/layout/layout_list.h"
#include "plan/pipeline/pulse_search.h"

#define WEFT_PULSE_FORMAT "weft.pulse/1"

/* Prints the best choice and `others` more, with the reason why each lost. */
void weft_pulse_print(const weft_layout_list *list, int64_t others, weft_buf *out);
/* {"candidates": [...]} with all choices; NULL: out of memory. */
json_t *weft_pulse_json(const weft_layout_list *list);

#endif
