#include "kernel/cuda/chain_class.h"

#include "kernel/view.h"

/* Sizes in items. Blocks have 256 items: one dim of ALONE has two, and outer dims multiply LAST. */
enum { OUTERMOST = 3, OUTER = 3, OUTER_SHIFT = 2, LAST = 133, LAST_SHIFT = 128, ALONE = 277 };
_Static_assert(ALONE > (int)POINTWISE_THREADS && OUTERMOST * LAST_SHIFT > (int)POINTWISE_THREADS,
               "the small shapes have several blocks");

void weft_chain_loop(const weft_kernel_args *args, weft_cuda_loop *loop)
{
    *loop = (weft_cuda_loop){.rank = args->out[0].shape.rank};
    memcpy(loop->dim, args->out[0].shape.dim, sizeof loop->dim);
    for (int i = 0; i < args->in_count; i++)
        shape_strides(&args->in[i].shape, loop->stride[i]);
    weft_cuda_loop_join(loop, args->in_count);
}

static bool is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

weft_chain_class weft_chain_class_of(const weft_kernel_args *args)
{
    weft_cuda_loop loop;
    weft_chain_class of = {0};
    weft_chain_loop(args, &loop);
    const int last = loop.rank - 1;
    of.rank = (uint8_t)loop.rank;
    of.vector = last >= 0 && loop.dim[last] % 8 == 0;
    for (int d = 0; d < loop.rank; d++) {
        const int64_t items = loop.dim[d] / (d == last && of.vector ? 8 : 1);
        if (d > 0 && is_power_of_two(items))
            of.shifts |= (uint8_t)(1u << d);
        for (int i = 0; i < args->in_count; i++)
            if (loop.stride[i][d] == 0)
                of.broadcast[i] |= (uint8_t)(1u << d);
    }
    return of;
}

static int64_t size_of(const weft_chain_class *of, int d)
{
    const bool shift = of->shifts >> d & 1;
    if (d < of->rank - 1)
        return d == 0 ? OUTERMOST : shift ? OUTER_SHIFT : OUTER;
    return (of->rank == 1 ? ALONE : shift ? LAST_SHIFT : LAST) * (of->vector ? 8 : 1);
}

/* The dims are the last ones of the shape; those before are 1. */
static void set_shape(const weft_chain_class *of, uint8_t broadcast, weft_shape *shape)
{
    const int before = shape->rank - of->rank;
    for (int d = 0; d < shape->rank; d++)
        shape->dim[d] = d < before || (broadcast >> (d - before) & 1) ? 1 : size_of(of, d - before);
}

void weft_chain_class_shapes(const weft_chain_class *of, weft_view *in, int in_count,
                             weft_view *out, int out_count)
{
    for (int i = 0; i < in_count; i++)
        set_shape(of, of->broadcast[i], &in[i].shape);
    for (int o = 0; o < out_count; o++)
        set_shape(of, 0, &out[o].shape);
}
