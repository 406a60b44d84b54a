/* The graph builder: errors and the positions that they name, the verifier, the text form, and
 * building when memory allocation fails. */
#include "cases.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "transform/memory/comm_order.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const weft_init zero = {.kind = WEFT_INIT_ZERO};

/* ---- errors -------------------------------------------------------------------------------- */

typedef weft_value bad_call(weft_graph *g, weft_value x); /* x: f32 [2,6] */

static weft_value bad_matmul(weft_graph *g, weft_value x)
{
    return weft_matmul(g, x, x, false, false);
}
static weft_value bad_add(weft_graph *g, weft_value x)
{
    return weft_add(g, x, weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 5), 0));
}
static weft_value bad_reshape(weft_graph *g, weft_value x)
{
    return weft_reshape(g, x, WEFT_SHAPE(5, 2));
}
static weft_value bad_free_dim(weft_graph *g, weft_value x)
{
    return weft_reshape(g, x, WEFT_SHAPE(5, -1));
}
static weft_value bad_permute(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, (int[]){0, 0});
}
static weft_value bad_slice(weft_graph *g, weft_value x)
{
    return weft_slice(g, x, 1, 4, 3);
}
static weft_value bad_sum(weft_graph *g, weft_value x)
{
    return weft_sum(g, x, 4);
}
static weft_value bad_broadcast(weft_graph *g, weft_value x)
{
    return weft_broadcast(g, x, WEFT_SHAPE(4, 6));
}
static weft_value bad_rank(weft_graph *g, weft_value x)
{
    return weft_reshape(g, x, WEFT_SHAPE(2, 1, 1, 1, 1, 1, 6));
}
static weft_value bad_size(weft_graph *g, weft_value x)
{
    (void)x;
    return weft_fill(g, WEFT_F32, WEFT_SHAPE(-1), 0);
}
static weft_value huge_size(weft_graph *g, weft_value x)
{
    (void)x;
    return weft_fill(g, WEFT_F32, WEFT_SHAPE(INT64_MAX / 2, 9), 0);
}
static weft_value twice(weft_graph *g, weft_value x)
{
    (void)x;
    return weft_param(g, "w", WEFT_F32, WEFT_SHAPE(1), zero),
           weft_param(g, "w", WEFT_F32, WEFT_SHAPE(1), zero);
}
static weft_value no_axis(weft_graph *g, weft_value x)
{
    return weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){0});
}
static weft_value bad_concat(weft_graph *g, weft_value x)
{
    return weft_concat(g, (weft_value[]){x, weft_fill(g, WEFT_F32, WEFT_SHAPE(3, 6), 0)}, 2, 1);
}
static weft_value bad_linear(weft_graph *g, weft_value x)
{
    return weft_emit(g, WEFT_OP_LINEAR,
                     (weft_value[]){x, weft_fill(g, WEFT_F32, WEFT_SHAPE(3, 5), 0)}, 2,
                     &(weft_attr_linear){0});
}
static weft_value bad_conv(weft_graph *g, weft_value x)
{
    const weft_value v = weft_reshape(g, x, WEFT_SHAPE(1, 1, 2, 2, 3));
    const weft_value w =
        weft_fill(g, WEFT_F32, WEFT_SHAPE(4, 3, 3, 1, 1), 0); /* 3 frames of kernel, 1 of video */
    return weft_emit(g, WEFT_OP_CONV3D, (weft_value[]){v, w}, 2,
                     &(weft_attr_conv){.stride = {1, 1, 1}});
}

Test(graph, errors_name_scope_op_and_shapes)
{
    static const struct {
        bad_call *call;
        weft_status_code code;
        const char *text;
    } table[] = {
        {bad_matmul, WEFT_E_SHAPE, "matmul: contracted sizes differ; operands f32[2,6], f32[2,6]"},
        {bad_add, WEFT_E_SHAPE, "add: sizes must be equal or 1; operands f32[2,6], f32[2,5]"},
        {bad_reshape, WEFT_E_SHAPE,
         "reshape: cannot become [5,2]: the number of elements differs; operands f32[2,6]"},
        {bad_free_dim, WEFT_E_SHAPE,
         "reshape: cannot become [5,2]: the number of elements differs; operands f32[2,6]"},
        {bad_permute, WEFT_E_SHAPE, "permute: not a permutation of the dims; operands f32[2,6]"},
        {bad_slice, WEFT_E_SHAPE, "slice: [4, 7) of dim 1 is outside; operands f32[2,6]"},
        {bad_sum, WEFT_E_SHAPE, "sum: a dim to reduce does not exist; operands f32[2,6]"},
        {bad_broadcast, WEFT_E_SHAPE, "broadcast: only sizes of 1 grow; operands f32[2,6]"},
        {bad_rank, WEFT_E_SHAPE,
         "reshape: [2,1,1,1,1,1] is not a legal shape (rank at most 6, sizes not negative)"},
        {bad_size, WEFT_E_SHAPE,
         "fill: [-1] is not a legal shape (rank at most 6, sizes not negative)"},
        {huge_size, WEFT_E_SHAPE,
         "fill: [4611686018427387903,9] is not a legal shape (rank at most 6, sizes not negative)"},
        {twice, WEFT_E_ARG, "the name \"blocks.3.attn.w\" is used twice"},
        {no_axis, WEFT_E_SHAPE, "all_reduce: no such mesh axis; operands f32[2,6]"},
        {bad_concat, WEFT_E_SHAPE,
         "concat: the operands differ in another dim than the joined one; operands f32[2,6], "
         "f32[3,6]"},
        {bad_linear, WEFT_E_SHAPE,
         "linear: needs x (..., K), w (N, K); operands f32[2,6], f32[3,5]"},
        {bad_conv, WEFT_E_SHAPE,
         "conv3d: the kernel is larger than the padded input, or a stride is not positive; "
         "operands f32[1,1,2,2,3], f32[4,3,3,1,1]"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        weft_graph *g = weft_graph_create();
        weft_graph_push(g, "blocks.%d", 3);
        weft_graph_push(g, "attn");
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 6));
        const weft_value y = table[i].call(g, x);
        cr_expect_not(weft_value_ok(y), "case %zu gives a value", i);
        /* Sticky: later calls do nothing, and the first error is reported. */
        cr_expect_not(weft_value_ok(weft_add(g, y, x)));
        weft_output(g, "y", y);
        weft_graph_pop(g);
        weft_graph_pop(g);
        cr_expect_eq(weft_graph_check(g), table[i].code, "case %zu", i);
        const weft_message_class kind =
            table[i].code == WEFT_E_SHAPE ? WEFT_MSG_TENSOR_SHAPE : WEFT_MSG_ARGUMENT_INVALID;
        cr_expect_eq(weft_error_class(), kind, "case %zu", i);
        cr_expect_str_eq(weft_error_fields()->key, "blocks.3.attn");
        cr_expect_str_eq(weft_error_text(), table[i].text);
        weft_graph_free(g);
    }
}

Test(graph, update_must_fit_and_persist)
{
    weft_graph *g = weft_graph_create();
    const weft_value p = weft_param(g, "p", WEFT_F32, WEFT_SHAPE(2), zero);
    weft_update(g, p, weft_fill(g, WEFT_F32, WEFT_SHAPE(3), 0));
    cr_expect_eq(weft_graph_check(g), WEFT_E_SHAPE);
    cr_expect_str_eq(weft_error_message(), "update of p: f32[3] does not fit f32[2]");
    weft_graph_free(g);
    g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_update(g, x, x);
    cr_expect_eq(weft_graph_check(g), WEFT_E_ARG);
    weft_graph_free(g);
}

Test(graph, ops_without_gradient_say_so)
{
    weft_graph *g = weft_graph_create();
    weft_graph_push(g, "clip");
    const weft_value p = weft_param(g, "p", WEFT_F32, WEFT_SHAPE(2), zero);
    const weft_value loss = weft_unary(g, WEFT_OP_SUM_SQUARES, p);
    weft_graph_pop(g);
    weft_value grad;
    weft_autodiff(g, loss, &p, 1, &grad);
    cr_expect_eq(weft_graph_check(g), WEFT_E_UNSUPPORTED);
    cr_expect(strstr(weft_error_message(), "sum_squares has no gradient"), "%s",
              weft_error_message());
    weft_graph_free(g);
}

/* ---- a small graph, its text and its hash -------------------------------------------------- */

static weft_graph *small(double init)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 3));
    weft_graph_push(g, "net");
    const weft_value w =
        weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(4, 3), (weft_init){WEFT_INIT_NORMAL, init});
    const weft_value y =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w}, 2, &(weft_attr_linear){WEFT_ACT_NONE});
    weft_graph_pop(g);
    const weft_value loss = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, y));
    weft_output(g, "loss", loss);
    return g;
}

Test(graph, prints)
{
    weft_graph *g = small(0.5);
    weft_buf text = {0};
    weft_graph_print(g, &text);
    cr_expect_str_eq(text.data,
                     "%0 f32[4,3] = input x\n"
                     "%1 f32[4,3] = param net.weight {init=normal 0.5 global=[4,3]} @net\n"
                     "%2 f32[4,4] = linear(%0, %1) {act=none} @net\n"
                     "%3 f32[4,4] = square(%2)\n"
                     "%4 f32[1,1] = sum(%3) {dims=0x3}\n"
                     "%5 f32[] = reshape(%4)\n"
                     "%6 f32[] = affine(%5) {scale=0.0625 offset=0}\n"
                     "output loss = %6\n");
    weft_buf_free(&text);
    weft_graph_free(g);
}

Test(graph, prints_layouts_and_gradients)
{
    weft_graph *g = small(0.5), *part;
    weft_mesh mesh;
    static const weft_recipe_row row = {"x", "dp", {WEFT_S, 0}};
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    cr_assert_eq(weft_pass_shard(g, &mesh, 1, &(weft_recipe){"x", &row, 1}, &part), WEFT_OK);
    const weft_value w = weft_graph_find(part, "net.weight");
    weft_value grad;
    weft_autodiff(part, weft_graph_find(part, "loss"), &w, 1, &grad);
    weft_output(part, "grad", grad);
    weft_buf text = {0};
    weft_graph_print(part, &text);
    cr_expect_str_eq(text.data,
                     "%0 f32[2,3]<dp:S(0)> = input x {global=[4,3] at=2,0}\n"
                     "%1 f32[4,3]<dp:R> = param net.weight {init=normal 0.5 global=[4,3]}\n"
                     "%2 f32[4,3]<dp:V> = vary(%1) {axis=0} @net\n"
                     "%3 f32[2,4]<dp:S(0)> = linear(%0, %2) {act=none} @net\n"
                     "%4 f32[2,4]<dp:S(0)> = square(%3)\n"
                     "%5 f32[1,1]<dp:P> = sum(%4) {dims=0x3}\n"
                     "%6 f32[]<dp:P> = reshape(%5)\n"
                     "%7 f32[]<dp:P> = affine(%6) {scale=0.0625 offset=0}\n"
                     "%8 f32[]<dp:R> = all_reduce(%7) {axis=0}\n"
                     "%9 f32[]<dp:R> = fill {value=1} backward\n"
                     "%10 f32[]<dp:V> = vary(%9) {axis=0} backward\n"
                     "%11 f32[]<dp:V> = affine(%10) {scale=0.0625 offset=0} backward\n"
                     "%12 f32[1,1]<dp:V> = reshape(%11) backward\n"
                     "%13 f32[2,4]<dp:S(0)> = broadcast(%12) backward\n"
                     "%14 f32[2,4]<dp:S(0)> = mul(%13, %3) backward\n"
                     "%15 f32[2,4]<dp:S(0)> = affine(%14) {scale=2 offset=0} backward\n"
                     "%16 f32[4,3]<dp:P> = matmul(%15, %0) {TN} @net backward\n"
                     "%17 f32[4,3]<dp:R> = all_reduce(%16) {axis=0} @net backward\n"
                     "output loss = %8\n"
                     "output grad = %17\n");
    weft_buf_free(&text);
    weft_graph_free(part);
    weft_graph_free(g);
}

/* One member of an attribute; `poke` is the byte in it that is changed: the lowest of a number,
 * which for a double is the end of the mantissa. */
typedef struct attr_member {
    weft_op op;
    const char *name;
    size_t at, bytes, poke;
} attr_member;
#define MEMBER(op, type, member)                                                                   \
    {                                                                                              \
        WEFT_OP_##op, #op "." #member, offsetof(weft_attr_##type, member),                         \
            sizeof(((weft_attr_##type *)0)->member), 0                                             \
    }
#define SHAPE_MEMBER(op, type, member)                                                             \
    {                                                                                              \
        WEFT_OP_##op, #op "." #member, offsetof(weft_attr_##type, member), sizeof(weft_shape),     \
            offsetof(weft_shape, dim)                                                              \
    }

/* clang-format off */
static const attr_member members[] = {
    MEMBER(PARAM, source, dtype),      SHAPE_MEMBER(PARAM, source, shape),
    MEMBER(PARAM, source, init.kind),  MEMBER(PARAM, source, init.value),
    MEMBER(PARAM, source, frozen),     SHAPE_MEMBER(PARAM, source, global),
    MEMBER(PARAM, source, start),
    SHAPE_MEMBER(INPUT, source, global),
    MEMBER(INPUT, source, start),
    MEMBER(FILL, fill, value),         MEMBER(FILL, fill, dtype),
    SHAPE_MEMBER(FILL, fill, shape),
    MEMBER(RANDOM_NORMAL, random, purpose),
    SHAPE_MEMBER(RANDOM_NORMAL, random, shape),
    SHAPE_MEMBER(RANDOM_NORMAL, random, global),
    MEMBER(RANDOM_NORMAL, random, start),
    MEMBER(AFFINE, affine, scale),     MEMBER(AFFINE, affine, offset),
    MEMBER(CLAMP, clamp, lo),          MEMBER(CLAMP, clamp, hi),
    MEMBER(FETCH, move, prefetch_bytes),
    MEMBER(CLAMP_GRAD, clamp, lo),
    MEMBER(CAST, cast, dtype),
    MEMBER(GELU, gelu, exact),         MEMBER(GELU_GRAD, gelu, exact),
    MEMBER(SUM, sum, dims),
    SHAPE_MEMBER(RESHAPE, shape, shape),
    MEMBER(PERMUTE, permute, perm),
    MEMBER(SLICE, slice, dim),         MEMBER(SLICE, slice, start),
    MEMBER(SLICE, slice, len),
    MEMBER(PAD, pad, dim),             MEMBER(PAD, pad, before),
    MEMBER(PAD, pad, after),
    MEMBER(CONCAT, concat, dim),
    MEMBER(MATMUL, matmul, trans_a),   MEMBER(MATMUL, matmul, trans_b),
    MEMBER(LINEAR, linear, act),       MEMBER(LINEAR, linear, round),
    MEMBER(CONV3D, conv, stride),      MEMBER(CONV3D, conv, before),
    MEMBER(CONV3D, conv, after),       SHAPE_MEMBER(CONV3D_DX, conv, x_shape),
    MEMBER(CONV3D_DW, conv, kernel),
    MEMBER(ATTENTION, attention, scale),
    MEMBER(ATTENTION, attention, causal),
    MEMBER(LAYER_NORM, norm, eps),     MEMBER(RMS_NORM, norm, l2),
    MEMBER(ROPE, rope, inverse),       MEMBER(ROPE, rope, rotate_half),
    MEMBER(ROPE_TABLE, rope_table, theta),
    MEMBER(ROPE_TABLE, rope_table, origin),
    MEMBER(ROPE_TABLE, rope_table, step),
    MEMBER(ROPE_TABLE, rope_table, before),
    MEMBER(ROPE_TABLE, rope_table, after),
    MEMBER(ROPE_TABLE, rope_table, grid),
    MEMBER(ROPE_TABLE, rope_table, pairs),
    MEMBER(ROPE_TABLE, rope_table, start),
    MEMBER(ROPE_TABLE, rope_table, len),
    MEMBER(EMBED_GRAD, embed, rows),
    MEMBER(UNPACK, unpack, type),      MEMBER(UNPACK, unpack, elements),
    MEMBER(UNPACK, unpack, bytes),
    MEMBER(TOP_K, top_k, count),       MEMBER(TOP_K, top_k, groups),
    MEMBER(TOP_K, top_k, top_groups),
    MEMBER(TOP_P, top_p, mass),
    MEMBER(TOP_SHARE, top_share, share),
    MEMBER(DISPATCH, experts, experts),
    MEMBER(DISPATCH, experts, slots),
    MEMBER(EXPERT_MATMUL, expert_matmul, by_expert),
    MEMBER(EXPERT_MATMUL, expert_matmul, trans_b),
    MEMBER(EXPERT_MATMUL_DW, expert_matmul, experts),
    MEMBER(POINTWISE, pointwise, count),
    MEMBER(POINTWISE, pointwise, step),
    MEMBER(POINTWISE, pointwise, step[0].op),
    MEMBER(POINTWISE, pointwise, step[0].dtype),
    MEMBER(POINTWISE, pointwise, step[1].in_count),
    MEMBER(POINTWISE, pointwise, step[1].in),
    MEMBER(POINTWISE, pointwise, step[0].out),
    MEMBER(POINTWISE, pointwise, step[0].attr),
    MEMBER(ADAMW, adamw, beta1),       MEMBER(ADAMW, adamw, beta2),
    MEMBER(ADAMW, adamw, eps),         MEMBER(ADAMW, adamw, weight_decay),
    MEMBER(ALL_TO_ALL, comm, axis),    MEMBER(ALL_TO_ALL, comm, dim),
    MEMBER(ALL_TO_ALL, comm, dim2),    MEMBER(ALL_TO_ALL, comm, global),
    MEMBER(ALL_TO_ALL, comm, global2), MEMBER(ALL_GATHER, comm, invariant),
    MEMBER(RING_SHIFT, comm, shift),   MEMBER(RING_SHIFT, comm, held),
};
/* clang-format on */

/* A graph that has a node of this op, whose index goes to *node. */
static weft_graph *graph_with(weft_op op, int32_t *node)
{
    int count;
    const op_case *c = op_cases(&count);
    weft_graph *g = NULL;
    if (weft_op_has(op, WEFT_TRAIT_CONVERTS)) {
        weft_mesh mesh;
        g = weft_graph_create();
        cr_assert_eq(weft_mesh_parse("tp=2,cp=2", &mesh), WEFT_OK);
        weft_graph_set_mesh(g, &mesh, 0);
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 8, 4));
        const weft_attr_comm attr = {
            .axis = 0, .dim = 0, .dim2 = 1, .global = 6, .global2 = 8, .shift = 1};
        weft_emit(g, op, &x, 1, &attr);
    } else if (op == WEFT_OP_FETCH) {
        g = weft_graph_create();
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 8));
        const weft_value away = weft_emit(g, WEFT_OP_OFFLOAD, &x, 1, &(weft_attr_move){1 << 20});
        weft_emit(g, op, &away, 1, &(weft_attr_move){1 << 20});
    } else if (op == WEFT_OP_PARAM || op == WEFT_OP_INPUT) {
        const weft_attr_source attr = {
            .dtype = WEFT_F32, .shape = {2, {2, 3}}, .global = {2, {4, 3}}, .start = {2, 0}};
        g = weft_graph_create();
        weft_source(g, op, "x", &attr);
    }
    for (int i = 0; i < count && !g; i++)
        if (c[i].op == op)
            g = case_graph(&c[i], 0);
    cr_assert(g, "no graph with %s", weft_op_get(op)->name);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    for (*node = 0; weft_graph_node(g, *node)->op != op; ++*node)
        ;
    return g;
}

/* A change of the last bit of any member of an attribute changes the hash or makes the graph illegal.
 * Members that the outputs show are not printed again. */
Test(graph, hash_sees_everything)
{
    const size_t count = sizeof members / sizeof *members;
    for (size_t i = 0; i < count; i++) {
        int32_t node;
        weft_graph *g = graph_with(members[i].op, &node);
        const uint64_t before = weft_graph_hash(g);
        cr_expect_eq(weft_graph_hash(g), before);
        unsigned char *attr = (unsigned char *)(uintptr_t)weft_graph_node(g, node)->attr;
        attr[members[i].at + members[i].poke] ^= 1;
        cr_expect(weft_graph_verify(g) != WEFT_OK || weft_graph_hash(g) != before, "%s",
                  members[i].name);
        weft_graph_free(g);
    }
}

/* Attributes with a member that the list above does not know. */
Test(graph, hash_members_are_complete)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const weft_op_info *info = weft_op_get((weft_op)op);
        const int64_t padding = info->attr_bytes <= 8 ? 4 : info->attr_bytes <= 16 ? 8 : 16;
        size_t known = 0;
        for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
            const weft_op_info *of = weft_op_get(members[i].op);
            bool again = of->print != info->print;
            for (size_t k = 0; k < i; k++)
                again |= weft_op_get(members[k].op)->print == info->print &&
                         members[k].at == members[i].at;
            known += again ? 0 : members[i].bytes;
        }
        if (op != WEFT_OP_CONSTANT) /* its data is below */
            cr_expect_lt(info->attr_bytes, (int64_t)known + padding,
                         "%s: an attribute of %" PRId64 " bytes, %zu known", info->name,
                         info->attr_bytes, known);
    }
}

Test(graph, hash_sees_constants)
{
    weft_graph *a = small(0.5), *b = small(0.5);
    cr_expect_eq(weft_graph_hash(a), weft_graph_hash(b));
    const float one = 1, two = 2;
    weft_constant(a, WEFT_F32, WEFT_SHAPE(1), &one);
    weft_constant(b, WEFT_F32, WEFT_SHAPE(1), &two);
    cr_expect_neq(weft_graph_hash(a), weft_graph_hash(b));
    weft_graph_free(a);
    weft_graph_free(b);
}

/* Passes share the data of constants. A slice of the leading dim points into that data. The shared
 * data exist as long as the last graph that uses them. */
Test(graph, constants_are_stored_once)
{
    float data[12];
    for (int i = 0; i < 12; i++)
        data[i] = (float)i;
    weft_graph *g = weft_graph_create(), *part = NULL, *ordered = NULL;
    const weft_value rows = weft_constant(g, WEFT_F32, WEFT_SHAPE(6, 2), data);
    const weft_value columns = weft_constant(g, WEFT_F32, WEFT_SHAPE(2, 6), data);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6, 2)),
                     y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(2, 6));
    weft_output(g, "a", weft_sum_all(g, weft_mul(g, x, rows)));
    weft_output(g, "b", weft_sum_all(g, weft_mul(g, y, columns)));
    const weft_recipe_row split[] = {{"x", "dp", {WEFT_S, 0}}, {"y", "dp", {WEFT_S, 1}}};
    const weft_recipe recipe = {.name = "test", .row = split, .count = 2};
    const weft_mesh mesh = {1, {{"dp", 3}}};
    const char *kept = ((const weft_attr_constant *)weft_graph_node(g, 0)->attr)->data;
    cr_assert_eq(weft_pass_shard(g, &mesh, 1, &recipe, &part), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_order(part, 0, &ordered), WEFT_OK);
    weft_graph_free(g);
    weft_graph_free(part);
    int found = 0;
    for (int32_t i = 0; i < weft_graph_node_count(ordered); i++) {
        const weft_node *n = weft_graph_node(ordered, i);
        if (n->op != WEFT_OP_CONSTANT)
            continue;
        const weft_attr_constant *a = n->attr;
        const float *own = a->data;
        found++;
        if (a->shape.dim[0] == 2 && a->shape.dim[1] == 2 && own[0] == 4)
            cr_expect_eq((const char *)own, kept + 4 * sizeof(float), "rows 2 and 3, in place");
        else
            cr_expect(own[0] == 2 && own[1] == 3 && own[2] == 8 && own[3] == 9, "columns 2 and 3");
    }
    cr_expect_eq(found, 2);
    weft_graph_free(ordered);
}

/* ---- layouts of graphs that are built on a mesh -------------------------------------------- */

/* x is S(0) on two ranks. */
static weft_graph *on_two_ranks(weft_value *x)
{
    weft_graph *g = weft_graph_create();
    weft_mesh mesh;
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    weft_graph_set_mesh(g, &mesh, 0);
    *x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 4));
    weft_graph_set_layout(g, *x, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 0}});
    return g;
}

/* A parameter that is not varied gets a term as its gradient where the same on all ranks is due. */
Test(graph, a_gradient_laid_out_wrongly_fails)
{
    for (int varied = 0; varied < 2; varied++) {
        weft_value x, grad;
        weft_graph *g = on_two_ranks(&x);
        const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(5, 4), zero);
        const weft_attr_comm axis = {.axis = 0};
        const weft_value read = varied ? weft_emit(g, WEFT_OP_VARY, &w, 1, &axis) : w;
        const weft_value y = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, read}, 2,
                                       &(weft_attr_linear){WEFT_ACT_NONE});
        const weft_value term = weft_sum_all(g, y);
        const weft_value loss = weft_emit(g, WEFT_OP_ALL_REDUCE, &term, 1, &axis);
        weft_autodiff(g, loss, &w, 1, &grad);
        const bool ok = weft_graph_check(g) == WEFT_OK;
        cr_expect_eq(ok, varied == 1);
        if (!varied)
            cr_expect_str_eq(
                weft_error_message(),
                "gradient rule of linear: the gradient of operand 1 has layout P on axis "
                "dp, not R");
        weft_graph_free(g);
    }
}

Test(graph, an_unknown_layout_is_refused)
{
    weft_value x;
    weft_graph *g = on_two_ranks(&x);
    const weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(3, 4));
    weft_graph_set_layout(g, y, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 1}});
    cr_assert_eq(weft_graph_verify(g), WEFT_OK);
    weft_add(g, x, y);
    cr_expect_neq(weft_graph_verify(g), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_INTERNAL_ERROR);
    cr_expect(strstr(weft_error_message(), "node 2 (add) is illegal: no row of its layout rule"),
              "%s", weft_error_message());
    weft_graph_free(g);
}

/* ---- verify -------------------------------------------------------------------------------- */

typedef void damage(weft_graph *g);

static void later_input(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->in[0].id = 5;
}
static void no_value(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->in[0].id = 99;
}
static void absent_input(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->in[0] = WEFT_NONE;
}
static void few_inputs(weft_graph *g)
{
    weft_graph_node_mut(g, 2)->in_count = 1;
}
static void no_op(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->op = WEFT_OP_COUNT;
}
static void other_shape(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->in[0].id = 0;
}
static void bad_operands(weft_graph *g)
{
    weft_graph_node_mut(g, 2)->in[1].id = 0, weft_graph_node_mut(g, 2)->op = WEFT_OP_MATMUL;
}
static void other_output(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->out[0].id = 2;
}
static void outputs_missing(weft_graph *g)
{
    weft_graph_node_mut(g, 3)->out_count = 0;
}
static void layout_without_mesh(weft_graph *g)
{
    weft_graph_set_layout(g, (weft_value){2}, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 0}});
}
static void layout_of_no_dim(weft_graph *g)
{
    weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", 2}}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_graph_set_layout(g, (weft_value){2}, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 2}});
}
static void summed_twice(weft_graph *g) /* a gradient that every rank has already */
{
    weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", 2}}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_emit(g, WEFT_OP_ALL_REDUCE, &(weft_value){1}, 1, &(weft_attr_comm){.axis = 0});
}
static void gathered_whole(weft_graph *g)
{
    weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", 2}}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_emit(g, WEFT_OP_ALL_GATHER, &(weft_value){1}, 1,
              &(weft_attr_comm){.axis = 0, .global = 8});
}
static void updated_twice(weft_graph *g)
{
    weft_update(g, (weft_value){1}, (weft_value){1});
    weft_update(g, (weft_value){1}, (weft_value){1});
}

Test(graph, verify_finds_every_damage)
{
    static const struct {
        damage *damage;
        const char *text;
    } table[] = {
        {later_input, "node 3 (square) is illegal: an input is made later or nowhere"},
        {no_value, "node 3 (square) is illegal: an input is made later or nowhere"},
        {absent_input, "node 3 (square) is illegal: a needed input is absent"},
        {few_inputs, "net: node 2 (linear) is illegal: wrong number of inputs"},
        {no_op, "node 3 (?) is illegal: no such op"},
        {other_shape,
         "node 3 (square) is illegal: an output has another shape or type than inference gives"},
        {bad_operands, "net: node 2 (matmul) is illegal: matmul: contracted sizes differ; operands "
                       "f32[4,3], f32[4,3]"},
        {other_output, "node 3 (square) is illegal: an output names another producer"},
        {outputs_missing, "node 3 (square) is illegal: wrong number of outputs"},
        {layout_without_mesh, "value %2 has an illegal layout on axis 0"},
        {layout_of_no_dim, "value %2 has an illegal layout on axis 0"},
        {summed_twice, "node 7 (all_reduce) is illegal: its operand is R on axis dp"},
        {gathered_whole, "node 7 (all_gather) is illegal: its operand is R on axis dp"},
        {updated_twice, "net.weight: the source is updated twice"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        weft_graph *g = small(0.5);
        cr_assert_eq(weft_graph_verify(g), WEFT_OK);
        table[i].damage(g);
        cr_expect_eq(weft_graph_verify(g), WEFT_E_INTERNAL, "damage %zu is not found", i);
        cr_expect_eq(weft_error_class(), WEFT_MSG_INTERNAL_ERROR);
        cr_expect(strstr(weft_error_message(), table[i].text), "damage %zu: \"%s\", not \"%s\"", i,
                  weft_error_message(), table[i].text);
        weft_graph_free(g);
    }
}

/* ---- autodiff computes needed gradients only ----------------------------------------------- */

Test(graph, frozen_params_cost_nothing)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    const weft_value frozen = weft_source(
        g, WEFT_OP_PARAM, "frozen",
        &(weft_attr_source){.shape = WEFT_SHAPE(3, 3), .global = WEFT_SHAPE(3, 3), .frozen = true});
    const weft_value head = weft_param(g, "head", WEFT_F32, WEFT_SHAPE(4, 3), zero);
    weft_value h =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, frozen}, 2, &(weft_attr_linear){0});
    h = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){h, head}, 2, &(weft_attr_linear){0});
    const weft_value loss = weft_sum_all(g, h);
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    cr_assert_eq(count, 1);
    weft_value grad;
    const int32_t before = weft_graph_node_count(g);
    weft_autodiff(g, loss, params, count, &grad);
    cr_expect(weft_value_ok(grad));
    int matmuls = 0;
    for (int32_t i = before; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        cr_expect(n->backward);
        matmuls += n->op == WEFT_OP_MATMUL;
        for (int k = 0; k < n->in_count; k++)
            cr_expect_neq(n->in[k].id, frozen.id, "the backward reads the frozen parameter");
    }
    cr_expect_eq(matmuls, 1, "only the gradient of the head");
    weft_graph_free(g);
}

Test(graph, what_the_loss_does_not_reach_has_no_gradient)
{
    weft_graph *g = weft_graph_create();
    const weft_value p[2] = {weft_param(g, "a", WEFT_F32, WEFT_SHAPE(2), zero),
                             weft_param(g, "b", WEFT_F32, WEFT_SHAPE(2), zero)};
    weft_value grad[2];
    weft_autodiff(g, weft_sum_all(g, p[1]), p, 2, grad);
    cr_expect_not(weft_value_ok(grad[0]));
    cr_expect(weft_value_ok(grad[1]));
    weft_graph_free(g);
}

/* ---- shard: refused graphs ----------------------------------------------------------------- */

static void refuse(const weft_recipe_row *row, int rank, const char *text)
{
    weft_graph *g = small(0.5), *out = (weft_graph *)&g;
    weft_mesh mesh;
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    cr_expect_neq(weft_pass_shard(g, &mesh, rank, &(weft_recipe){"mine", row, 1}, &out), WEFT_OK);
    cr_expect_eq(out, (weft_graph *)&g, "outputs are set only on success");
    cr_expect(strstr(weft_error_message(), text), "%s", weft_error_message());
    weft_graph_free(g);
}

Test(graph, recipes_that_cannot_be)
{
    refuse(&(weft_recipe_row){"net.*", "dp", {WEFT_S, 2}}, 0,
           "row \"net.*\" splits dim 2 on axis dp, but net.weight has rank 2");
    refuse(&(weft_recipe_row){"x", "dp", {WEFT_P, 0}}, 0,
           "row \"x\": x can only be whole or split on axis dp");
    refuse(&(weft_recipe_row){"loss", "dp", {WEFT_S, 0}}, 0,
           "row \"loss\" splits dim 0 on axis dp, but loss has rank 0");
    refuse(&(weft_recipe_row){"x", "dp", {WEFT_S, 0}}, 2, "rank 2 is not in a mesh of 2 ranks");
}

/* A row without effect is reported, unless it is marked as optional. */
Test(graph, recipe_rows_without_a_match)
{
    refuse(
        &(weft_recipe_row){"nett.*", "dp", {WEFT_S, 0}}, 0,
        "recipe mine: row 1, \"nett.*\" on axis dp, matches no input, parameter, state or output");
    refuse(&(weft_recipe_row){"net:liner", "dp", {WEFT_S, 0}}, 0, "matches no node (scope:op)");
    static const weft_recipe_row rows[] = {
        {"x", "dp", {WEFT_S, 0}},
        {"nett.*", "dp", {WEFT_S, 0}, .optional = true},
        {"nothing", "tp", {WEFT_S, 0}}, /* an axis that the mesh lacks */
        {"x*", "dp", {WEFT_R, 0}}};
    const weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", 2}}};
    weft_graph *g = small(0.5), *out = NULL;
    cr_expect_eq(weft_pass_shard(g, &mesh, 0, &(weft_recipe){"three", rows, 3}, &out), WEFT_OK,
                 "%s", weft_error_message());
    weft_graph_free(out);
    cr_expect_eq(weft_pass_shard(g, &mesh, 0, &(weft_recipe){"four", rows, 4}, &out), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(),
                     "row 4, \"x*\" on axis dp, has no effect: rows before it, such as \"x\""),
              "%s", weft_error_message());
    weft_graph_free(g);
}

/* ---- memory -------------------------------------------------------------------------------- */

static weft_status_code build_and_shard(void)
{
    weft_graph *g = small(0.5), *part = NULL;
    if (!g)
        return WEFT_E_MEMORY;
    static const weft_recipe_row row[] = {{"x", "dp", {WEFT_S, 0}}, {"net.*", "tp", {WEFT_S, 0}}};
    const weft_mesh mesh = {.axis_count = 2, .axis = {{"dp", 2}, {"tp", 2}}};
    weft_status_code status = weft_pass_shard(g, &mesh, 1, &(weft_recipe){"two", row, 2}, &part);
    if (status == WEFT_OK) {
        const weft_value w = weft_graph_find(part, "net.weight");
        weft_value grad;
        weft_autodiff(part, weft_graph_find(part, "loss"), &w, 1, &grad);
        weft_output(part, "grad", grad);
        status = weft_graph_verify(part);
        weft_graph_free(part);
    }
    weft_graph_free(g);
    return status;
}

Test(graph, every_allocation_may_fail)
{
    const int64_t start = weft_alloc_count();
    cr_assert_eq(build_and_shard(), WEFT_OK);
    const int64_t allocations = weft_alloc_count() - start;
    cr_assert_gt(allocations, 20);
    for (int64_t n = 1; n <= allocations; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = build_and_shard();
        weft_alloc_fail_at(0);
        cr_expect_eq(status, WEFT_E_MEMORY, "allocation %" PRId64 " of %" PRId64 ": %s", n,
                     allocations, weft_error_message());
    }
}
