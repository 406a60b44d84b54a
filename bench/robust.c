/* Cascade plans under price errors, with the seconds of the cost model. The model is HunyuanVideo
 * 13B on H100 nodes with Arachne's three stages.
 *
 *     bench/robust [NODES [STAGE [ITERATIONS [PLANS [WAY]]]]]
 *
 * PLANS: tried by a search. WAY is one of the following.
 *
 *     played           plans run in the planner's simulation of the executor
 *     executed         the first IN_BATCH draws also run in the executor of a run, on ranks with a
 *                      clock each (robust_ranks.h)
 *     ahead            encoders run one iteration ahead, in the simulation
 *     ahead-executed   the same, also in the executor; the other policies as published
 *     bound            lower bounds
 *
 * An iteration with encoders ahead has its transformers, whose latents exist, and the encoders of
 * the next one:
 *
 *     played   [s0.vae][s0.dit       ][s1.dit ]     ahead   [s0.dit       ][s1.dit ][n1.vae]
 *              [s1.vae  ][s2.dit   ]                        [s2.dit   ][n0.vae        ]
 *
 * The other policies do so as well ("all ahead"), or not ("ahead").
 *
 * Every cascade takes 1 to 1 + JITTER times its seconds. All policies have the same draws of errors
 * in each iteration: BATCHES independent batches, or the first one if they are executed. In a batch
 * the draws of a cascade share its range evenly. In one case rank 5 needs 1.5 times its seconds.
 *
 * With T the mean over iterations and draws,
 *
 *     lead = 1 - T(robust) / T(policy)      kept = lead / lead without errors
 *
 * The error of `kept` is the standard error over the batches. A clairvoyant plan is searched for
 * one draw with its errors known, for the first KNOWN draws of each iteration. `reach` is the lead
 * of robust plans as a share of the clairvoyant lead, both in the KNOWN draws.
 *
 * "bound" prints a lower bound of T and the share that T allows at most, without searches under
 * errors. No dispatch is shorter, even one that knows all errors of a draw in advance. */
#include "robust_ranks.h"

#include "base/log.h"
#include "base/rng.h"
#include "estimate/plan_models.h"
#include "plan/cascade/baselines.h"
#include "plan/cascade/bound.h"
#include "plan/cascade/expect_plan.h"
#include "plan/cascade/genetic.h"
#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = ROBUST_RANKS,
    MOST_CASCADES = ROBUST_CASCADES,
    BATCHES = 8,
    IN_BATCH = 8,
    DRAWS = BATCHES * IN_BATCH,
    KNOWN = 2, /* draws of a clairvoyant plan */
    SCENARIOS = 16,
    SEARCHES = 100, /* orders tried when cascades end */
    JUDGES = 128,
    DURING = 32, /* scenarios of searches during an iteration */
    FEW = 16,    /* scenarios that judge searches during an iteration */
    SLOW_RANK = 5
};
static const double SLOW = 1.5;

enum { STATIC, FLEXSP, KNAPFORMER, OTHERS, PLANNED = OTHERS, LATE, ROBUST, CLAIRVOYANT, PLANS };
static const weft_policy rule[OTHERS] = {WEFT_POLICY_STATIC, WEFT_POLICY_FLEXSP,
                                         WEFT_POLICY_KNAPFORMER};

enum { PLAYED, EXECUTED, AHEAD, ALL_AHEAD, AHEAD_EXECUTED, WAYS };
static const char *const way_name[WAYS] = {"played", "executed", "ahead", "all ahead",
                                           "ahead executed"};
static bool in_executor(int way)
{
    return way == EXECUTED || way == AHEAD_EXECUTED;
}

typedef struct trial {
    const char *name;
    double jitter;
    bool slow;
    double seconds[WAYS][PLANS][DRAWS]; /* sums over iterations */
    double bound[WAYS];                 /* lower bound; sum over iterations and draws */
    int64_t late, replanned, moved, cascades;
} trial;

static trial trials[] = {{.name = "jitter 0"},
                         {.name = "jitter 0.2", .jitter = 0.2},
                         {.name = "jitter 0.4", .jitter = 0.4},
                         {.name = "slow rank", .slow = true}};

/* Everything that the iterations share. */
typedef struct setting {
    weft_arena *arena;
    weft_cluster cluster;
    weft_workload stage;
    weft_model_work work;
    int64_t ranks, degree[OTHERS]; /* degree: of equal groups */
    int64_t evaluations;           /* plans that a search tries */
    double reduce, last; /* seconds of the gradient all-reduce in the executor; of its last part */
    bool executed, ahead;
} setting;

/* WIDE: every degree. NARROW: degrees within a node, without groups that cross nodes. */
enum { WIDE, NARROW, SETS };

/* An iteration and the plans that do not depend on errors. */
typedef struct iteration {
    weft_arena *arena;
    weft_cascade_list list, narrow; /* options of `narrow` are the first ones of `list` */
    int sets;                       /* 1 on one node, else SETS */
    weft_cascade_problem problem[SETS];
    weft_cascade_result found[SETS];
    bool trains[MOST_CASCADES];
    weft_dispatch_hand hand[MOST_CASCADES];
    weft_placement plan[PLANNED + 1];
    uint64_t seed;
} iteration;

/* ---- plans ---------------------------------------------------------------------------------- */

static weft_cascade_costs costs_of(const setting *s)
{
    return (weft_cascade_costs){.cluster = &s->cluster,
                                .model = &s->work,
                                .zero = 3,
                                .text = true,
                                .method = WEFT_SP_ULYSSES};
}

static void open_list(const setting *s, uint64_t seed, weft_arena *arena, weft_workload *w,
                      weft_cascade_list *list)
{
    const weft_cascade_costs costs = costs_of(s);
    check(weft_workload_draw(arena, &s->stage, s->ranks / 4, seed, w));
    check(weft_workload_cascades(&costs, w, arena, list));
}

static weft_status place_by_rule(const setting *s, int k, int64_t degree, const weft_workload *w,
                                 const weft_cascade_list *list, weft_arena *arena,
                                 weft_placement *out)
{
    const weft_cascade_costs costs = costs_of(s);
    weft_policy_request request;
    check(weft_workload_request(&costs, w, list, arena, &request));
    request.degree = degree;
    return weft_policy_place(rule[k], &request, arena, out);
}

/* Returns the degree of equal groups with the shortest makespans of all iterations. */
static int64_t best_degree(const setting *s, int k, int iterations)
{
    double sum[MOST_RANKS + 1] = {0};
    int64_t best = 1;
    for (int i = 0; i < iterations; i++) {
        weft_arena *arena = weft_arena_create();
        weft_workload w;
        weft_cascade_list list;
        weft_placement p;
        open_list(s, 1 + (uint64_t)i, arena, &w, &list);
        for (int64_t degree = 1; degree <= s->ranks; degree++)
            if (s->ranks % degree || place_by_rule(s, k, degree, &w, &list, arena, &p) != WEFT_OK)
                sum[degree] = INFINITY;
            else
                sum[degree] += p.makespan;
        weft_arena_free(arena);
    }
    for (int64_t degree = 2; degree <= s->ranks; degree++)
        best = sum[degree] < sum[best] ? degree : best;
    return best;
}

/* Searches the plan with the shortest makespan in a set of degrees. */
static void solve(const setting *s, iteration *x, int set, weft_placement *out)
{
    const weft_cascade_search search = {
        .seed = x->seed, .threads = 1, .effort = s->ranks > 16 ? 0.3 : 1};
    const weft_assign_options assign = {.inner = true, .inter = true};
    weft_cascade_problem *p = &x->problem[set];
    int32_t *first, *devices;
    check(weft_cascade_problem_create(set == NARROW ? &x->narrow : &x->list, s->ranks,
                                      (double)s->cluster.device.memory, p));
    p->per_node = s->cluster.devices;
    p->by_producers = true;
    check(weft_cascade_solve(p, &search, x->arena, &x->found[set]));
    check(weft_assign(p, &x->found[set].schedule, &s->cluster, assign, x->arena, &first, &devices));
    check(weft_placement_of(p, &x->found[set].schedule, first, devices, x->arena, out));
}

/* Opens an iteration with the plans of the rules. */
static void open_rules(const setting *s, uint64_t seed, iteration *x)
{
    weft_workload w;
    *x = (iteration){
        .arena = weft_arena_create(), .seed = seed, .sets = s->cluster.nodes > 1 ? SETS : 1};
    open_list(s, seed, x->arena, &w, &x->list);
    for (int64_t c = 0; c < x->list.count; c++) {
        const weft_plan_bucket *b = &w.bucket[c / (x->list.count / w.count)];
        const weft_clip_work *clip;
        check(weft_model_work_clip(&s->work, b->frames, b->height, b->width, &clip));
        const double bytes = clip->latent_bytes * (double)b->batch;
        x->trains[c] = strstr(x->list.item[c].id, ".dit");
        if (x->trains[c])
            x->hand[c] = (weft_dispatch_hand){
                weft_cluster_collective_seconds(&s->cluster, WEFT_COLL_SEND, 2, 2, bytes),
                weft_cluster_collective_seconds(&s->cluster, WEFT_COLL_SEND, 2, 1, bytes)};
    }
    for (int k = 0; k < OTHERS; k++)
        check(place_by_rule(s, k, s->degree[k], &w, &x->list, x->arena, &x->plan[k]));
}

/* Searches the plan with the shortest makespan. */
static void search_planned(const setting *s, iteration *x)
{
    weft_placement found;
    check(weft_cascade_list_within(&x->list, s->cluster.devices, (double)s->cluster.device.memory,
                                   x->arena, &x->narrow));
    for (int set = 0; set < x->sets; set++) {
        solve(s, x, set, &found);
        if (set == 0 || found.makespan < x->plan[PLANNED].makespan)
            x->plan[PLANNED] = found;
    }
    for (int k = 0; k < OTHERS; k++) /* a run's search begins with the plans of the rules */
        if (x->plan[k].makespan < x->plan[PLANNED].makespan)
            x->plan[PLANNED] = x->plan[k];
}

static void close_iteration(iteration *x)
{
    for (int set = 0; set < SETS; set++)
        weft_cascade_problem_free(&x->problem[set]);
    weft_arena_free(x->arena);
}

/* The transformers of `own` on their devices, then the encoders of `next`. */
static void append_encoders(const iteration *y, const weft_placement *own,
                            const weft_placement *next, weft_placement *out)
{
    const int64_t n = own->count;
    check(weft_placement_create(y->arena, n, own->first[n] + next->first[n], out));
    for (int64_t c = 0; c < n; c++) {
        const weft_placement *from = y->trains[c] ? own : next;
        const int32_t degree = from->first[c + 1] - from->first[c];
        const double later = y->trains[c] ? 0 : own->makespan;
        out->option[c] = from->option[c];
        out->start[c] = from->start[c] + later;
        out->end[c] = from->end[c] + later;
        out->first[c + 1] = out->first[c] + degree;
        memcpy(out->devices + out->first[c], from->devices + from->first[c],
               (size_t)degree * sizeof *out->devices);
    }
    out->makespan = own->makespan + next->makespan; /* not played yet */
}

/* Opens iteration `x` with the encoders of iteration `next` in place of its own, which ran in the
 * iteration before. */
static void open_ahead(const setting *s, const iteration *x, const iteration *next, iteration *y)
{
    *y = (iteration){.arena = weft_arena_create(), .seed = x->seed, .sets = x->sets};
    memcpy(y->trains, x->trains, sizeof y->trains);
    y->list.count = x->list.count;
    check(WEFT_ARENA_NEW(y->arena, y->list.item, x->list.count, "the benchmark"));
    for (int64_t c = 0; c < x->list.count; c++) {
        y->list.item[c] = x->trains[c] ? x->list.item[c] : next->list.item[c];
        y->list.item[c].after_count = 0;
    }
    for (int k = 0; k < OTHERS; k++)
        append_encoders(y, &x->plan[k], &next->plan[k], &y->plan[k]);
    search_planned(s, y);
}

static weft_expect_setup search_of(const setting *s, const iteration *x, const double *slow)
{
    return (weft_expect_setup){.list = &x->list,
                               .cluster = &s->cluster,
                               .assign = {.inner = true, .inter = true},
                               .slow = slow,
                               .trains = x->trains,
                               .transfer = x->hand,
                               .reduce = s->reduce,
                               .last = s->last,
                               .seed = x->seed,
                               .evaluations = s->evaluations};
}

/* Searches with planned devices and with late dispatch, by the planner of a run. Returns true if
 * late dispatch is shorter. */
static bool search_both(const iteration *x, const weft_expect_setup *setup, weft_placement out[2])
{
    weft_expect_plans found;
    weft_expect_request request = {
        .setup = *setup, .sets = x->sets, .also = x->plan, .also_count = PLANNED + 1, .move = true};
    for (int set = 0; set < x->sets; set++) {
        request.problem[set] = &x->problem[set];
        request.schedule[set] = &x->found[set].schedule;
    }
    check(weft_expect_plan(&request, x->arena, &found));
    memcpy(out, found.plan, sizeof found.plan);
    return found.late;
}

/* Returns the run of the shortest expected time: plans[0] on planned devices, plans[1] with late
 * dispatch, or one of both with searches during the iteration. */
static robust_job choose(const iteration *x, weft_expect_setup setup, const weft_placement *plans,
                         const weft_dispatch_replan *replan, bool late)
{
    robust_job best = {.plan = &plans[late], .late = late};
    double least, value;
    setup.problem = &x->problem[WIDE];
    setup.factor = setup.validations ? setup.validation : setup.factor;
    setup.scenarios = setup.validations ? FEW : 1;
    setup.late = late;
    check(weft_expect_value(&setup, best.plan, &least));
    setup.late = true;
    setup.replan = replan;
    for (int k = 0; k < 2; k++) {
        check(weft_expect_value(&setup, &plans[k], &value));
        value *= 1 + WEFT_EXPECT_LATE;
        if (value >= least)
            continue;
        least = value;
        best = (robust_job){.plan = &plans[k], .late = true, .replan = replan};
    }
    return best;
}

/* The plans of shortest expected time. The record of errors is complete. *replan: searches during
 * the iteration, with the scenarios of the plan. */
static bool plan_robust(const setting *s, const iteration *x, const trial *t, const double *slow,
                        weft_placement out[2], weft_dispatch_replan *replan, robust_job *best)
{
    static double factor[SCENARIOS * MOST_CASCADES], judge[JUDGES * MOST_CASCADES],
        during[DURING * MOST_CASCADES];
    weft_price_errors record = {.count = 0};
    const weft_price_errors *of[MOST_CASCADES];
    for (int i = 0; i < WEFT_PRICE_ERRORS; i++)
        weft_price_errors_add(&record, 1 + t->jitter * (i + 0.5) / WEFT_PRICE_ERRORS);
    for (int64_t c = 0; c < x->list.count; c++)
        of[c] = &record;
    weft_expect_setup setup = search_of(s, x, slow);
    setup.scenarios = t->jitter > 0 ? SCENARIOS : 1;
    setup.validations = t->jitter > 0 ? JUDGES : 0;
    setup.factor = factor;
    setup.validation = judge;
    check(weft_price_errors_draw(of, x->list.count, setup.scenarios, 9, factor));
    check(weft_price_errors_draw(of, x->list.count, setup.validations, 10, judge));
    *replan = (weft_dispatch_replan){.evaluations = SEARCHES,
                                     .scenarios = t->jitter > 0 ? DURING : 1,
                                     .factor = during,
                                     .seed = x->seed};
    check(weft_price_errors_draw(of, x->list.count, replan->scenarios, 11, during));
    const bool late = search_both(x, &setup, out);
    *best = choose(x, setup, out, replan, late);
    return late;
}

static bool plan_clairvoyant(const setting *s, const iteration *x, const double *factor,
                             const double *slow, weft_placement *out)
{
    weft_expect_setup setup = search_of(s, x, slow);
    weft_placement both[2];
    setup.scenarios = 1;
    setup.factor = factor;
    const bool late = search_both(x, &setup, both);
    *out = both[late];
    return late;
}

/* ---- playing -------------------------------------------------------------------------------- */

/* factor[DRAWS][cascades]; one order of cascades for all plans. */
static void draw_factors(const iteration *x, double jitter, double *factor)
{
    for (int64_t c = 0; c < x->list.count; c++) {
        weft_rng rng =
            weft_rng_make(weft_seed_mix(weft_seed_mix(41, x->seed), (uint64_t)c), WEFT_RNG_TEST);
        for (int b = 0; b < BATCHES; b++) {
            double at[IN_BATCH];
            simulated_draws(&rng, IN_BATCH, at);
            for (int k = 0; k < IN_BATCH; k++)
                factor[(b * IN_BATCH + k) * x->list.count + c] = 1 + jitter * at[k];
        }
    }
}

/* Plays draws `from` to `end` by the simulation of the planner. */
static void play_plan(const setting *s, const iteration *x, const robust_job *job, int from,
                      int end, double *seconds)
{
    const weft_placement *p = job->plan;
    weft_assigned item[MOST_CASCADES];
    weft_dispatch *d;
    for (int64_t c = 0; c < p->count; c++) {
        const weft_cascade *of = &x->list.item[c];
        item[c] = (weft_assigned){.id = of->id,
                                  .device = p->devices + p->first[c],
                                  .degree = p->first[c + 1] - p->first[c],
                                  .start = p->start[c],
                                  .seconds = of->option[p->option[c]].seconds,
                                  .after = of->after,
                                  .after_count = of->after_count};
    }
    const weft_dispatch_setup setup = {.item = item,
                                       .count = p->count,
                                       .devices = s->ranks,
                                       .per_node = s->cluster.devices,
                                       .slow = job->slow,
                                       .trains = x->trains,
                                       .transfer = x->hand,
                                       .retire = true,
                                       .replan = job->replan};
    check(weft_dispatch_create(&setup, &d));
    for (int k = from; k < end; k++) {
        const weft_dispatch_times t =
            weft_dispatch_play(d, job->late, job->factor + k * p->count, NULL);
        seconds[k] += fmax(t.makespan + s->last, t.summing + s->reduce);
    }
    weft_dispatch_free(d);
}

/* Adds the seconds of draws `from` to `end` to a plan. */
static void run_plan(const setting *s, const iteration *x, robust_job job, int from, int end,
                     trial *t, int plan)
{
    const double *factor = job.factor;
    job.list = &x->list;
    play_plan(s, x, &job, from, end, t->seconds[s->ahead ? ALL_AHEAD : PLAYED][plan]);
    if (s->ahead && plan >= OTHERS)
        play_plan(s, x, &job, from, end, t->seconds[AHEAD][plan]);
    job.ahead = s->ahead;
    for (int k = from; k < end && k < IN_BATCH && s->executed && !(s->ahead && plan < OTHERS);
         k++) {
        job.factor = factor + k * x->list.count;
        const robust_times times = robust_ranks_execute(&job);
        t->seconds[s->ahead ? AHEAD_EXECUTED : EXECUTED][plan][k] += times.total;
        if (plan == ROBUST) {
            t->moved += times.moved;
            t->cascades += x->list.count;
        }
    }
}

static void set_slow(const trial *t, double *slow)
{
    for (int r = 0; r < MOST_RANKS; r++)
        slow[r] = t->slow && r == SLOW_RANK ? SLOW : 1;
}

static void try_iteration(const setting *s, const iteration *x, const double *factor, trial *t)
{
    double slow[MOST_RANKS];
    weft_placement p, both[2];
    weft_dispatch_replan replan;
    robust_job best;
    set_slow(t, slow);
    robust_job job = {.factor = factor, .slow = slow};
    for (int k = 0; k <= PLANNED; k++) {
        job.plan = &x->plan[k];
        run_plan(s, x, job, 0, DRAWS, t, k);
    }
    job.late = plan_robust(s, x, t, slow, both, &replan, &best);
    job.plan = &both[job.late];
    t->late += job.late;
    run_plan(s, x, job, 0, DRAWS, t, LATE);
    best.factor = factor;
    best.slow = slow;
    t->replanned += best.replan != NULL;
    run_plan(s, x, best, 0, DRAWS, t, ROBUST);
    job.plan = &p;
    for (int k = 0; k < KNOWN; k++) {
        job.late = plan_clairvoyant(s, x, factor + k * x->list.count, slow, &p);
        run_plan(s, x, job, k, k + 1, t, CLAIRVOYANT);
    }
}

/* Runs all trials of iteration `index`. */
static void try_played(const setting *s, int index)
{
    static double factor[DRAWS * MOST_CASCADES];
    static iteration x;
    open_rules(s, 1 + (uint64_t)index, &x);
    search_planned(s, &x);
    for (size_t k = 0; k < WEFT_COUNT(trials); k++) {
        draw_factors(&x, trials[k].jitter, factor);
        try_iteration(s, &x, factor, &trials[k]);
    }
    close_iteration(&x);
}

/* Executes the first draws of a rule's plan, with encoders in the same iteration. */
static void execute_rule(const setting *s, const iteration *x, robust_job job, double *seconds)
{
    const double *factor = job.factor;
    job.list = &x->list;
    for (int k = 0; k < IN_BATCH && s->executed; k++) {
        job.factor = factor + k * x->list.count;
        seconds[k] += robust_ranks_execute(&job).total;
    }
}

/* Draws the errors of an iteration of open_ahead(): transformers have their own ones, and encoders
 * the ones of iteration `next`. */
static void draw_ahead(const iteration *y, const iteration *next, double jitter, const double *own,
                       double *factor)
{
    draw_factors(next, jitter, factor);
    for (int64_t i = 0; i < DRAWS * y->list.count; i++)
        factor[i] = y->trains[i % y->list.count] ? own[i] : factor[i];
}

/* Runs all trials of iteration `index` with encoders one iteration ahead. A cascade has the same
 * errors wherever it runs. */
static void try_ahead(const setting *s, int index)
{
    static double own[DRAWS * MOST_CASCADES], factor[DRAWS * MOST_CASCADES];
    static iteration x, next, y;
    double slow[MOST_RANKS];
    open_rules(s, 1 + (uint64_t)index, &x);
    open_rules(s, 2 + (uint64_t)index, &next);
    open_ahead(s, &x, &next, &y);
    for (size_t k = 0; k < WEFT_COUNT(trials); k++) {
        trial *t = &trials[k];
        set_slow(t, slow);
        draw_factors(&x, t->jitter, own);
        draw_ahead(&y, &next, t->jitter, own, factor);
        robust_job job = {.factor = own, .slow = slow};
        for (int rule_of = 0; rule_of < OTHERS; rule_of++) {
            job.plan = &x.plan[rule_of];
            play_plan(s, &x, &job, 0, DRAWS, t->seconds[AHEAD][rule_of]);
            execute_rule(s, &x, job, t->seconds[AHEAD_EXECUTED][rule_of]);
        }
        try_iteration(s, &y, factor, t);
    }
    close_iteration(&x);
    close_iteration(&next);
    close_iteration(&y);
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* Returns a lower bound of an iteration whose cascades need factor[c] times their seconds. `upper`:
 * seconds of a plan in this draw. Reductions begin after a third of the last transformer
 * (weft_dispatch_times). */
static double bound_of(const setting *s, const iteration *x, const double *factor, double upper)
{
    weft_arena *arena = weft_arena_create();
    weft_cascade_list list = {.count = x->list.count};
    weft_cascade_problem p;
    weft_cascade_bound bound;
    double summing = 0;
    check(WEFT_ARENA_NEW(arena, list.item, list.count, "the benchmark"));
    for (int64_t c = 0; c < list.count; c++) {
        weft_cascade *to = &list.item[c];
        *to = x->list.item[c];
        check(WEFT_ARENA_NEW(arena, to->option, to->option_count, "the benchmark"));
        for (int k = 0; k < to->option_count; k++) {
            to->option[k] = x->list.item[c].option[k];
            to->option[k].seconds *= factor[c];
        }
    }
    check(weft_cascade_problem_create(&list, s->ranks, (double)s->cluster.device.memory, &p));
    for (int64_t i = 0; i < list.count; i++) {
        const int32_t c = p.order[i];
        double head = 0; /* shortest encoder of the sample; encoders have no producers */
        for (int32_t e = p.first_after[c]; e < p.first_after[c + 1]; e++)
            head = fmax(head, p.seconds[p.first_option[p.after[e] + 1] - 1]);
        if (x->trains[c])
            summing = fmax(summing, head + p.seconds[p.first_option[c + 1] - 1] / 3);
    }
    check(weft_cascade_lower_bound(&p, upper, &bound));
    weft_cascade_problem_free(&p);
    weft_arena_free(arena);
    return fmax(bound.value, summing + s->reduce);
}

/* Adds the planned plan and the bounds of all draws. */
static void add_bounds(const setting *s, const iteration *x, const double *factor, trial *t,
                       int way)
{
    double slow[MOST_RANKS], one[DRAWS] = {0}, bound = 0;
    set_slow(t, slow);
    const robust_job job = {
        .list = &x->list, .plan = &x->plan[PLANNED], .factor = factor, .slow = slow};
    play_plan(s, x, &job, 0, DRAWS, one);
    for (int k = 0; k < DRAWS; k++) {
        t->seconds[way][PLANNED][k] += one[k];
        t->seconds[way][ROBUST][k] +=
            one[k];                  /* without errors, robust plans are the planned ones */
        if (k == 0 || t->jitter > 0) /* without jitter, all draws are equal */
            bound = bound_of(s, x, factor + k * x->list.count, one[k]);
        t->bound[way] += bound;
    }
}

/* Bounds of iteration `index`, with encoders in the same iteration and one iteration ahead. */
static void try_bounds(const setting *s, int index)
{
    static double own[DRAWS * MOST_CASCADES], factor[DRAWS * MOST_CASCADES];
    static iteration x, next, y;
    double slow[MOST_RANKS];
    open_rules(s, 1 + (uint64_t)index, &x);
    open_rules(s, 2 + (uint64_t)index, &next);
    search_planned(s, &x);
    open_ahead(s, &x, &next, &y);
    for (size_t k = 0; k < WEFT_COUNT(trials); k++) {
        trial *t = &trials[k];
        set_slow(t, slow);
        draw_factors(&x, t->jitter, own);
        draw_ahead(&y, &next, t->jitter, own, factor);
        robust_job job = {.factor = own, .slow = slow};
        for (int rule_of = 0; rule_of < OTHERS; rule_of++) {
            job.plan = &x.plan[rule_of];
            play_plan(s, &x, &job, 0, DRAWS, t->seconds[PLAYED][rule_of]);
            play_plan(s, &x, &job, 0, DRAWS, t->seconds[AHEAD][rule_of]);
        }
        add_bounds(s, &x, own, t, PLAYED);
        add_bounds(s, &y, factor, t, AHEAD);
    }
    close_iteration(&x);
    close_iteration(&next);
    close_iteration(&y);
}

/* ---- the table ------------------------------------------------------------------------------- */

static double sum_of(const double *seconds, int draws)
{
    double sum = 0;
    for (int k = 0; k < draws; k++)
        sum += seconds[k];
    return sum;
}

typedef double plan_seconds[PLANS][DRAWS];

static double lead_of(const plan_seconds *of, int plan, int other, int from, int draws)
{
    return 1 - sum_of((*of)[plan] + from, draws) / sum_of((*of)[other] + from, draws);
}

static void print_kept(const trial *t, int way, int other)
{
    const plan_seconds *of = &t->seconds[way];
    const int draws = in_executor(way) ? IN_BATCH : DRAWS;
    const double quiet = lead_of(&trials[0].seconds[way], ROBUST, other, 0, draws),
                 lead = lead_of(of, ROBUST, other, 0, draws),
                 known = lead_of(of, CLAIRVOYANT, other, 0, KNOWN),
                 own = lead_of(of, ROBUST, other, 0, KNOWN);
    double square = 0;
    for (int b = 0; b < BATCHES && !in_executor(way); b++) {
        const double off = lead_of(of, ROBUST, other, b * IN_BATCH, IN_BATCH) - lead;
        square += off * off;
    }
    printf(" %.1f |", 100 * lead);
    if (quiet < 0.001)
        printf(" - | - | - |");
    else if (in_executor(way))
        printf(" %.0f | - | %.0f |", 100 * lead / quiet, 100 * known / quiet);
    else
        printf(" %.0f | %.1f | %.0f |", 100 * lead / quiet,
               100 * sqrt(square / (BATCHES - 1) / BATCHES) / quiet, 100 * known / quiet);
    if (known < 0.001)
        printf(" - |");
    else
        printf(" %.0f |", 100 * own / known);
}

static void print_trial(const setting *s, const char *stage, const trial *t, int way,
                        int iterations)
{
    const int draws = in_executor(way) ? IN_BATCH : DRAWS;
    printf("| %d | %s | %s | %s | %d | %d |", (int)s->ranks, stage, way_name[way], t->name,
           iterations, draws);
    for (int k = 0; k <= ROBUST; k++)
        printf(" %.3f |", sum_of(t->seconds[way][k], draws) / (iterations * draws));
    for (int k = 0; k < OTHERS; k++)
        print_kept(t, way, k);
    printf(" %d | %d |", (int)t->late, (int)t->replanned);
    if (in_executor(way))
        printf(" %d | %d |\n", (int)t->moved, (int)t->cascades);
    else
        printf(" - | - |\n");
}

static void print_header(void)
{
    static const char *const of[] = {"static", "FlexSP-like", "KnapFormer-like"};
    printf("machine: cost model of an H100 cluster\n| ranks | stage | plans | case | iterations | "
           "draws |");
    for (int k = 0; k < OTHERS; k++)
        printf(" %s s |", of[k]);
    printf(" planned s | late s | robust s |");
    for (int k = 0; k < OTHERS; k++)
        printf(" lead over %s %% | kept over %s %% | error over %s %% | clairvoyant over %s %% | "
               "reach over %s %% |",
               of[k], of[k], of[k], of[k], of[k]);
    printf(" dispatched late | replanned | cascades moved | cascades |\n|");
    for (int k = 0; k < 16 + 5 * OTHERS; k++)
        printf("---|");
    printf("\n");
}

static void print_bounds(const setting *s, const char *stage, int iterations)
{
    static const char *const of[] = {"static", "FlexSP-like", "KnapFormer-like"};
    const int runs = iterations * DRAWS;
    printf(
        "machine: cost model of an H100 cluster\n| ranks | stage | encoders | case | iterations | "
        "planned s | bound s |");
    for (int k = 0; k < OTHERS; k++)
        printf(" kept over %s at most %% |", of[k]);
    printf("\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int way = PLAYED; way <= AHEAD; way += AHEAD - PLAYED)
        for (size_t n = 0; n < WEFT_COUNT(trials); n++) {
            const trial *t = &trials[n];
            printf("| %d | %s | %s | %s | %d | %.3f | %.3f |", (int)s->ranks, stage, way_name[way],
                   t->name, iterations, sum_of(t->seconds[way][PLANNED], DRAWS) / runs,
                   t->bound[way] / runs);
            for (int k = 0; k < OTHERS; k++)
                printf(" %.0f |", 100 * (1 - t->bound[way] / sum_of(t->seconds[way][k], DRAWS)) /
                                      lead_of(&trials[0].seconds[way], ROBUST, k, 0, DRAWS));
            printf("\n");
        }
}

/* Returns the mean bytes of a sample's latents, by the weights of the buckets. */
static double latent_bytes(const setting *s)
{
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < s->stage.count; i++) {
        const weft_plan_bucket *b = &s->stage.bucket[i];
        const weft_clip_work *clip;
        check(weft_model_work_clip(&s->work, b->frames, b->height, b->width, &clip));
        sum += b->weight * clip->latent_bytes * (double)b->batch;
        weights += b->weight;
    }
    return sum / weights;
}

static void open_setting(setting *s, int nodes, const char *stage, int iterations)
{
    char spec[32];
    s->arena = weft_arena_create();
    snprintf(spec, sizeof spec, "h100:%d", nodes);
    check(weft_cluster_load(s->arena, spec, &s->cluster));
    check(weft_workload_stage(s->arena, stage, &s->stage));
    check(weft_plan_model_work(s->arena, "hunyuanvideo-13b", &s->stage, &s->cluster.device,
                               &s->work));
    s->ranks = weft_cluster_devices(&s->cluster);
    const double gradients = s->work.parameters * sizeof(float);
    robust_ranks_begin(&s->cluster, gradients, latent_bytes(s));
    robust_ranks_reduce(&s->reduce, &s->last);
    s->degree[STATIC] = best_degree(s, STATIC, iterations);
    s->degree[KNAPFORMER] = best_degree(s, KNAPFORMER, iterations);
}

int main(int argc, char **argv)
{
    static setting s;
    const int nodes = argc > 1 ? atoi(argv[1]) : 2, iterations = argc > 3 ? atoi(argv[3]) : 20;
    const char *stage = argc > 2 ? argv[2] : "720p";
    if (nodes < 1 || nodes > MOST_RANKS / 8 || iterations < 1) {
        fprintf(stderr,
                "bench/robust [NODES [STAGE [ITERATIONS [PLANS "
                "[played|executed|ahead|ahead-executed|bound]]]]], up to %d nodes\n",
                MOST_RANKS / 8);
        return 1;
    }
    s.evaluations = argc > 4 ? atoi(argv[4]) : 1500;
    s.executed = argc > 5 && strstr(argv[5], "executed");
    s.ahead = argc > 5 && !strncmp(argv[5], "ahead", 5);
    const bool bound = argc > 5 && !strcmp(argv[5], "bound");
    open_setting(&s, nodes, stage, iterations);
    for (int i = 0; i < iterations; i++)
        if (bound)
            try_bounds(&s, i);
        else if (s.ahead)
            try_ahead(&s, i);
        else
            try_played(&s, i);
    if (bound) {
        print_bounds(&s, stage, iterations);
        robust_ranks_end();
        weft_arena_free(s.arena);
        return 0;
    }
    print_header();
    const int last = s.ahead      ? s.executed ? AHEAD_EXECUTED : ALL_AHEAD
                     : s.executed ? EXECUTED
                                  : PLAYED;
    for (int way = s.ahead ? AHEAD : PLAYED; way <= last; way++)
        for (size_t k = 0; k < WEFT_COUNT(trials); k++)
            print_trial(&s, stage, &trials[k], way, iterations);
    robust_ranks_end();
    weft_arena_free(s.arena);
    return 0;
}
