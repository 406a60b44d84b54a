#include "estimate/plan_target.h"

#include "estimate/plan_models.h"
#include "plan/plan_checksum.h"

#include <string.h>

weft_status weft_plan_target_seal(json_t *plan, const char *format, const weft_plan_target *target,
                                  const weft_cluster *cluster, const weft_op_list *list,
                                  const char *source)
{
    char id[20], costs[20];
    weft_cluster_id(cluster, id);
    weft_op_list_id(list, costs);
    json_t *model = json_pack("{s:s, s:s, s:s}", "name", list->name, "id", costs, "costs", source);
    if (model && target->model[0]) {
        json_object_set_new(model, "name", json_string(target->model));
        json_object_set_new(model, "frames", json_integer(target->frames));
        json_object_set_new(model, "height", json_integer(target->height));
        json_object_set_new(model, "width", json_integer(target->width));
    }
    json_t *made_for = json_pack("{s:s, s:s}", "spec", target->cluster, "id", id);
    if (json_object_set_new(plan, "cluster", made_for) || json_object_set_new(plan, "model", model))
        return weft_no_memory("a plan");
    return weft_plan_add_checksum(plan, format);
}

static weft_status check_model(const json_t *model, const char *path, const weft_cluster *cluster,
                               weft_arena *arena)
{
    const char *name, *id, *source;
    int64_t frames, height, width;
    char have[20];
    weft_op_list list;
    WEFT_TRY(weft_json_get_string(model, "name", path, &name));
    WEFT_TRY(weft_json_get_string(model, "id", path, &id));
    if (!json_object_get(model, "frames")) /* without these sizes, only the seal is checked */
        return WEFT_OK;
    WEFT_TRY(weft_json_get_i64(model, "frames", path, &frames));
    WEFT_TRY(weft_json_get_i64(model, "height", path, &height));
    WEFT_TRY(weft_json_get_i64(model, "width", path, &width));
    WEFT_TRY(
        weft_plan_model_list(arena, name, frames, height, width, &cluster->device, &list, &source));
    weft_op_list_id(&list, have);
    if (strcmp(id, have))
        return weft_error(
            WEFT_MSG_PLAN_OUTDATED, WEFT_AT(.file = path, .key = "model", .value = name),
            "the costs of %s have changed since the plan was made (%s, now %s); plan again", name,
            id, have);
    return WEFT_OK;
}

weft_status weft_plan_target_check(const json_t *plan, const char *path, const char *spec,
                                   weft_arena *arena, weft_cluster *cluster, bool *known)
{
    const json_t *made_for = json_object_get(plan, "cluster");
    const char *own = NULL, *id = NULL;
    char have[20];
    *known = made_for || spec;
    if (made_for) {
        WEFT_TRY(weft_json_get_string(made_for, "spec", path, &own));
        WEFT_TRY(weft_json_get_string(made_for, "id", path, &id));
    }
    if (!*known)
        return WEFT_OK;
    WEFT_TRY(weft_cluster_load(arena, spec ? spec : own, cluster));
    weft_cluster_id(cluster, have);
    if (id && strcmp(id, have))
        return weft_error(WEFT_MSG_PLAN_OUTDATED,
                          WEFT_AT(.file = path, .key = "cluster", .value = spec ? spec : own),
                          "the plan was made for the cluster %s (%s), not for %s (%s); plan again",
                          own, id, spec ? spec : own, have);
    const json_t *model = json_object_get(plan, "model");
    return model ? check_model(model, path, cluster, arena) : WEFT_OK;
}
