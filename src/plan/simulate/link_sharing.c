#include "plan/simulate/traffic.h"

#include <math.h>

typedef struct flow {
    const weft_way *way;
    double left, rate, since; /* bytes of one message still to go */
    double most;              /* the rate that its own messages leave it where nobody else is */
    double ends;
    int64_t mark;
    bool fixed;
} flow;

struct weft_traffic {
    weft_arena *arena;
    flow *flows;
    int64_t flow_count, flow_room;
    weft_index_list idle;     /* flows to use again */
    weft_index_list *on_link; /* those that run */
    weft_index_list fresh;    /* that have begun and have no rate yet */
    weft_index_list dirty, part_links, part_flows, changed;
    int64_t links, *link_mark, link_round, mark;
    double *capacity, *wanted; /* per link; wanted: by its flows if each ran at its most */
    double *spare, *share;     /* per link, while filling */
    int32_t *tight;            /* heap of links by share */
    int64_t *weight;
};

weft_status weft_index_push(weft_index_list *list, int32_t value)
{
    WEFT_TRY(weft_grow((void **)&list->item, list->count, &list->room, sizeof *list->item));
    list->item[list->count++] = value;
    return WEFT_OK;
}

weft_traffic *weft_traffic_create(const weft_cluster *c)
{
    const int64_t links = weft_cluster_link_count(c), f64 = links * (int64_t)sizeof(double);
    weft_traffic *s = weft_alloc(sizeof *s);
    if (!s || !(s->arena = weft_arena_create())) {
        weft_free(s);
        return NULL;
    }
    s->links = links;
    s->on_link = weft_arena_alloc(s->arena, links * (int64_t)sizeof *s->on_link);
    s->link_mark = weft_arena_alloc(s->arena, links * (int64_t)sizeof *s->link_mark);
    s->weight = weft_arena_alloc(s->arena, links * (int64_t)sizeof *s->weight);
    s->capacity = weft_arena_alloc(s->arena, f64);
    s->wanted = weft_arena_alloc(s->arena, f64);
    s->spare = weft_arena_alloc(s->arena, f64);
    s->share = weft_arena_alloc(s->arena, f64);
    s->tight = weft_arena_alloc(s->arena, links * (int64_t)sizeof *s->tight);
    if (!s->on_link || !s->link_mark || !s->weight || !s->capacity || !s->wanted || !s->spare ||
        !s->share || !s->tight) {
        weft_traffic_free(s);
        return NULL;
    }
    for (int64_t l = 0; l < links; l++)
        s->capacity[l] = weft_cluster_link_bandwidth(c, l);
    return s;
}

void weft_traffic_free(weft_traffic *s)
{
    if (!s)
        return;
    for (int64_t l = 0; s->on_link && l < s->links; l++)
        weft_free(s->on_link[l].item);
    weft_free(s->flows);
    weft_free(s->idle.item);
    weft_free(s->fresh.item);
    weft_free(s->dirty.item);
    weft_free(s->part_links.item);
    weft_free(s->part_flows.item);
    weft_free(s->changed.item);
    weft_arena_free(s->arena);
    weft_free(s);
}

weft_status weft_traffic_open(weft_traffic *s, int32_t *out)
{
    if (s->idle.count) {
        *out = s->idle.item[--s->idle.count];
        return WEFT_OK;
    }
    WEFT_TRY(weft_grow((void **)&s->flows, s->flow_count, &s->flow_room, sizeof *s->flows));
    s->flows[s->flow_count] = (flow){0};
    *out = (int32_t)s->flow_count++;
    return WEFT_OK;
}

weft_status weft_traffic_close(weft_traffic *s, int32_t index)
{
    return weft_index_push(&s->idle, index);
}

double weft_traffic_ends(const weft_traffic *s, int32_t index)
{
    return s->flows[index].ends;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

/* A link that has room for the most of all its flows holds up nobody, so what changes on one side
 * of it is not felt on the other. */
static bool is_tight(const weft_traffic *s, int32_t link)
{
    return s->wanted[link] > s->capacity[link] * (1 + 1e-9);
}

static weft_status note_tight(weft_traffic *s, int32_t link, bool before)
{
    return before || is_tight(s, link) ? weft_index_push(&s->dirty, link) : WEFT_OK;
}

weft_status weft_traffic_begin(weft_traffic *s, int32_t index, const weft_way *way, double bytes,
                               double now)
{
    flow *f = &s->flows[index];
    *f = (flow){.way = way, .left = bytes, .since = now, .most = INFINITY, .mark = f->mark};
    for (int32_t i = 0; i < way->links; i++)
        f->most = fmin(f->most, s->capacity[way->link[i]] / way->count[i]);
    WEFT_TRY(weft_index_push(&s->fresh, index));
    for (int32_t i = 0; i < way->links; i++) {
        const int32_t link = way->link[i];
        const bool before = is_tight(s, link);
        WEFT_TRY(weft_index_push(&s->on_link[link], index));
        s->wanted[link] += f->most * way->count[i];
        WEFT_TRY(note_tight(s, link, before));
    }
    return WEFT_OK;
}

weft_status weft_traffic_end(weft_traffic *s, int32_t index)
{
    const flow *f = &s->flows[index];
    for (int32_t i = 0; i < f->way->links; i++) {
        const int32_t link = f->way->link[i];
        weft_index_list *list = &s->on_link[link];
        const bool before = is_tight(s, link);
        int64_t k = 0;
        while (list->item[k] != index)
            k++;
        list->item[k] = list->item[--list->count];
        s->wanted[link] = list->count ? s->wanted[link] - f->most * f->way->count[i] : 0;
        WEFT_TRY(note_tight(s, link, before));
    }
    return WEFT_OK;
}

/* ---- rates ----------------------------------------------------------------------------------- */

static weft_status take_flow(weft_traffic *s, int32_t index)
{
    if (s->flows[index].mark == s->mark)
        return WEFT_OK;
    s->flows[index].mark = s->mark;
    return weft_index_push(&s->part_flows, index);
}

static weft_status take_flows(weft_traffic *s, int32_t link)
{
    for (int64_t k = 0; k < s->on_link[link].count; k++)
        WEFT_TRY(take_flow(s, s->on_link[link].item[k]));
    return WEFT_OK;
}

/* The flows that hang together with those in part_flows over tight links, and all their links. */
static weft_status collect(weft_traffic *s)
{
    s->link_round++;
    s->part_links.count = 0;
    for (int64_t i = 0; i < s->part_flows.count; i++) {
        const weft_way *way = s->flows[s->part_flows.item[i]].way;
        for (int32_t j = 0; j < way->links; j++) {
            const int32_t link = way->link[j];
            if (s->link_mark[link] == s->link_round)
                continue;
            s->link_mark[link] = s->link_round;
            WEFT_TRY(weft_index_push(&s->part_links, link));
            if (is_tight(s, link))
                WEFT_TRY(take_flows(s, link));
        }
    }
    return WEFT_OK;
}

static void sift_up(weft_traffic *s, int64_t at, int32_t link)
{
    s->share[link] = s->spare[link] / (double)s->weight[link];
    for (; at > 0 && s->share[link] < s->share[s->tight[(at - 1) / 2]]; at = (at - 1) / 2)
        s->tight[at] = s->tight[(at - 1) / 2];
    s->tight[at] = link;
}

/* Puts `link` at the top of a heap of n and down to where it belongs. */
static void sift_down(weft_traffic *s, int64_t n, int32_t link)
{
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && s->share[s->tight[child + 1]] < s->share[s->tight[child]])
            child++;
        if (s->share[link] <= s->share[s->tight[child]])
            break;
        s->tight[at] = s->tight[child];
    }
    s->tight[at] = link;
}

/* Max-min by filling: the link with the smallest share per message fixes its flows, and so on. */
static weft_status fill(weft_traffic *s, double now)
{
    for (int64_t i = 0; i < s->part_links.count; i++) {
        const int32_t link = s->part_links.item[i];
        s->spare[link] = is_tight(s, link) ? s->capacity[link] : 0;
        s->weight[link] = 0;
    }
    for (int64_t i = 0; i < s->part_flows.count; i++) {
        flow *f = &s->flows[s->part_flows.item[i]];
        f->left = fmax(0, f->left - f->rate * (now - f->since));
        f->since = now;
        f->fixed = false;
        for (int32_t k = 0; k < f->way->links; k++) {
            s->weight[f->way->link[k]] += f->way->count[k];
            if (!is_tight(s, f->way->link[k])) /* the others on it are left what they want */
                s->spare[f->way->link[k]] += f->most * f->way->count[k];
        }
    }
    /* a heap of links by share; shares only grow while flows are fixed: a stale one goes back */
    int64_t n = 0;
    for (int64_t i = 0; i < s->part_links.count; i++)
        if (s->weight[s->part_links.item[i]] > 0)
            sift_up(s, n++, s->part_links.item[i]);
    while (n > 0) {
        const int32_t tight = s->tight[0];
        const double share = fmax(0, s->spare[tight]) / (double)s->weight[tight];
        if (s->weight[tight] == 0 || share > s->share[tight]) {
            const int32_t again = s->weight[tight] == 0 ? s->tight[--n] : tight;
            if (again == tight && s->weight[tight] > 0)
                s->share[tight] = share;
            if (n > 0)
                sift_down(s, n, again);
            continue;
        }
        const weft_index_list *here = &s->on_link[tight];
        for (int64_t i = 0; i < here->count; i++) {
            flow *f = &s->flows[here->item[i]];
            if (f->fixed || f->mark != s->mark)
                continue;
            f->fixed = true;
            f->rate = isinf(share) ? 1e30 : fmax(share, 1e-3);
            for (int32_t k = 0; k < f->way->links; k++) {
                s->spare[f->way->link[k]] -= f->rate * f->way->count[k];
                s->weight[f->way->link[k]] -= f->way->count[k];
            }
        }
    }
    for (int64_t i = 0; i < s->part_flows.count; i++) {
        flow *f = &s->flows[s->part_flows.item[i]];
        f->ends = now + f->left / f->rate;
        WEFT_TRY(weft_index_push(&s->changed, s->part_flows.item[i]));
    }
    return WEFT_OK;
}

weft_status weft_traffic_share(weft_traffic *s, double now, const weft_index_list **changed)
{
    s->mark++;
    s->changed.count = 0;
    const int64_t seeds = s->dirty.count + s->fresh.count;
    for (int64_t i = 0; i < seeds; i++) {
        s->part_flows.count = 0;
        WEFT_TRY(i < s->dirty.count ? take_flows(s, s->dirty.item[i])
                                    : take_flow(s, s->fresh.item[i - s->dirty.count]));
        if (!s->part_flows.count)
            continue;
        WEFT_TRY(collect(s));
        WEFT_TRY(fill(s, now));
    }
    s->dirty.count = s->fresh.count = 0;
    *changed = &s->changed;
    return WEFT_OK;
}
