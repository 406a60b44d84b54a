/* Cascade plans of a model on a cluster: the plan's JSON plus "cluster" and "workload", so that
 * `weft simulate` and the executor need nothing else. */
#ifndef WEFT_PLAN_PLAN_FILE_H
#define WEFT_PLAN_PLAN_FILE_H

#include "plan/cascade/assign.h"
#include "plan/cascade/cascade_json.h"

/* Adds "cluster": {"spec", "id"}, "model": {"name", "id", "costs"} and "workload": {"zero", "text",
 * "samples": [...]} to a plan. */
weft_status weft_plan_file_describe(json_t *plan, const char *cluster_spec,
                                    const weft_cascade_costs *costs, const weft_workload *samples);

typedef struct weft_plan_file {
    weft_cascade_plan plan;
    weft_assigned *placed; /* [plan.count] */
    bool described;        /* has a cluster and a workload */
    const char *cluster_spec;
    weft_cluster cluster;
    weft_cascade_costs costs; /* points into this struct; model: see weft_plan_file_attach */
    const char *model_name, *model_id;
    weft_workload samples;
} weft_plan_file;
/* Everything in `arena`. `cluster_spec` (NULL: the plan's own) is where it shall run: WEFT_E_ARG
 * when the plan was made for another one. A bare plan needs none: it gets a cluster of one node. */
weft_status weft_plan_file_load(const char *path, const char *cluster_spec, weft_arena *arena,
                                weft_plan_file *out);
/* Counts of the plan's model for its samples, borrowed. WEFT_E_ARG when they are not those that the
 * plan was made with. */
weft_status weft_plan_file_attach(weft_plan_file *file, const char *path,
                                  const weft_model_work *model);

#endif
