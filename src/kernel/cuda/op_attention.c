/* Host code of attention. */
#include "kernel/cuda/op_attention.h"

#include "kernel/cuda/op_launch.h"

static weft_status_code add_merge(merge_args *a, const weft_kernel_args *args, const char *kernel,
                                  weft_cuda_queue *queue)
{
    const weft_shape *s = &args->in[0].shape;
    a->out = weft_cuda_ref(&args->out[0]);
    a->lse = weft_cuda_ref(&args->out[1]);
    a->batch = s->dim[0];
    a->tokens = s->dim[1];
    a->heads = s->dim[2];
    a->width = s->dim[3];
    return weft_cuda_add(queue, kernel,
                         weft_cuda_blocks(shape_span(s, 0, 3), POINTWISE_THREADS / 32),
                         POINTWISE_THREADS, a, sizeof *a);
}

weft_status_code weft_cuda_attention_merge(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    merge_args a = {.a = weft_cuda_ref(&args->in[0]),
                    .lse_a = weft_cuda_ref(&args->in[1]),
                    .b = weft_cuda_ref(&args->in[2]),
                    .lse_b = weft_cuda_ref(&args->in[3])};
    return add_merge(&a, args, "weft_attention_merge", queue);
}

weft_status_code weft_cuda_attention_merge_grad(const weft_kernel_args *args,
                                                weft_cuda_queue *queue)
{
    merge_args a = {.a = weft_cuda_ref(&args->in[0]),
                    .lse_a = weft_cuda_ref(&args->in[1]),
                    .b = weft_cuda_ref(&args->in[2]),
                    .lse_b = weft_cuda_ref(&args->in[3]),
                    .dout = weft_cuda_ref(&args->in[4]),
                    .dlse = weft_cuda_input(args, 5)};
    return add_merge(&a, args, "weft_attention_merge_grad", queue);
}
