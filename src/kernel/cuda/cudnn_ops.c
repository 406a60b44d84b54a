#include "kernel/cuda/cudnn_ops.h"

#include "kernel/cuda/cudnn_attention.h"
#include "kernel/view.h"

enum { SPARE = 2 << 20, WIDTH = 128, ROWS = 128 };

/* ---- accepted args --------------------------------------------------------------------------- */

int weft_cudnn_type(weft_dtype dtype)
{
    return dtype == WEFT_BF16 ? CUDNN_BF16 : dtype == WEFT_F16 ? CUDNN_F16 : CUDNN_F32;
}

bool weft_cudnn_has(weft_op op)
{
    return op == WEFT_OP_CONV3D || op == WEFT_OP_CONV3D_DX || op == WEFT_OP_CONV3D_DW ||
           op == WEFT_OP_ATTENTION || op == WEFT_OP_ATTENTION_GRAD;
}

static bool is_present(const weft_kernel_args *args, int i)
{
    return args->in_count > i && view_present(&args->in[i]);
}

static bool has_elements(const weft_view *v)
{
    return view_count(v) > 0;
}

/* x, weights and y of one type; a bias and the gradient of weights of f32 or the same type. */
static bool accepts_conv(const weft_kernel_args *args)
{
    const weft_attr_conv *attr = args->attr;
    const weft_dtype type = args->in[0].dtype, out = args->out[0].dtype;
    bool is =
        (type == WEFT_F32 || type == WEFT_BF16 || type == WEFT_F16) && args->in[1].dtype == type &&
        (out == type || (out == WEFT_F32 && args->op == WEFT_OP_CONV3D_DW)) &&
        has_elements(&args->in[0]) && has_elements(&args->in[1]) && has_elements(&args->out[0]);
    for (int d = 0; d < 3; d++)
        is = is && attr->before[d] >= 0 && attr->after[d] >= 0;
    if (is && args->op == WEFT_OP_CONV3D && is_present(args, 2))
        is = args->in[2].dtype == WEFT_F32 || args->in[2].dtype == type;
    return is;
}

/* Complete attention of bf16 or f16 with heads of a multiple of 8 up to 128 columns. Weft's own
 * kernels compute segments, biases, causal masks and the gradient of lse. */
static bool accepts_attention(const weft_kernel_args *args)
{
    const weft_attr_attention *attr = args->attr;
    const bool grad = args->op == WEFT_OP_ATTENTION_GRAD;
    const weft_dtype type = args->in[0].dtype;
    const int64_t width = args->in[0].shape.dim[3];
    bool is = (type == WEFT_BF16 || type == WEFT_F16) && width % 8 == 0 && width <= WIDTH &&
              !attr->causal && has_elements(&args->in[0]) && has_elements(&args->in[1]);
    for (int i = 0; i < (grad ? 6 : 3); i++)
        is = is && args->in[i].dtype == (i == 4 ? WEFT_F32 : type); /* 4: lse */
    for (int i = 0; i < (grad ? 3 : 1); i++)
        is = is && args->out[i].dtype == type;
    for (int i = grad ? 6 : 3; i < args->in_count; i++)
        is = is && !is_present(args, i);
    return is && (!grad || !weft_cudnn_in_steps(args) || weft_cudnn_steps_accepts(args));
}

bool weft_cudnn_accepts(const weft_kernel_args *args)
{
    return args->op == WEFT_OP_ATTENTION || args->op == WEFT_OP_ATTENTION_GRAD
               ? accepts_attention(args)
               : accepts_conv(args);
}

/* Bytes of the workspace after its start is aligned. */
static int64_t usable_workspace(const weft_kernel_args *args)
{
    const bool dw = args->op == WEFT_OP_CONV3D_DW;
    if (args->op == WEFT_OP_ATTENTION)
        return SPARE;
    if (args->op != WEFT_OP_ATTENTION_GRAD)
        return 2 * 4 * view_count(dw ? &args->out[0] : &args->in[1]) + SPARE;
    if (weft_cudnn_in_steps(args))
        return weft_cudnn_steps_workspace(args) + SPARE;
    const weft_shape *q = &args->in[0].shape;
    const int64_t rows = q->dim[0] * q->dim[2] * ((q->dim[1] + ROWS - 1) / ROWS * ROWS);
    return rows * (q->dim[3] + 4) * 4 + SPARE;
}

int64_t weft_cudnn_workspace(const weft_kernel_args *args)
{
    return usable_workspace(args) + CUDNN_WORKSPACE_ALIGNMENT;
}

/* Some plans for a sum with a bias read weights of several taps in cuDNN's order without a copy,
 * and compute another result (9.19: convolutions of few channels in bf16). Returns the bytes of a
 * copy. */
static int64_t copied_weights(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    const int64_t *d = w->shape.dim;
    return args->op == WEFT_OP_CONV3D && is_present(args, 2) && w->dtype != WEFT_F32 &&
                   d[2] * d[3] * d[4] > 1
               ? view_count(w) * weft_dtype_bytes(w->dtype)
               : 0;
}

weft_cudnn_wish weft_cudnn_wish_of(const weft_kernel_args *args, int variant)
{
    const bool tf32 = weft_op_is_tf32(args->op, args->attr);
    return (weft_cudnn_wish){.variant = variant,
                             .full_f32 = args->in[0].dtype == WEFT_F32 && !tf32,
                             .ordered =
                                 args->op == WEFT_OP_ATTENTION_GRAD && !weft_cudnn_in_steps(args),
                             .least = copied_weights(args),
                             .workspace = usable_workspace(args) - weft_cudnn_sums_bytes(args)};
}

/* ---- tensors --------------------------------------------------------------------------------- */

cudnn_descriptor weft_cudnn_operand(weft_cudnn_builder *b, weft_cudnn_op *op, weft_cudnn_tensor t)
{
    if (!t.is_virtual)
        op->id[op->ids++] = t.id;
    return weft_cudnn_add_tensor(b, &t);
}

/* (B,T,Y,X,C) as N, C, D, H, W. */
static weft_cudnn_tensor grid_of(int64_t id, const weft_view *v)
{
    const int64_t *d = v->shape.dim;
    return (weft_cudnn_tensor){
        .id = id,
        .type = weft_cudnn_type(v->dtype),
        .rank = 5,
        .dim = {d[0], d[4], d[1], d[2], d[3]},
        .stride = {d[1] * d[2] * d[3] * d[4], 1, d[2] * d[3] * d[4], d[3] * d[4], d[4]}};
}

/* (O,I,T,Y,X). cuDNN copies weights to its own order where an engine needs that. */
static weft_cudnn_tensor weights_of(int64_t id, const weft_view *v)
{
    const int64_t *d = v->shape.dim, taps = d[2] * d[3] * d[4];
    return (weft_cudnn_tensor){.id = id,
                               .type = weft_cudnn_type(v->dtype),
                               .rank = 5,
                               .dim = {d[0], d[1], d[2], d[3], d[4]},
                               .stride = {d[1] * taps, taps, d[3] * d[4], d[4], 1}};
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static cudnn_descriptor add_convolution(weft_cudnn_builder *b, const weft_attr_conv *attr)
{
    static const int64_t dilation[] = {1, 1, 1};
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_CONVOLUTION);
    weft_cudnn_set_enum(b, d, CUDNN_CONV_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_F32);
    weft_cudnn_set_enum(b, d, CUDNN_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                        CUDNN_CROSS_CORRELATION);
    weft_cudnn_set_int(b, d, CUDNN_CONV_DIMS, 3);
    weft_cudnn_set(b, d, CUDNN_CONV_DILATIONS, CUDNN_TYPE_INT64, 3, dilation);
    weft_cudnn_set(b, d, CUDNN_CONV_STRIDES, CUDNN_TYPE_INT64, 3, attr->stride);
    weft_cudnn_set(b, d, CUDNN_CONV_BEFORE, CUDNN_TYPE_INT64, 3, attr->before);
    weft_cudnn_set(b, d, CUDNN_CONV_AFTER, CUDNN_TYPE_INT64, 3, attr->after);
    weft_cudnn_finish(b, d);
    return d;
}

/* The operation whose attributes begin at `alpha`: y = alpha (w * x) + beta y, or a gradient. */
static cudnn_descriptor add_product(weft_cudnn_builder *b, int type, int alpha,
                                    const weft_attr_conv *attr, const cudnn_descriptor wxy[3])
{
    const float one = 1, zero = 0;
    cudnn_descriptor d = weft_cudnn_new(b, type);
    weft_cudnn_set(b, d, alpha, CUDNN_TYPE_FLOAT, 1, &one);
    weft_cudnn_set(b, d, alpha + 1, CUDNN_TYPE_FLOAT, 1, &zero);
    weft_cudnn_set_descriptor(b, d, alpha + 2, add_convolution(b, attr));
    for (int i = 0; i < 3; i++)
        weft_cudnn_set_descriptor(b, d, alpha + 3 + i, wxy[i]);
    weft_cudnn_finish(b, d);
    return d;
}

/* The sum before the bias is f32, so that y is rounded once. */
static void add_conv(weft_cudnn_builder *b, const weft_kernel_args *args, weft_cudnn_op *op)
{
    const bool biased = is_present(args, 2);
    const weft_cudnn_tensor y = grid_of(CUDNN_ID_OUT, &args->out[0]);
    weft_cudnn_tensor product = y;
    cudnn_descriptor ops[2];
    if (biased) {
        product.id = CUDNN_ID_VIRTUAL;
        product.type = CUDNN_F32;
        product.is_virtual = true;
    }
    const cudnn_descriptor wxy[3] = {
        weft_cudnn_operand(b, op, weights_of(CUDNN_ID_IN + 1, &args->in[1])),
        weft_cudnn_operand(b, op, grid_of(CUDNN_ID_IN, &args->in[0])),
        weft_cudnn_operand(b, op, product)};
    ops[0] = add_product(b, CUDNN_OP_CONV, CUDNN_OP_CONV_ALPHA, args->attr, wxy);
    if (biased) {
        const int64_t channels = y.dim[1];
        const weft_cudnn_tensor bias = {.id = CUDNN_ID_IN + 2,
                                        .type = weft_cudnn_type(args->in[2].dtype),
                                        .rank = 5,
                                        .dim = {1, channels, 1, 1, 1},
                                        .stride = {channels, 1, channels, channels, channels}};
        ops[1] = weft_cudnn_add_pointwise(b, CUDNN_ADD, wxy[2], weft_cudnn_operand(b, op, bias),
                                          weft_cudnn_operand(b, op, y));
    }
    op->graph = weft_cudnn_add_graph(b, ops, biased ? 2 : 1);
}

static void add_conv_dx(weft_cudnn_builder *b, const weft_kernel_args *args, weft_cudnn_op *op)
{
    const cudnn_descriptor wxy[3] = {
        weft_cudnn_operand(b, op, weights_of(CUDNN_ID_IN + 1, &args->in[1])),
        weft_cudnn_operand(b, op, grid_of(CUDNN_ID_OUT, &args->out[0])),
        weft_cudnn_operand(b, op, grid_of(CUDNN_ID_IN, &args->in[0]))};
    const cudnn_descriptor d =
        add_product(b, CUDNN_OP_CONV_DX, CUDNN_OP_CONV_DX_ALPHA, args->attr, wxy);
    op->graph = weft_cudnn_add_graph(b, &d, 1);
}

static void add_conv_dw(weft_cudnn_builder *b, const weft_kernel_args *args, weft_cudnn_op *op)
{
    const cudnn_descriptor wxy[3] = {
        weft_cudnn_operand(b, op, weights_of(CUDNN_ID_OUT, &args->out[0])),
        weft_cudnn_operand(b, op, grid_of(CUDNN_ID_IN, &args->in[0])),
        weft_cudnn_operand(b, op, grid_of(CUDNN_ID_IN + 1, &args->in[1]))};
    const cudnn_descriptor d =
        add_product(b, CUDNN_OP_CONV_DW, CUDNN_OP_CONV_DW_ALPHA, args->attr, wxy);
    op->graph = weft_cudnn_add_graph(b, &d, 1);
}

void weft_cudnn_add_op(weft_cudnn_builder *b, const weft_kernel_args *args, weft_cudnn_op *op)
{
    *op = (weft_cudnn_op){0};
    if (args->op == WEFT_OP_CONV3D)
        add_conv(b, args, op);
    else if (args->op == WEFT_OP_CONV3D_DX)
        add_conv_dx(b, args, op);
    else if (args->op == WEFT_OP_CONV3D_DW)
        add_conv_dw(b, args, op);
    else if (args->op == WEFT_OP_ATTENTION)
        weft_cudnn_add_attention(b, args, op);
    else if (weft_cudnn_in_steps(args))
        weft_cudnn_add_attention_steps(b, args, op);
    else
        weft_cudnn_add_attention_grad(b, args, op);
}
