#include "plan/cascade/plan_file.h"

#include "plan/seal_file.h"

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
    if (!ok)
        return weft_fail(WEFT_E_MEMORY, "out of memory describing the plan");
    return WEFT_OK;
}

enum { MOST_OF_A_SIZE = 1000000 }; /* as a config's buckets */

static weft_status read_samples(const json_t *list, const char *name, weft_arena *arena,
                                weft_workload *out)
{
    out->count = (int64_t)json_array_size(list);
    if (out->count < 1)
        return weft_fail(WEFT_E_FORMAT, "%s: \"workload\" has no samples", name);
    out->bucket = weft_arena_alloc(arena, out->count * (int64_t)sizeof *out->bucket);
    if (!out->bucket)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", name);
    for (int64_t i = 0; i < out->count; i++) {
        const json_t *s = json_array_get(list, (size_t)i);
        weft_plan_bucket *b = &out->bucket[i];
        WEFT_TRY(weft_json_get_i64(s, "batch", name, &b->batch));
        WEFT_TRY(weft_json_get_i64(s, "frames", name, &b->frames));
        WEFT_TRY(weft_json_get_i64(s, "height", name, &b->height));
        WEFT_TRY(weft_json_get_i64(s, "width", name, &b->width));
        if (b->batch < 1 || b->frames < 1 || b->height < 1 || b->width < 1)
            return weft_fail(WEFT_E_FORMAT, "%s: sample %lld has a size under 1", name,
                             (long long)i);
        if (b->batch > MOST_OF_A_SIZE || b->frames > MOST_OF_A_SIZE || b->height > MOST_OF_A_SIZE ||
            b->width > MOST_OF_A_SIZE)
            return weft_fail(WEFT_E_FORMAT, "%s: sample %lld has a size over %d", name,
                             (long long)i, MOST_OF_A_SIZE);
    }
    return WEFT_OK;
}

static weft_status read_after(const json_t *list, weft_arena *arena, weft_plan_file *f)
{
    json_t *index = json_object();
    weft_status_code status = index ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int64_t i = 0; index && i < f->plan.count; i++)
        json_object_set_new(index, f->plan.item[i].id, json_integer(i));
    for (int64_t i = 0; i < f->plan.count && status == WEFT_OK; i++) {
        const weft_cascade_plan_item *item = &f->plan.item[i];
        const json_t *after = json_object_get(json_array_get(list, (size_t)i), "after");
        const int64_t count = (int64_t)json_array_size(after);
        int32_t *before = weft_arena_alloc(arena, count * (int64_t)sizeof *before);
        if (!before) {
            status = weft_fail(WEFT_E_MEMORY, "out of memory");
            break;
        }
        for (int64_t k = 0; k < count; k++) /* the plan's reader has checked the names */
            before[k] = (int32_t)json_integer_value(
                json_object_get(index, json_string_value(json_array_get(after, (size_t)k))));
        f->placed[i] = (weft_assigned){
            item->id, item->device,  item->degree, item->start, item->end - item->start,
            before,   (int32_t)count};
    }
    json_decref(index);
    return status;
}

/* A bare plan runs on one node of devices that nothing is known of: only its seconds count. */
static void bare_cluster(weft_plan_file *f)
{
    f->cluster = (weft_cluster){.name = "bare", .nodes = 1, .devices = f->plan.devices};
    f->cluster.link = f->cluster.host = (weft_link){1e12, 0};
    f->cluster.device = (weft_device_type){"device", 1, 1, 1, 1, 1, 1, 1};
}

/* Every sample has each of its modules, once, and there is nothing else. */
static weft_status check_modules(const char *path, const weft_plan_file *f)
{
    static const char *const modules[] = {"vae", "dit", "text"};
    const int count = f->costs.text ? 3 : 2;
    for (int64_t s = 0; s < f->samples.count; s++)
        for (int k = 0; k < count; k++) {
            char id[48];
            bool found = false;
            snprintf(id, sizeof id, "s%lld.%s", (long long)s, modules[k]);
            for (int64_t i = 0; i < f->plan.count && !found; i++)
                found = !strcmp(f->plan.item[i].id, id);
            if (!found)
                return weft_fail(WEFT_E_FORMAT,
                                 "%s: the cascade \"%s\" of the workload is not in the plan", path,
                                 id);
        }
    if (f->plan.count != count * f->samples.count)
        return weft_fail(WEFT_E_FORMAT, "%s: %lld cascades for %lld samples of %d modules", path,
                         (long long)f->plan.count, (long long)f->samples.count, count);
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
                return weft_fail(WEFT_E_ARG,
                                 "%s: the plan is for %lld devices, the cluster %s has %lld", path,
                                 (long long)f->plan.devices, cluster_spec,
                                 (long long)weft_cluster_devices(&f->cluster));
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
        return weft_fail(WEFT_E_ARG,
                         "%s: the plan was made for another cluster: %s with %lld devices (%s), "
                         "not %s with %lld (%s); "
                         "plan again for this one",
                         path, f->plan.cluster, (long long)f->plan.devices, f->plan.cluster_id,
                         f->cluster_spec, (long long)weft_cluster_devices(&f->cluster), id);
    const json_t *model = json_object_get(root, "model");
    const char *text;
    WEFT_TRY(weft_json_get_string(model, "name", path, &text));
    f->model_name = weft_arena_strdup(arena, text);
    WEFT_TRY(weft_json_get_string(model, "id", path, &text));
    f->model_id = weft_arena_strdup(arena, text);
    WEFT_TRY(weft_json_get_i64(workload, "zero", path, &f->costs.zero));
    if (f->costs.zero < 0 || f->costs.zero > 3)
        return weft_fail(WEFT_E_FORMAT, "%s: \"zero\" is %lld; ZeRO has stages 0 to 3", path,
                         (long long)f->costs.zero);
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
    weft_status_code status = weft_cascade_plan_from_json(root, path, arena, &out->plan);
    if (status == WEFT_OK) {
        out->placed = weft_arena_alloc(arena, out->plan.count * (int64_t)sizeof *out->placed);
        status = out->placed ? read_after(json_object_get(root, "cascades"), arena, out)
                             : weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    if (status == WEFT_OK)
        status = read_description(root, path, cluster_spec, arena, out);
    if (status == WEFT_OK)
        status = weft_plan_seal_check(root, WEFT_CASCADE_FORMAT, path);
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
        return weft_fail(
            WEFT_E_ARG,
            "%s: the plan was made for another %s: its costs were %s, they are %s now; "
            "plan again",
            path, file->model_name, file->model_id, id);
    file->costs.model = model;
    return WEFT_OK;
}
