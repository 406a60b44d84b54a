#include "train/cascade/cascade_planner.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "plan/cascade/assign.h"
#include "plan/cascade/bound.h"
#include "plan/cascade/genetic.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_ROUNDS = 12, NICE = 19 };

/* One iteration being planned. */
typedef struct job {
    int holders; /* references, under the lock: up to two of the caller, one of the thread */
    weft_arena *arena;
    int64_t step, samples, left_out;
    weft_placed_sample *sample;
    weft_cascade_list list;
    weft_placed_cascade *cascade; /* [list.count], without ranks and times */
    int32_t *sample_of;
    double *work;
    bool replayed; /* `plan` was found; no search */
    /* copy of the record at the start; NULL: empty record, or another objective */
    weft_price_errors *errors;
    double *slow; /* [ranks] copy of the slowdown factors */
    weft_placed_iteration plan;
    atomic_bool over;  /* no better plan is needed */
    weft_arena *hasty; /* memory of a first plan by the caller's thread; NULL: none */
    /* written by the search under the lock: */
    weft_placement best;
    double lower_bound, seconds, busy;
    int64_t rounds;
    bool there, proved, done;
    /* `best` minimises expected seconds, and a shorter makespan does not replace it */
    bool expected;
    bool late; /* late dispatch is allowed */
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
} job;

struct weft_cascade_planner {
    weft_cascade_planner_setup s;
    bool is_rank0;
    int64_t degree;    /* degree of equal groups; 0: not known */
    weft_plans *known; /* reusable plans, for plan: static */
    job *job;          /* latest started job */
    job *delivered;    /* latest delivered job */
    weft_arena *arena; /* memory of the latest delivered plan */
    char *text;
    bool *warned; /* [buckets] a skipped sample was reported */
    pthread_t thread;
    bool running, stop;
    pthread_mutex_t lock;
    pthread_cond_t change;
};

static weft_status no_memory(void)
{
    return weft_no_memory("the plan of an iteration");
}

void weft_cascade_planner_cluster(weft_cluster *c, const weft_cascade_config *config, int ranks,
                                  double *memory)
{
    const int64_t devices = weft_cluster_devices(c),
                  share = ranks > devices && devices > 0 ? (ranks + devices - 1) / devices : 1;
    if (ranks <= c->devices || ranks % c->devices || ranks > devices) {
        c->nodes = 1;
        c->devices = ranks;
    } else {
        c->nodes = ranks / c->devices;
    }
    c->device.memory /= share;
    if (config->memory)
        c->device.memory = config->memory;
    *memory = (double)c->device.memory;
}

weft_sp_method weft_cascade_planner_method(const weft_cascade_config *config, bool ring)
{
    switch (config->policy) {
    case WEFT_POLICY_STATIC: return ring ? WEFT_SP_RING : WEFT_SP_ULYSSES;
    case WEFT_POLICY_ULYSSES:
    case WEFT_POLICY_KNAPFORMER: return WEFT_SP_ULYSSES;
    default: return WEFT_SP_NONE;
    }
}

/* ---- a job: the cascades to place ----------------------------------------------------------- */

static void job_free(job *j)
{
    if (j) {
        weft_arena_free(j->arena);
        weft_arena_free(j->hasty);
        weft_free(j->error);
    }
    weft_free(j);
}

/* Drops one reference. Call under the lock. */
static void let_go(job *j)
{
    if (j && --j->holders == 0)
        job_free(j);
}

/* Asks the job's search to stop soon. */
static void end(job *j)
{
    if (j)
        atomic_store(&j->over, true);
}

static bool wanted_degree(const weft_cascade_planner *a, int64_t degree)
{
    const weft_i64_list *list = &a->s.config->degrees;
    for (int64_t i = 0; i < list->count; i++)
        if (list->item[i] == degree)
            return true;
    if (list->count)
        return false;
    /* all degrees up to 8, then whole nodes, powers of two and all ranks; more degrees cost time */
    const int64_t per_node = a->s.cluster->devices;
    return degree <= 8 || degree % per_node == 0 || (degree & (degree - 1)) == 0 ||
           degree == a->s.ranks;
}

/* Adds the options of one cascade: its degrees with seconds and bytes. */
static weft_status add_options(weft_cascade_planner *a, job *j, weft_cascade_module module,
                               int bucket, weft_cascade *c)
{
    const int64_t widest = module == WEFT_CASCADE_TEXT ? 1 : a->s.ranks;
    const bool heads =
        a->s.config->policy == WEFT_POLICY_ULYSSES || a->s.config->policy == WEFT_POLICY_KNAPFORMER;
    WEFT_TRY(WEFT_ARENA_NEW(j->arena, c->option, widest, "the plan of an iteration"));
    for (int64_t k = 1; k <= widest; k++) {
        weft_cascade_option o = {.degree = k};
        if ((k > 1 || module == WEFT_CASCADE_DIT) && !wanted_degree(a, k))
            continue;
        if (heads && module == WEFT_CASCADE_DIT && a->s.heads % k)
            continue;
        WEFT_TRY(weft_cascade_cost_table_get(a->s.cost_table, module, bucket, (int)k, &o.seconds,
                                             &o.bytes));
        if (isfinite(o.seconds))
            c->option[c->option_count++] = o;
    }
    return WEFT_OK;
}

static weft_status add_cascade(weft_cascade_planner *a, job *j, int64_t sample,
                               weft_cascade_module module)
{
    const int64_t at = j->list.count++;
    weft_cascade *c = &j->list.item[at];
    c->id =
        weft_arena_printf(j->arena, "s%" PRId64 ".%s", sample, weft_cascade_module_name(module));
    c->after = weft_arena_calloc(j->arena, 2, sizeof *c->after);
    WEFT_TRY(WEFT_ALLOCATED(c->id && c->after, "the plan of an iteration"));
    if (module == WEFT_CASCADE_DIT)
        for (int64_t b = at - a->s.text - a->s.vae; b < at; b++)
            c->after[c->after_count++] = (int32_t)b;
    j->sample_of[at] = (int32_t)sample;
    j->cascade[at] = (weft_placed_cascade){
        .at = {.id = c->id, .after = c->after, .after_count = c->after_count},
        .sample = (int32_t)sample,
        .module = module,
        .method = module == WEFT_CASCADE_DIT ? weft_cascade_planner_method(a->s.config, a->s.ring)
                                             : WEFT_SP_NONE};
    return add_options(a, j, module, j->sample[sample].bucket, c);
}

static weft_status make_list(weft_cascade_planner *a, job *j)
{
    const int64_t most = WEFT_CASCADE_MODULES * j->samples;
    j->list =
        (weft_cascade_list){.item = weft_arena_calloc(j->arena, most + 1, sizeof *j->list.item)};
    j->cascade = weft_arena_calloc(j->arena, most + 1, sizeof *j->cascade);
    j->sample_of = weft_arena_calloc(j->arena, most + 1, sizeof *j->sample_of);
    j->work = weft_arena_calloc(j->arena, j->samples + 1, sizeof *j->work);
    if (!j->list.item || !j->cascade || !j->sample_of || !j->work)
        return no_memory();
    for (int64_t s = 0; s < j->samples; s++) {
        j->work[s] = a->s.work[j->sample[s].bucket];
        if (a->s.text)
            WEFT_TRY(add_cascade(a, j, s, WEFT_CASCADE_TEXT));
        if (a->s.vae)
            WEFT_TRY(add_cascade(a, j, s, WEFT_CASCADE_VAE));
        WEFT_TRY(add_cascade(a, j, s, WEFT_CASCADE_DIT));
    }
    return WEFT_OK;
}

/* ---- samples that fit on no degree ---------------------------------------------------------- */

/* Sets *bytes to the memory that a bucket needs: the maximum over its cascades of the least bytes
 * over degrees. */
static weft_status least_bytes(weft_cascade_planner *a, int bucket, double *bytes,
                               weft_cascade_module *which)
{
    *bytes = 0;
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        const bool there = m == WEFT_CASCADE_DIT || (m == WEFT_CASCADE_TEXT ? a->s.text : a->s.vae);
        double least = INFINITY;
        for (int k = 1; there && k <= (m == WEFT_CASCADE_TEXT ? 1 : a->s.ranks); k++) {
            double seconds, own;
            if ((k > 1 || m == WEFT_CASCADE_DIT) && !wanted_degree(a, k))
                continue;
            WEFT_TRY(weft_cascade_cost_table_get(a->s.cost_table, m, bucket, k, &seconds, &own));
            least = isfinite(seconds) ? fmin(least, own) : least;
        }
        if (there && least > *bytes) {
            *bytes = least;
            *which = m;
        }
    }
    return WEFT_OK;
}

/* Returns an error with a sufficient memory limit. The limit has a margin, because the resident
 * memory of a process differs by a few MiB between starts. */
static weft_status refuse(const weft_cascade_planner *a, const weft_placed_sample *s, double least,
                          weft_cascade_module module)
{
    const double mib = 1 << 20, spread = 4;
    char size[64], text[2][32];
    weft_plans_size(&a->s.bucket[s->bucket], size);
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                      WEFT_AT(.file = a->s.path, .key = "parallel.cascades", WEFT_NUMBER(least)),
                      "the %s of a sample of %s (clips x frames x height x width; batch %" PRId64
                      " of the stage) fits "
                      "on no degree: it needs %s on a rank, and a rank has %s. "
                      "parallel.cascades.memory_limit: %.0fMiB is enough; %s",
                      weft_cascade_module_name(module), size, s->batch,
                      weft_format_bytes((int64_t)least, text[0]),
                      weft_format_bytes((int64_t)a->s.memory, text[1]), ceil(least / mib + spread),
                      a->s.config->unfit == WEFT_UNFIT_REFUSE
                          ? "oversized: skip leaves such samples out"
                          : "without the samples that do not fit, the step is empty");
}

/* Refuses the sample that needs the most memory, if it fits on no degree. Its memory is enough for
 * all samples. */
static weft_status refuse_unfit(weft_cascade_planner *a, const job *j)
{
    const weft_placed_sample *worst = NULL;
    weft_cascade_module of = WEFT_CASCADE_DIT;
    double most = a->s.memory;
    for (int64_t i = 0; i < j->samples && a->s.memory > 0; i++) {
        weft_cascade_module module = WEFT_CASCADE_DIT;
        double least;
        WEFT_TRY(least_bytes(a, j->sample[i].bucket, &least, &module));
        if (least > most) {
            worst = &j->sample[i];
            most = least;
            of = module;
        }
    }
    return worst ? refuse(a, worst, most, of) : WEFT_OK;
}

/* Removes the samples that fit on no degree and rescales the weights of the others. */
static weft_status fit(weft_cascade_planner *a, job *j)
{
    double rest = 0;
    int64_t kept = 0;
    if (a->s.config->unfit == WEFT_UNFIT_REFUSE)
        WEFT_TRY(refuse_unfit(a, j));
    for (int64_t i = 0; i < j->samples; i++) {
        const weft_placed_sample s = j->sample[i];
        double least = 0;
        weft_cascade_module module = WEFT_CASCADE_DIT;
        if (a->s.memory > 0)
            WEFT_TRY(least_bytes(a, s.bucket, &least, &module));
        if (a->s.memory > 0 && least > a->s.memory) {
            if (!a->warned[s.bucket]) {
                char size[64], text[32];
                weft_plans_size(&a->s.bucket[s.bucket], size);
                weft_warning(
                    WEFT_MSG_SAMPLE_SKIPPED, WEFT_NOWHERE,
                    "samples of %s fit on no degree and are skipped; they need %s on a rank", size,
                    weft_format_bytes((int64_t)least, text));
            }
            a->warned[s.bucket] = true;
            j->left_out++;
            continue;
        }
        j->sample[kept++] = s;
        rest += s.weight;
    }
    if (kept == 0) {
        double least = 0;
        weft_cascade_module module = WEFT_CASCADE_DIT;
        WEFT_TRY(least_bytes(a, j->sample[0].bucket, &least, &module));
        return refuse(a, &j->sample[0], least, module);
    }
    for (int64_t i = 0; i < kept && j->left_out; i++)
        j->sample[i].weight /= rest;
    j->samples = kept;
    return WEFT_OK;
}

static weft_status copy_samples(job *j, const weft_placed_sample *sample, int64_t samples)
{
    WEFT_TRY(WEFT_ARENA_NEW(j->arena, j->sample, samples + 1, "the plan of an iteration"));
    j->samples = samples;
    for (int64_t i = 0; i < samples; i++) {
        weft_item *item = NULL;
        j->sample[i] = sample[i];
        if (!sample[i].item)
            continue;
        WEFT_TRY(WEFT_ARENA_NEW(j->arena, item, sample[i].clips + 1, "the plan of an iteration"));
        memcpy(item, sample[i].item, (size_t)sample[i].clips * sizeof *item);
        j->sample[i].item = item;
    }
    return WEFT_OK;
}

/* Copies the current record: the planner thread reads the copy while the next iteration extends the
 * record. */
static weft_status copy_record(const weft_cascade_planner *a, job *j)
{
    const int64_t bytes = WEFT_CASCADE_MODULES * (int64_t)sizeof *j->errors;
    if (a->s.config->objective != WEFT_OBJECTIVE_EXPECTED || !a->s.errors ||
        !a->s.errors[WEFT_CASCADE_DIT].count)
        return WEFT_OK;
    j->errors = weft_arena_alloc(j->arena, bytes);
    j->slow = weft_arena_calloc(j->arena, a->s.ranks, sizeof *j->slow);
    WEFT_TRY(WEFT_ALLOCATED(j->errors && j->slow, "the plan of an iteration"));
    memcpy(j->errors, a->s.errors, (size_t)bytes);
    weft_rank_speeds_get(a->s.speeds, j->slow);
    return WEFT_OK;
}

static weft_status job_create(weft_cascade_planner *a, int64_t step,
                              const weft_placed_sample *sample, int64_t samples, job **out)
{
    job *j = weft_alloc(sizeof *j);
    weft_status_code status = WEFT_ALLOCATED(j, "the plan of an iteration");
    if (j) {
        j->arena = weft_arena_create();
        j->step = step;
        status = j->arena ? copy_samples(j, sample, samples) : no_memory();
    }
    if (status == WEFT_OK)
        status = fit(a, j);
    if (status == WEFT_OK)
        status = copy_record(a, j);
    if (status == WEFT_OK)
        status = make_list(a, j);
    if (status == WEFT_OK)
        *out = j;
    else
        job_free(j);
    return status;
}

/* ---- placing -------------------------------------------------------------------------------- */

static weft_policy_request request_of(const weft_cascade_planner *a, const job *j)
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

/* State shared by all rounds of a search. */
typedef struct searching {
    weft_arena *arena;              /* memory of the plans found */
    weft_cascade_schedule schedule; /* schedule of the last round */
    weft_cascade_problem problem;
    weft_cascade_bound bound;
} searching;

static weft_status search_begin(const weft_cascade_planner *a, const job *j, weft_arena *arena,
                                searching *s)
{
    *s = (searching){.arena = arena};
    WEFT_TRY(weft_cascade_problem_create(&j->list, a->s.ranks, a->s.memory, &s->problem));
    /* costs assume groups on the fewest nodes */
    s->problem.per_node = a->s.cluster->nodes > 1 ? a->s.cluster->devices : 0;
    s->problem.by_producers = a->s.config->inter;
    return WEFT_OK;
}

static bool is_over(void *user)
{
    job *j = user;
    return atomic_load(&j->over);
}

/* Runs one independent search. Round 1 has a smaller effort. */
static weft_status search_round(const weft_cascade_planner *a, job *j, searching *s, int64_t round,
                                weft_placement *out, bool *proved)
{
    const weft_cascade_search search = {.seed = weft_seed_mix(a->s.seed, (uint64_t)j->step) +
                                                (uint64_t)round,
                                        .effort = round > 1 ? 0.25 : 0.05,
                                        .enough = enough / 2,
                                        .stop = is_over,
                                        .user = j,
                                        .threads = 1,
                                        .no_exact = round == 1,
                                        .bound = s->bound.value > 0 ? &s->bound : NULL};
    const weft_assign_options assign = {a->s.config->inner, a->s.config->inter};
    weft_cascade_result result;
    int32_t *first, *devices;
    WEFT_TRY(weft_cascade_solve(&s->problem, &search, s->arena, &result));
    WEFT_TRY(weft_assign(&s->problem, &result.schedule, a->s.cluster, assign, s->arena, &first,
                         &devices));
    if (result.bound.value > s->bound.value)
        s->bound = result.bound;
    *proved = result.proved;
    s->schedule = result.schedule;
    return weft_placement_of(&s->problem, &result.schedule, first, devices, s->arena, out);
}

static weft_status by_rule(const weft_cascade_planner *a, const job *j, searching *s,
                           weft_placement *out)
{
    const weft_policy_request request = request_of(a, j);
    WEFT_TRY(weft_policy_place((weft_policy)a->s.config->policy, &request, s->arena, out));
    return weft_cascade_lower_bound(&s->problem, out->makespan, &s->bound);
}

/* Sets *out to the shortest plan of all policies. This first plan takes little time, and later
 * plans are at least as short. Policies place groups contiguously, which on several nodes would
 * cross nodes, where costs differ; they are then not used. *found false: no policy has a plan. */
static weft_status best_rule(const weft_cascade_planner *a, const job *j, searching *s,
                             weft_placement *out, bool *found)
{
    static const weft_policy rules[] = {WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER,
                                        WEFT_POLICY_STATIC};
    const weft_policy_request request = request_of(a, j);
    *found = false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !s->problem.per_node; i++) {
        weft_placement p;
        const weft_status_code status = weft_policy_place(rules[i], &request, s->arena, &p);
        if (status == WEFT_E_INFEASIBLE)
            continue;
        WEFT_TRY(status);
        if (!*found || p.makespan < out->makespan)
            *out = p;
        *found = true;
    }
    return *found ? weft_cascade_lower_bound(&s->problem, out->makespan, &s->bound) : WEFT_OK;
}

typedef struct clocks {
    double wall, busy;
} clocks;

/* Publishes a plan if it is the best so far. Returns true if the search can end: no further plan is
 * needed, or the gap is small. */
static bool publish(weft_cascade_planner *a, job *j, const searching *s, const weft_placement *p,
                    bool proved, clocks began)
{
    pthread_mutex_lock(&a->lock);
    if (!j->there || (!j->expected && p->makespan < j->best.makespan))
        j->best = *p;
    j->there = true;
    j->proved = proved;
    j->lower_bound = proved ? j->best.makespan : s->bound.value;
    j->rounds++;
    j->seconds = weft_now() - began.wall;
    j->busy = weft_thread_seconds() - began.busy;
    const bool last = is_over(j) || j->best.makespan <= (1 + enough) * s->bound.value;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return last;
}

/* True: the search for expected seconds must still run, from the schedule of round 1. */
static bool needs_expected(const job *j, int64_t round, bool hasty)
{
    return j->errors && round == 1 && !hasty;
}

/* Inputs of the search for expected seconds: scenarios drawn from the record, transfers and
 * reduction. */
typedef struct prospects {
    bool *trains;
    weft_dispatch_hand *transfer;
    double *factor, *validation;
    weft_expect_setup setup;
} prospects;

static weft_status make_prospects(const weft_cascade_planner *a, job *j, searching *s, prospects *p)
{
    enum { SCENARIOS = 16, JUDGES = 128 };
    const int64_t n = j->list.count;
    const weft_price_errors **of = weft_arena_calloc(s->arena, n, sizeof(void *));
    p->trains = weft_arena_alloc(s->arena, n);
    p->transfer = weft_arena_calloc(s->arena, n, sizeof *p->transfer);
    p->factor = weft_arena_calloc(s->arena, SCENARIOS * n, sizeof *p->factor);
    p->validation = weft_arena_calloc(s->arena, JUDGES * n, sizeof *p->validation);
    if (!of || !p->trains || !p->transfer || !p->factor || !p->validation)
        return no_memory();
    for (int64_t c = 0; c < n; c++) {
        p->trains[c] = j->cascade[c].module == WEFT_CASCADE_DIT;
        p->transfer[c] = p->trains[c] && a->s.transfer
                             ? a->s.transfer[j->sample[j->sample_of[c]].bucket]
                             : (weft_dispatch_hand){0};
        of[c] = &j->errors[j->cascade[c].module];
    }
    p->setup = (weft_expect_setup){.list = &j->list,
                                   .problem = &s->problem,
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
                                   .seed = weft_seed_mix(a->s.seed, (uint64_t)j->step),
                                   .stop = is_over,
                                   .user = j};
    WEFT_TRY(
        weft_price_errors_draw(of, n, JUDGES, weft_seed_mix(p->setup.seed, JUDGES), p->validation));
    return weft_price_errors_draw(of, n, SCENARIOS, p->setup.seed, p->factor);
}

/* Replaces the best plan by the plan of least expected seconds. Runs several short searches and
 * publishes after each, because the step can request the plan at any time. */
static weft_status search_expected(weft_cascade_planner *a, job *j, searching *s)
{
    enum { SEARCHES = 6 };
    const bool may = a->s.config->dispatch == WEFT_DISPATCH_LATE;
    prospects p = {0};
    weft_placement out;
    double least = INFINITY, value;
    pthread_mutex_lock(&a->lock);
    const weft_placement also = j->best;
    pthread_mutex_unlock(&a->lock);
    WEFT_TRY(make_prospects(a, j, s, &p));
    for (int k = 0; k < SEARCHES * (1 + may) && !is_over(j); k++) {
        p.setup.late = may && k % 2;
        p.setup.seed = weft_seed_mix(weft_seed_mix(a->s.seed, (uint64_t)j->step), (uint64_t)k);
        WEFT_TRY(weft_expect_search(&p.setup, &s->schedule, &also, 1, s->arena, &out, &value));
        value *= p.setup.late ? 1 + WEFT_EXPECT_LATE : 1;
        if (value >= least)
            continue;
        least = value;
        pthread_mutex_lock(&a->lock);
        j->best = out;
        j->expected = true;
        j->late = p.setup.late;
        j->proved = false;
        pthread_mutex_unlock(&a->lock);
    }
    return WEFT_OK;
}

/* Runs the rounds of a search. `hasty`: stops after the first plan. */
static weft_status search(weft_cascade_planner *a, job *j, weft_arena *arena, bool hasty)
{
    searching s;
    const bool own = a->s.config->policy == WEFT_POLICY_ARACHNE;
    const clocks began = {weft_now(), weft_thread_seconds()};
    weft_placement p;
    WEFT_TRY(search_begin(a, j, arena, &s));
    weft_status_code status = WEFT_OK;
    bool proved = false, last = false;
    for (int64_t round = 0; round <= (own ? MOST_ROUNDS : 0) && status == WEFT_OK &&
                            ((!last && !proved) || needs_expected(j, round, hasty));
         round++) {
        bool found = true;
        if (round)
            status = search_round(a, j, &s, round, &p, &proved);
        else
            status = own ? best_rule(a, j, &s, &p, &found) : by_rule(a, j, &s, &p);
        if (status == WEFT_OK && found)
            last = publish(a, j, &s, &p, proved, began) || hasty;
        if (status == WEFT_OK && round && j->errors && !hasty) {
            status = search_expected(a, j, &s);
            last = true;
        }
    }
    weft_cascade_problem_free(&s.problem);
    return status;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *planner_thread(void *user)
{
    weft_cascade_planner *a = user;
    /* The priority of this thread only: the step's work comes first. Not SCHED_IDLE: on busy
     * processors the thread could wait for seconds while it holds the lock, and the step would
     * wait, too. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        job *j = a->job;
        if (!j || j->done) {
            pthread_cond_wait(&a->change, &a->lock);
            continue;
        }
        j->holders++;
        pthread_mutex_unlock(&a->lock);
        const weft_status_code status = search(a, j, j->arena, false);
        pthread_mutex_lock(&a->lock);
        j->status = status;
        if (status != WEFT_OK)
            j->error = weft_error_save();
        j->done = true;
        let_go(j);
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

weft_status weft_cascade_planner_create(const weft_cascade_planner_setup *setup,
                                        weft_cascade_planner **out)
{
    weft_cascade_planner *a;
    WEFT_TRY(WEFT_NEW(a, 1, "the plan of an iteration"));
    a->s = *setup;
    a->is_rank0 = !setup->comm || weft_comm_rank(setup->comm) == 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    a->warned = weft_alloc(setup->buckets + 1);
    weft_status_code status = WEFT_ALLOCATED(a->warned, "the plan of an iteration");
    if (status == WEFT_OK && weft_cascades_planned(setup->config) == WEFT_CASCADES_STATIC)
        status = weft_plans_create(&a->known);
    if (status == WEFT_OK && a->is_rank0) {
        a->running = pthread_create(&a->thread, NULL, planner_thread, a) == 0;
        if (!a->running)
            status = weft_no_memory("the planner's thread");
    }
    if (status == WEFT_OK)
        *out = a;
    else
        weft_cascade_planner_free(a);
    return status;
}

void weft_cascade_planner_free(weft_cascade_planner *a)
{
    if (!a)
        return;
    if (a->running) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        end(a->job);
        pthread_cond_broadcast(&a->change);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    let_go(a->job);
    let_go(a->delivered);
    weft_arena_free(a->arena);
    weft_plans_close(a->known);
    weft_free(a->text);
    weft_free(a->warned);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    weft_free(a);
}

/* ---- the caller's side ---------------------------------------------------------------------- */

weft_status weft_cascade_planner_fix_degree(weft_cascade_planner *a,
                                            const weft_placed_sample *const *list,
                                            const int64_t *count, int iterations)
{
    const weft_policy policy = (weft_policy)a->s.config->policy;
    double best = INFINITY;
    if (!a->is_rank0 || a->s.config->degree ||
        (policy != WEFT_POLICY_STATIC && policy != WEFT_POLICY_ULYSSES &&
         policy != WEFT_POLICY_KNAPFORMER))
        return WEFT_OK;
    for (int64_t k = 1; k <= a->s.ranks; k++) {
        double sum = 0;
        weft_status_code status = WEFT_OK;
        if (a->s.ranks % k || !wanted_degree(a, k) ||
            (policy != WEFT_POLICY_STATIC && a->s.heads % k))
            continue;
        for (int i = 0; i < iterations && status == WEFT_OK; i++) {
            job *j;
            weft_placement p;
            WEFT_TRY(job_create(a, i, list[i], count[i], &j));
            weft_policy_request request = request_of(a, j);
            request.degree = k;
            status = weft_policy_place(policy, &request, j->arena, &p);
            sum += status == WEFT_OK ? p.makespan : (double)INFINITY;
            job_free(j);
        }
        if (status != WEFT_OK && status != WEFT_E_INFEASIBLE)
            return status;
        if (sum < best) {
            best = sum;
            a->degree = k;
        }
    }
    if (a->degree)
        return WEFT_OK;
    const bool heads = policy != WEFT_POLICY_STATIC;
    return weft_error(
        WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.file = a->s.path, .key = "parallel.cascades.degrees"),
        "%s has no degree that divides %s%d ranks and on which all samples fit",
        weft_policy_names[policy], heads ? "the attention's heads and " : "", a->s.ranks);
}

static weft_status not_in_file(const weft_cascade_planner *a, const job *j)
{
    weft_buf sizes = {0};
    for (int64_t i = 0; i < j->samples; i++) {
        char text[64];
        weft_plans_size(&a->s.bucket[j->sample[i].bucket], text);
        weft_buf_printf(&sizes, "%s%s", i ? ", " : "", text);
    }
    const weft_status_code status = weft_error(
        WEFT_MSG_LAYOUT_INVALID,
        WEFT_AT(.file = a->s.path, .key = "parallel.cascades.plan", .value = a->s.config->plan),
        "%s has no plan for the samples of step %" PRId64
        ": %s; plan again (plan: every-iteration)",
        a->s.config->plan, j->step, sizes.data ? sizes.data : "?");
    weft_buf_free(&sizes);
    return status;
}

static weft_status other_modules(const weft_cascade_planner *a, const weft_placed_cascade *c)
{
    return weft_error(
        WEFT_MSG_LAYOUT_INVALID,
        WEFT_AT(.file = a->s.path, .key = "parallel.cascades.plan", .value = a->s.config->plan),
        "%s is of a run in which other modules are cascades: its %s %s. In this run the text "
        "encoders %s cascades and the autoencoder %s one (data.input); plan again (plan: "
        "every-iteration)",
        a->s.config->plan, c->at.id,
        c->module == WEFT_CASCADE_DIT ? "comes after other cascades" : "exists",
        a->s.text ? "are" : "are not", a->s.vae ? "is" : "is not");
}

/* Checks a plan from a file: its modules must be those of this run, and its cascades must fit the
 * memory. */
static weft_status check_replayed(weft_cascade_planner *a, const weft_placed_iteration *p)
{
    const bool there[WEFT_CASCADE_MODULES] = {
        [WEFT_CASCADE_TEXT] = a->s.text, [WEFT_CASCADE_VAE] = a->s.vae, [WEFT_CASCADE_DIT] = true};
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        bool inputs[WEFT_CASCADE_MODULES] = {0};
        double seconds, bytes;
        char text[2][32];
        for (int32_t k = 0; k < c->at.after_count; k++)
            inputs[p->cascade[c->at.after[k]].module] = true;
        if (!there[c->module] ||
            (c->module == WEFT_CASCADE_DIT &&
             (inputs[WEFT_CASCADE_TEXT] != a->s.text || inputs[WEFT_CASCADE_VAE] != a->s.vae)))
            return other_modules(a, c);
        WEFT_TRY(weft_cascade_cost_table_get(a->s.cost_table, c->module,
                                             p->sample[c->sample].bucket, (int)c->at.degree,
                                             &seconds, &bytes));
        if (a->s.memory > 0 && bytes > a->s.memory)
            return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                              WEFT_AT(.file = a->s.path, .key = "parallel.cascades.plan",
                                      .value = a->s.config->plan, WEFT_NUMBER(bytes)),
                              "%s puts %s of step %" PRId64 " on %" PRId64
                              " ranks, where it needs %s of a rank that has %s; "
                              "set parallel.cascades.memory_limit: %.0f, or plan again (plan: "
                              "every-iteration)",
                              a->s.config->plan, c->at.id, p->step, c->at.degree,
                              weft_format_bytes((int64_t)bytes, text[0]),
                              weft_format_bytes((int64_t)a->s.memory, text[1]), ceil(bytes));
    }
    return WEFT_OK;
}

weft_status weft_cascade_planner_start(weft_cascade_planner *a, int64_t step,
                                       const weft_placed_sample *sample, int64_t samples)
{
    job *j;
    const weft_plans *known = a->known ? a->known : a->s.replay;
    if (!a->is_rank0)
        return WEFT_OK;
    WEFT_TRY(job_create(a, step, sample, samples, &j));
    if (known) {
        weft_status_code status =
            weft_plans_find(known, step, j->sample, j->samples, j->arena, &j->plan, &j->replayed);
        if (status == WEFT_OK && a->s.replay)
            status = j->replayed ? check_replayed(a, &j->plan) : not_in_file(a, j);
        if (status != WEFT_OK) {
            job_free(j);
            return status;
        }
        j->there = j->done = j->replayed;
    }
    pthread_mutex_lock(&a->lock);
    end(a->job);
    let_go(a->job);
    a->job = j;
    j->holders++;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
}

/* Converts a placement of the search to a placed iteration. */
static void place_best(job *j, const weft_placement *p, double lower_bound, bool late,
                       weft_placed_iteration *out)
{
    for (int64_t c = 0; c < j->list.count; c++) {
        weft_assigned *at = &j->cascade[c].at;
        at->device = p->devices + p->first[c];
        at->degree = p->first[c + 1] - p->first[c];
        at->start = p->start[c];
        at->seconds = j->list.item[c].option[p->option[c]].seconds;
    }
    *out = (weft_placed_iteration){.step = j->step,
                                   .sample = j->sample,
                                   .samples = j->samples,
                                   .cascade = j->cascade,
                                   .cascades = j->list.count,
                                   .makespan = p->makespan,
                                   .lower_bound = lower_bound,
                                   .late = late};
}

static double idle_of(const weft_placed_iteration *p, int ranks)
{
    double busy = 0;
    for (int64_t c = 0; c < p->cascades; c++)
        busy += p->cascade[c].at.seconds * (double)p->cascade[c].at.degree;
    return p->makespan > 0 ? fmax(0, 1 - busy / (p->makespan * ranks)) : 0;
}

/* Computes the first plan on the caller's thread if the planner thread has none yet. The planner
 * thread has low priority and can lack a processor. */
static weft_status make_haste(weft_cascade_planner *a, job *j)
{
    pthread_mutex_lock(&a->lock);
    const bool ready = j->there || j->done;
    pthread_mutex_unlock(&a->lock);
    if (ready)
        return WEFT_OK;
    j->hasty = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(j->hasty, "the plan of an iteration"));
    const weft_status_code status = search(a, j, j->hasty, true);
    return status == WEFT_OK ? status : weft_error_at(status, WEFT_AT(.file = a->s.path));
}

/* Sets *plan on rank 0 to the best plan so far, at least the first one. */
static weft_status fetch(weft_cascade_planner *a, weft_placed_iteration *plan,
                         weft_planning_stats *stats)
{
    const double began = weft_now();
    if (!a->job || a->job == a->delivered)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "no iteration is being planned");
    job *j = a->job;
    if (!a->s.patient)
        WEFT_TRY(make_haste(a, j));
    pthread_mutex_lock(&a->lock);
    while (a->s.patient && !j->done)
        pthread_cond_wait(&a->change, &a->lock);
    end(j);
    const weft_placement best = j->best;
    *stats = (weft_planning_stats){.seconds = j->seconds,
                                   .busy = j->busy,
                                   .rounds = j->rounds,
                                   .proved = j->proved,
                                   .replayed = j->replayed,
                                   .left_out = j->left_out};
    const double lower_bound = j->lower_bound;
    const bool late = a->s.config->dispatch == WEFT_DISPATCH_LATE && (!j->expected || j->late);
    const weft_status_code status =
        j->there ? WEFT_OK
                 : weft_error_at(weft_error_restore(j->error), WEFT_AT(.file = a->s.path));
    pthread_mutex_unlock(&a->lock);
    WEFT_TRY(status);
    stats->late = weft_now() - began;
    if (j->replayed)
        *plan = j->plan;
    else
        place_best(j, &best, lower_bound, late, plan);
    stats->idle = idle_of(plan, a->s.ranks);
    if (a->known && !j->replayed)
        WEFT_TRY(weft_plans_add(a->known, plan));
    WEFT_TRY(weft_placed_check(plan, a->s.ranks, a->s.path));
    pthread_mutex_lock(&a->lock);
    let_go(a->delivered);
    a->delivered = j;
    j->holders++;
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
}

/* Broadcasts the plan of rank 0 as text. */
static weft_status share(weft_cascade_planner *a, weft_planning_stats *stats)
{
    int64_t bytes = a->text ? (int64_t)strlen(a->text) + 1 : 0;
    WEFT_TRY(weft_comm_broadcast(a->s.comm, &bytes, sizeof bytes, 0));
    if (!a->is_rank0) {
        weft_free(a->text);
        a->text = bytes ? weft_alloc(bytes) : NULL;
        if (bytes && !a->text)
            return no_memory();
    }
    WEFT_TRY(weft_comm_broadcast(a->s.comm, stats, sizeof *stats, 0));
    return bytes ? weft_comm_broadcast(a->s.comm, a->text, bytes, 0) : WEFT_OK;
}

static weft_status parse(weft_cascade_planner *a, weft_placed_iteration *plan)
{
    json_t *line;
    weft_arena_free(a->arena);
    a->arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(a->arena, "the plan of an iteration"));
    WEFT_TRY(weft_json_parse(a->text, (int64_t)strlen(a->text), "the plan of rank 0", &line));
    const weft_status_code status = weft_plans_parse(line, "the plan of rank 0", a->arena, plan);
    json_decref(line);
    return status;
}

weft_status weft_cascade_planner_get(weft_cascade_planner *a, const weft_placed_iteration **out,
                                     weft_planning_stats *stats, const char **text)
{
    static const weft_planning_stats none = {0};
    weft_placed_iteration plan = {0};
    *stats = none;
    if (a->is_rank0) {
        WEFT_TRY(fetch(a, &plan, stats));
        json_t *line = weft_plans_line(&plan, weft_policy_names[a->s.config->policy], stats->idle);
        weft_free(a->text);
        a->text = line ? weft_json_line(line) : NULL;
        json_decref(line);
        WEFT_TRY(WEFT_ALLOCATED(a->text, "the plan of an iteration"));
    }
    if (a->s.comm && weft_comm_ranks(a->s.comm) > 1)
        WEFT_TRY(share(a, stats));
    WEFT_TRY(parse(a, &plan)); /* rank 0 uses the same parsed plan as all ranks */
    weft_placed_iteration *result;
    WEFT_TRY(WEFT_ARENA_NEW(a->arena, result, 1, "the plan of an iteration"));
    *result = plan;
    *out = result;
    *text = a->text;
    return WEFT_OK;
}
