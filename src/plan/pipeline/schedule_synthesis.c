#include "plan/pipeline/schedule_synthesis.h"

#include <math.h>
#include <string.h>

enum {
    MAX_PP_STAGES = 32,
    MOST_MICROBATCHES = 10,
    BITS = 6, /* progress 0..63 per microbatch in a packed state */
    DEFAULT_STATES = 1000000,
    TRANSITIONS_PER_STATE = 12,
    MOST_MAPS = 5000,
};

typedef uint64_t state; /* microbatch m in bits 6m .. 6m + 5: finished tasks of its chain */

/* The chain of one microbatch is F 0..S-1, then B S-1..0. */
typedef struct shape {
    int64_t pp_stages, devices, microbatches, chain;
    int32_t device_of[MAX_PP_STAGES]; /* by stage */
    int32_t at[2 * MAX_PP_STAGES];    /* by chain position */
    int32_t count[MAX_PP_STAGES];     /* chain positions by device */
    int32_t first[MAX_PP_STAGES];     /* first stage by device */
    int64_t *transitions;             /* remaining transitions; below 0: the search has given up */
} shape;

static int64_t progress(state p, int64_t m)
{
    return (int64_t)(p >> (BITS * m) & 63);
}

static void set_map(shape *x, const int32_t *device_of)
{
    memset(x->count, 0, sizeof x->count);
    for (int64_t s = x->pp_stages - 1; s >= 0; s--) {
        x->device_of[s] = device_of[s];
        x->at[s] = x->at[x->chain - 1 - s] = device_of[s];
        x->count[device_of[s]] += 2;
        x->first[device_of[s]] = (int32_t)s;
    }
}

/* Lower bound of the remaining steps from p: a microbatch's own chain, or a device's remaining work
 * plus the steps before its first and after its last task. */
static int64_t remaining(const shape *x, state p)
{
    int64_t bound = 0, work[MAX_PP_STAGES] = {0}, wait[MAX_PP_STAGES];
    for (int64_t d = 0; d < x->devices; d++)
        wait[d] = INT64_MAX;
    for (int64_t m = 0; m < x->microbatches; m++) {
        const int64_t from = progress(p, m);
        if (x->chain - from > bound)
            bound = x->chain - from;
        for (int64_t c = from; c < x->chain; c++) {
            work[x->at[c]]++;
            if (c - from < wait[x->at[c]])
                wait[x->at[c]] = c - from;
        }
    }
    for (int64_t d = 0; d < x->devices; d++)
        if (work[d] > 0 && work[d] + wait[d] + x->first[d] > bound)
            bound = work[d] + wait[d] + x->first[d];
    return bound;
}

/* Number of (stage, microbatch) pairs of a device whose F has run and whose B has not. */
static int64_t held(const shape *x, state p, int64_t device)
{
    int64_t count = 0;
    for (int64_t m = 0; m < x->microbatches; m++) {
        const int64_t done = progress(p, m);
        for (int64_t s = 0; s < x->pp_stages; s++)
            count += x->device_of[s] == device && s < done && done < x->chain - s;
    }
    return count;
}

/* ---- layers of states with a hash index ------------------------------------------------------ */

typedef struct node {
    state p;
    int32_t before; /* index in the previous layer */
    int64_t cost;   /* sum of held activations so far */
} node;

typedef struct layer {
    node *item;
    int64_t count, capacity;
} layer;

typedef struct index_table {
    int64_t *cell; /* node index + 1 */
    uint64_t mask;
} index_table;

static uint64_t hash(state p)
{
    p ^= p >> 31;
    p *= 0x9E3779B97F4A7C15u;
    return p ^ p >> 29;
}

static weft_status table_fit(index_table *t, const layer *l)
{
    if (t->cell && (uint64_t)l->count * 2 < t->mask)
        return WEFT_OK;
    const uint64_t size = t->cell ? (t->mask + 1) * 2 : 1024;
    int64_t *cell;
    WEFT_TRY(WEFT_NEW(cell, (int64_t)size, "%" PRId64 " states", l->count));
    for (int64_t i = 0; i < l->count; i++) {
        uint64_t h = hash(l->item[i].p) & (size - 1);
        while (cell[h] != 0)
            h = (h + 1) & (size - 1);
        cell[h] = i + 1;
    }
    weft_free(t->cell);
    *t = (index_table){cell, size - 1};
    return WEFT_OK;
}

static void table_clear(index_table *t)
{
    if (t->cell)
        memset(t->cell, 0, (size_t)(t->mask + 1) * sizeof *t->cell);
}

/* Adds the state, or lowers the cost of an equal state. */
static weft_status layer_add(layer *l, index_table *t, node made)
{
    WEFT_TRY(table_fit(t, l));
    uint64_t h = hash(made.p) & t->mask;
    for (; t->cell[h] != 0; h = (h + 1) & t->mask) {
        node *there = &l->item[t->cell[h] - 1];
        if (there->p == made.p) {
            if (made.cost < there->cost)
                *there = made;
            return WEFT_OK;
        }
    }
    WEFT_TRY(weft_grow((void **)&l->item, l->count, &l->capacity, sizeof *l->item));
    l->item[l->count++] = made;
    t->cell[h] = l->count;
    return WEFT_OK;
}

/* ---- one step -------------------------------------------------------------------------------- */

typedef struct step_search {
    const shape *x;
    bool may_idle;    /* devices may wait although a task is ready */
    int64_t cap;      /* limit of held activations per device; INT64_MAX: none */
    int64_t deadline; /* steps left after this one */
    node from;
    int32_t from_index;
    int64_t base[MAX_PP_STAGES]; /* held per device before the step */
    int64_t total;               /* sum of `base` */
    layer *to;
    index_table *table;
} step_search;

/* Chooses tasks for device d and all later devices. `p` includes the tasks of the devices before d;
 * tasks are ready by the state before the step. */
static weft_status choose_from(step_search *s, int64_t d, state p, int64_t added)
{
    const shape *x = s->x;
    if (*x->transitions < 0)
        return WEFT_OK;
    if (d == x->devices) {
        --*x->transitions;
        if (p == s->from.p || remaining(x, p) > s->deadline)
            return WEFT_OK;
        return layer_add(s->to, s->table,
                         (node){p, s->from_index, s->from.cost + s->total + added});
    }
    bool any = false;
    for (int64_t m = 0; m < x->microbatches; m++) {
        const int64_t c = progress(s->from.p, m);
        if (c == x->chain || x->at[c] != d || (m > 0 && progress(s->from.p, m - 1) <= c))
            continue;
        const bool forward = c < x->pp_stages;
        if (forward && s->base[d] + 1 > s->cap)
            continue;
        any = true;
        WEFT_TRY(choose_from(s, d + 1, p + ((state)1 << (BITS * m)), added + forward));
    }
    if (!any || s->may_idle)
        return choose_from(s, d + 1, p, added);
    return WEFT_OK;
}

static weft_status expand(step_search *s, const layer *from)
{
    for (int64_t i = 0; i < from->count && *s->x->transitions >= 0; i++) {
        s->from = from->item[i];
        s->from_index = (int32_t)i;
        s->total = 0;
        for (int64_t d = 0; d < s->x->devices; d++)
            s->total += s->base[d] = held(s->x, s->from.p, d);
        WEFT_TRY(choose_from(s, 0, s->from.p, 0));
    }
    return WEFT_OK;
}

static state goal_of(const shape *x)
{
    state goal = 0;
    for (int64_t m = 0; m < x->microbatches; m++)
        goal |= (state)x->chain << (BITS * m);
    return goal;
}

static void layers_free(layer *l, int64_t count)
{
    for (int64_t i = 0; i < count && l; i++)
        weft_free(l[i].item);
    weft_free(l);
}

/* Searches a schedule of at most `steps` steps under the cap. With `layers`, *layers gets all
 * layers (steps + 1, with the goal in the last). */
static weft_status search(const shape *x, int64_t steps, int64_t cap, bool may_idle, bool *found,
                          layer **layers, int64_t *states)
{
    layer *l = weft_calloc(steps + 1, sizeof *l);
    index_table table = {0};
    weft_status_code status = WEFT_OK;
    *found = false;
    WEFT_GO(WEFT_ALLOCATED(l, "%" PRId64 " layers", steps));
    WEFT_GO(layer_add(&l[0], &table, (node){0, -1, 0}));
    const state goal = goal_of(x);
    for (int64_t t = 0; t < steps && *x->transitions >= 0; t++) {
        table_clear(&table);
        step_search s = {.x = x,
                         .may_idle = may_idle,
                         .cap = cap,
                         .deadline = steps - t - 1,
                         .to = &l[t + 1],
                         .table = &table};
        WEFT_GO(expand(&s, &l[t]));
        *states += l[t + 1].count;
    }
    *found = *x->transitions >= 0 && l[steps].count == 1 && l[steps].item[0].p == goal;
    if (*found && layers) {
        *layers = l;
        l = NULL;
    }
out:
    weft_free(table.cell);
    layers_free(l, steps + 1);
    return status;
}

static weft_status build(shape *x, const layer *l, int64_t steps, weft_pp_schedule *out)
{
    const int64_t count = x->chain * x->microbatches;
    weft_task *task;
    WEFT_TRY(WEFT_NEW(task, count, "%" PRId64 " tasks", count));
    int64_t at = count, i = 0;
    for (int64_t t = steps; t > 0; t--) {
        const state now = l[t].item[i].p;
        i = l[t].item[i].before;
        const state before = l[t - 1].item[i].p;
        for (int64_t m = x->microbatches - 1; m >= 0; m--) {
            const int64_t c = progress(before, m);
            if (progress(now, m) == c)
                continue;
            const int64_t s = c < x->pp_stages ? c : x->chain - 1 - c;
            task[--at] = (weft_task){.device = x->at[c],
                                     .pp_stage = (int32_t)s,
                                     .microbatch = (int32_t)m,
                                     .kind = c < x->pp_stages ? WEFT_TASK_F : WEFT_TASK_B};
        }
    }
    const weft_status_code status =
        weft_pp_schedule_from_order(&(weft_pp_schedule){.name = "synthesised",
                                                        .devices = x->devices,
                                                        .pp_stages = x->pp_stages,
                                                        .microbatches = x->microbatches,
                                                        .device_of = x->device_of,
                                                        .task = task,
                                                        .task_count = count},
                                    out);
    weft_free(task);
    return status;
}

/* ---- devices of the stages ------------------------------------------------------------------- */

typedef struct map_search {
    shape *x;
    int32_t group[MAX_PP_STAGES]; /* smallest stage on the same device */
    int32_t device_of[MAX_PP_STAGES];
    int32_t (*map)[MAX_PP_STAGES]; /* maps to search */
    int64_t count, bound, best;    /* bound: largest `count` */
    bool complete;
} map_search;

/* Numbers devices in the order of first use, so that renamed maps occur once. */
static void enumerate(map_search *s, int64_t pp_stage, int32_t used)
{
    shape *x = s->x;
    if (pp_stage == x->pp_stages) {
        const int64_t steps =
            weft_pp_schedule_lower_bound(s->device_of, x->pp_stages, x->devices, x->microbatches);
        if (steps > s->best)
            return;
        if (s->count == s->bound) {
            s->complete = false;
            return;
        }
        memcpy(s->map[s->count++], s->device_of, sizeof s->device_of);
        return;
    }
    if (s->group[pp_stage] != pp_stage) {
        s->device_of[pp_stage] = s->device_of[s->group[pp_stage]];
        enumerate(s, pp_stage + 1, used);
        return;
    }
    for (int32_t d = 0; d <= used && d < x->devices; d++) {
        s->device_of[pp_stage] = d;
        enumerate(s, pp_stage + 1, d == used ? used + 1 : used);
    }
}

/* The sum of Eq. 13 over the chain: smaller is better. */
static int64_t locality(const shape *x)
{
    int64_t sum = 0;
    for (int64_t c = 0; c < x->chain; c++)
        sum -= c * x->at[c];
    return sum;
}

static weft_status check(int64_t pp_stages, int64_t devices, int64_t microbatches,
                         const weft_pp_stage_pair *pair, int64_t pair_count)
{
    WEFT_TRY(weft_pp_counts_check(pp_stages, devices, microbatches));
    for (int64_t k = 0; k < pair_count; k++)
        if (pair[k].a < 0 || pair[k].b < 0 || pair[k].a >= pp_stages || pair[k].b >= pp_stages)
            return weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(k)),
                              "pair %" PRId64 ": (%d, %d) is outside the stages 0 to %" PRId64, k,
                              pair[k].a, pair[k].b, pp_stages - 1);
    return WEFT_OK;
}

static void group_pp_stages(const weft_pp_stage_pair *pair, int64_t pair_count, int64_t pp_stages,
                            int32_t *group)
{
    for (int64_t s = 0; s < pp_stages; s++)
        group[s] = (int32_t)s;
    for (bool changed = true; changed;) {
        changed = false;
        for (int64_t k = 0; k < pair_count; k++) {
            const int32_t a = group[pair[k].a], b = group[pair[k].b], low = a < b ? a : b;
            changed = changed || a != b;
            for (int64_t s = 0; s < pp_stages; s++)
                if (group[s] == a || group[s] == b)
                    group[s] = low;
        }
    }
}

/* Schedules large instances without a search. Mirrored pairs use FOLD, otherwise stages use ROUND;
 * groups of other collocations get devices round robin. */
static weft_status extend(int64_t pp_stages, int64_t devices, int64_t microbatches,
                          const int32_t *group, weft_synthesis *out)
{
    int32_t *device_of;
    WEFT_TRY(WEFT_NEW(device_of, pp_stages, "%" PRId64 " stages", pp_stages));
    weft_status_code status = WEFT_OK;
    const weft_pp_stage_map maps[] = {WEFT_MAP_ROUND, WEFT_MAP_FOLD};
    for (int k = 0; k < 2; k++) {
        weft_pp_stage_map_fill(maps[k], pp_stages, devices, device_of);
        if (k == 0) /* round robin over the groups, by their first stage */
            for (int64_t s = 0, next = 0; s < pp_stages; s++)
                device_of[s] = group[s] == s ? (int32_t)(next++ % devices) : device_of[group[s]];
        bool legal = true;
        for (int64_t s = 0; s < pp_stages; s++)
            legal = legal && device_of[s] == device_of[group[s]];
        if (!legal)
            continue;
        weft_pp_schedule made;
        WEFT_GO(weft_pp_schedule_make(WEFT_PP_SCHEDULE_GREEDY, device_of, pp_stages, devices,
                                      microbatches, NULL, &made));
        if (!out->schedule.task || made.steps < out->schedule.steps) {
            weft_pp_schedule_free(&out->schedule);
            out->schedule = made;
            out->schedule.name = "extended";
            out->lower_bound =
                weft_pp_schedule_lower_bound(device_of, pp_stages, devices, microbatches);
        } else {
            weft_pp_schedule_free(&made);
        }
    }
out:
    weft_free(device_of);
    return status;
}

/* Finds the best of the maps: by steps, then peak, then the sum of held activations, then Eq.
 * 13. */
static weft_status search_maps(shape *x, map_search *maps, weft_synthesis *out)
{
    weft_status_code status = WEFT_OK;
    int64_t best_steps = maps->best, best_peak = INT64_MAX, best_cost = INT64_MAX,
            best_order = INT64_MAX;
    shape chosen = *x;
    for (int64_t i = 0; i < maps->count && *x->transitions >= 0; i++) {
        set_map(x, maps->map[i]);
        bool found = false;
        int64_t steps =
            weft_pp_schedule_lower_bound(x->device_of, x->pp_stages, x->devices, x->microbatches);
        for (; !found && steps <= best_steps && *x->transitions >= 0; steps += !found)
            WEFT_GO(search(x, steps, INT64_MAX, false, &found, NULL, &out->states));
        if (!found)
            continue;
        if (steps < best_steps)
            best_peak = best_cost = best_order = INT64_MAX;
        best_steps = steps;
        const int64_t most =
            x->pp_stages * x->microbatches < best_peak ? x->pp_stages * x->microbatches : best_peak;
        layer *l = NULL;
        int64_t peak = 1;
        for (found = false; !found && peak <= most && *x->transitions >= 0; peak += !found)
            WEFT_GO(search(x, steps, peak, true, &found, &l, &out->states));
        if (!found)
            continue;
        const int64_t cost = l[steps].item[0].cost, order = locality(x);
        if (peak < best_peak || cost < best_cost || (cost == best_cost && order < best_order)) {
            weft_pp_schedule_free(&out->schedule);
            best_peak = peak;
            best_cost = cost;
            best_order = order;
            chosen = *x;
            status = build(x, l, steps, &out->schedule);
        }
        layers_free(l, steps + 1);
        WEFT_GO(status);
    }
    out->lower_bound = best_steps; /* exact search: no schedule is shorter */
    *x = chosen;
out:
    return status;
}

weft_status weft_synthesise(int64_t pp_stages, int64_t devices, int64_t microbatches,
                            const weft_pp_stage_pair *pair, int64_t pair_count, int64_t state_limit,
                            weft_synthesis *out)
{
    WEFT_TRY(check(pp_stages, devices, microbatches, pair, pair_count));
    const double limit = state_limit > 0 ? (double)state_limit : DEFAULT_STATES;
    int32_t *group;
    WEFT_TRY(WEFT_NEW(group, pp_stages, "%" PRId64 " stages", pp_stages));
    group_pp_stages(pair, pair_count, pp_stages, group);
    weft_synthesis made = {0};
    weft_status_code status = WEFT_OK;
    int32_t(*map)[MAX_PP_STAGES] = NULL;
    /* an upper bound, and the result if the search is too large */
    WEFT_GO(extend(pp_stages, devices, microbatches, group, &made));
    double states = 1;
    for (int64_t m = 1; m <= microbatches; m++)
        states *= (double)(2 * pp_stages + m) / (double)m;
    if (states <= limit && 2 * pp_stages <= 63 && pp_stages < MAX_PP_STAGES &&
        microbatches <= MOST_MICROBATCHES && devices <= MAX_PP_STAGES) {
        WEFT_GO(WEFT_NEW(map, MOST_MAPS, "stage maps"));
        int64_t transitions = (int64_t)(limit * TRANSITIONS_PER_STATE);
        shape x = {.transitions = &transitions,
                   .pp_stages = pp_stages,
                   .devices = devices,
                   .microbatches = microbatches,
                   .chain = 2 * pp_stages};
        map_search maps = {.x = &x,
                           .map = map,
                           .bound = MOST_MAPS,
                           .complete = true,
                           .best = made.schedule.task ? made.schedule.steps
                                                      : 2 * pp_stages * microbatches};
        memcpy(maps.group, group, (size_t)pp_stages * sizeof *group);
        enumerate(&maps, 0, 0);
        const int64_t extended = made.schedule.task ? made.schedule.steps : INT64_MAX;
        WEFT_GO(search_maps(&x, &maps, &made));
        made.proved = maps.complete && made.schedule.steps <= extended;
        if (transitions < 0) { /* the search gave up: extend the pattern instead */
            weft_pp_schedule_free(&made.schedule);
            made = (weft_synthesis){0};
            WEFT_GO(extend(pp_stages, devices, microbatches, group, &made));
        }
    }
    if (made.states == 0)
        made.proved = made.schedule.task && made.schedule.steps == made.lower_bound;
    if (!made.schedule.task)
        WEFT_GO(
            weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "stages", WEFT_NUMBER(pp_stages)),
                       "the search found no schedule for %" PRId64 " stages on %" PRId64 " devices",
                       pp_stages, devices));
    *out = made;
    made = (weft_synthesis){0};
out:
    weft_pp_schedule_free(&made.schedule);
    weft_free(group);
    weft_free(map);
    return status;
}
