/* Host code of elementwise ops. */
#include "kernel/cuda/op_pointwise.h"

#include "kernel/cuda/op_launch.h"
#include "kernel/pointwise_steps.h"

static const char *const unary_kernel[WEFT_OP_COUNT] = {[WEFT_OP_STOP] = "weft_stop",
                                                        [WEFT_OP_NEG] = "weft_neg",
                                                        [WEFT_OP_AFFINE] = "weft_affine",
                                                        [WEFT_OP_CAST] = "weft_cast",
                                                        [WEFT_OP_EXP] = "weft_exp",
                                                        [WEFT_OP_LOG] = "weft_log",
                                                        [WEFT_OP_SQRT] = "weft_sqrt",
                                                        [WEFT_OP_RSQRT] = "weft_rsqrt",
                                                        [WEFT_OP_SQUARE] = "weft_square",
                                                        [WEFT_OP_SIN] = "weft_sin",
                                                        [WEFT_OP_COS] = "weft_cos",
                                                        [WEFT_OP_TANH] = "weft_tanh",
                                                        [WEFT_OP_SIGMOID] = "weft_sigmoid",
                                                        [WEFT_OP_SILU] = "weft_silu",
                                                        [WEFT_OP_SILU_GRAD] = "weft_silu_grad",
                                                        [WEFT_OP_GELU] = "weft_gelu",
                                                        [WEFT_OP_GELU_GRAD] = "weft_gelu_grad",
                                                        [WEFT_OP_CLAMP] = "weft_clamp",
                                                        [WEFT_OP_CLAMP_GRAD] = "weft_clamp_grad"};

static void unary_attributes(const weft_kernel_args *args, unary_args *a, const char **kernel)
{
    if (args->op == WEFT_OP_AFFINE) {
        const weft_attr_affine *attr = args->attr;
        a->a = (float)attr->scale;
        a->b = (float)attr->offset;
    } else if (args->op == WEFT_OP_CLAMP || args->op == WEFT_OP_CLAMP_GRAD) {
        const weft_attr_clamp *attr = args->attr;
        a->a = (float)attr->lo;
        a->b = (float)attr->hi;
    } else if (args->op == WEFT_OP_GELU || args->op == WEFT_OP_GELU_GRAD) {
        if (((const weft_attr_gelu *)args->attr)->exact)
            *kernel = args->op == WEFT_OP_GELU ? "weft_gelu_exact" : "weft_gelu_exact_grad";
    }
}

weft_status_code weft_cuda_unary(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *x = &args->in[0], *out = &args->out[0];
    const char *kernel = unary_kernel[args->op];
    unary_args a = {.x = weft_cuda_ref(x),
                    .dy = weft_cuda_input(args, 1),
                    .out = weft_cuda_ref(out),
                    .count = view_count(out)};
    unary_attributes(args, &a, &kernel);
    a.vector = weft_cuda_in_eights(x) && weft_cuda_in_eights(out) &&
               (!a.dy.data || weft_cuda_in_eights(&args->in[1]));
    if (dtype_is_int(x->dtype) && dtype_is_int(out->dtype))
        kernel = "weft_cast_integer";
    return weft_cuda_add(queue, kernel,
                         weft_cuda_blocks(a.count, POINTWISE_THREADS * POINTWISE_PER_THREAD),
                         POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_pointwise_two(const char *kernel, const weft_view *const operand[2],
                                         const weft_view *out, weft_cuda_queue *queue)
{
    const weft_view in[2] = {*operand[0], *operand[1]};
    weft_view to = *out;
    const weft_kernel_args args = {.in = in, .in_count = 2, .out = &to, .out_count = 1};
    weft_cuda_loop loop = {.rank = out->shape.rank};
    memcpy(loop.dim, out->shape.dim, sizeof loop.dim);
    for (int o = 0; o < 2; o++)
        shape_strides(&in[o].shape, loop.stride[o]);
    weft_cuda_loop_join(&loop, 2);
    binary_args a = {
        .x = weft_cuda_ref(&in[0]), .y = weft_cuda_ref(&in[1]), .out = weft_cuda_ref(out)};
    const int last = loop.rank - 1;
    a.x_same = last >= 0 && loop.stride[0][last] == 0;
    a.y_same = last >= 0 && loop.stride[1][last] == 0;
    a.vector = weft_cuda_loop_widen(&loop, &args, 2);
    a.items = weft_cuda_loop_items(&loop);
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    weft_cuda_loop_strides(&loop, 0, a.x_stride);
    weft_cuda_loop_strides(&loop, 1, a.y_stride);
    const int64_t each = POINTWISE_THREADS * (a.vector ? 1 : POINTWISE_PER_THREAD);
    return weft_cuda_add(queue, kernel, weft_cuda_blocks(a.items, each), POINTWISE_THREADS, &a,
                         sizeof a);
}

weft_status_code weft_cuda_binary(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const char *kernel = args->op == WEFT_OP_ADD   ? "weft_add"
                         : args->op == WEFT_OP_SUB ? "weft_sub"
                         : args->op == WEFT_OP_MUL ? "weft_mul"
                                                   : "weft_div";
    const weft_view *const operand[2] = {&args->in[0], &args->in[1]};
    return weft_cuda_pointwise_two(kernel, operand, &args->out[0], queue);
}

/* ---- pointwise ------------------------------------------------------------------------------- */

static weft_status_code run_step(const weft_step_kernels *self, const weft_kernel_args *step)
{
    return weft_cuda_ops[step->op].launch(step, self->user);
}

/* No kernel of an elementwise op has a workspace. */
static int64_t step_workspace(const weft_step_kernels *self, const weft_kernel_args *step)
{
    (void)self, (void)step;
    return 0;
}

weft_status_code weft_cuda_pointwise(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    return weft_pointwise_run(&(weft_step_kernels){run_step, step_workspace, queue}, args);
}

int64_t weft_cuda_pointwise_workspace(const weft_kernel_args *args)
{
    return weft_pointwise_workspace(&(weft_step_kernels){run_step, step_workspace, NULL}, args);
}
