/* The operation graphs of weft, given to NVIDIA's cuDNN on a machine without a GPU: cuDNN checks the
 * graphs, chooses engines for a described GPU, compiles their kernels and states workspaces.
 * Nothing runs. WEFT_TEST_CUDNN is the folder `nvidia` of the wheels nvidia-cudnn-cu12,
 * nvidia-cublas-cu12 and nvidia-cuda-nvrtc-cu12; without it the tests are skipped. */
#include "base/memory.h"
#include "graph/op.h"
#include "kernel/cuda/cudnn_attention.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The description of a GPU in cuDNN's format (9.8 and later), by public figures of an H100, an
 * RTX 4090 and an A100. */
static const char description[] =
    "{\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":12090,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":2619000,\"memoryBusWidth\":5120,\"l2CacheSize\":52428800,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
    "\"reservedSharedMemoryPerBlock\":1024,\"oversizedSharedMemoryPerBlock\":0,"
    "\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":25769803776}";
static const struct gpu {
    const char *name;
    int version, processors, shared;
} gpus[] = {{"NVIDIA H100 80GB HBM3", 900, 132, 232448},
            {"NVIDIA GeForce RTX 4090", 890, 128, 101376},
            {"NVIDIA A100-SXM4-80GB", 800, 108, 166912}};
enum { GPUS = sizeof gpus / sizeof gpus[0], H100 = 0 };

static const char *wheels(void)
{
    const char *folder = getenv("WEFT_TEST_CUDNN");
    if (!folder || !folder[0])
        cr_skip("WEFT_TEST_CUDNN is not set");
    return folder;
}

static void *open_file(const char *name, int mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", wheels(), name);
    void *library = dlopen(path, mode);
    cr_assert_not_null(library, "%s", dlerror());
    return library;
}

static const weft_cudnn *open_cudnn(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/cudnn/lib/libcudnn.so.9", wheels());
    cr_assert_not_null(dlopen(WEFT_ABSENT_DRIVER, RTLD_NOW | RTLD_GLOBAL), "%s", dlerror());
    open_file("cuda_nvrtc/lib/libnvrtc.so.12", RTLD_LAZY | RTLD_GLOBAL);
    open_file("cublas/lib/libcublasLt.so.12", RTLD_LAZY | RTLD_GLOBAL);
    setenv("WEFT_CUDNN_LIBRARY", path, 1);
    const weft_cudnn *library = weft_cudnn_get();
    cr_assert_not_null(library, "%s", dlerror());
    return library;
}

/* ---- ops ------------------------------------------------------------------------------------- */

typedef struct node {
    weft_kernel_args args;
    weft_view in[6], out[3];
    weft_attr_conv conv;
    weft_attr_attention attention;
} node;

static weft_view view(weft_dtype type, int rank, const int64_t *dim)
{
    weft_view v = {.dtype = type, .shape = {.rank = rank}};
    memcpy(v.shape.dim, dim, (size_t)rank * sizeof *dim);
    return v;
}

static node *finish_node(node *n, weft_op op, int inputs, int outputs, const void *attr)
{
    n->args = (weft_kernel_args){.op = op,
                                 .in = n->in,
                                 .in_count = inputs,
                                 .out = n->out,
                                 .out_count = outputs,
                                 .attr = attr};
    return n;
}

/* A layer of the Wan VAE: 96 channels, 3x3x3, causal in time. */
static node *conv_node(node *n, weft_op op, weft_dtype type, bool bias, int64_t stride)
{
    const int64_t grid[] = {1, 4, 60, 104, 96}, taps[] = {96, 96, 3, 3, 3}, channels[] = {96};
    const int64_t small[] = {1, (4 + 2 - 3) / stride + 1, (60 + 2 - 3) / stride + 1,
                             (104 + 2 - 3) / stride + 1, 96};
    const weft_view x = view(type, 5, grid), y = view(type, 5, small), w = view(type, 5, taps);
    *n = (node){
        .conv = {.stride = {stride, stride, stride}, .before = {2, 1, 1}, .after = {0, 1, 1}}};
    n->in[0] = op == WEFT_OP_CONV3D_DX ? y : x;
    n->in[1] = op == WEFT_OP_CONV3D_DW ? y : w;
    n->in[2] = view(WEFT_F32, 1, channels);
    n->out[0] = op == WEFT_OP_CONV3D ? y : op == WEFT_OP_CONV3D_DX ? x : w;
    return finish_node(n, op, bias ? 3 : 2, 1, &n->conv);
}

static node *attention_node(node *n, bool grad, int64_t queries, int64_t keys, int64_t width)
{
    const int64_t q[] = {2, queries, 12, width}, k[] = {2, keys, 12, width}, l[] = {2, 12, queries};
    const weft_view rows = view(WEFT_BF16, 4, q), others = view(WEFT_BF16, 4, k);
    *n = (node){.attention = {.scale = 0.1}};
    n->in[0] = n->in[3] = n->in[5] = n->out[0] = rows;
    n->in[1] = n->in[2] = others;
    n->in[4] = view(WEFT_F32, 3, l);
    n->out[1] = grad ? others : n->in[4];
    n->out[2] = others;
    return finish_node(n, grad ? WEFT_OP_ATTENTION_GRAD : WEFT_OP_ATTENTION, grad ? 6 : 3,
                       grad ? 3 : 2, &n->attention);
}

/* ---- plans ------------------------------------------------------------------------------------- */

/* The status of the search for a plan, and its workspace. */
static weft_status_code plan_of(const weft_kernel_args *args, const struct gpu *gpu,
                                int64_t *workspace)
{
    char json[1024];
    weft_cudnn_op op;
    snprintf(json, sizeof json, description, gpu->name, gpu->version, gpu->processors, gpu->shared);
    weft_cudnn_builder b = {.library = open_cudnn(), .device_json = json};
    const weft_cudnn_wish wish = weft_cudnn_wish_of(args, 0);
    cr_assert(weft_cudnn_has(args->op) && weft_cudnn_accepts(args));
    weft_cudnn_add_op(&b, args, &op);
    cr_assert_eq(b.status, WEFT_OK, "%s: %s", weft_op_get(args->op)->name, weft_error_message());
    int variant;
    weft_cudnn_add_plan(&b, op.graph, &wish, &variant, workspace);
    weft_cudnn_close(&b);
    return b.status;
}

static void expect_plan(const weft_kernel_args *args, const struct gpu *gpu)
{
    int64_t workspace = -1;
    cr_expect_eq(plan_of(args, gpu, &workspace), WEFT_OK, "%s, %s: %s", weft_op_get(args->op)->name,
                 gpu->name, weft_error_message());
    cr_expect(workspace >= 0 && workspace <= weft_cudnn_workspace(args), "%lld bytes",
              (long long)workspace);
}

Test(cudnn_graph, convolutions_of_bf16_have_plans)
{
    node n;
    for (int g = 0; g < GPUS; g++) {
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D, WEFT_BF16, false, 1)->args, &gpus[g]);
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D_DX, WEFT_BF16, false, 1)->args, &gpus[g]);
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D_DW, WEFT_BF16, false, 1)->args, &gpus[g]);
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D, WEFT_BF16, false, 2)->args, &gpus[g]);
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D_DX, WEFT_BF16, false, 2)->args, &gpus[g]);
    }
}

/* Training sums gradients of weights in f32, for which only compute capability 9.0 has an engine. */
Test(cudnn_graph, gradients_of_weights_in_f32_have_plans_on_hopper)
{
    node n;
    if (open_cudnn()->version < 92800)
        cr_skip("the engine is of 9.28");
    conv_node(&n, WEFT_OP_CONV3D_DW, WEFT_BF16, false, 1)->out[0].dtype = WEFT_F32;
    expect_plan(&n.args, &gpus[H100]);
}

/* A bias of f32 after a product of bf16 is fused by a kernel that cuDNN compiles. */
Test(cudnn_graph, convolutions_with_a_bias_have_plans)
{
    node n;
    for (int g = 0; g < GPUS; g++)
        expect_plan(&conv_node(&n, WEFT_OP_CONV3D, WEFT_BF16, true, 1)->args, &gpus[g]);
}

/* The workspace has room for a copy of the weights. Plans of 9.19 without one compute other results
 * on an H100, and are first for few channels. */
Test(cudnn_graph, plans_with_a_bias_copy_the_weights)
{
    node n;
    int64_t workspace = -1;
    const weft_kernel_args *small = &conv_node(&n, WEFT_OP_CONV3D, WEFT_BF16, true, 1)->args;
    n.in[0].shape.dim[4] = n.out[0].shape.dim[4] = n.in[2].shape.dim[0] = 8;
    n.in[1].shape.dim[0] = n.in[1].shape.dim[1] = 8;
    cr_expect_eq(plan_of(small, &gpus[H100], &workspace), WEFT_OK, "%s", weft_error_message());
    cr_expect(workspace >= 8 * 8 * 27 * 2, "%lld bytes", (long long)workspace);
}

Test(cudnn_graph, attention_has_plans)
{
    node n;
    for (int g = 0; g < GPUS; g++) {
        expect_plan(&attention_node(&n, false, 1560, 1560, 128)->args, &gpus[g]);
        expect_plan(&attention_node(&n, false, 37, 512, 64)->args, &gpus[g]);
    }
    expect_plan(&attention_node(&n, false, 64, 64, 40)->args, &gpus[H100]);
}

/* In one operation, only compute capability 9.0 has an engine whose sums have one order without a
 * workspace of queries times keys. Versions before 9.28 get the gradient in steps, part by part. */
Test(cudnn_graph, gradients_of_attention_have_ordered_plans)
{
    node n;
    int64_t workspace;
    const weft_kernel_args *large = &attention_node(&n, true, 4096, 4096, 128)->args;
    expect_plan(large, &gpus[H100]);
    for (int g = H100 + 1; g < GPUS; g++) {
        if (weft_cudnn_in_steps(large))
            expect_plan(large, &gpus[g]);
        else
            cr_expect_eq(plan_of(large, &gpus[g], &workspace), WEFT_E_UNSUPPORTED, "%s",
                         gpus[g].name);
    }
    expect_plan(&attention_node(&n, true, 37, 61, 64)->args, &gpus[H100]);
}

/* `weft doctor --gpu` stores such a description, which cuDNN accepts again. */
Test(cudnn_graph, descriptions_of_gpus_are_returned)
{
    char json[1024];
    snprintf(json, sizeof json, description, "a GPU", 890, 128, 101376);
    weft_cudnn_builder first = {.library = open_cudnn(), .device_json = json};
    char *text = weft_cudnn_describe_device(&first);
    cr_assert_not_null(text, "%s", weft_error_message());
    cr_expect_not_null(strstr(text, "890"), "%s", text);
    weft_cudnn_builder second = {.library = first.library, .device_json = text};
    char *again = weft_cudnn_describe_device(&second);
    cr_assert_not_null(again, "%s", weft_error_message());
    cr_expect_str_eq(again, text);
    weft_cudnn_close(&first);
    weft_cudnn_close(&second);
    weft_free(text);
    weft_free(again);
}

/* cuDNN sees mistakes: lse of fewer queries than q. */
Test(cudnn_graph, wrong_shapes_are_refused)
{
    node n;
    weft_cudnn_op op;
    weft_cudnn_builder b = {.library = open_cudnn(), .device_json = description};
    attention_node(&n, false, 64, 64, 64)->out[1].shape.dim[2] = 63;
    weft_cudnn_add_op(&b, &n.args, &op);
    cr_expect_neq(b.status, WEFT_OK);
    weft_cudnn_close(&b);
}

/* ---- values -------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int value;
} values[] = {
    {"CUDNN_STATUS_NOT_SUPPORTED", CUDNN_NOT_SUPPORTED},
    {"CUDNN_BACKEND_POINTWISE_DESCRIPTOR", CUDNN_POINTWISE},
    {"CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR", CUDNN_CONVOLUTION},
    {"CUDNN_BACKEND_ENGINE_DESCRIPTOR", CUDNN_ENGINE},
    {"CUDNN_BACKEND_ENGINECFG_DESCRIPTOR", CUDNN_ENGINE_CONFIG},
    {"CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR", CUDNN_HEURISTIC},
    {"CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR", CUDNN_PLAN},
    {"CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR", CUDNN_KNOB_CHOICE},
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR", CUDNN_OP_CONV},
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR", CUDNN_OP_CONV_DW},
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR", CUDNN_OP_CONV_DX},
    {"CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", CUDNN_OP_POINTWISE},
    {"CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR", CUDNN_GRAPH},
    {"CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR", CUDNN_PACK},
    {"CUDNN_BACKEND_TENSOR_DESCRIPTOR", CUDNN_TENSOR},
    {"CUDNN_BACKEND_MATMUL_DESCRIPTOR", CUDNN_MATMUL},
    {"CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", CUDNN_OP_MATMUL},
    {"CUDNN_BACKEND_REDUCTION_DESCRIPTOR", CUDNN_REDUCTION},
    {"CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR", CUDNN_OP_REDUCTION},
    {"CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR", CUDNN_OP_RESHAPE},
    {"CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR", CUDNN_DEVICE},
    {"CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR", CUDNN_OP_SDPA},
    {"CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR", CUDNN_OP_SDPA_GRAD},
    {"CUDNN_TYPE_HANDLE", CUDNN_TYPE_HANDLE},
    {"CUDNN_TYPE_DATA_TYPE", CUDNN_TYPE_DATA_TYPE},
    {"CUDNN_TYPE_BOOLEAN", CUDNN_TYPE_BOOLEAN},
    {"CUDNN_TYPE_INT64", CUDNN_TYPE_INT64},
    {"CUDNN_TYPE_FLOAT", CUDNN_TYPE_FLOAT},
    {"CUDNN_TYPE_VOID_PTR", CUDNN_TYPE_ADDRESS},
    {"CUDNN_TYPE_CONVOLUTION_MODE", CUDNN_TYPE_CONVOLUTION_MODE},
    {"CUDNN_TYPE_HEUR_MODE", CUDNN_TYPE_HEURISTIC_MODE},
    {"CUDNN_TYPE_KNOB_TYPE", CUDNN_TYPE_KNOB},
    {"CUDNN_TYPE_NUMERICAL_NOTE", CUDNN_TYPE_NUMERICAL_NOTE},
    {"CUDNN_TYPE_POINTWISE_MODE", CUDNN_TYPE_POINTWISE_MODE},
    {"CUDNN_TYPE_BACKEND_DESCRIPTOR", CUDNN_TYPE_DESCRIPTOR},
    {"CUDNN_TYPE_CHAR", CUDNN_TYPE_CHAR},
    {"CUDNN_TYPE_REDUCTION_OPERATOR_TYPE", CUDNN_TYPE_REDUCTION_OPERATOR},
    {"CUDNN_ATTR_MATMUL_COMP_TYPE", CUDNN_MATMUL_TYPE},
    {"CUDNN_ATTR_OPERATION_MATMUL_ADESC", CUDNN_OP_MATMUL_A},
    {"CUDNN_ATTR_OPERATION_MATMUL_BDESC", CUDNN_OP_MATMUL_A + 1},
    {"CUDNN_ATTR_OPERATION_MATMUL_CDESC", CUDNN_OP_MATMUL_A + 2},
    {"CUDNN_ATTR_OPERATION_MATMUL_DESC", CUDNN_OP_MATMUL_A + 3},
    {"CUDNN_ATTR_REDUCTION_OPERATOR", CUDNN_REDUCTION_OPERATOR},
    {"CUDNN_ATTR_REDUCTION_COMP_TYPE", CUDNN_REDUCTION_TYPE},
    {"CUDNN_ATTR_OPERATION_REDUCTION_XDESC", CUDNN_OP_REDUCTION_X},
    {"CUDNN_ATTR_OPERATION_REDUCTION_YDESC", CUDNN_OP_REDUCTION_X + 1},
    {"CUDNN_ATTR_OPERATION_REDUCTION_DESC", CUDNN_OP_REDUCTION_X + 2},
    {"CUDNN_ATTR_OPERATION_RESHAPE_XDESC", CUDNN_OP_RESHAPE_X},
    {"CUDNN_ATTR_OPERATION_RESHAPE_YDESC", CUDNN_OP_RESHAPE_X + 1},
    {"CUDNN_ATTR_POINTWISE_MODE", CUDNN_POINTWISE_MODE},
    {"CUDNN_ATTR_POINTWISE_MATH_PREC", CUDNN_POINTWISE_TYPE},
    {"CUDNN_ATTR_CONVOLUTION_COMP_TYPE", CUDNN_CONV_TYPE},
    {"CUDNN_ATTR_CONVOLUTION_CONV_MODE", CUDNN_CONV_MODE},
    {"CUDNN_ATTR_CONVOLUTION_DILATIONS", CUDNN_CONV_DILATIONS},
    {"CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES", CUDNN_CONV_STRIDES},
    {"CUDNN_ATTR_CONVOLUTION_POST_PADDINGS", CUDNN_CONV_AFTER},
    {"CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS", CUDNN_CONV_BEFORE},
    {"CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS", CUDNN_CONV_DIMS},
    {"CUDNN_ATTR_ENGINEHEUR_MODE", CUDNN_HEURISTIC_MODE},
    {"CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH", CUDNN_HEURISTIC_GRAPH},
    {"CUDNN_ATTR_ENGINEHEUR_RESULTS", CUDNN_HEURISTIC_RESULTS},
    {"CUDNN_ATTR_ENGINEHEUR_DEVICEPROP", CUDNN_HEURISTIC_DEVICE},
    {"CUDNN_ATTR_ENGINECFG_ENGINE", CUDNN_CONFIG_ENGINE},
    {"CUDNN_ATTR_ENGINECFG_KNOB_CHOICES", CUDNN_CONFIG_KNOBS},
    {"CUDNN_ATTR_EXECUTION_PLAN_HANDLE CUDNN_DEPRECATED_ENUM", CUDNN_PLAN_HANDLE},
    {"CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG", CUDNN_PLAN_CONFIG},
    {"CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE", CUDNN_PLAN_WORKSPACE},
    {"CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP", CUDNN_PLAN_DEVICE},
    {"CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE", CUDNN_KNOB_TYPE},
    {"CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE", CUDNN_KNOB_VALUE},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA", CUDNN_OP_CONV_ALPHA},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA", CUDNN_OP_CONV_ALPHA + 1},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC", CUDNN_OP_CONV_ALPHA + 2},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W", CUDNN_OP_CONV_ALPHA + 3},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X", CUDNN_OP_CONV_ALPHA + 4},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y", CUDNN_OP_CONV_ALPHA + 5},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA", CUDNN_OP_CONV_DX_ALPHA},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W", CUDNN_OP_CONV_DX_ALPHA + 3},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX", CUDNN_OP_CONV_DX_ALPHA + 4},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY", CUDNN_OP_CONV_DX_ALPHA + 5},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA", CUDNN_OP_CONV_DW_ALPHA},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW", CUDNN_OP_CONV_DW_ALPHA + 3},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X", CUDNN_OP_CONV_DW_ALPHA + 4},
    {"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY", CUDNN_OP_CONV_DW_ALPHA + 5},
    {"CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR", CUDNN_OP_POINTWISE_OF},
    {"CUDNN_ATTR_OPERATION_POINTWISE_XDESC", CUDNN_OP_POINTWISE_OF + 1},
    {"CUDNN_ATTR_OPERATION_POINTWISE_BDESC", CUDNN_OP_POINTWISE_OF + 2},
    {"CUDNN_ATTR_OPERATION_POINTWISE_YDESC", CUDNN_OP_POINTWISE_OF + 3},
    {"CUDNN_ATTR_OPERATIONGRAPH_HANDLE CUDNN_DEPRECATED_ENUM", CUDNN_GRAPH_HANDLE},
    {"CUDNN_ATTR_OPERATIONGRAPH_OPS", CUDNN_GRAPH_OPS},
    {"CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT", CUDNN_TENSOR_ALIGNMENT},
    {"CUDNN_ATTR_TENSOR_DATA_TYPE", CUDNN_TENSOR_TYPE},
    {"CUDNN_ATTR_TENSOR_DIMENSIONS", CUDNN_TENSOR_DIMS},
    {"CUDNN_ATTR_TENSOR_STRIDES", CUDNN_TENSOR_STRIDES},
    {"CUDNN_ATTR_TENSOR_UNIQUE_ID", CUDNN_TENSOR_ID},
    {"CUDNN_ATTR_TENSOR_IS_VIRTUAL", CUDNN_TENSOR_IS_VIRTUAL},
    {"CUDNN_ATTR_TENSOR_IS_BY_VALUE", CUDNN_TENSOR_IS_BY_VALUE},
    {"CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS", CUDNN_PACK_IDS},
    {"CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS", CUDNN_PACK_ADDRESSES},
    {"CUDNN_ATTR_VARIANT_PACK_WORKSPACE", CUDNN_PACK_WORKSPACE},
    {"CUDNN_ATTR_ENGINE_OPERATION_GRAPH", CUDNN_ENGINE_GRAPH},
    {"CUDNN_ATTR_ENGINE_GLOBAL_INDEX", CUDNN_ENGINE_INDEX},
    {"CUDNN_ATTR_ENGINE_NUMERICAL_NOTE", CUDNN_ENGINE_NOTES},
    {"CUDNN_ATTR_ENGINE_DEVICEPROP", CUDNN_ENGINE_DEVICE},
    {"CUDNN_ATTR_DEVICEPROP_HANDLE", CUDNN_DEVICE_HANDLE},
    {"CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION", CUDNN_DEVICE_JSON},
    {"CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC", CUDNN_SDPA_Q},
    {"CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC", CUDNN_SDPA_Q + 3},
    {"CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC", CUDNN_SDPA_Q + 4},
    {"CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC", CUDNN_SDPA_Q + 5},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC", CUDNN_SDPA_GRAD_Q},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC", CUDNN_SDPA_GRAD_Q + 3},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC", CUDNN_SDPA_GRAD_Q + 4},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC", CUDNN_SDPA_GRAD_Q + 5},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC", CUDNN_SDPA_GRAD_DQ},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC", CUDNN_SDPA_GRAD_DQ + 2},
    {"CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC", CUDNN_SDPA_GRAD_DQ + 3},
    {"CUDNN_DATA_FLOAT", CUDNN_F32},
    {"CUDNN_DATA_HALF", CUDNN_F16},
    {"CUDNN_DATA_BFLOAT16", CUDNN_BF16},
    {"CUDNN_CROSS_CORRELATION", CUDNN_CROSS_CORRELATION},
    {"CUDNN_REDUCE_TENSOR_ADD", CUDNN_REDUCE_ADD},
    {"CUDNN_POINTWISE_ADD", CUDNN_ADD},
    {"CUDNN_POINTWISE_MUL", CUDNN_MUL},
    {"CUDNN_POINTWISE_SUB", CUDNN_SUB},
    {"CUDNN_POINTWISE_EXP", CUDNN_EXP},
    {"CUDNN_HEUR_MODE_A", CUDNN_HEURISTIC_A},
    {"CUDNN_HEUR_MODE_FALLBACK", CUDNN_HEURISTIC_FALLBACK},
    {"CUDNN_NUMERICAL_NOTE_TENSOR_CORE", CUDNN_NOTE_TENSOR_CORE},
    {"CUDNN_KNOB_TYPE_STAGES", CUDNN_KNOB_STAGES},
};

/* "NAME = VALUE," with any number of spaces. -1: not in the text. */
static int value_in(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
        const char *end = at + length + strspn(at + length, " ");
        if (strchr(" \n{(", at[-1]) && *end == '=')
            return atoi(end + 1);
    }
    return -1;
}

Test(cudnn_graph, values_are_those_of_the_header)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/cudnn/include/cudnn_graph.h", wheels());
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    char *text = calloc(1, 1 << 20);
    cr_assert(text && fread(text, 1, (1 << 20) - 1, file) > 0);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        cr_expect_eq(value_in(text, values[i].name), values[i].value, "%s", values[i].name);
    fclose(file);
    free(text);
}
