#include "plan/cascade/assign.h"

#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct placer {
    const weft_cascade_problem *p;
    const weft_cluster *c;
    weft_assign_options options;
    int64_t devices, nodes, per_node;
    bool *busy, *wanted;          /* per device; wanted: used by a producer */
    double *freed;                /* time at which the device became free */
    int64_t *free_devices, *held; /* per node: free devices, devices of producers */
    int64_t *part;                /* per node: devices to take */
    int64_t *common;              /* per device index: chosen nodes in which the device is free */
    /* per cascade: node to take if enough devices are free; -1: none */
    int32_t *prefer;
    int32_t *order; /* candidate nodes or devices */
    double *key;
} placer;

static void sort_by_key(int32_t *order, const double *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const int32_t x = order[i];
        int64_t j = i;
        for (; j > 0 &&
               (key[order[j - 1]] > key[x] || (key[order[j - 1]] == key[x] && order[j - 1] > x));
             j--)
            order[j] = order[j - 1];
        order[j] = x;
    }
}

static void count_free_devices(placer *x)
{
    for (int64_t n = 0; n < x->nodes; n++) {
        x->free_devices[n] = x->part[n] = 0;
        for (int64_t i = 0; i < x->per_node; i++)
            x->free_devices[n] += !x->busy[n * x->per_node + i];
    }
}

/* Priority 1: one node, the fullest with enough free devices, as the list scheduler assumes. With
 * `inter`, ties go to the node with most producer devices. A preferred node with enough free
 * devices is taken first. */
static bool one_node(placer *x, int64_t degree, int32_t prefer)
{
    int64_t best = -1;
    if (prefer >= 0 && x->free_devices[prefer] >= degree) {
        x->part[prefer] = degree;
        return true;
    }
    for (int64_t n = 0; n < x->nodes; n++) {
        if (x->free_devices[n] < degree)
            continue;
        const bool better = best < 0 || x->free_devices[n] < x->free_devices[best] ||
                            (x->free_devices[n] == x->free_devices[best] && x->options.inter &&
                             x->held[n] > x->held[best]);
        if (better)
            best = n;
    }
    if (best >= 0)
        x->part[best] = degree;
    return best >= 0;
}

/* Priority 2: the fewest nodes whose parts differ by at most one device; else the emptiest
 * nodes. */
static void balanced(placer *x, int64_t degree)
{
    for (int64_t n = 0; n < x->nodes; n++) {
        x->order[n] = (int32_t)n;
        x->key[n] = -(double)x->free_devices[n] -
                    (x->options.inter ? 0.1 * (double)x->held[n] / (double)x->per_node : 0);
    }
    sort_by_key(x->order, x->key, x->nodes);
    for (int64_t m = 2; m <= x->nodes && m <= degree; m++) {
        const int64_t least = degree / m, more = degree % m;
        bool fits = true;
        for (int64_t i = 0; fits && i < m; i++)
            fits = x->free_devices[x->order[i]] >= least + (i < more);
        if (!fits)
            continue;
        for (int64_t i = 0; i < m; i++)
            x->part[x->order[i]] = least + (i < more);
        return;
    }
    for (int64_t i = 0; i < x->nodes && degree > 0; i++) {
        const int64_t n = x->order[i],
                      take = x->free_devices[n] < degree ? x->free_devices[n] : degree;
        x->part[n] = take;
        degree -= take;
    }
}

/* Priorities 3 and 4 inside the chosen nodes. On a single node, devices of producers come first,
 * then the lowest index. */
static int64_t take_devices(placer *x, int32_t *mine)
{
    int64_t chosen = 0, got = 0;
    for (int64_t n = 0; n < x->nodes; n++)
        chosen += x->part[n] > 0;
    const weft_nic *nic = x->c->nics.item;
    for (int64_t i = 0; i < x->per_node; i++) {
        x->common[i] = 0;
        for (int64_t n = 0; n < x->nodes; n++)
            x->common[i] += x->part[n] > 0 && !x->busy[n * x->per_node + i];
    }
    for (int64_t n = 0; n < x->nodes; n++) {
        int64_t count = 0;
        for (int64_t i = 0; x->part[n] > 0 && i < x->per_node; i++) {
            const int64_t d = n * x->per_node + i;
            if (x->busy[d])
                continue;
            const int64_t near = weft_cluster_device_nic(x->c, i);
            const int64_t hops =
                near >= 0 && nic[near].distance.count ? nic[near].distance.item[i] : 0;
            double key = x->options.inter && x->wanted[d] ? -0.5 : 0;
            if (chosen > 1) /* rails free in all nodes first, then short paths */
                key += -1000.0 * (double)x->common[i] + 10.0 * (double)hops;
            x->key[i] = key;
            x->order[count++] = (int32_t)i;
        }
        sort_by_key(x->order, x->key, count);
        for (int64_t k = 0; k < x->part[n]; k++)
            mine[got++] = (int32_t)(n * x->per_node + x->order[k]);
    }
    return got;
}

/* Placement without `inner`: devices of producers first (with `inter`), then the longest free
 * ones. */
static int64_t from_pool(placer *x, int64_t degree, int32_t *mine)
{
    int64_t count = 0;
    for (int64_t d = 0; d < x->devices; d++)
        if (!x->busy[d]) {
            x->key[d] = x->freed[d] - (x->options.inter && x->wanted[d] ? 1e15 : 0);
            x->order[count++] = (int32_t)d;
        }
    sort_by_key(x->order, x->key, count);
    for (int64_t i = 0; i < degree && i < count; i++)
        mine[i] = x->order[i];
    return count < degree ? count : degree;
}

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts devices into ring order: node by node, with every second node reversed. A ring then crosses
 * between nodes as rarely as possible, and between devices of the same rail. */
static void snake(const placer *x, int32_t *mine, int64_t degree)
{
    qsort(mine, (size_t)degree, sizeof *mine, by_number);
    bool backwards = false;
    for (int64_t a = 0, b; a < degree; a = b, backwards = !backwards) {
        for (b = a; b < degree && mine[b] / x->per_node == mine[a] / x->per_node; b++)
            ;
        for (int64_t i = a, j = b - 1; backwards && i < j; i++, j--) {
            const int32_t swap = mine[i];
            mine[i] = mine[j];
            mine[j] = swap;
        }
    }
}

static weft_status place_all(placer *x, const weft_cascade_moment *moments, const int32_t *first,
                             int32_t *devices)
{
    const weft_cascade_problem *p = x->p;
    memset(x->freed, 0, (size_t)x->devices * sizeof *x->freed);
    for (int64_t i = 0; i < 2 * p->count; i++) {
        const int32_t c = moments[i].cascade;
        int32_t *mine = devices + first[c];
        const int64_t degree = first[c + 1] - first[c];
        if (!moments[i].start) {
            for (int64_t j = 0; j < degree; j++) {
                x->busy[mine[j]] = false;
                x->freed[mine[j]] = moments[i].time;
            }
            continue;
        }
        memset(x->held, 0, (size_t)x->nodes * sizeof *x->held);
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            for (int32_t j = first[p->after[e]]; j < first[p->after[e] + 1]; j++) {
                x->wanted[devices[j]] = true;
                x->held[devices[j] / x->per_node]++;
            }
        int64_t got;
        if (x->options.inner) {
            count_free_devices(x);
            if (!one_node(x, degree, x->prefer[c]))
                balanced(x, degree);
            got = take_devices(x, mine);
        } else {
            got = from_pool(x, degree, mine);
        }
        if (got != degree)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "cascade %d of degree %" PRId64 " has only %" PRId64 " free devices",
                              c, degree, got);
        for (int64_t j = 0; j < degree; j++)
            x->busy[mine[j]] = true;
        if (x->options.inner) /* ring order matters with `inner` only */
            snake(x, mine, degree);
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            for (int32_t j = first[p->after[e]]; j < first[p->after[e] + 1]; j++)
                x->wanted[devices[j]] = false;
    }
    return WEFT_OK;
}

/* ---- placement near producers ---------------------------------------------------------------- */

/* Returns twice the nodes of a cascade, plus 1 if its parts differ by more than one device. The
 * devices are in the order of snake(). */
static int32_t spread_of(const placer *x, const int32_t *mine, int64_t degree)
{
    int64_t nodes = 0, most = 0, fewest = degree;
    for (int64_t a = 0, b; a < degree; a = b, nodes++) {
        for (b = a; b < degree && mine[b] / x->per_node == mine[a] / x->per_node; b++)
            ;
        most = b - a > most ? b - a : most;
        fewest = b - a < fewest ? b - a : fewest;
    }
    return (int32_t)(2 * nodes + (most - fewest > 1));
}

/* Returns the number of devices that cascades share with their producers. -1: some cascade is on
 * more nodes than in the first placement, or in less even parts, which increases its exchange
 * time. */
static int64_t shared_devices(const placer *x, const int32_t *first, const int32_t *devices,
                              int32_t *spread)
{
    const weft_cascade_problem *p = x->p;
    int64_t shared = 0;
    for (int32_t c = 0; c < p->count; c++) {
        const int32_t own = spread_of(x, devices + first[c], first[c + 1] - first[c]);
        for (int32_t j = first[c]; j < first[c + 1]; j++)
            x->wanted[devices[j]] = true;
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            for (int32_t j = first[p->after[e]]; j < first[p->after[e] + 1]; j++)
                shared += x->wanted[devices[j]];
        for (int32_t j = first[c]; j < first[c + 1]; j++)
            x->wanted[devices[j]] = false;
        if (spread[c] && own > spread[c])
            return -1;
        spread[c] = spread[c] ? spread[c] : own;
    }
    return shared;
}

typedef struct nearer {
    placer *x;
    const weft_cascade_moment *moments;
    const int32_t *first;
    int32_t *devices, *trial, *spread;
    int64_t shared, attempts;
} nearer;

static int32_t node_of(const nearer *n, int32_t c)
{
    return n->devices[n->first[c]] / (int32_t)n->x->per_node;
}

/* Moves cascade a to a node, and b (-1: none) to the former node of a. Keeps the move if cascades
 * then share more devices with their producers. */
static weft_status try_move(nearer *n, int32_t a, int32_t node, int32_t b, bool *moved)
{
    int32_t *prefer = n->x->prefer;
    const int32_t from = node_of(n, a);
    *moved = false;
    if (prefer[a] < 0 || n->attempts-- <= 0)
        return WEFT_OK;
    prefer[a] = node;
    if (b >= 0)
        prefer[b] = from;
    WEFT_TRY(place_all(n->x, n->moments, n->first, n->trial));
    const int64_t shared = shared_devices(n->x, n->first, n->trial, n->spread);
    *moved = shared > n->shared;
    if (*moved) {
        n->shared = shared;
        memcpy(n->devices, n->trial, (size_t)n->first[n->x->p->count] * sizeof *n->devices);
    } else {
        prefer[a] = from;
        if (b >= 0)
            prefer[b] = node;
    }
    return WEFT_OK;
}

/* Moves cascade c to the node of a producer. Else moves the producer to the node of c, if necessary
 * in exchange for a cascade of the same degree. */
static weft_status bring_together(nearer *n, int32_t c, int32_t producer)
{
    bool moved;
    if (node_of(n, c) == node_of(n, producer))
        return WEFT_OK;
    WEFT_TRY(try_move(n, c, node_of(n, producer), -1, &moved));
    if (!moved)
        WEFT_TRY(try_move(n, producer, node_of(n, c), -1, &moved));
    const int32_t degree = n->first[producer + 1] - n->first[producer];
    for (int32_t other = 0; other < n->x->p->count && !moved; other++)
        if (other != producer && n->first[other + 1] - n->first[other] == degree &&
            node_of(n, other) == node_of(n, c) && n->x->prefer[other] >= 0)
            WEFT_TRY(try_move(n, producer, node_of(n, c), other, &moved));
    return WEFT_OK;
}

/* Moves cascades to the nodes of their producers, and producers to the nodes of their consumers,
 * unless a cascade is spread over more nodes. Starts and ends stay the same. */
static weft_status place_nearer(nearer *n)
{
    const placer *x = n->x;
    const weft_cascade_problem *p = x->p;
    n->shared = shared_devices(x, n->first, n->devices, n->spread);
    n->attempts = (int64_t)1e8 / (p->count * (x->devices + p->count));
    for (int32_t c = 0; c < p->count; c++) /* all other cascades keep their nodes */
        x->prefer[c] = n->first[c + 1] - n->first[c] <= x->per_node ? node_of(n, c) : -1;
    for (int64_t i = 0; i < 2 * p->count; i++) {
        const int32_t c = n->moments[i].cascade;
        for (int32_t e = p->first_after[c]; n->moments[i].start && e < p->first_after[c + 1]; e++)
            WEFT_TRY(bring_together(n, c, p->after[e]));
    }
    return WEFT_OK;
}

weft_status weft_assign(const weft_cascade_problem *p, const weft_cascade_schedule *s,
                        const weft_cluster *cluster, weft_assign_options options, weft_arena *arena,
                        int32_t **first_out, int32_t **devices_out)
{
    if (p->devices > weft_cluster_devices(cluster))
        return weft_error(WEFT_MSG_PLAN_OUTDATED, WEFT_AT(WEFT_NUMBER(p->devices)),
                          "the plan is for %" PRId64 " devices; the cluster %s has %" PRId64,
                          p->devices, cluster->name, weft_cluster_devices(cluster));
    placer x = {.p = p,
                .c = cluster,
                .options = options,
                .nodes = cluster->nodes,
                .per_node = cluster->devices};
    x.devices = weft_cluster_devices(cluster);
    int64_t total = 0;
    for (int64_t c = 0; c < p->count; c++)
        total += p->degree[s->option[c]];
    weft_arena *scratch = weft_arena_create();
    nearer near = {.x = &x};
    weft_status_code status = WEFT_OK;
    int32_t *first = weft_arena_calloc(arena, p->count + 1, sizeof *first);
    int32_t *devices = weft_arena_calloc(arena, total, sizeof *devices);
    weft_cascade_moment *moments = weft_cascade_moments(p, s);
    if (scratch) {
        const int64_t i64 = sizeof(int64_t);
        x.busy = weft_arena_alloc(scratch, x.devices);
        x.wanted = weft_arena_alloc(scratch, x.devices);
        x.freed = weft_arena_alloc(scratch, x.devices * i64);
        x.free_devices = weft_arena_alloc(scratch, x.nodes * i64);
        x.held = weft_arena_alloc(scratch, x.nodes * i64);
        x.part = weft_arena_alloc(scratch, x.nodes * i64);
        x.common = weft_arena_alloc(scratch, x.per_node * i64);
        x.order = weft_arena_alloc(scratch, (x.devices + x.nodes) * i64);
        x.key = weft_arena_alloc(scratch, (x.devices + x.nodes) * i64);
        x.prefer = weft_arena_alloc(scratch, p->count * i64);
        near.trial = weft_arena_alloc(scratch, total * i64);
        near.spread = weft_arena_alloc(scratch, p->count * i64);
    }
    WEFT_GO(WEFT_ALLOCATED(first && devices && moments && x.busy && x.wanted && x.freed &&
                               x.free_devices && x.held && x.part && x.common && x.order && x.key &&
                               x.prefer && near.trial && near.spread,
                           "placing %" PRId64 " cascades", p->count));
    for (int32_t c = 0; c < p->count; c++)
        first[c + 1] = first[c] + p->degree[s->option[c]];
    for (int64_t c = 0; c < p->count; c++)
        x.prefer[c] = -1;
    WEFT_GO(place_all(&x, moments, first, devices));
    near.moments = moments;
    near.first = first;
    near.devices = devices;
    if (options.inner && options.inter && x.nodes > 1)
        WEFT_GO(place_nearer(&near));
    *first_out = first;
    *devices_out = devices;
out:
    weft_free(moments);
    weft_arena_free(scratch);
    return status;
}
