/* Searches a placement of the cascades of an iteration, and publishes the best so far. */
#include "train/cascade/planning_search.h"

#include "base/log.h"
#include "plan/cascade/assign.h"
#include "plan/cascade/bound.h"
#include "plan/cascade/expect_plan.h"

#include <math.h>

enum { MOST_ROUNDS = 12 };

static weft_status no_memory(void)
{
    return weft_no_memory("the plan of an iteration");
}

weft_policy_request weft_planning_request(const weft_cascade_planner *a, const weft_planning_job *j)
{
    return (weft_policy_request){.list = &j->list,
                                 .sample = j->sample_of,
                                 .samples = j->samples,
                                 .work = j->work,
                                 .devices = a->s.ranks,
                                 .heads = a->s.heads,
                                 .memory = a->s.memory,
                                 .degree = a->s.config->degree ? a->s.config->degree : a->degree};
}

/* Gap to the bound, as a share, below which the search ends. The gap is then smaller than the error
 * of the costs, and more search would take CPU time from the ranks. A running search continues to
 * half of this gap. */
static const double enough = 0.005;

/* Sets of degrees: every degree, and the degrees within a node. Groups that cross nodes divide the
 * nodes into parts that other groups do not fill. */
enum { WIDE, NARROW, SETS };

/* State shared by all rounds of a search. */
typedef struct searching {
    weft_arena *arena;                    /* memory of the plans found */
    int sets;                             /* 1 on one node, else SETS */
    weft_cascade_schedule schedule[SETS]; /* schedule of the last round of a set */
    weft_cascade_problem problem[SETS];
    weft_cascade_bound bound; /* of the problem with every degree */
} searching;

static void search_end(searching *s)
{
    for (int set = 0; set < SETS; set++)
        weft_cascade_problem_free(&s->problem[set]);
}

static weft_status search_begin(const weft_cascade_planner *a, const weft_planning_job *j,
                                weft_arena *arena, searching *s)
{
    const int64_t per_node = a->s.cluster->nodes > 1 ? a->s.cluster->devices : 0;
    weft_cascade_list list = j->list;
    *s = (searching){.arena = arena, .sets = per_node ? SETS : 1};
    weft_status_code status = WEFT_OK;
    for (int set = 0; set < s->sets; set++) {
        if (set == NARROW)
            WEFT_GO(weft_cascade_list_within(&j->list, per_node, a->s.memory, arena, &list));
        WEFT_GO(weft_cascade_problem_create(&list, a->s.ranks, a->s.memory, &s->problem[set]));
        s->problem[set].per_node = per_node; /* costs assume groups on the fewest nodes */
        s->problem[set].by_producers = a->s.config->inter;
    }
    return WEFT_OK;
out:
    search_end(s);
    return status;
}

static bool is_over(void *user)
{
    weft_planning_job *j = user;
    return atomic_load(&j->over);
}

/* Runs one independent search. The sets of degrees alternate. The first round of a set has less
 * effort. */
static weft_status search_round(const weft_cascade_planner *a, weft_planning_job *j, searching *s,
                                int64_t round, weft_placement *out, bool *proved)
{
    const int set = (int)((round - 1) % s->sets);
    const bool first = round <= s->sets;
    const weft_cascade_search search = {
        .seed = weft_seed_mix(a->s.seed, (uint64_t)j->step) + (uint64_t)round,
        .effort = first ? 0.05 : 0.25,
        .enough = enough / 2,
        .stop = is_over,
        .user = j,
        .threads = 1,
        .no_exact = first,
        .bound = set == WIDE && s->bound.value > 0 ? &s->bound : NULL};
    const weft_assign_options assign = {a->s.config->inner, a->s.config->inter};
    weft_cascade_result result;
    int32_t *first_device, *devices;
    WEFT_TRY(weft_cascade_solve(&s->problem[set], &search, s->arena, &result));
    WEFT_TRY(weft_assign(&s->problem[set], &result.schedule, a->s.cluster, assign, s->arena,
                         &first_device, &devices));
    if (set == WIDE && result.bound.value > s->bound.value)
        s->bound = result.bound;
    *proved = set == WIDE && result.proved;
    s->schedule[set] = result.schedule;
    return weft_placement_of(&s->problem[set], &result.schedule, first_device, devices, s->arena,
                             out);
}

static weft_status by_rule(const weft_cascade_planner *a, const weft_planning_job *j, searching *s,
                           weft_placement *out)
{
    const weft_policy_request request = weft_planning_request(a, j);
    WEFT_TRY(weft_policy_place((weft_policy)a->s.config->policy, &request, s->arena, out));
    return weft_cascade_lower_bound(&s->problem[WIDE], out->makespan, &s->bound);
}

/* Sets *out to the shortest plan of all policies. This first plan takes little time, and later
 * plans are at least as short. Policies place groups contiguously, which on several nodes would
 * cross nodes, where costs differ; they are then not used. Policies have no encoders of the next
 * step. *found false: no policy has a plan. */
static weft_status best_rule(const weft_cascade_planner *a, const weft_planning_job *j,
                             searching *s, weft_placement *out, bool *found)
{
    static const weft_policy rules[] = {WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER,
                                        WEFT_POLICY_STATIC};
    const weft_policy_request request = weft_planning_request(a, j);
    *found = false;
    const bool same = s->sets == 1 && a->s.config->encoders == WEFT_ENCODERS_IN_STEP;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && same; i++) {
        weft_placement p;
        const weft_status_code status = weft_policy_place(rules[i], &request, s->arena, &p);
        if (status == WEFT_E_INFEASIBLE)
            continue;
        WEFT_TRY(status);
        if (!*found || p.makespan < out->makespan)
            *out = p;
        *found = true;
    }
    return *found ? weft_cascade_lower_bound(&s->problem[WIDE], out->makespan, &s->bound) : WEFT_OK;
}

typedef struct clocks {
    double wall, busy;
} clocks;

/* Publishes a plan if it is the best so far. Returns true if the search can end: no further plan is
 * needed, or the gap is small. */
static bool publish(weft_cascade_planner *a, weft_planning_job *j, const searching *s,
                    const weft_placement *p, bool proved, clocks began)
{
    pthread_mutex_lock(&a->lock);
    if (!j->found.there || (!j->found.expected && p->makespan < j->found.best.makespan))
        j->found.best = *p;
    j->found.there = true;
    j->found.proved = proved;
    j->found.lower_bound = proved ? j->found.best.makespan : s->bound.value;
    j->found.rounds++;
    j->found.seconds = weft_now() - began.wall;
    j->found.busy = weft_thread_seconds() - began.busy;
    const bool last = is_over(j) || j->found.best.makespan <= (1 + enough) * s->bound.value;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return last;
}

/* True: the search for expected seconds must still run, from the first schedules of all sets. */
static bool needs_expected(const weft_planning_job *j, const searching *s, int64_t round,
                           bool hasty)
{
    return j->errors && round >= 1 && round <= s->sets && !hasty;
}

/* Inputs of the search for expected seconds: scenarios drawn from the record, transfers and
 * reduction. */
typedef struct prospects {
    bool *trains;
    weft_dispatch_hand *transfer;
    double *factor, *validation, *during;
    weft_dispatch_replan replan; /* searches of rank 0 */
    weft_expect_setup setup;
} prospects;

static weft_status make_prospects(const weft_cascade_planner *a, weft_planning_job *j, searching *s,
                                  prospects *p)
{
    enum { SCENARIOS = 16, JUDGES = 128 };
    const int64_t n = j->list.count;
    const weft_price_errors **of = weft_arena_calloc(s->arena, n, sizeof(void *));
    p->trains = weft_arena_alloc(s->arena, n);
    p->transfer = weft_arena_calloc(s->arena, n, sizeof *p->transfer);
    p->factor = weft_arena_calloc(s->arena, SCENARIOS * n, sizeof *p->factor);
    p->validation = weft_arena_calloc(s->arena, JUDGES * n, sizeof *p->validation);
    p->during = weft_arena_calloc(s->arena, WEFT_REPLAN_SCENARIOS * n, sizeof *p->during);
    if (!of || !p->trains || !p->transfer || !p->factor || !p->validation || !p->during)
        return no_memory();
    for (int64_t c = 0; c < n; c++) {
        p->trains[c] = j->cascade[c].module == WEFT_CASCADE_DIT;
        p->transfer[c] = p->trains[c] && a->s.transfer
                             ? a->s.transfer[j->sample[j->sample_of[c]].bucket]
                             : (weft_dispatch_hand){0};
        of[c] = &j->errors[j->cascade[c].module];
    }
    p->setup = (weft_expect_setup){.list = &j->list,
                                   .problem = &s->problem[WIDE],
                                   .cluster = a->s.cluster,
                                   .assign = {a->s.config->inner, a->s.config->inter},
                                   .scenarios = SCENARIOS,
                                   .factor = p->factor,
                                   .validations = JUDGES,
                                   .validation = p->validation,
                                   .slow = j->slow,
                                   .trains = p->trains,
                                   .transfer = p->transfer,
                                   .reduce = a->s.reduce_seconds,
                                   .last = a->s.reduce_last_seconds,
                                   .seed = weft_seed_mix(a->s.seed, (uint64_t)j->step),
                                   .stop = is_over,
                                   .user = j};
    p->replan = (weft_dispatch_replan){.evaluations = WEFT_REPLAN_EVALUATIONS,
                                       .scenarios = WEFT_REPLAN_SCENARIOS,
                                       .factor = p->during,
                                       .seed = p->setup.seed};
    WEFT_TRY(
        weft_price_errors_draw(of, n, JUDGES, weft_seed_mix(p->setup.seed, JUDGES), p->validation));
    WEFT_TRY(weft_price_errors_draw(of, n, WEFT_REPLAN_SCENARIOS,
                                    weft_seed_mix(p->setup.seed, WEFT_REPLAN_SCENARIOS),
                                    p->during));
    return weft_price_errors_draw(of, n, SCENARIOS, p->setup.seed, p->factor);
}

static void publish_expected(weft_cascade_planner *a, weft_planning_job *j,
                             const weft_placement *plan, bool late, bool search)
{
    pthread_mutex_lock(&a->lock);
    j->found.best = *plan;
    j->found.expected = true;
    j->found.late = late;
    j->found.search = search;
    j->found.proved = false;
    pthread_mutex_unlock(&a->lock);
}

/* Publishes the plan and dispatch of least expected seconds, with searches of rank 0 if they
 * shorten the iteration. Searches take long, so few scenarios decide. */
static weft_status judge_searches(weft_cascade_planner *a, weft_planning_job *j, prospects *p,
                                  const weft_expect_plans *e)
{
    enum { FEW = 16 };
    const bool late = e->late;
    double least, value;
    p->setup.factor = p->validation;
    p->setup.scenarios = FEW;
    p->setup.late = late;
    p->setup.replan = NULL;
    WEFT_TRY(weft_expect_value(&p->setup, &e->plan[late], &least));
    publish_expected(a, j, &e->plan[late], late, false);
    p->setup.late = true;
    p->setup.replan = &p->replan;
    for (int k = 0; k < 2 && !is_over(j); k++) {
        if (!isfinite(e->value[k]))
            continue;
        WEFT_TRY(weft_expect_value(&p->setup, &e->plan[k], &value));
        value *= 1 + WEFT_EXPECT_LATE;
        if (value >= least)
            continue;
        least = value;
        publish_expected(a, j, &e->plan[k], true, true);
    }
    return WEFT_OK;
}

/* Publishes a shorter plan, because the step can request the plan at any time. */
typedef struct publishing {
    weft_cascade_planner *planner;
    weft_planning_job *job;
    bool search; /* rank 0 searches as well */
} publishing;

static void publish_shorter(void *user, const weft_placement *plan, bool late)
{
    const publishing *to = user;
    publish_expected(to->planner, to->job, plan, late, to->search && late);
}

/* Replaces the best plan by the plan of least expected seconds. */
static weft_status search_expected(weft_cascade_planner *a, weft_planning_job *j, searching *s)
{
    const bool search = a->s.config->dispatch == WEFT_DISPATCH_SEARCH;
    prospects p = {0};
    publishing to = {a, j, search};
    weft_expect_plans best;
    pthread_mutex_lock(&a->lock);
    const weft_placement also = j->found.best;
    pthread_mutex_unlock(&a->lock);
    WEFT_TRY(make_prospects(a, j, s, &p));
    weft_expect_request request = {.setup = p.setup,
                                   .sets = s->sets,
                                   .also = &also,
                                   .also_count = 1,
                                   .move = weft_cascades_move(a->s.config),
                                   .shorter = publish_shorter,
                                   .user = &to};
    for (int set = 0; set < s->sets; set++) {
        request.problem[set] = &s->problem[set];
        request.schedule[set] = &s->schedule[set];
    }
    WEFT_TRY(weft_expect_plan(&request, s->arena, &best));
    return search && !is_over(j) ? judge_searches(a, j, &p, &best) : WEFT_OK;
}

/* Runs the rounds of a search. `hasty`: stops after the first plan. */
weft_status weft_planning_search(weft_cascade_planner *a, weft_planning_job *j, weft_arena *arena,
                                 bool hasty)
{
    searching s;
    const bool own = a->s.config->policy == WEFT_POLICY_ARACHNE;
    const clocks began = {weft_now(), weft_thread_seconds()};
    weft_placement p;
    WEFT_TRY(search_begin(a, j, arena, &s));
    weft_status_code status = WEFT_OK;
    bool proved = false, last = false;
    for (int64_t round = 0; round <= (own ? MOST_ROUNDS : 0) &&
                            ((!last && !proved) || needs_expected(j, &s, round, hasty));
         round++) {
        bool found = true;
        if (round)
            WEFT_GO(search_round(a, j, &s, round, &p, &proved));
        else
            WEFT_GO(own ? best_rule(a, j, &s, &p, &found) : by_rule(a, j, &s, &p));
        if (found)
            last = publish(a, j, &s, &p, proved, began) || hasty;
        if (round >= s.sets && j->errors && !hasty) {
            WEFT_GO(search_expected(a, j, &s));
            last = true;
        }
    }
out:
    search_end(&s);
    return status;
}
