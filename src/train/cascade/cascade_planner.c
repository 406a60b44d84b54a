#include "train/cascade_ahead.h"

#include "base/log.h"
#include "plan/cascade/assign.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_ROUNDS = 12, NICE = 19 };

/* One iteration on its way. */
typedef struct job {
    int holders; /* under the lock: the caller twice at most, and the thread */
    weft_arena *arena;
    int64_t step, samples, left_out;
    weft_placed_sample *sample;
    weft_cascade_list list;
    weft_placed_cascade *cascade; /* [list.count] but for ranks and times */
    int32_t *sample_of;
    double *work;
    bool replayed;             /* `plan` was found, nothing is searched */
    weft_price_errors *errors; /* with objective: expected; the record when it was begun */
    double *slow;              /* [ranks] likewise */
    weft_placed_iteration plan;
    atomic_bool over;  /* no better plan of it will be asked for */
    weft_arena *hasty; /* of a first plan that the caller made; NULL: it needed none */
    /* the thread's; read under the lock: */
    weft_placement best;
    double lower_bound, seconds, busy;
    int64_t rounds;
    bool there, proved, done;
    bool expected; /* `best` is by expected seconds; no makespan replaces it */
    bool late;     /* it may be dispatched late */
    weft_status_code status;
    char error[600];
} job;

struct weft_ahead {
    weft_ahead_setup s;
    bool leader;
    int64_t degree;    /* of equal groups, once it is known */
    weft_plans *known; /* plan: static */
    job *job;          /* that was begun last */
    job *given;        /* that was taken last */
    weft_arena *arena; /* of what was taken last, on other ranks */
    char *text;
    bool *told; /* [buckets] that a sample of it was left out */
    pthread_t thread;
    bool running, stop;
    pthread_mutex_t lock;
    pthread_cond_t change;
};

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for the plan of an iteration");
}

void weft_ahead_cluster(weft_cluster *c, const weft_cascade_config *config, int ranks,
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

weft_sp_method weft_ahead_method(const weft_cascade_config *config, bool ring)
{
    switch (config->policy) {
    case WEFT_POLICY_STATIC: return ring ? WEFT_SP_RING : WEFT_SP_ULYSSES;
    case WEFT_POLICY_ULYSSES:
    case WEFT_POLICY_KNAPFORMER: return WEFT_SP_ULYSSES;
    default: return WEFT_SP_NONE;
    }
}

/* ---- a job: what is to be placed ------------------------------------------------------------ */

static void job_free(job *j)
{
    if (j) {
        weft_arena_free(j->arena);
        weft_arena_free(j->hasty);
    }
    weft_free(j);
}

/* Under the lock. */
static void let_go(job *j)
{
    if (j && --j->holders == 0)
        job_free(j);
}

/* Its search, soon. */
static void end(job *j)
{
    if (j)
        atomic_store(&j->over, true);
}

static bool wanted_degree(const weft_ahead *a, int64_t degree)
{
    const weft_i64_list *list = &a->s.config->degrees;
    for (int64_t i = 0; i < list->count; i++)
        if (list->item[i] == degree)
            return true;
    if (list->count)
        return false;
    /* every one to 8, then those that nodes or halves of the ranks make: the others cost time */
    const int64_t per_node = a->s.cluster->devices;
    return degree <= 8 || degree % per_node == 0 || (degree & (degree - 1)) == 0 ||
           degree == a->s.ranks;
}

/* The degrees of one cascade. */
static weft_status add_options(weft_ahead *a, job *j, weft_cascade_module module, int bucket,
                               weft_cascade *c)
{
    const int64_t widest = module == WEFT_CASCADE_TEXT ? 1 : a->s.ranks;
    const bool heads =
        a->s.config->policy == WEFT_POLICY_ULYSSES || a->s.config->policy == WEFT_POLICY_KNAPFORMER;
    c->option = weft_arena_alloc(j->arena, widest * (int64_t)sizeof *c->option);
    if (!c->option)
        return no_memory();
    for (int64_t k = 1; k <= widest; k++) {
        weft_cascade_option o = {.degree = k};
        if ((k > 1 || module == WEFT_CASCADE_DIT) && !wanted_degree(a, k))
            continue;
        if (heads && module == WEFT_CASCADE_DIT && a->s.heads % k)
            continue;
        WEFT_TRY(
            weft_cascade_prices_get(a->s.prices, module, bucket, (int)k, &o.seconds, &o.bytes));
        if (isfinite(o.seconds))
            c->option[c->option_count++] = o;
    }
    return WEFT_OK;
}

static weft_status add_cascade(weft_ahead *a, job *j, int64_t sample, weft_cascade_module module)
{
    const int64_t at = j->list.count++;
    weft_cascade *c = &j->list.item[at];
    c->id = weft_arena_printf(j->arena, "s%lld.%s", (long long)sample,
                              weft_cascade_module_name(module));
    c->after = weft_arena_alloc(j->arena, 2 * (int64_t)sizeof *c->after);
    if (!c->id || !c->after)
        return no_memory();
    if (module == WEFT_CASCADE_DIT)
        for (int64_t b = at - a->s.text - a->s.vae; b < at; b++)
            c->after[c->after_count++] = (int32_t)b;
    j->sample_of[at] = (int32_t)sample;
    j->cascade[at] = (weft_placed_cascade){
        .at = {.id = c->id, .after = c->after, .after_count = c->after_count},
        .sample = (int32_t)sample,
        .module = module,
        .method =
            module == WEFT_CASCADE_DIT ? weft_ahead_method(a->s.config, a->s.ring) : WEFT_SP_NONE};
    return add_options(a, j, module, j->sample[sample].bucket, c);
}

static weft_status make_list(weft_ahead *a, job *j)
{
    const int64_t most = WEFT_CASCADE_MODULES * j->samples;
    j->list = (weft_cascade_list){
        .item = weft_arena_alloc(j->arena, (most + 1) * (int64_t)sizeof *j->list.item)};
    j->cascade = weft_arena_alloc(j->arena, (most + 1) * (int64_t)sizeof *j->cascade);
    j->sample_of = weft_arena_alloc(j->arena, (most + 1) * (int64_t)sizeof *j->sample_of);
    j->work = weft_arena_alloc(j->arena, (j->samples + 1) * (int64_t)sizeof *j->work);
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

/* ---- samples that fit nowhere --------------------------------------------------------------- */

/* The most that any of a bucket's cascades takes on the degree where it takes least. */
static weft_status least_bytes(weft_ahead *a, int bucket, double *bytes, weft_cascade_module *which)
{
    *bytes = 0;
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        const bool there = m == WEFT_CASCADE_DIT || (m == WEFT_CASCADE_TEXT ? a->s.text : a->s.vae);
        double least = INFINITY;
        for (int k = 1; there && k <= (m == WEFT_CASCADE_TEXT ? 1 : a->s.ranks); k++) {
            double seconds, own;
            if ((k > 1 || m == WEFT_CASCADE_DIT) && !wanted_degree(a, k))
                continue;
            WEFT_TRY(weft_cascade_prices_get(a->s.prices, m, bucket, k, &seconds, &own));
            least = isfinite(seconds) ? fmin(least, own) : least;
        }
        if (there && least > *bytes) {
            *bytes = least;
            *which = m;
        }
    }
    return WEFT_OK;
}

/* What would do is more than what it takes: a process has a few MiB more or less at each start. */
static weft_status refuse(const weft_ahead *a, const weft_placed_sample *s, double least,
                          weft_cascade_module module)
{
    const double mib = 1 << 20, spread = 4;
    char size[64], text[2][32];
    weft_plans_size(&a->s.bucket[s->bucket], size);
    return weft_fail(
        WEFT_E_INFEASIBLE,
        "%s: parallel.cascades: the %s of a sample of %s (clips x frames x height x "
        "width; batch %lld of the stage) fits on no degree: it takes %s on a rank that "
        "has %s. memory: %.0fMiB would do; %s",
        a->s.path, weft_cascade_module_name(module), size, (long long)s->batch,
        weft_format_bytes((int64_t)least, text[0]),
        weft_format_bytes((int64_t)a->s.memory, text[1]), ceil(least / mib + spread),
        a->s.config->unfit == WEFT_UNFIT_REFUSE
            ? "unfit: skip leaves such samples out"
            : "nothing is left of the step once samples that fit nowhere are out of it");
}

/* The one that takes most of those that fit nowhere: its memory would do for all. */
static weft_status refuse_unfit(weft_ahead *a, const job *j)
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

/* Takes those out that fit nowhere, and makes up the weights. */
static weft_status fit(weft_ahead *a, job *j)
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
            if (!a->told[s.bucket]) {
                char size[64], text[32];
                weft_plans_size(&a->s.bucket[s.bucket], size);
                weft_warn("samples of %s fit on no degree and are left out: %s on a rank would do",
                          size, weft_format_bytes((int64_t)least, text));
            }
            a->told[s.bucket] = true;
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
    j->sample = weft_arena_alloc(j->arena, (samples + 1) * (int64_t)sizeof *j->sample);
    if (!j->sample)
        return no_memory();
    j->samples = samples;
    for (int64_t i = 0; i < samples; i++) {
        weft_item *item = NULL;
        j->sample[i] = sample[i];
        if (!sample[i].item)
            continue;
        item = weft_arena_alloc(j->arena, (sample[i].clips + 1) * (int64_t)sizeof *item);
        if (!item)
            return no_memory();
        memcpy(item, sample[i].item, (size_t)sample[i].clips * sizeof *item);
        j->sample[i].item = item;
    }
    return WEFT_OK;
}

/* The record as it is now: the planner's thread reads it while the next iteration adds to it. */
static weft_status copy_record(const weft_ahead *a, job *j)
{
    const int64_t bytes = WEFT_CASCADE_MODULES * (int64_t)sizeof *j->errors;
    if (a->s.config->objective != WEFT_OBJECTIVE_EXPECTED || !a->s.errors ||
        !a->s.errors[WEFT_CASCADE_DIT].count)
        return WEFT_OK;
    j->errors = weft_arena_alloc(j->arena, bytes);
    j->slow = weft_arena_alloc(j->arena, a->s.ranks * (int64_t)sizeof *j->slow);
    if (!j->errors || !j->slow)
        return no_memory();
    memcpy(j->errors, a->s.errors, (size_t)bytes);
    weft_rank_speeds_get(a->s.speeds, j->slow);
    return WEFT_OK;
}

static weft_status job_create(weft_ahead *a, int64_t step, const weft_placed_sample *sample,
                              int64_t samples, job **out)
{
    job *j = weft_alloc(sizeof *j);
    weft_status_code status = j ? WEFT_OK : no_memory();
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

static weft_policy_request request_of(const weft_ahead *a, const job *j)
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

/* What is left to gain is less than what costs are known by: searching on would take more from the
 * ranks that share the planner's processor. A search on its way goes on to half of it. */
static const double enough = 0.005;

/* What all rounds of a search share. */
typedef struct searching {
    weft_arena *arena;              /* for what is found */
    weft_cascade_schedule schedule; /* of the last round */
    weft_cascade_problem problem;
    weft_cascade_bound bound;
} searching;

static weft_status search_begin(const weft_ahead *a, const job *j, weft_arena *arena, searching *s)
{
    *s = (searching){.arena = arena};
    WEFT_TRY(weft_cascade_problem_create(&j->list, a->s.ranks, a->s.memory, &s->problem));
    /* prices are those of groups that lie together */
    s->problem.per_node = a->s.cluster->nodes > 1 ? a->s.cluster->devices : 0;
    s->problem.by_producers = a->s.config->inter;
    return WEFT_OK;
}

static bool is_over(void *user)
{
    job *j = user;
    return atomic_load(&j->over);
}

/* Round 1 searches a little; each other one is a search of its own. */
static weft_status search_round(const weft_ahead *a, job *j, searching *s, int64_t round,
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
    const weft_assign_options place = {a->s.config->inner, a->s.config->inter};
    weft_cascade_result result;
    int32_t *first, *devices;
    WEFT_TRY(weft_cascade_solve(&s->problem, &search, s->arena, &result));
    WEFT_TRY(weft_assign(&s->problem, &result.schedule, a->s.cluster, place, s->arena, &first,
                         &devices));
    if (result.bound.value > s->bound.value)
        s->bound = result.bound;
    *proved = result.proved;
    s->schedule = result.schedule;
    return weft_placement_of(&s->problem, &result.schedule, first, devices, s->arena, out);
}

static weft_status by_rule(const weft_ahead *a, const job *j, searching *s, weft_placement *out)
{
    const weft_policy_request request = request_of(a, j);
    WEFT_TRY(weft_policy_place((weft_policy)a->s.config->policy, &request, s->arena, out));
    return weft_cascade_lower_bound(&s->problem, out->makespan, &s->bound);
}

/* The shortest plan of all rules: the first that there is, in little time, and none of theirs is
 * shorter than what a step gets. Their groups lie one behind the other, so on several nodes they
 * would lie across, where prices are others. *found false: no rule has one. */
static weft_status best_rule(const weft_ahead *a, const job *j, searching *s, weft_placement *out,
                             bool *found)
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

/* True: no more is asked for, or little is left to gain. */
static bool publish(weft_ahead *a, job *j, const searching *s, const weft_placement *p, bool proved,
                    clocks began)
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

/* The search for expected seconds begins with the first round's schedule. */
static bool needs_expected(const job *j, int64_t round, bool hasty)
{
    return j->errors && round == 1 && !hasty;
}

/* What an iteration with the record's errors takes, by planned ranks and by late dispatch. */
typedef struct prospects {
    bool *trains;
    weft_dispatch_hand *hand;
    double *factor;
    weft_expect_setup setup;
} prospects;

static weft_status make_prospects(const weft_ahead *a, job *j, searching *s, prospects *p)
{
    enum { SCENARIOS = 16 };
    const int64_t n = j->list.count;
    const weft_price_errors **of = weft_arena_alloc(s->arena, n * (int64_t)sizeof(void *));
    p->trains = weft_arena_alloc(s->arena, n);
    p->hand = weft_arena_alloc(s->arena, n * (int64_t)sizeof *p->hand);
    p->factor = weft_arena_alloc(s->arena, SCENARIOS * n * (int64_t)sizeof *p->factor);
    if (!of || !p->trains || !p->hand || !p->factor)
        return no_memory();
    for (int64_t c = 0; c < n; c++) {
        p->trains[c] = j->cascade[c].module == WEFT_CASCADE_DIT;
        p->hand[c] = p->trains[c] && a->s.hand ? a->s.hand[j->sample[j->sample_of[c]].bucket]
                                               : (weft_dispatch_hand){0};
        of[c] = &j->errors[j->cascade[c].module];
    }
    p->setup = (weft_expect_setup){.list = &j->list,
                                   .problem = &s->problem,
                                   .cluster = a->s.cluster,
                                   .place = {a->s.config->inner, a->s.config->inter},
                                   .scenarios = SCENARIOS,
                                   .factor = p->factor,
                                   .slow = j->slow,
                                   .trains = p->trains,
                                   .hand = p->hand,
                                   .sums = a->s.sums,
                                   .seed = weft_seed_mix(a->s.seed, (uint64_t)j->step),
                                   .stop = is_over,
                                   .user = j};
    return weft_price_errors_draw(of, n, SCENARIOS, p->setup.seed, p->factor);
}

/* Replaces the best plan by that of least expected seconds, after each of some searches: the step
 * may ask for it at any time. */
static weft_status search_expected(weft_ahead *a, job *j, searching *s)
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
        /* late dispatch gives up planned ranks: not for what the scenarios cannot tell */
        value *= p.setup.late ? 1 + enough : 1;
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

/* `hasty`: for a first plan. */
static weft_status search(weft_ahead *a, job *j, weft_arena *arena, bool hasty)
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

static void *plan_ahead(void *user)
{
    weft_ahead *a = user;
    /* Of this thread only: the step's own work comes first. Not SCHED_IDLE: on processors that
     * others fill it would wait for seconds with the lock in its hands, and the step for it. */
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
            snprintf(j->error, sizeof j->error, "%s", weft_error_message());
        j->done = true;
        let_go(j);
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

weft_status weft_ahead_create(const weft_ahead_setup *setup, weft_ahead **out)
{
    weft_ahead *a = weft_alloc(sizeof *a);
    if (!a)
        return no_memory();
    a->s = *setup;
    a->leader = !setup->comm || weft_comm_rank(setup->comm) == 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    a->told = weft_alloc(setup->buckets + 1);
    weft_status_code status = a->told ? WEFT_OK : no_memory();
    if (status == WEFT_OK && weft_cascades_planned(setup->config) == WEFT_CASCADES_STATIC)
        status = weft_plans_create(&a->known);
    if (status == WEFT_OK && a->leader) {
        a->running = pthread_create(&a->thread, NULL, plan_ahead, a) == 0;
        if (!a->running)
            status = weft_fail(WEFT_E_MEMORY, "cannot start the planner's thread");
    }
    if (status == WEFT_OK)
        *out = a;
    else
        weft_ahead_free(a);
    return status;
}

void weft_ahead_free(weft_ahead *a)
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
    let_go(a->given);
    weft_arena_free(a->arena);
    weft_plans_close(a->known);
    weft_free(a->text);
    weft_free(a->told);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    weft_free(a);
}

/* ---- the caller's side ---------------------------------------------------------------------- */

weft_status weft_ahead_settle(weft_ahead *a, const weft_placed_sample *const *list,
                              const int64_t *count, int iterations)
{
    const weft_policy policy = (weft_policy)a->s.config->policy;
    double best = INFINITY;
    if (!a->leader || a->s.config->degree ||
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
    return weft_fail(WEFT_E_INFEASIBLE,
                     "%s: parallel.cascades.degrees: %s has none that divides %s%d ranks and on "
                     "which all samples fit",
                     a->s.path, weft_policy_names[policy],
                     heads ? "the attention's heads and " : "", a->s.ranks);
}

static weft_status not_in_file(const weft_ahead *a, const job *j)
{
    weft_buf sizes = {0};
    for (int64_t i = 0; i < j->samples; i++) {
        char text[64];
        weft_plans_size(&a->s.bucket[j->sample[i].bucket], text);
        weft_buf_printf(&sizes, "%s%s", i ? ", " : "", text);
    }
    const weft_status_code status =
        weft_fail(WEFT_E_CONFIG,
                  "%s: parallel.cascades.plan: %s has no plan for the samples of step %lld: %s; "
                  "plan again (plan: every-iteration)",
                  a->s.path, a->s.config->plan, (long long)j->step, sizes.data ? sizes.data : "?");
    weft_buf_free(&sizes);
    return status;
}

static weft_status other_modules(const weft_ahead *a, const weft_placed_cascade *c)
{
    return weft_fail(WEFT_E_CONFIG,
                     "%s: parallel.cascades.plan: %s is of a run in which other modules are "
                     "cascades: its %s %s, and here the text encoders %s and the autoencoder %s "
                     "(data.samples_from); plan again (plan: every-iteration)",
                     a->s.path, a->s.config->plan, c->at.id,
                     c->module == WEFT_CASCADE_DIT ? "comes after other cascades" : "is there",
                     a->s.text ? "are" : "are not", a->s.vae ? "is" : "is not");
}

/* A plan from a file says what this run's cascades would, and passes its memory nowhere. */
static weft_status check_replayed(weft_ahead *a, const weft_placed_iteration *p)
{
    const bool there[WEFT_CASCADE_MODULES] = {
        [WEFT_CASCADE_TEXT] = a->s.text, [WEFT_CASCADE_VAE] = a->s.vae, [WEFT_CASCADE_DIT] = true};
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        bool handed[WEFT_CASCADE_MODULES] = {0};
        double seconds, bytes;
        char text[2][32];
        for (int32_t k = 0; k < c->at.after_count; k++)
            handed[p->cascade[c->at.after[k]].module] = true;
        if (!there[c->module] ||
            (c->module == WEFT_CASCADE_DIT &&
             (handed[WEFT_CASCADE_TEXT] != a->s.text || handed[WEFT_CASCADE_VAE] != a->s.vae)))
            return other_modules(a, c);
        WEFT_TRY(weft_cascade_prices_get(a->s.prices, c->module, p->sample[c->sample].bucket,
                                         (int)c->at.degree, &seconds, &bytes));
        if (a->s.memory > 0 && bytes > a->s.memory)
            return weft_fail(WEFT_E_INFEASIBLE,
                             "%s: parallel.cascades.plan: %s puts %s of step %lld on %lld ranks, "
                             "where it takes %s of a rank that has %s; give memory: %.0f, or plan "
                             "again (plan: every-iteration)",
                             a->s.path, a->s.config->plan, c->at.id, (long long)p->step,
                             (long long)c->at.degree, weft_format_bytes((int64_t)bytes, text[0]),
                             weft_format_bytes((int64_t)a->s.memory, text[1]), ceil(bytes));
    }
    return WEFT_OK;
}

weft_status weft_ahead_look(weft_ahead *a, int64_t step, const weft_placed_sample *sample,
                            int64_t samples)
{
    job *j;
    const weft_plans *known = a->known ? a->known : a->s.replay;
    if (!a->leader)
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

/* The best that the thread has, into cascades. */
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

/* Where the thread has no plan yet this one makes the first: the thread's priority is low, and its
 * processor may be another's. */
static weft_status make_haste(weft_ahead *a, job *j)
{
    pthread_mutex_lock(&a->lock);
    const bool ready = j->there || j->done;
    pthread_mutex_unlock(&a->lock);
    if (ready)
        return WEFT_OK;
    j->hasty = weft_arena_create();
    if (!j->hasty)
        return no_memory();
    const weft_status_code status = search(a, j, j->hasty, true);
    return status == WEFT_OK ? status : weft_fail_context(status, "%s", a->s.path);
}

/* On rank 0: the best that there is, the first plan at least. */
static weft_status fetch(weft_ahead *a, weft_placed_iteration *plan, weft_ahead_news *news)
{
    const double began = weft_now();
    if (!a->job || a->job == a->given)
        return weft_fail(WEFT_E_INTERNAL, "no iteration is being planned");
    job *j = a->job;
    if (!a->s.patient)
        WEFT_TRY(make_haste(a, j));
    pthread_mutex_lock(&a->lock);
    while (a->s.patient && !j->done)
        pthread_cond_wait(&a->change, &a->lock);
    end(j);
    const weft_placement best = j->best;
    *news = (weft_ahead_news){.seconds = j->seconds,
                              .busy = j->busy,
                              .rounds = j->rounds,
                              .proved = j->proved,
                              .replayed = j->replayed,
                              .left_out = j->left_out};
    const double lower_bound = j->lower_bound;
    const bool late = a->s.config->dispatch == WEFT_DISPATCH_LATE && (!j->expected || j->late);
    const weft_status_code status =
        j->there ? WEFT_OK : weft_fail(j->status, "%s: %s", a->s.path, j->error);
    pthread_mutex_unlock(&a->lock);
    WEFT_TRY(status);
    news->late = weft_now() - began;
    if (j->replayed)
        *plan = j->plan;
    else
        place_best(j, &best, lower_bound, late, plan);
    news->idle = idle_of(plan, a->s.ranks);
    if (a->known && !j->replayed)
        WEFT_TRY(weft_plans_add(a->known, plan));
    WEFT_TRY(weft_placed_check(plan, a->s.ranks, a->s.path));
    pthread_mutex_lock(&a->lock);
    let_go(a->given);
    a->given = j;
    j->holders++;
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
}

/* As text from rank 0; a failure there is one everywhere. */
static weft_status share(weft_ahead *a, weft_ahead_news *news)
{
    int64_t bytes = a->text ? (int64_t)strlen(a->text) + 1 : 0;
    WEFT_TRY(weft_comm_broadcast(a->s.comm, &bytes, sizeof bytes, 0));
    if (!a->leader) {
        weft_free(a->text);
        a->text = bytes ? weft_alloc(bytes) : NULL;
        if (bytes && !a->text)
            return no_memory();
    }
    WEFT_TRY(weft_comm_broadcast(a->s.comm, news, sizeof *news, 0));
    return bytes ? weft_comm_broadcast(a->s.comm, a->text, bytes, 0) : WEFT_OK;
}

static weft_status parse(weft_ahead *a, weft_placed_iteration *plan)
{
    json_t *line;
    weft_arena_free(a->arena);
    a->arena = weft_arena_create();
    if (!a->arena)
        return no_memory();
    WEFT_TRY(weft_json_parse(a->text, (int64_t)strlen(a->text), "the plan of rank 0", &line));
    const weft_status_code status = weft_plans_parse(line, "the plan of rank 0", a->arena, plan);
    json_decref(line);
    return status;
}

weft_status weft_ahead_take(weft_ahead *a, const weft_placed_iteration **out, weft_ahead_news *news,
                            const char **text)
{
    static const weft_ahead_news none = {0};
    weft_placed_iteration plan = {0};
    *news = none;
    if (a->leader) {
        WEFT_TRY(fetch(a, &plan, news));
        json_t *line = weft_plans_line(&plan, weft_policy_names[a->s.config->policy], news->idle);
        weft_free(a->text);
        a->text = line ? weft_json_line(line) : NULL;
        json_decref(line);
        if (!a->text)
            return no_memory();
    }
    if (a->s.comm && weft_comm_ranks(a->s.comm) > 1)
        WEFT_TRY(share(a, news));
    WEFT_TRY(parse(a, &plan)); /* what all ranks have, rank 0 has too */
    weft_placed_iteration *kept = weft_arena_alloc(a->arena, sizeof *kept);
    if (!kept)
        return no_memory();
    *kept = plan;
    *out = kept;
    *text = a->text;
    return WEFT_OK;
}
