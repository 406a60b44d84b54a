/* FLOPs and bytes of operations, compared with their formulas. */
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <criterion/criterion.h>

/* The sum of the FLOPs of nodes of an op, and their number. */
static int64_t flops_of(const weft_graph *g, weft_op op, int *count)
{
    int64_t sum = 0;
    *count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (weft_graph_node(g, n)->op == op) {
            sum += weft_node_cost(g, n).flops;
            (*count)++;
        }
    return sum;
}

/* QK^T and PV; backward dV, dP, dQ, dK and QK^T again: each 2 x queries x keys x width. */
Test(cost, attention_and_its_backward)
{
    enum { BATCH = 2, QUERIES = 6, KEYS = 10, HEADS = 3, WIDTH = 4 };
    const weft_shape q_shape = WEFT_SHAPE(BATCH, QUERIES, HEADS, WIDTH),
                     k_shape = WEFT_SHAPE(BATCH, KEYS, HEADS, WIDTH);
    const weft_init init = {WEFT_INIT_NORMAL, 1};
    weft_graph *g = weft_graph_create();
    weft_value param[3] = {weft_param(g, "q", WEFT_F32, q_shape, init),
                           weft_param(g, "k", WEFT_F32, k_shape, init),
                           weft_param(g, "v", WEFT_F32, k_shape, init)},
               grad[3];
    const weft_attr_attention attr = {.scale = 0.5};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION, param, 3, &attr, out);
    weft_autodiff(g, weft_mean_all(g, out[0]), param, 3, grad);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const int64_t product = 2 * BATCH * HEADS * QUERIES * KEYS * WIDTH;
    int count;
    cr_expect_eq(flops_of(g, WEFT_OP_ATTENTION, &count), 2 * product);
    cr_expect_eq(count, 1);
    cr_expect_eq(flops_of(g, WEFT_OP_ATTENTION_GRAD, &count), 5 * product);
    cr_expect_eq(count, 1);
    weft_graph_free(g);
}

/* Of five blocks of keys, top_share chooses 0.4, which is two. With top_p all five count. */
static void check_blocks(weft_op op, const void *how, int64_t keys)
{
    enum { QUERIES = 6, KEYS = 10, HEADS = 3, WIDTH = 4 };
    const weft_shape shape = WEFT_SHAPE(1, QUERIES, HEADS, WIDTH),
                     k_shape = WEFT_SHAPE(1, KEYS, HEADS, WIDTH);
    weft_graph *g = weft_graph_create();
    const weft_init init = {WEFT_INIT_NORMAL, 1};
    const weft_value scores = weft_input(g, "scores", WEFT_F32, WEFT_SHAPE(1, HEADS, 2, 7));
    weft_value in[4] = {weft_param(g, "q", WEFT_F32, shape, init),
                        weft_param(g, "k", WEFT_F32, k_shape, init),
                        weft_param(g, "v", WEFT_F32, k_shape, init)},
               out[WEFT_MAX_OUTPUTS], grad[3];
    in[3] = weft_slice(g, weft_emit(g, op, &scores, 1, how), 3, 1, 5);
    const weft_attr_attention attr = {.scale = 0.5};
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION, in, 4, &attr, out);
    weft_autodiff(g, weft_mean_all(g, out[0]), in, 3, grad);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const int64_t product = 2 * QUERIES * HEADS * WIDTH * keys;
    int count;
    cr_expect_eq(flops_of(g, WEFT_OP_BLOCK_ATTENTION, &count), 2 * product);
    cr_expect_eq(flops_of(g, WEFT_OP_BLOCK_ATTENTION_GRAD, &count), 5 * product);
    cr_expect_eq(count, 1);
    weft_graph_free(g);
}

Test(cost, chosen_blocks)
{
    check_blocks(WEFT_OP_TOP_SHARE, &(weft_attr_top_share){0.4}, 4);
    check_blocks(WEFT_OP_TOP_SHARE, &(weft_attr_top_share){0.01}, 2);
    check_blocks(WEFT_OP_TOP_P, &(weft_attr_top_p){0.4}, 10);
}

/* Bytes that a rank sends: all-reduce 2 (k-1)/k of the tensor, a ring shift the tensor. */
Test(cost, collectives_by_their_closed_forms)
{
    weft_mesh mesh;
    weft_graph *g = weft_graph_create();
    cr_assert_eq(weft_mesh_parse("dp=4", &mesh), WEFT_OK);
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_attr_comm axis = {.axis = 0}, round = {.axis = 0, .dim = 0, .global = 24};
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6, 8));
    weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_P, 0}});
    const weft_value sum = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &axis);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const int32_t node = weft_value_get(g, sum)->node;
    cr_expect_eq(weft_node_cost(g, node).wire_bytes, 2 * (6 * 8 * 4 * 3 / 4));
    const weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(6, 8));
    weft_graph_set_layout(g, y, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 0}});
    const weft_value next = weft_emit(g, WEFT_OP_RING_SHIFT, &y, 1, &round);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_node_cost(g, weft_value_get(g, next)->node).wire_bytes, 6 * 8 * 4);
    weft_graph_free(g);
}
