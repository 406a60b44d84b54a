#include "cascades_errors.h"

#include "ahead_plans.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/coll_algorithms.h"
#include "plan/cascade/baselines.h"
#include "plan/cascade/expect_plan.h"
#include "plan/cascade/genetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DRAWS: of errors in each iteration, which share the range of a cascade evenly. */
enum { SCENARIOS = 16, JUDGES = 128, DRAWS = 4 };

enum { STATIC, FLEXSP, KNAPFORMER, RULES };
/* weft's plans with the shortest makespan and with the shortest expected time. The clairvoyant plan
 * is of the same search and knows the errors of its iteration. */
enum { PLANNED, ROBUST, CLAIRVOYANT, OWN };
/* weft's encoders. The other policies encode in the step. */
enum { IN_STEP, AHEAD, WAYS };
static const weft_policy rule[RULES] = {WEFT_POLICY_STATIC, WEFT_POLICY_FLEXSP,
                                        WEFT_POLICY_KNAPFORMER};

/* WIDE: every degree. NARROW: degrees within a node. */
enum { WIDE, NARROW, SETS };

/* weft's plans of an iteration. With encoders ahead, `list` has its transformers and the encoders of
 * the next iteration, in the places of its own. */
typedef struct own_plans {
    weft_cascade_list list, narrow;
    weft_cascade_problem problem[SETS];
    weft_cascade_result found[SETS];
    weft_placement shortest;
    weft_placed_iteration planned;
} own_plans;

/* An iteration and the plans that do not depend on errors. */
typedef struct iteration {
    weft_arena *arena;
    weft_workload w;
    uint64_t seed;
    int sets; /* 1 on one node, else SETS */
    weft_dispatch_hand hand[MOST_CASCADES];
    bool trains[MOST_CASCADES];
    made by[RULES];
    own_plans own[WAYS];
} iteration;

/* Prices of executed cascades: all of a profiled shape and degree, of a held-out degree, and of a
 * held-out shape. */
enum { PROFILED, DEGREE, SHAPE, KINDS, MOST_ERRORS = 1 << 15 };
typedef struct priced {
    double off[MOST_ERRORS]; /* executed over predicted - 1 */
    int64_t count;
} priced;

/* weft's record of errors with one way of encoding, and its results. Sums over iterations and
 * draws. */
typedef struct own_record {
    weft_price_errors dit, encoder;
    weft_rank_speeds speeds;
    double seconds[OWN], planning;
    int64_t moved, late, cascades;
} own_record;

/* A case of the comparison. */
typedef struct trial {
    const char *name;
    double jitter;
    int slow;
    int draws;             /* 1 without jitter, as all draws are equal */
    double seconds[RULES]; /* sums over iterations and draws */
    own_record own[WAYS];
} trial;

static struct {
    errors_setup s;
    planner *p;
    iteration iteration[MOST_ITERATIONS + 1];
    double reduce, last;     /* seconds of the gradient all-reduce; of its last part */
    priced priced[2][KINDS]; /* transformers, autoencoders */
    ahead_chain chain;
} bench;

/* ---- iterations ------------------------------------------------------------------------------ */

static void find_hands(iteration *x)
{
    const weft_cascade_list *list = &x->own[IN_STEP].list;
    for (int64_t c = 0; c < list->count; c++) {
        const int b = bucket_of(&x->w.bucket[c / (list->count / x->w.count)]);
        const weft_cascade_row row = row_of(NULL, b, WEFT_CASCADE_VAE);
        const double bytes = 4.0 * (double)(all.size[b].batch * weft_cascade_row_floats(&row));
        x->trains[c] = strstr(list->item[c].id, ".dit");
        x->hand[c] = x->trains[c] ? (weft_dispatch_hand){bytes / 450e9, bytes / all.between}
                                  : (weft_dispatch_hand){0};
    }
}

/* Searches the plan of shortest makespan in a set of degrees. */
static void solve(const iteration *x, own_plans *own, int set, weft_placement *out)
{
    const weft_cascade_search search = {.seed = x->seed, .threads = 1};
    weft_cascade_problem *p = &own->problem[set];
    int32_t *first, *devices;
    check(weft_cascade_problem_create(set == NARROW ? &own->narrow : &own->list, all.ranks,
                                      (double)all.cluster.device.memory, p));
    p->per_node = x->sets > 1 ? all.cluster.devices : 0;
    p->by_producers = true;
    check(weft_cascade_solve(p, &search, x->arena, &own->found[set]));
    check(weft_assign(p, &own->found[set].schedule, &all.cluster, (weft_assign_options){true, true},
                      x->arena, &first, &devices));
    check(weft_placement_of(p, &own->found[set].schedule, first, devices, x->arena, out));
}

static void search_planned(iteration *x, own_plans *own)
{
    weft_placement found;
    check(weft_cascade_list_within(&own->list, all.cluster.devices,
                                   (double)all.cluster.device.memory, x->arena, &own->narrow));
    for (int set = 0; set < x->sets; set++) {
        solve(x, own, set, &found);
        if (set == 0 || found.makespan < own->shortest.makespan)
            own->shortest = found;
    }
    place(&own->shortest, &own->list, &x->w, WEFT_SP_ULYSSES, x->arena, &own->planned);
}

/* Makes the list with encoders of the next iteration, which have no predecessors. */
static void take_encoders(iteration *x, const iteration *next)
{
    const weft_cascade_list *from = &x->own[IN_STEP].list;
    weft_cascade_list *to = &x->own[AHEAD].list;
    to->count = from->count;
    check(WEFT_ARENA_NEW(x->arena, to->item, to->count, "the benchmark"));
    for (int64_t c = 0; c < to->count; c++) {
        to->item[c] = x->trains[c] ? from->item[c] : next->own[IN_STEP].list.item[c];
        to->item[c].after_count = 0;
    }
}

/* The last iteration only has encoders for the one before. */
static void open_iterations(void)
{
    const int count = bench.s.iterations + 1;
    for (int i = 0; i < count; i++) {
        iteration *x = &bench.iteration[i];
        *x = (iteration){.arena = weft_arena_create(),
                         .seed = 1 + (uint64_t)i,
                         .sets = all.cluster.nodes > 1 ? SETS : 1};
        check(weft_workload_draw(x->arena, bench.s.stage, bench.s.samples, x->seed, &x->w));
        for (int k = 0; k < RULES; k++) /* profiles all that is not held out */
            make_list(bench.p, &x->w, method_of(rule[k]), x->arena, &x->own[IN_STEP].list);
    }
    for (int i = 0; i < count; i++) {
        iteration *x = &bench.iteration[i];
        make_list(bench.p, &x->w, WEFT_SP_ULYSSES, x->arena, &x->own[IN_STEP].list);
        find_hands(x);
        for (int k = 0; k < RULES; k++)
            plan_one(bench.p, &x->w, rule[k], x->seed, bench.s.degree[rule[k]], x->arena,
                     &x->by[k]);
    }
    for (int i = 0; i < bench.s.iterations; i++) {
        iteration *x = &bench.iteration[i];
        take_encoders(x, x + 1);
        for (int way = 0; way < WAYS; way++)
            search_planned(x, &x->own[way]);
    }
}

static void close_iterations(void)
{
    for (int i = 0; i <= bench.s.iterations; i++) {
        for (int k = 0; k < WAYS * SETS; k++)
            weft_cascade_problem_free(&bench.iteration[i].own[k / SETS].problem[k % SETS]);
        weft_arena_free(bench.iteration[i].arena);
    }
}

/* ---- executions ------------------------------------------------------------------------------ */

/* Sets at[count] to the draws of a cascade, from 0 to 1. */
static void draws_of(uint64_t seed, int64_t c, int count, double *at)
{
    weft_rng rng =
        weft_rng_make(weft_seed_mix(weft_seed_mix(41, seed), (uint64_t)c), WEFT_RNG_TEST);
    simulated_draws(&rng, count, at);
}

/* Factor of a cascade. All plans have the same ones. */
static double factor_of(const trial *t, uint64_t seed, int64_t c, int draw)
{
    double at[DRAWS];
    draws_of(seed, c, DRAWS, at);
    return 1 + t->jitter * at[draw];
}

/* Sets the errors of an execution. A cascade has the same ones wherever it runs. `ahead`: encoders
 * are of the next iteration. */
static void set_errors(const trial *t, const iteration *x, int draw, bool ahead)
{
    memset(all.factor, 0, sizeof all.factor);
    for (int64_t c = 0; c < x->own[IN_STEP].list.count; c++)
        all.factor[c] = factor_of(t, x->seed + (ahead && !x->trains[c]), c, draw);
    all.slow = t->slow;
}

static double seconds_in_all(const executed *e)
{
    return e->makespan + e->exposed;
}

/* The samples of iteration `x`, as weft_placed_iteration has them. */
static const weft_placed_sample *samples_of(const iteration *x)
{
    return x->by[FLEXSP].there ? x->by[FLEXSP].plan.sample : x->by[STATIC].plan.sample;
}

/* Encodes the samples of the first iteration, as the first iteration of a run does. */
static void begin_chain(void)
{
    static ahead_plan to;
    const iteration *x = &bench.iteration[0];
    weft_placed_iteration plan = x->by[x->by[FLEXSP].there ? FLEXSP : STATIC].plan;
    bench.chain.batches = 0;
    memset(all.factor, 0, sizeof all.factor);
    all.slow = -1;
    ahead_put(&bench.chain, samples_of(x), &plan, &to);
    check(weft_placed_check(&plan, all.ranks, "bench"));
    (void)execute(&plan);
    ahead_keep(&bench.chain, bench.s.samples);
}

/* Executes one of weft's plans of iteration `index`, and returns its seconds. */
static double run_own(const trial *t, int index, int draw, int way, const weft_placed_iteration *of)
{
    static ahead_plan to;
    const iteration *x = &bench.iteration[index];
    weft_placed_iteration plan = *of;
    set_errors(t, x, draw, way == AHEAD);
    if (way == AHEAD) {
        ahead_put(&bench.chain, samples_of(x + 1), &plan, &to);
        check(weft_placed_check(&plan, all.ranks, "bench"));
    }
    const executed e = execute(&plan);
    if (way == AHEAD)
        ahead_keep(&bench.chain, bench.s.samples);
    return seconds_in_all(&e);
}

/* ---- prices and records ---------------------------------------------------------------------- */

static int kind_of(int bucket, int degree)
{
    return !held_out(bench.p, bucket, degree) ? PROFILED
           : held_out(bench.p, bucket, 1)     ? SHAPE
                                              : DEGREE;
}

/* Notes the errors of all prices in the last execution, which has no other errors. */
static void note_prices(void)
{
    const weft_placed_iteration *as = simulated.executed;
    for (int64_t c = 0; c < weft_placed_scheduled(as); c++) {
        const weft_placed_cascade *one = &as->cascade[c];
        if (one->module == WEFT_CASCADE_TEXT)
            continue;
        priced *of = &bench.priced[one->module != WEFT_CASCADE_DIT]
                                  [kind_of(as->sample[one->sample].bucket, (int)one->at.degree)];
        if (of->count < MOST_ERRORS)
            of->off[of->count++] = seconds_of(as, c) / one->at.seconds - 1;
    }
}

/* Learns the errors of estimates and slow ranks from the last execution, of `plan`. */
static void learn(own_record *t, const weft_placed_iteration *plan)
{
    const weft_placed_iteration *as = simulated.executed;
    double busy[MOST_RANKS], slow[MOST_RANKS];
    weft_rank_speeds_get(&t->speeds, slow);
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_assigned *at = &as->cascade[c].at, *planned = &plan->cascade[c].at;
        const bool dit = as->cascade[c].module == WEFT_CASCADE_DIT;
        double most = 1;
        bool stayed = false;
        for (int64_t i = 0; i < at->degree; i++) {
            busy[i] = simulated.done[at->device[i]][c].busy;
            most = fmax(most, slow[at->device[i]]);
            stayed = stayed || planned->device[i] == at->device[0];
        }
        t->moved += !stayed;
        t->cascades++;
        weft_price_errors_add(dit ? &t->dit : &t->encoder, seconds_of(as, c) / most / at->seconds);
        if (dit)
            weft_rank_speeds_add(&t->speeds, at->device, busy, at->degree, at->seconds);
    }
}

/* ---- plans by expected seconds --------------------------------------------------------------- */

static weft_expect_setup setup_of(const iteration *x, const weft_cascade_list *list)
{
    return (weft_expect_setup){.list = list,
                               .cluster = &all.cluster,
                               .assign = {true, true},
                               .slow = simulated.slow,
                               .trains = x->trains,
                               .transfer = x->hand,
                               .reduce = bench.reduce,
                               .last = bench.last,
                               .seed = x->seed,
                               .evaluations = bench.s.evaluations};
}

/* The plans of shortest expected time in the scenarios of `setup`, by the planner of a run. Searches
 * begin with the plan of shortest makespan and, with encoders in the step, with the plans of the
 * rules. */
static void search_expected(const iteration *x, int way, weft_expect_setup setup, weft_arena *arena,
                            weft_expect_plans *found)
{
    const own_plans *own = &x->own[way];
    weft_placement also[RULES];
    int count = 1;
    also[0] = own->shortest;
    for (int k = FLEXSP; k < RULES && way == IN_STEP; k++)
        if (x->by[k].there)
            also[count++] = x->by[k].placed;
    weft_expect_request request = {
        .setup = setup, .sets = x->sets, .also = also, .also_count = count, .move = true};
    for (int set = 0; set < x->sets; set++) {
        request.problem[set] = &own->problem[set];
        request.schedule[set] = &own->found[set].schedule;
    }
    check(weft_expect_plan(&request, arena, found));
}

/* The plans of shortest expected time under a record of errors. */
static void plan_expected(const own_record *t, const iteration *x, int way, weft_arena *arena,
                          weft_expect_plans *found)
{
    static double factor[SCENARIOS * MOST_CASCADES], judge[JUDGES * MOST_CASCADES];
    const int64_t count = x->own[way].list.count;
    const weft_price_errors *of[MOST_CASCADES];
    for (int64_t c = 0; c < count; c++)
        of[c] = x->trains[c] ? &t->dit : &t->encoder;
    weft_expect_setup setup = setup_of(x, &x->own[way].list);
    setup.scenarios = t->dit.count ? SCENARIOS : 1;
    setup.factor = factor;
    setup.validations = t->dit.count ? JUDGES : 0;
    setup.validation = judge;
    check(weft_price_errors_draw(of, count, setup.scenarios, 9, factor));
    check(weft_price_errors_draw(of, count, setup.validations, 10, judge));
    search_expected(x, way, setup, arena, found);
}

/* The plans that know the errors `factor` of their iteration. */
static void plan_known(const iteration *x, int way, const double *factor, weft_arena *arena,
                       weft_expect_plans *found)
{
    weft_expect_setup setup = setup_of(x, &x->own[way].list);
    setup.scenarios = 1;
    setup.factor = factor;
    search_expected(x, way, setup, arena, found);
}

static void place_best(const weft_expect_plans *found, const iteration *x, int way,
                       weft_arena *arena, weft_placed_iteration *out)
{
    place(&found->plan[found->late], &x->own[way].list, &x->w, WEFT_SP_ULYSSES, arena, out);
    out->late = found->late;
}

/* Plans with the record of a run. The dispatcher of the next execution has the speeds of the
 * ranks. */
static void plan_robust(own_record *t, const iteration *x, int way, weft_arena *arena,
                        weft_placed_iteration *out)
{
    weft_expect_plans found;
    const double began = weft_thread_seconds();
    weft_rank_speeds_get(&t->speeds, simulated.slow);
    plan_expected(t, x, way, arena, &found);
    place_best(&found, x, way, arena, out);
    t->late += found.late;
    t->planning += weft_thread_seconds() - began;
}

static void set_slow(const trial *t)
{
    for (int r = 0; r < all.ranks; r++)
        simulated.slow[r] = r == t->slow ? SLOW : 1;
}

static void plan_clairvoyant(const trial *t, const iteration *x, int draw, int way,
                             weft_arena *arena, weft_placed_iteration *out)
{
    double factor[MOST_CASCADES];
    weft_expect_plans found;
    set_errors(t, x, draw, way == AHEAD);
    memcpy(factor, all.factor, sizeof factor);
    set_slow(t);
    plan_known(x, way, factor, arena, &found);
    place_best(&found, x, way, arena, out);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void run_rules(trial *t, int draw)
{
    for (int i = 0; i < bench.s.iterations; i++)
        for (int k = 0; k < RULES; k++) {
            made *m = &bench.iteration[i].by[k];
            if (!m->there)
                continue;
            set_errors(t, &bench.iteration[i], draw, false);
            m->as = execute(&m->plan);
            t->seconds[k] += seconds_in_all(&m->as);
            if (t->jitter == 0 && t->slow < 0)
                note_prices();
        }
}

/* False: searches of many ranks take too long for a plan of each draw. */
static bool runs_clairvoyant(void)
{
    return all.ranks <= 16;
}

/* Runs weft's plans of all iterations in sequence. */
static void run_own_plans(trial *t, int draw, int way, int kind)
{
    own_record *r = &t->own[way];
    if (way == AHEAD)
        begin_chain();
    for (int i = 0; i < bench.s.iterations; i++) {
        const iteration *x = &bench.iteration[i];
        weft_arena *arena = weft_arena_create();
        weft_placed_iteration plan = x->own[way].planned;
        if (kind == ROBUST)
            plan_robust(r, x, way, arena, &plan);
        else if (kind == CLAIRVOYANT)
            plan_clairvoyant(t, x, draw, way, arena, &plan);
        r->seconds[kind] += run_own(t, i, draw, way, &plan);
        if (kind == ROBUST)
            learn(r, &plan);
        if (t->jitter == 0 && t->slow < 0)
            note_prices();
        weft_arena_free(arena);
    }
}

/* ---- the tables ------------------------------------------------------------------------------ */

static void print_or_none(bool measured, int digits, double value)
{
    if (measured)
        printf(" %.*f |", digits, value);
    else
        printf(" - |");
}

/* `quiet`: the case without errors, whose shorter plan determines the lead without errors. */
static void print_trial(const trial *t, const trial *quiet, int way)
{
    static const char *const name[WAYS] = {"in step", "ahead"};
    const int runs = bench.s.iterations * t->draws;
    const own_record *r = &t->own[way], *q = &quiet->own[way];
    printf("| %d | %s | %s | %s | %d | %d |", all.ranks, bench.s.name, name[way], t->name,
           bench.s.iterations, t->draws);
    for (int k = 0; k < RULES; k++)
        printf(" %.3f |", FOLD * t->seconds[k] / runs);
    for (int k = 0; k < OWN; k++)
        print_or_none(k != CLAIRVOYANT || runs_clairvoyant(), 3, FOLD * r->seconds[k] / runs);
    for (int k = 0; k < RULES; k++) {
        const double quick = fmin(q->seconds[PLANNED], q->seconds[ROBUST]),
                     quiet_lead = 1 - quick / quiet->seconds[k],
                     lead = 1 - r->seconds[ROBUST] / t->seconds[k],
                     known = 1 - r->seconds[CLAIRVOYANT] / t->seconds[k];
        printf(" %.1f | %.0f |", 100 * lead, 100 * lead / quiet_lead);
        print_or_none(runs_clairvoyant(), 0, 100 * known / quiet_lead);
    }
    printf(" %" PRId64 " | %" PRId64 " | %" PRId64 " | %.3f |\n", r->moved, r->cascades, r->late,
           r->planning / runs);
    fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_prices(void)
{
    static const char *const module[] = {"transformer", "autoencoder"}, *const kind[] = {
                                                                            "profiled",
                                                                            "held-out degree",
                                                                            "held-out shape"};
    printf("\nmachine: simulated H100 cluster\n| ranks | stage | module | price | "
           "executed cascades | mean error %% | 95th percentile %% | largest error %% |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < KINDS; k++) {
            priced *of = &bench.priced[m][k];
            double sum = 0;
            for (int64_t i = 0; i < of->count; i++)
                sum += of->off[i] = fabs(of->off[i]);
            if (!of->count)
                continue;
            qsort(of->off, (size_t)of->count, sizeof *of->off, ascending);
            printf("| %d | %s | %s | %s | %" PRId64 " | %.2f | %.2f | %.2f |\n", all.ranks,
                   bench.s.name, module[m], kind[k], of->count, 100 * sum / (double)of->count,
                   100 * of->off[(of->count - 1) * 95 / 100], 100 * of->off[of->count - 1]);
        }
    printf("\n");
}

/* Prints the head of a table of cases: `lead` names the column of the leads, and `rest` has `count`
 * further columns. */
static void print_head(const char *lead, const char *rest, int count)
{
    static const char *const of[RULES] = {"static", "FlexSP-like", "KnapFormer-like"};
    printf("machine: simulated H100 cluster\n| ranks | stage | encoders | case | iterations | "
           "draws | static s | FlexSP-like s | KnapFormer-like s | planned s | robust s | "
           "clairvoyant s |");
    for (int k = 0; k < RULES; k++)
        printf(" %s over %s %% | kept over %s %% | clairvoyant over %s %% |", lead, of[k], of[k],
               of[k]);
    printf("%s\n|", rest);
    for (int k = 0; k < 12 + 3 * RULES + count; k++)
        printf("---|");
    printf("\n");
}

static void run_trial(trial *t)
{
    t->draws = t->jitter > 0 ? DRAWS : 1;
    for (int way = 0; way < WAYS; way++)
        check(weft_rank_speeds_create(all.ranks, &t->own[way].speeds));
    for (int draw = 0; draw < t->draws; draw++) {
        run_rules(t, draw);
        for (int k = 0; k < WAYS * OWN; k++)
            if (k % OWN != CLAIRVOYANT || runs_clairvoyant())
                run_own_plans(t, draw, k / OWN, k % OWN);
    }
    for (int way = 0; way < WAYS; way++)
        weft_rank_speeds_free(&t->own[way].speeds);
}

/* ---- played plans ---------------------------------------------------------------------------- */

/* PLAYED: number of plans of a case. MOST_PLAYED: draws of errors in each iteration; 64 ranks have 4,
 * as their searches take longer. */
enum { PLAYED = RULES + OWN, MOST_PLAYED = 16 };
static int played_draws(const trial *t)
{
    return t->jitter == 0 ? 1 : all.ranks > 16 ? 4 : MOST_PLAYED;
}

/* Sums over iterations of the means of the draws. */
typedef struct played {
    double seconds[PLAYED], planning;
    int64_t late;
} played;

/* factor[draws][cascades]; as set_errors(). */
static void draw_errors(const trial *t, const iteration *x, bool ahead, double *factor)
{
    const int64_t count = x->own[IN_STEP].list.count;
    for (int64_t c = 0; c < count; c++) {
        double at[MOST_PLAYED];
        draws_of(x->seed + (ahead && !x->trains[c]), c, played_draws(t), at);
        for (int k = 0; k < played_draws(t); k++)
            factor[k * count + c] = 1 + t->jitter * at[k];
    }
}

/* Returns the mean seconds of a plan in `draws` draws, by the simulation of the planner. */
static double play(const iteration *x, const weft_cascade_list *list, const weft_placement *plan,
                   bool late, const double *factor, int draws)
{
    double value;
    weft_expect_setup setup = setup_of(x, list);
    setup.problem = &x->own[IN_STEP].problem[WIDE]; /* the ranks */
    setup.late = late;
    setup.scenarios = draws;
    setup.factor = factor;
    check(weft_expect_value(&setup, plan, &value));
    return value;
}

static void play_rules(const trial *t, const iteration *x, const double *factor, played *to)
{
    for (int k = 0; k < RULES; k++) {
        weft_arena *arena = weft_arena_create();
        weft_cascade_list list;
        make_list(bench.p, &x->w, method_of(rule[k]), arena, &list);
        if (x->by[k].there)
            to->seconds[k] += play(x, &list, &x->by[k].placed, false, factor, played_draws(t));
        weft_arena_free(arena);
    }
}

/* Plays weft's plans of an iteration. The record of errors is complete. */
static void play_own(const trial *t, const iteration *x, int way, const double *factor, played *to)
{
    const weft_cascade_list *list = &x->own[way].list;
    const int draws = played_draws(t);
    weft_arena *arena = weft_arena_create();
    own_record record = {.late = 0};
    weft_expect_plans found;
    for (int i = 0; i < WEFT_PRICE_ERRORS && t->jitter > 0; i++) {
        weft_price_errors_add(&record.dit, 1 + t->jitter * (i + 0.5) / WEFT_PRICE_ERRORS);
        record.encoder = record.dit;
    }
    const double began = weft_thread_seconds();
    plan_expected(&record, x, way, arena, &found);
    to->planning += weft_thread_seconds() - began;
    to->late += found.late;
    to->seconds[RULES + PLANNED] += play(x, list, &x->own[way].shortest, false, factor, draws);
    to->seconds[RULES + ROBUST] +=
        play(x, list, &found.plan[found.late], found.late, factor, draws);
    for (int k = 0; k < draws; k++) {
        plan_known(x, way, factor + k * list->count, arena, &found);
        to->seconds[RULES + CLAIRVOYANT] +=
            play(x, list, &found.plan[found.late], found.late, factor + k * list->count, 1) / draws;
    }
    weft_arena_free(arena);
}

/* `quiet`: the case without errors. */
static void print_played(const trial *t, const played *of, const played *quiet, int way)
{
    static const char *const name[WAYS] = {"in step", "ahead"};
    const int n = bench.s.iterations;
    const double quick = fmin(quiet->seconds[RULES + PLANNED], quiet->seconds[RULES + ROBUST]);
    printf("| %d | %s | %s | %s | %d | %d |", all.ranks, bench.s.name, name[way], t->name, n,
           played_draws(t));
    for (int k = 0; k < PLAYED; k++)
        printf(" %.3f |", FOLD * of->seconds[k] / n);
    for (int k = 0; k < RULES; k++) {
        const double lead = 1 - quick / quiet->seconds[k];
        printf(" %.1f |", 100 * lead);
        for (int plan = RULES + ROBUST; plan < PLAYED; plan++)
            printf(" %.0f |", 100 * (1 - of->seconds[plan] / of->seconds[k]) / lead);
    }
    printf(" %" PRId64 " | %.3f |\n", of->late, of->planning / n);
    fflush(stdout);
}

static void play_trials(trial *list, int trials)
{
    static double factor[MOST_PLAYED * MOST_CASCADES];
    played quiet[WAYS];
    print_head("lead without errors", " dispatched late | planning s |", 2);
    for (int n = 0; n < trials; n++)
        for (int way = 0; way < WAYS; way++) {
            played of = {{0}};
            set_slow(&list[n]);
            for (int i = 0; i < bench.s.iterations; i++) {
                const iteration *x = &bench.iteration[i];
                draw_errors(&list[n], x, false, factor);
                play_rules(&list[n], x, factor, &of);
                draw_errors(&list[n], x, way == AHEAD, factor);
                play_own(&list[n], x, way, factor, &of);
            }
            quiet[way] = n == 0 ? of : quiet[way];
            print_played(&list[n], &of, &quiet[way], way);
        }
}

void compare_errors(planner *p, const errors_setup *setup)
{
    static trial list[] = {{.name = "jitter 0", .slow = -1},
                           {.name = "jitter 0.2", .jitter = 0.2, .slow = -1},
                           {.name = "jitter 0.4", .jitter = 0.4, .slow = -1},
                           {.name = "slow rank", .slow = 5}};
    bench.s = *setup;
    bench.p = p;
    open_iterations();
    weft_link_costs costs = weft_link_costs_of(&all.cluster);
    costs.add = 0; /* kernels need no time in reductions */
    check(weft_grad_reduce_predict(weft_cascade_run_reduce(simulated_first_run()), &costs,
                                   &bench.reduce, &bench.last));
    if (setup->played) {
        play_trials(list, (int)WEFT_COUNT(list));
        close_iterations();
        return;
    }
    print_head("lead", " cascades moved | cascades | dispatched late | planning s |", 4);
    for (size_t n = 0; n < WEFT_COUNT(list); n++) {
        run_trial(&list[n]);
        for (int way = 0; way < WAYS; way++)
            print_trial(&list[n], &list[0], way);
    }
    print_prices();
    close_iterations();
}
