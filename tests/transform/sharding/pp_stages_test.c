/* Pipeline stages of a small residual network with a long skip: the blocks, their stages, and the
 * buffers in which programs keep the values for other stages. */
#include "transform/sharding/pp_stages.h"

#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "train/graph/optimizer.h"
#include "transform/memory/lifetime.h"
#include "transform/sharding/layer_chain.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { BLOCKS = 4, WIDTH = 8 };

/* x -> embed -> blocks.0 .. blocks.3 (which reads what blocks.0 made, too) -> head -> loss; each
 * block is scaled by one value of the conditioning. `gain`: blocks.3 has a scalar parameter. */
static weft_graph *network_with(bool gain)
{
    weft_graph *g = weft_graph_create();
    weft_mesh mesh;
    const weft_init init = {WEFT_INIT_NORMAL, 0.3};
    const weft_shape square = WEFT_SHAPE(WIDTH, WIDTH);
    cr_assert_eq(weft_mesh_parse("pp=2", &mesh), WEFT_OK);
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_value in = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(3, WIDTH)),
                     time = weft_input(g, "batch.time", WEFT_F32, WEFT_SHAPE(3, WIDTH));
    weft_graph_push(g, "net");
    const weft_value scale =
        weft_matmul(g, time, weft_param(g, "time.weight", WEFT_F32, square, init), false, true);
    weft_value x =
        weft_matmul(g, in, weft_param(g, "embed.weight", WEFT_F32, square, init), false, true);
    weft_value first = WEFT_NONE;
    for (int i = 0; i < BLOCKS; i++) {
        weft_graph_push(g, "blocks.%d", i);
        weft_value h =
            weft_matmul(g, x, weft_param(g, "weight", WEFT_F32, square, init), false, true);
        h = weft_mul(g, weft_gelu_tanh(g, h), scale);
        if (gain && i == BLOCKS - 1)
            h = weft_mul(g, h, weft_param(g, "gain", WEFT_F32, WEFT_SCALAR, init));
        x = weft_add(g, x, i == BLOCKS - 1 ? weft_add(g, h, first) : h);
        first = i == 0 ? x : first;
        weft_graph_pop(g);
    }
    weft_param(g, "unread.weight", WEFT_F32, square, init); /* of a published model's last block */
    weft_graph_push(g, "head");
    x = weft_matmul(g, x, weft_param(g, "weight", WEFT_F32, square, init), false, true);
    weft_graph_pop(g);
    weft_graph_pop(g);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, x)));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

static weft_graph *network(void)
{
    return network_with(false);
}

Test(stage, blocks_are_numbered_scopes_and_what_lies_behind_them)
{
    static const char *const names[] = {"blocks.0", "blocks.1", "blocks.2", "blocks.3", "head", ""};
    weft_graph *g = network();
    weft_layer_chain c;
    cr_assert_eq(weft_layer_chain_make(g, "net", &c), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(c.units, 6);
    for (int u = 0; u < 6; u++) {
        cr_expect_str_eq(c.unit[u].name, names[u]);
        cr_expect(c.unit[u].cost.flops > 0, "%s", names[u]);
        cr_expect(u == 5 || c.unit[u].output_bytes == 3 * WIDTH * 4, "%s", names[u]);
    }
    cr_expect(c.unit[0].cost.flops > c.unit[1].cost.flops, "with the embedding and conditioning");
    cr_assert_eq(c.skips, 1);
    cr_expect_eq(c.skip[0].from, 0);
    cr_expect_eq(c.skip[0].to, 3);
    weft_layer_chain_free(&c);
    cr_expect_eq(weft_layer_chain_make(g, "other", &c), WEFT_E_UNSUPPORTED);
    weft_graph_free(g);
}

static void expect_links(const int32_t *device_of, const char *expected)
{
    static const int64_t cut[] = {0, 1, 2, 3, 6};
    weft_graph *g = network();
    weft_layer_chain c;
    weft_pp_stages s;
    weft_buf text = {0};
    cr_assert_eq(weft_layer_chain_make(g, "net", &c), WEFT_OK);
    cr_assert_eq(weft_pp_stages_make(g, &c, cut, 4, device_of, 0, &s), WEFT_OK);
    for (int i = 0; i < s.links; i++)
        weft_buf_printf(&text, "%d%s%d ", s.link[i].from, s.link[i].local ? "=" : ">",
                        s.link[i].to);
    cr_expect_str_eq(text.data, expected);
    weft_buf_free(&text);
    weft_pp_stages_free(&s);
    weft_layer_chain_free(&c);
    weft_graph_free(g);
}

/* First of what blocks.0 made, which blocks.1 and blocks.3 read. */
Test(stage, values_go_from_neighbour_to_neighbour_or_stay)
{
    expect_links((int32_t[]){0, 1, 2, 3}, "0>1 1>2 2>3 1>2 2>3 ");
    expect_links((int32_t[]){0, 1, 1, 0}, "0>1 0=3 1=2 2>3 ");
    expect_links((int32_t[]){0, 1, 0, 1}, "0>1 0=2 2>3 1>2 2>3 ");
}

static weft_graph *differentiated(weft_graph *g, int stage, int shares)
{
    static const int64_t cut[] = {0, 2, 6};
    const weft_optimizer_config adamw = {.clip_norm = 1};
    weft_layer_chain c;
    weft_pp_stages s;
    weft_pp_stage_graph made;
    cr_assert_eq(weft_layer_chain_make(g, "net", &c), WEFT_OK);
    cr_assert_eq(weft_pp_stages_make(g, &c, cut, 2, (int32_t[]){0, 1}, 0, &s), WEFT_OK);
    cr_assert_eq(weft_pp_stage_extract(&s, stage, true, &made), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(made.shares, shares, "stage %d shares %d parameters", stage, made.shares);
    cr_expect_eq(made.sends, stage ? 0 : 2);
    cr_expect_eq(made.receives, stage ? 2 : 0);
    weft_optimizer_accumulate_stage(&made, NULL, 0, &adamw);
    cr_assert_eq(weft_graph_check(made.graph), WEFT_OK, "%s", weft_error_message());
    weft_pp_stages_free(&s);
    weft_layer_chain_free(&c);
    return made.graph;
}

/* A model's file has parameters that its forward does not read: one stage keeps them. */
Test(stage, last_stage_keeps_parameters_that_no_stage_reads)
{
    for (int stage = 0; stage < 2; stage++) {
        weft_graph *g = network(), *of_stage = differentiated(g, stage, 1);
        cr_expect_eq(weft_value_ok(weft_graph_find(of_stage, "net.unread.weight")), stage == 1,
                     "stage %d", stage);
        weft_graph_free(of_stage);
        weft_graph_free(g);
    }
}

/* A scalar cannot be split over the axis of the stages as matrices are: each stage has it, also one
 * that does not read it, and their gradients are summed. So the update is made where it is read. */
Test(stage, every_stage_has_a_scalar_of_one_stage)
{
    for (int stage = 0; stage < 2; stage++) {
        weft_graph *g = network_with(true), *of_stage = differentiated(g, stage, 2);
        cr_expect(weft_value_ok(weft_graph_find(of_stage, "net.blocks.3.gain")), "stage %d", stage);
        cr_expect_eq(weft_value_ok(weft_graph_find(of_stage, "net.blocks.3.weight")), stage == 1,
                     "stage %d", stage);
        weft_graph_free(of_stage);
        weft_graph_free(g);
    }
}

/* Values for other programs are computed in the microbatch buffer, without copies. */
static void expect_in_place(const weft_graph *g)
{
    int count, slots = 0;
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, &(weft_lifetime_options){.in_place = true}, &plan), WEFT_OK);
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++) {
        const char *name = weft_value_get(g, update[i].source)->name;
        if (strncmp(name, "slot.", 5) != 0)
            continue;
        slots++;
        cr_expect_eq(weft_memory_plan_root(&plan, update[i].value.id), update[i].source.id,
                     "%s is copied", name);
    }
    cr_expect(slots > 0);
    weft_memory_plan_free(&plan);
}

static int params_of(const weft_graph *g)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == WEFT_OP_PARAM;
    return count;
}

Test(stage, programs_hand_over_in_records)
{
    weft_graph *g = network();
    for (int stage = 0; stage < 2; stage++) {
        weft_graph *whole = differentiated(g, stage, 1), *part[3];
        cr_expect_eq(params_of(whole), 4 + stage,
                     "its own three, the conditioning's, and the one that no stage reads");
        for (int apart = 0; apart < 2; apart++) {
            for (int k = 0; k < 2 + apart; k++) {
                cr_assert_eq(
                    weft_pp_stage_split(whole, apart, false, (weft_pp_task_kind)k, &part[k]),
                    WEFT_OK, "%s", weft_error_message());
                cr_expect_eq(weft_graph_verify(part[k]), WEFT_OK, "%s", weft_error_message());
            }
            expect_in_place(part[WEFT_PP_TASK_F]);
            for (int k = 0; k < 2 + apart; k++)
                weft_graph_free(part[k]);
        }
        weft_graph_free(whole);
    }
    weft_graph_free(g);
}
