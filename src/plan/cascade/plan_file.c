#include "plan/cascade/plan_file.h"

#include "plan/plan_checksum.h"

#include <stdio.h>
#include <string.h>

weft_status weft_plan_file_describe(json_t *plan, const char *cluster_spec,
                                    const weft_cascade_costs *costs, const weft_workload *samples)
{
    char id[20], model[20];
    weft_cluster_id(costs->cluster, id);
    weft_model_work_id(costs->model, model);
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int64_t i = 0; ok && i < samples->count; i++) {
        const weft_plan_bucket *b = &samples->bucket[i];
        ok = !json_array_append_new(
            list, json_pack("{s:I,s:I,s:I,s:I}", "batch", (json_int_t)b->batch, "frames",
                            (json_int_t)b->frames, "height", (json_int_t)b->height, "width",
                            (json_int_t)b->width));
    }
    ok = ok && !json_object_set_new(plan, "cluster",
                                    json_pack("{s:s,s:s}", "spec", cluster_spec, "id", id));
    ok = ok && !json_object_set_new(plan, "workload",
                                    json_pack("{s:I,s:b,s:O}", "zero", (json_int_t)costs->zero,
                                              "text", costs->text, "samples", list));
    ok = ok && !json_object_set_new(plan, "model",
                                    json_pack("{s:s,s:s,s:s}", "name", costs->model->name, "id",
                                              model, "costs", costs->model->source));
    json_decref(list);
    WEFT_TRY(WEFT_ALLOCATED(ok, "describing the plan"));
    return WEFT_OK;
}

enum { MOST_OF_A_SIZE = 1000000 }; /* same limit as a config's buckets */

static weft_status read_samples(const json_t *list, const char *name, weft_arena *arena,
                                weft_workload *out)
{
    out->count = (int64_t)json_array_size(list);
    if (out->count < 1)
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, .key = "workload"),
                          "the workload has no samples");
    WEFT_TRY(WEFT_ARENA_NEW(arena, out->bucket, out->count, "%s", name));
    for (int64_t i = 0; i < out->count; i++) {
        const json_t *s = json_array_get(list, (size_t)i);
        weft_plan_bucket *b = &out->bucket[i];
        WEFT_TRY(weft_json_get_i64(s, "batch", name, &b->batch));
        WEFT_TRY(weft_json_get_i64(s, "frames", name, &b->frames));
        WEFT_TRY(weft_json_get_i64(s, "height", name, &b->height));
        WEFT_TRY(weft_json_get_i64(s, "width", name, &b->width));
        if (b->batch < 1 || b->frames < 1 || b->height < 1 || b->width < 1)
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, .key = "workload"),
                              "sample %" PRId64 " has a size below 1", i);
        if (b->batch > MOST_OF_A_SIZE || b->frames > MOST_OF_A_SIZE || b->height > MOST_OF_A_SIZE ||
            b->width > MOST_OF_A_SIZE)
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, .key = "workload"),
                              "sample %" PRId64 " has a size above %d", i, MOST_OF_A_SIZE);
    }
    return WEFT_OK;
}

static weft_status read_after(const json_t *list, weft_arena *arena, weft_plan_file *f)
{
    json_t *index = json_object();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(index, "the plan file"));
    for (int64_t i = 0; i < f->plan.count; i++)
        json_object_set_new(index, f->plan.item[i].id, json_integer(i));
    for (int64_t i = 0; i < f->plan.count; i++) {
        const weft_cascade_plan_item *item = &f->plan.item[i];
        const json_t *after = json_object_get(json_array_get(list, (size_t)i), "after");
        const int64_t count = (int64_t)json_array_size(after);
        int32_t *before = weft_arena_calloc(arena, count, sizeof *before);
        WEFT_GO(WEFT_ALLOCATED(before, "the plan file"));
        for (int64_t k = 0; k < count; k++) /* the plan's parser has checked the names */
            before[k] = (int32_t)json_integer_value(
                json_object_get(index, json_string_value(json_array_get(after, (size_t)k))));
        f->placed[i] = (weft_assigned){
            item->id, item->device,  item->degree, item->start, item->end - item->start,
            before,   (int32_t)count};
    }
out:
    json_decref(index);
    return status;
}

/* Sets the cluster of a bare plan: one node of unknown devices. Only the plan's seconds matter. */
static void bare_cluster(weft_plan_file *f)
{
    f->cluster = (weft_cluster){.name = "bare", .nodes = 1, .devices = f->plan.devices};
    f->cluster.link = f->cluster.host = (weft_link){1e12, 0};
    f->cluster.device = (weft_device_type){"device", 1, 1, 1, 1, 1, 1, 1};
}

/* Checks that the plan has every module of every sample once, and no other cascade. */
static weft_status check_modules(const char *path, const weft_plan_file *f)
{
    static const char *const modules[] = {"vae", "dit", "text"};
    const int count = f->costs.text ? 3 : 2;
    for (int64_t s = 0; s < f->samples.count; s++)
        for (int k = 0; k < count; k++) {
            char id[48];
            bool found = false;
            snprintf(id, sizeof id, "s%" PRId64 ".%s", s, modules[k]);
            for (int64_t i = 0; i < f->plan.count && !found; i++)
                found = !strcmp(f->plan.item[i].id, id);
            if (!found)
                return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = path, .key = id),
                                  "this cascade of the workload is not in the plan");
        }
    if (f->plan.count != count * f->samples.count)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = path, .key = "cascades", WEFT_NUMBER(f->plan.count)),
                          "the plan has %" PRId64 " cascades; %" PRId64
                          " samples of %d modules have %" PRId64,
                          f->plan.count, f->samples.count, count, count * f->samples.count);
    return WEFT_OK;
}

static weft_status read_description(const json_t *root, const char *path, const char *cluster_spec,
                                    weft_arena *arena, weft_plan_file *f)
{
    const json_t *workload = json_object_get(root, "workload");
    if (!f->plan.cluster || !workload) {
        if (cluster_spec) {
            WEFT_TRY(weft_cluster_load(arena, cluster_spec, &f->cluster));
            if (weft_cluster_devices(&f->cluster) < f->plan.devices)
                return weft_error(
                    WEFT_MSG_PLAN_OUTDATED,
                    WEFT_AT(.file = path, .key = "devices", WEFT_NUMBER(f->plan.devices)),
                    "the plan is for %" PRId64 " devices; the cluster %s has %" PRId64,
                    f->plan.devices, cluster_spec, weft_cluster_devices(&f->cluster));
        } else {
            bare_cluster(f);
        }
        return WEFT_OK;
    }
    f->cluster_spec = cluster_spec ? cluster_spec : f->plan.cluster;
    WEFT_TRY(weft_cluster_load(arena, f->cluster_spec, &f->cluster));
    char id[20];
    weft_cluster_id(&f->cluster, id);
    if (strcmp(id, f->plan.cluster_id) || weft_cluster_devices(&f->cluster) != f->plan.devices)
        return weft_error(WEFT_MSG_PLAN_OUTDATED,
                          WEFT_AT(.file = path, .key = "cluster", .value = f->cluster_spec),
                          "the plan is for another cluster, %s with %" PRId64
                          " devices (%s), not %s with "
                          "%" PRId64 " (%s); plan again for this one",
                          f->plan.cluster, f->plan.devices, f->plan.cluster_id, f->cluster_spec,
                          weft_cluster_devices(&f->cluster), id);
    const json_t *model = json_object_get(root, "model");
    const char *text;
    WEFT_TRY(weft_json_get_string(model, "name", path, &text));
    f->model_name = weft_arena_strdup(arena, text);
    WEFT_TRY(weft_json_get_string(model, "id", path, &text));
    f->model_id = weft_arena_strdup(arena, text);
    WEFT_TRY(weft_json_get_i64(workload, "zero", path, &f->costs.zero));
    if (f->costs.zero < 0 || f->costs.zero > 3)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = path, .key = "zero", WEFT_NUMBER(f->costs.zero)),
                          "%" PRId64 " is not a ZeRO stage from 0 to 3", f->costs.zero);
    WEFT_TRY(weft_json_get_bool(workload, "text", path, &f->costs.text));
    WEFT_TRY(read_samples(json_object_get(workload, "samples"), path, arena, &f->samples));
    f->described = true;
    return check_modules(path, f);
}

weft_status weft_plan_file_load(const char *path, const char *cluster_spec, weft_arena *arena,
                                weft_plan_file *out)
{
    json_t *root;
    WEFT_TRY(weft_json_load(path, &root));
    *out = (weft_plan_file){0};
    weft_status_code status;
    WEFT_GO(weft_cascade_plan_from_json(root, path, arena, &out->plan));
    out->placed = weft_arena_calloc(arena, out->plan.count, sizeof *out->placed);
    WEFT_GO(out->placed ? read_after(json_object_get(root, "cascades"), arena, out)
                        : weft_no_memory("%s", path));
    WEFT_GO(read_description(root, path, cluster_spec, arena, out));
    WEFT_GO(weft_plan_verify_checksum(root, WEFT_CASCADE_FORMAT, path));
out:
    json_decref(root);
    out->costs.cluster = &out->cluster;
    return status;
}

weft_status weft_plan_file_attach(weft_plan_file *file, const char *path,
                                  const weft_model_work *model)
{
    char id[20];
    weft_model_work_id(model, id);
    if (strcmp(id, file->model_id))
        return weft_error(
            WEFT_MSG_PLAN_OUTDATED,
            WEFT_AT(.file = path, .key = "model", .value = file->model_name),
            "the plan is for other costs of %s: their id was %s and is %s now; plan again",
            file->model_name, file->model_id, id);
    file->costs.model = model;
    return WEFT_OK;
}
