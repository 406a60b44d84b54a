#include "plan/pipeline/pipeline_plan.h"

#include "plan/pipeline/synthesise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CANDIDATES = 24, MOST_DEVICES = 16384 };

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes(bytes < 9e18 ? (int64_t)bytes : INT64_MAX, text);
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
            const char *why = weft_arena_strdup(t->plan->arena, weft_error_message());
            if (!why)
                return no_room();
            WEFT_TRY(add_candidate(
                t, (weft_pipeline_candidate){.name = weft_schedule_kind_name(kinds[k]),
                                             .map = map_name,
                                             .seconds = NAN,
                                             .idle = NAN,
                                             .peak = NAN,
                                             .why = why}));
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
    weft_pipe_costs counted = *t->costs;
    if (p->partition.mode == WEFT_COLLOCATE_NONE) /* ignored in the times, and in the bytes */
        counted.skip_count = 0;
    p->bytes_per_microbatch = weft_pipeline_bytes(&counted, &p->partition, p->schedule.device_of,
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
    if (o->devices < 0 || o->devices > MOST_DEVICES)
        return weft_fail(WEFT_E_ARG,
                         "--devices %lld is not between 1 and %d, which one pipeline can have",
                         (long long)o->devices, MOST_DEVICES);
    if (o->microbatches < 0)
        return weft_fail(WEFT_E_ARG, "--microbatches %lld: at least one is needed",
                         (long long)o->microbatches);
    if (!isfinite(o->memory) || o->memory < 0)
        return weft_fail(WEFT_E_ARG, "--memory %g: bytes per device are needed", o->memory);
    return WEFT_OK;
}

/* Seconds of every boundary: the output, and the skips that pass it because their ends are on two
 * devices. */
static void boundary_seconds(trial *t)
{
    const weft_pipe_costs *c = t->costs;
    const weft_partition *p = &t->plan->partition;
    for (int64_t s = 0; s + 1 < p->stages && c->bandwidth > 0; s++) {
        t->send[s] = c->latency + c->op[p->cut[s + 1] - 1].output_bytes / c->bandwidth;
        for (int64_t k = 0; k < c->skip_count; k++) /* they travel with the rest */
            if (!p->collocated[k] && c->skip[k].to > c->skip[k].from + 1 &&
                c->skip[k].from < p->cut[s + 1] && c->skip[k].to >= p->cut[s + 1])
                t->send[s] += c->skip[k].bytes / c->bandwidth;
    }
}

/* Stages in sequence over all devices, cut as if there were no skips: those between two devices are
 * sent, which the cuts do not know and the times do. */
static weft_status send_all(trial *t)
{
    weft_partition *p = &t->plan->partition;
    int32_t *device_of = weft_arena_alloc(t->plan->arena, p->stages * (int64_t)sizeof *device_of);
    if (!device_of)
        return no_room();
    weft_stage_map_fill(WEFT_MAP_ROUND, p->stages, t->devices, device_of);
    p->mode = WEFT_COLLOCATE_PRICE;
    p->proved = false;
    for (int64_t k = 0; k < t->costs->skip_count; k++)
        p->collocated[k] = device_of[weft_partition_stage_of(p, t->costs->skip[k].from)] ==
                           device_of[weft_partition_stage_of(p, t->costs->skip[k].to)];
    return WEFT_OK;
}

/* One way to lay the stages: folded, so that mirrored stages share a device and their skips stay
 * there, or in sequence over all devices. */
static weft_status make_variant(const weft_pipe_costs *costs, const weft_pipeline_options *options,
                                bool folded, weft_pipeline_plan *out)
{
    const bool skips = options->skips != WEFT_COLLOCATE_NONE && binding_skips(costs);
    const bool sequence = skips && !folded;
    const int64_t stages = options->stages, usable = skips && folded ? (stages + 1) / 2 : stages;
    weft_pipeline_plan plan = {0};
    weft_status_code status = WEFT_OK;
    plan.arena = weft_arena_create();
    if (!plan.arena)
        return no_room();
    WEFT_GO(weft_partition_solve(costs, stages, sequence ? WEFT_COLLOCATE_NONE : options->skips,
                                 &plan.partition));
    trial t = {.costs = costs, .options = options, .plan = &plan, .best = -1};
    t.devices = options->devices > 0 ? options->devices : usable;
    t.microbatches = options->microbatches > 0 ? options->microbatches
                     : t.devices < usable      ? t.devices
                                               : usable;
    if (sequence)
        WEFT_GO(send_all(&t));
    WEFT_GO(stage_sums(&t));
    for (int64_t s = 0; s < stages && sequence; s++)
        plan.partition.bottleneck = fmax(plan.partition.bottleneck, plan.stage_seconds[s]);
    plan.candidate =
        weft_arena_alloc(plan.arena, MOST_CANDIDATES * (int64_t)sizeof *plan.candidate);
    if (!plan.candidate)
        WEFT_GO(no_room());
    boundary_seconds(&t);
    const weft_stage_times times = {.forward = t.forward,
                                    .backward = t.backward,
                                    .send = t.send,
                                    .send_back = t.send,
                                    .blocking = options->blocking,
                                    .activation = t.activation,
                                    .fixed = t.parameters,
                                    .memory = options->memory};
    if (!skips || sequence)
        WEFT_GO(try_kinds(&t, WEFT_MAP_ROUND, &times));
    if (folded && (skips || t.devices < stages))
        WEFT_GO(try_kinds(&t, WEFT_MAP_FOLD, &times));
    if (options->schedule < 0 && !sequence)
        WEFT_GO(try_synthesis(&t, &times, skips));
    if (t.best < 0)
        WEFT_GO(nothing_chosen(&plan, options));
    WEFT_GO(finish(&t));
    *out = plan;
    plan = (weft_pipeline_plan){0};
out:
    weft_pipeline_plan_free(&plan);
    return status;
}

/* The loser's schedules stand among the candidates, each with why. */
static weft_status adopt_candidates(weft_pipeline_plan *plan, const weft_pipeline_plan *loser)
{
    const double seconds = plan->timing.seconds;
    for (int64_t i = 0; i < loser->candidate_count; i++) {
        weft_pipeline_candidate c = loser->candidate[i];
        char text[32];
        c.why = c.why ? weft_arena_strdup(plan->arena, c.why)
                      : weft_arena_printf(plan->arena, "%s slower",
                                          weft_format_seconds(c.seconds - seconds, text));
        if (!c.why)
            return no_room();
        if (plan->candidate_count < MOST_CANDIDATES)
            plan->candidate[plan->candidate_count++] = c;
    }
    return WEFT_OK;
}

weft_status weft_pipeline_plan_make(const weft_pipe_costs *costs,
                                    const weft_pipeline_options *options, weft_pipeline_plan *out)
{
    WEFT_TRY(check_options(options));
    weft_pipeline_plan folded = {0}, sequence = {0};
    const weft_status_code status = make_variant(costs, options, true, &folded);
    if (status != WEFT_OK && status != WEFT_E_INFEASIBLE)
        return status;
    const bool idle = options->devices > (options->stages + 1) / 2; /* in the fold */
    const bool both = binding_skips(costs) && (options->skips == WEFT_COLLOCATE_PRICE ||
                                               (options->skips == WEFT_COLLOCATE_AUTO && idle));
    if (!both) {
        *out = folded;
        return status;
    }
    /* a fold keeps skips where they are, on half as many devices; sending them may be faster */
    const weft_status_code other = make_variant(costs, options, false, &sequence);
    if (other != WEFT_OK && other != WEFT_E_INFEASIBLE) {
        weft_pipeline_plan_free(&folded);
        return other;
    }
    if (status != WEFT_OK && other != WEFT_OK)
        return make_variant(costs, options, true, out); /* its message says what is missing */
    /* at equal times the fold, which sends less */
    const bool take =
        status != WEFT_OK ||
        (other == WEFT_OK && sequence.timing.seconds < folded.timing.seconds * (1 - 1e-9));
    weft_pipeline_plan *winner = take ? &sequence : &folded, *loser = take ? &folded : &sequence;
    const weft_status_code adopted = adopt_candidates(winner, loser);
    weft_pipeline_plan_free(loser);
    if (adopted != WEFT_OK) {
        weft_pipeline_plan_free(winner);
        return adopted;
    }
    *out = *winner;
    return WEFT_OK;
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
