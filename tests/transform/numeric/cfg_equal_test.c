/* Rows that are equal in both CFG branches are computed once (cfg_branches.h): for the denoiser of
 * every family, in f32 and bf16, on one rank and in every layout of its recipes.
 *
 *   bitwise  the prediction is that of a program that computes all rows of both branches. With tp:
 *            close, since ranks add the elements of half a tensor in another order
 *   FLOPs    fewer by exactly the nodes that come before the first text */
#include "../../denoisers_of.h"
#include "../../ranks_of.h"

#include "base/rng.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "generate/generator/generator_rows.h"
#include "graph/rewrite.h"
#include "transform/numeric/mixed_precision.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { ALL, ONCE, KINDS };
enum { RANKS = 2, PROMPTS = 2 };

typedef struct job {
    const example *model;
    const weft_cfg_inputs *inputs;
    const char *axes;
    bool bf16, slices;
    weft_mesh mesh;
    weft_comm *comm;
    int rank;
    /* results */
    double flops[KINDS];
    float *prediction[KINDS]; /* heap */
    int64_t count;
} job;

static bool is_equal(const weft_cfg_inputs *inputs, const char *name)
{
    for (int i = 0; i < inputs->equal_count; i++)
        if (!strcmp(inputs->equal[i], name))
            return true;
    return false;
}

/* This rank's shard of the tensor. The halves of equal inputs are equal. */
static void fill(const weft_tensor *t, const weft_cfg_inputs *inputs)
{
    const weft_box own = weft_box_of(t), all = weft_box_whole(&t->whole);
    const int64_t count = weft_shape_count(&t->whole),
                  period = is_equal(inputs, t->name) ? count / 2 : count;
    const bool input = !strncmp(t->name, "batch.", 6);
    const double offset = !input && strstr(t->name, "norm") && strstr(t->name, ".weight");
    const double scale = !strcmp(t->name, "batch.timestep") ? 300 : input ? 1 : 0.3;
    char *whole = weft_alloc((count + 1) * 4);
    uint64_t seed = 5;
    for (const char *c = t->name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    for (int64_t i = 0; i < count; i++)
        if (t->dtype == WEFT_I32)
            ((int32_t *)(void *)whole)[i] = i % 5 < 3;
        else
            ((float *)(void *)whole)[i] =
                (float)(scale * weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)(i % period)) +
                        offset);
    weft_box_copy(&own, t->data, t->dtype, &all, whole, t->dtype);
    weft_free(whole);
}

static void fill_inputs(const weft_graph *g, weft_program *program, const weft_cfg_inputs *inputs)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        if (weft_graph_node(g, n)->op != WEFT_OP_INPUT)
            continue;
        weft_tensor t = weft_tensor_of(g, weft_graph_node(g, n)->out[0]);
        t.data = weft_program_input(program, t.name)->data;
        fill(&t, inputs);
    }
}

static weft_status run_both(job *j, weft_graph *const graph[KINDS], weft_program *program[KINDS],
                            weft_store *store)
{
    weft_group *world = NULL;
    const weft_program_options options = {.mesh = j->comm ? &j->mesh : NULL, .threads = 1};
    for (int i = 0; i < KINDS; i++) {
        j->flops[i] = (double)weft_graph_cost(graph[i]).flops;
        WEFT_TRY(weft_program_compile(graph[i], &options, &program[i]));
    }
    WEFT_TRY(weft_store_init(store, graph[ALL], 3));
    if (j->comm)
        WEFT_TRY(weft_comm_world(j->comm, &world));
    WEFT_TRY(weft_programs_bind(program, KINDS, store, world));
    for (int64_t t = 0; t < weft_store_count(store); t++)
        fill(weft_store_at(store, t), j->inputs);
    for (int i = 0; i < KINDS; i++) {
        fill_inputs(graph[i], program[i], j->inputs);
        WEFT_TRY(weft_program_run(program[i]));
        const weft_tensor *t = weft_program_output(program[i], "prediction");
        j->count = weft_shape_count(&t->shape);
        j->prediction[i] = weft_alloc(j->count * 4);
        memcpy(j->prediction[i], t->data, (size_t)j->count * 4);
    }
    return WEFT_OK;
}

/* The graph of this rank. */
static weft_status build(const job *j, const weft_cfg_inputs *inputs, const weft_recipe *recipe,
                         weft_graph **to)
{
    const weft_pass_setup setup = {.mesh = j->comm ? &j->mesh : NULL,
                                   .rank = j->rank,
                                   .recipe = recipe,
                                   .cfg_branches = true,
                                   .cfg_inputs = inputs};
    example model = *j->model;
    model.size.batch = 2 * PROMPTS;
    *to = denoiser_graph(&model);
    if (j->bf16) {
        weft_graph *wide = *to;
        WEFT_TRY(weft_pass_mixed_precision(wide, WEFT_MIXED_ENDS_F32, to));
        weft_graph_free(wide);
    }
    WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, to, NULL));
    return weft_passes_run(WEFT_PASS_RANK, &setup, false, to, NULL);
}

static weft_status_code walk(void *user)
{
    static const weft_comm_overlap on = {.kind = WEFT_COMM_OVERLAP_ON,
                                         .time = 2,
                                         .space = 3,
                                         .lift_time = 1,
                                         .lift_space = 1,
                                         .heads = 2,
                                         .chunks = 2},
                                   off = {.kind = WEFT_COMM_OVERLAP_OFF};
    job *j = user;
    const weft_model model = model_of(j->model->config);
    weft_graph *graph[KINDS] = {NULL};
    weft_program *program[KINDS] = {NULL};
    weft_store *store = weft_store_create();
    weft_recipe recipe = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_recipe_compose(model.family->recipe, model.family->recipes, &j->mesh, &recipe));
    for (int i = 0; i < recipe.count; i++)
        ((weft_recipe_row *)(uintptr_t)recipe.row)[i].optional = true;
    recipe.overlap = j->slices ? &on : &off;
    WEFT_GO(build(j, NULL, &recipe, &graph[ALL]));
    WEFT_GO(build(j, j->inputs, &recipe, &graph[ONCE]));
    WEFT_GO(run_both(j, graph, program, store));
out:
    for (int i = 0; i < KINDS; i++) {
        weft_program_free(program[i]);
        weft_graph_free(graph[i]);
    }
    weft_recipe_free(&recipe);
    weft_store_free(store);
    return status;
}

static double apart(const job *j)
{
    double sum = 0, norm = 0;
    for (int64_t i = 0; i < j->count; i++) {
        const double x = (double)j->prediction[ONCE][i], y = (double)j->prediction[ALL][i];
        sum += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(sum / norm);
}

static void run_layout(const job *as, double most)
{
    weft_comm *comm[RANKS];
    job jobs[RANKS];
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
    snprintf(what, sizeof what, "%.50s, %s, %s%s", as->model->config, as->axes,
             as->bf16 ? "bf16" : "f32", as->slices ? ", slices" : "");
    run_ranks(what, ranks, comm, walk, jobs, sizeof *jobs);
    for (int r = 0; r < ranks; r++) {
        const double off = apart(&jobs[r]); /* NaN if a prediction is not finite */
        cr_expect(off <= most, "%s: rank %d is off by %g", what, r, off);
        cr_expect_lt(jobs[r].flops[ONCE], jobs[r].flops[ALL], "%s: nothing is computed once", what);
        for (int i = 0; i < KINDS; i++)
            weft_free(jobs[r].prediction[i]);
    }
}

Test(halves, equal_rows_of_every_family)
{
    for (int i = 0; i < DENOISERS_OF; i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            run_layout(&(job){.model = &denoisers_of[i],
                              .inputs = &weft_generator_equal_inputs,
                              .axes = "dp=1",
                              .bf16 = bf16},
                       0);
}

Test(halves, equal_rows_on_ranks, .timeout = 600)
{
    for (int i = 0; i < DENOISERS_OF; i++) {
        const weft_family *f = model_of(denoisers_of[i].config).family;
        for (int k = 0; k < f->recipes; k++) {
            const char *axis = f->recipe[k]->axis;
            char axes[64];
            if (!strcmp(axis, "ep") || !strcmp(axis, "fsdp")) /* they split the batch */
                continue;
            snprintf(axes, sizeof axes, "%s=2", axis);
            for (int slices = 0; slices < 2; slices++)
                run_layout(&(job){.model = &denoisers_of[i],
                                  .inputs = &weft_generator_equal_inputs,
                                  .axes = axes,
                                  .slices = slices},
                           !strcmp(axis, "tp") ? 1e-6 : 0);
        }
    }
}

/* Only inputs that are declared equal count: these timesteps differ between the halves. */
Test(halves, unequal_timesteps)
{
    static const char *const latents[] = {"batch.latents"};
    const weft_cfg_inputs only = {latents, 1};
    run_layout(&(job){.model = &denoisers_of[0], .inputs = &only, .axes = "dp=1"}, 0);
}

/* FLOPs of the nodes before the first text, by scope: patches, time, and the first block's
 * self-attention and query of the text. */
static double flops_before_text(const weft_graph *g)
{
    static const char *const scopes[] = {"*patch_embedding", "*condition_embedder.time_embedder*",
                                         "*condition_embedder.time_proj*", "*blocks.0.attn1*",
                                         "*blocks.0.attn2.to_q"};
    double flops = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < WEFT_COUNT(scopes); i++)
            if (weft_op_has(node->op, WEFT_TRAIT_HEAVY) &&
                weft_name_matches(scopes[i], node->scope))
                flops += (double)weft_node_cost(g, n).flops;
    }
    return flops;
}

static double heavy_flops(const weft_graph *g)
{
    double flops = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (weft_op_has(weft_graph_node(g, n)->op, WEFT_TRAIT_HEAVY))
            flops += (double)weft_node_cost(g, n).flops;
    return flops;
}

/* Half of the FLOPs before the text are not computed, and no others. */
Test(halves, flops_of_equal_rows)
{
    example model = denoisers_of[0];
    model.size.batch = 2 * PROMPTS;
    weft_graph *both = denoiser_graph(&model), *all, *once;
    cr_assert_eq(weft_pass_cfg_branches(both, NULL, &all), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_cfg_branches(both, &weft_generator_equal_inputs, &once), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_gt(flops_before_text(all), 0);
    cr_expect_float_eq(flops_before_text(once), flops_before_text(all) / 2, 0.5);
    cr_expect_float_eq(heavy_flops(all) - heavy_flops(once), flops_before_text(all) / 2, 0.5,
                       "%g saved, and %g of %g are before the text",
                       heavy_flops(all) - heavy_flops(once), flops_before_text(all) / 2,
                       heavy_flops(all));
    weft_graph_free(both);
    weft_graph_free(all);
    weft_graph_free(once);
}
