#include "plan/pipeline_plan.h"

#include "base/config.h"
#include "plan/synthesise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CANDIDATES = 16 };

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes(bytes < 9e18 ? (int64_t)bytes : INT64_MAX, text);
}

/* ---- costs from JSON ----------------------------------------------------------------------- */

static weft_status read_op(weft_arena *arena, const json_t *json, const char *where,
                           weft_pipe_op *op)
{
    if (!json_is_object(json))
        return weft_fail(WEFT_E_FORMAT, "%s: an operator is an object with \"forward\" and so on",
                         where);
    WEFT_TRY(weft_json_get_f64(json, "forward", where, &op->forward));
    WEFT_TRY(weft_json_get_f64_or(json, "backward", where, 2 * op->forward, &op->backward));
    WEFT_TRY(weft_json_get_f64_or(json, "output_bytes", where, 0, &op->output_bytes));
    WEFT_TRY(weft_json_get_f64_or(json, "parameter_bytes", where, 0, &op->parameter_bytes));
    WEFT_TRY(weft_json_get_f64_or(json, "activation_bytes", where, 0, &op->activation_bytes));
    const char *name;
    WEFT_TRY(weft_json_get_string_or(json, "name", where, "", &name));
    op->name = weft_arena_strdup(arena, name);
    return op->name ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "%s: out of memory", where);
}

static weft_status read_skip(const json_t *json, const char *where, const weft_pipe_costs *costs,
                             weft_skip *skip)
{
    const json_t *from = json_array_get(json, 0), *to = json_array_get(json, 1),
                 *bytes = json_array_get(json, 2);
    if (json_array_size(json) < 2 || json_array_size(json) > 3 || !json_is_integer(from) ||
        !json_is_integer(to) || (bytes && !json_is_number(bytes)))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: a skip is [producer, consumer], two operator numbers, or "
                         "[producer, consumer, bytes]",
                         where);
    int64_t a = json_integer_value(from), b = json_integer_value(to);
    if (a < 0 || b < 0 || a >= costs->op_count || b >= costs->op_count)
        return weft_fail(WEFT_E_ARG, "%s: [%lld, %lld] is outside the operators 0..%lld", where,
                         (long long)a, (long long)b, (long long)costs->op_count - 1);
    if (a == b)
        return weft_fail(WEFT_E_ARG, "%s: [%lld, %lld] joins an operator with itself", where,
                         (long long)a, (long long)b);
    if (a > b) {
        const int64_t swap = a;
        a = b;
        b = swap;
    }
    *skip = (weft_skip){(int32_t)a, (int32_t)b,
                        bytes ? json_number_value(bytes) : costs->op[a].output_bytes};
    return WEFT_OK;
}

weft_status weft_pipe_costs_from_json(weft_arena *arena, const json_t *json, const char *name,
                                      weft_pipe_costs *out)
{
    char where[512];
    weft_pipe_costs c = {0};
    const json_t *ops = json_object_get(json, "ops"), *skips = json_object_get(json, "skips");
    if (!json_is_array(ops))
        return weft_fail(WEFT_E_FORMAT, "%s: \"ops\", a list of operators, is missing", name);
    if (skips && !json_is_null(skips) && !json_is_array(skips))
        return weft_fail(WEFT_E_FORMAT, "%s: \"skips\" is not a list of [producer, consumer]",
                         name);
    c.op_count = (int64_t)json_array_size(ops);
    c.skip_count = (int64_t)json_array_size(skips);
    c.op = weft_arena_alloc(arena, (c.op_count + 1) * (int64_t)sizeof *c.op);
    c.skip = weft_arena_alloc(arena, (c.skip_count + 1) * (int64_t)sizeof *c.skip);
    if (!c.op || !c.skip)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for %lld operators", name,
                         (long long)c.op_count);
    static const char *const top[] = {"ops", "skips", "lambda", "bandwidth", "latency"},
                             *const of_op[] = {"forward",          "backward",
                                               "output_bytes",     "parameter_bytes",
                                               "activation_bytes", "name"};
    bool warned = weft_json_warn_unknown(json, name, top, WEFT_COUNT(top));
    for (int64_t i = 0; i < c.op_count; i++) {
        snprintf(where, sizeof where, "%s: ops[%lld]", name, (long long)i);
        const json_t *op = json_array_get(ops, (size_t)i);
        WEFT_TRY(read_op(arena, op, where, &c.op[i]));
        warned = warned || weft_json_warn_unknown(op, where, of_op, WEFT_COUNT(of_op));
    }
    for (int64_t s = 0; s < c.skip_count; s++) {
        snprintf(where, sizeof where, "%s: skips[%lld]", name, (long long)s);
        WEFT_TRY(read_skip(json_array_get(skips, (size_t)s), where, &c, &c.skip[s]));
    }
    WEFT_TRY(weft_json_get_f64_or(json, "bandwidth", name, 0, &c.bandwidth));
    WEFT_TRY(weft_json_get_f64_or(json, "latency", name, 0, &c.latency));
    WEFT_TRY(weft_json_get_f64_or(json, "lambda", name, c.bandwidth > 0, &c.lambda));
    const weft_status_code status = weft_pipe_costs_check(&c);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", name);
    *out = c;
    return WEFT_OK;
}

weft_status weft_pipe_costs_load(weft_arena *arena, const char *path, weft_pipe_costs *out)
{
    json_t *json;
    WEFT_TRY(weft_json_load(path, &json));
    const weft_status_code status = weft_pipe_costs_from_json(arena, json, path, out);
    json_decref(json);
    return status;
}

weft_status weft_pipe_costs_from_list(weft_arena *arena, const weft_op_list *list,
                                      const weft_device_type *device, double microbatch,
                                      weft_pipe_costs *out)
{
    weft_pipe_costs c = {.op_count = list->count, .skip_count = list->skip_count};
    if (!isfinite(microbatch) || !(microbatch > 0))
        return weft_fail(WEFT_E_ARG, "a microbatch of %g samples", microbatch);
    c.op = weft_arena_alloc(arena, (c.op_count + 1) * (int64_t)sizeof *c.op);
    c.skip = weft_arena_alloc(arena, (c.skip_count + 1) * (int64_t)sizeof *c.skip);
    if (!c.op || !c.skip)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld operators", (long long)c.op_count);
    for (int64_t i = 0; i < c.op_count; i++) {
        const weft_op_cost *x = &list->op[i];
        /* weights are read once per microbatch, activations per sample */
        const double forward =
            fmax(0, x->forward_bytes - x->param_bytes) * microbatch + x->param_bytes;
        const double backward =
            fmax(0, x->backward_bytes - 2 * x->param_bytes) * microbatch + 2 * x->param_bytes;
        c.op[i] = (weft_pipe_op){
            .name = x->name,
            .forward = weft_device_seconds(device, x->kind, x->forward_flops * microbatch, forward),
            .backward =
                weft_device_seconds(device, x->kind, x->backward_flops * microbatch, backward),
            .output_bytes = x->output_bytes * microbatch,
            .parameter_bytes = x->param_bytes,
            .activation_bytes = x->activation_bytes * microbatch};
    }
    for (int64_t k = 0; k < c.skip_count; k++) {
        c.skip[k] = list->skip[k];
        c.skip[k].bytes *= microbatch;
    }
    *out = c;
    return WEFT_OK;
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* What the trials share. */
typedef struct trial {
    const weft_pipe_costs *costs;
    const weft_pipeline_options *options;
    weft_pipeline_plan *plan;
    int64_t devices, microbatches;
    double *forward, *backward, *send, *activation, *parameters; /* [stages] */
    int32_t *device_of;
    double *peak; /* [devices] */
    double best_seconds, best_peak;
    int64_t best; /* candidate, -1: none yet */
} trial;

static weft_status no_room(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for a pipeline plan");
}

static weft_status stage_sums(trial *t)
{
    const weft_pipe_costs *c = t->costs;
    const weft_partition *p = &t->plan->partition;
    weft_arena *arena = t->plan->arena;
    const int64_t bytes = p->stages * (int64_t)sizeof(double);
    t->forward = weft_arena_alloc(arena, bytes);
    t->backward = weft_arena_alloc(arena, bytes);
    t->send = weft_arena_alloc(arena, bytes);
    t->activation = weft_arena_alloc(arena, bytes);
    t->parameters = weft_arena_alloc(arena, bytes);
    t->plan->stage_seconds = weft_arena_alloc(arena, bytes);
    t->device_of = weft_arena_alloc(arena, p->stages * (int64_t)sizeof *t->device_of);
    t->peak = weft_arena_alloc(arena, t->devices * (int64_t)sizeof(double));
    if (!t->forward || !t->backward || !t->send || !t->activation || !t->parameters ||
        !t->plan->stage_seconds || !t->device_of || !t->peak)
        return no_room();
    const double per_byte = c->lambda > 0 ? c->lambda / c->bandwidth : 0;
    for (int64_t s = 0; s < p->stages; s++) {
        for (int64_t i = p->cut[s]; i < p->cut[s + 1]; i++) {
            t->forward[s] += c->op[i].forward;
            t->backward[s] += c->op[i].backward;
            t->activation[s] += c->op[i].activation_bytes;
            t->parameters[s] += c->op[i].parameter_bytes;
        }
        t->plan->stage_seconds[s] = t->forward[s] + c->lambda * c->latency +
                                    per_byte * c->op[p->cut[s + 1] - 1].output_bytes;
    }
    for (int64_t k = 0; k < c->skip_count && p->mode == WEFT_COLLOCATE_PRICE; k++)
        if (!p->collocated[k] && c->skip[k].to > c->skip[k].from + 1)
            t->plan->stage_seconds[weft_partition_stage_of(p, c->skip[k].from)] +=
                per_byte * c->skip[k].bytes;
    return WEFT_OK;
}

static weft_status add_candidate(trial *t, weft_pipeline_candidate made)
{
    weft_pipeline_plan *p = t->plan;
    if (p->candidate_count == MOST_CANDIDATES)
        return weft_fail(WEFT_E_INTERNAL, "more than %d schedules to compare", MOST_CANDIDATES);
    p->candidate[p->candidate_count++] = made;
    return WEFT_OK;
}

/* Takes over `made` when it is the best so far, else frees it. */
static weft_status judge(trial *t, weft_schedule *made, const char *map,
                         const weft_stage_times *times)
{
    weft_pipeline_plan *p = t->plan;
    weft_schedule_timing timing;
    weft_status_code status = weft_schedule_time(made, times, &timing);
    if (status == WEFT_OK)
        status = weft_schedule_memory(made, t->activation, NULL, t->peak);
    if (status != WEFT_OK) {
        weft_schedule_free(made);
        return status;
    }
    for (int64_t s = 0; s < made->stages; s++)
        t->peak[made->device_of[s]] += t->parameters[s];
    double peak = 0;
    for (int64_t d = 0; d < made->devices; d++)
        peak = t->peak[d] > peak ? t->peak[d] : peak;
    weft_pipeline_candidate c = {.name = made->name,
                                 .map = map,
                                 .seconds = timing.seconds,
                                 .idle = timing.idle,
                                 .peak = peak,
                                 .steps = made->steps};
    char need[32], limit[32], time[32];
    const double slower = timing.seconds - t->best_seconds;
    const bool fits = t->options->memory <= 0 || peak <= t->options->memory;
    if (!fits) {
        c.why =
            weft_arena_printf(p->arena, "needs %s per device, limit %s", format_bytes(peak, need),
                              format_bytes(t->options->memory, limit));
    } else if (t->best < 0 || slower < -1e-9 * t->best_seconds ||
               (slower <= 1e-9 * t->best_seconds && peak < t->best_peak)) {
        if (t->best >= 0) {
            weft_pipeline_candidate *old = &p->candidate[t->best];
            old->why =
                slower < -1e-9 * t->best_seconds
                    ? weft_arena_printf(p->arena, "%s slower", weft_format_seconds(-slower, time))
                    : weft_arena_printf(p->arena, "as fast, but holds %s more",
                                        format_bytes(t->best_peak - peak, need));
        }
        t->best = p->candidate_count;
        t->best_seconds = timing.seconds;
        t->best_peak = peak;
        weft_schedule_free(&p->schedule);
        p->schedule = *made;
        p->timing = timing;
        *made = (weft_schedule){0};
    } else if (slower > 1e-9 * t->best_seconds) {
        c.why = weft_arena_printf(p->arena, "%s slower", weft_format_seconds(slower, time));
    } else {
        c.why = weft_arena_printf(p->arena, "as fast, and holds no less");
    }
    weft_schedule_free(made);
    return add_candidate(t, c);
}

static weft_status try_synthesis(trial *t, const weft_stage_times *times, bool mirrored)
{
    const int64_t stages = t->plan->partition.stages;
    weft_stage_pair pair[16];
    int64_t pairs = 0;
    if (stages > 16)
        return WEFT_OK; /* beyond the exact search: the list scheduler's rules are tried anyway */
    for (int64_t s = 0; mirrored && s < stages / 2; s++)
        pair[pairs++] = (weft_stage_pair){(int32_t)s, (int32_t)(stages - 1 - s)};
    weft_synthesis made;
    WEFT_TRY(weft_synthesise(stages, t->devices, t->microbatches, pair, pairs, 0, &made));
    if (made.states == 0) {
        weft_schedule_free(&made.schedule);
        return WEFT_OK;
    }
    return judge(t, &made.schedule, "searched", times);
}

static weft_status try_kinds(trial *t, weft_stage_map map, const weft_stage_times *times)
{
    static const weft_schedule_kind kinds[] = {WEFT_SCHEDULE_1F1B,  WEFT_SCHEDULE_INTERLEAVED,
                                               WEFT_SCHEDULE_WAVE,  WEFT_SCHEDULE_GREEDY,
                                               WEFT_SCHEDULE_GPIPE, WEFT_SCHEDULE_ZERO_BUBBLE};
    const int wanted = t->options->schedule;
    const char *map_name = map == WEFT_MAP_FOLD ? "fold" : "round";
    weft_stage_map_fill(map, t->plan->partition.stages, t->devices, t->device_of);
    for (int k = 0; k < 6; k++) {
        /* a split backward needs a runtime that has one: only on request */
        if (wanted >= 0 ? (int)kinds[k] != wanted : kinds[k] == WEFT_SCHEDULE_ZERO_BUBBLE)
            continue;
        if (wanted < 0 && kinds[k] == WEFT_SCHEDULE_GREEDY && map == WEFT_MAP_FOLD)
            continue; /* the wave is the list scheduler on the fold */
        weft_schedule made;
        const weft_status_code status =
            weft_schedule_make(kinds[k], t->device_of, t->plan->partition.stages, t->devices,
                               t->microbatches, times, &made);
        if (status == WEFT_E_INFEASIBLE) {
            WEFT_TRY(add_candidate(
                t, (weft_pipeline_candidate){
                       .name = weft_schedule_kind_name(kinds[k]),
                       .map = map_name,
                       .seconds = NAN,
                       .idle = NAN,
                       .peak = NAN,
                       .why = weft_arena_strdup(t->plan->arena, weft_error_message())}));
            continue;
        }
        if (status != WEFT_OK)
            return status;
        WEFT_TRY(judge(t, &made, map_name, times));
    }
    return WEFT_OK;
}

/* Memory and bytes of the chosen schedule. */
static weft_status finish(trial *t)
{
    weft_pipeline_plan *p = t->plan;
    const int64_t d64 = (int64_t)sizeof(double), devices = p->schedule.devices;
    p->parameter_bytes = weft_arena_alloc(p->arena, devices * d64);
    p->activation_peak = weft_arena_alloc(p->arena, devices * d64);
    p->activation_steps = weft_arena_alloc(p->arena, devices * p->schedule.steps * d64);
    if (!p->parameter_bytes || !p->activation_peak || !p->activation_steps)
        return no_room();
    WEFT_TRY(
        weft_schedule_memory(&p->schedule, t->activation, p->activation_steps, p->activation_peak));
    for (int64_t s = 0; s < p->partition.stages; s++)
        p->parameter_bytes[p->schedule.device_of[s]] += t->parameters[s];
    for (int64_t d = 0; d < devices; d++) {
        bool used = false;
        for (int64_t s = 0; s < p->partition.stages; s++)
            used = used || p->schedule.device_of[s] == d;
        p->idle_devices += !used;
    }
    p->boundary_bytes = weft_arena_alloc(p->arena, p->partition.stages * d64);
    if (!p->boundary_bytes)
        return no_room();
    p->stage_activation = t->activation;
    p->bandwidth = t->costs->bandwidth;
    p->latency = t->costs->latency;
    p->bytes_per_microbatch = weft_pipeline_bytes(t->costs, &p->partition, p->schedule.device_of,
                                                  false, p->boundary_bytes);
    p->lower_bound_steps = weft_schedule_lower_bound(p->schedule.device_of, p->partition.stages,
                                                     devices, p->schedule.microbatches);
    weft_partition blockwise;
    p->blockwise_bottleneck = NAN;
    WEFT_TRY(weft_partition_blockwise(t->costs, p->partition.stages, NULL, &blockwise));
    p->blockwise_bottleneck = blockwise.bottleneck;
    weft_partition_free(&blockwise);
    return weft_schedule_check(&p->schedule);
}

static bool binding_skips(const weft_pipe_costs *costs)
{
    for (int64_t k = 0; k < costs->skip_count; k++)
        if (costs->skip[k].to > costs->skip[k].from + 1)
            return true;
    return false;
}

static weft_status nothing_chosen(const weft_pipeline_plan *p, const weft_pipeline_options *options)
{
    const weft_pipeline_candidate *least = NULL;
    for (int64_t i = 0; i < p->candidate_count; i++)
        if (!isnan(p->candidate[i].peak) && (!least || p->candidate[i].peak < least->peak))
            least = &p->candidate[i];
    if (!least)
        return weft_fail(WEFT_E_INFEASIBLE, "no schedule fits: %s",
                         p->candidate_count > 0 ? p->candidate[0].why : "none was tried");
    char need[32], limit[32];
    return weft_fail(WEFT_E_INFEASIBLE,
                     "needs %s per device with the %s schedule, limit %s; use more "
                     "stages and devices, or fewer microbatches in flight",
                     format_bytes(least->peak, need), least->name,
                     format_bytes(options->memory, limit));
}

static weft_status check_options(const weft_pipeline_options *o)
{
    if (o->stages < 1)
        return weft_fail(WEFT_E_ARG, "--stages %lld: at least one is needed", (long long)o->stages);
    if (o->devices < 0 || o->devices > 1000000)
        return weft_fail(WEFT_E_ARG, "--devices %lld is not between 1 and 1000000",
                         (long long)o->devices);
    if (o->microbatches < 0)
        return weft_fail(WEFT_E_ARG, "--microbatches %lld: at least one is needed",
                         (long long)o->microbatches);
    if (!isfinite(o->memory) || o->memory < 0)
        return weft_fail(WEFT_E_ARG, "--memory %g: bytes per device are needed", o->memory);
    return WEFT_OK;
}

weft_status weft_pipeline_plan_make(const weft_pipe_costs *costs,
                                    const weft_pipeline_options *options, weft_pipeline_plan *out)
{
    WEFT_TRY(check_options(options));
    weft_pipeline_plan plan = {0};
    weft_status_code status = WEFT_OK;
    plan.arena = weft_arena_create();
    if (!plan.arena)
        return no_room();
    WEFT_GO(weft_partition_solve(costs, options->stages, options->skips, &plan.partition));
    const bool mirrored = plan.partition.mode != WEFT_COLLOCATE_NONE && binding_skips(costs);
    const int64_t stages = options->stages, usable = mirrored ? (stages + 1) / 2 : stages;
    trial t = {.costs = costs, .options = options, .plan = &plan, .best = -1};
    t.devices = options->devices > 0 ? options->devices : usable;
    t.microbatches = options->microbatches > 0 ? options->microbatches
                     : t.devices < usable      ? t.devices
                                               : usable;
    WEFT_GO(stage_sums(&t));
    plan.candidate =
        weft_arena_alloc(plan.arena, MOST_CANDIDATES * (int64_t)sizeof *plan.candidate);
    if (!plan.candidate)
        WEFT_GO(no_room());
    for (int64_t s = 0; s + 1 < stages && costs->bandwidth > 0; s++) {
        t.send[s] = costs->latency +
                    costs->op[plan.partition.cut[s + 1] - 1].output_bytes / costs->bandwidth;
        for (int64_t k = 0; k < costs->skip_count;
             k++) /* skips that are sent travel with the rest */
            if (!plan.partition.collocated[k] && costs->skip[k].to > costs->skip[k].from + 1 &&
                costs->skip[k].from < plan.partition.cut[s + 1] &&
                costs->skip[k].to >= plan.partition.cut[s + 1])
                t.send[s] += costs->skip[k].bytes / costs->bandwidth;
    }
    const weft_stage_times times = {.forward = t.forward,
                                    .backward = t.backward,
                                    .send = t.send,
                                    .send_back = t.send,
                                    .blocking = options->blocking};
    if (!mirrored)
        WEFT_GO(try_kinds(&t, WEFT_MAP_ROUND, &times));
    if (mirrored || t.devices < stages)
        WEFT_GO(try_kinds(&t, WEFT_MAP_FOLD, &times));
    if (options->schedule < 0)
        WEFT_GO(try_synthesis(&t, &times, mirrored));
    if (t.best < 0)
        WEFT_GO(nothing_chosen(&plan, options));
    WEFT_GO(finish(&t));
    *out = plan;
    plan = (weft_pipeline_plan){0};
out:
    weft_pipeline_plan_free(&plan);
    return status;
}

void weft_pipeline_plan_free(weft_pipeline_plan *plan)
{
    if (!plan)
        return;
    weft_partition_free(&plan->partition);
    weft_schedule_free(&plan->schedule);
    weft_arena_free(plan->arena);
    *plan = (weft_pipeline_plan){0};
}

/* ---- in and out ---------------------------------------------------------------------------- */

static json_t *numbers(const double *value, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(value[i]));
    return list;
}

/* An edge between neighbours is none of them. */
static json_t *skip_list(const weft_pipe_costs *costs, const weft_partition *p, bool collocated)
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

json_t *weft_pipeline_plan_json(const weft_pipe_costs *costs, const weft_pipeline_plan *plan)
{
    const weft_partition *p = &plan->partition;
    const weft_schedule *s = &plan->schedule;
    json_t *stages = json_array(), *table = json_array(), *map = json_array(),
           *memory = json_array();
    for (int64_t q = 0; q < p->stages; q++) {
        json_array_append_new(
            stages, json_pack("[I,I]", (json_int_t)p->cut[q], (json_int_t)p->cut[q + 1] - 1));
        json_array_append_new(map, json_integer(s->device_of[q]));
    }
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &s->task[i];
        const char kind[2] = {"FBW"[t->kind], 0};
        json_array_append_new(table, json_pack("{s:i, s:i, s:i, s:i, s:s, s:f, s:f}", "device",
                                               t->device, "step", t->step, "stage", t->stage,
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
        "format", "weft.pipeline/1", "stages", stages, "bottleneck", p->bottleneck, "schedule",
        table, "bytes_per_microbatch", plan->bytes_per_microbatch, "devices",
        (json_int_t)s->devices, "microbatches", (json_int_t)s->microbatches, "device_of_stage", map,
        "schedule_kind", s->name, "steps", (json_int_t)s->steps, "steps_lower_bound",
        (json_int_t)plan->lower_bound_steps, "seconds", plan->timing.seconds, "idle",
        plan->timing.idle, "stage_seconds", numbers(plan->stage_seconds, p->stages), "skips",
        modes[p->mode], "proved", p->proved, "collocated", skip_list(costs, p, true), "sent",
        skip_list(costs, p, false), "memory", memory, "candidates", candidates_json(plan));
    if (json) {
        json_object_set_new(json, "boundary_bytes", numbers(plan->boundary_bytes, p->stages - 1));
        json_object_set_new(json, "stage_activation_bytes",
                            numbers(plan->stage_activation, p->stages));
        json_object_set_new(json, "bandwidth", json_real(plan->bandwidth));
        json_object_set_new(json, "latency", json_real(plan->latency));
    }
    if (json && !isnan(plan->blockwise_bottleneck))
        json_object_set_new(json, "blockwise_bottleneck", json_real(plan->blockwise_bottleneck));
    return json;
}

static weft_status read_task(const json_t *json, const char *where, weft_task *t)
{
    int64_t device, step, stage, microbatch;
    const char *kind;
    WEFT_TRY(weft_json_get_i64(json, "device", where, &device));
    WEFT_TRY(weft_json_get_i64(json, "step", where, &step));
    WEFT_TRY(weft_json_get_i64(json, "stage", where, &stage));
    WEFT_TRY(weft_json_get_i64(json, "microbatch", where, &microbatch));
    WEFT_TRY(weft_json_get_string(json, "kind", where, &kind));
    if (strlen(kind) != 1 || !strchr("FBW", kind[0]))
        return weft_fail(WEFT_E_FORMAT, "%s: kind \"%s\" is not F, B or W", where, kind);
    if (device < 0 || device > INT32_MAX || step < 0 || step > INT32_MAX || stage < 0 ||
        stage > INT32_MAX || microbatch < 0 || microbatch > INT32_MAX)
        return weft_fail(WEFT_E_FORMAT, "%s: a number is negative or too large", where);
    *t = (weft_task){.device = (int32_t)device,
                     .step = (int32_t)step,
                     .stage = (int32_t)stage,
                     .microbatch = (int32_t)microbatch,
                     .kind = kind[0] == 'F'   ? WEFT_TASK_F
                             : kind[0] == 'B' ? WEFT_TASK_B
                                              : WEFT_TASK_W};
    WEFT_TRY(weft_json_get_f64_or(json, "start", where, step, &t->start));
    return weft_json_get_f64_or(json, "end", where, step + 1, &t->end);
}

static weft_status read_stages(const json_t *stages, const char *path, weft_partition *p)
{
    p->stages = (int64_t)json_array_size(stages);
    if (p->stages < 1)
        return weft_fail(WEFT_E_FORMAT, "%s: \"stages\", a list of [first, last], is missing",
                         path);
    p->cut = weft_alloc((p->stages + 1) * (int64_t)sizeof *p->cut);
    if (!p->cut)
        return no_room();
    for (int64_t q = 0; q < p->stages; q++) {
        const json_t *pair = json_array_get(stages, (size_t)q);
        const int64_t first = json_integer_value(json_array_get(pair, 0)),
                      last = json_integer_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || first != p->cut[q] || last < first)
            return weft_fail(WEFT_E_FORMAT, "%s: stages[%lld] does not go on from operator %lld",
                             path, (long long)q, (long long)p->cut[q]);
        p->cut[q + 1] = last + 1;
    }
    return WEFT_OK;
}

/* Optional lists of `count` numbers: missing is zeros. */
static weft_status read_numbers(weft_arena *arena, const json_t *json, const char *key,
                                const char *path, int64_t count, double **out)
{
    const json_t *list = json_object_get(json, key);
    double *value = weft_arena_alloc(arena, (count + 1) * (int64_t)sizeof *value);
    if (!value)
        return no_room();
    if (list && (int64_t)json_array_size(list) != count)
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" has %lld entries, not %lld", path, key,
                         (long long)json_array_size(list), (long long)count);
    for (int64_t i = 0; i < count && list; i++) {
        value[i] = json_number_value(json_array_get(list, (size_t)i));
        if (!(value[i] >= 0))
            return weft_fail(WEFT_E_FORMAT, "%s: %s[%lld] is negative", path, key, (long long)i);
    }
    *out = value;
    return WEFT_OK;
}

static weft_status read_costs(const json_t *json, const char *path, weft_pipeline_plan *plan)
{
    const int64_t stages = plan->partition.stages, devices = plan->schedule.devices;
    plan->arena = weft_arena_create();
    if (!plan->arena || devices < 1 || devices > 1000000)
        return plan->arena ? weft_fail(WEFT_E_FORMAT, "%s: %lld devices", path, (long long)devices)
                           : no_room();
    WEFT_TRY(
        read_numbers(plan->arena, json, "boundary_bytes", path, stages - 1, &plan->boundary_bytes));
    WEFT_TRY(read_numbers(plan->arena, json, "stage_activation_bytes", path, stages,
                          &plan->stage_activation));
    WEFT_TRY(weft_json_get_f64_or(json, "bandwidth", path, 0, &plan->bandwidth));
    WEFT_TRY(weft_json_get_f64_or(json, "latency", path, 0, &plan->latency));
    if (plan->bandwidth < 0 || plan->latency < 0)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"bandwidth\" is %g and \"latency\" %g; neither may be negative",
                         path, plan->bandwidth, plan->latency);
    plan->parameter_bytes = weft_arena_alloc(plan->arena, devices * (int64_t)sizeof(double));
    if (!plan->parameter_bytes)
        return no_room();
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
    if (strcmp(format, "weft.pipeline/1") != 0)
        return weft_fail(WEFT_E_FORMAT, "%s: format \"%s\" is not weft.pipeline/1", path, format);
    WEFT_TRY(read_stages(json_object_get(json, "stages"), path, &plan->partition));
    WEFT_TRY(weft_json_get_f64(json, "bottleneck", path, &plan->partition.bottleneck));
    weft_schedule *s = &plan->schedule;
    s->stages = plan->partition.stages;
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
    s->task = weft_alloc((s->task_count + 1) * (int64_t)sizeof *s->task);
    s->device_of = weft_alloc(s->stages * (int64_t)sizeof *s->device_of);
    s->name = "loaded";
    if (!s->task || !s->device_of)
        return no_room();
    if ((int64_t)json_array_size(map) != s->stages)
        return weft_fail(WEFT_E_FORMAT, "%s: \"device_of_stage\" has %lld entries for %lld stages",
                         path, (long long)json_array_size(map), (long long)s->stages);
    for (int64_t q = 0; q < s->stages; q++) {
        const json_int_t device = json_integer_value(json_array_get(map, (size_t)q));
        s->device_of[q] = device < 0 || device > INT32_MAX ? -1 : (int32_t)device;
    }
    for (int64_t i = 0; i < s->task_count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.180s: schedule[%lld]", path, (long long)i);
        WEFT_TRY(read_task(json_array_get(table, (size_t)i), where, &s->task[i]));
        s->split = s->split || s->task[i].kind == WEFT_TASK_W;
        s->steps = s->task[i].step >= s->steps ? s->task[i].step + 1 : s->steps;
    }
    const weft_status_code status = weft_schedule_check(s);
    return status == WEFT_OK ? status
                             : weft_fail_context(status, "%s: the schedule is not legal", path);
}

weft_status weft_pipeline_plan_load(const char *path, weft_pipeline_plan *out)
{
    json_t *json;
    weft_pipeline_plan plan = {0};
    WEFT_TRY(weft_json_load(path, &json));
    const weft_status_code status = read_plan(json, path, &plan);
    json_decref(json);
    if (status != WEFT_OK) {
        weft_pipeline_plan_free(&plan);
        return status;
    }
    *out = plan;
    return WEFT_OK;
}

static void print_candidates(const weft_pipeline_plan *plan, weft_buf *out)
{
    char time[32], bytes[32];
    weft_buf_printf(out, "\n  candidate     devices    iteration   idle       peak\n");
    for (int64_t i = 0; i < plan->candidate_count; i++) {
        const weft_pipeline_candidate *c = &plan->candidate[i];
        if (isnan(c->seconds))
            weft_buf_printf(out, "  %-12s  %-9s          -      -          -  %s\n", c->name,
                            c->map, c->why);
        else
            weft_buf_printf(out, "%s %-12s  %-9s %10s %5.1f %% %10s  %s\n", c->why ? " " : "*",
                            c->name, c->map, weft_format_seconds(c->seconds, time), 100 * c->idle,
                            format_bytes(c->peak, bytes), c->why ? c->why : "chosen");
    }
}

void weft_pipeline_plan_print(const weft_pipe_costs *costs, const weft_pipeline_plan *plan,
                              bool explain, weft_buf *out)
{
    const weft_partition *p = &plan->partition;
    const weft_schedule *s = &plan->schedule;
    char a[32], b[32], c[32];
    int64_t kept = 0, skips = 0;
    for (int64_t k = 0; k < costs->skip_count; k++)
        if (costs->skip[k].to > costs->skip[k].from + 1) { /* else an edge between neighbours */
            kept += p->collocated[k];
            skips++;
        }
    weft_buf_printf(
        out, "%lld operators in %lld stages on %lld devices, %lld microbatches, schedule %s\n",
        (long long)costs->op_count, (long long)p->stages, (long long)s->devices,
        (long long)s->microbatches, s->name);
    weft_buf_printf(out, "slowest stage   %s%s, block-wise %s\n",
                    weft_format_seconds(p->bottleneck, a), p->proved ? " (optimal)" : "",
                    weft_format_seconds(plan->blockwise_bottleneck, b));
    weft_buf_printf(out, "iteration       %s, idle %.1f %%, %lld steps (at least %lld)\n",
                    weft_format_seconds(plan->timing.seconds, a), 100 * plan->timing.idle,
                    (long long)s->steps, (long long)plan->lower_bound_steps);
    weft_buf_printf(
        out,
        "communication   %s per microbatch forward, as much backward; %lld of %lld skips "
        "stay on their device\n",
        format_bytes(plan->bytes_per_microbatch, a), (long long)kept, (long long)skips);
    if (plan->idle_devices > 0)
        weft_buf_printf(
            out, "note            %lld devices get no stage: %lld stages%s use at most %lld\n",
            (long long)plan->idle_devices, (long long)p->stages,
            kept ? " with collocated skips" : "",
            (long long)(kept ? (p->stages + 1) / 2 : p->stages));
    weft_buf_printf(out, "\n  stage  device  operators        seconds\n");
    for (int64_t q = 0; q < p->stages; q++)
        weft_buf_printf(out, "  %5lld  %6d  %5lld .. %-5lld  %9s\n", (long long)q, s->device_of[q],
                        (long long)p->cut[q], (long long)p->cut[q + 1] - 1,
                        weft_format_seconds(plan->stage_seconds[q], a));
    weft_buf_printf(out, "\n  device  parameters  activations        peak\n");
    for (int64_t d = 0; d < s->devices; d++)
        weft_buf_printf(out, "  %6lld  %10s  %11s  %10s\n", (long long)d,
                        format_bytes(plan->parameter_bytes[d], a),
                        format_bytes(plan->activation_peak[d], b),
                        format_bytes(plan->parameter_bytes[d] + plan->activation_peak[d], c));
    if (explain)
        print_candidates(plan, out);
}
