/* Sharded parameters: the peak of a step has the shards of all parameters, one unsharded block, and
 * activations. With the pass off, the peak has the unsharded model. */
#include "../../model_of.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "kernel/kernel.h"
#include "train/graph/optimizer.h"
#include "transform/memory/lifetime_check.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const weft_lifetime_options cpu = {.in_place = true};

static weft_graph *loss_of_wide_model(void)
{
    const weft_model model =
        model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":4,"
                 "\"attention_head_dim\":64,\"in_channels\":4,\"text_dim\":64,\"freq_dim\":64,"
                 "\"ffn_dim\":1024,\"num_layers\":12,\"rope_max_seq_len\":64}");
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.latents", WEFT_F32, WEFT_SHAPE(4, 1, 16, 16, 4));
    const weft_value time = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(4));
    const weft_value text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(4, 8, 64));
    const weft_value y = denoise(g, &model, x, time, text);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, y)));
    return g;
}

/* Forward and backward of rank 0; gradients are the outputs after "objective". */
static weft_graph *gradients_with_room(const char *mesh_text, const weft_pass_switches *switches,
                                       int64_t room)
{
    weft_mesh mesh;
    weft_recipe recipe;
    weft_value grad[512];
    int count;
    weft_graph *g = loss_of_wide_model();
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(NULL, 0, &mesh, &recipe), WEFT_OK);
    const weft_pass_setup setup = {
        .mesh = &mesh, .recipe = &recipe, .switches = switches, .prefetch_bytes = room};
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    const weft_value *params = weft_graph_params(g, &count);
    cr_assert_lt(count, 512);
    weft_autodiff(g, weft_graph_find(g, "objective"), params, count, grad);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%d", i);
        if (weft_value_ok(grad[i]))
            weft_output(g, name, grad[i]);
    }
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    weft_recipe_free(&recipe);
    return g;
}

static weft_graph *gradients(const char *mesh_text, const weft_pass_switches *switches)
{
    return gradients_with_room(mesh_text, switches, 0);
}

static weft_memory_plan plan_of(const weft_graph *g)
{
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, &cpu, &plan), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_memory_plan_check(g, &cpu, &plan), WEFT_OK, "%s", weft_error_message());
    return plan;
}

/* The peak over nodes of the bytes of values that do not live to the end, as gradients do. */
static double activations(const weft_memory_plan *plan)
{
    int64_t most = 0;
    for (int32_t n = 0; n < plan->node_count; n++) {
        int64_t live = 0;
        for (int32_t v = 0; v < plan->count; v++) {
            const weft_allocation *p = &plan->allocation[v];
            if (p->region == WEFT_REGION_ARENA && p->alias_of < 0 && p->last < plan->node_count &&
                p->first <= n && n <= p->last)
                live += p->bytes;
        }
        most = live > most ? live : most;
    }
    return (double)most;
}

/* Bytes of the unsharded parameters of the largest block. */
static double largest_block(const weft_graph *g)
{
    double bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == WEFT_OP_PARAM && strstr(weft_value_get(g, node->out[0])->name, "blocks.0."))
            bytes += 4 * (double)weft_shape_count(&((const weft_attr_source *)node->attr)->global);
    }
    return bytes;
}

Test(regather, peak_has_one_block_whole)
{
    weft_pass_switches off = weft_pass_defaults;
    off.regather = false;
    weft_graph *whole = gradients("dp=4", NULL), *parts = gradients("fsdp=4", NULL),
               *kept = gradients("fsdp=4", &off);
    weft_memory_plan a = plan_of(whole), b = plan_of(parts), c = plan_of(kept);
    const double params = (double)a.source_bytes, block = largest_block(whole);
    /* parameters and gradients in quarters */
    const double limit = 1.05 * (2 * params / 4 + block + activations(&a));
    cr_expect_leq((double)b.source_bytes, 1.01 * params / 4);
    cr_expect_leq((double)(b.source_bytes + b.arena_bytes), limit,
                  "%.0f of %.0f: params %.0f, block %.0f, activations %.0f",
                  (double)(b.source_bytes + b.arena_bytes), limit, params, block, activations(&a));
    cr_expect_gt((double)(c.source_bytes + c.arena_bytes), limit + params / 2);
    weft_memory_plan_free(&a);
    weft_memory_plan_free(&b);
    weft_memory_plan_free(&c);
    weft_graph_free(whole);
    weft_graph_free(parts);
    weft_graph_free(kept);
}

/* The peak of the bytes of gathered parameters, complete or in transfer, before their first reader.
 * */
static int64_t gathered_ahead(const weft_graph *g)
{
    const int32_t nodes = weft_graph_node_count(g);
    int64_t most = 0;
    for (int32_t at = 0; at < nodes; at++) {
        int64_t bytes = 0;
        for (int32_t n = 0; n < at; n++) {
            const weft_node *node = weft_graph_node(g, n);
            if (node->op != WEFT_OP_ALL_GATHER ||
                weft_graph_node(g, weft_value_get(g, node->in[0])->node)->op != WEFT_OP_PARAM)
                continue;
            bool read = false;
            for (int32_t m = n + 1; m < at && !read; m++)
                for (int i = 0; i < weft_graph_node(g, m)->in_count; i++)
                    read = read || weft_graph_node(g, m)->in[i].id == node->out[0].id;
            bytes += read ? 0 : 4 * weft_shape_count(&weft_value_get(g, node->out[0])->shape);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes in transfer, and their arena, grow with the prefetch budget. A gather that is next in the
 * original order is not delayed. */
Test(regather, ahead_as_far_as_there_is_room)
{
    const int64_t mib = 1 << 20, room[4] = {1, 0, 8 * mib, 16 * mib};
    int64_t ahead[4], arena[4];
    for (int i = 0; i < 4; i++) {
        weft_graph *g = gradients_with_room("fsdp=4", NULL, room[i]);
        weft_memory_plan plan = plan_of(g);
        ahead[i] = gathered_ahead(g);
        arena[i] = plan.arena_bytes;
        weft_memory_plan_free(&plan);
        weft_graph_free(g);
    }
    for (int i = 1; i < 4; i++)
        cr_expect_gt(ahead[i], ahead[i - 1]);
    cr_expect(arena[0] < arena[1] && arena[1] < arena[2] && arena[1] < arena[3]);
    cr_expect_leq(ahead[2], 8 * mib);
}

/* Gradient reductions, complete or in parts, start while the backward runs, not after it: when half
 * of them have started in a step of 12 layers, many products of the backward are still to come. */
static void check_sums_start_early(int zero, weft_op op)
{
    weft_mesh mesh;
    weft_recipe recipe;
    int32_t products = 0, done = 0, all = 0, started = 0;
    weft_graph *g = loss_of_wide_model();
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(NULL, 0, &mesh, &recipe), WEFT_OK);
    const weft_pass_setup setup = {.mesh = &mesh, .recipe = &recipe};
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL), WEFT_OK);
    weft_optimizer_build(g, weft_graph_find(g, "objective"),
                         &(weft_optimizer_config){.eps = 1e-8, .clip_norm = 1, .zero = {zero, 0}});
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        products += node->backward && weft_op_has(node->op, WEFT_TRAIT_HEAVY);
        all += node->op == op;
    }
    for (int32_t n = 0; n < weft_graph_node_count(g) && started < all / 2; n++) {
        const weft_node *node = weft_graph_node(g, n);
        done += node->backward && weft_op_has(node->op, WEFT_TRAIT_HEAVY);
        started += node->op == op;
    }
    cr_expect_gt(all, 100);
    cr_expect_lt(done, products * 2 / 3, "%d of %d", done, products);
    weft_recipe_free(&recipe);
    weft_graph_free(g);
}

Test(regather, sums_start_in_the_backward)
{
    check_sums_start_early(0, WEFT_OP_ALL_REDUCE);
    check_sums_start_early(1, WEFT_OP_REDUCE_SCATTER);
}
