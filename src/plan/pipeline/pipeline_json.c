/* Costs and pipeline plans as JSON. */
#include "plan/pipeline/pipeline_json.h"

#include "plan/pipeline/pipeline_report.h"

#include "base/config.h"
#include "plan/plan_checksum.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static weft_status no_memory(void)
{
    return weft_no_memory("a pipeline plan");
}

/* ---- costs from JSON ------------------------------------------------------------------------- */

static weft_status read_op(weft_arena *arena, const json_t *json, const char *where, weft_pp_op *op)
{
    if (!json_is_object(json))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where),
                          "an operator is an object, such as {\"forward\": 0.1}");
    WEFT_TRY(weft_json_get_f64(json, "forward", where, &op->forward));
    WEFT_TRY(weft_json_get_f64_or(json, "backward", where, 2 * op->forward, &op->backward));
    WEFT_TRY(weft_json_get_f64_or(json, "output_bytes", where, 0, &op->output_bytes));
    WEFT_TRY(weft_json_get_f64_or(json, "parameter_bytes", where, 0, &op->parameter_bytes));
    WEFT_TRY(weft_json_get_f64_or(json, "activation_bytes", where, 0, &op->activation_bytes));
    const char *name;
    WEFT_TRY(weft_json_get_string_or(json, "name", where, "", &name));
    op->name = weft_arena_strdup(arena, name);
    return WEFT_ALLOCATED(op->name, "%s", where);
}

static weft_status read_skip(const json_t *json, const char *where, const weft_pp_costs *costs,
                             weft_skip *skip)
{
    const json_t *from = json_array_get(json, 0), *to = json_array_get(json, 1),
                 *bytes = json_array_get(json, 2);
    if (json_array_size(json) < 2 || json_array_size(json) > 3 || !json_is_integer(from) ||
        !json_is_integer(to) || (bytes && !json_is_number(bytes)))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where),
                          "a skip is [producer, consumer] or [producer, consumer, bytes], with the "
                          "indices of two operators");
    int64_t a = json_integer_value(from), b = json_integer_value(to);
    if (a < 0 || b < 0 || a >= costs->op_count || b >= costs->op_count)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.file = where),
                          "[%" PRId64 ", %" PRId64 "] is outside the operators 0 to %" PRId64, a, b,
                          costs->op_count - 1);
    if (a == b)
        return weft_error(
            WEFT_MSG_COSTS_INVALID, WEFT_AT(.file = where, WEFT_NUMBER(a)),
            "[%" PRId64 ", %" PRId64 "] joins an operator with itself; name two operators", a, b);
    if (a > b) {
        const int64_t swap = a;
        a = b;
        b = swap;
    }
    *skip = (weft_skip){(int32_t)a, (int32_t)b,
                        bytes ? json_number_value(bytes) : costs->op[a].output_bytes};
    return WEFT_OK;
}

weft_status weft_pp_costs_from_json(weft_arena *arena, const json_t *json, const char *name,
                                    weft_pp_costs *out)
{
    char where[512];
    weft_pp_costs c = {0};
    const json_t *ops = json_object_get(json, "ops"), *skips = json_object_get(json, "skips");
    if (!json_is_array(ops))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = name, .key = "ops"),
                          "a list of operators is needed");
    if (skips && !json_is_null(skips) && !json_is_array(skips))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = name, .key = "skips"),
                          "this is not a list of [producer, consumer]");
    c.op_count = (int64_t)json_array_size(ops);
    c.skip_count = (int64_t)json_array_size(skips);
    c.op = weft_arena_calloc(arena, c.op_count + 1, sizeof *c.op);
    c.skip = weft_arena_calloc(arena, c.skip_count + 1, sizeof *c.skip);
    WEFT_TRY(WEFT_ALLOCATED(c.op && c.skip, "%s: %" PRId64 " operators", name, c.op_count));
    static const char *const top[] = {"ops", "skips", "lambda", "bandwidth", "latency"},
                             *const of_op[] = {"forward",          "backward",
                                               "output_bytes",     "parameter_bytes",
                                               "activation_bytes", "name"};
    WEFT_TRY(weft_json_only(json, name, top, WEFT_COUNT(top)));
    for (int64_t i = 0; i < c.op_count; i++) {
        snprintf(where, sizeof where, "%s: ops[%" PRId64 "]", name, i);
        const json_t *op = json_array_get(ops, (size_t)i);
        WEFT_TRY(read_op(arena, op, where, &c.op[i]));
        WEFT_TRY(weft_json_only(op, where, of_op, WEFT_COUNT(of_op)));
    }
    for (int64_t s = 0; s < c.skip_count; s++) {
        snprintf(where, sizeof where, "%s: skips[%" PRId64 "]", name, s);
        WEFT_TRY(read_skip(json_array_get(skips, (size_t)s), where, &c, &c.skip[s]));
    }
    WEFT_TRY(weft_json_get_f64_or(json, "bandwidth", name, 0, &c.bandwidth));
    WEFT_TRY(weft_json_get_f64_or(json, "latency", name, 0, &c.latency));
    WEFT_TRY(weft_json_get_f64_or(json, "lambda", name, c.bandwidth > 0, &c.lambda));
    WEFT_TRY(weft_error_at(weft_pp_costs_check(&c), WEFT_AT(.file = name)));
    *out = c;
    return WEFT_OK;
}

weft_status weft_pp_costs_load(weft_arena *arena, const char *path, weft_pp_costs *out)
{
    json_t *json;
    WEFT_TRY(weft_json_load(path, &json));
    const weft_status_code status = weft_pp_costs_from_json(arena, json, path, out);
    json_decref(json);
    return status;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static json_t *numbers(const double *value, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(value[i]));
    return list;
}

/* Lists the skips with the given `collocated`. An edge between neighbours is not a skip. */
static json_t *skip_list(const weft_pp_costs *costs, const weft_partition *p, bool collocated)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < costs->skip_count; k++)
        if (p->collocated[k] == collocated && costs->skip[k].to > costs->skip[k].from + 1)
            json_array_append_new(list, json_pack("[i,i]", costs->skip[k].from, costs->skip[k].to));
    return list;
}

static json_t *candidates_json(const weft_pipeline_plan *plan)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < plan->candidate_count; i++) {
        const weft_pipeline_candidate *c = &plan->candidate[i];
        json_t *item = json_pack("{s:s, s:s}", "schedule", c->name, "devices", c->map);
        if (!isnan(c->seconds)) {
            json_object_set_new(item, "seconds", json_real(c->seconds));
            json_object_set_new(item, "idle", json_real(c->idle));
            json_object_set_new(item, "peak_bytes", json_real(c->peak));
            json_object_set_new(item, "steps", json_integer(c->steps));
        }
        json_object_set_new(item, "lost_because", c->why ? json_string(c->why) : json_null());
        json_array_append_new(list, item);
    }
    return list;
}

json_t *weft_pipeline_plan_json(const weft_pp_costs *costs, const weft_pipeline_plan *plan)
{
    const weft_partition *p = &plan->partition;
    const weft_pp_schedule *s = &plan->schedule;
    json_t *pp_stages = json_array(), *table = json_array(), *map = json_array(),
           *memory = json_array();
    for (int64_t q = 0; q < p->pp_stages; q++) {
        json_array_append_new(
            pp_stages, json_pack("[I,I]", (json_int_t)p->cut[q], (json_int_t)p->cut[q + 1] - 1));
        json_array_append_new(map, json_integer(s->device_of[q]));
    }
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &s->task[i];
        const char kind[2] = {weft_task_letter(t->kind), 0};
        json_array_append_new(table, json_pack("{s:i, s:i, s:i, s:i, s:s, s:f, s:f}", "device",
                                               t->device, "step", t->step, "stage", t->pp_stage,
                                               "microbatch", t->microbatch, "kind", kind, "start",
                                               t->start, "end", t->end));
    }
    for (int64_t d = 0; d < s->devices; d++)
        json_array_append_new(
            memory, json_pack("{s:I, s:f, s:f, s:o}", "device", (json_int_t)d, "parameter_bytes",
                              plan->parameter_bytes[d], "activation_peak_bytes",
                              plan->activation_peak[d], "activation_bytes_by_step",
                              numbers(plan->activation_steps + d * s->steps, s->steps)));
    static const char *const modes[] = {"auto", "collocate", "price", "ignore"};
    json_t *json = json_pack(
        "{s:s, s:o, s:f, s:o, s:f, s:I, s:I, s:o, s:s, s:I, s:I, s:f, s:f, s:o, s:s, s:b, s:o, "
        "s:o, s:o, s:o}",
        "format", WEFT_PIPELINE_FORMAT, "stages", pp_stages, "bottleneck", p->bottleneck,
        "schedule", table, "bytes_per_microbatch", plan->bytes_per_microbatch, "devices",
        (json_int_t)s->devices, "microbatches", (json_int_t)s->microbatches, "device_of_stage", map,
        "schedule_kind", s->name, "steps", (json_int_t)s->steps, "steps_lower_bound",
        (json_int_t)plan->lower_bound_steps, "seconds", plan->timing.seconds, "idle",
        plan->timing.idle, "stage_seconds", numbers(plan->pp_stage_seconds, p->pp_stages), "skips",
        modes[p->mode], "proved", p->proved, "collocated", skip_list(costs, p, true), "sent",
        skip_list(costs, p, false), "memory", memory, "candidates", candidates_json(plan));
    if (json) {
        json_object_set_new(json, "boundary_bytes",
                            numbers(plan->boundary_bytes, p->pp_stages - 1));
        json_object_set_new(json, "stage_activation_bytes",
                            numbers(plan->pp_stage_activation, p->pp_stages));
        json_object_set_new(json, "bandwidth", json_real(plan->bandwidth));
        json_object_set_new(json, "latency", json_real(plan->latency));
    }
    if (json && !isnan(plan->blockwise_bottleneck))
        json_object_set_new(json, "blockwise_bottleneck", json_real(plan->blockwise_bottleneck));
    return json;
}

static weft_status read_task(const json_t *json, const char *where, weft_task *t)
{
    int64_t device, step, pp_stage, microbatch;
    const char *kind;
    WEFT_TRY(weft_json_get_i64(json, "device", where, &device));
    WEFT_TRY(weft_json_get_i64(json, "step", where, &step));
    WEFT_TRY(weft_json_get_i64(json, "stage", where, &pp_stage));
    WEFT_TRY(weft_json_get_i64(json, "microbatch", where, &microbatch));
    WEFT_TRY(weft_json_get_string(json, "kind", where, &kind));
    if (strlen(kind) != 1 || !strchr("FBW", kind[0]))
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = where, .key = "kind", .value = kind),
                          "\"%s\" is not F, B or W", kind);
    if (device < 0 || device > INT32_MAX || step < 0 || step > INT32_MAX || pp_stage < 0 ||
        pp_stage > INT32_MAX || microbatch < 0 || microbatch > INT32_MAX)
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where),
                          "device %" PRId64 ", step %" PRId64 ", stage %" PRId64
                          " and microbatch %" PRId64 " must be from 0 to %d",
                          device, step, pp_stage, microbatch, INT32_MAX);
    *t = (weft_task){.device = (int32_t)device,
                     .step = (int32_t)step,
                     .pp_stage = (int32_t)pp_stage,
                     .microbatch = (int32_t)microbatch,
                     .kind = kind[0] == 'F'   ? WEFT_TASK_F
                             : kind[0] == 'B' ? WEFT_TASK_B
                                              : WEFT_TASK_W};
    WEFT_TRY(weft_json_get_f64_or(json, "start", where, step, &t->start));
    return weft_json_get_f64_or(json, "end", where, step + 1, &t->end);
}

static weft_status read_pp_stages(const json_t *pp_stages, const char *path, weft_partition *p)
{
    p->pp_stages = (int64_t)json_array_size(pp_stages);
    if (p->pp_stages < 1)
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = path, .key = "stages"),
                          "the list of [first, last] operators is missing or empty");
    WEFT_TRY(WEFT_NEW(p->cut, p->pp_stages + 1, "a pipeline plan"));
    for (int64_t q = 0; q < p->pp_stages; q++) {
        const json_t *pair = json_array_get(pp_stages, (size_t)q);
        const int64_t first = json_integer_value(json_array_get(pair, 0)),
                      last = json_integer_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || first != p->cut[q] || last < first)
            return weft_error(
                WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = path, .key = "stages", WEFT_NUMBER(q)),
                "stage %" PRId64 " is not [first, last] with first = %" PRId64, q, p->cut[q]);
        p->cut[q + 1] = last + 1;
    }
    return WEFT_OK;
}

/* Reads an optional list of `count` numbers; missing: zeros. */
static weft_status read_numbers(weft_arena *arena, const json_t *json, const char *key,
                                const char *path, int64_t count, double **out)
{
    const json_t *list = json_object_get(json, key);
    double *value;
    WEFT_TRY(WEFT_ARENA_NEW(arena, value, count + 1, "a pipeline plan"));
    if (list && (int64_t)json_array_size(list) != count)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = path, .key = key, WEFT_NUMBER(json_array_size(list))),
                          "the list has %zu entries, not %" PRId64, json_array_size(list), count);
    for (int64_t i = 0; i < count && list; i++) {
        value[i] = json_number_value(json_array_get(list, (size_t)i));
        if (!(value[i] >= 0))
            return weft_error(WEFT_MSG_PLAN_INVALID,
                              WEFT_AT(.file = path, .key = key, WEFT_NUMBER(value[i])),
                              "entry %" PRId64 " is %g; it must be at least 0", i, value[i]);
    }
    *out = value;
    return WEFT_OK;
}

static weft_status read_costs(const json_t *json, const char *path, weft_pipeline_plan *plan)
{
    const int64_t pp_stages = plan->partition.pp_stages, devices = plan->schedule.devices;
    plan->arena = weft_arena_create();
    if (!plan->arena || devices < 1 || devices > 1000000)
        return plan->arena
                   ? weft_error(WEFT_MSG_PLAN_INVALID,
                                WEFT_AT(.file = path, .key = "devices", WEFT_NUMBER(devices)),
                                "%" PRId64 " is not from 1 to 1000000", devices)
                   : no_memory();
    WEFT_TRY(read_numbers(plan->arena, json, "boundary_bytes", path, pp_stages - 1,
                          &plan->boundary_bytes));
    WEFT_TRY(read_numbers(plan->arena, json, "stage_activation_bytes", path, pp_stages,
                          &plan->pp_stage_activation));
    WEFT_TRY(weft_json_get_f64_or(json, "bandwidth", path, 0, &plan->bandwidth));
    WEFT_TRY(weft_json_get_f64_or(json, "latency", path, 0, &plan->latency));
    if (plan->bandwidth < 0 || plan->latency < 0)
        return weft_error(
            WEFT_MSG_PLAN_INVALID,
            WEFT_AT(.file = path, .key = plan->bandwidth < 0 ? "bandwidth" : "latency",
                    WEFT_NUMBER(plan->bandwidth < 0 ? plan->bandwidth : plan->latency)),
            "%g is below 0", plan->bandwidth < 0 ? plan->bandwidth : plan->latency);
    WEFT_TRY(WEFT_ARENA_NEW(plan->arena, plan->parameter_bytes, devices, "a pipeline plan"));
    const json_t *memory = json_object_get(json, "memory");
    for (size_t d = 0; d < json_array_size(memory) && (int64_t)d < devices; d++)
        WEFT_TRY(weft_json_get_f64_or(json_array_get(memory, d), "parameter_bytes", path, 0,
                                      &plan->parameter_bytes[d]));
    return WEFT_OK;
}

static weft_status read_plan(const json_t *json, const char *path, weft_pipeline_plan *plan)
{
    const char *format;
    WEFT_TRY(weft_json_get_string(json, "format", path, &format));
    if (strcmp(format, WEFT_PIPELINE_FORMAT) != 0)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = path, .key = "format", .value = format),
                          "the format is \"%.40s\", not \"" WEFT_PIPELINE_FORMAT
                          "\"; plan again with this version (" WEFT_VERSION ")",
                          format);
    WEFT_TRY(read_pp_stages(json_object_get(json, "stages"), path, &plan->partition));
    WEFT_TRY(weft_json_get_f64(json, "bottleneck", path, &plan->partition.bottleneck));
    weft_pp_schedule *s = &plan->schedule;
    s->pp_stages = plan->partition.pp_stages;
    WEFT_TRY(weft_json_get_i64(json, "devices", path, &s->devices));
    WEFT_TRY(weft_json_get_i64(json, "microbatches", path, &s->microbatches));
    WEFT_TRY(weft_json_get_f64_or(json, "seconds", path, 0, &plan->timing.seconds));
    WEFT_TRY(weft_json_get_f64_or(json, "idle", path, 0, &plan->timing.idle));
    WEFT_TRY(
        weft_json_get_f64_or(json, "bytes_per_microbatch", path, 0, &plan->bytes_per_microbatch));
    WEFT_TRY(read_costs(json, path, plan));
    const json_t *table = json_object_get(json, "schedule"),
                 *map = json_object_get(json, "device_of_stage");
    s->task_count = (int64_t)json_array_size(table);
    s->task = weft_calloc(s->task_count + 1, sizeof *s->task);
    s->device_of = weft_calloc(s->pp_stages, sizeof *s->device_of);
    s->name = "loaded";
    WEFT_TRY(WEFT_ALLOCATED(s->task && s->device_of, "a pipeline plan"));
    if ((int64_t)json_array_size(map) != s->pp_stages)
        return weft_error(
            WEFT_MSG_PLAN_INVALID,
            WEFT_AT(.file = path, .key = "device_of_stage", WEFT_NUMBER(json_array_size(map))),
            "the list has %zu entries for %" PRId64 " stages", json_array_size(map), s->pp_stages);
    for (int64_t q = 0; q < s->pp_stages; q++) {
        const json_int_t device = json_integer_value(json_array_get(map, (size_t)q));
        s->device_of[q] = device < 0 || device > INT32_MAX ? -1 : (int32_t)device;
    }
    for (int64_t i = 0; i < s->task_count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.180s: schedule[%" PRId64 "]", path, i);
        WEFT_TRY(read_task(json_array_get(table, (size_t)i), where, &s->task[i]));
        s->split = s->split || s->task[i].kind == WEFT_TASK_W;
        s->steps = s->task[i].step >= s->steps ? s->task[i].step + 1 : s->steps;
    }
    return weft_error_at(weft_pp_schedule_check(s), WEFT_AT(.file = path, .key = "schedule"));
}

weft_status weft_pipeline_plan_load(const char *path, weft_pipeline_plan *out)
{
    json_t *json;
    weft_pipeline_plan plan = {0};
    WEFT_TRY(weft_json_load(path, &json));
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_plan(json, path, &plan));
    WEFT_GO(weft_plan_verify_checksum(json, WEFT_PIPELINE_FORMAT, path));
    *out = plan;
    plan = (weft_pipeline_plan){0};
out:
    json_decref(json);
    weft_pipeline_plan_free(&plan);
    return status;
}
