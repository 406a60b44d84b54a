#ifndef WEFT_PLAN_CASCADE_BASELINES_H
#define WEFT_PLAN_CASCADE_BASELINES_H

#include "base/memory.h"
#include "plan/cascade/workload.h"

/* Static DP x CP: CP is the width of the groups, DP their number. Samples are assigned to the
 * groups in the order of the iteration, round robin, as by a data loader. */
weft_status weft_baseline_static(const weft_cascade_costs *costs, const weft_workload *workload,
                                 weft_equal_groups groups, weft_sp_method method, weft_arena *arena,
                                 weft_baseline *out);
/* Adds the seconds of an iteration to every static layout. Creates the list in `lists` if *out is
 * empty. All iterations have the same number of samples. */
weft_status weft_baseline_layouts(const weft_cascade_costs *costs, const weft_workload *workload,
                                  weft_sp_method method, weft_arena *lists,
                                  weft_static_layouts *out);
/* FlexSP-like: the best partition of the devices into groups of powers of two for this iteration.
 * The longest sample is assigned first, to the group that finishes first. All groups start
 * together. */
weft_status weft_baseline_flexsp(const weft_cascade_costs *costs, const weft_workload *workload,
                                 weft_arena *arena, weft_baseline *out);
/* KnapFormer-like: equal groups of `degree` (0: the best degree for this iteration). Samples are
 * assigned by falling FLOPs to the group with the fewest FLOPs. */
weft_status weft_baseline_knapformer(const weft_cascade_costs *costs, const weft_workload *workload,
                                     int64_t degree, weft_arena *arena, weft_baseline *out);
/* Builds the request of plan/cascade/policy.h for a list of weft_workload_cascades. */
weft_status weft_workload_request(const weft_cascade_costs *costs, const weft_workload *workload,
                                  const weft_cascade_list *list, weft_arena *arena,
                                  weft_policy_request *out);
/* The systems before Arachne, as Arachne §III describes them: "all samples within an iteration
 * launch simultaneously". Each sample has a separate group (a power of two, the best for this
 * iteration) and waits for the slowest. */
weft_status weft_baseline_at_once(const weft_cascade_costs *costs, const weft_workload *workload,
                                  weft_arena *arena, weft_baseline *out);

#endif
