/* Model and cluster of the plans of pipelines, layouts and memory, as stored in their files. */
#ifndef WEFT_ESTIMATE_PLAN_TARGET_H
#define WEFT_ESTIMATE_PLAN_TARGET_H

#include "base/config.h"
#include "base/json.h"
#include "plan/cluster/cluster.h"
#include "plan/ops/op_list.h"

/* Model and cluster of `pipeline` and `layout`; the first member of their configs. */
typedef struct weft_plan_target {
    const char *model, *cluster;
    int64_t frames, height, width;
} weft_plan_target;
/* clang-format off */
#define WEFT_PLAN_TARGET_KEYS(model_default, model_help, cluster_default) \
    {"model", WEFT_KEY_STRING, offsetof(weft_plan_target, model), model_default, "", model_help}, \
    {"frames", WEFT_KEY_I64, offsetof(weft_plan_target, frames), "81", "", \
     "frames of a clip; used by video models such as wan-14b", .min = 1, .max = 100000}, \
    {"height", WEFT_KEY_I64, offsetof(weft_plan_target, height), "480", "pixels", \
     "rows of a clip", .min = 16, .max = 65536}, \
    {"width", WEFT_KEY_I64, offsetof(weft_plan_target, width), "832", "pixels", \
     "columns of a clip", .min = 16, .max = 65536}, \
    {"cluster", WEFT_KEY_STRING, offsetof(weft_plan_target, cluster), cluster_default, "", \
     "preset, preset:NODES, or a YAML file"}
/* clang-format on */

/* Adds the model and cluster to a plan and seals it: "cluster" {spec, id}, "model" {name, id, costs
 * and, if `target` names a model, frames, height, width}. */
weft_status weft_plan_target_seal(json_t *plan, const char *format, const weft_plan_target *target,
                                  const weft_cluster *cluster, const weft_op_list *list,
                                  const char *source);
/* Checks that the plan's cluster (`spec`; NULL: the cluster the plan names) and model are unchanged
 * since planning. *known: *cluster was set. Without `spec`, a plan of bare numbers has no
 * cluster. */
weft_status weft_plan_target_check(const json_t *plan, const char *path, const char *spec,
                                   weft_arena *arena, weft_cluster *cluster, bool *known);

#endif
