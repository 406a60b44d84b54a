#include "cascades_errors.h"

#include "base/log.h"
#include "base/rng.h"
#include "plan/cascade/baselines.h"
#include "plan/cascade/genetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCENARIOS = 16, JUDGES = 128 };

/* Planners in addition to the policies: shortest expected time, and the same search with known
 * errors of the iteration. */
enum { ROBUST = WEFT_POLICY_COUNT, CLAIRVOYANT, PLANNERS };

/* A case of the comparison, and weft's record of its errors. */
typedef struct trial {
    const char *name;
    double jitter;
    int slow;
    weft_price_errors dit, encoder;
    weft_rank_speeds speeds;
    double sums, last; /* reductions, in all and their last part; INFINITY: not measured */
    double seconds[PLANNERS], planning; /* sums over the iterations */
    int64_t moved, late, cascades;
} trial;

/* Errors of prices, executed over predicted - 1. */
typedef struct priced {
    double sum, worst;
    int64_t count;
} priced;

/* Errors of transformers and encoders, profiled and held out. */
typedef struct priced_all {
    priced of[2][2];
} priced_all;

static void price_error(priced *of, double off)
{
    of->sum += fabs(off);
    of->worst = fmax(of->worst, fabs(off));
    of->count++;
}

/* Cascades of all lists have one order, so all policies have the same factors. */
static void draw_factors(const trial *t, int64_t iteration)
{
    for (int c = 0; c < MOST_CASCADES; c++)
        all.factor[c] =
            1 + t->jitter * (double)weft_random_uniform(weft_seed_mix(41, (uint64_t)iteration),
                                                        WEFT_RNG_TEST, (uint64_t)c);
    all.slow = t->slow;
}

/* Errors of estimates and slow ranks, as measured in weft's own iterations. */
static void learn(trial *t, const made *m)
{
    double summing = 0;
    const weft_placed_iteration *as = simulated.executed;
    double busy[MOST_RANKS], slow[MOST_RANKS];
    weft_rank_speeds_get(&t->speeds, slow);
    for (int64_t c = 0; c < as->cascades; c++) {
        const weft_assigned *at = &as->cascade[c].at, *planned = &m->plan.cascade[c].at;
        const bool dit = as->cascade[c].module == WEFT_CASCADE_DIT;
        if (dit)
            summing = fmax(summing, end_of(as, c) - seconds_of(as, c) * 2 / 3);
        double most = 1;
        for (int64_t i = 0; i < at->degree; i++) {
            busy[i] = simulated.done[at->device[i]][c].busy;
            most = fmax(most, slow[at->device[i]]);
            bool stayed = false;
            for (int64_t k = 0; k < planned->degree; k++)
                stayed = stayed || planned->device[k] == at->device[i];
            t->moved += !stayed && i == 0;
        }
        t->cascades++;
        weft_price_errors_add(dit ? &t->dit : &t->encoder, seconds_of(as, c) / most / at->seconds);
        if (dit)
            weft_rank_speeds_add(&t->speeds, at->device, busy, at->degree, at->seconds);
    }
    t->sums = fmin(t->sums, m->as.makespan + m->as.exposed - summing);
    t->last = fmin(t->last, m->as.exposed);
}

/* ---- plans by expected seconds --------------------------------------------------------------- */

/* Input of a search by expected seconds for one iteration. */
typedef struct outlook {
    weft_cascade_list list;
    weft_cascade_problem problem;
    weft_policy_request request;
    weft_dispatch_hand hand[MOST_CASCADES];
    bool trains[MOST_CASCADES];
    double factor[SCENARIOS * MOST_CASCADES], judge[JUDGES * MOST_CASCADES];
    weft_expect_setup setup;
} outlook;

static void open_outlook(planner *p, const trial *t, const weft_workload *w, uint64_t seed,
                         weft_arena *arena, outlook *o)
{
    make_list(p, w, WEFT_SP_ULYSSES, arena, &o->list);
    check(weft_workload_request(&p->costs, w, &o->list, arena, &o->request));
    check(weft_cascade_problem_create(&o->list, all.ranks, (double)all.cluster.device.memory,
                                      &o->problem));
    o->problem.per_node = all.cluster.nodes > 1 ? all.cluster.devices : 0;
    o->problem.by_producers = true;
    for (int64_t c = 0; c < o->list.count; c++) {
        const int b = bucket_of(&w->bucket[c / (o->list.count / w->count)]);
        const weft_cascade_row row = row_of(NULL, b, WEFT_CASCADE_VAE);
        o->trains[c] = strstr(o->list.item[c].id, ".dit");
        const double bytes =
            o->trains[c] ? 4.0 * (double)(all.size[b].batch * weft_cascade_row_floats(&row)) : 0;
        o->hand[c] = (weft_dispatch_hand){bytes / 450e9, bytes / all.between};
    }
    o->setup = (weft_expect_setup){.list = &o->list,
                                   .problem = &o->problem,
                                   .cluster = &all.cluster,
                                   .assign = {true, true},
                                   .factor = o->factor,
                                   .validation = o->judge,
                                   .trains = o->trains,
                                   .transfer = o->hand,
                                   .reduce = fmin(p->sums, t->sums),
                                   .last = isfinite(t->last) ? t->last : p->last_sum,
                                   .seed = seed,
                                   .evaluations = all.ranks > 16 ? 2000 : 5000};
}

/* Search that starts at weft's plan of shortest makespan, the FlexSP-like and the KnapFormer-like
 * plan, with and without late dispatch. */
static void search_outlook(outlook *o, weft_arena *arena, made *m)
{
    static const weft_policy rules[] = {WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER};
    const weft_cascade_search search = {.seed = o->setup.seed, .threads = 1};
    weft_cascade_result result;
    weft_placement also[3], out[2];
    int32_t *first, *devices;
    double value[2];
    int count = 1;
    check(weft_cascade_solve(&o->problem, &search, arena, &result));
    check(weft_assign(&o->problem, &result.schedule, &all.cluster, o->setup.assign, arena, &first,
                      &devices));
    check(weft_placement_of(&o->problem, &result.schedule, first, devices, arena, &also[0]));
    for (size_t i = 0; i < WEFT_COUNT(rules); i++)
        count += weft_policy_place(rules[i], &o->request, arena, &also[count]) == WEFT_OK;
    for (int late = 0; late < 2; late++) {
        o->setup.late = late;
        check(weft_expect_search(&o->setup, &result.schedule, also, count, arena, &out[late],
                                 &value[late]));
    }
    const int late = value[1] * (1 + WEFT_EXPECT_LATE) < value[0];
    m->there = true;
    m->placed = out[late];
    m->plan.late = late;
}

static void plan_expected(planner *p, trial *t, const weft_workload *w, uint64_t seed,
                          weft_arena *arena, made *m)
{
    static outlook o;
    const weft_price_errors *of[MOST_CASCADES];
    open_outlook(p, t, w, seed, arena, &o);
    for (int64_t c = 0; c < o.list.count; c++)
        of[c] = o.trains[c] ? &t->dit : &t->encoder;
    weft_rank_speeds_get(&t->speeds, simulated.slow);
    o.setup.slow = simulated.slow;
    o.setup.scenarios = t->dit.count ? SCENARIOS : 1;
    o.setup.validations = t->dit.count ? JUDGES : 0;
    const double began = weft_thread_seconds();
    check(weft_price_errors_draw(of, o.list.count, o.setup.scenarios, 9, o.factor));
    check(weft_price_errors_draw(of, o.list.count, o.setup.validations, 10, o.judge));
    search_outlook(&o, arena, m);
    t->planning += weft_thread_seconds() - began;
    const bool late = m->plan.late;
    place(&m->placed, &o.list, w, WEFT_SP_ULYSSES, arena, &m->plan);
    m->plan.late = late;
    t->late += late;
    weft_cascade_problem_free(&o.problem);
}

/* One scenario: the iteration's own. */
static void plan_clairvoyant(planner *p, const trial *t, const weft_workload *w, uint64_t seed,
                             weft_arena *arena, made *m)
{
    static outlook o;
    open_outlook(p, t, w, seed, arena, &o);
    draw_factors(t, (int64_t)seed);
    memcpy(o.factor, all.factor, (size_t)o.list.count * sizeof *o.factor);
    for (int r = 0; r < all.ranks; r++)
        simulated.slow[r] = r == t->slow ? SLOW : 1;
    o.setup.slow = simulated.slow;
    o.setup.scenarios = 1;
    search_outlook(&o, arena, m);
    const bool late = m->plan.late;
    place(&m->placed, &o.list, w, WEFT_SP_ULYSSES, arena, &m->plan);
    m->plan.late = late;
    weft_cascade_problem_free(&o.problem);
}

/* ---- iterations ------------------------------------------------------------------------------ */

static void note_prices(const planner *p, priced_all *errors)
{
    for (int64_t c = 0; c < simulated.executed->cascades; c++) {
        const weft_placed_cascade *one = &simulated.executed->cascade[c];
        const int bucket = simulated.executed->sample[one->sample].bucket;
        if (one->module != WEFT_CASCADE_TEXT)
            price_error(&errors->of[one->module != WEFT_CASCADE_DIT]
                                   [held_out(p, bucket, (int)one->at.degree)],
                        seconds_of(simulated.executed, c) / one->at.seconds - 1);
    }
}

static void try_iteration(planner *p, const weft_workload *stage, int64_t samples, uint64_t seed,
                          const int64_t *degree, trial *t, priced_all *errors)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    static made m[PLANNERS];
    check(weft_workload_draw(arena, stage, samples, seed, &w));
    memset(m, 0, sizeof m);
    for (int policy = 0; policy < PLANNERS; policy++) {
        if (policy == WEFT_POLICY_ULYSSES) /* static is the same here */
            continue;
        if (policy == ROBUST)
            plan_expected(p, t, &w, seed, arena, &m[policy]);
        else if (policy == CLAIRVOYANT)
            plan_clairvoyant(p, t, &w, seed, arena, &m[policy]);
        else
            plan_one(p, &w, policy, seed, degree[policy], arena, &m[policy]);
        if (!m[policy].there)
            continue;
        draw_factors(t, (int64_t)seed);
        m[policy].as = execute(&m[policy].plan);
        t->seconds[policy] += m[policy].as.makespan + m[policy].as.exposed;
        if (policy == ROBUST)
            learn(t, &m[policy]);
        if (t->jitter == 0 && t->slow < 0)
            note_prices(p, errors);
    }
    weft_arena_free(arena);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_trial(const trial *t, const trial *quiet, int iterations, const char *stage)
{
    static const int others[] = {WEFT_POLICY_STATIC, WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER};
    const double *x = t->seconds, *q = quiet->seconds, n = iterations;
    printf("| %d | %s | executed | %s | %d | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f |", all.ranks,
           stage, t->name, iterations, FOLD * x[others[0]] / n, FOLD * x[others[1]] / n,
           FOLD * x[others[2]] / n, FOLD * x[0] / n, FOLD * x[ROBUST] / n,
           FOLD * x[CLAIRVOYANT] / n);
    for (size_t i = 0; i < WEFT_COUNT(others); i++) {
        const double of = x[others[i]], lead = 1 - q[0] / q[others[i]];
        printf(" %.0f |", 100 * (1 - x[ROBUST] / of) / lead);
    }
    printf(" %" PRId64 " | %" PRId64 " | %" PRId64 " | %.3f |\n", t->moved, t->cascades, t->late,
           t->planning / n);
}

static void print_prices(const priced_all *errors)
{
    for (int m = 0; m < 2; m++)
        for (int h = 0; h < 2; h++) {
            const priced *e = &errors->of[m][h];
            printf("prices of %s: %" PRId64 " %s, %.1f %% off on average, %.1f %% at worst\n",
                   m ? "autoencoders" : "transformers", e->count, h ? "held out" : "profiled",
                   e->count ? 100 * e->sum / (double)e->count : 0, 100 * e->worst);
        }
    printf("\n");
}

void compare_errors(planner *p, const weft_workload *stage, int64_t samples, int iterations,
                    const int64_t *degree, const char *name)
{
    static trial list[] = {{.name = "jitter 0", .slow = -1},
                           {.name = "jitter 0.2", .jitter = 0.2, .slow = -1},
                           {.name = "jitter 0.4", .jitter = 0.4, .slow = -1},
                           {.name = "slow rank", .slow = 5},
                           {.name = "slow rank, jitter 0.2", .jitter = 0.2, .slow = 5}};
    priced_all errors = {0};
    printf("machine: simulated H100 cluster\n| ranks | stage | encoders | case | iterations | "
           "static s | FlexSP-like s | KnapFormer-like s | planned s | robust s | clairvoyant s | "
           "kept over static %% | kept over FlexSP-like %% | kept over KnapFormer-like %% | "
           "cascades moved | cascades | dispatched late | planning s |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        check(weft_rank_speeds_create(all.ranks, &list[k].speeds));
        list[k].sums = list[k].last = INFINITY;
        for (int i = 0; i < iterations; i++)
            try_iteration(p, stage, samples, 1 + (uint64_t)i, degree, &list[k], &errors);
        print_trial(&list[k], &list[0], iterations, name);
        fflush(stdout);
        weft_rank_speeds_free(&list[k].speeds);
    }
    printf("\n");
    print_prices(&errors);
}
