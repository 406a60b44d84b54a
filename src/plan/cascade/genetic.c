/* The search for degrees: Arachne's Algorithm 1 with additions.
 *
 * A chromosome has a degree and a priority bias per cascade. Its fitness is the makespan of the
 * list schedulers. In addition to random chromosomes, the first population has a family with one
 * parameter: "every cascade uses the cheapest degree of at most tau seconds", for tau from 1/40 to
 * 1.2 times the lower bound. If a path has many cascades, the population also has plans for paths
 * of 1 to 1.5 times the lower bound. In these plans every cascade uses the cheapest degree that its
 * share of the longest path allows.
 *
 * After the genetic search each island improves its best plan by local moves with simulated
 * annealing. Islands are independent. Without a deadline their number is fixed, and each has a
 * separate seed and amount of work. Threads only share the islands, so the plan does not depend on
 * the number of threads. If an island finds an optimal or sufficient plan, islands after it in
 * their order are ignored, started or not. */
#include "plan/cascade/genetic.h"

#include "base/log.h"
#include "base/rng.h"
#include "plan/cascade/bound.h"
#include "plan/cascade/exact.h"
#include "plan/cascade/genome.h"
#include "plan/cascade/list_scheduler.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum { ISLANDS = 4, POPULATION = 24, ELITE = 3, FAMILY = 64, PATHS = 12, LONG_PATH = 8 };
/* Work of one island, in scheduled cascades, so that the amount is comparable across problems. */
static const int64_t ISLAND_WORK = 900 * 1000;

typedef struct island {
    const weft_cascade_problem *p;
    weft_rng rng;
    weft_list_scheduler *scheduler;
    weft_cascade_schedule trial, best;
    double *best_bias;
    /* per cascade: seconds of the longest path through the cascade, at the fastest degrees */
    double *path;
    bool long_paths;
    weft_genome pool[2][POPULATION];
    const weft_cascade_search *search;
    int index;
    atomic_int *settled; /* lowest island that reached its floor */
    double floor;        /* optimal or sufficient makespan */
    double deadline;     /* 0: none */
    int64_t work, spent, evaluations;
    bool small, cut;
    double genetic;
    weft_arena *arena;
} island;

static double fastest(const weft_cascade_problem *p, int32_t c)
{
    return p->seconds[p->first_option[c + 1] - 1];
}

/* Computes the longest path through each cascade, and whether a path has many cascades. */
static weft_status find_paths(island *x)
{
    const weft_cascade_problem *p = x->p;
    double *until = weft_arena_calloc(x->arena, p->count, sizeof *until);
    int32_t *depth = weft_arena_calloc(x->arena, p->count, sizeof *depth);
    WEFT_TRY(WEFT_ALLOCATED(until && depth, "the cascade search"));
    for (int64_t i = 0; i < p->count; i++) {
        const int32_t c = p->order[i];
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++) {
            until[c] = fmax(until[c], until[p->after[e]]);
            depth[c] = depth[p->after[e]] > depth[c] ? depth[p->after[e]] : depth[c];
        }
        until[c] += fastest(p, c);
        x->long_paths |= ++depth[c] > LONG_PATH;
    }
    for (int64_t i = p->count - 1; i >= 0; i--) {
        const int32_t c = p->order[i];
        double rest = 0;
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++)
            rest = fmax(rest, x->path[p->before[e]]);
        x->path[c] = rest + fastest(p, c); /* seconds from its start to the end */
    }
    for (int32_t c = 0; c < p->count; c++)
        x->path[c] += until[c] - fastest(p, c);
    return WEFT_OK;
}

static weft_status island_create(const weft_cascade_problem *p, const weft_cascade_search *search,
                                 int seed, double floor, island *out)
{
    island x = {.p = p,
                .search = search,
                .floor = floor,
                .small = p->count <= 96 && !p->per_node && !p->instant};
    x.rng = weft_rng_make(weft_seed_mix(search->seed, (uint64_t)seed), WEFT_RNG_PLAN);
    x.arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(x.arena, "the cascade search"));
    weft_status_code status = WEFT_OK;
    const int64_t n = p->count;
    WEFT_GO(weft_list_scheduler_create(p, &x.scheduler));
    WEFT_GO(weft_cascade_schedule_create(x.arena, n, &x.trial));
    WEFT_GO(weft_cascade_schedule_create(x.arena, n, &x.best));
    x.best_bias = weft_arena_calloc(x.arena, n, sizeof(double));
    x.path = weft_arena_calloc(x.arena, n, sizeof(double));
    WEFT_GO(WEFT_ALLOCATED(x.best_bias && x.path, "the cascade search"));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < POPULATION; i++)
            WEFT_GO(weft_genome_create(x.arena, n, &x.pool[k][i]));
    WEFT_GO(find_paths(&x));
    *out = x;
    return WEFT_OK;
out:
    weft_list_scheduler_free(x.scheduler);
    weft_arena_free(x.arena);
    return status;
}

static void island_free(island *x)
{
    weft_list_scheduler_free(x->scheduler);
    weft_arena_free(x->arena);
}

static bool over(island *x)
{
    const weft_cascade_search *s = x->search;
    if (x->best.makespan <= x->floor || x->spent >= x->work || atomic_load(x->settled) < x->index)
        return true;
    if ((x->p->count > 256 || (x->evaluations & 15) == 0) &&
        ((x->deadline > 0 && weft_now() > x->deadline) || (s->stop && s->stop(s->user))))
        x->cut = true;
    return x->cut;
}

/* Schedules `option` with `bias` into x->trial and returns the makespan. Updates x->best. */
static double evaluate(island *x, const int32_t *option, const double *bias)
{
    const int64_t n = x->p->count;
    if (x->trial.option != option)
        memcpy(x->trial.option, option, (size_t)n * sizeof *option);
    double makespan = weft_list_plain(x->scheduler, bias, &x->trial);
    if (makespan < x->best.makespan) {
        weft_cascade_schedule_copy(n, &x->trial, &x->best);
        memcpy(x->best_bias, bias, (size_t)n * sizeof *bias);
    }
    x->spent += n + 16;
    x->evaluations++;
    if (x->small) {
        const double other = weft_list_insert(x->scheduler, bias, &x->trial);
        x->spent += n + n * n / 32;
        if (other < x->best.makespan) {
            weft_cascade_schedule_copy(n, &x->trial, &x->best);
            memcpy(x->best_bias, bias, (size_t)n * sizeof *bias);
        }
        makespan = fmin(makespan, other);
    }
    return makespan;
}

/* Sets the cheapest options with which no path takes more than `limit` seconds, or the fastest
 * options. */
static void by_path(const island *x, double limit, weft_genome *g)
{
    for (int32_t c = 0; c < x->p->count; c++) {
        const double stretch = x->path[c] > 0 ? fmax(limit / x->path[c], 1) : 1;
        g->option[c] = weft_genome_cheapest(x->p, c, stretch * fastest(x->p, c));
        g->bias[c] = 1;
    }
}

static void initialise(island *x, double scale)
{
    weft_genome *pool = x->pool[0];
    int32_t kept = 0;
    weft_genome *spare = &x->pool[1][0];
    const int paths = x->long_paths ? PATHS : 0;
    for (int i = -paths; i < FAMILY && !over(x); i++) {
        if (i < 0)
            by_path(x, scale * (1 + 0.5 * (i + paths) / paths), spare);
        else /* tau from 1.2 to 1/40 of the bound, denser at small values */
            weft_genome_by_threshold(
                x->p, scale * 1.2 * pow(1.0 / 48, (i + weft_rng_f64(&x->rng)) / FAMILY), spare);
        spare->value = evaluate(x, spare->option, spare->bias);
        int32_t at = kept < POPULATION * 2 / 3 ? kept++ : -1;
        if (at < 0) {
            at = 0;
            for (int32_t j = 1; j < kept; j++)
                if (pool[j].value > pool[at].value)
                    at = j;
            if (pool[at].value <= spare->value)
                continue;
        }
        const weft_genome swap = pool[at];
        pool[at] = *spare;
        *spare = swap;
    }
    for (int32_t i = kept; i < POPULATION; i++) {
        if (kept > 1 && over(x)) { /* no time left: copy the first genome */
            weft_genome_copy(x->p->count, &pool[0], &pool[i]);
            continue;
        }
        for (int32_t c = 0; c < x->p->count; c++) {
            const int32_t first = x->p->first_option[c], last = x->p->first_option[c + 1];
            pool[i].option[c] = first + (int32_t)weft_rng_below(&x->rng, (uint64_t)(last - first));
            pool[i].bias[c] = 1;
        }
        pool[i].value = evaluate(x, pool[i].option, pool[i].bias);
    }
}

static const weft_genome *tournament(island *x, const weft_genome *pool)
{
    const weft_genome *a = &pool[weft_rng_below(&x->rng, POPULATION)];
    const weft_genome *b = &pool[weft_rng_below(&x->rng, POPULATION)];
    return b->value < a->value ? b : a;
}

static void evolve(island *x, int64_t until)
{
    const weft_cascade_problem *p = x->p;
    int from = 0;
    while (!over(x) && x->spent < until) {
        weft_genome *old = x->pool[from], *young = x->pool[1 - from];
        for (int e = 0; e < ELITE; e++) { /* move the best to the front, by selection */
            for (int i = e + 1; i < POPULATION; i++)
                if (old[i].value < old[e].value) {
                    const weft_genome swap = old[e];
                    old[e] = old[i];
                    old[i] = swap;
                }
            weft_genome_copy(p->count, &old[e], &young[e]);
        }
        const double rate = fmax(0.03, 1.5 / (double)p->count);
        for (int i = ELITE; i < POPULATION; i++) {
            const weft_genome *a = tournament(x, old), *b = tournament(x, old);
            for (int32_t c = 0; c < p->count; c++) {
                const uint32_t coin = weft_rng_u32(&x->rng);
                const weft_genome *g = coin & 1 ? a : b;
                young[i].option[c] = g->option[c];
                young[i].bias[c] = g->bias[c];
                if ((double)(coin >> 1) < rate * 2147483648.0) {
                    const int32_t first = p->first_option[c], last = p->first_option[c + 1];
                    young[i].option[c] =
                        first + (int32_t)weft_rng_below(&x->rng, (uint64_t)(last - first));
                }
                if ((double)((coin >> 1 ^ 0x5bd1e995u) & 0x7fffffff) < rate * 2147483648.0)
                    young[i].bias[c] = exp(0.4 * weft_rng_normal(&x->rng));
            }
            young[i].value = evaluate(x, young[i].option, young[i].bias);
            if (over(x))
                return;
        }
        from = 1 - from;
    }
    x->genetic = x->best.makespan;
}

/* Returns a cascade that affects the makespan: a random one of the last to end, or one before
 * it. */
static int32_t pick_critical(island *x, const weft_cascade_schedule *s)
{
    const weft_cascade_problem *p = x->p;
    int32_t c = 0;
    int seen = 0;
    for (int32_t i = 0; i < p->count; i++)
        if (s->end[i] >= s->makespan * 0.999 && weft_rng_below(&x->rng, (uint64_t)++seen) == 0)
            c = i;
    while (weft_rng_u32(&x->rng) % 3 == 0 && s->start[c] > 0) {
        /* a cascade that ended when c began */
        int32_t before = -1;
        seen = 0;
        for (int32_t i = 0; i < p->count; i++)
            if (s->end[i] == s->start[c] && weft_rng_below(&x->rng, (uint64_t)++seen) == 0)
                before = i;
        if (before < 0)
            break;
        c = before;
    }
    return c;
}

/* Returns the makespan plus a small share of the area: at equal makespans less area is better. */
static double score(const island *x, double makespan, const int32_t *option)
{
    double area = 0;
    for (int32_t c = 0; c < x->p->count; c++)
        area += x->p->seconds[option[c]] * x->p->degree[option[c]];
    return makespan + 0.05 * area / (double)x->p->devices;
}

/* Changes the option or the bias of one cascade at random. */
static void change_one(island *x, weft_genome *next)
{
    const weft_cascade_problem *p = x->p;
    const int64_t n = p->count;
    const uint32_t dice = weft_rng_u32(&x->rng) % 100;
    const int32_t c =
        dice % 2 ? pick_critical(x, &x->trial) : (int32_t)weft_rng_below(&x->rng, (uint64_t)n);
    const int32_t first = p->first_option[c], last = p->first_option[c + 1] - 1;
    if (dice < 25 && first < last) {
        next->option[c] = first + (int32_t)weft_rng_below(&x->rng, (uint64_t)(last - first + 1));
    } else if (dice < 65 && first < last) {
        const int32_t step = weft_rng_u32(&x->rng) & 1 ? 1 : -1;
        const int32_t o = next->option[c] + step;
        next->option[c] = o < first ? first : o > last ? last : o;
    } else if (dice < 90) {
        next->bias[c] = exp(0.5 * weft_rng_normal(&x->rng));
    } else {
        const int32_t d = (int32_t)weft_rng_below(&x->rng, (uint64_t)n);
        const double swap = next->bias[c];
        next->bias[c] = next->bias[d];
        next->bias[d] = swap;
    }
}

static void anneal(island *x)
{
    const int64_t n = x->p->count, begun = x->spent;
    weft_genome now = x->pool[0][0], next = x->pool[0][1];
    int64_t rounds = 0, stale = 0;
    memcpy(now.option, x->best.option, (size_t)n * sizeof *now.option);
    memcpy(now.bias, x->best_bias, (size_t)n * sizeof *now.bias);
    now.value = evaluate(x, now.option, now.bias);
    double now_score = score(x, now.value, now.option);
    while (!over(x)) {
        /* The total work is unknown with a deadline: cool in rounds of the standard length. */
        const double part =
            fmod((double)(x->spent - begun) /
                     (double)(x->work == INT64_MAX ? ISLAND_WORK : x->work - begun + 1),
                 1.0);
        const double heat = 0.012 * x->best.makespan * (1 - part) * (1 - part);
        weft_genome_copy(n, &now, &next);
        const int moves = 1 + (weft_rng_u32(&x->rng) % 4 == 0) + (weft_rng_u32(&x->rng) % 8 == 0);
        for (int m = 0; m < moves; m++)
            change_one(x, &next);
        next.value = evaluate(x, next.option, next.bias);
        const double next_score = score(x, next.value, next.option);
        rounds++;
        if (next_score <= now_score ||
            weft_rng_f64(&x->rng) < exp((now_score - next_score) / (heat + 1e-300))) {
            stale = next_score < now_score ? 0 : stale + 1;
            const weft_genome swap = now;
            now = next;
            next = swap;
            now_score = next_score;
        } else {
            stale++;
        }
        if (stale > 600 + 20 * n) { /* return to the best */
            memcpy(now.option, x->best.option, (size_t)n * sizeof *now.option);
            memcpy(now.bias, x->best_bias, (size_t)n * sizeof *now.bias);
            now.value = x->best.makespan;
            now_score = score(x, now.value, now.option);
            stale = 0;
        }
    }
}

static void run_island(island *x, double scale)
{
    x->genetic = INFINITY;
    if (atomic_load(x->settled) < x->index)
        return;
    initialise(x, scale);
    if (!x->search->no_genetic)
        evolve(x, (x->work == INT64_MAX ? ISLAND_WORK : x->work) / 3);
    x->genetic = x->best.makespan;
    anneal(x);
    int settled = atomic_load(x->settled);
    while (x->best.makespan <= x->floor && x->index < settled &&
           !atomic_compare_exchange_weak(x->settled, &settled, x->index))
        ;
}

/* Returns the makespan at which the search ends. */
static double floor_of(const weft_cascade_search *search, const weft_cascade_result *r)
{
    return r->bound.value * (1 + fmax(search->enough, 1e-9));
}

/* Runs all islands and updates `result` with the best plan. Deadline 0: a fixed amount of work.
 * Otherwise every thread runs a separate island until the deadline, so that no island waits for a
 * thread. */
static weft_status search_islands(const weft_cascade_problem *p, const weft_cascade_search *search,
                                  double deadline, weft_cascade_result *result)
{
    const int threads = search->threads > 0 ? search->threads : omp_get_max_threads();
    const int islands = deadline > 0 ? threads : ISLANDS;
    island *list;
    WEFT_TRY(WEFT_NEW(list, islands, "the cascade search"));
    int made = 0;
    weft_status_code status = WEFT_OK;
    const double floor = floor_of(search, result);
    atomic_int settled = islands;
    for (; made < islands; made++) {
        /* seeds other than in the fixed work */
        WEFT_GO(island_create(p, search, made + (deadline > 0 ? ISLANDS : 0), floor, &list[made]));
        list[made].index = made;
        list[made].settled = &settled;
        list[made].deadline = deadline;
        /* large problems need a minimum number of evaluations */
        const double effort = search->effort > 0 ? search->effort : 1;
        const int64_t work = ISLAND_WORK > 400 * p->count ? ISLAND_WORK : 400 * p->count;
        list[made].work = deadline > 0 ? INT64_MAX : (int64_t)(effort * (double)work);
    }
    const double scale = result->bound.value;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads < islands ? threads : islands)
    for (int i = 0; i < islands; i++)
        run_island(&list[i], scale);
    result->genetic = result->evaluations ? result->genetic : INFINITY;
    for (int i = 0; i < islands && i <= settled; i++) {
        if (list[i].best.makespan < result->schedule.makespan)
            weft_cascade_schedule_copy(p->count, &list[i].best, &result->schedule);
        result->genetic = fmin(result->genetic, list[i].genetic);
        result->evaluations += list[i].evaluations;
        result->cut |= list[i].cut;
    }
    result->local = result->schedule.makespan;
out:
    for (int i = 0; i < made; i++)
        island_free(&list[i]);
    weft_free(list);
    return status;
}

/* Returns the nodes of branch and bound without a time limit: about 0.1 s. */
static int64_t exact_share(const weft_cascade_problem *p)
{
    const int64_t nodes = 3000000 / (p->first_option[p->count] + p->count * p->count / 8);
    return nodes < 200000 ? nodes : 200000;
}

static bool closed(const weft_cascade_result *r)
{
    return r->bound.value >= r->schedule.makespan * (1 - 1e-9);
}

static bool is_over_now(const weft_cascade_search *search, const weft_cascade_result *r)
{
    return r->proved || closed(r) || r->schedule.makespan <= floor_of(search, r) ||
           (search->stop && search->stop(search->user));
}

static weft_status search_exactly(const weft_cascade_problem *p, const weft_cascade_search *search,
                                  int64_t nodes, double deadline, weft_cascade_result *r)
{
    const weft_cascade_limits limits = {nodes, deadline, floor_of(search, r), search->stop,
                                        search->user};
    return weft_cascade_exact(p, &limits, &r->schedule, &r->proved, &r->exact_nodes);
}

weft_status weft_cascade_solve(const weft_cascade_problem *p, const weft_cascade_search *search,
                               weft_arena *arena, weft_cascade_result *out)
{
    const double begun = weft_now();
    const bool timed = search->seconds > 0;
    weft_cascade_result r = {0};
    WEFT_TRY(weft_cascade_schedule_create(arena, p->count, &r.schedule));
    /* the fastest degrees in sequence are a schedule, and so an upper limit for the bound */
    double upper = 0;
    for (int32_t c = 0; c < p->count; c++)
        upper += p->seconds[p->first_option[c + 1] - 1];
    if (search->bound)
        r.bound = *search->bound;
    else
        WEFT_TRY(weft_cascade_lower_bound(p, upper * (1 + 1e-9), &r.bound));
    /* the fixed work first: a time limit then never makes the plan worse */
    const bool exact = !search->no_exact && !p->per_node && p->count <= 40 && p->devices <= 64;
    const double effort = search->effort > 0 ? search->effort : 1;
    WEFT_TRY(search_islands(p, search, 0, &r));
    if (exact && !is_over_now(search, &r))
        WEFT_TRY(search_exactly(p, search,
                                search->exact_nodes > 0
                                    ? search->exact_nodes
                                    : (int64_t)(effort * (double)exact_share(p)),
                                0, &r));
    /* then the remaining time: half for the exact search, if possible */
    const double until = begun + search->seconds;
    if (timed && exact && !is_over_now(search, &r) && weft_now() < until) {
        const double now = weft_now();
        WEFT_TRY(search_exactly(p, search, INT64_MAX, now + (until - now) / 2, &r));
    }
    if (timed && !is_over_now(search, &r) && weft_now() < until)
        WEFT_TRY(search_islands(p, search, until, &r));
    r.cut = r.cut || (search->stop && search->stop(search->user));
    if (r.proved || closed(&r)) {
        r.proved = true;
        r.cut = false;
        r.bound.value = r.schedule.makespan;
    }
    WEFT_TRY(weft_cascade_schedule_check(p, &r.schedule));
    *out = r;
    return WEFT_OK;
}
