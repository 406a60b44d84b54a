#include "plan/simulate/simulator.h"

#include "plan/cluster/cluster_path.h"
#include "plan/simulate/link_sharing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRWISE_MAX = 64 }; /* above, all messages of an all-to-all are one round */

/* One round, or several equal rounds, of a collective over a group. */
typedef struct round {
    weft_route route;
    double latency; /* seconds of all repetitions together */
    double times;   /* number of equal rounds */
} round_t;

typedef struct rounds {
    round_t *item;
    int32_t count;
    int32_t rings; /* rings over which a message is split */
    /* Tree instead of rounds: item k is one message. It is followed by the next message of its
     * sender and the first message of its receiver (-1: none). NULL: rounds. */
    int32_t *next, *child;
} rounds;

enum {
    CLASS_RING,
    CLASS_RINGS,
    CLASS_PAIRWISE,
    CLASS_TOGETHER,
    CLASS_TREE,
    CLASS_HOST_OUT,
    CLASS_HOST_IN,
    CLASS_SEND,
    CLASS_COUNT
};

/* Content of a flow. The index is the flow number of weft_traffic. */
typedef struct cargo {
    int32_t step, round;
    double bytes;    /* of one message */
    int64_t version; /* of the flow and its rate; events of older versions are ignored */
} cargo;

typedef struct event {
    double time;
    int64_t order, version;
    int32_t kind, index; /* index: step or flow */
} event;
enum { EVENT_STEP_ENDS, EVENT_FLOW_STARTS, EVENT_FLOW_ENDS };

typedef struct simulator {
    const weft_trace *t;
    const weft_cluster *c;
    weft_simulation *out;
    weft_arena *arena;
    rounds *cache;                           /* [groups][CLASS_COUNT] */
    int32_t *queue, *queue_first, *queue_at; /* per device and stream */
    int32_t *first_to, *next_to;             /* sends to a device: list of steps; -1: end */
    int32_t *pending;                        /* unfinished prerequisites by step */
    int32_t *waiter, *waiter_first;
    weft_traffic *traffic;
    cargo *cargo; /* by flow */
    int64_t cargo_count, cargo_capacity;
    int32_t *tree_messages; /* by step: remaining messages of a tree */
    event *heap;
    int64_t heap_count, heap_capacity, orders;
    weft_index_list round_links, ready; /* round_links: links of the round under construction */
    int32_t *link_messages;             /* by link: messages of that round */
    double now;
    int64_t done;
} simulator;

static weft_status no_memory(void)
{
    return weft_no_memory("the simulator");
}

static bool earlier(const event *a, const event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static weft_status push_event(simulator *s, double time, int32_t kind, int32_t index,
                              int64_t version)
{
    WEFT_TRY(weft_grow((void **)&s->heap, s->heap_count, &s->heap_capacity, sizeof *s->heap));
    const event e = {time, s->orders++, version, kind, index};
    int64_t i = s->heap_count++;
    for (; i > 0 && earlier(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
    return WEFT_OK;
}

static event pop_event(simulator *s)
{
    const event top = s->heap[0], e = s->heap[--s->heap_count];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!earlier(&s->heap[child], &e))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->heap_count)
        s->heap[i] = e;
    return top;
}

/* Adds the messages from[i] -> to[i] of one round; members with to[i] < 0 do not send. */
static weft_status add_round(simulator *s, const int32_t *from, const int32_t *to, int64_t messages,
                             double times, bool host, rounds *out)
{
    double latency = 0;
    s->round_links.count = 0;
    for (int64_t i = 0; i < messages; i++) {
        weft_path path;
        if (host)
            weft_cluster_host_path(s->c, from[i], to[i] != 0, &path);
        else
            weft_cluster_path(s->c, from[i], to[i], &path);
        latency = fmax(latency, path.latency);
        for (int32_t k = 0; k < path.count; k++)
            if (s->link_messages[path.link[k]]++ == 0)
                WEFT_TRY(weft_index_push(&s->round_links, path.link[k]));
    }
    const int64_t links = s->round_links.count;
    round_t r = {.route = {.links = (int32_t)links}, .latency = latency * times, .times = times};
    r.route.link = weft_arena_calloc(s->arena, links + 1, sizeof *r.route.link);
    r.route.count = weft_arena_calloc(s->arena, links + 1, sizeof *r.route.count);
    WEFT_TRY(WEFT_ALLOCATED(r.route.link && r.route.count, "the simulator"));
    for (int64_t i = 0; i < links; i++) {
        r.route.link[i] = s->round_links.item[i];
        r.route.count[i] = s->link_messages[r.route.link[i]];
        s->link_messages[r.route.link[i]] = 0;
    }
    round_t *last = out->count && !out->next ? &out->item[out->count - 1] : NULL;
    if (last && last->route.links == links &&
        !memcmp(last->route.link, r.route.link, (size_t)links * sizeof *r.route.link) &&
        !memcmp(last->route.count, r.route.count, (size_t)links * sizeof *r.route.count)) {
        last->times += times; /* equal to the previous round */
        last->latency += r.latency;
    } else {
        out->item[out->count++] = r;
    }
    return WEFT_OK;
}

static int class_of(const weft_trace *t, const weft_trace_step *step)
{
    switch ((weft_trace_kind)step->kind) {
    case WEFT_TRACE_ALL_TO_ALL:
        return step->together || t->group[step->group].count > PAIRWISE_MAX ? CLASS_TOGETHER
                                                                            : CLASS_PAIRWISE;
    case WEFT_TRACE_BROADCAST: return CLASS_TREE;
    case WEFT_TRACE_SEND: return CLASS_SEND;
    case WEFT_TRACE_OFFLOAD: return CLASS_HOST_OUT;
    case WEFT_TRACE_FETCH: return CLASS_HOST_IN;
    case WEFT_TRACE_RING_SHIFT: return CLASS_RING;
    default: return CLASS_RINGS;
    }
}

/* Makes one ring per device of a node, each rotated by one inside the nodes, so that each ring
 * crosses between nodes over another rail. A message is split over the rings. Members of a node
 * must be consecutive. */
static int64_t turned_rings(const weft_cluster *c, const int32_t *m, int64_t n, int32_t *from,
                            int32_t *to)
{
    int64_t rings = n, parts = 0;
    for (int64_t a = 0, b; a < n; a = b, parts++) {
        for (b = a; b < n && m[b] / c->devices == m[a] / c->devices; b++)
            ;
        rings = b - a < rings ? b - a : rings;
    }
    if (parts == 1)
        rings = 1;
    int64_t k = 0;
    for (int64_t r = 0; r < rings; r++) {
        const int64_t begin = k;
        for (int64_t a = 0, b; a < n; a = b) {
            for (b = a; b < n && m[b] / c->devices == m[a] / c->devices; b++)
                ;
            for (int64_t i = 0; i < b - a; i++)
                from[k++] = m[a + (i + r) % (b - a)];
        }
        for (int64_t i = begin; i < k; i++)
            to[i] = from[i + 1 < k ? i + 1 : begin];
    }
    return rings;
}

/* Binomial broadcast: each member with the data sends it to the member 1, 2, 4, ... positions
 * further. */
static weft_status build_tree(simulator *s, const int32_t *m, int64_t n, int32_t *last, rounds *r)
{
    r->next = weft_arena_calloc(s->arena, n, sizeof *r->next);
    r->child = weft_arena_calloc(s->arena, n, sizeof *r->child);
    WEFT_TRY(WEFT_ALLOCATED(r->next && r->child, "the simulator"));
    /* last[i]: latest message that member i sent, otherwise the one that it received */
    last[0] = -1;
    for (int64_t have = 1, k = 0; have < n; have *= 2)
        for (int64_t i = 0; i < have && i + have < n; i++, k++) {
            WEFT_TRY(add_round(s, &m[i], &m[i + have], 1, 1, false, r));
            r->next[k] = r->child[k] = -1;
            if (last[i] >= 0 && i + have != k + 1)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "a broadcast tree is out of order");
            if (last[i] >=
                0) { /* message k has receiver k + 1, so member i received message i - 1 */
                const bool first = i > 0 && last[i] == (int32_t)(i - 1);
                *(first ? &r->child[last[i]] : &r->next[last[i]]) = (int32_t)k;
            }
            last[i] = (int32_t)k;
            last[i + have] = (int32_t)k;
        }
    return WEFT_OK;
}

static weft_status build_rounds(simulator *s, int32_t group, int class, rounds *out)
{
    const weft_trace_group *g = &s->t->group[group];
    const int32_t *m = s->t->member + g->first;
    const int64_t n = g->count;
    const int64_t most = class == CLASS_TREE || class == CLASS_PAIRWISE ? n : 1;
    const int64_t messages = class == CLASS_TOGETHER ? n * (n - 1)
                             : class == CLASS_RINGS  ? n * s->c->devices
                                                     : n;
    int32_t *from = weft_calloc(messages, sizeof *from);
    int32_t *to = weft_calloc(messages, sizeof *to);
    rounds r = {.rings = 1, .item = weft_arena_calloc(s->arena, most + 1, sizeof *r.item)};
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(from && to && r.item, "the simulator"));
    if (class == CLASS_SEND) {
        from[0] = m[0];
        to[0] = m[1];
        WEFT_GO(add_round(s, from, to, 1, 1, false, &r));
    } else if (class == CLASS_HOST_OUT || class == CLASS_HOST_IN) {
        for (int64_t i = 0; i < n; i++) {
            from[i] = m[i];
            to[i] = class == CLASS_HOST_OUT;
        }
        WEFT_GO(add_round(s, from, to, n, 1, true, &r));
    } else if (class == CLASS_RING) {
        for (int64_t i = 0; i < n; i++) {
            from[i] = m[i];
            to[i] = m[(i + 1) % n];
        }
        WEFT_GO(add_round(s, from, to, n, 1, false, &r));
    } else if (class == CLASS_RINGS) {
        r.rings = (int32_t)turned_rings(s->c, m, n, from, to);
        WEFT_GO(add_round(s, from, to, n * r.rings, 1, false, &r));
    } else if (class == CLASS_PAIRWISE) {
        for (int64_t shift = 1; shift < n; shift++) {
            for (int64_t i = 0; i < n; i++) {
                from[i] = m[i];
                to[i] = m[(i + shift) % n];
            }
            WEFT_GO(add_round(s, from, to, n, 1, false, &r));
        }
    } else if (class == CLASS_TOGETHER) {
        int64_t k = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                if (i != j) {
                    from[k] = m[i];
                    to[k++] = m[j];
                }
        WEFT_GO(add_round(s, from, to, k, 1, false, &r));
    } else {
        WEFT_GO(build_tree(s, m, n, from, &r));
    }
    *out = r;
out:
    weft_free(from);
    weft_free(to);
    return status;
}

/* Returns the bytes of one message. *loops: repetitions of all rounds. */
static double message_bytes(const weft_trace_step *step, int64_t n, double *loops)
{
    const double ranks = (double)n;
    *loops = 1;
    switch ((weft_trace_kind)step->kind) {
    case WEFT_TRACE_ALL_REDUCE: *loops = 2 * (ranks - 1); return step->bytes / ranks;
    case WEFT_TRACE_ALL_GATHER:
    case WEFT_TRACE_REDUCE_SCATTER: *loops = ranks - 1; return step->bytes / ranks;
    case WEFT_TRACE_ALL_TO_ALL: return step->bytes / ranks;
    default: return step->bytes;
    }
}

static weft_status end_step(simulator *s, int32_t step);

static weft_status launch_round(simulator *s, int32_t index)
{
    cargo *f = &s->cargo[index];
    const weft_trace_step *step = &s->t->step[f->step];
    const weft_trace_group *g = &s->t->group[step->group];
    double loops;
    const rounds *r = &s->cache[step->group * CLASS_COUNT + class_of(s->t, step)];
    const round_t *round = &r->item[f->round];
    f->bytes = message_bytes(step, g->count, &loops) * loops * step->repeat / r->rings;
    f->bytes *= round->times;
    for (int32_t i = 0; i < round->route.links; i++)
        s->out->link_bytes[round->route.link[i]] += f->bytes * round->route.count[i];
    f->version++;
    const double first = f->round == 0 ? step->seconds : 0;
    return push_event(s, s->now + (round->latency * loops + first) * step->repeat,
                      EVENT_FLOW_STARTS, index, f->version);
}

static weft_status launch(simulator *s, int32_t step, int32_t round)
{
    int32_t f;
    WEFT_TRY(weft_traffic_open(s->traffic, &f));
    if (f == s->cargo_count) {
        WEFT_TRY(
            weft_grow((void **)&s->cargo, s->cargo_count, &s->cargo_capacity, sizeof *s->cargo));
        s->cargo[s->cargo_count++] = (cargo){0};
    }
    s->cargo[f].step = step;
    s->cargo[f].round = round;
    return launch_round(s, f);
}

static weft_status start_step(simulator *s, int32_t index)
{
    const weft_trace_step *step = &s->t->step[index];
    const weft_trace_group *g = &s->t->group[step->group];
    s->out->start[index] = s->now;
    const int class = class_of(s->t, step);
    const bool alone = g->count == 1 && class != CLASS_HOST_OUT && class != CLASS_HOST_IN;
    if (step->kind == WEFT_TRACE_COMPUTE || alone)
        return push_event(s, s->now + step->seconds * step->repeat, EVENT_STEP_ENDS, index, 0);
    rounds *r = &s->cache[step->group * CLASS_COUNT + class];
    if (!r->item)
        WEFT_TRY(build_rounds(s, step->group, class, r));
    s->tree_messages[index] = (int32_t)g->count - 1;
    return launch(s, index, 0);
}

/* Number of members whose stream a step occupies. */
static int32_t holders(const weft_trace *t, int64_t step)
{
    return t->step[step].kind == WEFT_TRACE_SEND ? 1 : t->group[t->step[step].group].count;
}

static weft_status make_ready(simulator *s, int32_t step)
{
    return --s->pending[step] == 0 ? weft_index_push(&s->ready, step) : WEFT_OK;
}

static weft_status end_step(simulator *s, int32_t index)
{
    const weft_trace_step *step = &s->t->step[index];
    s->out->end[index] = s->now;
    s->done++;
    for (int32_t w = s->waiter_first[index]; w < s->waiter_first[index + 1]; w++)
        WEFT_TRY(make_ready(s, s->waiter[w]));
    const weft_trace_group *g = &s->t->group[step->group];
    for (int32_t i = 0; i < holders(s->t, index); i++) { /* the next step of the queue */
        const int64_t q = (int64_t)s->t->member[g->first + i] * WEFT_STREAM_COUNT + step->stream;
        const int32_t at = ++s->queue_at[q];
        if (at < s->queue_first[q + 1])
            WEFT_TRY(make_ready(s, s->queue[at]));
    }
    return WEFT_OK;
}

static weft_status end_flow(simulator *s, int32_t index)
{
    WEFT_TRY(weft_traffic_end(s->traffic, index));
    cargo *f = &s->cargo[index];
    const int32_t step = f->step, round = f->round;
    const rounds *r =
        &s->cache[s->t->step[step].group * CLASS_COUNT + class_of(s->t, &s->t->step[step])];
    if (!r->next && round + 1 < r->count) {
        f->round++;
        return launch_round(s, index);
    }
    f->version++;
    WEFT_TRY(weft_traffic_close(s->traffic, index));
    if (!r->next)
        return end_step(s, step);
    if (r->next[round] >= 0)
        WEFT_TRY(launch(s, step, r->next[round]));
    if (r->child[round] >= 0)
        WEFT_TRY(launch(s, step, r->child[round]));
    return --s->tree_messages[step] == 0 ? end_step(s, step) : WEFT_OK;
}

static weft_status share_links(simulator *s)
{
    const weft_index_list *changed;
    WEFT_TRY(weft_traffic_share(s->traffic, s->now, &changed));
    for (int64_t i = 0; i < changed->count; i++) {
        const int32_t index = changed->item[i];
        WEFT_TRY(push_event(s, weft_traffic_ends(s->traffic, index), EVENT_FLOW_ENDS, index,
                            ++s->cargo[index].version));
    }
    return WEFT_OK;
}

static weft_status handle(simulator *s, const event *e)
{
    if (e->kind == EVENT_STEP_ENDS)
        return end_step(s, e->index);
    const cargo *f = &s->cargo[e->index];
    if (f->version != e->version)
        return WEFT_OK; /* outdated: the rate has changed */
    if (e->kind == EVENT_FLOW_ENDS)
        return end_flow(s, e->index);
    const rounds *r =
        &s->cache[s->t->step[f->step].group * CLASS_COUNT + class_of(s->t, &s->t->step[f->step])];
    return weft_traffic_begin(s->traffic, e->index, &r->item[f->round].route, f->bytes, s->now);
}

static weft_status start_ready(simulator *s)
{
    for (int64_t i = 0; i < s->ready.count; i++)
        WEFT_TRY(start_step(s, s->ready.item[i]));
    s->ready.count = 0;
    return WEFT_OK;
}

static weft_status run(simulator *s)
{
    WEFT_TRY(start_ready(s));
    while (s->heap_count) {
        s->now = s->heap[0].time;
        while (s->heap_count && s->heap[0].time <= s->now) {
            const event e = pop_event(s);
            s->out->events++;
            WEFT_TRY(handle(s, &e));
        }
        WEFT_TRY(share_links(s));
        WEFT_TRY(start_ready(s));
    }
    if (s->done == s->t->step_count)
        return WEFT_OK;
    int64_t stuck = 0;
    while (s->pending[stuck] == 0)
        stuck++;
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_NOWHERE,
                      "%" PRId64 " steps of the trace never start; the first is step %" PRId64
                      " (%s)",
                      s->t->step_count - s->done, stuck, s->t->name[s->t->step[stuck].name]);
}

/* Fills the queues, the waiters, and the number of prerequisites of each step. */
static weft_status prepare(simulator *s)
{
    const weft_trace *t = s->t;
    const int64_t queues = t->devices * WEFT_STREAM_COUNT, n = t->step_count;
    int64_t entries = 0;
    for (int64_t i = 0; i < n; i++)
        entries += holders(t, i);
    const int64_t i32 = sizeof(int32_t);
    s->queue = weft_arena_alloc(s->arena, entries * i32);
    s->queue_first = weft_arena_alloc(s->arena, (queues + 2) * i32);
    s->queue_at = weft_arena_alloc(s->arena, (queues + 1) * i32);
    s->pending = weft_arena_alloc(s->arena, (n + 1) * i32);
    s->tree_messages = weft_arena_alloc(s->arena, (n + 1) * i32);
    s->waiter = weft_arena_alloc(s->arena, (t->after_count + 1) * i32);
    s->waiter_first = weft_arena_alloc(s->arena, (n + 2) * i32);
    WEFT_TRY(WEFT_ALLOCATED(s->queue && s->queue_first && s->queue_at && s->pending &&
                                s->tree_messages && s->waiter && s->waiter_first,
                            "the simulator"));
    for (int64_t i = 0; i < n; i++) {
        const weft_trace_group *g = &t->group[t->step[i].group];
        for (int32_t k = 0; k < holders(t, i); k++)
            s->queue_first[(int64_t)t->member[g->first + k] * WEFT_STREAM_COUNT +
                           t->step[i].stream + 1]++;
        for (int32_t k = 0; k < t->step[i].after_count; k++)
            s->waiter_first[t->after[t->step[i].first_after + k] + 1]++;
        s->pending[i] = t->step[i].after_count + holders(t, i);
    }
    for (int64_t q = 0; q < queues; q++) {
        s->queue_first[q + 1] += s->queue_first[q];
        s->queue_at[q] = s->queue_first[q];
    }
    for (int64_t i = 0; i < n; i++)
        s->waiter_first[i + 1] += s->waiter_first[i];
    for (int64_t i = 0; i < n; i++) {
        const weft_trace_group *g = &t->group[t->step[i].group];
        for (int32_t k = 0; k < holders(t, i); k++)
            s->queue[s->queue_at[(int64_t)t->member[g->first + k] * WEFT_STREAM_COUNT +
                                 t->step[i].stream]++] = (int32_t)i;
        for (int32_t k = 0; k < t->step[i].after_count; k++)
            s->waiter[s->waiter_first[t->after[t->step[i].first_after + k]]++] = (int32_t)i;
    }
    for (int64_t i = n; i > 0; i--)
        s->waiter_first[i] = s->waiter_first[i - 1];
    s->waiter_first[0] = 0;
    for (int64_t q = 0; q < queues; q++) {
        s->queue_at[q] = s->queue_first[q];
        if (s->queue_first[q] < s->queue_first[q + 1])
            WEFT_TRY(make_ready(s, s->queue[s->queue_first[q]]));
    }
    return WEFT_OK;
}

typedef struct span {
    double start, end;
    int32_t step;
    bool compute;
} span;

static int by_start(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Computes busy, exposed and peak of one device from its steps. */
static void device_figures(const weft_trace *t, span *list, int64_t n, double *busy,
                           double *exposed, double *peak)
{
    qsort(list, (size_t)n, sizeof *list, by_start);
    double bytes = 0, compute = 0, covered = 0, reach = 0, highest = 0;
    for (int64_t i = 0; i < n;
         i++) { /* union of all spans, and the compute part (its stream is serial) */
        bytes += t->step[list[i].step].memory;
        highest = fmax(highest, bytes);
        if (list[i].compute)
            compute += list[i].end - list[i].start;
        covered += fmax(0, list[i].end - fmax(list[i].start, reach));
        reach = fmax(reach, list[i].end);
    }
    *busy = compute;
    *exposed = covered - compute;
    *peak = highest;
}

/* Adds the sends to a device, which are not in its own queues. */
static int64_t add_received(const simulator *s, int64_t device, span *list, int64_t n)
{
    for (int32_t i = s->first_to[device]; i >= 0; n++, i = s->next_to[i])
        list[n] = (span){s->out->start[i], s->out->end[i], i, false};
    return n;
}

static weft_status list_received(simulator *s, int64_t *most)
{
    const weft_trace *t = s->t;
    int64_t *count = weft_arena_calloc(s->arena, t->devices + 1, sizeof *count);
    s->first_to = weft_arena_calloc(s->arena, t->devices + 1, sizeof *s->first_to);
    s->next_to = weft_arena_calloc(s->arena, t->step_count + 1, sizeof *s->next_to);
    WEFT_TRY(WEFT_ALLOCATED(count && s->first_to && s->next_to, "the simulator"));
    memset(s->first_to, -1, (size_t)t->devices * sizeof *s->first_to);
    for (int64_t i = 0; i < t->step_count; i++) {
        if (t->step[i].kind != WEFT_TRACE_SEND)
            continue;
        const int32_t to = t->member[t->group[t->step[i].group].first + 1];
        s->next_to[i] = s->first_to[to];
        s->first_to[to] = (int32_t)i;
        *most = ++count[to] > *most ? count[to] : *most;
    }
    return WEFT_OK;
}

static weft_status figures(simulator *s)
{
    const weft_trace *t = s->t;
    weft_simulation *out = s->out;
    int64_t most = 0, received = 0;
    WEFT_TRY(list_received(s, &received));
    for (int64_t i = 0; i < t->step_count; i++)
        out->seconds = fmax(out->seconds, out->end[i]);
    for (int64_t d = 0; d < t->devices; d++) {
        const int64_t count =
            s->queue_first[(d + 1) * WEFT_STREAM_COUNT] - s->queue_first[d * WEFT_STREAM_COUNT];
        most = count > most ? count : most;
    }
    span *list;
    WEFT_TRY(WEFT_NEW(list, most + received + 1, "the simulator"));
    for (int64_t d = 0; d < t->devices; d++) {
        int64_t n = 0;
        for (int stream = 0; stream < WEFT_STREAM_COUNT; stream++)
            for (int32_t q = s->queue_first[d * WEFT_STREAM_COUNT + stream];
                 q < s->queue_first[d * WEFT_STREAM_COUNT + stream + 1]; q++) {
                const int32_t i = s->queue[q];
                list[n++] = (span){out->start[i], out->end[i], i, stream == WEFT_STREAM_COMPUTE};
            }
        n = add_received(s, d, list, n);
        device_figures(t, list, n, &out->busy[d], &out->exposed[d], &out->peak[d]);
    }
    weft_free(list);
    return WEFT_OK;
}

static weft_status allocate(simulator *s, weft_simulation *out)
{
    const int64_t f64 = sizeof(double), n = s->t->step_count, devices = s->t->devices;
    const int64_t links = weft_cluster_link_count(s->c);
    out->devices = devices;
    out->links = links;
    out->start = weft_alloc(n * f64);
    out->end = weft_alloc(n * f64);
    out->busy = weft_alloc(devices * f64);
    out->exposed = weft_alloc(devices * f64);
    out->peak = weft_alloc(devices * f64);
    out->link_bytes = weft_alloc(links * f64);
    s->cache = weft_arena_calloc(s->arena, s->t->group_count * CLASS_COUNT, sizeof *s->cache);
    s->link_messages = weft_arena_calloc(s->arena, links + 1, sizeof *s->link_messages);
    s->traffic = weft_traffic_create(s->c);
    return WEFT_ALLOCATED(out->start && out->end && out->busy && out->exposed && out->peak &&
                              out->link_bytes && s->cache && s->link_messages && s->traffic,
                          "the simulator");
}

weft_status weft_simulate(const weft_trace *t, const weft_cluster *c, weft_simulation *out)
{
    if (t->devices > weft_cluster_devices(c))
        return weft_error(WEFT_MSG_PLAN_OUTDATED, WEFT_AT(WEFT_NUMBER(t->devices)),
                          "the plan is for %" PRId64 " devices; the cluster %s has %" PRId64,
                          t->devices, c->name, weft_cluster_devices(c));
    WEFT_TRY(weft_trace_check(t));
    weft_simulation result = {0};
    simulator s = {.t = t, .c = c, .out = &result};
    s.arena = weft_arena_create();
    weft_status_code status;
    WEFT_GO(s.arena ? allocate(&s, &result) : no_memory());
    WEFT_GO(prepare(&s));
    WEFT_GO(run(&s));
    WEFT_GO(figures(&s));
out:
    weft_traffic_free(s.traffic);
    weft_free(s.cargo);
    weft_free(s.heap);
    weft_free(s.round_links.item);
    weft_free(s.ready.item);
    weft_arena_free(s.arena);
    if (status != WEFT_OK) {
        weft_simulation_free(&result);
        return status;
    }
    *out = result;
    return WEFT_OK;
}

void weft_simulation_free(weft_simulation *r)
{
    weft_free(r->start);
    weft_free(r->end);
    weft_free(r->busy);
    weft_free(r->exposed);
    weft_free(r->peak);
    weft_free(r->link_bytes);
    *r = (weft_simulation){0};
}
