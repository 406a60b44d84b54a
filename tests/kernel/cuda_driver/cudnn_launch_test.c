/* Launches of cuDNN's plans on the emulated driver: the descriptors, addresses, workspace and
 * stream that cuDNN gets (tests/emu/cudnn_bindings). Results are not computed. */
#include "base/memory.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cudnn_impl.h"
#include "kernel/cuda/cudnn_ops.h"
#include "kernel/device.h"
#include "kernel/device_graphs.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const weft_device *const device = &weft_device_cuda;

static void use_libraries(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_CUDNN_LIBRARY", WEFT_CUDNN_BINDINGS, 1);
}

TestSuite(cudnn_launch, .init = use_libraries);

/* ---- ops in memory of the GPU ---------------------------------------------------------------- */

typedef struct node {
    weft_kernel_args args;
    weft_view in[6], out[3];
    weft_attr_conv conv;
    weft_attr_attention attention;
} node;

static weft_view view_of(weft_dtype type, int rank, const int64_t *dim)
{
    weft_view v = {.dtype = type, .shape = {.rank = rank}};
    memcpy(v.shape.dim, dim, (size_t)rank * sizeof *dim);
    v.data = device->alloc(device, view_count(&v) * weft_dtype_bytes(type));
    cr_assert_not_null(v.data);
    return v;
}

static void finish_node(node *n, weft_op op, int inputs, int outputs, const void *attr)
{
    n->args = (weft_kernel_args){.op = op,
                                 .in = n->in,
                                 .in_count = inputs,
                                 .out = n->out,
                                 .out_count = outputs,
                                 .attr = attr};
    cr_assert_eq(device->open(device, NULL, &n->args.stream), WEFT_OK, "%s", weft_error_message());
    cr_assert(weft_cudnn_accepts(&n->args));
    n->args.workspace = device->alloc(device, weft_cudnn_workspace(&n->args));
}

static void open_conv(node *n, weft_op op, bool bias)
{
    const int64_t x[] = {2, 3, 4, 6, 8}, y[] = {2, 2, 2, 3, 16}, w[] = {16, 8, 2, 2, 2}, o[] = {16};
    *n = (node){.conv = {.stride = {1, 2, 2}}};
    n->in[0] = view_of(WEFT_BF16, 5, op == WEFT_OP_CONV3D_DX ? y : x);
    n->in[1] = view_of(WEFT_BF16, 5, op == WEFT_OP_CONV3D_DW ? y : w);
    n->in[2] = view_of(WEFT_F32, 1, o);
    n->out[0] = view_of(WEFT_BF16, 5, op == WEFT_OP_CONV3D ? y : op == WEFT_OP_CONV3D_DX ? x : w);
    finish_node(n, op, bias ? 3 : 2, 1, &n->conv);
}

static void open_attention(node *n, bool grad)
{
    const int64_t q[] = {2, 5, 3, 16}, k[] = {2, 9, 3, 16}, l[] = {2, 3, 5};
    *n = (node){.attention = {.scale = 0.25}};
    for (int i = 0; i < 6; i++)
        n->in[i] =
            i == 4 ? view_of(WEFT_F32, 3, l) : view_of(WEFT_BF16, 4, i == 1 || i == 2 ? k : q);
    n->out[0] = view_of(WEFT_BF16, 4, q);
    n->out[1] = grad ? view_of(WEFT_BF16, 4, k) : view_of(WEFT_F32, 3, l);
    n->out[2] = view_of(WEFT_BF16, 4, k);
    finish_node(n, grad ? WEFT_OP_ATTENTION_GRAD : WEFT_OP_ATTENTION, grad ? 6 : 3, grad ? 3 : 2,
                &n->attention);
}

/* Whether all bytes of the view are `byte`. Fresh memory of the emulated driver has bytes 0xff. */
static bool is_filled(const node *n, const weft_view *v, unsigned char byte)
{
    const int64_t bytes = view_count(v) * weft_dtype_bytes(v->dtype);
    unsigned char *host = weft_device_alloc_host(device, bytes);
    device->host_copy(n->args.stream, host, v->data, bytes);
    cr_assert_eq(device->wait(n->args.stream), WEFT_OK, "%s", weft_error_message());
    bool is = true;
    for (int64_t i = 0; i < bytes; i++)
        is = is && host[i] == byte;
    weft_device_free_host(device, host);
    return is;
}

/* The first plan from variant `first` on. */
static weft_status_code prepare_plan(const node *n, int first, void **plan)
{
    weft_cuda_plan made;
    int count;
    const weft_status_code status = weft_cudnn_prepare(&n->args, first, 1, &made, &count);
    *plan = status == WEFT_OK ? made.plan : NULL;
    return status;
}

/* Launches the plan: complete outputs are written, and inputs are not. */
static void expect_launch(node *n)
{
    void *plan = NULL;
    const char *name = weft_op_get(n->args.op)->name;
    cr_assert_eq(prepare_plan(n, 0, &plan), WEFT_OK, "%s", weft_error_message());
    cr_assert(weft_cuda_stream_begin(n->args.stream, name));
    cr_assert_eq(weft_cudnn_launch(&n->args, plan), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < n->args.out_count; i++)
        cr_expect(is_filled(n, &n->out[i], 0), "%s, output %d", name, i);
    for (int i = 0; i < n->args.in_count; i++)
        cr_expect(is_filled(n, &n->in[i], 0xff), "%s, input %d", name, i);
    weft_cudnn_release(plan);
}

Test(cudnn_launch, convolutions_bind_their_operands)
{
    node n;
    cr_assert_eq(weft_cudnn_version(), 92800);
    open_conv(&n, WEFT_OP_CONV3D, false);
    expect_launch(&n);
    open_conv(&n, WEFT_OP_CONV3D, true);
    expect_launch(&n);
    open_conv(&n, WEFT_OP_CONV3D_DX, false);
    expect_launch(&n);
    open_conv(&n, WEFT_OP_CONV3D_DW, false);
    expect_launch(&n);
}

Test(cudnn_launch, attention_binds_its_operands)
{
    node n;
    open_attention(&n, false);
    expect_launch(&n);
}

Test(cudnn_launch, gradient_of_attention_binds_its_operands)
{
    node n;
    setenv("WEFT_CUDNN_BINDINGS_KNOBS", "1", 1);
    open_attention(&n, true);
    expect_launch(&n);
}

/* The engine has no knob for the order of sums, so no plan is usable. */
Test(cudnn_launch, gradient_of_attention_without_an_order_is_refused)
{
    node n;
    void *plan = NULL;
    open_attention(&n, true);
    cr_expect_eq(prepare_plan(&n, 0, &plan), WEFT_E_UNSUPPORTED);
    cr_expect_null(plan);
}

Test(cudnn_launch, the_gpu_is_described)
{
    char *text = NULL;
    cr_assert_eq(weft_cudnn_device(&text), WEFT_OK, "%s", weft_error_message());
    cr_assert_not_null(text);
    cr_expect_str_eq(text, "{\"deviceVer\":890}");
    weft_free(text);
}

/* Both heuristics have one plan. Variants are counted with gaps, and a search from a variant finds
 * its plan. */
Test(cudnn_launch, variants_end)
{
    node n;
    weft_cuda_plan plan[WEFT_CUDA_VARIANTS], one;
    int count;
    open_conv(&n, WEFT_OP_CONV3D, false);
    cr_assert_eq(weft_cudnn_prepare(&n.args, 0, WEFT_CUDA_VARIANTS, plan, &count), WEFT_OK);
    cr_assert_eq(count, 2);
    const int last = plan[1].variant;
    for (int i = 0; i < count; i++)
        weft_cudnn_release(plan[i].plan);
    cr_assert_eq(weft_cudnn_prepare(&n.args, last, 1, &one, &count), WEFT_OK);
    cr_expect_eq(one.variant, last);
    weft_cudnn_release(one.plan);
    cr_expect_eq(weft_cudnn_prepare(&n.args, last + 1, 1, &one, &count), WEFT_E_UNSUPPORTED);
}

/* The pack of a recorded launch no longer exists when the graph runs. */
Test(cudnn_launch, graphs_repeat_plans)
{
    node n;
    void *plan = NULL;
    weft_device_graph *graph;
    open_conv(&n, WEFT_OP_CONV3D, true);
    cr_assert_eq(prepare_plan(&n, 0, &plan), WEFT_OK);
    cr_assert_eq(device->graphs->begin(n.args.stream), WEFT_OK);
    cr_assert_eq(weft_cudnn_launch(&n.args, plan), WEFT_OK);
    cr_assert_eq(device->graphs->end(n.args.stream, &graph), WEFT_OK);
    device->graphs->launch(n.args.stream, graph);
    cr_expect(is_filled(&n, &n.out[0], 0));
}

Test(cudnn_launch, an_operand_of_another_stream_needs_an_event, .signal = SIGABRT)
{
    node n;
    void *plan = NULL;
    weft_device_stream *other;
    open_conv(&n, WEFT_OP_CONV3D, false);
    cr_assert_eq(prepare_plan(&n, 0, &plan), WEFT_OK);
    cr_assert_eq(device->open(device, NULL, &other), WEFT_OK);
    device->fill(other, n.in[1].data, 1, 32);
    cr_assert_eq(weft_cudnn_launch(&n.args, plan), WEFT_OK);
    (void)device->wait(other);
    (void)device->wait(n.args.stream);
}
