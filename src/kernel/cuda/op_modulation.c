/* Host code of modulation, gates and rope. */
#include "kernel/cuda/op_modulation.h"

#include "kernel/cuda/op_launch.h"
#include "kernel/cuda/op_pointwise.h"
#include "kernel/cuda/op_reduce.h"

#include <math.h>

weft_status_code weft_cuda_modulate(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *out = &args->out[0];
    weft_cuda_loop loop = {.rank = out->shape.rank};
    memcpy(loop.dim, out->shape.dim, sizeof loop.dim);
    for (int o = 0; o < 3; o++)
        shape_strides(&args->in[o].shape, loop.stride[o]);
    weft_cuda_loop_join(&loop, 3);
    ternary_args a = {.x = weft_cuda_ref(&args->in[0]),
                      .y = weft_cuda_ref(&args->in[1]),
                      .z = weft_cuda_ref(&args->in[2]),
                      .out = weft_cuda_ref(out)};
    const int last = loop.rank - 1;
    a.x_same = last >= 0 && loop.stride[0][last] == 0;
    a.y_same = last >= 0 && loop.stride[1][last] == 0;
    a.z_same = last >= 0 && loop.stride[2][last] == 0;
    a.vector = weft_cuda_loop_widen(&loop, args, 3);
    a.items = weft_cuda_loop_items(&loop);
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    weft_cuda_loop_strides(&loop, 0, a.x_stride);
    weft_cuda_loop_strides(&loop, 1, a.y_stride);
    weft_cuda_loop_strides(&loop, 2, a.z_stride);
    return weft_cuda_add(queue, args->op == WEFT_OP_MODULATE ? "weft_modulate" : "weft_gated_add",
                         weft_cuda_blocks(a.items, POINTWISE_THREADS), POINTWISE_THREADS, &a,
                         sizeof a);
}

static weft_cuda_sum sum_to(const weft_view *small, const weft_view *x)
{
    return (weft_cuda_sum){&x->shape, weft_cuda_broadcast_dims(&small->shape, &x->shape)};
}

int64_t weft_cuda_modulate_grad_workspace(const weft_kernel_args *args)
{
    const weft_cuda_sum scale = sum_to(&args->out[1], &args->in[0]),
                        shift = sum_to(&args->out[2], &args->in[0]);
    /* each sum has its own parts, so that the launches of both are joined */
    return weft_aligned(weft_cuda_reduce_bytes(&scale)) + weft_cuda_reduce_bytes(&shift);
}

int64_t weft_cuda_gated_add_grad_workspace(const weft_kernel_args *args)
{
    const weft_cuda_sum gate = sum_to(&args->out[1], &args->in[0]);
    return weft_cuda_reduce_bytes(&gate);
}

weft_status_code weft_cuda_modulate_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *x = &args->in[0], *dy = &args->in[2];
    const weft_view *operand[2] = {dy, &args->in[1]};
    const weft_cuda_sum scale = sum_to(&args->out[1], x), shift = sum_to(&args->out[2], x);
    reduce_args r = {.x = weft_cuda_ref(x),
                     .dy = weft_cuda_ref(dy),
                     .out = weft_cuda_ref(&args->out[1]),
                     .term = REDUCE_DY_X};
    void *part =
        weft_cuda_split(queue, args->workspace, weft_aligned(weft_cuda_reduce_bytes(&scale)));
    WEFT_TRY(weft_cuda_pointwise_two("weft_scale_more", operand, &args->out[0], queue));
    WEFT_TRY(weft_cuda_reduce(&scale, &r, args->workspace, queue));
    r = (reduce_args){.x = r.dy, .out = weft_cuda_ref(&args->out[2]), .term = REDUCE_X};
    return weft_cuda_reduce(&shift, &r, part, queue);
}

weft_status_code weft_cuda_gated_add_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *y = &args->in[0], *dout = &args->in[2];
    const weft_view *operand[2] = {dout, &args->in[1]};
    const weft_cuda_sum gate = sum_to(&args->out[1], y);
    reduce_args r = {.x = weft_cuda_ref(y),
                     .dy = weft_cuda_ref(dout),
                     .out = weft_cuda_ref(&args->out[1]),
                     .term = REDUCE_DY_X};
    WEFT_TRY(weft_cuda_pointwise_two("weft_mul", operand, &args->out[0], queue));
    return weft_cuda_reduce(&gate, &r, args->workspace, queue);
}

weft_status_code weft_cuda_rope(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_rope *attr = args->attr;
    const weft_view *x = &args->in[0], *cosine = &args->in[1];
    const int64_t S = x->shape.dim[1], H = x->shape.dim[2], half = x->shape.dim[3] / 2;
    const bool plain = cosine->shape.rank == 2;
    const int64_t heads = plain ? 1 : cosine->shape.dim[2],
                  batch = plain ? 1 : cosine->shape.dim[0];
    rope_args a = {.x = weft_cuda_ref(x),
                   .cosine = weft_cuda_ref(cosine),
                   .sine = weft_cuda_ref(&args->in[2]),
                   .out = weft_cuda_ref(&args->out[0]),
                   .half = half,
                   .pairs = 1,
                   .rotate_half = attr->rotate_half,
                   .sign = attr->inverse ? -1 : 1};
    if (weft_cuda_in_eights(x) && weft_cuda_in_eights(&args->out[0]) &&
        half % (attr->rotate_half ? 8 : 4) == 0)
        a.pairs = attr->rotate_half ? 8 : 4;
    const int64_t step = attr->rotate_half ? a.pairs : 2 * a.pairs;
    const weft_cuda_loop loop = {.rank = 4,
                                 .dim = {x->shape.dim[0], S, H, half / a.pairs},
                                 .stride = {{S * H * half * 2, H * half * 2, half * 2, step},
                                            {batch > 1 ? S * heads * half : 0, heads * half,
                                             heads > 1 ? half : 0, a.pairs}}};
    a.items = weft_cuda_loop_items(&loop);
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    weft_cuda_loop_strides(&loop, 0, a.x_stride);
    weft_cuda_loop_strides(&loop, 1, a.angle_stride);
    return weft_cuda_add(queue, "weft_rope", weft_cuda_blocks(a.items, POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_rope_table(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_rope_table *t = args->attr;
    rope_table_args a = {.cosine = weft_cuda_ref(&args->out[0]),
                         .sine = weft_cuda_ref(&args->out[1]),
                         .start = t->start,
                         .len = t->len,
                         .before = t->before,
                         .tokens = t->grid[0] * t->grid[1] * t->grid[2]};
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        a.grid[d] = t->grid[d];
        a.pairs[d] = t->pairs[d];
        a.origin[d] = t->origin[d];
        a.step[d] = t->step[d];
        if (at + t->pairs[d] > ROPE_TABLE_PAIRS)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(at + t->pairs[d])),
                              "rope_table: a head has more than %d pairs. Use narrower heads",
                              ROPE_TABLE_PAIRS);
        for (int64_t i = 0; i < t->pairs[d]; i++)
            a.frequency[at++] = 1.0 / pow(t->theta[d], (double)i / (double)t->pairs[d]);
    }
    return weft_cuda_add(queue, "weft_rope_table", weft_cuda_blocks(a.len * at, POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}
