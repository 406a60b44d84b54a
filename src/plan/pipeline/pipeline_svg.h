#ifndef WEFT_PLAN_PIPELINE_PIPELINE_SVG_H
#define WEFT_PLAN_PIPELINE_PIPELINE_SVG_H

#include "base/memory.h"
#include "plan/pipeline/pipeline_plan.h"

/* Draws a row per device with a bar per task on the clock: forward, backward and weight gradients
 * by colour, with the microbatch number. A line below shows the held bytes. Appends an SVG
 * document. */
void weft_pipeline_plan_draw(const weft_pipeline_plan *plan, weft_buf *out);

#endif
