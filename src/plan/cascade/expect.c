#include "plan/cascade/expect.h"

#include "base/rng.h"
#include "plan/cascade/genome.h"
#include "plan/cascade/list_scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors of the estimates ----------------------------------------------------------------- */

void weft_price_errors_add(weft_price_errors *e, double ratio)
{
    if (isfinite(ratio) && ratio > 0)
        e->ratio[e->count++ % WEFT_PRICE_ERRORS] = ratio;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t sorted(const weft_price_errors *e, double *to)
{
    const int64_t n = e->count < WEFT_PRICE_ERRORS ? e->count : WEFT_PRICE_ERRORS;
    memcpy(to, e->ratio, (size_t)n * sizeof *to);
    qsort(to, (size_t)n, sizeof *to, by_value);
    return n;
}

/* Returns a quantile of sorted values, with linear interpolation. */
static double at_share(const double *value, int64_t n, double share)
{
    const double at = share * (double)n - 0.5;
    const int64_t i = at <= 0 ? 0 : (int64_t)at;
    if (n == 0)
        return 1;
    if (at <= 0 || i + 1 >= n)
        return value[i < n ? i : n - 1];
    return value[i] + (at - (double)i) * (value[i + 1] - value[i]);
}

double weft_price_errors_quantile(const weft_price_errors *e, double share)
{
    double value[WEFT_PRICE_ERRORS];
    return at_share(value, sorted(e, value), share);
}

weft_status weft_price_errors_draw(const weft_price_errors *const *of, int64_t count,
                                   int64_t scenarios, uint64_t seed, double *factor)
{
    int32_t *order;
    WEFT_TRY(WEFT_NEW(order, scenarios + 1, "%" PRId64 " scenarios", scenarios));
    for (int64_t c = 0; c < count; c++) {
        double value[WEFT_PRICE_ERRORS];
        const int64_t n = sorted(of[c], value);
        weft_rng rng = weft_rng_make(weft_seed_mix(seed, (uint64_t)c), WEFT_RNG_PLAN);
        for (int32_t s = 0; s < scenarios; s++) {
            const int32_t other = (int32_t)weft_rng_below(&rng, (uint64_t)s + 1);
            order[s] = order[other];
            order[other] = s;
        }
        for (int64_t s = 0; s < scenarios; s++)
            factor[s * count + c] =
                at_share(value, n, ((double)order[s] + 0.5) / (double)scenarios);
    }
    weft_free(order);
    return WEFT_OK;
}

/* ---- speeds of ranks ------------------------------------------------------------------------- */

weft_status weft_rank_speeds_create(int64_t ranks, weft_rank_speeds *out)
{
    double *both;
    WEFT_TRY(WEFT_NEW(both, 2 * ranks, "the speeds of %" PRId64 " ranks", ranks));
    *out = (weft_rank_speeds){ranks, both, both + ranks};
    return WEFT_OK;
}

void weft_rank_speeds_free(weft_rank_speeds *speeds)
{
    weft_free(speeds->sum);
    *speeds = (weft_rank_speeds){0};
}

/* Returns the lower median, so that of two ranks the faster one is the reference. */
static double median(const double *of, int64_t count)
{
    double *value = weft_calloc(count + 1, sizeof *value), found = 0;
    if (!value)
        return 0;
    memcpy(value, of, (size_t)count * sizeof *value);
    qsort(value, (size_t)count, sizeof *value, by_value);
    found = count ? value[(count - 1) / 2] : 0;
    weft_free(value);
    return found;
}

void weft_rank_speeds_add(weft_rank_speeds *speeds, const int32_t *device, const double *busy,
                          int64_t degree, double predicted)
{
    const double usual = degree > 1 ? median(busy, degree) : predicted, decay = 0.8;
    for (int64_t i = 0; i < degree; i++) {
        if (!(busy[i] > 0 && usual > 0))
            continue;
        const int32_t r = device[i];
        speeds->sum[r] = decay * speeds->sum[r] + log(busy[i] / usual);
        speeds->weight[r] = decay * speeds->weight[r] + 1;
    }
}

void weft_rank_speeds_get(const weft_rank_speeds *speeds, double *slow)
{
    for (int64_t r = 0; r < speeds->ranks; r++)
        slow[r] = speeds->weight[r] > 0 ? speeds->sum[r] / speeds->weight[r] : 0;
    const double usual = median(slow, speeds->ranks);
    for (int64_t r = 0; r < speeds->ranks; r++) {
        const double factor = exp(slow[r] - usual);
        slow[r] = speeds->weight[r] > 0 && factor >= 1.15 ? factor : 1;
    }
}

/* ---- the objective --------------------------------------------------------------------------- */

typedef struct searcher {
    const weft_expect_setup *s;
    weft_arena *arena;
    weft_list_scheduler *scheduler;
    weft_dispatch *dispatch;
    weft_cascade_schedule schedule;
    weft_assigned *item; /* [count] */
    double *path;        /* [count] seconds to the end of the iteration */
    weft_genome now, next, best;
    int64_t spent;
} searcher;

static double total(const weft_expect_setup *s, weft_dispatch_times t)
{
    return fmax(t.makespan + s->last, t.summing + s->reduce);
}

/* [count][cascades] factors. */
typedef struct scenarios {
    const double *factor;
    int64_t count;
} scenarios;

static double value_in(const weft_expect_setup *s, weft_dispatch *d, scenarios in, int64_t i)
{
    const double *factor = in.factor + i * s->problem->count;
    return total(s, weft_dispatch_play(d, s->late, factor, NULL));
}

static double mean_of(const weft_expect_setup *s, weft_dispatch *d, scenarios in, double limit)
{
    double sum = 0;
    for (int64_t i = 0; i < in.count; i++) {
        sum += value_in(s, d, in, i);
        if (sum > limit * (double)in.count)
            break; /* worse than `limit` whatever the other scenarios give */
    }
    return sum / (double)in.count;
}

static scenarios of_search(const weft_expect_setup *s)
{
    return (scenarios){s->factor, s->scenarios};
}

/* Sets x->item to the schedule with its devices. With `late` the simulation chooses the devices. */
static weft_status place(searcher *x, weft_arena *arena, bool late, int32_t **first,
                         int32_t **devices)
{
    const weft_expect_setup *s = x->s;
    const weft_cascade_problem *p = s->problem;
    if (!late)
        WEFT_TRY(weft_assign(p, &x->schedule, s->cluster, s->assign, arena, first, devices));
    for (int64_t c = 0; c < p->count; c++) {
        const int32_t o = x->schedule.option[c];
        const weft_cascade *item = &s->list->item[c];
        x->item[c] = (weft_assigned){.id = item->id,
                                     .device = late ? NULL : *devices + (*first)[c],
                                     .degree = p->degree[o],
                                     .start = x->schedule.start[c],
                                     .seconds = p->seconds[o],
                                     .after = item->after,
                                     .after_count = item->after_count};
    }
    weft_dispatch_reset(x->dispatch, x->item);
    return WEFT_OK;
}

static weft_status evaluate(searcher *x, weft_genome *g, double limit)
{
    const int64_t n = x->s->problem->count;
    int32_t *first = NULL, *devices = NULL;
    weft_arena *arena = x->s->late ? NULL : weft_arena_create();
    if (!x->s->late && !arena)
        return weft_no_memory("the cascade search");
    memcpy(x->schedule.option, g->option, (size_t)n * sizeof *g->option);
    weft_list_plain(x->scheduler, g->bias, &x->schedule);
    weft_status_code status = WEFT_OK;
    WEFT_GO(place(x, arena, x->s->late, &first, &devices));
    g->value = mean_of(x->s, x->dispatch, of_search(x->s), limit);
    if (g->value < x->best.value)
        weft_genome_copy(n, g, &x->best);
out:
    weft_arena_free(arena);
    x->spent++;
    return status;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool over(const searcher *x)
{
    const int64_t most = x->s->evaluations > 0 ? x->s->evaluations : 400;
    return x->spent >= most || (x->s->stop && x->s->stop(x->s->user));
}

static void change(const searcher *x, weft_rng *rng, weft_genome *g)
{
    const weft_cascade_problem *p = x->s->problem;
    const int moves = 1 + (weft_rng_u32(rng) % 3 == 0) + (weft_rng_u32(rng) % 6 == 0);
    for (int m = 0; m < moves; m++) {
        const uint32_t dice = weft_rng_u32(rng) % 100;
        const int32_t c = (int32_t)weft_rng_below(rng, (uint64_t)p->count),
                      first = p->first_option[c], last = p->first_option[c + 1] - 1;
        if (dice < 25 && first < last) {
            g->option[c] = first + (int32_t)weft_rng_below(rng, (uint64_t)(last - first + 1));
        } else if (dice < 65 && first < last) {
            const int32_t o = g->option[c] + (weft_rng_u32(rng) & 1 ? 1 : -1);
            g->option[c] = o < first ? first : o > last ? last : o;
        } else {
            g->bias[c] *= exp(0.5 * weft_rng_normal(rng));
        }
    }
}

/* Sets g->bias so that the list scheduler takes the cascades in the order of `start`. */
static void order_by_start(const weft_cascade_problem *p, const double *start, weft_genome *g,
                           double *path)
{
    double last = 0;
    for (int64_t i = p->count - 1; i >= 0; i--) {
        const int32_t c = p->order[i];
        path[c] = p->seconds[g->option[c]];
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++)
            path[c] = fmax(path[c], p->seconds[g->option[c]] + path[p->before[e]]);
        last = fmax(last, start[c]);
    }
    for (int64_t c = 0; c < p->count; c++)
        g->bias[c] = path[c] > 0 ? (2 * last + 1 - start[c]) / path[c] : 1;
}

/* Sets the options of a placement. False: the problem lacks one. */
static bool take_options(const weft_cascade_problem *p, const weft_placement *from, weft_genome *g)
{
    for (int64_t c = 0; c < p->count; c++) {
        int32_t o = p->first_option[c];
        while (o < p->first_option[c + 1] && p->source[o] != from->option[c])
            o++;
        if (o == p->first_option[c + 1])
            return false;
        g->option[c] = o;
    }
    return true;
}

/* Evaluates `from`, the placements of policies and plans of one degree threshold. The search
 * improves the best plan. */
static weft_status begin(searcher *x, const weft_cascade_schedule *from, const weft_placement *also,
                         int also_count)
{
    const weft_cascade_problem *p = x->s->problem;
    enum { FAMILY = 32 };
    for (int64_t c = 0; c < p->count; c++) {
        x->now.option[c] = from->option[c];
        x->now.bias[c] = 1;
    }
    WEFT_TRY(evaluate(x, &x->now, INFINITY));
    order_by_start(p, from->start, &x->now, x->path);
    WEFT_TRY(evaluate(x, &x->now, x->best.value));
    for (int i = 0; i < also_count && !over(x); i++)
        if (take_options(p, &also[i], &x->next)) {
            order_by_start(p, also[i].start, &x->next, x->path);
            WEFT_TRY(evaluate(x, &x->next, x->best.value));
        }
    for (int i = 0; i < FAMILY && !over(x); i++) {
        weft_genome_by_threshold(p, from->makespan * pow(1.0 / 24, (double)i / FAMILY), &x->next);
        WEFT_TRY(evaluate(x, &x->next, x->best.value));
    }
    weft_genome_copy(p->count, &x->best, &x->now);
    return WEFT_OK;
}

static weft_status improve(searcher *x)
{
    const int64_t n = x->s->problem->count, most = x->s->evaluations > 0 ? x->s->evaluations : 400;
    weft_rng rng = weft_rng_make(x->s->seed, WEFT_RNG_PLAN);
    int64_t stale = 0;
    while (!over(x)) {
        const double part = 1 - (double)x->spent / (double)most,
                     heat = 0.01 * x->best.value * part * part,
                     limit = x->now.value - heat * log(1 - weft_rng_f64(&rng));
        weft_genome_copy(n, &x->now, &x->next);
        change(x, &rng, &x->next);
        WEFT_TRY(evaluate(x, &x->next, limit));
        if (x->next.value <= limit) {
            stale = x->next.value < x->now.value ? 0 : stale + 1;
            weft_genome_copy(n, &x->next, &x->now);
        } else if (++stale > 60 + 2 * n) {
            weft_genome_copy(n, &x->best, &x->now);
            stale = 0;
        }
    }
    return WEFT_OK;
}

/* ---- placement of the best plan -------------------------------------------------------------- */

/* Places the best plan with the times of an iteration without errors. */
static weft_status place_best(searcher *x, weft_arena *arena, weft_placement *out)
{
    const weft_cascade_problem *p = x->s->problem;
    int32_t *first = NULL, *devices = NULL;
    int64_t device_count = 0;
    double busy = 0;
    memcpy(x->schedule.option, x->best.option, (size_t)p->count * sizeof *x->best.option);
    weft_list_plain(x->scheduler, x->best.bias, &x->schedule);
    WEFT_TRY(place(x, arena, x->s->late, &first, &devices));
    for (int64_t c = 0; c < p->count; c++)
        device_count += x->item[c].degree;
    WEFT_TRY(weft_placement_create(arena, p->count, device_count, out));
    const weft_dispatch_played played = {out->start, out->end, out->devices};
    const weft_dispatch_times t = weft_dispatch_play(x->dispatch, x->s->late, NULL, &played);
    out->makespan = t.makespan;
    for (int64_t c = 0; c < p->count; c++) {
        out->option[c] = p->source[x->best.option[c]];
        out->first[c + 1] = out->first[c] + (int32_t)x->item[c].degree;
        busy += (out->end[c] - out->start[c]) * (double)x->item[c].degree;
    }
    out->idle = t.makespan > 0 ? fmax(0, 1 - busy / (t.makespan * (double)p->devices)) : 0;
    return WEFT_OK;
}

static weft_status searcher_create(const weft_expect_setup *s, searcher *out)
{
    const int64_t n = s->problem->count;
    searcher x = {.s = s, .arena = weft_arena_create()};
    weft_status_code status = WEFT_ALLOCATED(x.arena, "the cascade search");
    weft_genome *all[] = {&x.now, &x.next, &x.best};
    WEFT_GO(status);
    WEFT_GO(weft_list_scheduler_create(s->problem, &x.scheduler));
    WEFT_GO(weft_cascade_schedule_create(x.arena, n, &x.schedule));
    WEFT_GO(WEFT_ARENA_NEW(x.arena, x.item, n, "the cascade search"));
    WEFT_GO(WEFT_ARENA_NEW(x.arena, x.path, n, "the cascade search"));
    for (int i = 0; i < 3; i++)
        WEFT_GO(weft_genome_create(x.arena, n, all[i]));
    for (int64_t c = 0; c < n; c++)
        x.item[c] = (weft_assigned){.degree = 1,
                                    .after = s->list->item[c].after,
                                    .after_count = s->list->item[c].after_count};
    const weft_dispatch_setup d = {.item = x.item,
                                   .count = n,
                                   .devices = s->problem->devices,
                                   .per_node = s->problem->per_node,
                                   .slow = s->slow,
                                   .trains = s->trains,
                                   .transfer = s->transfer,
                                   .retire = s->reduce > 0,
                                   .replan = s->late ? s->replan : NULL};
    WEFT_GO(weft_dispatch_create(&d, &x.dispatch));
    *out = x;
    return WEFT_OK;
out:
    weft_list_scheduler_free(x.scheduler);
    weft_arena_free(x.arena);
    return status;
}

static void searcher_free(searcher *x)
{
    weft_dispatch_free(x->dispatch);
    weft_list_scheduler_free(x->scheduler);
    weft_arena_free(x->arena);
}

static void set_items(searcher *x, const weft_placement *p)
{
    for (int64_t c = 0; c < p->count; c++) {
        const weft_cascade *item = &x->s->list->item[c];
        x->item[c] = (weft_assigned){.id = item->id,
                                     .device = p->devices + p->first[c],
                                     .degree = p->first[c + 1] - p->first[c],
                                     .start = p->start[c],
                                     .seconds = item->option[p->option[c]].seconds,
                                     .after = item->after,
                                     .after_count = item->after_count};
    }
    weft_dispatch_reset(x->dispatch, x->item);
}

/* Returns the mean objective of a placement in the scenarios. */
static double mean_objective(searcher *x, const weft_placement *p, scenarios in)
{
    set_items(x, p);
    return mean_of(x->s, x->dispatch, in, INFINITY);
}

weft_status weft_expect_value(const weft_expect_setup *s, const weft_placement *p, double *value)
{
    searcher x;
    double sum = 0;
    WEFT_TRY(searcher_create(s, &x));
    set_items(&x, p);
    for (int64_t i = 0; i < s->scenarios; i++)
        sum += s->stop && s->stop(s->user) ? INFINITY : value_in(s, x.dispatch, of_search(s), i);
    *value = sum / (double)s->scenarios;
    searcher_free(&x);
    return WEFT_OK;
}

weft_status weft_expect_search(const weft_expect_setup *s, const weft_cascade_schedule *from,
                               const weft_placement *also, int also_count, weft_arena *arena,
                               weft_placement *out, double *value)
{
    const scenarios in =
        s->validations > 0 ? (scenarios){s->validation, s->validations} : of_search(s);
    searcher x;
    WEFT_TRY(searcher_create(s, &x));
    weft_status_code status = WEFT_OK;
    *value = (double)INFINITY;
    WEFT_GO(begin(&x, from, also, also_count));
    WEFT_GO(improve(&x));
    WEFT_GO(place_best(&x, arena, out));
    *value = mean_objective(&x, out, in);
    for (int i = 0; i < also_count; i++) {
        const double own = mean_objective(&x, &also[i], in);
        if (own < *value) {
            *value = own;
            *out = also[i];
        }
    }
out:
    searcher_free(&x);
    return status;
}
