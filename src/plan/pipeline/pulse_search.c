#include "plan/pipeline/pulse_search.h"

#include "plan/layout/degree_space.h"
#include "plan/layout/layout_list.h"
#include "plan/ops/model_work.h"

#include <stdio.h>

/* The terms of Eq. 15, per sample. */
enum { CAUSES = 3 };
static const char *const causes[CAUSES] = {"compute and bubble", "sends", "all-reduce"};

typedef struct search {
    const weft_pp_costs *costs; /* costs of one sample */
    weft_pp_costs scaled;       /* costs of a microbatch */
    const weft_fabric *fabric;
    weft_degree_space space;
    double overhead; /* of weft_pulse_space */
    weft_layout_list *list;
    bool unsplit; /* the skips permit no pipeline of the current degrees */
} search;

/* Sum over the operators of a stage. */
static double pp_stage_sum(const weft_pp_costs *c, const weft_partition *p, int64_t pp_stage,
                           int what)
{
    double sum = 0;
    for (int64_t i = p->cut[pp_stage]; i < p->cut[pp_stage + 1]; i++)
        sum += what == 0   ? c->op[i].parameter_bytes
               : what == 1 ? c->op[i].activation_bytes
                           : c->op[i].forward;
    return sum;
}

/* Evaluates Eq. 14-17 for one (P, G, b) and its partition into 2P stages (P = 1: two stages on one
 * device). */
static weft_pulse_choice estimate_pulse(const weft_pp_costs *c, const weft_fabric *f,
                                        const weft_partition *part, int64_t p, int64_t g, int64_t b)
{
    const double P = (double)p, G = (double)g, B = (double)b;
    weft_pulse_choice x = {.p = p, .g = g, .b = b};
    /* state bytes per byte of a 16-bit weight */
    const double states = weft_state_bytes_on(weft_state_bytes_of(2), 0, 1) / 2;
    double most_output = 0, most_weights = 0;
    for (int64_t s = 0; s < 2 * p; s++) {
        const double seconds = pp_stage_sum(c, part, s, 2),
                     output = c->op[part->cut[s + 1] - 1].output_bytes;
        x.bottleneck = seconds > x.bottleneck ? seconds : x.bottleneck;
        if (s + 1 < 2 * p && output > most_output)
            most_output = output;
        /* Eq. 14 for every pair; the paper assumes that the middle pair is the fullest. Costs are
         * per microbatch, so outputs grow with b too. */
        const int64_t mirror = 2 * p - 1 - s;
        const double weights = pp_stage_sum(c, part, s, 0) + pp_stage_sum(c, part, mirror, 0);
        const double saved = pp_stage_sum(c, part, s, 1) + pp_stage_sum(c, part, mirror, 1);
        const double before = p > 1 && s > 0 ? c->op[part->cut[s] - 1].output_bytes : 0;
        const double memory = states * weights + P * saved + P * before;
        if (s < p && memory > x.memory)
            x.memory = memory;
        most_weights = weights > most_weights ? weights : most_weights;
    }
    x.compute = (10 * P - 4) * x.bottleneck;
    x.send = (10 * P - 12 > 0 ? 10 * P - 12 : 0) * (f->inter_latency + most_output / f->inter);
    if (p == 1)
        x.send = 0;
    /* Eq. 16: replicas are neighbours; beyond a node the ring passes the slower link */
    const double rate = g <= f->per_node ? f->intra : f->inter;
    x.all_reduce = g > 1 ? f->intra_latency + 2 * (G - 1) * most_weights / (G * rate) : 0;
    x.seconds_per_sample = (x.compute + x.send + x.all_reduce) / (B * P * G);
    x.fits = x.memory < weft_fabric_usable(f);
    return x;
}

/* Adds a copy of the choice to the list. */
static weft_status add_choice(const search *s, const weft_pulse_choice *choice)
{
    const double samples = (double)(choice->b * choice->p * choice->g),
                 limit = weft_fabric_usable(s->fabric);
    const double cause[CAUSES] = {choice->compute / samples, choice->send / samples,
                                  choice->all_reduce / samples};
    char name[64], why[128], need[32], have[32];
    weft_pulse_choice *own;
    WEFT_TRY(WEFT_ARENA_NEW(s->list->arena, own, 1, "a layout"));
    *own = *choice;
    snprintf(name, sizeof name, "%4" PRId64 "  %4" PRId64 "  %4" PRId64, own->p, own->g, own->b);
    snprintf(why, sizeof why, "needs %s per device, limit %s",
             weft_format_bytes(own->memory < 9e18 ? (int64_t)own->memory : INT64_MAX, need),
             weft_format_bytes((int64_t)limit, have));
    const weft_layout_candidate candidate = {
        .score = {true, own->fits, own->seconds_per_sample, own->memory},
        .name = name,
        .why = own->fits ? NULL : why,
        .cause = cause,
        .estimate = own};
    return weft_layout_list_add(s->list, &candidate);
}

/* Sets the costs of a microbatch of b samples. */
static void scale_costs(search *s, int64_t b)
{
    const double overhead = s->overhead, B = (double)b;
    for (int64_t i = 0; i < s->costs->op_count; i++) {
        weft_pp_op *op = &s->scaled.op[i];
        *op = s->costs->op[i];
        op->forward *= B * (1 - overhead) + overhead;
        op->backward *= B * (1 - overhead) + overhead;
        op->output_bytes *= B;
        op->activation_bytes *= B;
    }
    for (int64_t k = 0; k < s->costs->skip_count; k++) {
        s->scaled.skip[k] = s->costs->skip[k];
        s->scaled.skip[k].bytes *= B;
    }
}

/* Evaluates one microbatch of the degrees. */
static weft_status_code try_microbatch(void *user, const weft_degrees *d)
{
    search *s = user;
    weft_partition part;
    if (s->unsplit)
        return WEFT_OK;
    scale_costs(s, d->microbatch);
    const weft_status_code solved =
        weft_partition_solve(&s->scaled, d->pp * d->interleave, WEFT_COLLOCATE_ALL, &part);
    s->unsplit = solved == WEFT_E_INFEASIBLE; /* too many stages for the skips */
    if (s->unsplit)
        return WEFT_OK;
    WEFT_TRY(solved);
    const weft_pulse_choice choice =
        estimate_pulse(&s->scaled, s->fabric, &part, d->pp, d->dp, d->microbatch);
    weft_partition_free(&part);
    return add_choice(s, &choice);
}

static weft_status_code try_degrees(void *user, const weft_degrees *degrees)
{
    search *s = user;
    s->unsplit = false;
    return weft_degree_space_rounds(&s->space, degrees, try_microbatch, s);
}

weft_status weft_pulse_search(weft_arena *arena, const weft_pp_costs *costs,
                              const weft_fabric *fabric, const weft_pulse_space *space,
                              weft_layout_list *list)
{
    const int64_t devices = space->devices;
    WEFT_TRY(weft_pp_costs_check(costs));
    if (devices < 1 || space->most_b < 1 || !(space->overhead >= 0 && space->overhead <= 1))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "%" PRId64 " devices and up to %" PRId64
                          " samples per microbatch must be at least 1, "
                          "the overhead %g from 0 to 1",
                          devices, space->most_b, space->overhead);
    *list = (weft_layout_list){.arena = arena, .cause = causes, .causes = CAUSES};
    search s = {.costs = costs,
                .scaled = *costs,
                .fabric = fabric,
                .overhead = space->overhead,
                .list = list,
                .space = {.ranks = devices,
                          .axis = {WEFT_DEGREE_PP, WEFT_DEGREE_DP},
                          .axes = 2,
                          .layers = costs->op_count,
                          .most_microbatch = space->most_b,
                          .mirrored = true}};
    s.scaled.op = weft_arena_calloc(arena, costs->op_count, sizeof *s.scaled.op);
    s.scaled.skip = weft_arena_calloc(arena, costs->skip_count + 1, sizeof *s.scaled.skip);
    WEFT_TRY(
        WEFT_ALLOCATED(s.scaled.op && s.scaled.skip, "%" PRId64 " operators", costs->op_count));
    WEFT_TRY(weft_degree_space_visit(&s.space, try_degrees, &s));
    if (list->count == 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "devices", WEFT_NUMBER(devices)),
                          "%" PRId64
                          " operators cannot be split into stages of any pipeline on %" PRId64
                          " devices",
                          costs->op_count, devices);
    weft_layout_list_sort(list);
    return WEFT_OK;
}
