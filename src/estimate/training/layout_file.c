#include "estimate/training/layout_file.h"

#include "base/hex.h"
#include "base/id_hash.h"
#include "graph/dump.h"
#include "plan/plan_checksum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- workload of a layout -------------------------------------------------------------------- */

static json_t *sizes_of(const weft_train_stage *train_stage)
{
    json_t *list = json_array();
    for (int k = 0; k < weft_train_stage_bucket_count(train_stage); k++) {
        const weft_bucket *b = weft_train_stage_bucket(train_stage, k);
        json_array_append_new(list, json_sprintf("%" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64,
                                                 b->batch, b->frames, b->height, b->width));
    }
    return list;
}

static json_t *workload_of(const weft_run *run, int ranks)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    json_t *train_stages = json_array();
    for (int64_t i = 0; i < run->train_stages.count; i++)
        json_array_append_new(train_stages, json_pack("{s:I, s:o}", "accumulate",
                                                      (json_int_t)train_stage[i].accumulate,
                                                      "sizes", sizes_of(&train_stage[i])));
    return json_pack("{s:i, s:o}", "ranks", ranks, "stages", train_stages);
}

/* Describes the run: the unsharded graphs of all steps. */
static weft_status run_of(const weft_run *run, const weft_run_models *models, json_t **json)
{
    const weft_model *model =
        weft_run_trains_denoiser(models) ? &models->denoiser : &models->autoencoder;
    const weft_train_stage *train_stage = run->train_stages.item;
    uint64_t id = WEFT_ID_BEGIN;
    int64_t parameters = 0;
    char text[20];
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int k = 0; k < weft_train_stage_bucket_count(&train_stage[i]); k++) {
            weft_graph *g;
            WEFT_TRY(
                weft_objective_make(run, models, weft_train_stage_bucket(&train_stage[i], k), &g));
            const uint64_t hash = weft_graph_hash(g);
            const int64_t own = weft_graph_param_count(g);
            weft_graph_free(g);
            id = weft_id_mix(id, &hash, sizeof hash);
            parameters = own > parameters ? own : parameters;
        }
    weft_hex_print(id, text);
    *json = json_pack("{s:s, s:I, s:s}", "model", model->family->class_name, "parameters",
                      (json_int_t)parameters, "id", text);
    return WEFT_ALLOCATED(*json, "a layout");
}

weft_status weft_layout_work_id(const weft_run *run, const weft_run_models *models, int ranks,
                                uint64_t *id)
{
    json_t *json;
    WEFT_TRY(run_of(run, models, &json));
    json_object_set_new(json, "workload", workload_of(run, ranks));
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    WEFT_TRY(WEFT_ALLOCATED(text, "a layout"));
    *id = weft_id_mix(WEFT_ID_BEGIN, text, strlen(text));
    free(text);
    return WEFT_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Keys that are not as usual. */
static json_t *parallel_json(const weft_parallel *p)
{
    const weft_parallel *d = &weft_parallel_default;
    json_t *json = json_object();
    const struct {
        const char *key;
        int64_t value, usual;
    } number[] = {{"dp", p->dp, d->dp},
                  {"fsdp", p->fsdp, d->fsdp},
                  {"zero", p->zero, d->zero},
                  {"ep", p->ep, d->ep},
                  {"tp", p->tp, d->tp},
                  {"cp", p->cp, d->cp},
                  {"pp", p->pp, d->pp},
                  {"virtual_stages", p->virtual_stages, d->virtual_stages},
                  {"microbatches", p->microbatches, d->microbatches}};
    for (int i = 0; i < WEFT_COUNT(number); i++)
        if (number[i].value != number[i].usual)
            json_object_set_new(json, number[i].key, json_integer(number[i].value));
    if (p->sequence)
        json_object_set_new(json, "sequence", json_true());
    if (p->cp > 1) {
        json_t *context = json_pack("{s:I, s:I}", "ulysses", (json_int_t)p->context.ulysses, "ring",
                                    (json_int_t)p->context.ring);
        if (p->context.kind == WEFT_CP_HEADS)
            json_object_set_new(context, "kind", json_string("heads"));
        json_object_set_new(json, "context", context);
    }
    if (p->pp > 1)
        json_object_set_new(json, "schedule", json_string(p->schedule));
    if (p->order.count) {
        json_t *order = json_array();
        for (int64_t i = 0; i < p->order.count; i++)
            json_array_append_new(order, json_string(p->order.item[i]));
        json_object_set_new(json, "order", order);
    }
    return json;
}

static json_t *figures_json(const weft_layout_estimate *l)
{
    json_t *json = json_object();
    weft_layout_estimate_json(l, json);
    return json;
}

static json_t *candidates_json(const weft_layout_list *l)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < l->count; i++) {
        const weft_layout_estimate *estimate = weft_layouts_at(l, i);
        weft_buf why = {0};
        weft_layout_list_explain(l, i, &why);
        json_t *one = figures_json(estimate);
        json_object_set_new(one, "layout", json_string(l->item[i].name));
        json_object_set_new(one, "fits", json_boolean(estimate->fits));
        json_object_set_new(one, "why", json_string(why.data ? why.data : ""));
        if (estimate->memory)
            json_object_set_new(one, "memory", json_string(estimate->memory));
        json_array_append_new(list, one);
        weft_buf_free(&why);
    }
    return list;
}

weft_status weft_layout_to_json(const weft_layout_estimator *p, const weft_layout_list *l,
                                const char *spec, json_t **json)
{
    const weft_layout_estimate *best = weft_layouts_at(l, 0);
    char cluster[20];
    json_t *run;
    weft_cluster_id(p->cluster, cluster);
    WEFT_TRY(run_of(p->run, p->models, &run));
    json_t *made =
        json_pack("{s:{s:s, s:s}, s:o, s:o, s:o, s:I, s:o, s:o}", "cluster", "spec", spec, "id",
                  cluster, "run", run, "workload", workload_of(p->run, p->ranks), "parallel",
                  parallel_json(&best->parallel), "memory_limit", (json_int_t)best->limit,
                  "predicted", figures_json(best), "candidates", candidates_json(l));
    weft_status_code status = WEFT_OK;
    WEFT_GO(made ? weft_plan_add_checksum(made, WEFT_RUN_LAYOUT_FORMAT)
                 : weft_no_memory("a layout"));
    *json = made;
    return WEFT_OK;
out:
    json_decref(made);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status same_model(const json_t *made_for, const json_t *now, const char *file,
                              const char *path)
{
    const char *model[2], *id[2];
    int64_t parameters[2];
    const json_t *of[2] = {made_for, now};
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft_json_get_string(of[i], "model", file, &model[i]));
        WEFT_TRY(weft_json_get_i64(of[i], "parameters", file, &parameters[i]));
        WEFT_TRY(weft_json_get_string(of[i], "id", file, &id[i]));
    }
    if (strcmp(model[0], model[1]) || parameters[0] != parameters[1])
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file),
                          "%s was made for a %s with %" PRId64
                          " trained parameters, and this run has a %s with %" PRId64 "; "
                          "plan again: weft plan layout --run-config %s",
                          file, model[0], parameters[0], model[1], parameters[1], path);
    if (strcmp(id[0], id[1]))
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID,
            WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file),
            "%s was made for other training steps of a %s (graphs %s, now %s: fields of a model, "
            "losses or the process changed); plan again: weft plan layout --run-config %s",
            file, model[0], id[0], id[1], path);
    return WEFT_OK;
}

static weft_status same_workload(const json_t *made_for, const json_t *now, const char *file,
                                 const char *path)
{
    const json_t *was = json_object_get(made_for, "stages"), *is = json_object_get(now, "stages");
    const size_t count = json_array_size(is);
    if (json_array_size(was) != count)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file),
                          "%s was made for %zu stages, and this run has %zu; plan again: weft plan "
                          "layout --run-config %s",
                          file, json_array_size(was), count, path);
    for (size_t i = 0; i < count; i++) {
        json_t *const one[2] = {json_array_get(was, i), json_array_get(is, i)};
        if (json_equal(one[0], one[1]))
            continue;
        char *text[2] = {weft_json_line(one[0]), weft_json_line(one[1])};
        const weft_status_code status = weft_error(
            WEFT_MSG_LAYOUT_INVALID,
            WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file),
            "%s was made for another stage %zu: %s, now %s; plan again: weft plan layout "
            "--run-config %s",
            file, i, text[0] ? text[0] : "?", text[1] ? text[1] : "?", path);
        weft_free(text[0]);
        weft_free(text[1]);
        return status;
    }
    return WEFT_OK;
}

static weft_status check_target(const json_t *plan, const char *file, const char *path, int ranks,
                                const weft_run_models *models, const weft_run *run)
{
    const json_t *workload = json_object_get(plan, "workload");
    int64_t planned;
    json_t *now;
    WEFT_TRY(weft_json_get_i64(workload, "ranks", file, &planned));
    if (ranks && planned != ranks)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file,
                                  WEFT_NUMBER(planned)),
                          "%s was made for %" PRId64
                          " ranks, and the run has %d (mpirun -n %" PRId64 " weft train ..., or "
                          "plan again: weft plan layout --run-config %s --devices %d)",
                          file, planned, ranks, planned, path, ranks);
    json_t *sizes = workload_of(run, (int)planned);
    weft_status_code status =
        sizes ? same_workload(workload, sizes, file, path) : weft_no_memory("a layout");
    json_decref(sizes);
    WEFT_TRY(status);
    WEFT_TRY(run_of(run, models, &now));
    status = same_model(json_object_get(plan, "run"), now, file, path);
    json_decref(now);
    return status;
}

static weft_status read_order(weft_arena *arena, const json_t *list, const char *file,
                              weft_string_list *order)
{
    const size_t count = json_array_size(list);
    WEFT_TRY(WEFT_ARENA_NEW(arena, order->item, (int64_t)(count + 1), "%s", file));
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        order->item[i] = weft_arena_strdup(arena, name ? name : "");
        WEFT_TRY(WEFT_ALLOCATED(order->item[i], "%s", file));
    }
    order->count = (int64_t)count;
    return WEFT_OK;
}

static weft_status read_parallel(weft_arena *arena, const json_t *json, const char *file,
                                 weft_parallel *out)
{
    static const char *const known[] = {
        "dp", "ep",       "fsdp",  "zero",           "tp",          "sequence", "cp", "context",
        "pp", "schedule", "order", "virtual_stages", "microbatches"};
    weft_parallel p = weft_parallel_default;
    const json_t *context = json_object_get(json, "context");
    const char *schedule, *kind;
    WEFT_TRY(weft_json_only(json, file, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_i64_or(json, "dp", file, p.dp, &p.dp));
    WEFT_TRY(weft_json_get_i64_or(json, "fsdp", file, p.fsdp, &p.fsdp));
    WEFT_TRY(weft_json_get_i64_or(json, "zero", file, p.zero, &p.zero));
    WEFT_TRY(weft_json_get_i64_or(json, "ep", file, p.ep, &p.ep));
    WEFT_TRY(weft_json_get_i64_or(json, "tp", file, p.tp, &p.tp));
    WEFT_TRY(weft_json_get_i64_or(json, "cp", file, p.cp, &p.cp));
    WEFT_TRY(weft_json_get_i64_or(json, "pp", file, p.pp, &p.pp));
    WEFT_TRY(weft_json_get_i64_or(json, "virtual_stages", file, 0, &p.virtual_stages));
    WEFT_TRY(weft_json_get_i64_or(json, "microbatches", file, 0, &p.microbatches));
    WEFT_TRY(weft_json_get_string_or(json, "schedule", file, p.schedule, &schedule));
    p.sequence = json_is_true(json_object_get(json, "sequence"));
    if (context) {
        WEFT_TRY(weft_json_get_i64(context, "ulysses", file, &p.context.ulysses));
        WEFT_TRY(weft_json_get_i64(context, "ring", file, &p.context.ring));
        WEFT_TRY(weft_json_get_string_or(context, "kind", file, "ulysses", &kind));
        p.context.kind = strcmp(kind, "heads") ? WEFT_CP_ULYSSES : WEFT_CP_HEADS;
    }
    WEFT_TRY(read_order(arena, json_object_get(json, "order"), file, &p.order));
    p.schedule = weft_arena_strdup(arena, schedule);
    WEFT_TRY(WEFT_ALLOCATED(p.schedule, "%s", file));
    *out = p;
    return WEFT_OK;
}

weft_status weft_layout_load(weft_arena *arena, const char *file, const char *path, int ranks,
                             const weft_run_models *models, weft_run *run)
{
    json_t *plan;
    int64_t limit = 0;
    weft_parallel p;
    WEFT_TRY(weft_json_load(file, &plan));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_plan_verify_checksum(plan, WEFT_RUN_LAYOUT_FORMAT, file));
    WEFT_GO(check_target(plan, file, path, ranks, models, run));
    WEFT_GO(read_parallel(arena, json_object_get(plan, "parallel"), file, &p));
    WEFT_GO(weft_json_get_i64_or(plan, "memory_limit", file, 0, &limit));
    run->parallel = p;
    if (limit && !run->memory.limit)
        run->memory.limit = limit;
out:
    json_decref(plan);
    return status;
}
