/* Branch and bound over (next cascade, degree), with starts that never fall.
 *
 * Any schedule, read by its starts, is such a sequence. Starting each cascade as early as the
 * cascades before allow is never later, so the tree contains an optimum. A branch is pruned in
 * three cases: its bound is not below the best makespan; its start leaves a hole in which another
 * waiting cascade could have run; or a stored state dominates its state. A state dominates another
 * if the same cascades are done, every device is free no later, and every waiting cascade is ready
 * no later. */
#include "plan/cascade/exact.h"

#include "base/log.h"
#include "plan/cascade/cascade.h"

#include <math.h>
#include <string.h>

enum { MAX_CASCADES = 60, MAX_EXACT_DEVICES = 64, TABLE_BITS = 16, PER_SLOT = 4 };

typedef struct state {
    uint64_t done;
    int32_t depth;
    double now;                        /* earliest start of the next cascade */
    double free_at[MAX_EXACT_DEVICES]; /* rising times */
    double ready_at[MAX_CASCADES];     /* latest end of the finished predecessors */
} state;

typedef struct exact {
    const weft_cascade_problem *p;
    int32_t n, devices;
    uint64_t need[MAX_CASCADES];   /* predecessors */
    uint64_t sooner[MAX_CASCADES]; /* copies that must start earlier */
    double tail[MAX_CASCADES];     /* shortest path from the cascade's end */
    double fastest[MAX_CASCADES];
    state *stack;             /* one per depth */
    weft_cascade_schedule at; /* schedule of the current path */
    weft_cascade_schedule *best;
    const weft_cascade_limits *limits;
    int64_t nodes;
    bool cut;
    /* stored states: keys, and vectors of devices + n doubles */
    uint64_t *key;
    double *vector;
    uint8_t *used; /* per slot: ring index of the next entry to replace */
    int32_t stride;
} exact;

/* True: two cascades have equal options. */
static bool same_options(const weft_cascade_problem *p, int32_t a, int32_t b)
{
    const int32_t n = p->first_option[a + 1] - p->first_option[a];
    if (n != p->first_option[b + 1] - p->first_option[b])
        return false;
    for (int32_t i = 0; i < n; i++) {
        const int32_t x = p->first_option[a] + i, y = p->first_option[b] + i;
        if (p->degree[x] != p->degree[y] || p->seconds[x] != p->seconds[y])
            return false;
    }
    return true;
}

/* Finds connected parts that are copies of each other in list order. Copies are interchangeable, so
 * the first cascade of a later copy need not start before the first of an earlier copy. */
static void find_copies(exact *x)
{
    const weft_cascade_problem *p = x->p;
    int32_t part[MAX_CASCADES];
    for (int32_t c = 0; c < x->n; c++)
        part[c] = c;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t c = 0; c < x->n; c++)
            for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++) {
                const int32_t low = part[c] < part[p->after[e]] ? part[c] : part[p->after[e]];
                changed |= part[c] != low || part[p->after[e]] != low;
                part[c] = part[p->after[e]] = low;
            }
    }
    int32_t member[MAX_CASCADES][MAX_CASCADES], count[MAX_CASCADES] = {0}, position[MAX_CASCADES];
    for (int32_t c = 0; c < x->n; c++) {
        position[c] = count[part[c]];
        member[part[c]][count[part[c]]++] = c;
    }
    for (int32_t a = 0; a < x->n; a++)
        for (int32_t b = a + 1; b < x->n && part[a] == a; b++) {
            bool same = part[b] == b && count[a] == count[b];
            for (int32_t i = 0; same && i < count[a]; i++) {
                const int32_t u = member[a][i], v = member[b][i];
                same = same_options(p, u, v) && p->first_after[u + 1] - p->first_after[u] ==
                                                    p->first_after[v + 1] - p->first_after[v];
                for (int32_t e = 0; same && e < p->first_after[u + 1] - p->first_after[u]; e++)
                    same = position[p->after[p->first_after[u] + e]] ==
                           position[p->after[p->first_after[v] + e]];
            }
            if (same)
                x->sooner[member[b][0]] |= (uint64_t)1 << member[a][0];
        }
}

/* Returns a lower bound on the makespan from state s: the maximum of the longest path and the area
 * bound. The area bound uses, per waiting cascade, the least area of degrees that can still beat
 * `best`. INFINITY: a cascade has no such degree. */
static double bound(const exact *x, const state *s, double best)
{
    const weft_cascade_problem *p = x->p;
    double busy = 0, longest = 0, area = 0;
    for (int32_t i = 0; i < x->devices; i++)
        busy += fmax(s->free_at[i], s->now);
    double ready[MAX_CASCADES];
    for (int32_t i = 0; i < x->n; i++) {
        const int32_t c = p->order[i];
        if (s->done >> c & 1)
            continue;
        ready[c] = fmax(s->ready_at[c], s->now);
        ready[c] = fmax(ready[c], s->free_at[p->degree[p->first_option[c]] - 1]);
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            if (!(s->done >> p->after[e] & 1))
                ready[c] = fmax(ready[c], ready[p->after[e]] + x->fastest[p->after[e]]);
        double least = INFINITY;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++) {
            const double start = fmax(ready[c], s->free_at[p->degree[o] - 1]);
            const double end = start + p->seconds[o] + x->tail[c];
            if (end < best)
                least = fmin(least, p->seconds[o] * p->degree[o]);
        }
        if (isinf(least))
            return INFINITY;
        area += least;
        longest = fmax(longest, ready[c] + x->fastest[c] + x->tail[c]);
    }
    /* a sum of up to 64 + 60 terms has a relative error below 1e-13 */
    return fmax(longest, (busy + area) / x->devices * (1 - 1e-13));
}

/* True: a stored state is at least as good. Otherwise stores this state. */
static bool dominated(exact *x, const state *s)
{
    const uint64_t slot = (s->done * 0x9e3779b97f4a7c15u) >> (64 - TABLE_BITS);
    double v[MAX_EXACT_DEVICES + MAX_CASCADES];
    const double now = fmax(s->now, s->free_at[0]);
    for (int32_t i = 0; i < x->devices; i++)
        v[i] = fmax(s->free_at[i], now);
    for (int32_t c = 0; c < x->n; c++)
        v[x->devices + c] = s->done >> c & 1 ? 0 : fmax(s->ready_at[c], now);
    for (int k = 0; k < PER_SLOT; k++) {
        const int64_t at = (int64_t)slot * PER_SLOT + k;
        if (x->key[at] != s->done + 1)
            continue;
        const double *w = x->vector + at * x->stride;
        bool better = true;
        for (int32_t i = 0; better && i < x->stride; i++)
            better = w[i] <= v[i];
        if (better)
            return true;
    }
    const int64_t at = (int64_t)slot * PER_SLOT + x->used[slot];
    x->used[slot] = (uint8_t)((x->used[slot] + 1) % PER_SLOT);
    x->key[at] = s->done + 1;
    memcpy(x->vector + at * x->stride, v, (size_t)x->stride * sizeof *v);
    return false;
}

/* True: another waiting cascade could complete before `start`. Of two cascades with zero seconds at
 * one moment, the first in the list must come first. */
static bool leaves_hole(const exact *x, const state *s, int32_t chosen, bool instant, double start)
{
    const weft_cascade_problem *p = x->p;
    for (int32_t c = 0; c < x->n; c++) {
        if (c == chosen || s->done >> c & 1 || (x->need[c] | x->sooner[c]) & ~s->done)
            continue;
        const double ready = fmax(s->ready_at[c], s->now);
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++) {
            const double begin = fmax(ready, s->free_at[p->degree[o] - 1]),
                         end = begin + p->seconds[o];
            if (end < start || (end == start && (begin < start || !instant || c < chosen)))
                return true;
        }
    }
    return false;
}

/* Sets *next to the state after cascade c starts with option o. */
static void advance(exact *x, const state *s, int32_t c, int32_t o, double start, state *next)
{
    const weft_cascade_problem *p = x->p;
    const double end = start + p->seconds[o];
    const int32_t degree = p->degree[o];
    next->done = s->done | (uint64_t)1 << c;
    next->depth = s->depth + 1;
    next->now = start;
    /* uses the `degree` devices that are free first, all free at `start` */
    int32_t i = degree, k = 0;
    for (; i < x->devices && s->free_at[i] < end; i++)
        next->free_at[k++] = s->free_at[i];
    for (int32_t j = 0; j < degree; j++)
        next->free_at[k++] = end;
    for (; i < x->devices; i++)
        next->free_at[k++] = s->free_at[i];
    memcpy(next->ready_at, s->ready_at, (size_t)x->n * sizeof *next->ready_at);
    for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++)
        next->ready_at[p->before[e]] = fmax(next->ready_at[p->before[e]], end);
    x->at.option[c] = o;
    x->at.start[c] = start;
    x->at.end[c] = end;
}

typedef struct branch {
    double key, start;
    int32_t cascade, option;
} branch;

/* True: a limit is reached. */
static bool is_over(const exact *x)
{
    const weft_cascade_limits *l = x->limits;
    if (x->nodes >= l->nodes)
        return true;
    return (x->nodes & 1023) == 0 &&
           ((l->deadline > 0 && weft_now() > l->deadline) || (l->stop && l->stop(l->user)));
}

static void visit(exact *x, const state *s)
{
    const weft_cascade_problem *p = x->p;
    if (s->depth == x->n) {
        double makespan = 0;
        for (int32_t c = 0; c < x->n; c++)
            makespan = fmax(makespan, x->at.end[c]);
        if (makespan < x->best->makespan) {
            x->at.makespan = makespan;
            weft_cascade_schedule_copy(x->n, &x->at, x->best);
            x->cut = x->cut || makespan <= x->limits->floor;
        }
        return;
    }
    branch list[512];
    int32_t count = 0;
    for (int32_t c = 0; c < x->n; c++) {
        if (s->done >> c & 1 || (x->need[c] | x->sooner[c]) & ~s->done)
            continue;
        for (int32_t o = p->first_option[c + 1] - 1; o >= p->first_option[c]; o--) {
            const double start = fmax(fmax(s->ready_at[c], s->now), s->free_at[p->degree[o] - 1]);
            if (start + p->seconds[o] + x->tail[c] >= x->best->makespan)
                continue;
            if (count == 512) {
                x->cut = true; /* the list is full: no proof */
                break;
            }
            /* early starts first, then long paths */
            list[count++] = (branch){start - 1e-3 * (x->tail[c] + p->seconds[o]), start, c, o};
        }
    }
    for (int32_t i = 1; i < count; i++) { /* stable sort by key */
        const branch b = list[i];
        int32_t j = i;
        for (; j > 0 && b.key < list[j - 1].key; j--)
            list[j] = list[j - 1];
        list[j] = b;
    }
    state *next = &x->stack[s->depth + 1];
    for (int32_t i = 0; i < count && !x->cut; i++) {
        const int32_t c = list[i].cascade;
        if (list[i].start + p->seconds[list[i].option] + x->tail[c] >= x->best->makespan ||
            leaves_hole(x, s, c, p->seconds[list[i].option] == 0, list[i].start))
            continue;
        x->nodes++;
        if (is_over(x)) {
            x->cut = true;
            return;
        }
        advance(x, s, c, list[i].option, list[i].start, next);
        if (bound(x, next, x->best->makespan) >= x->best->makespan || dominated(x, next))
            continue;
        visit(x, next);
    }
}

static void prepare(exact *x)
{
    const weft_cascade_problem *p = x->p;
    for (int32_t i = x->n - 1; i >= 0; i--) {
        const int32_t c = p->order[i];
        x->fastest[c] = p->seconds[p->first_option[c + 1] - 1];
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++) {
            const int32_t q = p->before[e];
            x->tail[c] = fmax(x->tail[c], x->tail[q] + x->fastest[q]);
        }
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            x->need[c] |= (uint64_t)1 << p->after[e];
    }
    find_copies(x);
}

weft_status weft_cascade_exact(const weft_cascade_problem *p, const weft_cascade_limits *limits,
                               weft_cascade_schedule *best, bool *proved, int64_t *visited)
{
    *proved = false;
    *visited = 0;
    if (p->count > MAX_CASCADES || p->devices > MAX_EXACT_DEVICES)
        return WEFT_OK;
    weft_arena *arena = weft_arena_create();
    exact *x = arena ? weft_arena_alloc(arena, sizeof *x) : NULL;
    weft_status_code status = WEFT_OK;
    const int64_t slots = (int64_t)PER_SLOT << TABLE_BITS;
    if (x) {
        *x = (exact){.p = p, .n = (int32_t)p->count, .devices = (int32_t)p->devices};
        x->best = best;
        x->limits = limits;
        x->stride = x->n + x->devices;
        x->stack = weft_arena_calloc(arena, x->n + 1, sizeof *x->stack);
        x->key = weft_arena_calloc(arena, slots, sizeof *x->key);
        x->used = weft_arena_alloc(arena, 1 << TABLE_BITS);
        x->vector = weft_arena_calloc(arena, slots * x->stride, sizeof *x->vector);
    }
    if (!x || !x->stack || !x->key || !x->used || !x->vector) {
        weft_arena_free(arena);
        return weft_no_memory("the exact search");
    }
    WEFT_GO(weft_cascade_schedule_create(arena, p->count, &x->at));
    prepare(x);
    visit(x, &x->stack[0]);
    *proved = !x->cut;
    *visited = x->nodes;
out:
    weft_arena_free(arena);
    return status;
}
