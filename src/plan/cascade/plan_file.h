/* Cascade plans of a model on a cluster: the plan's JSON plus "cluster", "model" and "workload".
 * `weft simulate` and the executor need no other input. */
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
    weft_cascade_costs costs; /* points into this struct; model: weft_plan_file_attach */
    const char *model_name, *model_id;
    weft_workload samples;
} weft_plan_file;
/* Loads a plan into `arena`. `cluster_spec`: cluster to run on; NULL: the plan's cluster.
 * WEFT_E_ARG: the plan is for another cluster. A bare plan, without a cluster, gets a cluster of
 * one node. */
weft_status weft_plan_file_load(const char *path, const char *cluster_spec, weft_arena *arena,
                                weft_plan_file *out);
/* Sets the work counts of the plan's model for its samples; `model` is borrowed. WEFT_E_ARG: the
 * plan was made with other counts. */
weft_status weft_plan_file_attach(weft_plan_file *file, const char *path,
                                  const weft_model_work *model);

#endif
