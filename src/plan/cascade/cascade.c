/* Cascade problems: checks, flat form, schedules. */
#include "plan/cascade/cascade.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 1 << 20 };

static weft_status check_cascade(const weft_cascade *c, int64_t count)
{
    for (int32_t i = 0; i < c->after_count; i++)
        if (c->after[i] < 0 || c->after[i] >= count)
            return weft_error(
                WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = c->id, WEFT_NUMBER(c->after[i])),
                "predecessor %d is not a cascade from 0 to %" PRId64, c->after[i], count - 1);
    if (c->option_count == 0)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = c->id),
                          "the cascade has no degree to choose from");
    for (int32_t i = 0; i < c->option_count; i++) {
        const weft_cascade_option *o = &c->option[i];
        if (o->degree < 1 || o->degree > MAX_DEVICES)
            return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = c->id, WEFT_NUMBER(o->degree)),
                              "degree %" PRId64 " is not from 1 to %d", o->degree, MAX_DEVICES);
        if (i && o->degree <= c->option[i - 1].degree)
            return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = c->id, WEFT_NUMBER(o->degree)),
                              "degree %" PRId64 " occurs twice or out of order", o->degree);
        if (!isfinite(o->seconds) || o->seconds < 0 || o->seconds > 1e12)
            return weft_error(WEFT_MSG_COSTS_INVALID,
                              WEFT_AT(.key = c->id, WEFT_NUMBER(o->seconds)),
                              "degree %" PRId64 " has %g seconds; a cost must be from 0 to 1e12",
                              o->degree, o->seconds);
        if (!isfinite(o->bytes) || o->bytes < 0)
            return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = c->id, WEFT_NUMBER(o->bytes)),
                              "degree %" PRId64 " has %g bytes, not a finite number of at least 0",
                              o->degree, o->bytes);
    }
    return WEFT_OK;
}

/* Returns an error with the reason why no option fits. */
static weft_status does_not_fit(const weft_cascade *c, int64_t devices, double memory)
{
    const weft_cascade_option *widest = NULL, *enough = NULL;
    for (int32_t i = 0; i < c->option_count; i++) {
        const weft_cascade_option *o = &c->option[i];
        if (o->degree <= devices)
            widest = o;
        if (!enough && (memory <= 0 || o->bytes <= memory))
            enough = o;
    }
    if (!widest)
        return weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = c->id, WEFT_NUMBER(c->option[0].degree)),
            "the smallest degree of the cascade is %" PRId64 ", more than the %" PRId64 " devices",
            c->option[0].degree, devices);
    char rest[96];
    if (enough)
        snprintf(rest, sizeof rest, "smallest feasible degree %" PRId64 ", devices %" PRId64,
                 enough->degree, devices);
    else
        snprintf(rest, sizeof rest, "no degree in its table fits (largest: %" PRId64 ")",
                 c->option[c->option_count - 1].degree);
    const double gib = 1024.0 * 1024 * 1024;
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = c->id, WEFT_NUMBER(widest->bytes)),
                      "the cascade needs %.4g GiB per device at degree %" PRId64
                      ", limit %.4g GiB; %s",
                      widest->bytes / gib, widest->degree, memory / gib, rest);
}

/* Copies the useful options: an option with a larger degree must be faster. */
static weft_status fill_options(const weft_cascade_list *list, double memory,
                                weft_cascade_problem *p)
{
    int32_t n = 0;
    for (int64_t c = 0; c < list->count; c++) {
        const weft_cascade *cascade = &list->item[c];
        p->first_option[c] = n;
        double fastest = INFINITY;
        for (int32_t i = 0; i < cascade->option_count; i++) {
            const weft_cascade_option *o = &cascade->option[i];
            if (o->degree > p->devices || (memory > 0 && o->bytes > memory) ||
                o->seconds >= fastest)
                continue;
            fastest = o->seconds;
            p->degree[n] = (int32_t)o->degree;
            p->seconds[n] = o->seconds;
            p->source[n] = i;
            p->instant |= o->seconds == 0;
            n++;
        }
        if (n == p->first_option[c])
            return does_not_fit(cascade, p->devices, memory);
    }
    p->first_option[list->count] = n;
    return WEFT_OK;
}

static void fill_edges(const weft_cascade_list *list, weft_cascade_problem *p)
{
    int32_t edges = 0;
    for (int64_t c = 0; c < list->count; c++) {
        p->first_after[c] = edges;
        for (int32_t i = 0; i < list->item[c].after_count; i++) {
            p->after[edges++] = list->item[c].after[i];
            p->first_before[list->item[c].after[i] + 1]++;
        }
    }
    p->first_after[list->count] = edges;
    for (int64_t c = 0; c < list->count; c++)
        p->first_before[c + 1] += p->first_before[c];
    /* fill with the first_ entries as cursors, then shift the entries back */
    for (int64_t c = 0; c < list->count; c++)
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            p->before[p->first_before[p->after[e]]++] = (int32_t)c;
    for (int64_t c = list->count; c > 0; c--)
        p->first_before[c] = p->first_before[c - 1];
    p->first_before[0] = 0;
}

/* Follows unfinished predecessors until one repeats, and names the cycle. */
static weft_status name_cycle(const weft_cascade_list *list, const weft_cascade_problem *p,
                              const int32_t *waiting)
{
    int32_t at = 0;
    while (!waiting[at])
        at++;
    weft_buf text = {0};
    for (int64_t step = 0; step < 2 * p->count; step++) {
        int32_t next = -1;
        for (int32_t e = p->first_after[at]; e < p->first_after[at + 1] && next < 0; e++)
            if (waiting[p->after[e]])
                next = p->after[e];
        if (step >= p->count) { /* `at` is on the cycle now */
            const int32_t first = at;
            int shown = 0;
            do {
                if (shown++ < 8)
                    weft_buf_printf(&text, "%s after ", list->item[at].id);
                for (int32_t e = p->first_after[at]; e < p->first_after[at + 1]; e++)
                    if (waiting[p->after[e]]) {
                        next = p->after[e];
                        break;
                    }
                at = next;
            } while (at != first && shown < p->count);
            weft_buf_printf(&text, "%s%s", shown > 8 ? "... after " : "", list->item[first].id);
            break;
        }
        at = next;
    }
    const weft_status_code code =
        weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "after"), "the cascades form a cycle: %s",
                   text.data ? text.data : "?");
    weft_buf_free(&text);
    return code;
}

static weft_status topological_order(const weft_cascade_list *list, weft_cascade_problem *p)
{
    int32_t *waiting;
    WEFT_TRY(WEFT_ARENA_NEW(p->arena, waiting, p->count, "%" PRId64 " cascades", p->count));
    int64_t n = 0;
    for (int32_t c = 0; c < p->count; c++) {
        waiting[c] = p->first_after[c + 1] - p->first_after[c];
        if (!waiting[c])
            p->order[n++] = c;
    }
    for (int64_t i = 0; i < n; i++)
        for (int32_t e = p->first_before[p->order[i]]; e < p->first_before[p->order[i] + 1]; e++)
            if (--waiting[p->before[e]] == 0)
                p->order[n++] = p->before[e];
    return n == p->count ? WEFT_OK : name_cycle(list, p, waiting);
}

static weft_status fill_problem(const weft_cascade_list *list, int64_t options, int64_t edges,
                                weft_cascade_problem *p)
{
    const int64_t i32 = sizeof(int32_t);
    WEFT_TRY(WEFT_ALLOCATED(p->arena, "the planner's problem"));
    p->first_option = weft_arena_alloc(p->arena, (p->count + 1) * i32);
    p->degree = weft_arena_alloc(p->arena, options * i32);
    p->seconds = weft_arena_calloc(p->arena, options, sizeof(double));
    p->source = weft_arena_alloc(p->arena, options * i32);
    p->first_after = weft_arena_alloc(p->arena, (p->count + 1) * i32);
    p->after = weft_arena_alloc(p->arena, (edges + 1) * i32);
    p->first_before = weft_arena_alloc(p->arena, (p->count + 2) * i32);
    p->before = weft_arena_alloc(p->arena, (edges + 1) * i32);
    p->order = weft_arena_alloc(p->arena, p->count * i32);
    WEFT_TRY(WEFT_ALLOCATED(p->first_option && p->degree && p->seconds && p->source &&
                                p->first_after && p->after && p->first_before && p->before &&
                                p->order,
                            "%" PRId64 " cascades with %" PRId64 " options", p->count, options));
    WEFT_TRY(fill_options(list, p->memory, p));
    fill_edges(list, p);
    return topological_order(list, p);
}

weft_status weft_cascade_list_within(const weft_cascade_list *list, int64_t most, double memory,
                                     weft_arena *arena, weft_cascade_list *out)
{
    weft_cascade_list within = {.count = list->count};
    WEFT_TRY(WEFT_ARENA_NEW(arena, within.item, list->count, "%" PRId64 " cascades", list->count));
    for (int64_t c = 0; c < list->count; c++) {
        const weft_cascade *from = &list->item[c];
        int32_t count = 0;
        while (count < from->option_count && from->option[count].degree <= most)
            count++;
        const bool fits = count && (memory <= 0 || from->option[count - 1].bytes <= memory);
        within.item[c] = *from;
        within.item[c].option_count = fits ? count : from->option_count;
    }
    *out = within;
    return WEFT_OK;
}

weft_status weft_cascade_problem_create(const weft_cascade_list *list, int64_t devices,
                                        double memory, weft_cascade_problem *problem)
{
    if (devices < 1 || devices > MAX_DEVICES)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "devices", WEFT_NUMBER(devices)),
                          "%" PRId64 " devices are not from 1 to %d", devices, MAX_DEVICES);
    if (isnan(memory))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "memory"),
                          "the memory limit is not a number");
    if (list->count < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "the workload is empty: it has no cascade to plan");
    if (list->count > 10 * 1000 * 1000)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(WEFT_NUMBER(list->count)),
                          "the workload has %" PRId64 " cascades; at most 10 million are supported",
                          list->count);
    int64_t options = 0, edges = 0;
    for (int64_t c = 0; c < list->count; c++) {
        WEFT_TRY(check_cascade(&list->item[c], list->count));
        options += list->item[c].option_count;
        edges += list->item[c].after_count;
    }
    weft_cascade_problem p = {.count = list->count, .devices = devices, .memory = memory};
    weft_status_code status = WEFT_OK;
    p.arena = weft_arena_create();
    WEFT_GO(fill_problem(list, options, edges, &p));
    *problem = p;
    return WEFT_OK;
out:
    weft_cascade_problem_free(&p);
    return status;
}

void weft_cascade_problem_free(weft_cascade_problem *problem)
{
    weft_arena_free(problem->arena);
    *problem = (weft_cascade_problem){0};
}

weft_status weft_cascade_schedule_create(weft_arena *arena, int64_t count,
                                         weft_cascade_schedule *out)
{
    weft_cascade_schedule s = {.makespan = INFINITY};
    s.option = weft_arena_calloc(arena, count, sizeof *s.option);
    s.start = weft_arena_calloc(arena, count, sizeof *s.start);
    s.end = weft_arena_calloc(arena, count, sizeof *s.end);
    s.start_order = weft_arena_calloc(arena, count, sizeof *s.start_order);
    if (!s.option || !s.start || !s.end || !s.start_order)
        return weft_no_memory("a schedule of %" PRId64 " cascades", count);
    *out = s;
    return WEFT_OK;
}

void weft_cascade_schedule_copy(int64_t count, const weft_cascade_schedule *from,
                                weft_cascade_schedule *to)
{
    memcpy(to->option, from->option, (size_t)count * sizeof *to->option);
    memcpy(to->start, from->start, (size_t)count * sizeof *to->start);
    memcpy(to->end, from->end, (size_t)count * sizeof *to->end);
    memcpy(to->start_order, from->start_order, (size_t)count * sizeof *to->start_order);
    to->makespan = from->makespan;
}

double weft_cascade_gap(double makespan, double bound)
{
    return makespan > bound ? makespan / bound - 1 : 0;
}

static int by_time(const void *a, const void *b)
{
    const weft_cascade_moment *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->start != y->start ? (x->start ? -1 : 1)
                                : (x->cascade > y->cascade) - (x->cascade < y->cascade);
}

weft_cascade_moment *weft_cascade_moments(const weft_cascade_problem *p,
                                          const weft_cascade_schedule *s)
{
    weft_cascade_moment *list = weft_calloc(2 * p->count, sizeof *list);
    if (!list)
        return NULL;
    for (int32_t i = 0; i < p->count; i++) {
        const int32_t c = p->order[i];
        const bool instant = s->end[c] == s->start[c];
        list[2 * i] = (weft_cascade_moment){
            s->start[c], c, true, instant ? 1 + i : (int32_t)p->count + 1 + s->start_order[c]};
        list[2 * i + 1] = (weft_cascade_moment){s->end[c], c, false, instant ? 1 + i : 0};
    }
    qsort(list, (size_t)(2 * p->count), sizeof *list, by_time);
    return list;
}

weft_status weft_cascade_schedule_check(const weft_cascade_problem *p,
                                        const weft_cascade_schedule *s)
{
    double makespan = 0;
    for (int32_t c = 0; c < p->count; c++) {
        const int32_t o = s->option[c];
        if (o < p->first_option[c] || o >= p->first_option[c + 1])
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "cascade %d has an option of another cascade", c);
        if (!(s->start[c] >= 0) || s->end[c] != s->start[c] + p->seconds[o])
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "cascade %d does not start at 0 or later, or does not end its "
                              "seconds after its start",
                              c);
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            if (s->start[c] < s->end[p->after[e]])
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "cascade %d starts before its predecessor %d ends", c,
                                  p->after[e]);
        makespan = fmax(makespan, s->end[c]);
    }
    if (makespan != s->makespan)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "the makespan is %.17g, not %.17g",
                          makespan, s->makespan);
    weft_cascade_moment *events = weft_cascade_moments(p, s);
    WEFT_TRY(WEFT_ALLOCATED(events, "checking a schedule"));
    int64_t used = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < 2 * p->count; i++) {
        const int64_t degree = p->degree[s->option[events[i].cascade]];
        used += events[i].start ? degree : -degree;
        if (used > p->devices)
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                               "%" PRId64 " devices of %" PRId64 " are in use at %g s", used,
                               p->devices, events[i].time));
    }
out:
    weft_free(events);
    return status;
}

weft_status weft_cascade_devices(const weft_cascade_problem *p, const weft_cascade_schedule *s,
                                 weft_arena *arena, int32_t **first_out, int32_t **devices_out)
{
    int32_t *first = weft_arena_calloc(arena, p->count + 1, sizeof *first);
    weft_cascade_moment *events = weft_cascade_moments(p, s);
    bool *busy = weft_alloc(p->devices);
    int64_t total = 0;
    for (int64_t c = 0; c < p->count; c++)
        total += p->degree[s->option[c]];
    int32_t *devices = weft_arena_calloc(arena, total, sizeof *devices);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(first && events && busy && devices,
                           "the devices of %" PRId64 " cascades", p->count));
    for (int64_t c = 0; c < p->count; c++)
        first[c + 1] = first[c] + p->degree[s->option[c]];
    for (int64_t i = 0; i < 2 * p->count; i++) {
        const int32_t c = events[i].cascade;
        int32_t *mine = devices + first[c];
        const int32_t wanted = first[c + 1] - first[c];
        if (!events[i].start) {
            for (int32_t j = 0; j < wanted; j++)
                busy[mine[j]] = false;
            continue;
        }
        int32_t got = 0;
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++)
            for (int32_t j = first[p->after[e]]; j < first[p->after[e] + 1] && got < wanted; j++)
                if (!busy[devices[j]]) {
                    busy[devices[j]] = true;
                    mine[got++] = devices[j];
                }
        for (int32_t d = 0; d < p->devices && got < wanted; d++)
            if (!busy[d]) {
                busy[d] = true;
                mine[got++] = d;
            }
        if (got < wanted)
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                               "cascade %d has no free device", c));
        for (int32_t a = 1; a < wanted; a++) /* rising order */
            for (int32_t b = a; b > 0 && mine[b - 1] > mine[b]; b--) {
                const int32_t swap = mine[b];
                mine[b] = mine[b - 1];
                mine[b - 1] = swap;
            }
    }
    *first_out = first;
    *devices_out = devices;
out:
    weft_free(events);
    weft_free(busy);
    return status;
}
