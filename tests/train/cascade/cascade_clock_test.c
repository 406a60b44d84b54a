/* Executed and planned times agree: iterations of mixed samples on 16 ranks, which are threads of
 * this process with simulated devices and links. Kernels and messages advance their clocks. Seconds
 * of each size and degree are measured with the executor, one cascade at a time. weft's search
 * plans iterations with these seconds, and the executed makespan is compared with the planned one
 * (5 %, 2 % on average). A second run has bitwise the same seconds. Gradient reductions overlap
 * with the last backward as far as gradients are complete before its end. Late dispatch of
 * cascades that take up to 40 % longer, with and without searches, ends when the planner's
 * simulation ends. Ranks reduce gradients before encoders of the next step. */
#include "train/cascade/cascade_executor.h"

#include "../../model_of.h"
#include "../../ranks_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "kernel/virtual/virtual.h"
#include "plan/cascade/dispatch.h"
#include "plan/cascade/genetic.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { RANKS = 16, BUCKETS = 3, DEGREES = 6, ITERATIONS = 4, SAMPLES = 10, CHANNELS = 16 };
enum { PER_NODE = 8 };

/* Latents of 1, 9 and 25 frames: 1 : 70 in work. */
static const weft_bucket bucket[BUCKETS] = {{4, 1, 30, 52}, {1, 9, 30, 52}, {1, 25, 44, 80}};
static const int degrees[DEGREES] = {1, 2, 3, 4, 6, 8};

static const char config[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":24,"
    "\"attention_head_dim\":128,\"in_channels\":16,\"out_channels\":16,\"text_dim\":64,"
    "\"freq_dim\":256,\"ffn_dim\":12288,\"num_layers\":2,\"patch_size\":[1,2,2],"
    "\"rope_max_seq_len\":64}";

/* Seconds of encoding a clip. */
static double encoding(int b)
{
    return 2e-3 * (double)bucket[b].frames;
}

/* How plans are executed. LATE_SUMS: reductions begin when a rank's cascades are over. DISPATCHED:
 * late dispatch of cascades that take factor_of() times their seconds. SEARCHED: the same with
 * searches whenever cascades end. */
typedef enum mode { AS_PLANNED, LATE_SUMS, DISPATCHED, SEARCHED } mode;

typedef struct job {
    const weft_placed_iteration *plan;
    int plans, rank;
    mode mode;
    double factor; /* of the kernels' seconds */
    weft_model *model;
    weft_comm *comm;
    double now;          /* this rank's clock */
    double *start, *end; /* [plans][cascades of the largest] */
    double *summed;      /* [plans] */
    double reduce, last; /* predicted seconds of the reductions, and of the last one */
} job;

enum { MOST = 2 * SAMPLES };

/* step TOGETHER: the plan of plan_together(), whose second cascade ends 0.02 % late. ENCODES: the
 * plan of plan_encoder(). */
enum { TOGETHER = 1000, ENCODES };
static const double late_by = 2e-4;

static double factor_of(const weft_placed_iteration *plan, int32_t index)
{
    if (plan->step == TOGETHER)
        return index == 1 ? 1 + late_by : 1;
    if (plan->step == ENCODES)
        return 1;
    return 1 + 0.4 * (double)weft_random_uniform(weft_seed_mix(12, (uint64_t)plan->step),
                                                 WEFT_RNG_TEST, (uint64_t)index);
}

static weft_status make_graph(void *user, int b, weft_graph **out)
{
    const job *j = user;
    weft_graph *g = weft_graph_create();
    const weft_bucket *s = &bucket[b];
    const weft_shape shape = WEFT_SHAPE(s->batch, s->frames, s->height, s->width, CHANNELS);
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_LATENTS] = weft_input(g, "batch.latents", WEFT_F32, shape);
    p.at[WEFT_PORT_TIMESTEP] = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(s->batch));
    p.at[WEFT_PORT_TEXT] = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(s->batch, 64, 64));
    weft_model_call(g, j->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_output(g, "objective",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, p.at[WEFT_PORT_PREDICTION])));
    *out = g;
    return weft_graph_check(g);
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents handed[WEFT_CASCADE_MODULES])
{
    job *j = user;
    (void)step, (void)handed;
    j->factor = j->mode >= DISPATCHED ? factor_of(plan, index) : 1;
    return WEFT_OK;
}

static weft_cascade_row row_of(void *user, int b, weft_cascade_module module)
{
    const weft_bucket *s = &bucket[b];
    (void)user, (void)module;
    return (weft_cascade_row){s->frames, s->height * s->width * CHANNELS, 0};
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows)
{
    job *j = user;
    const int b = plan->sample[plan->cascade[index].sample].bucket;
    (void)group, (void)rows;
    j->now += plan->step == ENCODES ? plan->cascade[index].at.seconds
                                    : (double)share->clips.count * encoding(b) *
                                          (j->mode >= DISPATCHED ? factor_of(plan, index) : 1);
    return WEFT_OK;
}

/* ---- plans
 * ------------------------------------------------------------------------------------- */

typedef struct made_plan {
    weft_placed_iteration all;
    weft_placed_sample sample[SAMPLES];
    weft_placed_cascade cascade[MOST];
    char id[MOST][16];
    int32_t after[SAMPLES];
    weft_arena *arena; /* of devices; NULL: there is none */
} made_plan;

static void name(made_plan *p, int index, int sample, weft_cascade_module module)
{
    snprintf(p->id[index], sizeof p->id[index], "s%d.%s", sample, weft_cascade_module_name(module));
    p->cascade[index].at.id = p->id[index];
    p->cascade[index].sample = sample;
    p->cascade[index].module = module;
}

/* One DiT cascade on the first ranks. */
static void plan_alone(made_plan *p, int b, int degree)
{
    static const int32_t all[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    *p = (made_plan){
        .all = {.sample = p->sample, .samples = 1, .cascade = p->cascade, .cascades = 1}};
    p->sample[0] = (weft_placed_sample){.bucket = b, .clips = bucket[b].batch, .weight = 1};
    name(p, 0, 0, WEFT_CASCADE_DIT);
    p->cascade[0].at.device = all;
    p->cascade[0].at.degree = degree;
}

static weft_cascade_option *options_of(weft_arena *arena, int b, bool vae,
                                       const double (*seconds)[DEGREES], int32_t *count)
{
    weft_cascade_option *o = weft_arena_alloc(arena, DEGREES * (int64_t)sizeof *o);
    *count = 0;
    for (int d = 0; d < DEGREES; d++) {
        if (vae && bucket[b].batch % degrees[d])
            continue;
        o[(*count)++] = (weft_cascade_option){
            degrees[d], vae ? encoding(b) * (double)bucket[b].batch / degrees[d] : seconds[b][d],
            1};
    }
    return o;
}

static void plan_mixed(made_plan *p, int64_t step, const double (*seconds)[DEGREES])
{
    weft_arena *arena = weft_arena_create();
    weft_cascade cascade[MOST] = {0};
    weft_cascade_problem problem;
    weft_cascade_result result;
    weft_cluster cluster;
    int32_t *first, *devices;
    *p = (made_plan){.arena = arena,
                     .all = {.step = step,
                             .sample = p->sample,
                             .samples = SAMPLES,
                             .cascade = p->cascade,
                             .cascades = MOST}};
    for (int s = 0; s < SAMPLES; s++) {
        const uint64_t draw = weft_seed_mix(weft_seed_mix(11, (uint64_t)step), (uint64_t)s);
        const int b = (int)(draw >> 40) % BUCKETS;
        p->sample[s] =
            (weft_placed_sample){.bucket = b, .clips = bucket[b].batch, .weight = 1.0 / SAMPLES};
        name(p, 2 * s, s, WEFT_CASCADE_VAE);
        name(p, 2 * s + 1, s, WEFT_CASCADE_DIT);
        p->after[s] = 2 * s;
        weft_cascade *vae = &cascade[2 * s], *dit = &cascade[2 * s + 1];
        vae->id = p->id[2 * s];
        dit->id = p->id[2 * s + 1];
        dit->after = &p->after[s];
        dit->after_count = 1;
        vae->option = options_of(arena, b, true, seconds, &vae->option_count);
        dit->option = options_of(arena, b, false, seconds, &dit->option_count);
    }
    const weft_cascade_list list = {cascade, MOST};
    const weft_cascade_search search = {.seed = 1, .effort = 0.2};
    cr_assert_eq(weft_cascade_problem_create(&list, RANKS, 0, &problem), WEFT_OK, "%s",
                 weft_error_message());
    problem.per_node = PER_NODE; /* as measured: the ranks of a group are contiguous */
    problem.by_producers = true;
    cr_assert_eq(weft_cluster_load(arena, "h100:2", &cluster), WEFT_OK);
    cr_assert_eq(weft_cascade_solve(&problem, &search, arena, &result), WEFT_OK);
    cr_assert_eq(weft_assign(&problem, &result.schedule, &cluster,
                             (weft_assign_options){true, true}, arena, &first, &devices),
                 WEFT_OK);
    for (int c = 0; c < MOST; c++) {
        weft_assigned *at = &p->cascade[c].at;
        at->device = devices + first[c];
        at->degree = first[c + 1] - first[c];
        at->start = result.schedule.start[c];
        at->seconds = result.schedule.end[c] - at->start;
        at->after = cascade[c].after;
        at->after_count = cascade[c].after_count;
    }
    p->all.makespan = result.schedule.makespan;
    p->all.lower_bound = result.bound.value;
    weft_cascade_problem_free(&problem);
    cr_assert_eq(weft_placed_check(&p->all, RANKS, "planned"), WEFT_OK, "%s", weft_error_message());
}

/* Two cascades of a node each end together. Then a cascade of both nodes begins, and then one of
 * four ranks, for which one node is enough. */
static void plan_together(made_plan *p, double seconds)
{
    static const int32_t node[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}},
                         wide[] = {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13};
    const weft_assigned at[] = {{NULL, node[0], 8, 0, seconds, NULL, 0},
                                {NULL, node[1], 8, 0, seconds, NULL, 0},
                                {NULL, wide, 12, seconds, seconds, NULL, 0},
                                {NULL, node[0], 4, 2 * seconds, 2 * seconds, NULL, 0}};
    *p = (made_plan){.all = {.step = TOGETHER,
                             .sample = p->sample,
                             .samples = 4,
                             .cascade = p->cascade,
                             .cascades = 4,
                             .makespan = 4 * seconds,
                             .late = true}};
    for (int s = 0; s < 4; s++) {
        p->sample[s] = (weft_placed_sample){.bucket = 2, .clips = 1, .weight = 0.25};
        p->cascade[s].at = at[s];
        name(p, s, s, WEFT_CASCADE_DIT);
    }
    cr_assert_eq(weft_placed_check(&p->all, RANKS, "planned"), WEFT_OK, "%s", weft_error_message());
}

/* The ranks of a node end a short cascade before the last one begins on the other node. Rank 0 then
 * encodes a sample of the next step for longer than all cascades. */
static void plan_encoder(made_plan *p, double little, double seconds)
{
    static const int32_t node[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}};
    const weft_assigned at[] = {{NULL, node[0], 8, 0, little, NULL, 0},
                                {NULL, node[1], 8, 0, seconds, NULL, 0},
                                {NULL, node[1], 8, seconds, seconds, NULL, 0},
                                {NULL, node[0], 1, little, 4 * seconds, NULL, 0}};
    *p = (made_plan){.all = {.step = ENCODES,
                             .sample = p->sample,
                             .samples = 4,
                             .cascade = p->cascade,
                             .cascades = 4,
                             .makespan = little + 4 * seconds,
                             .late = true}};
    for (int s = 0; s < 4; s++) {
        const int b = s ? 2 : 1;
        p->sample[s] = (weft_placed_sample){.batch = s,
                                            .bucket = b,
                                            .clips = bucket[b].batch,
                                            .weight = s < 3 ? 1.0 / 3 : 0,
                                            .ahead = s == 3};
        p->cascade[s].at = at[s];
        name(p, s, s, s < 3 ? WEFT_CASCADE_DIT : WEFT_CASCADE_VAE);
    }
    cr_assert_eq(weft_placed_check(&p->all, RANKS, "planned"), WEFT_OK, "%s", weft_error_message());
}

/* Searches with the errors of factor_of(). All ranks read the scenarios. */
enum { SCENARIOS = 16 };
static double scenario[SCENARIOS * MOST];
static const weft_dispatch_replan searches = {
    .evaluations = 100, .scenarios = SCENARIOS, .factor = scenario, .seed = 1};

static void set_scenarios(void)
{
    for (int i = 0; i < SCENARIOS * MOST; i++)
        scenario[i] = 1 + 0.4 * (((i * 7) % SCENARIOS) + 0.5) / SCENARIOS;
}

/* ---- one world
 * --------------------------------------------------------------------------------- */

static weft_status play_all(job *j, weft_cascade_run *run)
{
    weft_cascade_timing of[MOST];
    weft_iteration_done done = {.cascade = of};
    weft_step *update;
    for (int i = 0; i < j->plans; i++) {
        WEFT_TRY(weft_cascade_run_iteration(run, &j->plan[i], &done));
        j->summed[i] = done.summed;
        j->factor = 1;
        for (int c = 0; c < j->plan[i].cascades; c++) {
            j->start[i * MOST + c] = of[c].took_part ? of[c].start : 0;
            j->end[i * MOST + c] = of[c].took_part ? of[c].end : 0;
        }
        WEFT_TRY(weft_cascade_run_bind_update(run, &update));
        WEFT_TRY(weft_program_run(update->program)); /* after which all clocks are at one time */
    }
    return WEFT_OK;
}

static weft_status_code play(void *user)
{
    job *j = user;
    const weft_optimizer_config adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    const weft_virtual_rates rates = {.flops = 400e12,
                                      .bytes = 2e12,
                                      .launch = 5e-6,
                                      .scale = 1,
                                      .clock = &j->now,
                                      .factor = &j->factor};
    weft_backend *backend;
    weft_cascade_run *run = NULL;
    WEFT_TRY(weft_backend_virtual_create(&rates, &backend));
    weft_store *store = weft_store_create_on(backend->device);
    const weft_exec_config place = {.comm = j->comm,
                                    .backend = backend,
                                    .mesh = {.axis_count = 1, .axis = {{"dp", RANKS}}},
                                    .recipes = j->model->family->recipe,
                                    .recipe_count = j->model->family->recipes};
    const weft_cascade_setup setup = {.comm = j->comm,
                                      .store = store,
                                      .exec = &place,
                                      .optimizer = &adamw,
                                      .context = WEFT_SP_ULYSSES,
                                      .late_reduce = j->mode == LATE_SUMS,
                                      .late_dispatch = j->mode >= DISPATCHED,
                                      .buckets = BUCKETS,
                                      .calls = {j, make_graph, fill, row_of, encode}};
    weft_status_code status = weft_cascade_run_create(&setup, &run);
    if (status == WEFT_OK) {
        const weft_link_costs costs = {
            .message = {3e-6, 5e-6}, .byte = {8 / 3600e9, 8 / (PER_NODE * 400e9)}, .add = 3 / 2e12};
        status =
            weft_grad_reduce_predict(weft_cascade_run_reduce(run), &costs, &j->reduce, &j->last);
    }
    if (status == WEFT_OK) {
        weft_cascade_run_nodes(run, PER_NODE, NULL);
        weft_cascade_run_predict(run, NULL, j->mode == SEARCHED ? &searches : NULL);
        status = play_all(j, run);
    }
    weft_cascade_run_free(run);
    weft_store_free(store);
    weft_backend_virtual_free(backend);
    return status;
}

static void run(const weft_placed_iteration *plan, int plans, mode how, job *jobs)
{
    static weft_model model;
    weft_link_model links;
    weft_comm *comm[RANKS];
    set_scenarios();
    model = model_of(config);
    cr_assert_eq(
        weft_link_model_parse("400 Gbit/s, 5 us, 8 per node; inside 3600 Gbit/s, 3 us", &links),
        WEFT_OK, "%s", weft_error_message());
    links.clocked = true;
    cr_assert_eq(weft_comm_open_threads_linked(RANKS, &links, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        jobs[r] = (job){.plan = plan,
                        .plans = plans,
                        .rank = r,
                        .mode = how,
                        .factor = 1,
                        .model = &model,
                        .comm = comm[r],
                        .start = weft_alloc(plans * MOST * (int64_t)sizeof(double)),
                        .end = weft_alloc(plans * MOST * (int64_t)sizeof(double)),
                        .summed = weft_alloc(plans * (int64_t)sizeof(double))};
        weft_comm_set_deadline(comm[r], 120);
    }
    run_ranks("cascades", RANKS, comm, play, jobs, sizeof *jobs);
}

static void end(job *jobs)
{
    for (int r = 0; r < RANKS; r++) {
        weft_free(jobs[r].start);
        weft_free(jobs[r].end);
        weft_free(jobs[r].summed);
    }
}

/* Seconds from the start of the first rank to the end of the last. */
static double seconds_of(const job *jobs, const weft_placed_iteration *plan, int at, int c)
{
    double from = INFINITY, to = 0;
    for (int64_t i = 0; i < plan->cascade[c].at.degree; i++) {
        const job *j = &jobs[plan->cascade[c].at.device[i]];
        from = fmin(from, j->start[at * MOST + c]);
        to = fmax(to, j->end[at * MOST + c]);
    }
    return to - from;
}

static double makespan_of(const job *jobs, int at)
{
    double most = 0;
    for (int r = 0; r < RANKS; r++)
        for (int c = 0; c < MOST; c++)
            most = fmax(most, jobs[r].end[at * MOST + c]);
    return most;
}

/* Seconds of the gradient reductions after the last cascade. */
static double exposed_of(const job *jobs, int at)
{
    double most = 0;
    for (int r = 0; r < RANKS; r++)
        most = fmax(most, jobs[r].summed[at]);
    return most - makespan_of(jobs, at);
}

/* Simulated makespan as planned, or with late dispatch. */
static double simulated(const weft_placed_iteration *plan, mode how)
{
    weft_assigned item[MOST];
    bool trains[MOST];
    double factor[MOST];
    weft_dispatch *d;
    for (int32_t c = 0; c < plan->cascades; c++) {
        item[c] = plan->cascade[c].at;
        trains[c] = plan->cascade[c].module == WEFT_CASCADE_DIT;
        factor[c] = factor_of(plan, c);
    }
    const weft_dispatch_setup setup = {.item = item,
                                       .count = plan->cascades,
                                       .devices = RANKS,
                                       .per_node = PER_NODE,
                                       .trains = trains,
                                       .retire = true,
                                       .replan = how == SEARCHED ? &searches : NULL};
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    const double makespan = weft_dispatch_play(d, how >= DISPATCHED, factor, NULL).makespan;
    weft_dispatch_free(d);
    return makespan;
}

/* Executed iterations take the simulated seconds of mode `how`; mode `unlike` has other seconds. */
static void check_late_dispatch(weft_placed_iteration *list, mode how, mode unlike)
{
    static job jobs[RANKS];
    double sum = 0, other = 0;
    for (int i = 0; i < ITERATIONS; i++)
        list[i].late = true;
    run(list, ITERATIONS, how, jobs);
    for (int i = 0; i < ITERATIONS; i++) {
        const double executed = makespan_of(jobs, i), expected = simulated(&list[i], how),
                     off = executed / expected - 1;
        list[i].late = false;
        sum += fabs(off);
        other += fabs(executed / simulated(&list[i], unlike) - 1);
        cr_log_info("late iteration %d: simulated %g, executed %g", i, expected, executed);
        cr_expect(fabs(off) <= 0.05, "late iteration %d: %g s, simulated %g s", i, executed,
                  expected);
    }
    cr_expect(sum / ITERATIONS <= 0.02, "%g on average", sum / ITERATIONS);
    cr_expect(other > 2 * sum, "%g off, another dispatch %g", sum, other);
    end(jobs);
}

Test(cascade_clock, what_is_planned_is_executed)
{
    static made_plan alone[BUCKETS * DEGREES], mixed[ITERATIONS];
    static weft_placed_iteration list[BUCKETS * DEGREES];
    static job jobs[RANKS], again[RANKS], late[RANKS];
    double seconds[BUCKETS][DEGREES], sum = 0;
    for (int i = 0; i < BUCKETS * DEGREES; i++) {
        plan_alone(&alone[i], i / DEGREES, degrees[i % DEGREES]);
        list[i] = alone[i].all;
    }
    run(list, BUCKETS * DEGREES, AS_PLANNED, jobs);
    for (int i = 0; i < BUCKETS * DEGREES; i++)
        seconds[i / DEGREES][i % DEGREES] = seconds_of(jobs, &list[i], i, 0);
    cr_expect(seconds[2][0] > 12 * seconds[0][0], "%g s and %g s", seconds[2][0], seconds[0][0]);
    /* tokens on more ranks are faster: exchanged data are copied in few launches */
    cr_expect(seconds[2][1] < 0.65 * seconds[2][0], "%g s on 2, %g s alone", seconds[2][1],
              seconds[2][0]);
    for (int d = 1; d < DEGREES; d++)
        cr_expect(seconds[2][d] < seconds[2][d - 1], "%g s on %d, %g s on %d", seconds[2][d],
                  degrees[d], seconds[2][d - 1], degrees[d - 1]);
    end(jobs);
    for (int i = 0; i < ITERATIONS; i++) {
        plan_mixed(&mixed[i], i, seconds);
        list[i] = mixed[i].all;
    }
    run(list, ITERATIONS, AS_PLANNED, jobs);
    run(list, ITERATIONS, AS_PLANNED, again);
    run(list, 1, LATE_SUMS, late);
    check_late_dispatch(list, DISPATCHED, AS_PLANNED);
    check_late_dispatch(list, SEARCHED, DISPATCHED);
    for (int i = 0; i < ITERATIONS; i++) {
        const double executed = makespan_of(jobs, i), planned = list[i].makespan,
                     off = executed / planned - 1;
        sum += fabs(off);
        cr_expect(fabs(off) <= 0.05, "iteration %d: %g s, planned %g s", i, executed, planned);
        cr_expect_eq(executed, makespan_of(again, i), "iteration %d: other seconds", i);
        cr_log_info("iteration %d: planned %g, executed %g, bound %g", i, planned, executed,
                    list[i].lower_bound);
        weft_arena_free(mixed[i].arena);
    }
    cr_expect(sum / ITERATIONS <= 0.02, "%g on average", sum / ITERATIONS);
    /* gradient reductions start while the last backward runs; its last gradients remain */
    cr_log_info("sums exposed %g s, else %g s", exposed_of(jobs, 0), exposed_of(late, 0));
    /* reductions that begin on idle ranks take the predicted seconds */
    cr_log_info("reductions %g s, predicted %g s, last %g s", exposed_of(late, 0), jobs[0].reduce,
                jobs[0].last);
    cr_expect_float_eq(exposed_of(late, 0) / jobs[0].reduce, 1, 0.1, "%g s, predicted %g s",
                       exposed_of(late, 0), jobs[0].reduce);
    cr_expect(jobs[0].last > 0 && jobs[0].last <= 1.1 * exposed_of(jobs, 0));
    cr_expect(exposed_of(jobs, 0) < 0.6 * exposed_of(late, 0), "sums exposed %g s, else %g s",
              exposed_of(jobs, 0), exposed_of(late, 0));
    end(jobs);
    end(again);
    end(late);
}

/* The wide cascade of plan_together() begins before the narrow one, as simulated, although one node
 * is idle first. */
Test(cascade_clock, cascades_that_end_nearly_together_leave_the_decisions)
{
    static made_plan alone, made;
    static job jobs[RANKS];
    plan_alone(&alone, 2, 8);
    run(&alone.all, 1, AS_PLANNED, jobs);
    const double seconds = seconds_of(jobs, &alone.all, 0, 0);
    end(jobs);
    plan_together(&made, seconds);
    run(&made.all, 1, DISPATCHED, jobs);
    double start[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (int r = 0; r < RANKS; r++)
        for (int c = 0; c < 4; c++)
            if (jobs[r].end[c] > 0)
                start[c] = fmin(start[c], jobs[r].start[c]);
    cr_log_info("%g s: starts at %g, %g, %g, %g s", seconds, start[0], start[1], start[2],
                start[3]);
    cr_expect(start[2] > (1 + late_by / 2) * seconds && start[2] < 1.01 * seconds, "%g s, not %g s",
              start[2], seconds);
    cr_expect(start[3] > start[2] && start[3] < 5 * seconds, "%g s and %g s", start[2], start[3]);
    end(jobs);
}

/* A rank that gets no further gradients reduces them before it encodes, so the reductions end on the
 * other ranks long before the encoder. After the encoder, the complete reduction would follow it. */
Test(cascade_clock, gradients_are_reduced_before_the_encoders_that_end_an_iteration)
{
    static made_plan alone[2], made;
    static weft_placed_iteration list[2];
    static job jobs[RANKS];
    for (int i = 0; i < 2; i++) {
        plan_alone(&alone[i], 1 + i, 8);
        list[i] = alone[i].all;
    }
    run(list, 2, AS_PLANNED, jobs);
    const double little = seconds_of(jobs, &list[0], 0, 0),
                 seconds = seconds_of(jobs, &list[1], 1, 0);
    end(jobs);
    cr_assert(little < seconds / 2, "%g s and %g s", little, seconds);
    plan_encoder(&made, little, seconds);
    run(&made.all, 1, DISPATCHED, jobs);
    double gradients = 0, summed = 0;
    for (int r = 1; r < RANKS; r++) {
        gradients = fmax(gradients, jobs[r].end[2]);
        summed = fmax(summed, jobs[r].summed[0]);
    }
    const double over = jobs[0].end[3];
    cr_log_info("gradients %g s, reduced %g s, encoder %g to %g s, reduction %g s", gradients,
                summed, jobs[0].start[3], over, jobs[0].reduce);
    cr_expect(jobs[0].start[3] < gradients && over > gradients + 2 * jobs[0].reduce,
              "the encoder ran from %g to %g s", jobs[0].start[3], over);
    cr_expect(summed >= gradients && summed < gradients + jobs[0].reduce,
              "gradients were complete at %g s and reduced at %g s", gradients, summed);
    cr_expect(jobs[0].summed[0] < over + jobs[0].reduce / 100, "%g s, the encoder ended at %g s",
              jobs[0].summed[0], over);
    end(jobs);
}
