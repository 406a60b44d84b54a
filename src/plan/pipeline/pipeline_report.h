/* Pipeline costs and plans as files, as the table that people read, and as a picture.
 *
 * Costs (seconds and bytes are per microbatch; operators count from 0):
 *
 *   {"ops": [{"forward": s, "backward": s, "output_bytes": B, "parameter_bytes": B,
 *             "activation_bytes": B, "name": "..."}, ...],
 *    "skips": [[i, j], [i, j, bytes], ...], "lambda": 1, "bandwidth": B/s, "latency": s}
 *
 * Missing numbers of an operator are 0 but for "forward"; backward is twice forward then. The plan
 * as a file: docs/planning-pipelines.md. */
#ifndef WEFT_PLAN_PIPELINE_REPORT_H
#define WEFT_PLAN_PIPELINE_REPORT_H

#include "base/json.h"
#include "plan/pipeline/pipeline_plan.h"

/* Reads and checks; all of it lives in `arena`. `name` stands for the file in messages. */
weft_status weft_pipe_costs_load(weft_arena *arena, const char *path, weft_pipe_costs *out);
weft_status weft_pipe_costs_from_json(weft_arena *arena, const json_t *json, const char *name,
                                      weft_pipe_costs *out);

#define WEFT_PIPELINE_FORMAT "weft.pipeline/1"

/* New reference; NULL: out of memory. Whoever writes it to a file seals it (plan/seal_file.h). */
json_t *weft_pipeline_plan_json(const weft_pipe_costs *costs, const weft_pipeline_plan *plan);
/* Reads a plan's stages and schedule back and checks that they are whole, legal and as
 * they were made. */
weft_status weft_pipeline_plan_load(const char *path, weft_pipeline_plan *out);
/* The table that people read; `explain` adds the candidates. */
void weft_pipeline_plan_print(const weft_pipe_costs *costs, const weft_pipeline_plan *plan,
                              bool explain, weft_buf *out);

/* A row per device, a bar per task on the clock; forward, backward and weight gradients by colour,
 * the microbatch as number, what the device holds as a line below. Appends an SVG document. */
void weft_pipeline_plan_draw(const weft_pipeline_plan *plan, weft_buf *out);

#endif
