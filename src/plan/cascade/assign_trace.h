#ifndef WEFT_PLAN_CASCADE_ASSIGN_TRACE_H
#define WEFT_PLAN_CASCADE_ASSIGN_TRACE_H

#include "plan/cascade/assign.h"

/* Builds the trace of a placed plan: the steps of every cascade, in the order of the starts. With
 * `costs` (of the model) and the samples' buckets, the ids "s<i>.text|vae|dit" become the model's
 * layers, exchanges and latent transfers, followed by the gradient reduction. `costs` NULL: each
 * cascade is one compute step. `folds`: parts of a pass over the layers; 0: chosen by the number of
 * devices. */
weft_status weft_assign_trace(const weft_assigned *item, int64_t count, int64_t devices,
                              const weft_cascade_costs *costs, const weft_workload *samples,
                              int64_t folds, weft_trace *out);

#endif
