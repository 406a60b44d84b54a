/* The search for degrees: Arachne's Algorithm 1 with additions.
 *
 * A chromosome is a degree and a bias of the priority per cascade; its fitness is the makespan of
 * the list schedulers. The first population holds, besides random ones, the schedules of a family
 * with one parameter: "every cascade the narrowest degree that takes at most tau seconds", for taus
 * between the lower bound's part and the whole. Where a path has many cascades, the population also
 * holds "every cascade the cheapest degree that its part of the longest path through it allows",
 * for paths of 1 to 1.5 times the lower bound. After the genetic algorithm each island improves
 * its best by local moves under simulated annealing. Islands are independent and fixed in number,
 * each with a seed and an amount of work of its own: threads only share them out, so the plan does
 * not depend on them. Where one of them finds what cannot be beaten, or is enough, those behind it
 * in their order do not count, whether a thread has begun them or not. */
#include "base/log.h"
#include "base/rng.h"
#include "plan/cascade/cascade.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum { ISLANDS = 4, POPULATION = 24, ELITE = 3, FAMILY = 64, PATHS = 12, LONG_PATH = 8 };
/* Work of one island, counted in scheduled cascades so that it means about the same everywhere. */
static const int64_t ISLAND_WORK = 900 * 1000;

typedef struct genome {
    int32_t *option;
    double *bias;
    double makespan;
} genome;

typedef struct island {
    const weft_cascade_problem *p;
    weft_rng rng;
    weft_lister *lister;
    weft_cascade_schedule trial, best;
    double *best_bias;
    double *cheap; /* per option: area over the cascade's least area */
    double *path;  /* per cascade: seconds of the longest path through it, at the fastest degrees */
    bool long_paths;
    genome pool[2][POPULATION];
    const weft_cascade_search *search;
    int index;
    atomic_int *settled; /* the first island that reached its floor */
    double floor;        /* a makespan this short cannot be beaten, or is enough */
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

/* The longest path through each cascade, and whether one has many cascades. */
static weft_status find_paths(island *x)
{
    const weft_cascade_problem *p = x->p;
    double *until = weft_arena_alloc(x->arena, p->count * (int64_t)sizeof *until);
    int32_t *depth = weft_arena_alloc(x->arena, p->count * (int64_t)sizeof *depth);
    if (!until || !depth)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the cascade search");
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
        x->path[c] = rest + fastest(p, c); /* from its start to the end */
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
    if (!x.arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the cascade search");
    weft_status_code status = WEFT_OK;
    const int64_t n = p->count;
    WEFT_GO(weft_lister_create(p, &x.lister));
    WEFT_GO(weft_cascade_schedule_create(x.arena, n, &x.trial));
    WEFT_GO(weft_cascade_schedule_create(x.arena, n, &x.best));
    x.best_bias = weft_arena_alloc(x.arena, n * (int64_t)sizeof(double));
    x.cheap = weft_arena_alloc(x.arena, p->first_option[n] * (int64_t)sizeof(double));
    x.path = weft_arena_alloc(x.arena, n * (int64_t)sizeof(double));
    bool complete = x.best_bias && x.cheap && x.path;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < POPULATION; i++) {
            x.pool[k][i].option = weft_arena_alloc(x.arena, n * (int64_t)sizeof(int32_t));
            x.pool[k][i].bias = weft_arena_alloc(x.arena, n * (int64_t)sizeof(double));
            complete = complete && x.pool[k][i].option && x.pool[k][i].bias;
        }
    if (!complete)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for the cascade search"));
    for (int32_t c = 0; c < n; c++) {
        double least = INFINITY;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            least = fmin(least, p->seconds[o] * p->degree[o]);
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            x.cheap[o] = least > 0           ? p->seconds[o] * p->degree[o] / least
                         : p->seconds[o] > 0 ? DBL_MAX
                                             : 1;
    }
    WEFT_GO(find_paths(&x));
    *out = x;
    return WEFT_OK;
out:
    weft_lister_free(x.lister);
    weft_arena_free(x.arena);
    return status;
}

static void island_free(island *x)
{
    weft_lister_free(x->lister);
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

/* Schedules `option` with `bias` into x->trial; keeps the best seen. */
static double evaluate(island *x, const int32_t *option, const double *bias)
{
    const int64_t n = x->p->count;
    if (x->trial.option != option)
        memcpy(x->trial.option, option, (size_t)n * sizeof *option);
    double makespan = weft_list_plain(x->lister, bias, &x->trial);
    if (makespan < x->best.makespan) {
        weft_cascade_schedule_copy(n, &x->trial, &x->best);
        memcpy(x->best_bias, bias, (size_t)n * sizeof *bias);
    }
    x->spent += n + 16;
    x->evaluations++;
    if (x->small) {
        const double other = weft_list_insert(x->lister, bias, &x->trial);
        x->spent += n + n * n / 32;
        if (other < x->best.makespan) {
            weft_cascade_schedule_copy(n, &x->trial, &x->best);
            memcpy(x->best_bias, bias, (size_t)n * sizeof *bias);
        }
        makespan = fmin(makespan, other);
    }
    return makespan;
}

/* The cheapest degree of cascade c that takes at most `seconds`, or the fastest. */
static int32_t cheapest_within(const island *x, int32_t c, double seconds)
{
    const weft_cascade_problem *p = x->p;
    int32_t pick = p->first_option[c + 1] - 1;
    double cheapest = INFINITY;
    for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
        if (p->seconds[o] <= seconds && x->cheap[o] < cheapest) {
            cheapest = x->cheap[o];
            pick = o;
        }
    return pick;
}

/* Every cascade takes at most `tau` seconds. */
static void by_threshold(const island *x, double tau, genome *g)
{
    for (int32_t c = 0; c < x->p->count; c++) {
        g->option[c] = cheapest_within(x, c, tau);
        g->bias[c] = 1;
    }
}

/* No path takes more than `limit` seconds, or than with the fastest degrees. */
static void by_path(const island *x, double limit, genome *g)
{
    for (int32_t c = 0; c < x->p->count; c++) {
        const double stretch = x->path[c] > 0 ? fmax(limit / x->path[c], 1) : 1;
        g->option[c] = cheapest_within(x, c, stretch * fastest(x->p, c));
        g->bias[c] = 1;
    }
}

static void initialise(island *x, double scale)
{
    genome *pool = x->pool[0];
    int32_t kept = 0;
    genome *spare = &x->pool[1][0];
    const int paths = x->long_paths ? PATHS : 0;
    for (int i = -paths; i < FAMILY && !over(x); i++) {
        if (i < 0)
            by_path(x, scale * (1 + 0.5 * (i + paths) / paths), spare);
        else /* from 1.2 of the bound down to 1/40 of it, denser where it is long */
            by_threshold(x, scale * 1.2 * pow(1.0 / 48, (i + weft_rng_f64(&x->rng)) / FAMILY),
                         spare);
        spare->makespan = evaluate(x, spare->option, spare->bias);
        int32_t at = kept < POPULATION * 2 / 3 ? kept++ : -1;
        if (at < 0) {
            at = 0;
            for (int32_t j = 1; j < kept; j++)
                if (pool[j].makespan > pool[at].makespan)
                    at = j;
            if (pool[at].makespan <= spare->makespan)
                continue;
        }
        const genome swap = pool[at];
        pool[at] = *spare;
        *spare = swap;
    }
    for (int32_t i = kept; i < POPULATION; i++) {
        if (kept > 1 && over(x)) { /* no time: copies of what there is */
            memcpy(pool[i].option, pool[0].option, (size_t)x->p->count * sizeof(int32_t));
            memcpy(pool[i].bias, pool[0].bias, (size_t)x->p->count * sizeof(double));
            pool[i].makespan = pool[0].makespan;
            continue;
        }
        for (int32_t c = 0; c < x->p->count; c++) {
            const int32_t first = x->p->first_option[c], last = x->p->first_option[c + 1];
            pool[i].option[c] = first + (int32_t)weft_rng_below(&x->rng, (uint64_t)(last - first));
            pool[i].bias[c] = 1;
        }
        pool[i].makespan = evaluate(x, pool[i].option, pool[i].bias);
    }
}

static const genome *tournament(island *x, const genome *pool)
{
    const genome *a = &pool[weft_rng_below(&x->rng, POPULATION)];
    const genome *b = &pool[weft_rng_below(&x->rng, POPULATION)];
    return b->makespan < a->makespan ? b : a;
}

static void evolve(island *x, int64_t until)
{
    const weft_cascade_problem *p = x->p;
    int from = 0;
    while (!over(x) && x->spent < until) {
        genome *old = x->pool[from], *young = x->pool[1 - from];
        for (int e = 0; e < ELITE; e++) { /* the best to the front, by selection */
            for (int i = e + 1; i < POPULATION; i++)
                if (old[i].makespan < old[e].makespan) {
                    const genome swap = old[e];
                    old[e] = old[i];
                    old[i] = swap;
                }
            memcpy(young[e].option, old[e].option, (size_t)p->count * sizeof(int32_t));
            memcpy(young[e].bias, old[e].bias, (size_t)p->count * sizeof(double));
            young[e].makespan = old[e].makespan;
        }
        const double rate = fmax(0.03, 1.5 / (double)p->count);
        for (int i = ELITE; i < POPULATION; i++) {
            const genome *a = tournament(x, old), *b = tournament(x, old);
            for (int32_t c = 0; c < p->count; c++) {
                const uint32_t coin = weft_rng_u32(&x->rng);
                const genome *g = coin & 1 ? a : b;
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
            young[i].makespan = evaluate(x, young[i].option, young[i].bias);
            if (over(x))
                return;
        }
        from = 1 - from;
    }
    x->genetic = x->best.makespan;
}

/* A cascade that matters for the end: a random one of the last to end, or anything before it. */
static int32_t pick_critical(island *x, const weft_cascade_schedule *s)
{
    const weft_cascade_problem *p = x->p;
    int32_t c = 0;
    int seen = 0;
    for (int32_t i = 0; i < p->count; i++)
        if (s->end[i] >= s->makespan * 0.999 && weft_rng_below(&x->rng, (uint64_t)++seen) == 0)
            c = i;
    while (weft_rng_u32(&x->rng) % 3 == 0 && s->start[c] > 0) {
        /* what ended when c began */
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

/* The smallest makespan is what counts, and among equals the least area leaves room. */
static double score(const island *x, double makespan, const int32_t *option)
{
    double area = 0;
    for (int32_t c = 0; c < x->p->count; c++)
        area += x->p->seconds[option[c]] * x->p->degree[option[c]];
    return makespan + 0.05 * area / (double)x->p->devices;
}

static void anneal(island *x)
{
    const weft_cascade_problem *p = x->p;
    const int64_t n = p->count, begun = x->spent;
    genome now = x->pool[0][0], next = x->pool[0][1];
    weft_cascade_schedule *s = &x->trial;
    int64_t rounds = 0, stale = 0;
    memcpy(now.option, x->best.option, (size_t)n * sizeof *now.option);
    memcpy(now.bias, x->best_bias, (size_t)n * sizeof *now.bias);
    now.makespan = evaluate(x, now.option, now.bias);
    double now_score = score(x, now.makespan, now.option);
    while (!over(x)) {
        /* with a deadline the share of work is unknown: cool in rounds of the standard length */
        const double part =
            fmod((double)(x->spent - begun) /
                     (double)(x->work == INT64_MAX ? ISLAND_WORK : x->work - begun + 1),
                 1.0);
        const double heat = 0.012 * x->best.makespan * (1 - part) * (1 - part);
        memcpy(next.option, now.option, (size_t)n * sizeof *now.option);
        memcpy(next.bias, now.bias, (size_t)n * sizeof *now.bias);
        const int moves = 1 + (weft_rng_u32(&x->rng) % 4 == 0) + (weft_rng_u32(&x->rng) % 8 == 0);
        for (int m = 0; m < moves; m++) {
            const uint32_t dice = weft_rng_u32(&x->rng) % 100;
            const int32_t c =
                dice % 2 ? pick_critical(x, s) : (int32_t)weft_rng_below(&x->rng, (uint64_t)n);
            const int32_t first = p->first_option[c], last = p->first_option[c + 1] - 1;
            if (dice < 25 && first < last) {
                next.option[c] =
                    first + (int32_t)weft_rng_below(&x->rng, (uint64_t)(last - first + 1));
            } else if (dice < 65 && first < last) {
                const int32_t step = weft_rng_u32(&x->rng) & 1 ? 1 : -1;
                const int32_t o = next.option[c] + step;
                next.option[c] = o < first ? first : o > last ? last : o;
            } else if (dice < 90) {
                next.bias[c] = exp(0.5 * weft_rng_normal(&x->rng));
            } else {
                const int32_t d = (int32_t)weft_rng_below(&x->rng, (uint64_t)n);
                const double swap = next.bias[c];
                next.bias[c] = next.bias[d];
                next.bias[d] = swap;
            }
        }
        next.makespan = evaluate(x, next.option, next.bias);
        const double next_score = score(x, next.makespan, next.option);
        rounds++;
        if (next_score <= now_score ||
            weft_rng_f64(&x->rng) < exp((now_score - next_score) / (heat + 1e-300))) {
            stale = next_score < now_score ? 0 : stale + 1;
            const genome swap = now;
            now = next;
            next = swap;
            now_score = next_score;
        } else {
            stale++;
        }
        if (stale > 600 + 20 * n) { /* back to the best */
            memcpy(now.option, x->best.option, (size_t)n * sizeof *now.option);
            memcpy(now.bias, x->best_bias, (size_t)n * sizeof *now.bias);
            now.makespan = x->best.makespan;
            now_score = score(x, now.makespan, now.option);
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

/* Nothing shorter is looked for. */
static double floor_of(const weft_cascade_search *search, const weft_cascade_result *r)
{
    return r->bound.value * (1 + fmax(search->enough, 1e-9));
}

/* The heuristic part: all islands, the best of them and of what `result` has. A deadline of 0 is
 * the fixed amount of work. With a deadline every thread has an island of its own until then, so
 * that none of them waits behind another that never ends. */
static weft_status search_islands(const weft_cascade_problem *p, const weft_cascade_search *search,
                                  double deadline, weft_cascade_result *result)
{
    const int threads = search->threads > 0 ? search->threads : omp_get_max_threads();
    const int islands = deadline > 0 ? threads : ISLANDS;
    island *list = weft_alloc(islands * (int64_t)sizeof *list);
    if (!list)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the cascade search");
    int made = 0;
    weft_status_code status = WEFT_OK;
    const double floor = floor_of(search, result);
    atomic_int settled = islands;
    for (; made < islands && status == WEFT_OK; made++) {
        /* other seeds than those of the fixed work */
        status = island_create(p, search, made + (deadline > 0 ? ISLANDS : 0), floor, &list[made]);
        if (status != WEFT_OK)
            break;
        list[made].index = made;
        list[made].settled = &settled;
        list[made].deadline = deadline;
        /* large problems need some evaluations however long they are */
        const double effort = search->effort > 0 ? search->effort : 1;
        const int64_t work = ISLAND_WORK > 400 * p->count ? ISLAND_WORK : 400 * p->count;
        list[made].work = deadline > 0 ? INT64_MAX : (int64_t)(effort * (double)work);
    }
    if (status == WEFT_OK) {
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
    }
    for (int i = 0; i < made; i++)
        island_free(&list[i]);
    weft_free(list);
    return status;
}

/* Nodes of branch and bound without a time limit: about a tenth of a second. */
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
    /* the fastest degrees one after the other are a schedule: an upper limit for the bound */
    double upper = 0;
    for (int32_t c = 0; c < p->count; c++)
        upper += p->seconds[p->first_option[c + 1] - 1];
    if (search->bound)
        r.bound = *search->bound;
    else
        WEFT_TRY(weft_cascade_lower_bound(p, upper * (1 + 1e-9), &r.bound));
    /* the fixed work first, whatever the limit: with one the plan is never worse than without */
    const bool exact = !search->no_exact && !p->per_node && p->count <= 40 && p->devices <= 64;
    const double effort = search->effort > 0 ? search->effort : 1;
    WEFT_TRY(search_islands(p, search, 0, &r));
    if (exact && !is_over_now(search, &r))
        WEFT_TRY(search_exactly(p, search,
                                search->exact_nodes > 0
                                    ? search->exact_nodes
                                    : (int64_t)(effort * (double)exact_share(p)),
                                0, &r));
    /* then the time that is left: the exact search for half of it, where there is one */
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
