#include "train/cascade/cascade_planner.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "train/cascade/cascade_planner_internal.h"
#include "train/cascade/planning_job.h"
#include "train/cascade/planning_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NICE = 19 };

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
        weft_planning_job *j = a->job;
        if (!j || j->found.done) {
            pthread_cond_wait(&a->change, &a->lock);
            continue;
        }
        j->holders++;
        pthread_mutex_unlock(&a->lock);
        const weft_status_code status = weft_planning_search(a, j, j->arena, false);
        pthread_mutex_lock(&a->lock);
        j->found.status = status;
        if (status != WEFT_OK)
            j->found.error = weft_error_save();
        j->found.done = true;
        weft_planning_job_release(j);
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
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(a->warned, "the plan of an iteration"));
    if (weft_cascades_planned(setup->config) == WEFT_CASCADES_STATIC)
        WEFT_GO(weft_plans_create(&a->known));
    if (a->is_rank0) {
        a->running = pthread_create(&a->thread, NULL, planner_thread, a) == 0;
        if (!a->running)
            WEFT_GO(weft_no_memory("the planner's thread"));
    }
    *out = a;
    return WEFT_OK;
out:
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
        weft_planning_job_end(a->job);
        pthread_cond_broadcast(&a->change);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    weft_planning_job_release(a->job);
    weft_planning_job_release(a->delivered);
    weft_arena_free(a->arena);
    weft_plans_close(a->known);
    weft_free(a->text);
    weft_free(a->warned);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    weft_free(a);
}

/* ---- the caller's side ---------------------------------------------------------------------- */

static weft_status sum_makespans(weft_cascade_planner *a, int64_t degree,
                                 const weft_placed_sample *const *list, const int64_t *count,
                                 int iterations, double *sum)
{
    *sum = 0;
    for (int i = 0; i < iterations; i++) {
        weft_planning_job *j;
        weft_placement p;
        WEFT_TRY(weft_planning_job_create(a, i, list[i], count[i], &j));
        weft_policy_request request = weft_planning_request(a, j);
        request.degree = degree;
        const weft_status_code status =
            weft_policy_place((weft_policy)a->s.config->policy, &request, j->arena, &p);
        weft_planning_job_free(j);
        WEFT_TRY(status);
        *sum += p.makespan;
    }
    return WEFT_OK;
}

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
        double sum;
        if (a->s.ranks % k || !weft_planning_wants_degree(a, k) ||
            (policy != WEFT_POLICY_STATIC && a->s.heads % k))
            continue;
        const weft_status_code status = sum_makespans(a, k, list, count, iterations, &sum);
        if (status == WEFT_E_INFEASIBLE)
            continue;
        WEFT_TRY(status);
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

static weft_status not_in_file(const weft_cascade_planner *a, const weft_planning_job *j)
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

void weft_cascade_planner_set_before(weft_cascade_planner *a, const weft_placed_iteration *before)
{
    a->before = before;
}

/* True: a plan for reuse would encode samples again that the iteration before encodes. */
static bool encodes_again(const weft_cascade_planner *a, const weft_placed_iteration *p)
{
    for (int64_t c = 0; c < p->cascades && a->before && a->known; c++) {
        const weft_placed_sample *s = &p->sample[p->cascade[c].sample];
        if (!s->ahead && !p->cascade[c].kept &&
            weft_placed_ahead(a->before, s->batch, p->cascade[c].module))
            return true;
    }
    return false;
}

weft_status weft_cascade_planner_start(weft_cascade_planner *a, int64_t step,
                                       const weft_placed_sample *sample, int64_t samples)
{
    weft_planning_job *j;
    const weft_plans *known = a->known ? a->known : a->s.replay;
    if (!a->is_rank0)
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_planning_job_create(a, step, sample, samples, &j));
    if (known) {
        WEFT_GO(
            weft_plans_find(known, step, j->sample, j->samples, j->arena, &j->plan, &j->replayed));
        j->replayed = j->replayed && !encodes_again(a, &j->plan);
        if (a->s.replay)
            WEFT_GO(j->replayed ? check_replayed(a, &j->plan) : not_in_file(a, j));
        j->found.there = j->found.done = j->replayed;
    }
    pthread_mutex_lock(&a->lock);
    weft_planning_job_end(a->job);
    weft_planning_job_release(a->job);
    a->job = j;
    j->holders++;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return WEFT_OK;
out:
    weft_planning_job_free(j);
    return status;
}

/* Converts a placement of the search to a placed iteration. */
static void place_best(weft_planning_job *j, const weft_planning_result *found,
                       weft_placed_iteration *out)
{
    const weft_placement *p = &found->best;
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
                                   .cascades = j->list.count + j->kept,
                                   .makespan = p->makespan,
                                   .lower_bound = found->lower_bound,
                                   .late = found->late,
                                   .search = found->search};
}

/* Moves kept cascades to the ranks that have their rows. Rows of no rank, after a resume, are
 * encoded on the ranks of a replayed plan. */
static weft_status place_kept(const weft_cascade_planner *a, weft_arena *arena,
                              weft_placed_iteration *plan)
{
    weft_placed_cascade *cascade;
    const int64_t kept = weft_placed_scheduled(plan); /* the first one */
    if (kept == plan->cascades || !a->before)
        return WEFT_OK;
    WEFT_TRY(WEFT_ARENA_NEW(arena, cascade, plan->cascades, "the plan of an iteration"));
    memcpy(cascade, plan->cascade, (size_t)plan->cascades * sizeof *cascade);
    plan->cascade = cascade; /* a replayed plan shares its cascades with the list of plans */
    for (int64_t c = kept; c < plan->cascades; c++) {
        const weft_placed_cascade *from =
            weft_placed_ahead(a->before, plan->sample[cascade[c].sample].batch, cascade[c].module);
        int32_t *device;
        if (!from)
            continue;
        WEFT_TRY(WEFT_ARENA_NEW(arena, device, from->at.degree, "the plan of an iteration"));
        memcpy(device, from->at.device, (size_t)from->at.degree * sizeof *device);
        cascade[c].at.device = device;
        cascade[c].at.degree = from->at.degree;
    }
    return WEFT_OK;
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
static weft_status make_haste(weft_cascade_planner *a, weft_planning_job *j)
{
    pthread_mutex_lock(&a->lock);
    const bool ready = j->found.there || j->found.done;
    pthread_mutex_unlock(&a->lock);
    if (ready)
        return WEFT_OK;
    return weft_error_at(weft_planning_search(a, j, j->callers, true), WEFT_AT(.file = a->s.path));
}

/* Sets *plan on rank 0 to the best plan so far, at least the first one. */
static weft_status fetch(weft_cascade_planner *a, weft_placed_iteration *plan,
                         weft_planning_stats *stats)
{
    const double began = weft_now();
    if (!a->job || a->job == a->delivered)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "no iteration is being planned");
    weft_planning_job *j = a->job;
    if (!a->s.patient)
        WEFT_TRY(make_haste(a, j));
    pthread_mutex_lock(&a->lock);
    while (a->s.patient && !j->found.done)
        pthread_cond_wait(&a->change, &a->lock);
    weft_planning_job_end(j);
    weft_planning_result found = j->found;
    *stats = (weft_planning_stats){.seconds = j->found.seconds,
                                   .busy = j->found.busy,
                                   .rounds = j->found.rounds,
                                   .proved = j->found.proved,
                                   .replayed = j->replayed,
                                   .left_out = j->left_out};
    found.late = weft_cascades_move(a->s.config) && (!found.expected || found.late);
    found.search = found.late && a->s.config->dispatch == WEFT_DISPATCH_SEARCH &&
                   (!found.expected || found.search);
    const weft_status_code status =
        j->found.there
            ? WEFT_OK
            : weft_error_at(weft_error_restore(j->found.error), WEFT_AT(.file = a->s.path));
    pthread_mutex_unlock(&a->lock);
    WEFT_TRY(status);
    stats->late = weft_now() - began;
    if (j->replayed)
        *plan = j->plan;
    else
        place_best(j, &found, plan);
    WEFT_TRY(place_kept(a, j->callers, plan));
    stats->idle = idle_of(plan, a->s.ranks);
    if (a->known && !j->replayed)
        WEFT_TRY(weft_plans_add(a->known, plan));
    WEFT_TRY(weft_placed_check(plan, a->s.ranks, a->s.path));
    pthread_mutex_lock(&a->lock);
    weft_planning_job_release(a->delivered);
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
