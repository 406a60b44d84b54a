#include "plan/cascade/iteration.h"

#include <math.h>
#include <string.h>

weft_status weft_iteration_simulate(const weft_cascade_costs *costs, const weft_workload *samples,
                                    const weft_cascade_list *list, const weft_cascade_problem *p,
                                    const weft_cascade_schedule *s, const int32_t *first,
                                    const int32_t *devices, weft_simulation *out)
{
    weft_assigned *placed = weft_alloc(p->count * (int64_t)sizeof *placed);
    if (!placed)
        return weft_fail(WEFT_E_MEMORY, "out of memory simulating %lld cascades",
                         (long long)p->count);
    for (int64_t c = 0; c < p->count; c++)
        placed[c] = (weft_assigned){
            list->item[c].id,        devices + first[c],  first[c + 1] - first[c],  s->start[c],
            s->end[c] - s->start[c], list->item[c].after, list->item[c].after_count};
    weft_trace trace;
    weft_status_code status =
        weft_assign_trace(placed, p->count, p->devices, costs, samples, 0, &trace);
    if (status == WEFT_OK) {
        status = weft_simulate(&trace, costs->cluster, out);
        weft_trace_free(&trace);
    }
    weft_free(placed);
    return status;
}

static double idle_of(const weft_simulation *run)
{
    double used = 0;
    for (int64_t d = 0; d < run->devices; d++)
        used += (run->busy[d] + run->exposed[d]) / (run->seconds * (double)run->devices);
    return 1 - used;
}

/* 0: every degree, devices as one pool; 1: every degree, started where nodes have room; 2: the same
 * with the powers of two within a node, or whole nodes; 3: the same within a node only. */
static bool in_set(int set, int64_t degree, int64_t per_node)
{
    if (set == 3)
        return degree <= per_node;
    return set < 2 || degree % per_node == 0 || (degree < per_node && (degree & (degree - 1)) == 0);
}

static const char *const set_name[WEFT_ITERATION_CANDIDATES] = {
    "every degree, one pool", "every degree, by nodes", "powers of two or whole nodes",
    "within a node"};

/* The list with the options of a set only; a cascade that would lose all keeps all. */
static weft_status restrict_list(const weft_cascade_list *from, int set, int64_t per_node,
                                 double memory, weft_arena *arena, weft_cascade_list *out)
{
    weft_cascade_list list = {.count = from->count};
    list.item = weft_arena_alloc(arena, from->count * (int64_t)sizeof *list.item);
    if (!list.item)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld cascades", (long long)from->count);
    for (int64_t c = 0; c < from->count; c++) {
        const weft_cascade *old = &from->item[c];
        weft_cascade *new = &list.item[c];
        *new = *old;
        new->option_count = 0;
        new->option = weft_arena_alloc(arena, old->option_count * (int64_t)sizeof *new->option);
        if (!new->option)
            return weft_fail(WEFT_E_MEMORY, "out of memory for %lld cascades",
                             (long long)from->count);
        for (int32_t i = 0; i < old->option_count; i++)
            if (in_set(set, old->option[i].degree, per_node) && old->option[i].bytes <= memory)
                new->option[new->option_count++] = old->option[i];
        if (!new->option_count) {
            new->option = old->option;
            new->option_count = old->option_count;
        }
    }
    *out = list;
    return WEFT_OK;
}

/* One set: its schedule, and then its devices and what the simulator says. */
typedef struct attempt {
    weft_cascade_list list;
    weft_cascade_problem problem;
    weft_cascade_result result;
} attempt;

static weft_status plan_set(const weft_cascade_costs *costs, const weft_cascade_search *search,
                            int set, bool by_producers, weft_arena *arena, const weft_iteration *it,
                            attempt *out)
{
    const weft_cluster *cluster = costs->cluster;
    const double memory = (double)cluster->device.memory;
    attempt a = {.list = it->list};
    if (set >= 2)
        WEFT_TRY(restrict_list(&it->list, set, cluster->devices, memory, arena, &a.list));
    WEFT_TRY(
        weft_cascade_problem_create(&a.list, weft_cluster_devices(cluster), memory, &a.problem));
    a.problem.per_node = set > 0 ? cluster->devices : 0;
    a.problem.by_producers = by_producers;
    const weft_status_code status = weft_cascade_solve(&a.problem, search, arena, &a.result);
    if (status == WEFT_OK)
        *out = a;
    else
        weft_cascade_problem_free(&a.problem);
    return status;
}

/* Places and simulates a set; takes it over when it is the best so far. */
static weft_status try_set(const weft_cascade_costs *costs, const weft_workload *samples,
                           weft_assign_options place, int set, weft_arena *arena, attempt *a,
                           weft_iteration *it)
{
    int32_t *first, *devices;
    weft_simulation run;
    WEFT_TRY(weft_assign(&a->problem, &a->result.schedule, costs->cluster, place, arena, &first,
                         &devices));
    WEFT_TRY(weft_iteration_simulate(costs, samples, &a->list, &a->problem, &a->result.schedule,
                                     first, devices, &run));
    it->candidate[set].simulated = run.seconds;
    it->candidate[set].idle = idle_of(&run);
    if (run.seconds < it->simulated) {
        weft_cascade_problem_free(&it->problem);
        it->problem = a->problem;
        a->problem = (weft_cascade_problem){0};
        it->result = a->result;
        it->kept = a->list;
        it->first = first;
        it->devices = devices;
        it->simulated = run.seconds;
        it->idle = it->candidate[set].idle;
        it->exposed = it->peak = 0;
        for (int64_t d = 0; d < run.devices; d++) {
            it->exposed += run.exposed[d] / (double)run.devices;
            it->peak = fmax(it->peak, run.peak[d]);
        }
        it->chosen = set;
    }
    weft_simulation_free(&run);
    return WEFT_OK;
}

/* Sets in the order of their planned times: contention only adds, so once a plan is simulated,
 * those that are longer before it need not be. */
static weft_status try_sets(const weft_cascade_costs *costs, const weft_workload *samples,
                            weft_assign_options place, int sets, weft_arena *arena, attempt *list,
                            weft_iteration *it)
{
    it->simulated = INFINITY;
    for (int round = 0; round < sets; round++) {
        int set = -1;
        for (int i = 0; i < sets; i++)
            if (list[i].problem.count && !it->candidate[i].tried &&
                (set < 0 || it->candidate[i].planned < it->candidate[set].planned))
                set = i;
        it->candidate[set].tried = true;
        if (it->candidate[set].planned < it->simulated)
            WEFT_TRY(try_set(costs, samples, place, set, arena, &list[set], it));
    }
    return WEFT_OK;
}

weft_status weft_iteration_plan(const weft_cascade_costs *costs, const weft_workload *samples,
                                const weft_cascade_search *search, weft_assign_options place,
                                weft_arena *arena, weft_iteration *out)
{
    weft_iteration it = {0};
    attempt list[WEFT_ITERATION_CANDIDATES] = {0};
    WEFT_TRY(weft_workload_cascades(costs, samples, arena, &it.list));
    /* one node has nothing to tear apart */
    it.candidates = costs->cluster->nodes > 1 ? WEFT_ITERATION_CANDIDATES : 1;
    weft_cascade_search part = *search;
    part.seconds /= (double)it.candidates;
    part.effort = it.candidates > 1 ? 0.5 : 1;
    weft_cascade_bound bound = {0};
    weft_status_code status = WEFT_OK;
    for (int set = 0; set < it.candidates; set++) {
        part.bound = set ? &bound : NULL; /* what holds for every degree holds for fewer */
        WEFT_GO(plan_set(costs, &part, set, place.inter, arena, &it, &list[set]));
        if (set == 0)
            bound = list[0].result.bound;
        it.candidate[set] =
            (weft_iteration_candidate){.name = set_name[set],
                                       .planned = list[set].result.schedule.makespan,
                                       .simulated = INFINITY};
    }
    WEFT_GO(try_sets(costs, samples, place, (int)it.candidates, arena, list, &it));
    if (it.chosen > 0) { /* the bound and the proof are for every degree */
        it.result.bound = bound;
        it.result.proved = bound.value >= it.result.schedule.makespan * (1 - 1e-9);
    }
out:
    for (int set = 0; set < WEFT_ITERATION_CANDIDATES; set++)
        weft_cascade_problem_free(&list[set].problem);
    if (status == WEFT_OK)
        *out = it;
    else
        weft_iteration_free(&it);
    return status;
}

void weft_iteration_free(weft_iteration *iteration)
{
    weft_cascade_problem_free(&iteration->problem);
}
