#include "plan/cascade/policy.h"

#include "plan/cascade/flexsp.h"
#include "plan/cascade/grouping.h"

#include <math.h>
#include <string.h>

const char *const weft_policy_names[] = {"arachne", "static-dp-cp", "ulysses",
                                         "flexsp",  "knapformer",   NULL};

/* ---- cost of a sample on a group ------------------------------------------------------------ */

/* Returns the widest option of a cascade that fits on a group of `width`; -1: none fits. */
static int32_t option_in(const weft_policy_request *r, int64_t cascade, int64_t width)
{
    const weft_cascade *c = &r->list->item[cascade];
    int32_t best = -1;
    for (int32_t i = 0; i < c->option_count && c->option[i].degree <= width; i++)
        if (r->memory <= 0 || c->option[i].bytes <= r->memory)
            best = i;
    return best;
}

void weft_grouping_seconds(const weft_policy_request *r, int64_t width, double *seconds)
{
    for (int64_t s = 0; s < r->samples; s++)
        seconds[s] = 0;
    for (int64_t c = 0; c < r->list->count; c++) {
        const int32_t o = option_in(r, c, width);
        seconds[r->sample[c]] += o < 0 ? (double)INFINITY : r->list->item[c].option[o].seconds;
    }
}

void weft_grouping_sort(const double *key, int64_t count, int32_t *order)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (; at > 0 && key[order[at - 1]] < key[i]; at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

void weft_grouping_work(const weft_policy_request *r, double *out)
{
    for (int64_t s = 0; s < r->samples; s++)
        out[s] = 0;
    for (int64_t c = 0; c < r->list->count; c++) {
        const weft_cascade_option *o = r->list->item[c].option;
        out[r->sample[c]] += o->seconds * (double)o->degree;
    }
}

/* ---- groups and their samples --------------------------------------------------------------- */

weft_status weft_grouping_create(const weft_policy_request *r, int64_t groups, weft_arena *arena,
                                 weft_grouping *out)
{
    weft_grouping g = {.makespan = INFINITY};
    g.width = weft_arena_calloc(arena, groups + 1, sizeof *g.width);
    g.of = weft_arena_calloc(arena, r->samples + 1, sizeof *g.of);
    g.order = weft_arena_calloc(arena, r->samples + 1, sizeof *g.order);
    *out = g;
    return WEFT_ALLOCATED(g.width && g.of && g.order, "the plan of an iteration");
}

static bool method_takes(weft_policy policy, const weft_policy_request *r, int64_t width)
{
    const bool heads = policy == WEFT_POLICY_ULYSSES || policy == WEFT_POLICY_KNAPFORMER;
    return !heads || r->heads <= 0 || r->heads % width == 0;
}

/* Search state for equal groups. */
typedef struct equal {
    weft_policy policy;
    const weft_policy_request *r;
    double *seconds;       /* [samples] on a group of the current width */
    double *work;          /* [samples] */
    double *load, *filled; /* [groups] seconds and work */
    int64_t best_width, best_groups;
    double best;
} equal;

/* Assigns samples round robin, or by work (KnapFormer). Returns the makespan. `of` receives the
 * group of each sample; NULL: not set. */
static double deal_equal(const equal *e, const int32_t *order, int64_t groups, int32_t *of)
{
    const int64_t samples = e->r->samples;
    double makespan = 0;
    for (int64_t g = 0; g < groups; g++)
        e->load[g] = e->filled[g] = 0;
    for (int64_t i = 0; i < samples; i++) {
        const int32_t s = order[i];
        int64_t to = i % groups;
        for (int64_t g = 0; g < groups && e->policy == WEFT_POLICY_KNAPFORMER; g++)
            to = g == 0 || e->filled[g] < e->filled[to] ? g : to;
        e->filled[to] += e->work[s];
        e->load[to] += e->seconds[s];
        if (of)
            of[s] = (int32_t)to;
        makespan = fmax(makespan, e->load[to]);
    }
    return makespan;
}

/* Returns whether equal groups of `width` are allowed. */
static bool width_allowed(const equal *e, int64_t width)
{
    const weft_policy_request *r = e->r;
    const bool exact = r->groups > 0 ? r->groups <= r->devices / width : r->devices % width == 0;
    return method_takes(e->policy, r, width) && (r->degree <= 0 || (width == r->degree && exact));
}

/* Tries groups of `width`. With a given degree and no number of groups, the groups cover all
 * devices. Otherwise devices may stay idle, so that more devices never make the plan longer. Never
 * makes more groups than samples. */
static void try_width(equal *e, const int32_t *order, int64_t width)
{
    const weft_policy_request *r = e->r;
    const int64_t all = r->degree > 0 && r->groups > 0 ? r->groups : r->devices / width,
                  most = all < r->samples ? all : r->samples;
    if (!width_allowed(e, width))
        return;
    weft_grouping_seconds(r, width, e->seconds);
    for (int64_t groups = most; groups > 0; groups--) {
        const double makespan = deal_equal(e, order, groups, NULL);
        if (!e->best_width || makespan < e->best) {
            e->best = makespan;
            e->best_width = width;
            e->best_groups = groups;
        }
        if (r->degree > 0)
            return;
    }
}

/* Creates the search state, and an empty grouping with the policy's order of samples. */
static weft_status equal_create(weft_policy policy, const weft_policy_request *r, weft_arena *arena,
                                equal *out, weft_grouping *g)
{
    const int64_t bytes = (r->samples + 1) * (int64_t)sizeof(double);
    equal e = {.policy = policy, .r = r};
    e.seconds = weft_arena_alloc(arena, bytes);
    e.work = weft_arena_alloc(arena, bytes);
    e.load = weft_arena_alloc(arena, bytes);
    e.filled = weft_arena_alloc(arena, bytes);
    WEFT_TRY(weft_grouping_create(r, r->samples, arena, g));
    WEFT_TRY(WEFT_ALLOCATED(e.seconds && e.work && e.load && e.filled, "the plan of an iteration"));
    if (r->work)
        memcpy(e.work, r->work, (size_t)r->samples * sizeof *e.work);
    else
        weft_grouping_work(r, e.work);
    for (int64_t s = 0; s < r->samples; s++)
        g->order[s] = (int32_t)s;
    if (policy == WEFT_POLICY_KNAPFORMER)
        weft_grouping_sort(e.work, r->samples, g->order);
    *out = e;
    return WEFT_OK;
}

weft_status weft_grouping_equal(weft_policy policy, const weft_policy_request *r, weft_arena *arena,
                                weft_grouping *out)
{
    weft_grouping g;
    equal e;
    WEFT_TRY(equal_create(policy, r, arena, &e, &g));
    for (int64_t width = 1; width <= r->devices; width++)
        try_width(&e, g.order, width);
    *out = (weft_grouping){.makespan = INFINITY};
    if (!e.best_width)
        return WEFT_OK;
    weft_grouping_seconds(r, e.best_width, e.seconds);
    g.makespan = deal_equal(&e, g.order, e.best_groups, g.of);
    g.groups = e.best_groups;
    for (int64_t i = 0; i < g.groups; i++)
        g.width[i] = e.best_width;
    *out = g;
    return WEFT_OK;
}

/* Marks widths that are the degree of an option. Groups of another width would run the samples on
 * the next narrower option. */
static void mark_options(const weft_policy_request *r, bool *is_option)
{
    for (int64_t c = 0; c < r->list->count; c++)
        for (int32_t i = 0; i < r->list->item[c].option_count; i++)
            if (r->list->item[c].option[i].degree <= r->devices)
                is_option[r->list->item[c].option[i].degree] = true;
}

weft_status weft_static_layouts_create(weft_policy policy, const weft_policy_request *r,
                                       weft_arena *arena, weft_static_layouts *out)
{
    weft_static_layouts l = {.policy = policy};
    bool *is_option;
    WEFT_TRY(WEFT_ARENA_NEW(arena, is_option, r->devices + 1, "the static layouts"));
    mark_options(r, is_option);
    for (int pass = 0; pass < 2; pass++) { /* counts, then lists */
        l.count = 0;
        for (int64_t width = 1; width <= r->devices; width++) {
            if (!is_option[width] || !method_takes(policy, r, width))
                continue;
            for (int64_t n = 1; n <= r->samples && n <= r->devices / width; n++, l.count++)
                if (pass)
                    l.item[l.count].groups = (weft_equal_groups){width, n};
        }
        if (!pass)
            WEFT_TRY(WEFT_ARENA_NEW(arena, l.item, l.count + 1, "the static layouts"));
    }
    *out = l;
    return WEFT_OK;
}

weft_status weft_static_layouts_add(weft_static_layouts *l, const weft_policy_request *r,
                                    weft_arena *arena)
{
    weft_grouping g;
    equal e;
    int64_t width = 0;
    WEFT_TRY(equal_create(l->policy, r, arena, &e, &g));
    for (int64_t i = 0; i < l->count; i++) {
        if (l->item[i].groups.width != width)
            weft_grouping_seconds(r, width = l->item[i].groups.width, e.seconds);
        l->item[i].seconds += deal_equal(&e, g.order, l->item[i].groups.count, NULL);
    }
    return WEFT_OK;
}

const weft_static_layout *weft_static_layouts_best(const weft_static_layouts *l, int64_t count)
{
    const weft_static_layout *best = NULL;
    for (int64_t i = 0; i < l->count; i++)
        if (isfinite(l->item[i].seconds) && (!count || l->item[i].groups.count == count) &&
            (!best || l->item[i].seconds < best->seconds))
            best = &l->item[i];
    return best;
}

static weft_status best_equal(weft_policy policy, const weft_policy_request *r, weft_arena *arena,
                              weft_grouping *out)
{
    WEFT_TRY(weft_grouping_equal(policy, r, arena, out));
    if (out->width)
        return WEFT_OK;
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.value = weft_policy_names[policy]),
                      "%s cannot split %" PRId64 " devices into equal groups of %" PRId64 "%s",
                      weft_policy_names[policy], r->devices, r->degree ? r->degree : 1,
                      method_takes(policy, r, r->degree ? r->degree : 1)
                          ? ""
                          : ", which do not divide the attention's heads");
}

/* ---- from groups to a plan ------------------------------------------------------------------ */

/* Returns an error for the cascade that needs the most memory on its best degree. */
static weft_status does_not_fit(weft_policy policy, const weft_policy_request *r)
{
    const weft_cascade *worst = NULL;
    double least = 0;
    for (int64_t c = 0; c < r->list->count; c++) {
        const weft_cascade *item = &r->list->item[c];
        double own = INFINITY;
        for (int32_t i = 0; i < item->option_count && item->option[i].degree <= r->devices; i++)
            own = fmin(own, item->option[i].bytes);
        if (!worst || own > least) {
            worst = item;
            least = own;
        }
    }
    char text[2][32];
    return weft_error(
        WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = worst ? worst->id : NULL, WEFT_NUMBER(least)),
        "%s: the cascade fits no group of devices: it needs at least %s per device, limit %s",
        weft_policy_names[policy], weft_format_bytes((int64_t)fmin(least, 9e18), text[0]),
        weft_format_bytes((int64_t)r->memory, text[1]));
}

weft_status weft_placement_create(weft_arena *arena, int64_t count, int64_t device_count,
                                  weft_placement *out)
{
    weft_placement p = {.count = count};
    p.option = weft_arena_calloc(arena, count, sizeof *p.option);
    p.start = weft_arena_calloc(arena, count, sizeof *p.start);
    p.end = weft_arena_calloc(arena, count, sizeof *p.end);
    p.first = weft_arena_calloc(arena, count + 1, sizeof *p.first);
    p.devices = weft_arena_calloc(arena, device_count + 1, sizeof *p.devices);
    *out = p;
    return WEFT_ALLOCATED(p.option && p.start && p.end && p.first && p.devices,
                          "the plan of an iteration");
}

static void sum_up(weft_placement *p, int64_t devices)
{
    double busy = 0;
    p->makespan = 0;
    for (int64_t c = 0; c < p->count; c++) {
        p->makespan = fmax(p->makespan, p->end[c]);
        busy += (p->end[c] - p->start[c]) * (p->first[c + 1] - p->first[c]);
    }
    p->idle = p->makespan > 0 ? fmax(0, 1 - busy / (p->makespan * (double)devices)) : 0;
}

static weft_status lay_out(const weft_policy_request *r, const weft_grouping *g, weft_arena *arena,
                           weft_placement *out)
{
    int64_t device_count = 0;
    double *free_at = weft_arena_calloc(arena, g->groups + 1, sizeof *free_at);
    int32_t *begins = weft_arena_calloc(arena, g->groups + 1, sizeof *begins);
    WEFT_TRY(WEFT_ALLOCATED(free_at && begins, "the plan of an iteration"));
    for (int64_t i = 0; i < g->groups; i++)
        begins[i + 1] = begins[i] + (int32_t)g->width[i];
    for (int64_t c = 0; c < r->list->count; c++)
        device_count += g->width[g->of[r->sample[c]]];
    WEFT_TRY(weft_placement_create(arena, r->list->count, device_count, out));
    for (int64_t c = 0; c < r->list->count; c++) {
        const int32_t group = g->of[r->sample[c]];
        out->option[c] = option_in(r, c, g->width[group]);
        const int64_t degree = r->list->item[c].option[out->option[c]].degree;
        out->first[c + 1] = out->first[c] + (int32_t)degree;
        for (int64_t j = 0; j < degree; j++)
            out->devices[out->first[c] + j] = begins[group] + (int32_t)j;
    }
    for (int64_t i = 0; i < r->samples; i++)
        for (int64_t c = 0; c < r->list->count; c++) {
            if (r->sample[c] != g->order[i])
                continue;
            double *at = &free_at[g->of[g->order[i]]];
            out->start[c] = *at;
            *at += r->list->item[c].option[out->option[c]].seconds;
            out->end[c] = *at;
        }
    out->degree = g->width[0];
    for (int64_t i = 1; i < g->groups; i++)
        out->degree = g->width[i] == out->degree ? out->degree : 0;
    sum_up(out, r->devices);
    return WEFT_OK;
}

weft_status weft_policy_place(weft_policy policy, const weft_policy_request *request,
                              weft_arena *arena, weft_placement *out)
{
    weft_grouping g = {0};
    if (policy == WEFT_POLICY_FLEXSP)
        WEFT_TRY(weft_grouping_flexsp(request, arena, &g));
    else
        WEFT_TRY(best_equal(policy, request, arena, &g));
    if (isinf(g.makespan))
        return does_not_fit(policy, request);
    return lay_out(request, &g, arena, out);
}

/* ---- placements of any plan ----------------------------------------------------------------- */

weft_status weft_placement_of(const weft_cascade_problem *p, const weft_cascade_schedule *s,
                              int32_t *first, int32_t *devices, weft_arena *arena,
                              weft_placement *out)
{
    WEFT_TRY(weft_placement_create(arena, p->count, 0, out));
    for (int64_t c = 0; c < p->count; c++) {
        out->option[c] = p->source[s->option[c]];
        out->start[c] = s->start[c];
        out->end[c] = s->end[c];
    }
    out->first = first;
    out->devices = devices;
    sum_up(out, p->devices);
    return WEFT_OK;
}

static bool share_a_device(const weft_placement *p, int64_t a, int64_t b)
{
    for (int32_t i = p->first[a]; i < p->first[a + 1]; i++)
        for (int32_t j = p->first[b]; j < p->first[b + 1]; j++)
            if (p->devices[i] == p->devices[j])
                return true;
    return false;
}

weft_status weft_placement_check(const weft_placement *p, const weft_cascade_list *list,
                                 int64_t devices, double memory)
{
    const double slack = 1e-9 * (1 + p->makespan);
    for (int64_t c = 0; c < p->count; c++) {
        const weft_cascade *item = &list->item[c];
        const weft_cascade_option *o = &item->option[p->option[c]];
        if (p->first[c + 1] - p->first[c] != o->degree)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = item->id),
                              "the cascade has degree %" PRId64 " on %d devices", o->degree,
                              p->first[c + 1] - p->first[c]);
        if (memory > 0 && o->bytes > memory)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = item->id),
                              "the cascade needs %.0f bytes of a device with %.0f", o->bytes,
                              memory);
        for (int32_t i = p->first[c]; i < p->first[c + 1]; i++)
            if (p->devices[i] < 0 || p->devices[i] >= devices)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = item->id),
                                  "device %d is not one of the %" PRId64, p->devices[i], devices);
        for (int32_t a = 0; a < item->after_count; a++)
            if (p->end[item->after[a]] > p->start[c] + slack)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = item->id),
                                  "the cascade starts before %s ends",
                                  list->item[item->after[a]].id);
        for (int64_t b = 0; b < c; b++)
            if (p->start[b] < p->end[c] - slack && p->start[c] < p->end[b] - slack &&
                share_a_device(p, b, c))
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = item->id),
                                  "the cascade and %s use a device at the same time",
                                  list->item[b].id);
    }
    return WEFT_OK;
}
