/* The Wan DiT with its training objective with every recipe, and with pairs of recipes, compared
 * with one rank: loss, prediction and the gradients of all parameters. In f64, so that only a wrong
 * rule makes a difference. */
#include "dit.h"
#include "graph/autodiff.h"
#include "sharded.h"
#include "train/graph/optimizer.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void check(const char *mesh_text, dit_setup s)
{
    weft_mesh mesh;
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    weft_recipe recipe = dit_recipe(&mesh);
    cr_expect(sharded_agrees(dit_build, sharded_gradients, dit_fill, &s, &mesh, &recipe, 1e-9),
              "%s on %s", recipe.name, mesh_text);
    weft_recipe_free(&recipe);
}

static const dit_setup even = {4, 4, 2, 4, 4}, odd = {3, 3, 1, 6, 10}, single = {1, 4, 3, 4, 4};

Test(model_shard, data_parallel)
{
    check("dp=2", even);
    check("dp=2", odd);
    check("dp=4", odd); /* one rank has no sample at all */
}

Test(model_shard, fully_sharded_data_parallel)
{
    check("fsdp=2", even);
    check("fsdp=3", even);
    check("dp=2,fsdp=2", even);
}

Test(model_shard, fully_sharded_with_others)
{
    check("fsdp=2,tp=2", even);
    check("tp=2,fsdp=2", odd);
    check("fsdp=2,cp=2", even);
    check("fsdp=2,sp=2", even);
    check("dp=2,fsdp=2,tp=2", even);
}

Test(model_shard, tensor_parallel)
{
    check("tp=2", even);
    check("tp=3", even); /* heads do not divide */
    check("tp=2", odd);
    check("sp=2", even);
    check("sp=4", single);
    check("sp=2", odd);
}

Test(model_shard, context_parallel)
{
    check("cp=2", even);
    check("cp=3", even);
    check("cp=2", odd);
    check("cp=4", single);
}

/* 8 and 45 tokens, the last rank has fewer. */
Test(model_shard, ring_context_parallel)
{
    check("ring=2", even);
    check("ring=3", even);
    check("ring=2", odd);
    check("ring=4", single);
    check("tp=2,ring=2", odd);
    check("dp=2,ring=2", odd);
    check("ring=2,cp=2", even); /* heads inside of a ring */
    check("ring=2,cp=2", odd);
    check("ring=2,sp=2", even);
    check("fsdp=2,ring=2", even);
}

Test(model_shard, pairs_and_three)
{
    check("dp=2,tp=2", even);
    check("dp=2,cp=2", odd);
    check("cp=2,tp=2", single);
    check("tp=2,cp=2", odd);
    check("cp=2,sp=2", even);
    check("dp=2,tp=2,cp=2", even);
}

/* ---- bytes sent ---------------------------------------------------------------------------- */

typedef struct traffic {
    int count[WEFT_OP_COUNT]; /* collectives of at least `least` bytes on the wire */
    int gathered_params;
    int params;
} traffic;

static traffic traffic_of(const char *mesh_text, bool gradients, int64_t least)
{
    dit_setup s = even;
    weft_mesh mesh;
    weft_graph *whole = dit_build(&s), *g;
    traffic t = {{0}};
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    weft_recipe recipe = dit_recipe(&mesh);
    cr_assert_eq(weft_pass_shard(whole, &mesh, 0, &recipe, &g), WEFT_OK, "%s",
                 weft_error_message());
    weft_recipe_free(&recipe);
    const weft_value *params = weft_graph_params(g, &t.params);
    weft_value grad[128];
    cr_assert_lt(t.params, 128);
    if (gradients)
        weft_autodiff(g, weft_graph_find(g, "loss"), params, t.params, grad);
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        if (!weft_op_has(n->op, WEFT_TRAIT_CONVERTS) || weft_node_cost(g, i).wire_bytes < least)
            continue;
        t.count[n->op]++;
        const weft_node *from = weft_graph_node(g, weft_value_get(g, n->in[0])->node);
        while (from->op == WEFT_OP_VARY)
            from = weft_graph_node(g, weft_value_get(g, from->in[0])->node);
        t.gathered_params += n->op == WEFT_OP_ALL_GATHER && from->op == WEFT_OP_PARAM;
    }
    weft_graph_free(g);
    weft_graph_free(whole);
    return t;
}

Test(model_shard, data_parallel_reduces_each_gradient_once)
{
    const traffic forward = traffic_of("dp=2", false, 1), both = traffic_of("dp=2", true, 1);
    cr_expect_eq(forward.count[WEFT_OP_ALL_REDUCE], 1, "the loss");
    cr_expect_eq(forward.count[WEFT_OP_ALL_GATHER], 1, "the prediction, which is an output");
    cr_expect_eq(both.count[WEFT_OP_ALL_REDUCE], 1 + both.params);
    cr_expect_eq(both.count[WEFT_OP_ALL_GATHER], 1);
    cr_expect_eq(both.count[WEFT_OP_ALL_TO_ALL] + both.count[WEFT_OP_REDUCE_SCATTER], 0);
}

Test(model_shard, fsdp_gathers_and_scatters_each_parameter_once)
{
    const traffic both = traffic_of("fsdp=2", true, 1);
    cr_expect_eq(both.gathered_params, both.params);
    cr_expect_eq(both.count[WEFT_OP_REDUCE_SCATTER], both.params);
    cr_expect_eq(both.count[WEFT_OP_ALL_REDUCE], 1, "the loss");
}

/* Activations are f32 (4, 8, 24): 3 kB. Two blocks; three row-split linears in each. */
Test(model_shard, tensor_parallel_sums_behind_row_split_linears)
{
    const traffic plain = traffic_of("tp=2", false, 1500),
                  inside = traffic_of("dp=2,tp=2", false, 700);
    cr_expect_eq(plain.count[WEFT_OP_ALL_REDUCE], 6);
    cr_expect_eq(inside.count[WEFT_OP_ALL_REDUCE], 6);
    cr_expect_eq(plain.gathered_params + inside.gathered_params, 0, "weights stay where they are");
    const traffic sequence = traffic_of("sp=2", false, 1500);
    cr_expect_eq(sequence.count[WEFT_OP_REDUCE_SCATTER], 6);
    cr_expect_eq(sequence.count[WEFT_OP_ALL_REDUCE], 0);
    cr_expect_eq(sequence.count[WEFT_OP_ALL_GATHER], 6,
                 "before q, k, v; before the cross q; before the feed-forward");
}

Test(model_shard, context_parallel_moves_around_self_attention_only)
{
    const traffic t = traffic_of("cp=4", false, 500);
    cr_expect_eq(t.count[WEFT_OP_ALL_TO_ALL], 2 * 4, "q, k, v and the result, in two blocks");
    cr_expect_eq(t.count[WEFT_OP_ALL_GATHER], 1, "the tokens before they become video again");
    cr_expect_eq(t.count[WEFT_OP_ALL_REDUCE] + t.count[WEFT_OP_REDUCE_SCATTER], 0);
}

/* Keys and values go round in each of two blocks, and their gradients come back. */
Test(model_shard, a_ring_moves_keys_and_values_only)
{
    const traffic t = traffic_of("ring=4", false, 500), both = traffic_of("ring=4", true, 500);
    cr_expect_eq(t.count[WEFT_OP_RING_SHIFT], 2 * 2 * 3);
    cr_expect_eq(t.count[WEFT_OP_ALL_TO_ALL], 0);
    cr_expect_eq(t.count[WEFT_OP_ALL_GATHER], 1, "the tokens before they become video again");
    cr_expect_eq(both.count[WEFT_OP_RING_SHIFT], 2 * 2 * 2 * 3);
}

/* The complete step: global norm, clipping, AdamW with its moments, EMA. */
static void step(weft_graph *g)
{
    const weft_optimizer_config config = {.beta1 = 0.9,
                                          .beta2 = 0.99,
                                          .eps = 1e-4,
                                          .weight_decay = 0.01,
                                          .clip_norm = 1e-3,
                                          .ema_decay = 0.9};
    weft_optimizer_build(g, weft_graph_find(g, "objective"), &config);
    int count;
    const weft_pair *updates = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++) {
        char name[512];
        snprintf(name, sizeof name, "part.%s", weft_value_get(g, updates[i].source)->name);
        weft_output(g, name, updates[i].value);
    }
}

static double positive_fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const double value = dit_fill(user, name, dtype, index);
    if (strstr(name, "_limit"))
        return 1e9;
    if (!strcmp(name, "optimizer.step"))
        return 3;
    return !strncmp(name, "optimizer.", 10) || !strncmp(name, "adamw.", 6) ? fabs(value) + 0.01
                                                                           : value;
}

Test(model_shard, optimizer_step)
{
    static const char *const mesh_text[] = {"dp=2", "fsdp=3",    "dp=2,fsdp=2",
                                            "tp=2", "dp=2,tp=2", "fsdp=2,tp=2"};
    for (int i = 0; i < 6; i++) {
        weft_mesh mesh;
        dit_setup s = even;
        s.loss = "objective"; /* the optimizer adds "loss" */
        cr_assert_eq(weft_mesh_parse(mesh_text[i], &mesh), WEFT_OK);
        weft_recipe recipe = dit_recipe(&mesh);
        cr_expect(sharded_agrees(dit_build, step, positive_fill, &s, &mesh, &recipe, 1e-9),
                  "%s on %s", recipe.name, mesh_text[i]);
        weft_recipe_free(&recipe);
    }
}
