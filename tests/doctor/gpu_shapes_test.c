/* Comparisons of kernels at the shapes of a run's own programs. Cases keep what selects a kernel; a
 * kernel that is wrong only for the shape of a run is found, named and replaced; results are
 * stored. */
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "doctor/gpu_case.h"
#include "doctor/gpu_check.h"
#include "doctor/gpu_shapes.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/ops.h"

#include "planted_library.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------- */

typedef struct node {
    weft_view in[9], out[3];
    weft_any_attr attr;
    weft_kernel_args args;
} node;

static weft_view view(weft_dtype dtype, weft_shape shape)
{
    return (weft_view){.dtype = dtype, .shape = shape};
}

static const weft_view absent = {.shape = {.rank = -1}};

static node node_of(weft_op op, int in, int out)
{
    return (node){.args = {.op = op, .in_count = in, .out_count = out, .threads = 1}};
}

/* The shapes of the last node of the case, the inputs first. */
static int shapes_of(node *n, weft_shape *shape)
{
    weft_graph *g;
    n->args.in = n->in;
    n->args.out = n->out;
    n->args.attr = &n->attr;
    cr_assert_eq(weft_gpu_case_build(&n->args, &g), WEFT_OK, "%s", weft_error_message());
    cr_assert_not_null(g, "no case");
    const weft_node *last = weft_graph_node(g, weft_graph_node_count(g) - 1);
    int count = 0;
    for (int i = 0; i < last->in_count; i++)
        if (weft_value_ok(last->in[i]))
            shape[count++] = weft_value_get(g, last->in[i])->shape;
    for (int i = 0; i < last->out_count; i++)
        if (weft_value_ok(last->out[i]))
            shape[count++] = weft_value_get(g, last->out[i])->shape;
    weft_graph_free(g);
    return count;
}

static bool is_shape(const weft_shape *shape, weft_shape wanted)
{
    return weft_shape_equal(shape, &wanted);
}

static node linear(weft_dtype dtype, int64_t rows, int64_t depth, int64_t columns, bool has_bias)
{
    node n = node_of(WEFT_OP_LINEAR, 3, 1);
    n.in[0] = view(dtype, WEFT_SHAPE(1, rows, depth));
    n.in[1] = view(dtype, WEFT_SHAPE(columns, depth));
    n.in[2] = has_bias ? view(WEFT_F32, WEFT_SHAPE(columns)) : absent;
    n.out[0] = view(dtype, WEFT_SHAPE(1, rows, columns));
    return n;
}

Test(gpu_case, products_keep_remainders_and_reduce_rows_first)
{
    weft_shape s[12];
    node n = linear(WEFT_BF16, 32760, 1536, 8970, true);
    cr_assert_eq(shapes_of(&n, s), 4);
    cr_expect_eq(s[0].dim[1], 128 + 32760 % 128);
    cr_expect_eq(s[1].dim[0], 128 + 8970 % 128);
    cr_expect_eq(s[1].dim[1], 768, "whole tiles: %d", (int)s[1].dim[1]);
    cr_expect_eq(s[2].dim[0], s[1].dim[0]);
    cr_expect(is_shape(&s[3], WEFT_SHAPE(1, s[0].dim[1], s[1].dim[0])));
}

/* Small nodes are compared as they are. */
Test(gpu_case, small_nodes_stay)
{
    weft_shape s[12];
    node n = linear(WEFT_F32, 77, 130, 51, false);
    cr_assert_eq(shapes_of(&n, s), 3);
    cr_expect(weft_shape_equal(&s[0], &n.in[0].shape) && weft_shape_equal(&s[1], &n.in[1].shape) &&
              weft_shape_equal(&s[2], &n.out[0].shape));
}

/* Few blocks and much depth: the sum is computed in parts, also in the case. */
Test(gpu_case, divided_sums_stay_divided)
{
    node n = linear(WEFT_BF16, 512, 9000, 1544, false);
    weft_shape s[12];
    cr_assert_eq(shapes_of(&n, s), 3);
    weft_view in[3] = {view(WEFT_BF16, s[0]), view(WEFT_BF16, s[1]), absent},
              out = view(WEFT_BF16, s[2]);
    const weft_kernel_args args = {.op = WEFT_OP_LINEAR,
                                   .in = in,
                                   .in_count = 3,
                                   .out = &out,
                                   .out_count = 1,
                                   .attr = &n.attr};
    cr_expect(weft_cuda_ops[WEFT_OP_LINEAR].workspace(&n.args) > 0);
    cr_expect(weft_cuda_ops[WEFT_OP_LINEAR].workspace(&args) > 0);
    cr_expect_eq(s[0].dim[2] % 8, 0);
    cr_expect(s[0].dim[1] * s[0].dim[2] * s[1].dim[0] <= 4 << 23);
    /* many blocks: one part, although the case has few */
    n = linear(WEFT_BF16, 32760, 9000, 1544, false);
    cr_assert_eq(shapes_of(&n, s), 3);
    in[0].shape = s[0], in[1].shape = s[1], out.shape = s[2];
    cr_expect_eq(weft_cuda_ops[WEFT_OP_LINEAR].workspace(&n.args), 0);
    cr_expect_eq(weft_cuda_ops[WEFT_OP_LINEAR].workspace(&args), 0);
}

Test(gpu_case, rows_of_norms_keep_their_width)
{
    weft_shape s[12];
    node n = node_of(WEFT_OP_RMS_NORM, 2, 1);
    n.in[0] = n.out[0] = view(WEFT_BF16, WEFT_SHAPE(1, 32760, 5120));
    n.in[1] = view(WEFT_F32, WEFT_SHAPE(5120));
    cr_assert_eq(shapes_of(&n, s), 3);
    cr_expect(is_shape(&s[0], WEFT_SHAPE(1, 128 + 32760 % 128, 5120)));
}

static node attention_grad(int64_t queries, int64_t keys, int64_t heads, int64_t width)
{
    node n = node_of(WEFT_OP_ATTENTION_GRAD, 9, 3);
    const weft_view q = view(WEFT_BF16, WEFT_SHAPE(2, queries, heads, width)),
                    k = view(WEFT_BF16, WEFT_SHAPE(2, keys, heads, width));
    n.attr.of_attention = (weft_attr_attention){.scale = 0.1};
    n.in[0] = n.in[3] = n.in[5] = n.out[0] = q;
    n.in[1] = n.in[2] = n.out[1] = n.out[2] = k;
    n.in[4] = view(WEFT_F32, WEFT_SHAPE(2, heads, queries));
    n.in[6] = view(WEFT_I32, WEFT_SHAPE(5, 4));
    n.in[7] = n.in[8] = absent;
    return n;
}

/* Widths of heads and segments stay. The node takes out and lse of an attention over the segments. */
Test(gpu_case, attention_keeps_widths_and_segments)
{
    weft_shape s[12];
    node n = attention_grad(32760, 517, 12, 120);
    cr_assert_eq(shapes_of(&n, s), 10);
    const int64_t queries = 128 + 32760 % 128, keys = s[1].dim[1];
    cr_expect(is_shape(&s[0], WEFT_SHAPE(2, queries, 2, 120)));
    cr_expect_eq(keys % 128, 517 % 128);
    weft_graph *g;
    cr_assert_eq(weft_gpu_case_build(&n.args, &g), WEFT_OK);
    const weft_node *last = weft_graph_node(g, weft_graph_node_count(g) - 1),
                    *of = weft_graph_node(g, weft_value_get(g, last->in[3])->node),
                    *rows = weft_graph_node(g, weft_value_get(g, last->in[6])->node);
    cr_expect_eq(of->op, WEFT_OP_ATTENTION);
    cr_expect(of->in[3].id == last->in[6].id && last->in[4].id == of->out[1].id);
    const int32_t *row = ((const weft_attr_constant *)rows->attr)->data;
    cr_expect(row[0] == 0 && row[1] == row[4] && row[3] == row[6], "segments follow each other");
    cr_expect(row[17] == 2 * queries && row[19] == 2 * keys, "all tokens have a segment");
    weft_graph_free(g);
}

/* Ids are in the table that remains. */
Test(gpu_case, ids_are_in_their_table)
{
    weft_graph *g;
    node n = node_of(WEFT_OP_EMBED, 2, 1);
    n.in[0] = view(WEFT_BF16, WEFT_SHAPE(256384, 4096));
    n.in[1] = view(WEFT_I32, WEFT_SHAPE(1, 512));
    n.out[0] = view(WEFT_F32, WEFT_SHAPE(1, 512, 4096));
    n.args.in = n.in, n.args.out = n.out, n.args.attr = &n.attr;
    cr_assert_eq(weft_gpu_case_build(&n.args, &g), WEFT_OK, "%s", weft_error_message());
    const weft_node *last = weft_graph_node(g, weft_graph_node_count(g) - 1);
    const weft_value_info *ids = weft_value_get(g, last->in[1]);
    const int64_t rows = weft_value_get(g, last->in[0])->shape.dim[0];
    const int32_t *id = ((const weft_attr_constant *)weft_graph_node(g, ids->node)->attr)->data;
    cr_expect(rows < 1024);
    for (int64_t i = 0, most = 0; i < weft_shape_count(&ids->shape); i++) {
        cr_assert(id[i] >= 0 && id[i] < rows);
        most = id[i] > most ? id[i] : most;
        cr_expect(i < 200 || most > rows / 2, "ids are spread over the table");
    }
    weft_graph_free(g);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static char folder[] = "/tmp/weft-shapes-XXXXXX", warned[400];

static void keep_warning(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    (void)user, (void)level, (void)at;
    if (kind == WEFT_MSG_KERNEL_REPLACED)
        snprintf(warned, sizeof warned, "%s", text);
}

static void set_up(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    weft_log_set_receiver(&(weft_log_receiver){.message = keep_warning, .has_message = true});
}

static void tear_down(void)
{
    weft_cuda_choices_forget();
    weft_gpu_shapes_forget();
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(gpu_shapes, .init = set_up, .fini = tear_down);

static weft_status_code prepare(node *n)
{
    n->args.in = n->in;
    n->args.out = n->out;
    n->args.attr = &n->attr;
    return weft_backend_cuda.kernel[n->args.op]->prepare(&n->args, &n->args.cache);
}

/* A new process: only the files remain. */
static void restart(void)
{
    weft_cuda_choices_forget();
    weft_gpu_shapes_forget();
    warned[0] = 0;
    cr_assert_eq(weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_F32), WEFT_OK, "%s",
                 weft_error_message());
}

/* No product of the small models has 77 columns more than whole tiles: their comparison passes. */
static void compare_small_model(void)
{
    static weft_op_check op[WEFT_GPU_RESULTS];
    cr_assert_eq(weft_gpu_check_model(WEFT_GPU_VECTOR_MODEL, WEFT_PRODUCTS_F32, op), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert(op[WEFT_OP_LINEAR].nodes > 0 && !op[WEFT_OP_LINEAR].failed);
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, weft_cuda_impl_own(), WEFT_OP_LINEAR,
                          WEFT_VERDICT_PASSED);
    cr_assert_eq(weft_cuda_verdicts_save(), WEFT_OK, "%s", weft_error_message());
}

Test(gpu_shapes, a_kernel_that_is_wrong_for_a_shape_is_found)
{
    node wrong = linear(WEFT_F32, 30, 40, 205, true), right = linear(WEFT_F32, 30, 40, 208, true);
    setenv("WEFT_EMU_FAULT", "remainder@77", 1);
    compare_small_model();
    restart();
    cr_expect_eq(prepare(&right), WEFT_OK, "%s", weft_error_message());
    cr_expect_neq(prepare(&wrong), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_PARITY_FAILED, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), "linear"), "%s", weft_error_message());
    cr_expect(strstr(warned, "f32[1,30,40] f32[205,40] f32[205]"), "%s", warned);
    /* the next process compares neither */
    const int64_t compared = weft_gpu_shapes_compared();
    restart();
    cr_expect_eq(prepare(&right), WEFT_OK, "%s", weft_error_message());
    cr_expect_neq(prepare(&wrong), WEFT_OK);
    cr_expect_eq(weft_gpu_shapes_compared(), compared);
}

/* A larger node reaches the fault, although its case is smaller. */
Test(gpu_shapes, large_nodes_are_compared_as_small_cases)
{
    node n = linear(WEFT_BF16, 32760, 1536, 8960 + 104, false);
    setenv("WEFT_EMU_FAULT", "remainder@104", 1);
    weft_gpu_shapes_begin();
    cr_expect_neq(prepare(&n), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_PARITY_FAILED, "%s", weft_error_message());
}

/* Equal nodes of programs, and nodes with equal cases, are compared once. */
Test(gpu_shapes, cases_are_compared_once)
{
    node n = linear(WEFT_F32, 30, 40, 72, true);
    weft_gpu_shapes_begin();
    for (int i = 0; i < 3; i++)
        cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_gpu_shapes_compared(), 1);
    n.attr.of_linear.act = WEFT_ACT_SILU; /* another epilogue */
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_gpu_shapes_compared(), 2);
}

/* ---- libraries ------------------------------------------------------------------------------- */

static int launches;

/* Fails like a library with a wrong kernel for some sizes. */
static weft_status_code launch(const weft_kernel_args *args, void *plan)
{
    (void)plan;
    launches++;
    WEFT_TRY(weft_cuda_impl_get(weft_cuda_impl_own())->launch(args, NULL));
    if (args->out[0].shape.dim[2] % 128 == 40)
        weft_device_cuda.fill(args->stream, args->out[0].data, 0x3f, 4);
    return WEFT_OK;
}

static const weft_cuda_impl planted = {.name = "planted",
                                       .version = planted_version,
                                       .has = planted_has_linear,
                                       .accepts = planted_accepts_all,
                                       .launch = launch};

static int launches_of(node *n)
{
    const int before = launches;
    cr_assert_eq(prepare(n), WEFT_OK, "%s", weft_error_message());
    return launches - before;
}

/* A library that is wrong for a shape is not tried for this shape, and stays for others. */
Test(gpu_shapes, a_library_is_replaced_for_a_shape)
{
    node wrong = linear(WEFT_F32, 30, 16, 168, true), right = linear(WEFT_F32, 30, 16, 176, true);
    weft_cuda_impl_plant(&planted);
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, 0, WEFT_OP_LINEAR, WEFT_VERDICT_PASSED);
    weft_gpu_shapes_begin();
    cr_expect_eq(launches_of(&wrong), 1, "only compared");
    cr_expect(strstr(warned, "planted"), "%s", warned);
    cr_expect(launches_of(&right) > 1, "compared and measured");
}
