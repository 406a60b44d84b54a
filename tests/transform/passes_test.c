/* The list of passes: order, switches, reports. The printed order of nodes is the order of the
 * memory plan. */
#include "training_graph.h"

#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "transform/memory/comm_waits.h"
#include "transform/memory/lifetime.h"
#include "transform/numeric/fuse.h"
#include "transform/numeric/pointwise.h"
#include "transform/numeric/rounding.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static int count_ops(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

static const weft_pass_report *report_of(const weft_pass_log *log, const char *name)
{
    for (int i = 0; i < log->count; i++)
        if (!strcmp(log->report[i].name, name))
            return &log->report[i];
    cr_assert_fail("no report on %s", name);
    return NULL;
}

Test(passes, run_in_order_and_report)
{
    static const char *const patterns[] = {"blocks.*"};
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    const weft_pass_setup setup = {
        .mesh = &mesh, .recipe = &weft_recipe_dp, .recompute = patterns, .recompute_count = 1};
    weft_graph *g = loss_graph(4, 16);
    weft_pass_log log = {0};
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, &log), WEFT_OK, "%s",
                 weft_error_message());
    add_step(g);
    weft_graph *const trained = g;
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, true, &g, &log), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(log.count, 3 + weft_pass_section.key_count);
    cr_expect_str_eq(log.report[0].name, weft_pass_section.keys[0].name);
    cr_expect_str_eq(log.report[1].name, "shard");
    cr_expect_str_eq(log.report[2].name, "narrow");
    for (int k = 1; k < weft_pass_section.key_count; k++)
        cr_expect_str_eq(log.report[2 + k].name, weft_pass_section.keys[k].name);
    cr_expect_str_eq(log.report[log.count - 1].name, "tf32");
    cr_expect(!log.report[log.count - 1].ran);
    const weft_pass_report *again = report_of(&log, "recompute");
    cr_expect(again->ran && again->nodes[1] > again->nodes[0]);
    cr_expect_gt(again->cost[1].flops, again->cost[0].flops);
    cr_expect_lt(again->peak[1], again->peak[0]);
    cr_expect(strstr(again->changed, "linear +"), "%s", again->changed);
    cr_expect(strstr(report_of(&log, "comm_order")->changed, "collectives"), "%s",
              report_of(&log, "comm_order")->changed);
    weft_buf text = {0};
    weft_pass_log_print(&log, &text);
    cr_expect(strstr(text.data, "\nrecompute ") && strstr(text.data, "\nfuse "), "%s", text.data);
    weft_buf_free(&text);
    cr_expect_neq(g, trained);
    weft_graph_free(trained);
    weft_graph_free(g);
}

/* Bytes of gradients of matrices that a rank adds up with the other one in `dtype`. */
static int64_t summed(bool sums, weft_dtype dtype)
{
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    const weft_pass_setup setup = {
        .mesh = &mesh, .recipe = &weft_recipe_dp, .bf16_compute = true, .bf16_reduce = sums};
    int64_t bytes = 0;
    weft_graph *g = loss_graph(2, 16);
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    weft_optimizer_build(g, weft_graph_find(g, "objective"),
                         &(weft_optimizer_config){.clip_norm = 1, .bf16_reduce = sums});
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value_info *of = weft_value_get(g, node->out[0]);
        if (node->op == WEFT_OP_ALL_REDUCE && of->shape.rank > 1 && of->dtype == dtype)
            bytes += weft_shape_count(&of->shape) * weft_dtype_bytes(dtype);
        if (node->op == WEFT_OP_ADAMW)
            cr_expect_eq(of->dtype, WEFT_F32);
        if (node->op == WEFT_OP_VARY && of->shape.rank == 1)
            cr_expect_eq(of->dtype, WEFT_F32, "a bias is rounded before a reader of f32");
    }
    weft_graph_free(g);
    return bytes;
}

Test(passes, narrow_gradients_are_added_up_wide_unless_asked)
{
    const int64_t wide = summed(false, WEFT_F32), rest = summed(true, WEFT_F32);
    cr_expect_eq(summed(false, WEFT_BF16), 0);
    cr_expect_eq(summed(true, WEFT_BF16), (wide - rest) / 2);
    cr_expect_lt(rest, wide / 10, "gradients outside of all scopes stay in f32");
}

Test(passes, are_switched)
{
    weft_pass_switches switches = weft_pass_defaults;
    cr_assert_eq(weft_pass_switch(&switches, "fuse=off"), WEFT_OK);
    cr_expect(!switches.fuse && switches.order);
    const weft_pass_setup on = {0}, off = {.switches = &switches};
    weft_graph *g = forward_graph(2), *fused = g, *plain = g;
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &on, true, &fused, NULL), WEFT_OK);
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &off, true, &plain, NULL), WEFT_OK);
    cr_expect_eq(count_ops(plain, WEFT_OP_GELU), count_ops(g, WEFT_OP_GELU));
    cr_expect_lt(count_ops(fused, WEFT_OP_GELU), count_ops(g, WEFT_OP_GELU));
    weft_graph_free(fused);
    weft_graph_free(plain);
    weft_graph_free(g);
    static const char *const wrong[] = {"fused=off", "fuse", "fuse=maybe", "=off", "shard=off"};
    for (int i = 0; i < WEFT_COUNT(wrong); i++) {
        cr_expect_eq(weft_pass_switch(&switches, wrong[i]), WEFT_E_ARG, "%s", wrong[i]);
        for (int k = 0; k < weft_pass_section.key_count; k++)
            cr_expect(strstr(weft_error_message(), weft_pass_section.keys[k].name), "%s",
                      weft_error_message());
    }
}

/* A linear layer in bf16, rounded or not before its activation; or both as separate nodes. */
static weft_graph *activated(bool fused, weft_dtype round)
{
    weft_graph *g = weft_graph_create();
    const weft_value in[] = {weft_input(g, "x", WEFT_BF16, WEFT_SHAPE(2, 3)),
                             weft_input(g, "w", WEFT_BF16, WEFT_SHAPE(4, 3))};
    const weft_attr_linear attr = {.act = fused ? WEFT_ACT_GELU_TANH : WEFT_ACT_NONE,
                                   .round = round};
    const weft_value y = weft_emit(g, WEFT_OP_LINEAR, in, 2, &attr);
    weft_output(g, "y", fused ? y : weft_gelu_tanh(g, y));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

Test(passes, verifier_rejects_what_rounds_otherwise)
{
    weft_graph *apart = activated(false, WEFT_F32), *fused, *unrounded = activated(true, WEFT_F32);
    cr_assert_eq(weft_pass_fuse(apart, &fused), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(fused, WEFT_OP_GELU), 0);
    cr_expect_eq(weft_rounding_check(apart, fused, "fuse"), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_rounding_check(apart, unrounded, "fuse"), WEFT_E_INTERNAL);
    cr_expect(weft_error_class() == WEFT_MSG_INTERNAL_ERROR &&
                  !strcmp(weft_error_fields()->value, "y") &&
                  strstr(weft_error_text(), "pass fuse"),
              "%s", weft_error_message());
    cr_expect_eq(weft_rounding_check(fused, unrounded, "fuse"), WEFT_E_INTERNAL);
    weft_graph_free(apart);
    weft_graph_free(fused);
    weft_graph_free(unrounded);
}

/* y = silu(x) z, both ops as one node, with the result of silu rounded to `round`. */
static weft_graph *joined_product(weft_dtype round)
{
    weft_graph *g = weft_graph_create();
    const weft_value in[] = {weft_input(g, "x", WEFT_BF16, WEFT_SHAPE(8, 9)),
                             weft_input(g, "z", WEFT_BF16, WEFT_SHAPE(1, 9))};
    const weft_attr_pointwise attr = {
        .count = 2,
        .step = {{.op = WEFT_OP_SILU, .dtype = round, .in_count = 1, .in = {0}, .out = -1},
                 {.op = WEFT_OP_MUL,
                  .dtype = WEFT_BF16,
                  .in_count = 2,
                  .in = {WEFT_POINTWISE_STEP, 1}}}};
    weft_output(g, "y", weft_emit(g, WEFT_OP_POINTWISE, in, 2, &attr));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

Test(passes, verifier_rejects_steps_that_round_otherwise)
{
    weft_graph *apart = weft_graph_create(), *joined;
    const weft_value x = weft_input(apart, "x", WEFT_BF16, WEFT_SHAPE(8, 9)),
                     z = weft_input(apart, "z", WEFT_BF16, WEFT_SHAPE(1, 9));
    weft_output(apart, "y", weft_mul(apart, weft_unary(apart, WEFT_OP_SILU, x), z));
    weft_graph *same = joined_product(WEFT_BF16), *unrounded = joined_product(WEFT_F32);
    cr_assert_eq(weft_pass_pointwise(apart, 2, &joined), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_graph_hash(joined), weft_graph_hash(same));
    cr_expect_eq(weft_rounding_check(apart, same, "pointwise"), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(weft_rounding_check(apart, unrounded, "pointwise"), WEFT_E_INTERNAL);
    weft_graph_free(apart);
    weft_graph_free(joined);
    weft_graph_free(same);
    weft_graph_free(unrounded);
}

/* A node is not moved past a reader of its result, and nodes of other shapes stay apart. */
Test(passes, chains_end_at_readers_and_shapes)
{
    weft_graph *g = weft_graph_create(), *joined;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(8, 9)),
                     a = weft_unary(g, WEFT_OP_EXP, x), /* read by the sum before the sine */
        sum = weft_sum(g, a, 1), b = weft_unary(g, WEFT_OP_SIN, a),
                     c = weft_unary(g, WEFT_OP_COS, b), d = weft_unary(g, WEFT_OP_NEG, sum);
    weft_output(g, "c", weft_add(g, c, d));
    cr_assert_eq(weft_pass_pointwise(g, 2, &joined), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(joined, WEFT_OP_POINTWISE), 1);
    cr_expect_eq(count_ops(joined, WEFT_OP_EXP), 1);
    cr_expect_eq(count_ops(joined, WEFT_OP_SIN) + count_ops(joined, WEFT_OP_COS), 0);
    weft_graph_free(joined);
    cr_assert_eq(weft_pass_pointwise(g, 4, &joined), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(joined, WEFT_OP_POINTWISE), 0); /* two steps of small values */
    weft_graph_free(g);
    weft_graph_free(joined);
}

/* In a mixed-precision forward, operands that an op's row keeps in f32 are f32. */
Test(passes, verifier_rejects_bf16_where_the_row_says_f32)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        weft_graph *g = weft_graph_create();
        const weft_value x = weft_input(g, "x", WEFT_BF16, WEFT_SHAPE(2, 3));
        const weft_value wide = wrong ? x : weft_cast(g, x, WEFT_F32);
        weft_output(g, "y", weft_unary(g, WEFT_OP_EXP, wide));
        cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
        cr_expect_eq(weft_precision_check(g), wrong ? WEFT_E_INTERNAL : WEFT_OK, "%s",
                     weft_error_message());
        weft_graph_free(g);
    }
}

Test(passes, declare_their_rounding)
{
    static const char *const changing[] = {"token_sharding", "shard",        "narrow",
                                           "layer_slices",   "cfg_branches", "tf32"};
    for (int i = 0; i < WEFT_COUNT(changing); i++)
        cr_expect_eq(weft_pass_rounding_of(changing[i]), WEFT_ROUNDING_CHANGED, "%s", changing[i]);
    static const char *const keeping[] = {
        "recompute",     "reshard_after_forward", "fuse",      "comm_order",
        "offload",       "weight_streaming",      "pointwise", "views",
        "early_exchange"};
    for (int i = 0; i < WEFT_COUNT(keeping); i++)
        cr_expect_eq(weft_pass_rounding_of(keeping[i]), WEFT_ROUNDING_PRESERVED, "%s", keeping[i]);
}

/* TF32 is for operands of f32; a fused activation keeps it. */
Test(passes, tf32_marks_products_of_f32)
{
    weft_graph *g = weft_graph_create();
    const weft_pass_setup setup = {.tf32_compute = true};
    const weft_shape square = WEFT_SHAPE(8, 8);
    const weft_value x = weft_input(g, "x", WEFT_F32, square),
                     w = weft_input(g, "w", WEFT_BF16, square);
    const weft_value y =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, x}, 2, &(weft_attr_linear){WEFT_ACT_NONE});
    const weft_value z = weft_unary(g, WEFT_OP_SILU, y);
    weft_output(g, "y", weft_matmul(g, z, weft_cast(g, w, WEFT_F32), false, false));
    weft_output(g, "z", weft_matmul(g, weft_cast(g, x, WEFT_BF16), w, false, false));
    cr_expect_eq(weft_graph_products(g), WEFT_PRODUCTS_BF16);
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    int marked = 0, other = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const bool narrow = weft_node_dtype(g, node) == WEFT_BF16;
        if (node->op != WEFT_OP_LINEAR && node->op != WEFT_OP_MATMUL)
            continue;
        cr_expect_eq(weft_op_is_tf32(node->op, node->attr), !narrow);
        marked += !narrow;
        other += narrow;
    }
    cr_expect(marked == 2 && other == 1, "%d, %d", marked, other);
    weft_graph_free(g);
}

/* Attention over blocks and its gradient, whose choice of blocks stays in f32. */
Test(passes, tf32_marks_attention_over_blocks)
{
    weft_graph *g = weft_graph_create();
    const weft_shape heads = WEFT_SHAPE(1, 4, 2, 8);
    const weft_value chosen = weft_input(g, "chosen", WEFT_F32, WEFT_SHAPE(1, 2, 2, 2));
    const weft_attr_attention attr = {.scale = 0.5};
    weft_value x = weft_param(g, "x", WEFT_F32, heads, (weft_init){WEFT_INIT_NORMAL, 1}), dx,
               out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION, (weft_value[]){x, x, x, chosen}, 4, &attr, out);
    weft_autodiff(g, weft_mean_all(g, out[0]), &x, 1, &dx);
    weft_output(g, "dx", dx);
    const weft_value narrow = weft_cast(g, x, WEFT_BF16);
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION, (weft_value[]){narrow, narrow, narrow, chosen}, 4,
                  &attr, out);
    weft_output(g, "narrow", out[0]);
    const weft_pass_setup setup = {.tf32_compute = true};
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL), WEFT_OK, "%s",
                 weft_error_message());
    int marked = 0, other = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_BLOCK_ATTENTION && node->op != WEFT_OP_BLOCK_ATTENTION_GRAD)
            continue;
        const bool is = weft_op_is_tf32(node->op, node->attr);
        cr_expect_eq(is, weft_node_dtype(g, node) == WEFT_F32);
        marked += is;
        other += !is;
    }
    cr_expect(marked == 2 && other == 1, "%d, %d", marked, other);
    weft_graph_free(g);
}

/* In the printed graph no line between the start and the wait of a collective reads its result. The
 * line after the wait does, directly or through aliases. */
Test(passes, schedule_is_printed)
{
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_P, 0}});
    const weft_value r = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){.axis = 0});
    const weft_value other = weft_unary(g, WEFT_OP_NEG, x);
    const weft_value row = weft_reshape(g, r, WEFT_SHAPE(6));
    const weft_value last = weft_emit(g, WEFT_OP_ALL_REDUCE, &other, 1, &(weft_attr_comm){0});
    weft_output(g, "y", weft_unary(g, WEFT_OP_SILU, row));
    weft_output(g, "z", last);
    weft_buf text = {0};
    cr_assert_eq(weft_pp_schedule_print(g, &text), WEFT_OK, "%s", weft_error_message());
    char lines[8][16] = {""};
    int count = 0;
    for (char *line = strtok(text.data, "\n"); line && count < 8; line = strtok(NULL, "\n"))
        snprintf(lines[count++], sizeof lines[0], "%.8s", line);
    static const char *const expected[] = {"%0 f32[2", "start %1", "%2 f32[2", "%3 f32[6",
                                           "start %4", "wait %1",  "%5 f32[6", "wait %4"};
    for (int i = 0; i < 8; i++)
        cr_expect_str_eq(lines[i], expected[i], "line %d", i);
    weft_memory_plan plan;
    int32_t wait[8];
    cr_assert_eq(weft_pass_lifetime(g, NULL, &plan), WEFT_OK);
    cr_assert_eq(weft_comm_waits(g, wait), WEFT_OK);
    for (int32_t n = 0; n < plan.node_count; n++)
        cr_expect_eq(plan.wait[n], wait[n]);
    weft_memory_plan_free(&plan);
    weft_buf_free(&text);
    weft_graph_free(g);
}
