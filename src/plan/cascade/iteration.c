#include "plan/cascade/iteration.h"

#include "plan/cascade/assign_trace.h"
#include "plan/cascade/genetic.h"

#include <math.h>
#include <string.h>

weft_status weft_iteration_simulate(const weft_cascade_costs *costs, const weft_workload *samples,
                                    const weft_cascade_solution *plan, weft_simulation *out)
{
    const weft_cascade_problem *p = &plan->problem;
    const weft_cascade_schedule *s = &plan->result.schedule;
    weft_assigned *placed;
    WEFT_TRY(WEFT_NEW(placed, p->count, "simulating %" PRId64 " cascades", p->count));
    for (int64_t c = 0; c < p->count; c++) {
        const weft_cascade *item = &plan->list.item[c];
        placed[c] = (weft_assigned){
            item->id,         plan->devices + plan->first[c], plan->first[c + 1] - plan->first[c],
            s->start[c],      s->end[c] - s->start[c],        item->after,
            item->after_count};
    }
    weft_trace trace = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_assign_trace(placed, p->count, p->devices, costs, samples, 0, &trace));
    WEFT_GO(weft_simulate(&trace, costs->cluster, out));
out:
    weft_trace_free(&trace);
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

/* True: `degree` is in a set. 0: every degree, devices as one pool. 1: every degree, started where
 * nodes have enough free devices. 2: as 1, with powers of two within a node, or whole nodes. 3: as
 * 1, within a node only. */
static bool in_set(int set, int64_t degree, int64_t per_node)
{
    if (set == 3)
        return degree <= per_node;
    return set < 2 || degree % per_node == 0 || (degree < per_node && (degree & (degree - 1)) == 0);
}

static const char *const set_name[WEFT_ITERATION_CANDIDATES] = {
    "every degree, one pool", "every degree, by nodes", "powers of two or whole nodes",
    "within a node"};

/* Copies the list with the options of a set only. A cascade that would lose all options keeps
 * all. */
static weft_status restrict_list(const weft_cascade_list *from, int set, int64_t per_node,
                                 double memory, weft_arena *arena, weft_cascade_list *out)
{
    weft_cascade_list list = {.count = from->count};
    WEFT_TRY(WEFT_ARENA_NEW(arena, list.item, from->count, "%" PRId64 " cascades", from->count));
    for (int64_t c = 0; c < from->count; c++) {
        const weft_cascade *old = &from->item[c];
        weft_cascade *new = &list.item[c];
        *new = *old;
        new->option_count = 0;
        WEFT_TRY(WEFT_ARENA_NEW(arena, new->option, old->option_count, "%" PRId64 " cascades",
                                from->count));
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

/* Inputs of all sets of degrees. */
typedef struct inputs {
    const weft_cascade_costs *costs;
    const weft_workload *samples;
    weft_assign_options assign;
    weft_arena *arena;
} inputs;

/* Plans one set of degrees of `list`, without devices. */
static weft_status plan_set(const inputs *in, const weft_cascade_search *search, int set,
                            const weft_cascade_list *list, weft_cascade_solution *out)
{
    const weft_cluster *cluster = in->costs->cluster;
    const double memory = (double)cluster->device.memory;
    weft_cascade_solution a = {.list = *list};
    if (set >= 2)
        WEFT_TRY(restrict_list(list, set, cluster->devices, memory, in->arena, &a.list));
    WEFT_TRY(
        weft_cascade_problem_create(&a.list, weft_cluster_devices(cluster), memory, &a.problem));
    a.problem.per_node = set > 0 ? cluster->devices : 0;
    a.problem.by_producers = in->assign.inter;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_cascade_solve(&a.problem, search, in->arena, &a.result));
    *out = a;
    return WEFT_OK;
out:
    weft_cascade_problem_free(&a.problem);
    return status;
}

/* Places and simulates the plan of a set. The best plan so far becomes it->best. */
static weft_status try_set(const inputs *in, int set, weft_cascade_solution *a, weft_iteration *it)
{
    weft_simulation run;
    WEFT_TRY(weft_assign(&a->problem, &a->result.schedule, in->costs->cluster, in->assign,
                         in->arena, &a->first, &a->devices));
    WEFT_TRY(weft_iteration_simulate(in->costs, in->samples, a, &run));
    it->candidate[set].simulated = run.seconds;
    it->candidate[set].idle = idle_of(&run);
    if (run.seconds < it->simulated) {
        weft_cascade_problem_free(&it->best.problem);
        it->best = *a;
        a->problem = (weft_cascade_problem){0};
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

/* Simulates the plans in the order of their planned times. Contention only adds time, so a plan
 * whose planned time exceeds the best simulated time is skipped. */
static weft_status try_sets(const inputs *in, int sets, weft_cascade_solution *list,
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
            WEFT_TRY(try_set(in, set, &list[set], it));
    }
    return WEFT_OK;
}

weft_status weft_iteration_plan(const weft_cascade_costs *costs, const weft_workload *samples,
                                const weft_cascade_search *search, weft_assign_options assign,
                                weft_arena *arena, weft_iteration *out)
{
    weft_iteration it = {0};
    const inputs in = {costs, samples, assign, arena};
    weft_cascade_solution list[WEFT_ITERATION_CANDIDATES] = {0};
    WEFT_TRY(weft_workload_cascades(costs, samples, arena, &it.list));
    /* no groups can spread over nodes on one node */
    it.candidates = costs->cluster->nodes > 1 ? WEFT_ITERATION_CANDIDATES : 1;
    weft_cascade_search part = *search;
    part.seconds /= (double)it.candidates;
    part.effort = it.candidates > 1 ? 0.5 : 1;
    weft_cascade_bound bound = {0};
    weft_status_code status = WEFT_OK;
    for (int set = 0; set < it.candidates; set++) {
        part.bound = set ? &bound : NULL; /* a bound for every degree holds for fewer degrees */
        WEFT_GO(plan_set(&in, &part, set, &it.list, &list[set]));
        if (set == 0)
            bound = list[0].result.bound;
        it.candidate[set] =
            (weft_iteration_candidate){.name = set_name[set],
                                       .planned = list[set].result.schedule.makespan,
                                       .simulated = INFINITY};
    }
    WEFT_GO(try_sets(&in, (int)it.candidates, list, &it));
    if (it.chosen > 0) { /* bound and proof cover every degree */
        it.best.result.bound = bound;
        it.best.result.proved = bound.value >= it.best.result.schedule.makespan * (1 - 1e-9);
    }
    *out = it;
    it = (weft_iteration){0};
out:
    for (int set = 0; set < WEFT_ITERATION_CANDIDATES; set++)
        weft_cascade_problem_free(&list[set].problem);
    weft_iteration_free(&it);
    return status;
}

void weft_iteration_free(weft_iteration *iteration)
{
    weft_cascade_problem_free(&iteration->best.problem);
}
