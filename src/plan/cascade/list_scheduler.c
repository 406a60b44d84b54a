/* The two list schedulers. They compute the fitness of every search step, so they do not
 * allocate. */
#include "plan/cascade/list_scheduler.h"

#include "plan/cascade/cascade.h"

#include <math.h>
#include <string.h>

struct weft_list_scheduler {
    const weft_cascade_problem *problem;
    double *priority;               /* per cascade */
    int32_t *left, *right, *height; /* leftist heaps over cascades, one per degree */
    int32_t *waiting;               /* unfinished predecessors */
    int32_t *bucket_degree, *root;  /* distinct degrees, rising, and their heaps */
    int32_t *bucket_of;             /* per option */
    int32_t bucket_count;
    int32_t *running; /* binary heap of cascades by end */
    double *time;     /* profile: free_devices[i] devices are free from time[i] on */
    int32_t *free_devices;
    /* Node state: free devices of each node; home node of each cascade, or -1: parts[c * nodes + i]
     * devices. */
    int64_t nodes;
    int32_t *node_free, *home;
    int64_t *held;          /* per node: producers' devices of the cascade being placed */
    int32_t *nodes_by_free; /* [per_node + 1] number of nodes with exactly i free devices */
    uint64_t *free_set;     /* [per_node + 1][words] bit set of the nodes */
    int64_t words;
    int16_t *parts; /* set for cascades wider than a node only */
    weft_arena *arena;
};

static weft_status fill_buckets(const weft_cascade_problem *p, weft_list_scheduler *l)
{
    const int32_t options = p->first_option[p->count];
    int32_t *seen;
    WEFT_TRY(WEFT_ARENA_NEW(l->arena, seen, p->devices + 1, "the list scheduler"));
    for (int32_t o = 0; o < options; o++)
        seen[p->degree[o]] = 1;
    for (int64_t d = 1; d <= p->devices; d++)
        if (seen[d]) {
            seen[d] = l->bucket_count;
            l->bucket_degree[l->bucket_count++] = (int32_t)d;
        }
    for (int32_t o = 0; o < options; o++)
        l->bucket_of[o] = seen[p->degree[o]];
    return WEFT_OK;
}

weft_status weft_list_scheduler_create(const weft_cascade_problem *p, weft_list_scheduler **out)
{
    weft_arena *arena = weft_arena_create();
    weft_list_scheduler *l = arena ? weft_arena_alloc(arena, sizeof *l) : NULL;
    if (!l) {
        weft_arena_free(arena);
        return weft_no_memory("the list scheduler");
    }
    const int64_t i32 = sizeof(int32_t), f64 = sizeof(double), n = p->count;
    const int64_t options = p->first_option[n];
    const int64_t buckets = options < p->devices ? options : p->devices;
    *l = (weft_list_scheduler){.problem = p, .arena = arena};
    l->nodes = p->per_node > 0 && p->per_node < p->devices ? p->devices / p->per_node : 0;
    l->priority = weft_arena_alloc(arena, n * f64);
    l->left = weft_arena_alloc(arena, n * i32);
    l->right = weft_arena_alloc(arena, n * i32);
    l->height = weft_arena_alloc(arena, n * i32);
    l->waiting = weft_arena_alloc(arena, n * i32);
    l->bucket_degree = weft_arena_alloc(arena, buckets * i32);
    l->root = weft_arena_alloc(arena, buckets * i32);
    l->bucket_of = weft_arena_alloc(arena, options * i32);
    l->running = weft_arena_alloc(arena, (n + 1) * i32);
    l->time = weft_arena_alloc(arena, (2 * n + 4) * f64);
    l->free_devices = weft_arena_alloc(arena, (2 * n + 4) * i32);
    if (l->nodes) {
        l->node_free = weft_arena_alloc(arena, l->nodes * i32);
        l->home = weft_arena_alloc(arena, n * i32);
        l->held = weft_arena_calloc(arena, l->nodes, sizeof *l->held);
        l->nodes_by_free = weft_arena_alloc(arena, (p->per_node + 1) * i32);
        l->words = (l->nodes + 63) / 64;
        l->free_set = weft_arena_calloc(arena, (p->per_node + 1) * l->words, sizeof *l->free_set);
        l->parts = weft_arena_calloc(arena, n * l->nodes, sizeof *l->parts);
    }
    weft_status_code status = WEFT_OK;
    if (l->nodes &&
        (!l->node_free || !l->home || !l->held || !l->parts || !l->nodes_by_free || !l->free_set))
        status = weft_no_memory("the list scheduler");
    else if (!l->priority || !l->left || !l->right || !l->height || !l->waiting ||
             !l->bucket_degree || !l->root || !l->bucket_of || !l->running || !l->time ||
             !l->free_devices)
        status = weft_no_memory("the list scheduler");
    else
        status = fill_buckets(p, l);
    if (status != WEFT_OK) {
        weft_arena_free(arena);
        return status;
    }
    *out = l;
    return WEFT_OK;
}

void weft_list_scheduler_free(weft_list_scheduler *scheduler)
{
    if (scheduler)
        weft_arena_free(scheduler->arena);
}

/* True: a has the higher priority; ties by list order. */
static bool before(const weft_list_scheduler *l, int32_t a, int32_t b)
{
    return l->priority[a] != l->priority[b] ? l->priority[a] > l->priority[b] : a < b;
}

static int32_t merge(weft_list_scheduler *l, int32_t a, int32_t b)
{
    if (a < 0)
        return b;
    if (b < 0)
        return a;
    if (before(l, b, a)) {
        const int32_t swap = a;
        a = b;
        b = swap;
    }
    l->right[a] = merge(l, l->right[a], b); /* recursion depth log n */
    const int32_t left = l->left[a], right = l->right[a];
    if (left < 0 || l->height[left] < l->height[right]) {
        l->left[a] = right;
        l->right[a] = left;
    }
    l->height[a] = l->right[a] < 0 ? 1 : l->height[l->right[a]] + 1;
    return a;
}

static void push(weft_list_scheduler *l, int32_t *root, int32_t c)
{
    l->left[c] = l->right[c] = -1;
    l->height[c] = 1;
    *root = merge(l, *root, c);
}

static int32_t pop(weft_list_scheduler *l, int32_t *root)
{
    const int32_t top = *root;
    *root = merge(l, l->left[top], l->right[top]);
    return top;
}

/* Computes the priorities, from the longest path to the end with the chosen degrees, and the counts
 * of predecessors. */
static void rank(weft_list_scheduler *l, const double *bias, const weft_cascade_schedule *s)
{
    const weft_cascade_problem *p = l->problem;
    for (int64_t i = p->count - 1; i >= 0; i--) {
        const int32_t c = p->order[i];
        double tail = 0;
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++)
            tail = fmax(tail, l->priority[p->before[e]]);
        l->priority[c] = tail + p->seconds[s->option[c]];
    }
    for (int32_t c = 0; c < p->count; c++) {
        if (bias)
            l->priority[c] *= bias[c];
        l->waiting[c] = p->first_after[c + 1] - p->first_after[c];
    }
}

static void running_push(weft_list_scheduler *l, const double *end, int32_t count, int32_t c)
{
    int32_t *heap = l->running, i = count;
    for (; i > 0 && end[c] < end[heap[(i - 1) / 2]]; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static int32_t running_pop(weft_list_scheduler *l, const double *end, int32_t count)
{
    int32_t *heap = l->running;
    const int32_t top = heap[0], c = heap[count - 1];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= count - 1)
            break;
        if (child + 1 < count - 1 && end[heap[child + 1]] < end[heap[child]])
            child++;
        if (end[c] <= end[heap[child]])
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
    return top;
}

/* Returns the first node from `from` on with exactly `free_devices` free devices; -1: none. */
static int64_t next_with(const weft_list_scheduler *l, int64_t free_devices, int64_t from)
{
    const uint64_t *set = l->free_set + free_devices * l->words;
    for (int64_t w = from / 64; w < l->words; w++) {
        const uint64_t bits = w == from / 64 ? set[w] & (~(uint64_t)0 << (from % 64)) : set[w];
        if (bits)
            return w * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

/* Returns the node with most producer devices, of the nodes with exactly `free_devices` free
 * devices that are not taken. Ties go to the lowest index; -1: none. */
static int64_t nearest_with(const weft_list_scheduler *l, int64_t free_devices,
                            const int16_t *taken)
{
    int64_t best = -1;
    for (int64_t n = next_with(l, free_devices, 0); n >= 0; n = next_with(l, free_devices, n + 1))
        if (!(taken && taken[n]) && (best < 0 || l->held[n] > l->held[best]))
            best = n;
    return best;
}

/* Returns the fullest node with at least `degree` free devices. Such a node must exist. */
static int64_t tightest_node(const weft_list_scheduler *l, int64_t degree)
{
    while (!l->nodes_by_free[degree])
        degree++;
    return nearest_with(l, degree, NULL);
}

static int64_t nodes_with(const weft_list_scheduler *l, int64_t least)
{
    int64_t nodes = 0;
    for (int64_t r = least; r <= l->problem->per_node; r++)
        nodes += l->nodes_by_free[r];
    return nodes;
}

/* True: one node has enough free devices. For a cascade wider than a node: the fewest nodes have
 * enough for equal parts. */
static bool fits(const weft_list_scheduler *l, int64_t degree)
{
    const int64_t per_node = l->problem->per_node, m = (degree + per_node - 1) / per_node;
    const int64_t least = degree / m, more = degree % m;
    return nodes_with(l, least) >= m && (more == 0 || nodes_with(l, least + 1) >= more);
}

static void change_free(weft_list_scheduler *l, int64_t node, int64_t by)
{
    const uint64_t bit = (uint64_t)1 << (node % 64);
    l->nodes_by_free[l->node_free[node]]--;
    l->free_set[l->node_free[node] * l->words + node / 64] ^= bit;
    l->node_free[node] += (int32_t)by;
    l->nodes_by_free[l->node_free[node]]++;
    l->free_set[l->node_free[node] * l->words + node / 64] ^= bit;
}

/* Counts the devices of the producers of c by node. */
static void find_producers(weft_list_scheduler *l, const weft_cascade_schedule *s, int32_t c)
{
    const weft_cascade_problem *p = l->problem;
    memset(l->held, 0, (size_t)l->nodes * sizeof *l->held);
    for (int32_t e = p->first_after[c]; p->by_producers && e < p->first_after[c + 1]; e++) {
        const int32_t from = p->after[e];
        if (l->home[from] >= 0)
            l->held[l->home[from]] += p->degree[s->option[from]];
        for (int64_t n = 0; l->home[from] < 0 && n < l->nodes; n++)
            l->held[n] += l->parts[(int64_t)from * l->nodes + n];
    }
}

/* Takes the devices of c on the nodes that weft_assign will choose. */
static void occupy(weft_list_scheduler *l, const weft_cascade_schedule *s, int32_t c,
                   int64_t degree)
{
    find_producers(l, s, c);
    if (degree <= l->problem->per_node) {
        l->home[c] = (int32_t)tightest_node(l, degree);
        change_free(l, l->home[c], -degree);
        return;
    }
    l->home[c] = -1;
    const int64_t m = (degree + l->problem->per_node - 1) / l->problem->per_node;
    int16_t *parts = l->parts + (int64_t)c * l->nodes;
    memset(parts, 0, (size_t)l->nodes * sizeof *parts);
    int64_t free_devices = l->problem->per_node, node;
    for (int64_t i = 0; i < m; i++) { /* the emptiest nodes first */
        while ((node = nearest_with(l, free_devices, parts)) < 0)
            free_devices--;
        parts[node] = (int16_t)(degree / m + (i < degree % m));
    }
    for (int64_t i = 0; i < l->nodes; i++)
        if (parts[i])
            change_free(l, i, -parts[i]);
}

static void leave(weft_list_scheduler *l, int32_t c, int64_t degree)
{
    if (l->home[c] >= 0) {
        change_free(l, l->home[c], degree);
        return;
    }
    for (int64_t i = 0; i < l->nodes; i++)
        if (l->parts[(int64_t)c * l->nodes + i])
            change_free(l, i, l->parts[(int64_t)c * l->nodes + i]);
}

double weft_list_plain(weft_list_scheduler *l, const double *bias, weft_cascade_schedule *s)
{
    const weft_cascade_problem *p = l->problem;
    rank(l, bias, s);
    for (int32_t b = 0; b < l->bucket_count; b++)
        l->root[b] = -1;
    for (int32_t c = 0; c < p->count; c++)
        if (!l->waiting[c])
            push(l, &l->root[l->bucket_of[s->option[c]]], c);
    int32_t running = 0;
    int64_t free_devices = p->devices;
    double now = 0, makespan = 0;
    int32_t start_order = 0;
    for (int64_t i = 0; i < l->nodes; i++)
        l->node_free[i] = (int32_t)p->per_node;
    if (l->nodes) {
        memset(l->nodes_by_free, 0, (size_t)(p->per_node + 1) * sizeof *l->nodes_by_free);
        l->nodes_by_free[p->per_node] = (int32_t)l->nodes;
        memset(l->free_set, 0, (size_t)((p->per_node + 1) * l->words) * sizeof *l->free_set);
        for (int64_t i = 0; i < l->nodes; i++)
            l->free_set[p->per_node * l->words + i / 64] |= (uint64_t)1 << (i % 64);
    }
    for (;;) {
        for (;;) {
            int32_t best = -1;
            for (int32_t b = 0; b < l->bucket_count && l->bucket_degree[b] <= free_devices; b++)
                if (l->root[b] >= 0 && (best < 0 || before(l, l->root[b], l->root[best])) &&
                    (!l->nodes || fits(l, l->bucket_degree[b])))
                    best = b;
            if (best < 0)
                break;
            const int32_t c = pop(l, &l->root[best]);
            s->start[c] = now;
            s->end[c] = now + p->seconds[s->option[c]];
            s->start_order[c] = l->nodes ? start_order++ : 0;
            makespan = fmax(makespan, s->end[c]);
            free_devices -= l->bucket_degree[best];
            if (l->nodes)
                occupy(l, s, c, l->bucket_degree[best]);
            running_push(l, s->end, running++, c);
        }
        if (!running)
            break;
        now = s->end[l->running[0]];
        while (running && s->end[l->running[0]] <= now) {
            const int32_t c = running_pop(l, s->end, running--);
            free_devices += p->degree[s->option[c]];
            if (l->nodes)
                leave(l, c, p->degree[s->option[c]]);
            for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++) {
                const int32_t next = p->before[e];
                if (--l->waiting[next] == 0)
                    push(l, &l->root[l->bucket_of[s->option[next]]], next);
            }
        }
    }
    s->makespan = makespan;
    return makespan;
}

/* Splits the profile at time t and returns the index of t. */
static int32_t split(weft_list_scheduler *l, int32_t *count, int32_t from, double t)
{
    int32_t i = from;
    while (i < *count && l->time[i] < t)
        i++;
    if (i < *count && l->time[i] == t)
        return i;
    memmove(l->time + i + 1, l->time + i, (size_t)(*count - i) * sizeof *l->time);
    memmove(l->free_devices + i + 1, l->free_devices + i,
            (size_t)(*count - i) * sizeof *l->free_devices);
    l->time[i] = t;
    l->free_devices[i] = l->free_devices[i - 1];
    (*count)++;
    return i;
}

double weft_list_insert(weft_list_scheduler *l, const double *bias, weft_cascade_schedule *s)
{
    const weft_cascade_problem *p = l->problem;
    rank(l, bias, s);
    int32_t ready = -1, steps = 1;
    l->time[0] = 0;
    l->free_devices[0] = (int32_t)p->devices;
    for (int32_t c = 0; c < p->count; c++)
        if (!l->waiting[c])
            push(l, &ready, c);
    double makespan = 0;
    while (ready >= 0) {
        const int32_t c = pop(l, &ready), degree = p->degree[s->option[c]];
        const double seconds = p->seconds[s->option[c]];
        double start = 0;
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            start = fmax(start, s->end[p->after[e]]);
        int32_t i = 0;
        while (i + 1 < steps && l->time[i + 1] <= start)
            i++;
        int32_t first = i;
        for (;; i++) { /* [start, ...) has enough devices up to step i */
            if (l->free_devices[i] < degree) {
                first = i + 1;
                start = l->time[first]; /* exists: in the last step all devices are free */
            } else if (i + 1 == steps || l->time[i + 1] >= start + seconds) {
                break;
            }
        }
        s->start[c] = start;
        s->end[c] = start + seconds;
        s->start_order[c] = 0;
        makespan = fmax(makespan, s->end[c]);
        const int32_t a = split(l, &steps, first, start);
        const int32_t b = split(l, &steps, a, s->end[c]);
        for (int32_t j = a; j < b; j++)
            l->free_devices[j] -= degree;
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++)
            if (--l->waiting[p->before[e]] == 0)
                push(l, &ready, p->before[e]);
    }
    s->makespan = makespan;
    return makespan;
}
