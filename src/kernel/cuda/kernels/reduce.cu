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

/* The terms of row r in eight columns. The types and the term are also in the arguments; a caller may
 * have constants. */
DEV void load_terms(float v[8], const reduce_args *a, int64_t kept, int64_t r, int32_t x_type,
                    int32_t dy_type, int32_t term)
{
    const tensor_ref x = {a->x.data, x_type}, dy = {a->dy.data, dy_type};
    const int64_t i = kept + r * a->reduced_stride[LOOP_RANK - 1];
    float d[8], shift = 0, mean = 0, scale = 1;
    load_eight(v, x, i);
    if (term == REDUCE_X)
        return;
    load_eight(d, dy, i);
    if (term == REDUCE_DY_NORMED) {
        const float *row = a->statistics + 4 * r;
        shift = row[0];
        mean = row[1];
        scale = row[2];
    }
    UNROLL
    for (int k = 0; k < 8; k++)
        v[k] = d[k] * (term == REDUCE_DY_X ? v[k] : (v[k] - shift - mean) * scale);
}

DEV void add_eight(float sum[8], const float v[8])
{
    UNROLL
    for (int k = 0; k < 8; k++)
        sum[k] += v[k];
}

/* Adds the rows of the thread's warp in a chunk. The loads of four rows are in flight. */
DEV void add_rows(float sum[8], const reduce_args *a, int64_t kept, int64_t chunk, int32_t x_type,
                  int32_t dy_type, int32_t term)
{
    const int64_t begin = chunk * a->chunk;
    const int64_t end = begin + a->chunk < a->reduced_items ? begin + a->chunk : a->reduced_items;
    int64_t r = begin + THREAD(0) / 32;
    float v[4][8];
    for (; r + 3 * REDUCE_WARPS < end; r += 4 * REDUCE_WARPS) {
        UNROLL
        for (int u = 0; u < 4; u++)
            load_terms(v[u], a, kept, r + u * REDUCE_WARPS, x_type, dy_type, term);
        UNROLL
        for (int u = 0; u < 4; u++)
            add_eight(sum, v[u]);
    }
    for (; r < end; r += REDUCE_WARPS) {
        load_terms(v[0], a, kept, r, x_type, dy_type, term);
        add_eight(sum, v[0]);
    }
}

/* The sums of weft_reduce_columns, in the same order of additions, with eight columns per thread, for
 * one reduced dim. */
WEFT_KERNEL_LISTED_BLOCKS(weft_reduce_eights, reduce_args, REDUCE_THREADS, 2)
{
    WEFT_SHARED(float, part, 8 * REDUCE_THREADS);
    const int64_t o = block.x * 256 + 8 * LANE;
    const uint32_t warp = THREAD(0) / 32;
    const int bf16 = a.x.type == TYPE_BF16 && (a.term == REDUCE_X || a.dy.type == TYPE_BF16);
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (o < a.kept_items) {
        const int64_t kept = loop_offset(&a.kept, a.kept_stride, (uint32_t)o);
        if (bf16 && a.term == REDUCE_X)
            add_rows(sum, &a, kept, block.y, TYPE_BF16, TYPE_BF16, REDUCE_X);
        else if (bf16 && a.term == REDUCE_DY_X)
            add_rows(sum, &a, kept, block.y, TYPE_BF16, TYPE_BF16, REDUCE_DY_X);
        else if (bf16)
            add_rows(sum, &a, kept, block.y, TYPE_BF16, TYPE_BF16, REDUCE_DY_NORMED);
        else
            add_rows(sum, &a, kept, block.y, a.x.type, a.dy.type, a.term);
    }
    UNROLL
    for (uint32_t k = 0; k < 8; k++)
        part[32 * (8 * warp + k) + LANE] = sum[k];
    block_barrier();
    if (o >= a.kept_items)
        return;
    UNROLL
    for (uint32_t w = 0; w < REDUCE_WARPS; w++) /* each warp adds one of the eight columns */
        sum[w] = part[32 * (8 * w + warp) + LANE];
    const float even = (sum[0] + sum[4]) + (sum[2] + sum[6]),
                odd = (sum[1] + sum[5]) + (sum[3] + sum[7]);
    store_float(a.out, block.y * a.kept_items + o + warp, even + odd);
}

/* A thread adds eight neighbours at a time. */
WEFT_KERNEL_LISTED(weft_sum_squares, squares_args, REDUCE_THREADS)
{
    WEFT_SHARED(double, part, 32);
    const int64_t begin = block.x * a.chunk;
    const int64_t end = begin + a.chunk < a.count ? begin + a.chunk : a.count;
    double sum = 0;
    for (int64_t i = begin + 8 * (int64_t)THREAD(0); i < end; i += 8 * REDUCE_THREADS) {
        float v[8];
        if (a.vector && i + 8 <= end)
            load_eight(v, a.x, i);
        else
            UNROLL
            for (int k = 0; k < 8; k++)
                v[k] = i + k < end ? load_float(a.x, i + k) : 0.0f;
        UNROLL
        for (int k = 0; k < 8; k++)
            sum += (double)v[k] * (double)v[k];
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
