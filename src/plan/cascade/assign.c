#include "plan/cascade/assign.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct placer {
    const weft_cascade_problem *p;
    const weft_cluster *c;
    weft_assign_options options;
    int64_t devices, nodes, per_node;
    bool *busy, *wanted;  /* per device; wanted: a producer's */
    double *freed;        /* when it became free */
    int64_t *room, *held; /* per node: free devices, producers' devices */
    int64_t *part;        /* per node: how many to take */
    int64_t *common;      /* per device index: chosen nodes where it is free */
    int32_t *order;       /* candidates */
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

static void count_rooms(placer *x)
{
    for (int64_t n = 0; n < x->nodes; n++) {
        x->room[n] = x->part[n] = 0;
        for (int64_t i = 0; i < x->per_node; i++)
            x->room[n] += !x->busy[n * x->per_node + i];
    }
}

/* Priority 1: one node, the fullest that has room, as the list scheduler assumes; among equal ones
 * with `inter` the one that holds most of the producers. */
static bool one_node(placer *x, int64_t degree)
{
    int64_t best = -1;
    for (int64_t n = 0; n < x->nodes; n++) {
        if (x->room[n] < degree)
            continue;
        const bool better =
            best < 0 || x->room[n] < x->room[best] ||
            (x->room[n] == x->room[best] && x->options.inter && x->held[n] > x->held[best]);
        if (better)
            best = n;
    }
    if (best >= 0)
        x->part[best] = degree;
    return best >= 0;
}

/* Priority 2: as few nodes as take parts that differ by one at most; else as they come. */
static void balanced(placer *x, int64_t degree)
{
    for (int64_t n = 0; n < x->nodes; n++) {
        x->order[n] = (int32_t)n;
        x->key[n] = -(double)x->room[n] -
                    (x->options.inter ? 0.1 * (double)x->held[n] / (double)x->per_node : 0);
    }
    sort_by_key(x->order, x->key, x->nodes);
    for (int64_t m = 2; m <= x->nodes && m <= degree; m++) {
        const int64_t least = degree / m, more = degree % m;
        bool fits = true;
        for (int64_t i = 0; fits && i < m; i++)
            fits = x->room[x->order[i]] >= least + (i < more);
        if (!fits)
            continue;
        for (int64_t i = 0; i < m; i++)
            x->part[x->order[i]] = least + (i < more);
        return;
    }
    for (int64_t i = 0; i < x->nodes && degree > 0; i++) {
        const int64_t n = x->order[i], take = x->room[n] < degree ? x->room[n] : degree;
        x->part[n] = take;
        degree -= take;
    }
}

/* Priorities 3 and 4 inside the chosen nodes; a single node prefers producers, then order. */
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
            if (chosen > 1) /* a rail that all have free, then a short way to it */
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

/* No inner placement: producers first if wanted, then the devices that have been free longest. */
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

/* Ring order: node by node, every second node backwards, so that a ring crosses between nodes as
 * rarely as it can, and from a device to the one of the same rail. */
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
            count_rooms(x);
            if (!one_node(x, degree))
                balanced(x, degree);
            got = take_devices(x, mine);
        } else {
            got = from_pool(x, degree, mine);
        }
        if (got != degree)
            return weft_fail(WEFT_E_INTERNAL, "cascade %d: %lld free devices for degree %lld", c,
                             (long long)got, (long long)degree);
        for (int64_t j = 0; j < degree; j++)
            x->busy[mine[j]] = true;
        if (x->options.inner) /* a pool does not know about rings */
            snake(x, mine, degree);
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            for (int32_t j = first[p->after[e]]; j < first[p->after[e] + 1]; j++)
                x->wanted[devices[j]] = false;
    }
    return WEFT_OK;
}

weft_status weft_assign(const weft_cascade_problem *p, const weft_cascade_schedule *s,
                        const weft_cluster *cluster, weft_assign_options options, weft_arena *arena,
                        int32_t **first_out, int32_t **devices_out)
{
    if (p->devices > weft_cluster_devices(cluster))
        return weft_fail(WEFT_E_ARG, "the plan is for %lld devices, the cluster %s has %lld",
                         (long long)p->devices, cluster->name,
                         (long long)weft_cluster_devices(cluster));
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
    weft_status_code status = WEFT_OK;
    int32_t *first = weft_arena_alloc(arena, (p->count + 1) * (int64_t)sizeof *first);
    int32_t *devices = weft_arena_alloc(arena, total * (int64_t)sizeof *devices);
    weft_cascade_moment *moments = weft_cascade_moments(p, s);
    if (scratch) {
        const int64_t i64 = sizeof(int64_t);
        x.busy = weft_arena_alloc(scratch, x.devices);
        x.wanted = weft_arena_alloc(scratch, x.devices);
        x.freed = weft_arena_alloc(scratch, x.devices * i64);
        x.room = weft_arena_alloc(scratch, x.nodes * i64);
        x.held = weft_arena_alloc(scratch, x.nodes * i64);
        x.part = weft_arena_alloc(scratch, x.nodes * i64);
        x.common = weft_arena_alloc(scratch, x.per_node * i64);
        x.order = weft_arena_alloc(scratch, (x.devices + x.nodes) * i64);
        x.key = weft_arena_alloc(scratch, (x.devices + x.nodes) * i64);
    }
    if (!first || !devices || !moments || !x.busy || !x.wanted || !x.freed || !x.room || !x.held ||
        !x.part || !x.common || !x.order || !x.key) {
        status =
            weft_fail(WEFT_E_MEMORY, "out of memory placing %lld cascades", (long long)p->count);
        goto out;
    }
    for (int32_t c = 0; c < p->count; c++)
        first[c + 1] = first[c] + p->degree[s->option[c]];
    status = place_all(&x, moments, first, devices);
    if (status == WEFT_OK) {
        *first_out = first;
        *devices_out = devices;
    }
out:
    weft_free(moments);
    weft_arena_free(scratch);
    return status;
}
