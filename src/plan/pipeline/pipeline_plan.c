#include "plan/pipeline/pipeline_plan.h"

#include "plan/cluster/cluster_path.h"
#include "plan/pipeline/schedule_synthesis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CANDIDATES = 24, MOST_DEVICES = 16384 };

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes(bytes < 9e18 ? (int64_t)bytes : INT64_MAX, text);
}

weft_status weft_pp_costs_from_list(weft_arena *arena, const weft_op_list *list,
                                    const weft_device_type *device, double microbatch,
                                    weft_pp_costs *out)
{
    weft_pp_costs c = {.op_count = list->count, .skip_count = list->skip_count};
    if (!isfinite(microbatch) || !(microbatch > 0))
        return weft_error(WEFT_MSG_COSTS_INVALID,
                          WEFT_AT(.key = "microbatch", WEFT_NUMBER(microbatch)),
                          "%g samples are not a finite number above 0", microbatch);
    c.op = weft_arena_calloc(arena, c.op_count + 1, sizeof *c.op);
    c.skip = weft_arena_calloc(arena, c.skip_count + 1, sizeof *c.skip);
    WEFT_TRY(WEFT_ALLOCATED(c.op && c.skip, "%" PRId64 " operators", c.op_count));
    for (int64_t i = 0; i < c.op_count; i++) {
        const weft_op_cost *x = &list->op[i];
        /* weights are read once per microbatch, activations per sample */
        const double forward =
            fmax(0, x->forward_bytes - x->param_bytes) * microbatch + x->param_bytes;
        const double backward =
            fmax(0, x->backward_bytes - 2 * x->param_bytes) * microbatch + 2 * x->param_bytes;
        c.op[i] = (weft_pp_op){
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

/* ---- the plan -------------------------------------------------------------------------------- */

/* State shared by the trials. */
typedef struct trial {
    const weft_pp_costs *costs;
    const weft_pipeline_options *options;
    weft_pipeline_plan *plan;
    int64_t devices, microbatches;
    double *forward, *backward, *send, *activation, *parameters; /* [pp_stages] */
    int32_t *device_of;
    double *peak; /* [devices] */
    double best_seconds, best_peak;
    int64_t best; /* index of the best candidate; -1: none */
} trial;

static weft_status no_memory(void)
{
    return weft_no_memory("a pipeline plan");
}

static weft_status sum_pp_stages(trial *t)
{
    const weft_pp_costs *c = t->costs;
    const weft_partition *p = &t->plan->partition;
    weft_arena *arena = t->plan->arena;
    const int64_t bytes = p->pp_stages * (int64_t)sizeof(double);
    t->forward = weft_arena_alloc(arena, bytes);
    t->backward = weft_arena_alloc(arena, bytes);
    t->send = weft_arena_alloc(arena, bytes);
    t->activation = weft_arena_alloc(arena, bytes);
    t->parameters = weft_arena_alloc(arena, bytes);
    t->plan->pp_stage_seconds = weft_arena_alloc(arena, bytes);
    t->device_of = weft_arena_calloc(arena, p->pp_stages, sizeof *t->device_of);
    t->peak = weft_arena_calloc(arena, t->devices, sizeof(double));
    if (!t->forward || !t->backward || !t->send || !t->activation || !t->parameters ||
        !t->plan->pp_stage_seconds || !t->device_of || !t->peak)
        return no_memory();
    const double per_byte = c->lambda > 0 ? c->lambda / c->bandwidth : 0;
    for (int64_t s = 0; s < p->pp_stages; s++) {
        for (int64_t i = p->cut[s]; i < p->cut[s + 1]; i++) {
            t->forward[s] += c->op[i].forward;
            t->backward[s] += c->op[i].backward;
            t->activation[s] += c->op[i].activation_bytes;
            t->parameters[s] += c->op[i].parameter_bytes;
        }
        t->plan->pp_stage_seconds[s] = t->forward[s] + c->lambda * c->latency +
                                       per_byte * c->op[p->cut[s + 1] - 1].output_bytes;
    }
    for (int64_t k = 0; k < c->skip_count && p->mode == WEFT_COLLOCATE_COST; k++)
        if (!p->collocated[k] && c->skip[k].to > c->skip[k].from + 1)
            t->plan->pp_stage_seconds[weft_partition_stage_of(p, c->skip[k].from)] +=
                per_byte * c->skip[k].bytes;
    return WEFT_OK;
}

static weft_status add_candidate(trial *t, weft_pipeline_candidate made)
{
    weft_pipeline_plan *p = t->plan;
    if (p->candidate_count == MOST_CANDIDATES)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "more than %d schedules to compare", MOST_CANDIDATES);
    p->candidate[p->candidate_count++] = made;
    return WEFT_OK;
}

/* Takes ownership of `made` if it is the best so far, otherwise frees it. */
static weft_status accept_if_best(trial *t, weft_pp_schedule *made, const char *map,
                                  const weft_pp_stage_times *times)
{
    weft_pipeline_plan *p = t->plan;
    weft_pp_schedule_timing timing;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pp_schedule_time(made, times, &timing));
    WEFT_GO(weft_pp_schedule_memory(made, t->activation, NULL, t->peak));
    for (int64_t s = 0; s < made->pp_stages; s++)
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
        weft_pp_schedule_free(&p->schedule);
        p->schedule = *made;
        p->timing = timing;
        *made = (weft_pp_schedule){0};
    } else if (slower > 1e-9 * t->best_seconds) {
        c.why = weft_arena_printf(p->arena, "%s slower", weft_format_seconds(slower, time));
    } else {
        c.why = weft_arena_printf(p->arena, "as fast, and holds no less");
    }
    WEFT_GO(add_candidate(t, c));
out:
    weft_pp_schedule_free(made);
    return status;
}

static weft_status try_synthesis(trial *t, const weft_pp_stage_times *times, bool mirrored)
{
    const int64_t pp_stages = t->plan->partition.pp_stages;
    weft_pp_stage_pair pair[16];
    int64_t pairs = 0;
    if (pp_stages > 16)
        return WEFT_OK; /* beyond the exact search; the list scheduler is tried anyway */
    for (int64_t s = 0; mirrored && s < pp_stages / 2; s++)
        pair[pairs++] = (weft_pp_stage_pair){(int32_t)s, (int32_t)(pp_stages - 1 - s)};
    weft_synthesis made;
    WEFT_TRY(weft_synthesise(pp_stages, t->devices, t->microbatches, pair, pairs, 0, &made));
    if (made.states == 0) {
        weft_pp_schedule_free(&made.schedule);
        return WEFT_OK;
    }
    return accept_if_best(t, &made.schedule, "searched", times);
}

static weft_status try_kinds(trial *t, weft_pp_stage_map map, const weft_pp_stage_times *times)
{
    static const weft_pp_schedule_kind kinds[] = {
        WEFT_PP_SCHEDULE_1F1B,   WEFT_PP_SCHEDULE_INTERLEAVED, WEFT_PP_SCHEDULE_WAVE,
        WEFT_PP_SCHEDULE_GREEDY, WEFT_PP_SCHEDULE_GPIPE,       WEFT_PP_SCHEDULE_ZERO_BUBBLE};
    const int wanted = t->options->schedule;
    const char *map_name = map == WEFT_MAP_FOLD ? "fold" : "round";
    weft_pp_stage_map_fill(map, t->plan->partition.pp_stages, t->devices, t->device_of);
    for (int k = 0; k < 6; k++) {
        /* a split backward needs support by the runtime: only on request */
        if (wanted >= 0 ? (int)kinds[k] != wanted : kinds[k] == WEFT_PP_SCHEDULE_ZERO_BUBBLE)
            continue;
        if (wanted < 0 && kinds[k] == WEFT_PP_SCHEDULE_GREEDY && map == WEFT_MAP_FOLD)
            continue; /* equal to the wave: the list scheduler on FOLD */
        weft_pp_schedule made;
        const weft_status_code status =
            weft_pp_schedule_make(kinds[k], t->device_of, t->plan->partition.pp_stages, t->devices,
                                  t->microbatches, times, &made);
        if (status == WEFT_E_INFEASIBLE) {
            const char *why = weft_arena_strdup(t->plan->arena, weft_error_text());
            WEFT_TRY(WEFT_ALLOCATED(why, "a pipeline plan"));
            WEFT_TRY(add_candidate(
                t, (weft_pipeline_candidate){.name = weft_pp_schedule_kind_name(kinds[k]),
                                             .map = map_name,
                                             .seconds = NAN,
                                             .idle = NAN,
                                             .peak = NAN,
                                             .why = why}));
            continue;
        }
        WEFT_TRY(status);
        WEFT_TRY(accept_if_best(t, &made, map_name, times));
    }
    return WEFT_OK;
}

/* Sets memory and bytes of the chosen schedule. */
static weft_status finish(trial *t)
{
    weft_pipeline_plan *p = t->plan;
    const int64_t d64 = (int64_t)sizeof(double), devices = p->schedule.devices;
    p->parameter_bytes = weft_arena_alloc(p->arena, devices * d64);
    p->activation_peak = weft_arena_alloc(p->arena, devices * d64);
    p->activation_steps = weft_arena_alloc(p->arena, devices * p->schedule.steps * d64);
    if (!p->parameter_bytes || !p->activation_peak || !p->activation_steps)
        return no_memory();
    WEFT_TRY(weft_pp_schedule_memory(&p->schedule, t->activation, p->activation_steps,
                                     p->activation_peak));
    for (int64_t s = 0; s < p->partition.pp_stages; s++)
        p->parameter_bytes[p->schedule.device_of[s]] += t->parameters[s];
    for (int64_t d = 0; d < devices; d++) {
        bool used = false;
        for (int64_t s = 0; s < p->partition.pp_stages; s++)
            used = used || p->schedule.device_of[s] == d;
        p->idle_devices += !used;
    }
    p->boundary_bytes = weft_arena_alloc(p->arena, p->partition.pp_stages * d64);
    WEFT_TRY(WEFT_ALLOCATED(p->boundary_bytes, "a pipeline plan"));
    p->pp_stage_activation = t->activation;
    p->bandwidth = t->costs->bandwidth;
    p->latency = t->costs->latency;
    weft_pp_costs counted = *t->costs;
    if (p->partition.mode == WEFT_COLLOCATE_NONE) /* ignored in the times and the bytes */
        counted.skip_count = 0;
    p->bytes_per_microbatch = weft_pipeline_bytes(&counted, &p->partition, p->schedule.device_of,
                                                  false, p->boundary_bytes);
    p->lower_bound_steps = weft_pp_schedule_lower_bound(
        p->schedule.device_of, p->partition.pp_stages, devices, p->schedule.microbatches);
    weft_partition blockwise;
    p->blockwise_bottleneck = NAN;
    WEFT_TRY(weft_partition_blockwise(t->costs, p->partition.pp_stages, NULL, &blockwise));
    p->blockwise_bottleneck = blockwise.bottleneck;
    weft_partition_free(&blockwise);
    return weft_pp_schedule_check(&p->schedule);
}

static bool binding_skips(const weft_pp_costs *costs)
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
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_NOWHERE, "no schedule fits: %s",
                          p->candidate_count > 0 ? p->candidate[0].why : "none was tried");
    char need[32], limit[32];
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(WEFT_NUMBER(options->memory)),
                      "no schedule fits: the smallest (%s) needs %s per device, limit %s; use more "
                      "stages and devices, or fewer microbatches in flight",
                      least->name, format_bytes(least->peak, need),
                      format_bytes(options->memory, limit));
}

static weft_status check_options(const weft_pipeline_options *o)
{
    if (o->pp_stages < 1)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--stages", WEFT_NUMBER(o->pp_stages)),
                          "%" PRId64 " is below 1", o->pp_stages);
    if (o->devices < 0 || o->devices > MOST_DEVICES)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--devices", WEFT_NUMBER(o->devices)),
            "%" PRId64 " is not from 1 to %d, the limit of one pipeline", o->devices, MOST_DEVICES);
    if (o->microbatches < 0)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--microbatches", WEFT_NUMBER(o->microbatches)),
                          "%" PRId64 " is below 1", o->microbatches);
    if (!isfinite(o->memory) || o->memory < 0)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--memory-limit", WEFT_NUMBER(o->memory)),
                          "%g is not a number of bytes per device", o->memory);
    return WEFT_OK;
}

/* Sets the seconds of every boundary: the output, and the skips that pass it because their ends are
 * on two devices. */
static void boundary_seconds(trial *t)
{
    const weft_pp_costs *c = t->costs;
    const weft_partition *p = &t->plan->partition;
    for (int64_t s = 0; s + 1 < p->pp_stages && c->bandwidth > 0; s++) {
        t->send[s] = c->latency + c->op[p->cut[s + 1] - 1].output_bytes / c->bandwidth;
        for (int64_t k = 0; k < c->skip_count; k++) /* skips are sent with the output */
            if (!p->collocated[k] && c->skip[k].to > c->skip[k].from + 1 &&
                c->skip[k].from < p->cut[s + 1] && c->skip[k].to >= p->cut[s + 1])
                t->send[s] += c->skip[k].bytes / c->bandwidth;
    }
}

/* Places the stages in sequence over all devices, with cuts that ignore skips. Skips between two
 * devices are sent; the times include these sends. */
static weft_status send_all(trial *t)
{
    weft_partition *p = &t->plan->partition;
    int32_t *device_of;
    WEFT_TRY(WEFT_ARENA_NEW(t->plan->arena, device_of, p->pp_stages, "a pipeline plan"));
    weft_pp_stage_map_fill(WEFT_MAP_ROUND, p->pp_stages, t->devices, device_of);
    p->mode = WEFT_COLLOCATE_COST;
    p->proved = false;
    for (int64_t k = 0; k < t->costs->skip_count; k++)
        p->collocated[k] = device_of[weft_partition_stage_of(p, t->costs->skip[k].from)] ==
                           device_of[weft_partition_stage_of(p, t->costs->skip[k].to)];
    return WEFT_OK;
}

/* Makes one variant of the plan. Folded: mirrored stages share a device, which keeps their skips.
 * Otherwise: stages in sequence over all devices. */
static weft_status make_variant(const weft_pp_costs *costs, const weft_pipeline_options *options,
                                bool folded, weft_pipeline_plan *out)
{
    const bool skips = options->skips != WEFT_COLLOCATE_NONE && binding_skips(costs);
    const bool sequence = skips && !folded;
    const int64_t pp_stages = options->pp_stages,
                  usable = skips && folded ? (pp_stages + 1) / 2 : pp_stages;
    weft_pipeline_plan plan = {0};
    weft_status_code status = WEFT_OK;
    plan.arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(plan.arena, "a pipeline plan"));
    WEFT_GO(weft_partition_solve(costs, pp_stages, sequence ? WEFT_COLLOCATE_NONE : options->skips,
                                 &plan.partition));
    trial t = {.costs = costs, .options = options, .plan = &plan, .best = -1};
    t.devices = options->devices > 0 ? options->devices : usable;
    t.microbatches = options->microbatches > 0 ? options->microbatches
                     : t.devices < usable      ? t.devices
                                               : usable;
    if (sequence)
        WEFT_GO(send_all(&t));
    WEFT_GO(sum_pp_stages(&t));
    for (int64_t s = 0; s < pp_stages && sequence; s++)
        plan.partition.bottleneck = fmax(plan.partition.bottleneck, plan.pp_stage_seconds[s]);
    WEFT_GO(WEFT_ARENA_NEW(plan.arena, plan.candidate, MOST_CANDIDATES, "a pipeline plan"));
    boundary_seconds(&t);
    const weft_pp_stage_times times = {.forward = t.forward,
                                       .backward = t.backward,
                                       .send = t.send,
                                       .send_back = t.send,
                                       .blocking = options->blocking,
                                       .activation = t.activation,
                                       .fixed = t.parameters,
                                       .memory = options->memory};
    if (!skips || sequence)
        WEFT_GO(try_kinds(&t, WEFT_MAP_ROUND, &times));
    if (folded && (skips || t.devices < pp_stages))
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

/* Adds the other variant's schedules to the candidates, each with its reason. */
static weft_status adopt_candidates(weft_pipeline_plan *plan, const weft_pipeline_plan *loser)
{
    const double seconds = plan->timing.seconds;
    for (int64_t i = 0; i < loser->candidate_count; i++) {
        weft_pipeline_candidate c = loser->candidate[i];
        char text[32];
        c.why = c.why ? weft_arena_strdup(plan->arena, c.why)
                      : weft_arena_printf(plan->arena, "%s slower",
                                          weft_format_seconds(c.seconds - seconds, text));
        WEFT_TRY(WEFT_ALLOCATED(c.why, "a pipeline plan"));
        if (plan->candidate_count < MOST_CANDIDATES)
            plan->candidate[plan->candidate_count++] = c;
    }
    return WEFT_OK;
}

weft_status weft_pipeline_plan_make(const weft_pp_costs *costs,
                                    const weft_pipeline_options *options, weft_pipeline_plan *out)
{
    WEFT_TRY(check_options(options));
    weft_pipeline_plan folded = {0}, sequence = {0};
    const weft_status_code status = make_variant(costs, options, true, &folded);
    if (status != WEFT_OK && status != WEFT_E_INFEASIBLE)
        return status;
    /* only in the folded variant */
    const bool idle = options->devices > (options->pp_stages + 1) / 2;
    const bool both = binding_skips(costs) && (options->skips == WEFT_COLLOCATE_COST ||
                                               (options->skips == WEFT_COLLOCATE_AUTO && idle));
    if (!both) {
        *out = folded;
        return status;
    }
    /* FOLD keeps skips on their device but uses half of the devices; sending may be faster */
    const weft_status_code other = make_variant(costs, options, false, &sequence);
    if (other != WEFT_OK && other != WEFT_E_INFEASIBLE) {
        weft_pipeline_plan_free(&folded);
        return other;
    }
    if (status != WEFT_OK && other != WEFT_OK)
        return make_variant(costs, options, true, out); /* its error names the reason */
    /* ties go to the folded variant, which sends less */
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
    weft_pp_schedule_free(&plan->schedule);
    weft_arena_free(plan->arena);
    *plan = (weft_pipeline_plan){0};
}
