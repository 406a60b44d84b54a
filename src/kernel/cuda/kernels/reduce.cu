/* Sums over some dims of a tensor. A sum has two steps at most: chunks of the reduced index, then
 * the sums of the chunks. The order of the additions depends on the shape only. */
#include "kernel/cuda/kernels/simt.h"

DEV float term_at(const reduce_args *a, int64_t kept, int64_t r)
{
    const int64_t i = kept + loop_offset(&a->reduced, a->reduced_stride, (uint32_t)r);
    const float x = load_float(a->x, i);
    if (a->term == REDUCE_X)
        return x;
    const float dy = load_float(a->dy, i);
    if (a->term == REDUCE_DY_X)
        return dy * x;
    const float *row = a->statistics + 4 * r;
    return dy * ((x - row[0] - row[1]) * row[2]);
}

/* The last dim is reduced: a warp a sum, so that its loads are to neighbours. */
WEFT_KERNEL_LISTED(weft_reduce_rows, reduce_args, REDUCE_THREADS)
{
    const int64_t o = block.x * REDUCE_WARPS + THREAD(0) / 32,
                  begin = block.y * a.chunk;
    const int64_t end = begin + a.chunk < a.reduced_items ? begin + a.chunk : a.reduced_items;
    if (o >= a.kept_items)
        return;
    const int64_t kept = loop_offset(&a.kept, a.kept_stride, (uint32_t)o);
    float sum = 0;
    for (int64_t r = begin + LANE; r < end; r += 32)
        sum += term_at(&a, kept, r);
    sum = warp_sum(sum);
    if (LANE == 0)
        store_float(a.out, block.y * a.kept_items + o, sum);
}

/* The last dim is kept: one sum per thread, and the warps of a block share the reduced index. */
WEFT_KERNEL_LISTED(weft_reduce_columns, reduce_args, REDUCE_THREADS)
{
    WEFT_SHARED(float, part, REDUCE_THREADS);
    const int64_t o = block.x * 32 + LANE, begin = block.y * a.chunk;
    const int64_t end = begin + a.chunk < a.reduced_items ? begin + a.chunk : a.reduced_items;
    const uint32_t warp = THREAD(0) / 32;
    float sum = 0;
    if (o < a.kept_items) {
        const int64_t kept = loop_offset(&a.kept, a.kept_stride, (uint32_t)o);
        for (int64_t r = begin + warp; r < end; r += REDUCE_WARPS)
            sum += term_at(&a, kept, r);
    }
    part[THREAD(0)] = sum;
    block_barrier();
    for (uint32_t half = REDUCE_WARPS / 2; half > 0; half /= 2) {
        if (warp < half)
            part[THREAD(0)] += part[THREAD(0) + 32 * half];
        block_barrier();
    }
    if (warp == 0 && o < a.kept_items)
        store_float(a.out, block.y * a.kept_items + o, part[LANE]);
}

WEFT_KERNEL_LISTED(weft_sum_squares, squares_args, REDUCE_THREADS)
{
    WEFT_SHARED(double, part, 32);
    const int64_t begin = block.x * a.chunk;
    const int64_t end = begin + a.chunk < a.count ? begin + a.chunk : a.count;
    double sum = 0;
    for (int64_t i = begin + THREAD(0); i < end; i += REDUCE_THREADS) {
        const double x = (double)load_float(a.x, i);
        sum += x * x;
    }
    sum = block_sum_double(sum, part);
    if (THREAD(0) == 0)
        a.part[block.x] = sum;
}

WEFT_KERNEL_LISTED(weft_sum_squares_end, squares_args, REDUCE_THREADS)
{
    WEFT_SHARED(double, part, 32);
    double sum = 0;
    (void)block; /* the launch has one */
    for (int64_t i = THREAD(0); i < a.parts; i += REDUCE_THREADS)
        sum += a.part[i];
    sum = block_sum_double(sum, part);
    if (THREAD(0) == 0)
        a.out[0] = (float)sum;
}
