#ifndef WEFT_CURATE_CURATE_PUBLISH_H
#define WEFT_CURATE_CURATE_PUBLISH_H

#include "curate/curate_plan.h"

/* Writes manifest.jsonl, rejects.jsonl and summary.json; removes clips that are no longer in the
 * plan. */
weft_status weft_curate_plan_publish(weft_curate_plan *plan, weft_curate_report *report);

#endif
