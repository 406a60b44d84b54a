/* Host code of the optimizer's step. */
#include "kernel/cuda/op_optimizer.h"

#include "kernel/cuda/op_launch.h"

#include <math.h>

weft_status_code weft_cuda_clip_scale(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *in = args->in;
    const clip_args a = {weft_cuda_ref(&in[0]),       weft_cuda_ref(&in[1]),
                         weft_cuda_ref(&in[2]),       weft_cuda_ref(&in[3]),
                         weft_cuda_ref(&in[4]),       weft_cuda_ref(&args->out[0]),
                         weft_cuda_ref(&args->out[1])};
    return weft_cuda_add(queue, "weft_clip_scale", 1, 32, &a, sizeof a);
}

/* Whether the first `in` inputs and the first `out` outputs allow accesses of eight elements. */
static bool in_vectors(const weft_kernel_args *args, int in, int out)
{
    for (int i = 0; i < in; i++)
        if (!weft_cuda_in_eights(&args->in[i]))
            return false;
    for (int i = 0; i < out; i++)
        if (!weft_cuda_in_eights(&args->out[i]))
            return false;
    return true;
}

static adamw_args adamw_of(const weft_kernel_args *args)
{
    const weft_attr_adamw *attr = args->attr;
    const weft_view *in = args->in, *out = args->out;
    return (adamw_args){.p = weft_cuda_ref(&in[0]),
                        .g = weft_cuda_ref(&in[1]),
                        .m = weft_cuda_ref(&in[2]),
                        .v = weft_cuda_ref(&in[3]),
                        .lr = weft_cuda_ref(&in[4]),
                        .step = weft_cuda_ref(&in[5]),
                        .scale = weft_cuda_ref(&in[6]),
                        .p_out = weft_cuda_ref(&out[0]),
                        .m_out = weft_cuda_ref(&out[1]),
                        .v_out = weft_cuda_ref(&out[2]),
                        .beta1 = attr->beta1,
                        .beta2 = attr->beta2,
                        .log_beta1 = log(attr->beta1),
                        .log_beta2 = log(attr->beta2),
                        .eps = (float)attr->eps,
                        .weight_decay = (float)attr->weight_decay,
                        .count = view_count(&in[0]),
                        .vector = in_vectors(args, 4, 3)};
}

weft_status_code weft_cuda_adamw(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const adamw_args a = adamw_of(args);
    return weft_cuda_add(queue, "weft_adamw", weft_cuda_blocks(a.count, POINTWISE_THREADS * 8),
                         POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_ema(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *in = args->in;
    const ema_args a = {.e = weft_cuda_ref(&in[0]),
                        .p = weft_cuda_ref(&in[1]),
                        .decay = weft_cuda_ref(&in[2]),
                        .scale = weft_cuda_ref(&in[3]),
                        .out = weft_cuda_ref(&args->out[0]),
                        .count = view_count(&in[0]),
                        .vector = in_vectors(args, 2, 1)};
    return weft_cuda_add(queue, "weft_ema", weft_cuda_blocks(a.count, POINTWISE_THREADS * 8),
                         POINTWISE_THREADS, &a, sizeof a);
}
