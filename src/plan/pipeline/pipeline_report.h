/* Pipeline costs and plans as files, as a printed table, and as a chart.
 *
 * Costs (seconds and bytes are per microbatch; operators count from 0):
 *
 *   {"ops": [{"forward": s, "backward": s, "output_bytes": B, "parameter_bytes": B,
 *             "activation_bytes": B, "name": "..."}, ...],
 *    "skips": [[i, j], [i, j, bytes], ...], "lambda": 1, "bandwidth": B/s, "latency": s}
 *
 * "forward" is required. A missing "backward" is twice "forward"; other missing numbers are 0. The
 * format of a plan file is in docs/explanation/planning-pipelines.md. */
#ifndef WEFT_PLAN_PIPELINE_REPORT_H
#define WEFT_PLAN_PIPELINE_REPORT_H

#include "base/json.h"
#include "plan/pipeline/pipeline_plan.h"

#define WEFT_PIPELINE_FORMAT "weft.pipeline/1"

#endif
