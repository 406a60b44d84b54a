/* Feature caches on ranks: for the denoiser of every family, every layout of its recipes and every
 * rule, two ranks as threads are compared with one.
 *
 *   same     layers that a reusing step runs, and layers that a refreshing step runs
 *   close    predictions of refreshing and of reusing steps, and the sums that rules compare, to
 *            1e-5
 *   bytes    a step with kept attentions sends at most the bytes of a step without a cache, where
 *            layers are split by frames and positions in turn
 *   bitwise  predictions of refreshing steps are those of the layout without a cache. Matrix
 *            products round by their shapes, so a probe step computes only the rows that its rank
 *            reads */
#include "../denoisers_of.h"
#include "../ranks_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "graph/rewrite.h"
#include "transform/feature_cache_ranks.h"
#include "transform/numeric/feature_cache_graphs.h"
#include "transform/passes.h"

#include <math.h>
#include <stdio.h>

enum { RANKS = 4, STATES = 512, STEPS = 4, LAYERS = 512 };
enum { FULL, PROBE, REFRESH, REUSE, PROGRAMS };

typedef struct rule {
    const char *name;
    weft_feature_cache_kind what;
    weft_feature_cache_signal signal;
    int front;
} rule;

static const rule rules[] = {
    {"every, front 0", WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_NONE, 0},
    {"every, front 1", WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_NONE, 1},
    {"attention", WEFT_FEATURE_CACHE_ATTENTION, WEFT_SIGNAL_NONE, 0},
    {"block", WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_BLOCK, 0},
    {"input", WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_INPUT, 0},
    {"time", WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_TIME, 0},
};

/* Distinct scopes of linear layers, in the order of the graph. */
typedef struct layers {
    int count;
    char scope[LAYERS][96];
} layers;

typedef struct job {
    const example *model;
    const rule *rule;
    const char *axes;
    weft_comm_overlap slices;
    weft_mesh mesh;
    weft_comm *comm;
    int rank;
    /* results */
    layers ran[PROGRAMS];
    float *prediction[STEPS][2]; /* of the step, and of the graph without a cache; heap */
    int64_t count;
    double moved[STEPS], size[STEPS];
    int64_t sent[PROGRAMS]; /* bytes per run */
} job;

typedef struct bench {
    job *j;
    weft_graph *graph[PROGRAMS];
    weft_program *program[PROGRAMS];
    weft_store *store;
    struct {
        const char *name;
        void *data;
        int64_t bytes;
    } state[STATES];
    int states;
} bench;

/* This rank's shard of the tensor. */
static void fill(const weft_tensor *t, double time)
{
    const weft_box own = weft_box_of(t), all = weft_box_whole(&t->whole);
    const int64_t count = weft_shape_count(&t->whole);
    const bool input = !strncmp(t->name, "batch.", 6), is_time = !strcmp(t->name, "batch.timestep");
    const double scale = !strcmp(t->name, "batch.latents") ? 0.5 + time : input ? 1 : 0.3;
    const double offset = !input && strstr(t->name, "norm") && strstr(t->name, ".weight");
    char *whole = weft_alloc((count + 1) * 4);
    uint64_t seed = 5;
    for (const char *c = t->name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    for (int64_t i = 0; i < count; i++)
        if (t->dtype == WEFT_I32)
            ((int32_t *)(void *)whole)[i] = i % 5 < 3;
        else if (is_time)
            ((float *)(void *)whole)[i] = (float)(1000 * time);
        else
            ((float *)(void *)whole)[i] =
                (float)(scale * weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)i) + offset);
    weft_box_copy(&own, t->data, t->dtype, &all, whole, t->dtype);
    weft_free(whole);
}

static void fill_inputs(const bench *b, int which, double time)
{
    const weft_graph *g = b->graph[which];
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor t = weft_tensor_of(g, node->out[0]);
        t.data = weft_program_input(b->program[which], t.name)->data;
        fill(&t, time);
    }
}

/* Only the program that writes a state allocates its record, so another size or a state that is
 * read and never written is found. */
static weft_status point(bench *b, int which)
{
    int count;
    weft_tensor *slot = weft_program_slots(b->program[which], &count);
    for (int i = 0; i < count; i++) {
        const int64_t bytes =
            weft_shape_count(&slot[i].shape) * weft_dtype_bytes(slot[i].dtype) + 1;
        int at = 0;
        while (at < b->states && strcmp(b->state[at].name, slot[i].name))
            at++;
        if (at == b->states) {
            if (b->states == STATES || which == REUSE)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "%s: no graph writes it",
                                  slot[i].name);
            b->state[at].name = slot[i].name;
            b->state[at].bytes = bytes;
            b->state[at].data = weft_alloc_aligned(bytes);
            b->states++;
        }
        if (b->state[at].bytes != bytes)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "%s: the graphs differ in its size", slot[i].name);
        slot[i].data = b->state[at].data;
    }
    weft_program_set_slots(b->program[which]);
    return WEFT_OK;
}

static weft_status run_program(bench *b, int which, double time)
{
    fill_inputs(b, which, time);
    WEFT_TRY(point(b, which));
    return weft_program_run(b->program[which]);
}

static void keep_prediction(bench *b, int which, float **copy)
{
    const weft_tensor *t = weft_program_output(b->program[which], "prediction");
    b->j->count = weft_shape_count(&t->shape);
    *copy = weft_alloc(b->j->count * 4);
    memcpy(*copy, t->data, (size_t)b->j->count * 4);
}

static double sum_of(const bench *b, const char *name)
{
    const weft_tensor *t = weft_program_output(b->program[PROBE], name);
    double sum = 0;
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        sum += (double)((const float *)t->data)[i];
    return sum;
}

static weft_status run_steps(bench *b)
{
    static const double times[STEPS] = {0.8, 0.79, 0.7, 0.68};
    for (int i = 0; i < STEPS; i++) {
        const int which = i % 2 ? REUSE : REFRESH;
        if (b->program[PROBE]) {
            WEFT_TRY(run_program(b, PROBE, times[i]));
            b->j->moved[i] = sum_of(b, "reuse.moved");
            b->j->size[i] = sum_of(b, "reuse.size");
            for (int k = 0; k < b->states; k++) /* compared with this step's from now on */
                for (int l = 0; l < b->states; l++)
                    if (!strcmp(b->state[k].name, "reuse.now") &&
                        !strcmp(b->state[l].name, "reuse.before"))
                        memcpy(b->state[l].data, b->state[k].data, (size_t)b->state[k].bytes);
        }
        WEFT_TRY(run_program(b, which, times[i]));
        keep_prediction(b, which, &b->j->prediction[i][0]);
        WEFT_TRY(run_program(b, FULL, times[i]));
        keep_prediction(b, FULL, &b->j->prediction[i][1]);
    }
    return WEFT_OK;
}

static void list_layers(const weft_graph *g, layers *list)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        int at = 0;
        while (at < list->count && strcmp(list->scope[at], node->scope))
            at++;
        if (node->op != WEFT_OP_LINEAR || at < list->count)
            continue;
        cr_assert_lt(list->count, LAYERS);
        snprintf(list->scope[list->count++], sizeof list->scope[0], "%s", node->scope);
    }
}

static weft_status compile(bench *b, const weft_pass_setup *setup)
{
    weft_program *list[PROGRAMS];
    int count = 0;
    weft_group *world = NULL;
    const weft_program_options options = {.mesh = setup->mesh, .threads = 1};
    for (int i = 0; i < PROGRAMS; i++) {
        if (!b->graph[i])
            continue;
        WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, setup, false, &b->graph[i], NULL));
        list_layers(b->graph[i], &b->j->ran[i]);
        WEFT_TRY(weft_program_compile(b->graph[i], &options, &b->program[i]));
        list[count++] = b->program[i];
    }
    WEFT_TRY(weft_store_init(b->store, b->graph[FULL], 3));
    if (b->j->comm)
        WEFT_TRY(weft_comm_world(b->j->comm, &world));
    WEFT_TRY(weft_programs_bind(list, count, b->store, world));
    for (int64_t t = 0; t < weft_store_count(b->store); t++)
        fill(weft_store_at(b->store, t), 0);
    return WEFT_OK;
}

static int readers(const weft_graph *g, weft_value v)
{
    int count = 0;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++)
        for (int k = 0; k < weft_graph_node(g, i)->in_count; k++)
            count += weft_graph_node(g, i)->in[k].id == v.id;
    return count;
}

/* A state that each rank reads only in part is also computed only in part. */
static weft_status check_parts(const weft_graph *g)
{
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        if (n->op != WEFT_OP_SLICE_OWN)
            continue;
        const weft_value_info *in = weft_value_get(g, n->in[0]);
        const weft_node *from = weft_graph_node(g, in->node);
        if (from->op == WEFT_OP_STATE && ((const weft_attr_source *)from->attr)->slot &&
            readers(g, n->in[0]) == 1)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "%s: the probe computes all of it", in->name);
    }
    return WEFT_OK;
}

static weft_status_code walk(void *user)
{
    job *j = user;
    const weft_model model = model_of(j->model->config);
    bench b = {.j = j, .store = weft_store_create(), .graph = {denoiser_graph(j->model)}};
    const weft_feature_cache_programs_setup reuse = {
        "batch.latents", "batch.timestep", j->rule->what, j->rule->signal, j->rule->front};
    weft_recipe recipe = {0};
    weft_feature_cache_programs made = {0};
    weft_status_code status = WEFT_OK;
    const bool several = weft_mesh_ranks(&j->mesh) > 1;
    WEFT_GO(weft_recipe_compose(model.family->recipe, model.family->recipes, &j->mesh, &recipe));
    for (int i = 0; i < recipe.count; i++)
        ((weft_recipe_row *)(uintptr_t)recipe.row)[i].optional = true;
    recipe.overlap = &j->slices;
    const weft_pass_setup setup = {
        .mesh = several ? &j->mesh : NULL, .rank = j->rank, .recipe = &recipe};
    WEFT_GO(weft_pass_feature_cache(b.graph[FULL], &reuse, &made));
    WEFT_GO(weft_feature_cache_programs_shard(&made, &setup));
    WEFT_GO(check_parts(made.refresh));
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &b.graph[FULL], NULL));
    b.graph[PROBE] = made.probe;
    b.graph[REFRESH] = made.refresh;
    b.graph[REUSE] = made.reuse;
    made = (weft_feature_cache_programs){0};
    WEFT_GO(compile(&b, &setup));
    WEFT_GO(run_steps(&b));
    for (int i = 0; i < PROGRAMS && several; i++)
        j->sent[i] = b.program[i] ? weft_program_comm_times(b.program[i]).wire_bytes : 0;
out:
    for (int i = 0; i < PROGRAMS; i++) {
        weft_program_free(b.program[i]);
        weft_graph_free(b.graph[i]);
    }
    for (int i = 0; i < b.states; i++)
        weft_free(b.state[i].data);
    weft_feature_cache_programs_free(&made);
    weft_recipe_free(&recipe);
    weft_store_free(b.store);
    return status;
}

/* ---- comparison ---------------------------------------------------------------------------- */

static int run(const job *as, job *jobs)
{
    weft_comm *comm[RANKS];
    weft_mesh mesh;
    char what[256];
    cr_assert_eq(weft_mesh_parse(as->axes, &mesh), WEFT_OK, "%s", weft_error_message());
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = *as;
        jobs[r].mesh = mesh;
        jobs[r].comm = ranks > 1 ? comm[r] : NULL;
        jobs[r].rank = r;
        weft_comm_set_deadline(comm[r], 120);
    }
    snprintf(what, sizeof what, "%.50s, %s, %s", as->model->config, as->rule->name, as->axes);
    run_ranks(what, ranks, comm, walk, jobs, sizeof *jobs);
    return ranks;
}

static void end(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 2 * STEPS; i++)
            weft_free(jobs[r].prediction[i / 2][i % 2]);
}

static double apart(const float *x, const float *y, int64_t count)
{
    double sum = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)y[i] * (double)y[i];
    }
    return sqrt(sum / norm);
}

static bool has_layer(const layers *list, const char *scope)
{
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->scope[i], scope))
            return true;
    return false;
}

static void compare_layers(const job *one, const job *many, const char *what)
{
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < one->ran[p].count; i++)
            cr_expect(has_layer(&many->ran[p], one->ran[p].scope[i]), "%s: program %d lacks %s",
                      what, p, one->ran[p].scope[i]);
        for (int i = 0; i < many->ran[p].count; i++)
            cr_expect(has_layer(&one->ran[p], many->ran[p].scope[i]), "%s: program %d also runs %s",
                      what, p, many->ran[p].scope[i]);
    }
}

/* Bitwise. Exception: the signal of the first block cuts the graph after the block. Slices after
 * the cut can have other sizes, and products of other sizes add in another order. */
static void compare_refreshed(const job *many, int i, const char *what)
{
    const bool cut =
        many->slices.kind == WEFT_COMM_OVERLAP_ON && many->rule->signal == WEFT_SIGNAL_BLOCK;
    const float *x = many->prediction[i][0], *full = many->prediction[i][1];
    const double off = apart(x, full, many->count);
    cr_expect(cut ? off < 1e-6 : !memcmp(x, full, (size_t)many->count * sizeof *x),
              "%s: refreshed step %d differs from the one without a cache by %g", what, i, off);
}

static void compare_values(const job *one, const job *many, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        const double off = apart(many->prediction[i][0], one->prediction[i][0], one->count);
        cr_expect_lt(off, 1e-5, "%s: step %d is off by %g", what, i, off);
        if (i % 2 == 0)
            compare_refreshed(many, i, what);
        if (i == 0)
            continue; /* nothing precedes it that the signal could be compared with */
        /* a residual may change by more than its size, and both round */
        cr_expect_float_eq(many->moved[i] * one->size[i], one->moved[i] * many->size[i],
                           1e-5 * fmax(one->moved[i], one->size[i]) * many->size[i],
                           "%s: moved %g of %g, not %g of %g", what, many->moved[i], many->size[i],
                           one->moved[i], one->size[i]);
    }
}

static void compare(const job *as, const job *one)
{
    static job many[RANKS];
    char what[256];
    const int ranks = run(as, many);
    for (int r = 0; r < ranks; r++) {
        snprintf(what, sizeof what, "%.50s, %s, %s, slices %s, rank %d", as->model->config,
                 as->rule->name, as->axes, as->slices.kind == WEFT_COMM_OVERLAP_ON ? "on" : "off",
                 r);
        compare_layers(one, &many[r], what);
        compare_values(one, &many[r], what);
    }
    end(many, ranks);
}

/* Samples, and each list of the family. */
static void compare_layouts(const job *as, const job *one)
{
    const weft_family *f = model_of(as->model->config).family;
    const weft_comm_overlap off = {.kind = WEFT_COMM_OVERLAP_OFF},
                            on = {.kind = WEFT_COMM_OVERLAP_ON,
                                  .time = 2,
                                  .space = 3,
                                  .lift_time = 1,
                                  .lift_space = 1,
                                  .heads = 2,
                                  .chunks = 2};
    for (int i = -1; i < f->recipes; i++) {
        char axes[64];
        snprintf(axes, sizeof axes, "%s=2", i < 0 ? "dp" : f->recipe[i]->axis);
        job layout = *as;
        layout.axes = axes;
        layout.slices = off;
        compare(&layout, one);
        layout.slices = on;
        compare(&layout, one);
    }
}

static void compare_rule(const rule *r)
{
    static job one[RANKS];
    for (int i = 0; i < DENOISERS_OF; i++) {
        const example *e = &denoisers_of[i];
        if (r->signal == WEFT_SIGNAL_TIME && !e->told)
            continue;
        const job as = {.model = e, .rule = r, .axes = ""};
        run(&as, one);
        compare_layouts(&as, one);
        end(one, 1);
    }
}

Test(feature_cache, every_step_behind_nothing)
{
    compare_rule(&rules[0]);
}

Test(feature_cache, every_step_behind_a_block)
{
    compare_rule(&rules[1]);
}

Test(feature_cache, attention)
{
    compare_rule(&rules[2]);
}

Test(feature_cache, first_block)
{
    compare_rule(&rules[3]);
}

Test(feature_cache, first_input)
{
    compare_rule(&rules[4]);
}

Test(feature_cache, time)
{
    compare_rule(&rules[5]);
}

static void compare_bytes(const job *as)
{
    static job many[RANKS];
    const int ranks = run(as, many);
    for (int r = 0; r < ranks; r++) {
        const int64_t *sent = many[r].sent;
        for (int p = REFRESH; p <= REUSE; p++)
            cr_expect_leq(sent[p], sent[FULL],
                          "%.50s, %d frames, slices %s, rank %d: program %d sends %lld bytes, the "
                          "one without a cache %lld",
                          as->model->config, (int)as->model->size.frames,
                          as->slices.kind == WEFT_COMM_OVERLAP_ON ? "on" : "off", r, p,
                          (long long)sent[p], (long long)sent[FULL]);
        cr_expect_gt(sent[FULL], 0);
    }
    end(many, ranks);
}

/* Its layers are split by frames and by positions in turn. */
static bool alternates(const example *e)
{
    const char *name = model_of(e->config).family->class_name;
    return !strcmp(name, "LatteTransformer3DModel") || !strcmp(name, "STDiT3");
}

/* Layers change between splits by frames and by positions. Kept states stay where they are computed
 * and read, with even and uneven splits, in one slice and in several. */
Test(feature_cache, kept_attentions_are_not_exchanged)
{
    static const weft_comm_overlap off = {.kind = WEFT_COMM_OVERLAP_OFF},
                                   on = {.kind = WEFT_COMM_OVERLAP_ON,
                                         .time = 2,
                                         .space = 2,
                                         .lift_time = 1,
                                         .lift_space = 1};
    for (int i = 0; i < DENOISERS_OF; i++) {
        if (!alternates(&denoisers_of[i]))
            continue;
        for (int k = 0; k < 4; k++) {
            example model = denoisers_of[i];
            model.size.frames = 4 + k % 2;
            compare_bytes(&(job){
                .model = &model, .rule = &rules[2], .axes = "cp=2", .slices = k < 2 ? off : on});
        }
    }
}

static bool has_axes(const weft_family *f, const char *axes)
{
    static const char *const name[] = {"tp", "cp", "sp", "ring"};
    for (int i = 0; i < WEFT_COUNT(name); i++)
        if (strstr(axes, name[i]) && !weft_recipe_list_find(f->recipe, f->recipes, name[i]))
            return false;
    return true;
}

/* Three ranks, of which the last has less. */
Test(feature_cache, two_axes_and_three_ranks)
{
    static job one[RANKS];
    static const char *const axes[] = {"cp=3", "dp=2,cp=2", "cp=2,tp=2", "sp=2,cp=2",
                                       "fsdp=2,cp=2"};
    for (int i = 0; i < DENOISERS_OF; i++)
        for (int k = 0; k < 2; k++) { /* layouts alternate over families */
            job as = {.model = &denoisers_of[i],
                      .rule = &rules[(i + k) % 2 ? 3 : 1],
                      .axes = "",
                      .slices = weft_comm_overlap_default};
            const char *layout = axes[(i + k * 2) % WEFT_COUNT(axes)];
            const weft_family *family = model_of(denoisers_of[i].config).family;
            if (!has_axes(family, layout))
                layout = has_axes(family, "cp") ? "cp=3" : "tp=2";
            run(&as, one);
            as.axes = layout;
            compare(&as, one);
            end(one, 1);
        }
}

/* States of slices: two samples, padded and folded layers, and another axis before the slices. */
Test(feature_cache, states_of_slices)
{
    static job one[RANKS];
    static const char *const axes[] = {"cp=3", "cp=4", "cp=2,tp=2", "dp=2,cp=2"};
    for (int i = 0; i < DENOISERS_OF; i++) {
        example model = denoisers_of[i];
        if (!alternates(&model))
            continue;
        for (int k = 0; k < WEFT_COUNT(axes); k++) {
            model.size.batch = k == 2 ? 1 : 2;
            model.size.frames = k == 1 ? 2 : 5;
            job as = {.model = &model, .rule = &rules[2], .axes = ""};
            run(&as, one);
            as.axes = axes[k];
            as.slices = (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_ON,
                                            .time = 4,
                                            .space = 4,
                                            .lift_time = 1,
                                            .lift_space = 1};
            compare(&as, one);
            end(one, 1);
        }
    }
}
