/* Iterations of cascades executed on modelled clocks, beside their plans: HunyuanVideo 13B on H100 nodes, Arachne's three
 * stages, weft's plans and four baselines through the same executor (docs/cascades.md).
 *
 *     bench/cascades [NODES [STAGE [ITERATIONS [LINKS [POLICIES]]]]]
 *
 * LINKS: "fast" (NVLink, 400 Gbit/s a rank) or "slow" (10 Gbit/s); POLICIES: "all", "weft" or "robust".
 *
 * "robust" compares plans under price errors. Every cascade takes 1 to 1 + JITTER times its seconds, the same for all
 * policies, and in two cases a rank takes 1.5 times as long. weft's plans are executed as planned, and as plans of shortest
 * expected time with late dispatch, which see the errors of their own earlier iterations only. Degrees 3, 6 and 12 and every
 * fourth shape are held out: they are priced from the others, as in `weft train`.
 *
 * Each rank is a thread with a device and a clock of its own; programs, groups, hand-offs and collectives are those of a run,
 * messages move the clocks. The transformer has a tenth of its blocks (2 double, 4 single of 20 and 40) and encoders a tenth
 * of their seconds, so that graphs are compiled in a tenth of the time; planned and executed are of the same. A cascade's
 * seconds are profiled first: every size and degree once, alone. Of what is handed on there is a tenth, too.
 *
 * Printed: means over the iterations in modelled seconds (of the whole model: ten times), the largest and mean deviation of
 * executed from planned makespans, idle shares, and the executor's own time: seconds of this machine's processor in the rank
 * that took most, of the iteration's modelled ones. Sums of gradients are profiled like a cascade, and what the plans say
 * that they end behind the last cascade stands beside what they did. */
#include "base/rng.h"
#include "cli/plan_models.h"
#include "kernel/virtual/virtual.h"
#include "model/family.h"
#include "model/model.h"
#include "plan/cascade/expect.h"
#include "runtime/comm.h"
#include "train/cascade_run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 1.5;
enum { MOST_RANKS = 64, MOST_CASCADES = 256, MOST_BUCKETS = 16, FOLD = 10 };

static const char folded[] =
    "{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_layers\":2,\"num_single_layers\":4}";

static void check(weft_status_code status)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "%s\n", weft_error_message());
    exit(1);
}

/* What all threads see. The main one plans between two turns at the barrier. */
static struct {
    int ranks, buckets;
    weft_bucket size[MOST_BUCKETS]; /* in pixels */
    double between;                 /* bytes per second of a rank to another node */
    bool hold;                      /* degrees and shapes are held out */
    weft_model model;
    weft_cluster cluster;
    weft_virtual_rates rates;
    pthread_barrier_t turn;
    const weft_placed_iteration *plan; /* NULL: the end */
    double encode[MOST_CASCADES];      /* modelled seconds of an encoder on its slowest rank */
    double factor[MOST_CASCADES];      /* of each cascade's seconds; 0: 1 */
    int slow;                          /* a rank that takes 1.5 times as long; -1: none */
    double begin;                      /* of the iteration on all clocks, which only go forward */
    double known_slow[MOST_RANKS];     /* as measured */
    const weft_placed_iteration *executed;
    double *clock[MOST_RANKS];
    weft_cascade_done done[MOST_RANKS][MOST_CASCADES];
    weft_iteration_done of[MOST_RANKS]; /* of the iteration, without its cascades */
    int64_t made[MOST_RANKS];           /* programs that a rank compiled meanwhile */
} all;

typedef struct rank {
    int index;
    weft_comm *comm;
    double clock, factor; /* factor: of kernels' seconds */
    weft_backend *backend;
    double slow[MOST_RANKS]; /* rank 0: as the dispatcher has it */
} rank;

/* ---- what the executor asks ----------------------------------------------------------------- */

static weft_status make_graph(void *user, int bucket, weft_graph **out)
{
    const weft_bucket *b = &all.size[bucket];
    weft_model_size size = {.batch = b->batch,
                            .frames = (b->frames - 1) / 4 + 1,
                            .height = (b->height + 15) / 16 * 2,
                            .width = (b->width + 15) / 16 * 2,
                            .text = 256};
    const weft_family *f = all.model.family;
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    (void)user;
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int i = 0; i < f->ports; i++)
        if (!f->port[i].output && weft_model_takes(&all.model, f->port[i].port) &&
            !f->port[i].optional)
            p.at[f->port[i].port] =
                weft_model_input(g, &all.model, &size, f->port[i].port, "batch.");
    weft_model_call(g, &all.model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    const weft_value y = p.at[WEFT_PORT_PREDICTION];
    const weft_value target = weft_input(g, "batch.target", WEFT_F32, weft_value_get(g, y)->shape);
    weft_output(g, "objective",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))));
    *out = g;
    return weft_graph_check(g);
}

/* Of a cascade on a rank. */
static double factor_of(const rank *r, int32_t index)
{
    return (all.factor[index] > 0 ? all.factor[index] : 1) * (r->index == all.slow ? SLOW : 1);
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step, const weft_handed handed[WEFT_CASCADE_MODULES])
{
    rank *r = user;
    (void)plan, (void)step, (void)handed;
    r->factor = factor_of(r, index);
    return WEFT_OK;
}

/* A tenth of a clip's latents in bf16. */
static weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module)
{
    const weft_bucket *b = &all.size[bucket];
    (void)user;
    return module == WEFT_CASCADE_VAE
               ? (weft_cascade_row){(b->frames - 1) / 4 + 1,
                                    (b->height / 8) * (b->width / 8) * 16 / 2 / FOLD, 1}
               : (weft_cascade_row){1, 256 * 4096 / 2 / FOLD, 1};
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group, float *rows)
{
    rank *r = user;
    (void)plan, (void)share, (void)group, (void)rows;
    r->clock += all.encode[index] * factor_of(r, index);
    return WEFT_OK;
}

/* ---- a rank --------------------------------------------------------------------------------- */

/* Kernels only move clocks here, who waits sleeps, and exchanges have a thread of their own: what is
 * left of a rank's thread is the executor. */
static void iterate(rank *r, weft_cascade_run *run)
{
    weft_iteration_done done = {.cascade = all.done[r->index]};
    const int64_t made = weft_cascade_run_counts(run).made;
    r->clock = all.begin;
    r->factor = 1;
    memcpy(r->slow, all.known_slow, sizeof r->slow);
    check(weft_cascade_run_iteration(run, all.plan, &done));
    if (r->index == 0)
        all.executed = weft_cascade_run_executed(run);
    all.of[r->index] = done;
    all.made[r->index] = weft_cascade_run_counts(run).made - made;
}

static void *run_rank(void *user)
{
    rank *r = user;
    weft_virtual_rates rates = all.rates;
    weft_cascade_run *run;
    int64_t clips[MOST_BUCKETS];
    const weft_optimizer_config adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1};
    for (int b = 0; b < all.buckets; b++)
        clips[b] = all.size[b].batch;
    rates.clock = &r->clock;
    rates.factor = &r->factor;
    r->factor = 1;
    rates.scale = 1;
    check(weft_backend_virtual_create(&rates, &r->backend));
    weft_store *store = weft_store_create_on(r->backend->device);
    const weft_place_of_run place = {.comm = r->comm,
                                     .backend = r->backend,
                                     .mesh = {.axis_count = 1, .axis = {{"dp", all.ranks}}},
                                     .recipes = all.model.family->recipe,
                                     .recipe_count = all.model.family->recipes};
    const weft_cascade_setup setup = {.comm = r->comm,
                                      .store = store,
                                      .place = &place,
                                      .optimizer = &adamw,
                                      .context = WEFT_SP_ULYSSES,
                                      .late_dispatch = true,
                                      .buckets = all.buckets,
                                      .clips = clips,
                                      .calls = {r, make_graph, fill, row_of, encode}};
    weft_comm_set_deadline(r->comm, 3600);
    check(weft_cascade_run_create(&setup, &run));
    weft_cascade_run_nodes(run, (int)all.cluster.devices, r->slow);
    for (;;) {
        pthread_barrier_wait(&all.turn);
        if (!all.plan)
            break;
        iterate(r, run);
        pthread_barrier_wait(&all.turn);
    }
    weft_cascade_run_free(run);
    weft_store_free(store);
    weft_backend_virtual_free(r->backend);
    return NULL;
}

/* ---- one iteration by all ------------------------------------------------------------------- */

typedef struct executed {
    double makespan, idle;
    /* Seconds of this machine's processor, of the rank that took most; of them in launching and in
     * taking programs. */
    double own, running, taking;
    double exposed; /* of the sums of gradients, behind the last cascade */
    int64_t made;   /* programs that were compiled in them */
} executed;

static executed execute(const weft_placed_iteration *plan)
{
    executed e = {0};
    double busy = 0;
    for (int r = 0; r < all.ranks; r++)
        all.begin = fmax(all.begin, *all.clock[r]);
    all.plan = plan;
    pthread_barrier_wait(&all.turn);
    pthread_barrier_wait(&all.turn);
    plan = all.executed;
    for (int64_t c = 0; c < plan->cascades; c++) {
        double start = 0, end = 0;
        for (int64_t i = 0; i < plan->cascade[c].at.degree; i++) {
            const weft_cascade_done *d = &all.done[plan->cascade[c].at.device[i]][c];
            start = fmax(start, d->start);
            end = fmax(end, d->end);
        }
        busy += (end - start) * (double)plan->cascade[c].at.degree;
        e.makespan = fmax(e.makespan, end);
    }
    for (int r = 0; r < all.ranks; r++) {
        const weft_iteration_done *d = &all.of[r];
        if (d->own > e.own) {
            e.own = d->own;
            e.running = d->running;
            e.taking = d->taking;
        }
        e.exposed = fmax(e.exposed, d->summed - e.makespan);
        e.made += all.made[r];
    }
    e.idle = 1 - busy / (e.makespan * all.ranks);
    return e;
}

/* ---- plans ---------------------------------------------------------------------------------- */

typedef struct planner {
    weft_arena *arena;
    weft_cascade_costs costs;
    weft_model_work work;
    double seconds[3][MOST_BUCKETS][MOST_RANKS + 1]; /* of a DiT by method, profiled; 0: not yet */
    double told[3][MOST_BUCKETS][MOST_RANKS + 1];    /* by the model's counts */
    /* Of the sums of gradients: in all, as the shortest backwards leave them, and what is left
     * behind the longest. INFINITY: not yet. */
    double sums, last_sum;
} planner;

static int bucket_of(const weft_plan_bucket *b)
{
    for (int i = 0; i < all.buckets; i++)
        if (all.size[i].frames == b->frames && all.size[i].height == b->height &&
            all.size[i].batch == b->batch)
            return i;
    return -1;
}

/* `item` by list, first, devices: as the executor takes it. */
static void place(const weft_placement *p, const weft_cascade_list *list, const int32_t *sample_of,
                  const weft_workload *w, weft_sp_method method, weft_arena *arena,
                  weft_placed_iteration *out)
{
    *out = (weft_placed_iteration){
        .samples = w->count, .cascades = list->count, .makespan = p->makespan};
    out->sample = weft_arena_alloc(arena, w->count * (int64_t)sizeof *out->sample);
    out->cascade = weft_arena_alloc(arena, list->count * (int64_t)sizeof *out->cascade);
    for (int64_t s = 0; s < w->count; s++)
        out->sample[s] = (weft_placed_sample){.bucket = bucket_of(&w->bucket[s]),
                                              .clips = w->bucket[s].batch,
                                              .weight = 1.0 / (double)w->count};
    for (int64_t c = 0; c < list->count; c++) {
        const weft_cascade *item = &list->item[c];
        const char *module = strchr(item->id, '.') + 1;
        out->cascade[c] =
            (weft_placed_cascade){.at = {.id = item->id,
                                         .device = p->devices + p->first[c],
                                         .degree = p->first[c + 1] - p->first[c],
                                         .start = p->start[c],
                                         .seconds = item->option[p->option[c]].seconds,
                                         .after = item->after,
                                         .after_count = item->after_count},
                                  .sample = sample_of[c],
                                  .module = !strcmp(module, "dit")   ? WEFT_CASCADE_DIT
                                            : !strcmp(module, "vae") ? WEFT_CASCADE_VAE
                                                                     : WEFT_CASCADE_TEXT,
                                  .method = strcmp(module, "dit") ? WEFT_SP_NONE : method};
        all.encode[c] = out->cascade[c].at.seconds;
    }
    check(weft_placed_check(out, all.ranks, "bench"));
}

/* One sample's DiT alone, where the mapper would put it: on the first node, or as evenly as can be on
 * the fewest. */
static double profile(planner *p, weft_sp_method method, int bucket, int degree)
{
    int32_t ranks[MOST_RANKS];
    weft_placed_sample sample = {.bucket = bucket, .clips = all.size[bucket].batch, .weight = 1};
    weft_placed_cascade cascade = {
        .at = {.id = "s0.dit", .device = ranks, .degree = degree, .seconds = 1},
        .module = WEFT_CASCADE_DIT,
        .method = method};
    const weft_placed_iteration plan = {
        .sample = &sample, .samples = 1, .cascade = &cascade, .cascades = 1, .makespan = 1};
    const int each = (int)all.cluster.devices, nodes = (degree + each - 1) / each;
    for (int n = 0, r = 0; n < nodes; n++)
        for (int i = 0; i < degree / nodes + (n < degree % nodes); i++)
            ranks[r++] = n * each + i;
    double *known = &p->seconds[method][bucket][degree];
    if (*known)
        return *known;
    const executed e = execute(&plan);
    weft_placed_iteration as = plan;
    cascade.at.seconds = as.makespan = *known = e.makespan;
    p->sums = fmin(p->sums, weft_placed_sums_beside(&as) + e.exposed);
    p->last_sum = fmin(p->last_sum, e.exposed);
    return *known;
}

/* ---- prices of what was not profiled --------------------------------------------------------- */

static bool held_out(int bucket, int degree)
{
    return all.hold && (degree == 3 || degree == 6 || degree == 12 || bucket % 4 == 3);
}

static bool profiled(int64_t degree)
{
    return degree <= 4 || degree == 6 || degree == 8 || degree == 12 || degree == 24 ||
           (degree % 8 == 0 && (degree & (degree - 1)) == 0);
}

/* Of the list: degrees that are profiled or held out, and fit. */
static bool in_table(const weft_cascade_option *o)
{
    return profiled(o->degree) && o->degree <= all.ranks &&
           o->bytes <= (double)all.cluster.device.memory;
}

/* Sums of a line measured = a + b told with weights of 1 / measured^2. */
typedef struct line {
    double w, x, y, xx, xy, logs;
    int count;
} line;

static void add_point(const planner *p, weft_sp_method method, int bucket, int degree, line *l)
{
    const double x = p->told[method][bucket][degree], y = p->seconds[method][bucket][degree];
    if (!(x > 0 && y > 0))
        return;
    l->w += 1 / (y * y);
    l->x += x / (y * y);
    l->y += 1 / y;
    l->xx += x * x / (y * y);
    l->xy += x / y;
    l->logs += log(y / x);
    l->count++;
}

/* Seconds of a DiT that was held out, from the next degrees that were not. Of a size with measured
 * degrees: the model's, as far as those were off. Of another: a line through all other sizes, whose
 * offset is what a kernel takes however small it is. */
static double scaled(const planner *p, weft_sp_method method, int bucket, int degree)
{
    const double told = p->told[method][bucket][degree];
    const bool shape = bucket % 4 == 3;
    line l = {0};
    for (int step = -1; step <= 1; step += 2)
        for (int k = degree, found = 0; k >= 1 && k <= all.ranks && !found; k += step)
            for (int b = 0; b < all.buckets; b++)
                if ((shape ? b % 4 != 3 : b == bucket) && p->seconds[method][b][k] > 0) {
                    add_point(p, method, b, k, &l);
                    found = 1;
                }
    const double turn = l.w * l.xx - l.x * l.x;
    if (!l.count)
        return told;
    if (!shape || !(turn > 1e-9 * l.w * l.xx))
        return told * exp(l.logs / l.count);
    const double slope = (l.w * l.xy - l.x * l.y) / turn, begin = (l.y - slope * l.x) / l.w;
    return slope > 0 ? fmax(begin + slope * told, slope * told) : told * exp(l.logs / l.count);
}

/* Degrees that are profiled or held out and fit; seconds of a tenth of the model. */
static void make_list(planner *p, const weft_workload *w, weft_sp_method method, weft_arena *arena,
                      weft_cascade_list *list)
{
    p->costs.method = method;
    check(weft_workload_cascades(&p->costs, w, arena, list));
    const int64_t modules = list->count / w->count;
    for (int64_t c = 0; c < list->count; c++)
        for (int32_t o = 0; o < list->item[c].option_count; o++) {
            const weft_cascade_option *one = &list->item[c].option[o];
            const int b = bucket_of(&w->bucket[c / modules]), k = (int)one->degree;
            if (!strstr(list->item[c].id, ".dit") || !in_table(one))
                continue;
            p->told[method][b][k] = one->seconds / FOLD;
            if (!held_out(b, k))
                profile(p, method, b, k);
        }
    for (int64_t c = 0; c < list->count; c++) {
        weft_cascade *item = &list->item[c];
        const int b = bucket_of(&w->bucket[c / modules]);
        int32_t kept = 0;
        for (int32_t o = 0; o < item->option_count; o++) {
            weft_cascade_option one = item->option[o];
            const int k = (int)one.degree;
            if (!in_table(&one))
                continue;
            one.seconds = !strstr(item->id, ".dit") ? one.seconds / FOLD
                          : held_out(b, k)          ? scaled(p, method, b, k)
                                                    : profile(p, method, b, k);
            item->option[kept++] = one;
        }
        item->option_count = kept;
    }
}

static void by_search(const weft_cascade_list *list, uint64_t seed, weft_arena *arena,
                      weft_placement *out, double *bound)
{
    const weft_cascade_search search = {.seed = seed, .threads = 1};
    const weft_assign_options options = {true, true};
    weft_cascade_problem problem;
    weft_cascade_result result;
    int32_t *first, *devices;
    check(
        weft_cascade_problem_create(list, all.ranks, (double)all.cluster.device.memory, &problem));
    problem.per_node = all.cluster.nodes > 1 ? all.cluster.devices : 0;
    problem.by_producers = options.inter;
    check(weft_cascade_solve(&problem, &search, arena, &result));
    check(weft_assign(&problem, &result.schedule, &all.cluster, options, arena, &first, &devices));
    check(weft_placement_of(&problem, &result.schedule, first, devices, arena, out));
    *bound = result.bound.value;
    weft_cascade_problem_free(&problem);
}

/* ---- iterations ----------------------------------------------------------------------------- */

typedef struct tally {
    double planned, executed, idle_planned, idle, off, worst, own, running, taking, exposed,
        exposed_planned, planning, bound;
    int done;
} tally;

static void note(tally *t, const weft_placement *p, const executed *e, double behind,
                 double planning)
{
    const double off = e->makespan / p->makespan - 1;
    t->planned += p->makespan;
    t->executed += e->makespan;
    t->idle_planned += p->idle;
    t->idle += e->idle;
    t->off += off;
    t->worst = fabs(off) > fabs(t->worst) ? off : t->worst;
    t->own += e->own;
    t->running += e->running;
    t->taking += e->taking;
    t->exposed += e->exposed;
    t->exposed_planned += behind;
    t->planning += planning;
    t->done++;
}

/* Megatron's context parallelism is a ring, where the model knows it; the others exchange heads. */
static weft_sp_method method_of(int policy)
{
    const bool ring =
        weft_recipe_list_find(all.model.family->recipe, all.model.family->recipes, "ring");
    return policy == WEFT_POLICY_STATIC && ring ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

/* The cascades of an iteration that is further off than it may be. */
static void explain(const weft_placed_iteration *plan)
{
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_assigned *at = &plan->cascade[c].at;
        double start = 0, end = 0;
        for (int64_t i = 0; i < at->degree; i++) {
            start = fmax(start, all.done[at->device[i]][c].start);
            end = fmax(end, all.done[at->device[i]][c].end);
        }
        fprintf(stderr, "%-9s bucket %2d planned %8.4f + %7.4f executed %8.4f + %7.4f on", at->id,
                plan->sample[plan->cascade[c].sample].bucket, at->start, at->seconds, start,
                end - start);
        for (int64_t i = 0; i < at->degree; i++)
            fprintf(stderr, " %d", at->device[i]);
        fprintf(stderr, "\n");
    }
}

static int64_t best_degree(weft_policy policy, planner *p, const weft_workload *stage,
                           int64_t samples, int iterations)
{
    int64_t best = 0;
    double least = INFINITY;
    for (int64_t k = 1; k <= all.ranks; k++) {
        double sum = 0;
        if (all.ranks % k || !profiled(k) || (policy != WEFT_POLICY_STATIC && 24 % k))
            continue;
        for (int i = 0; i < iterations && isfinite(sum); i++) {
            weft_arena *arena = weft_arena_create();
            weft_workload w;
            weft_cascade_list list;
            weft_policy_request request;
            weft_placement placed;
            check(weft_workload_draw(arena, stage, samples, 1 + (uint64_t)i, &w));
            make_list(p, &w, method_of(policy), arena, &list);
            check(weft_workload_request(&p->costs, &w, &list, arena, &request));
            request.degree = k;
            sum += weft_policy_place(policy, &request, arena, &placed) == WEFT_OK
                       ? placed.makespan
                       : (double)INFINITY;
            weft_arena_free(arena);
        }
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    return best;
}

/* One policy's iteration. */
typedef struct made {
    weft_placement placed;
    weft_placed_iteration plan;
    double encode[MOST_CASCADES], bound, planning;
    executed as;
    bool there;
} made;

static void run_made(made *m)
{
    memcpy(all.encode, m->encode, sizeof all.encode);
    m->as = execute(&m->plan);
}

static void plan_one(planner *p, const weft_workload *w, int policy, uint64_t seed, int64_t degree,
                     weft_arena *arena, made *m)
{
    weft_cascade_list list;
    weft_policy_request request;
    const weft_sp_method method = method_of(policy);
    make_list(p, w, method, arena, &list);
    check(weft_workload_request(&p->costs, w, &list, arena, &request));
    const double began = weft_now();
    request.degree = degree;
    m->there = true;
    if (policy == WEFT_POLICY_ARACHNE)
        by_search(&list, seed, arena, &m->placed, &m->bound);
    else
        m->there = weft_policy_place((weft_policy)policy, &request, arena, &m->placed) == WEFT_OK;
    m->planning = weft_now() - began;
    if (m->there)
        place(&m->placed, &list, request.sample, w, method, arena, &m->plan);
    memcpy(m->encode, all.encode, sizeof m->encode);
}

/* Plans of all policies, and then again those that compiled something, as a run's programs are there
 * after a while: by then each has been on other groups, as from one iteration of a run to the next. */
static void iteration(planner *p, const weft_workload *stage, int64_t samples, uint64_t seed,
                      const int64_t *degree, const bool *wanted, tally *t)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    static made m[WEFT_POLICY_COUNT];
    check(weft_workload_draw(arena, stage, samples, seed, &w));
    memset(m, 0, sizeof m);
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        if (wanted[policy])
            plan_one(p, &w, policy, seed, degree[policy], arena, &m[policy]);
        if (m[policy].there)
            run_made(&m[policy]);
    }
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        made *one = &m[policy];
        if (!one->there)
            continue;
        if (one->as.made)
            run_made(one);
        if (fabs(one->as.makespan / one->placed.makespan - 1) > 0.05)
            explain(&one->plan);
        t[policy].bound += one->bound;
        note(&t[policy], &one->placed, &one->as,
             weft_placed_sums_behind(&one->plan, p->sums, p->last_sum), one->planning);
    }
    weft_arena_free(arena);
}

/* ---- price errors --------------------------------------------------------------------------- */

/* A case of the comparison, and what weft has seen of it so far. */
typedef struct trial {
    const char *name;
    double jitter;
    int slow;
    weft_price_errors dit, encoder;
    weft_rank_speeds speeds;
    double sums,
        last; /* of gradients, in all and of their last part, as measured; INFINITY: not yet */
    double seconds[WEFT_POLICY_COUNT + 1], planned, planning; /* sums over the iterations */
    int64_t moved, late, cascades;
} trial;

/* Errors of prices, executed over predicted - 1, of what was profiled and what was held out. */
typedef struct priced {
    double sum, worst;
    int64_t count;
} priced;

static void price_error(priced *of, double off)
{
    of->sum += fabs(off);
    of->worst = fmax(of->worst, fabs(off));
    of->count++;
}

/* The same for all policies: cascades of all lists are in one order. */
static void draw_factors(const trial *t, int64_t iteration)
{
    for (int c = 0; c < MOST_CASCADES; c++)
        all.factor[c] =
            1 + t->jitter * (double)weft_random_uniform(weft_seed_mix(41, (uint64_t)iteration),
                                                        WEFT_RNG_TEST, (uint64_t)c);
    all.slow = t->slow;
}

static double seconds_of(int64_t c, const weft_assigned *at)
{
    double start = 0, last = 0;
    for (int64_t i = 0; i < at->degree; i++) {
        start = fmax(start, all.done[at->device[i]][c].start);
        last = fmax(last, all.done[at->device[i]][c].end);
    }
    return last - start;
}

static double end_of(int64_t c, const weft_assigned *at)
{
    double last = 0;
    for (int64_t i = 0; i < at->degree; i++)
        last = fmax(last, all.done[at->device[i]][c].end);
    return last;
}

/* What weft's own iteration says of prices and ranks. */
static void learn(trial *t, const made *m)
{
    double summing = 0;
    const weft_placed_iteration *as = all.executed;
    double busy[MOST_RANKS], slow[MOST_RANKS];
    weft_rank_speeds_get(&t->speeds, slow);
    for (int64_t c = 0; c < as->cascades; c++) {
        const weft_assigned *at = &as->cascade[c].at, *planned = &m->plan.cascade[c].at;
        const bool dit = as->cascade[c].module == WEFT_CASCADE_DIT;
        if (dit)
            summing = fmax(summing, end_of(c, at) - seconds_of(c, at) * 2 / 3);
        double most = 1;
        for (int64_t i = 0; i < at->degree; i++) {
            busy[i] = all.done[at->device[i]][c].busy;
            most = fmax(most, slow[at->device[i]]);
            bool stayed = false;
            for (int64_t k = 0; k < planned->degree; k++)
                stayed = stayed || planned->device[k] == at->device[i];
            t->moved += !stayed && i == 0;
        }
        t->cascades++;
        weft_price_errors_add(dit ? &t->dit : &t->encoder, seconds_of(c, at) / most / at->seconds);
        if (dit)
            weft_rank_speeds_add(&t->speeds, at->device, busy, at->degree, at->seconds);
    }
    t->sums = fmin(t->sums, m->as.makespan + m->as.exposed - summing);
    t->last = fmin(t->last, m->as.exposed);
}

static weft_status place_expected(planner *p, trial *t, const weft_workload *w,
                                  const weft_cascade_list *list, uint64_t seed, weft_arena *arena,
                                  made *m)
{
    enum { SCENARIOS = 16 };
    const weft_price_errors *of[MOST_CASCADES];
    static double factor[SCENARIOS * MOST_CASCADES];
    static weft_dispatch_hand hand[MOST_CASCADES];
    bool trains[MOST_CASCADES];
    double value[2];
    weft_placement out[2], own;
    weft_policy_request request;
    const weft_cascade_search search = {.seed = seed, .threads = 1};
    weft_cascade_problem problem;
    weft_cascade_result result;
    int32_t *first, *devices;
    weft_rank_speeds_get(&t->speeds, all.known_slow);
    for (int64_t c = 0; c < list->count; c++) {
        trains[c] = strstr(list->item[c].id, ".dit");
        of[c] = trains[c] ? &t->dit : &t->encoder;
        const int b = bucket_of(&w->bucket[c / (list->count / w->count)]);
        const weft_cascade_row row = row_of(NULL, b, WEFT_CASCADE_VAE);
        const double bytes =
            trains[c] ? 4.0 * (double)(all.size[b].batch * weft_cascade_row_floats(&row)) : 0;
        hand[c] = (weft_dispatch_hand){bytes / 450e9, bytes / all.between};
    }
    const int64_t scenarios = t->dit.count ? SCENARIOS : 1;
    WEFT_TRY(weft_price_errors_draw(of, list->count, scenarios, 9, factor));
    WEFT_TRY(
        weft_cascade_problem_create(list, all.ranks, (double)all.cluster.device.memory, &problem));
    problem.per_node = all.cluster.nodes > 1 ? all.cluster.devices : 0;
    problem.by_producers = true;
    weft_expect_setup s = {.list = list,
                           .problem = &problem,
                           .cluster = &all.cluster,
                           .place = {true, true},
                           .scenarios = scenarios,
                           .factor = factor,
                           .slow = all.known_slow,
                           .trains = trains,
                           .hand = hand,
                           .sums = fmin(p->sums, t->sums),
                           .last = isfinite(t->last) ? t->last : p->last_sum,
                           .seed = seed,
                           .evaluations = all.ranks > 16 ? 2000 : 5000};
    WEFT_TRY(weft_cascade_solve(&problem, &search, arena, &result));
    WEFT_TRY(
        weft_assign(&problem, &result.schedule, &all.cluster, s.place, arena, &first, &devices));
    WEFT_TRY(weft_placement_of(&problem, &result.schedule, first, devices, arena, &own));
    WEFT_TRY(weft_workload_request(&p->costs, w, list, arena, &request));
    weft_placement also[4] = {own};
    int count = 1;
    static const weft_policy rules[] = {WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER};
    for (size_t i = 0; i < WEFT_COUNT(rules); i++)
        count += weft_policy_place(rules[i], &request, arena, &also[count]) == WEFT_OK;
    for (int late = 0; late < 2; late++) {
        s.late = late;
        WEFT_TRY(
            weft_expect_search(&s, &result.schedule, also, count, arena, &out[late], &value[late]));
    }
    const int late = value[1] < 0.995 * value[0]; /* not for what the scenarios cannot tell */
    m->placed = out[late];
    m->bound = result.bound.value;
    t->late += late;
    weft_cascade_problem_free(&problem);
    return WEFT_OK;
}

static void plan_expected(planner *p, trial *t, const weft_workload *w, uint64_t seed,
                          weft_arena *arena, made *m)
{
    weft_cascade_list list;
    weft_policy_request request;
    const int64_t late = t->late;
    make_list(p, w, WEFT_SP_ULYSSES, arena, &list);
    check(weft_workload_request(&p->costs, w, &list, arena, &request));
    const double began = weft_thread_seconds();
    check(place_expected(p, t, w, &list, seed, arena, m));
    t->planning += weft_thread_seconds() - began;
    m->there = true;
    place(&m->placed, &list, request.sample, w, WEFT_SP_ULYSSES, arena, &m->plan);
    m->plan.late = t->late > late;
    memcpy(m->encode, all.encode, sizeof m->encode);
}

static void try_iteration(planner *p, const weft_workload *stage, int64_t samples, uint64_t seed,
                          const int64_t *degree, trial *t, priced *known, priced *held)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    static made m[WEFT_POLICY_COUNT + 1];
    check(weft_workload_draw(arena, stage, samples, seed, &w));
    memset(m, 0, sizeof m);
    for (int policy = 0; policy <= WEFT_POLICY_COUNT; policy++) {
        if (policy == WEFT_POLICY_ULYSSES) /* static is the same here */
            continue;
        memset(all.factor, 0, sizeof all.factor); /* profiles are quiet */
        all.slow = -1;
        if (policy == WEFT_POLICY_COUNT)
            plan_expected(p, t, &w, seed, arena, &m[policy]);
        else
            plan_one(p, &w, policy, seed, degree[policy], arena, &m[policy]);
        if (!m[policy].there)
            continue;
        draw_factors(t, (int64_t)seed);
        run_made(&m[policy]);
        t->seconds[policy] += m[policy].as.makespan + m[policy].as.exposed;
        if (policy == WEFT_POLICY_COUNT)
            learn(t, &m[policy]);
        for (int64_t c = 0; c < all.executed->cascades && t->jitter == 0 && t->slow < 0; c++) {
            const weft_placed_cascade *one = &all.executed->cascade[c];
            if (one->module == WEFT_CASCADE_DIT)
                price_error(held_out(all.executed->sample[one->sample].bucket, (int)one->at.degree)
                                ? held
                                : known,
                            seconds_of(c, &one->at) / one->at.seconds - 1);
        }
    }
    t->planned += m[0].placed.makespan;
    weft_arena_free(arena);
}

static void print_trial(const trial *t, const trial *quiet, int iterations)
{
    static const int others[] = {WEFT_POLICY_STATIC, WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER};
    const double *x = t->seconds, *q = quiet->seconds, n = iterations;
    printf("%-16s %8.3f %8.3f %8.3f %8.3f %8.3f ", t->name, FOLD * x[others[0]] / n,
           FOLD * x[others[1]] / n, FOLD * x[others[2]] / n, FOLD * x[0] / n,
           FOLD * x[WEFT_POLICY_COUNT] / n);
    for (size_t i = 0; i < WEFT_COUNT(others); i++) {
        const double lead = 1 - q[0] / q[others[i]], planned = 1 - x[0] / x[others[i]],
                     robust = 1 - x[WEFT_POLICY_COUNT] / x[others[i]];
        printf(" | %6.1f %6.1f %5.0f%%", 100 * planned, 100 * robust, 100 * robust / lead);
    }
    printf(" | %4lld of %4lld moved, %lld late, planned in %.3f s of a processor\n",
           (long long)t->moved, (long long)t->cascades, (long long)t->late, t->planning / n);
}

static void compare_errors(planner *p, const weft_workload *stage, int64_t samples, int iterations,
                           const int64_t *degree)
{
    static trial list[] = {{.name = "jitter 0", .slow = -1},
                           {.name = "jitter 0.2", .jitter = 0.2, .slow = -1},
                           {.name = "jitter 0.4", .jitter = 0.4, .slow = -1},
                           {.name = "a slow rank", .slow = 5},
                           {.name = "slow, 0.2", .jitter = 0.2, .slow = 5}};
    priced known = {0}, held = {0};
    printf("%-16s %8s %8s %8s %8s %8s  | lead over static: planned, robust, of planned without "
           "errors | over flexsp | over knapformer\n",
           "case", "static", "flexsp", "knapf.", "weft", "robust");
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        check(weft_rank_speeds_create(all.ranks, &list[k].speeds));
        list[k].sums = list[k].last = INFINITY;
        for (int i = 0; i < iterations; i++)
            try_iteration(p, stage, samples, 1 + (uint64_t)i, degree, &list[k], &known, &held);
        print_trial(&list[k], &list[0], iterations);
        fflush(stdout);
        weft_rank_speeds_free(&list[k].speeds);
    }
    printf(
        "prices of DiTs: %lld profiled, %.1f %% off on average, %.1f %% at worst; %lld held out, "
        "%.1f and %.1f %%\n\n",
        (long long)known.count, known.count ? 100 * known.sum / (double)known.count : 0,
        100 * known.worst, (long long)held.count,
        held.count ? 100 * held.sum / (double)held.count : 0, 100 * held.worst);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void print(const tally *t, const int64_t *degree)
{
    const double own = t[0].executed / t[0].done;
    printf("%-14s %6s %10s %10s %8s %8s %9s %9s %8s %9s %9s %9s\n", "policy", "degree", "planned s",
           "executed", "off %", "worst %", "idle p %", "idle x %", "shorter", "own %", "sums p",
           "sums x");
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        const tally *x = &t[policy];
        const double n = x->done;
        if (!x->done)
            continue;
        printf("%-14s %6lld %10.3f %10.3f %8.2f %8.2f %9.1f %9.1f %7.1f%% %9.3f %9.3f %9.3f\n",
               weft_policy_names[policy], (long long)degree[policy], FOLD * x->planned / n,
               FOLD * x->executed / n, 100 * x->off / n, 100 * x->worst, 100 * x->idle_planned / n,
               100 * x->idle / n, 100 * (1 - own / (x->executed / n)), 100 * x->own / x->executed,
               FOLD * x->exposed_planned / n, FOLD * x->exposed / n);
    }
    printf("weft: of its own %.3f %% launching, %.3f %% taking programs, %.3f %% "
           "bookkeeping\n",
           100 * t[0].running / t[0].executed, 100 * t[0].taking / t[0].executed,
           100 * (t[0].own - t[0].running - t[0].taking) / t[0].executed);
    printf("weft: planned in %.3f s beside the iteration before (%.2f %% of one), %.2f %% over the "
           "lower bound\n\n",
           t[0].planning / t[0].done, 100 * t[0].planning / (FOLD * t[0].executed),
           100 * (t[0].planned / t[0].bound - 1));
}

static void begin(int nodes, const char *stage, const char *links, planner *p, weft_workload *w,
                  rank *ranks, pthread_t *thread)
{
    char spec[32];
    json_t *json;
    const bool slow = !strcmp(links, "slow");
    weft_link_model model = {.between = {slow ? 1.25e9 : 50e9, 5e-6},
                             .inside = {450e9, 2e-6},
                             .per_node = 8,
                             .clocked = true};
    weft_comm *comm[MOST_RANKS];
    snprintf(spec, sizeof spec, "h100:%d", nodes);
    all.between = model.between.bytes_per_second;
    all.slow = -1;
    p->arena = weft_arena_create();
    p->sums = p->last_sum = INFINITY;
    check(weft_cluster_load(p->arena, spec, &all.cluster));
    const weft_device_type *d = &all.cluster.device;
    all.ranks = (int)weft_cluster_devices(&all.cluster);
    all.rates = (weft_virtual_rates){.flops = d->flops * d->gemm,
                                     .bytes = d->memory_bandwidth * d->memory_fraction,
                                     .launch = 5e-6};
    check(weft_workload_stage(p->arena, stage, w));
    for (int64_t i = 0; i < w->count; i++)
        all.size[i] = (weft_bucket){w->bucket[i].batch, w->bucket[i].frames, w->bucket[i].height,
                                    w->bucket[i].width};
    all.buckets = (int)w->count;
    check(weft_json_parse(folded, (int64_t)strlen(folded), "bench", &json));
    check(weft_model_read(json, "bench", &all.model));
    json_decref(json);
    check(weft_plan_model_work(p->arena, "hunyuanvideo-13b", w, d, &p->work));
    p->costs = (weft_cascade_costs){.cluster = &all.cluster,
                                    .model = &p->work,
                                    .zero = 3,
                                    .text = true,
                                    .method = WEFT_SP_ULYSSES};
    pthread_barrier_init(&all.turn, NULL, (unsigned)all.ranks + 1);
    check(weft_comm_open_fake_linked(all.ranks, &model, comm));
    for (int r = 0; r < all.ranks; r++) {
        ranks[r] = (rank){.index = r, .comm = comm[r]};
        all.clock[r] = &ranks[r].clock;
        pthread_create(&thread[r], NULL, run_rank, &ranks[r]);
        pthread_setname_np(thread[r], "rank"); /* beside its exchanges' in a profile */
    }
}

int main(int argc, char **argv)
{
    static planner p;
    static rank ranks[MOST_RANKS];
    pthread_t thread[MOST_RANKS];
    weft_workload stage;
    tally t[WEFT_POLICY_COUNT] = {{0}};
    int64_t degree[WEFT_POLICY_COUNT] = {0};
    const int nodes = argc > 1 ? atoi(argv[1]) : 2, iterations = argc > 3 ? atoi(argv[3]) : 20;
    const char *name = argc > 2 ? argv[2] : "720p", *links = argc > 4 ? argv[4] : "fast";
    const bool only = argc > 5 && !strcmp(argv[5], "weft"),
               robust = argc > 5 && !strcmp(argv[5], "robust");
    bool wanted[WEFT_POLICY_COUNT];
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++)
        wanted[policy] = !only || policy == WEFT_POLICY_ARACHNE;
    if (nodes < 1 || nodes > MOST_RANKS / 8 || iterations < 1) {
        fprintf(stderr,
                "bench/cascades [NODES [STAGE [ITERATIONS [fast|slow [all|weft|robust]]]]], up to "
                "%d nodes\n",
                MOST_RANKS / 8);
        return 1;
    }
    all.hold = robust;
    begin(nodes, name, links, &p, &stage, ranks, thread);
    const int64_t samples = all.ranks / 4;
    static const weft_policy equal[] = {WEFT_POLICY_STATIC, WEFT_POLICY_ULYSSES,
                                        WEFT_POLICY_KNAPFORMER};
    for (int i = 0; i < WEFT_COUNT(equal) && !only; i++)
        degree[equal[i]] =
            best_degree(equal[i], &p, &stage, samples, iterations < 5 ? iterations : 5);
    for (int i = 0; i < iterations && !robust; i++)
        iteration(&p, &stage, samples, 1 + (uint64_t)i, degree, wanted, t);
    printf("%s on %d ranks, %lld samples, %d iterations, links %s\n", name, all.ranks,
           (long long)samples, iterations, links);
    if (robust)
        compare_errors(&p, &stage, samples, iterations, degree);
    else
        print(t, degree);
    all.plan = NULL;
    pthread_barrier_wait(&all.turn);
    for (int r = 0; r < all.ranks; r++) {
        pthread_join(thread[r], NULL);
        weft_comm_free(ranks[r].comm);
    }
    weft_arena_free(p.arena);
    return 0;
}
