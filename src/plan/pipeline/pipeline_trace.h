#ifndef WEFT_PLAN_PIPELINE_PIPELINE_TRACE_H
#define WEFT_PLAN_PIPELINE_PIPELINE_TRACE_H

#include "plan/pipeline/pipeline_plan.h"

/* Makes the steps of all devices for the event simulator (plan/simulate/), for `replicas` parallel
 * pipelines. Device d of pipeline r is device d * stride + r of the cluster; with a stride of 1,
 * device r * devices + d. Sends have their own stream and delay only the receiver. */
weft_status weft_pipeline_trace(const weft_pipeline_plan *plan, int64_t stride, int64_t replicas,
                                weft_trace *out);

#endif
