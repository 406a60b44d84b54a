#include "plan/simulate/link_sharing.h"

#include "plan/cluster/cluster_path.h"

#include <math.h>

typedef struct flow {
    const weft_route *route;
    double left, rate, since; /* left: remaining bytes of one message */
    double most;              /* rate without any other flow */
    double ends;
    int64_t mark;
    bool fixed;
} flow;

struct weft_traffic {
    weft_arena *arena;
    flow *flows;
    int64_t flow_count, flow_capacity;
    weft_index_list idle;     /* closed flows, for reuse */
    weft_index_list *on_link; /* running flows by link */
    weft_index_list fresh;    /* begun flows without a rate */
    weft_index_list dirty, part_links, part_flows, changed;
    int64_t links, *link_mark, link_round, mark;
    double *capacity, *wanted; /* by link; wanted: demand if each flow ran at `most` */
    double *spare, *share;     /* by link, during fill() */
    int32_t *tight;            /* heap of links by share */
    int64_t *weight;
};

weft_status weft_index_push(weft_index_list *list, int32_t value)
{
    WEFT_TRY(weft_grow((void **)&list->item, list->count, &list->capacity, sizeof *list->item));
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
    s->on_link = weft_arena_calloc(s->arena, links, sizeof *s->on_link);
    s->link_mark = weft_arena_calloc(s->arena, links, sizeof *s->link_mark);
    s->weight = weft_arena_calloc(s->arena, links, sizeof *s->weight);
    s->capacity = weft_arena_alloc(s->arena, f64);
    s->wanted = weft_arena_alloc(s->arena, f64);
    s->spare = weft_arena_alloc(s->arena, f64);
    s->share = weft_arena_alloc(s->arena, f64);
    s->tight = weft_arena_calloc(s->arena, links, sizeof *s->tight);
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
    WEFT_TRY(weft_grow((void **)&s->flows, s->flow_count, &s->flow_capacity, sizeof *s->flows));
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

/* Returns true if the flows of a link demand more than its capacity. Other links delay no flow, so
 * that changes do not propagate across them. */
static bool is_tight(const weft_traffic *s, int32_t link)
{
    return s->wanted[link] > s->capacity[link] * (1 + 1e-9);
}

static weft_status note_tight(weft_traffic *s, int32_t link, bool before)
{
    return before || is_tight(s, link) ? weft_index_push(&s->dirty, link) : WEFT_OK;
}

weft_status weft_traffic_begin(weft_traffic *s, int32_t index, const weft_route *route,
                               double bytes, double now)
{
    flow *f = &s->flows[index];
    *f = (flow){.route = route, .left = bytes, .since = now, .most = INFINITY, .mark = f->mark};
    for (int32_t i = 0; i < route->links; i++)
        f->most = fmin(f->most, s->capacity[route->link[i]] / route->count[i]);
    WEFT_TRY(weft_index_push(&s->fresh, index));
    for (int32_t i = 0; i < route->links; i++) {
        const int32_t link = route->link[i];
        const bool before = is_tight(s, link);
        WEFT_TRY(weft_index_push(&s->on_link[link], index));
        s->wanted[link] += f->most * route->count[i];
        WEFT_TRY(note_tight(s, link, before));
    }
    return WEFT_OK;
}

weft_status weft_traffic_end(weft_traffic *s, int32_t index)
{
    const flow *f = &s->flows[index];
    for (int32_t i = 0; i < f->route->links; i++) {
        const int32_t link = f->route->link[i];
        weft_index_list *list = &s->on_link[link];
        const bool before = is_tight(s, link);
        int64_t k = 0;
        while (list->item[k] != index)
            k++;
        list->item[k] = list->item[--list->count];
        s->wanted[link] = list->count ? s->wanted[link] - f->most * f->route->count[i] : 0;
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

/* Collects the flows connected with part_flows over tight links, and all their links. */
static weft_status collect(weft_traffic *s)
{
    s->link_round++;
    s->part_links.count = 0;
    for (int64_t i = 0; i < s->part_flows.count; i++) {
        const weft_route *route = s->flows[s->part_flows.item[i]].route;
        for (int32_t j = 0; j < route->links; j++) {
            const int32_t link = route->link[j];
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

/* Sifts `link` down from the top of a heap of n links. */
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

/* Max-min fair rates by filling: the link with the smallest share per message fixes its flows, then
 * the next link. */
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
        for (int32_t k = 0; k < f->route->links; k++) {
            s->weight[f->route->link[k]] += f->route->count[k];
            if (!is_tight(s, f->route->link[k])) /* the link's other flows get their demand */
                s->spare[f->route->link[k]] += f->most * f->route->count[k];
        }
    }
    /* a heap of links by share; shares only grow while flows are fixed, so an outdated link is put
     * back */
    int64_t n = 0;
    for (int64_t i = 0; i < s->part_links.count; i++)
        if (s->weight[s->part_links.item[i]] > 0)
            sift_up(s, n++, s->part_links.item[i]);
    while (n > 0) {
        const int32_t tight = s->tight[0];
        const double share = fmax(0, s->spare[tight]) / (double)s->weight[tight];
        if (s->weight[tight] == 0 || share > s->share[tight]) {
            const int32_t lowered = s->weight[tight] == 0 ? s->tight[--n] : tight;
            if (lowered == tight && s->weight[tight] > 0)
                s->share[tight] = share;
            if (n > 0)
                sift_down(s, n, lowered);
            continue;
        }
        const weft_index_list *here = &s->on_link[tight];
        for (int64_t i = 0; i < here->count; i++) {
            flow *f = &s->flows[here->item[i]];
            if (f->fixed || f->mark != s->mark)
                continue;
            f->fixed = true;
            f->rate = isinf(share) ? 1e30 : fmax(share, 1e-3);
            for (int32_t k = 0; k < f->route->links; k++) {
                s->spare[f->route->link[k]] -= f->rate * f->route->count[k];
                s->weight[f->route->link[k]] -= f->route->count[k];
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
