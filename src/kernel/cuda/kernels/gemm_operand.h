/* Addresses of the operands of products: plain, by lists of rows, by positions of a convolution. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_GEMM_OPERAND_H
#define WEFT_KERNEL_CUDA_KERNELS_GEMM_OPERAND_H

#include "kernel/cuda/kernels/simt.h"

/* The coordinate of the source along one dim; -1: padding. */
DEV int32_t conv_source(int32_t p, int32_t tap, int32_t stride, int32_t before, int32_t len,
                        int32_t back)
{
    if (!back) {
        const int32_t s = p * stride + tap - before;
        return s >= 0 && s < len ? s : -1;
    }
    const int32_t q = p + before - tap;
    if (q < 0)
        return -1;
    const int32_t s = stride == 1 ? q : q / stride;
    return s * stride == q && s < len ? s : -1;
}

/* Offset of the channel of the source of (position, tap); -1: padding. `rest`: tap, channel. */
DEV int64_t conv_offset(const conv_map *c, uint32_t position, uint32_t rest)
{
    const uint32_t tap = divide(rest, c->channels), channel = rest - tap * c->channels.by;
    const uint32_t tap_ty = divide(tap, c->taps[1]), tap_x = tap - tap_ty * c->taps[1].by;
    const uint32_t tap_t = divide(tap_ty, c->taps[0]), tap_y = tap_ty - tap_t * c->taps[0].by;
    const uint32_t bty = divide(position, c->grid[2]), x = position - bty * c->grid[2].by;
    const uint32_t bt = divide(bty, c->grid[1]), y = bty - bt * c->grid[1].by;
    const uint32_t b = divide(bt, c->grid[0]), t = bt - b * c->grid[0].by;
    const int32_t st =
        conv_source((int32_t)t, (int32_t)tap_t, c->stride[0], c->before[0], c->source[0], c->back);
    const int32_t sy =
        conv_source((int32_t)y, (int32_t)tap_y, c->stride[1], c->before[1], c->source[1], c->back);
    const int32_t sx =
        conv_source((int32_t)x, (int32_t)tap_x, c->stride[2], c->before[2], c->source[2], c->back);
    if (st < 0 || sy < 0 || sx < 0)
        return -1;
    return ((((int64_t)b * c->source[0] + st) * c->source[1] + sy) * c->source[2] + sx) *
               c->channels.by +
           channel;
}

/* Offset of element (row, k); -1: a zero. */
DEV int64_t operand_offset(const gemm_args *a, const gemm_operand *o, int64_t row, int64_t k)
{
    switch (o->kind) {
    case OPERAND_POSITION_ROWS: return conv_offset(&a->conv, (uint32_t)row, (uint32_t)k);
    case OPERAND_POSITION_DEPTH: return conv_offset(&a->conv, (uint32_t)k, (uint32_t)row);
    case OPERAND_LISTED_ROWS:
        row = a->list[row];
        if (row < 0)
            return -1;
        row /= o->shared;
        break;
    case OPERAND_LISTED_DEPTH:
        k = a->list[k];
        if (k < 0)
            return -1;
        k /= o->shared;
        break;
    default: break;
    }
    return row * o->row_stride + k * o->depth_stride;
}

/* The block's part of the product. */
typedef struct gemm_part {
    int64_t row, column; /* first of the tile */
    int64_t begin, end;  /* of the depth */
    int64_t a_base, b_base, c_base;
    int32_t none; /* nothing to compute */
} gemm_part;

DEV gemm_part own_part(const gemm_args *a, int tile)
{
    const int64_t z = BLOCK(2);
    gemm_part p;
    p.row = (int64_t)BLOCK(0) * tile;
    p.column = (int64_t)BLOCK(1) * tile;
    p.begin = 0;
    p.end = a->depth;
    p.a_base = z * a->a.batch_stride;
    p.b_base = z * a->b.batch_stride;
    p.c_base = z * a->batch_stride;
    p.none = 0;
    if (a->splits > 1) {
        p.begin = z * a->split_depth;
        p.end = p.begin + a->split_depth < a->depth ? p.begin + a->split_depth : a->depth;
        p.a_base = p.b_base = 0;
    } else if (a->tile_expert) {
        const int32_t e = a->tile_expert[BLOCK(0)];
        p.none = e < 0;
        p.a_base = p.c_base = 0;
        p.b_base = (int64_t)e * a->b.batch_stride;
    } else if (a->starts) {
        p.begin = a->starts[z];
        p.end = a->starts[z + 1];
        p.a_base = p.b_base = 0;
    }
    return p;
}

DEV float finish_result(const gemm_args *a, int64_t n, float x)
{
    if (a->bias.data)
        x += load_float(a->bias, n);
    if (!a->act)
        return x;
    if (a->round == TYPE_BF16)
        x = bf16_value(bf16_of(x));
    return a->act == 1 ? f_gelu(x) : f_silu(x);
}

/* Writes c[m][n] to c[m][n + 7] from shared memory, with bias and activation. */
DEV void store_results(const gemm_args *a, const gemm_part *p, int64_t m, int64_t n,
                       const float *shared)
{
    if (m >= a->rows || n >= a->columns)
        return;
    const int64_t row = a->list_c ? a->list[m] : m;
    if (row < 0)
        return;
    const int64_t at = p->c_base + row * a->columns + n;
    if (!a->vector_c) {
        for (int i = 0; i < 8 && n + i < a->columns; i++)
            store_float(a->c, at + i, finish_result(a, n + i, shared[i]));
        return;
    }
    float v[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = finish_result(a, n + i, shared[i]);
    store_eight(a->c, at, v);
}

enum { MMA_PITCH = MMA_TILE + 8 };

/* Writes the 128 x 128 results of a block on tensor cores, of which a warp has 64 x 32 as 4 x 4
 * fragments. `staged`: shared memory of 32 rows, whose earlier content is read. */
DEV void store_fragments(const gemm_args *a, const gemm_part *p, float *staged,
                         const float acc[4][4][4])
{
    const int warp = (int)THREAD(0) / 32, m = warp / 4 * 64, n = warp % 4 * 32;
    const int g = (int)LANE / 4, t = (int)LANE % 4;
    UNROLL
    for (int i = 0; i < 4; i++) { /* 32 rows of the block at a time, as in weft_gemm_f32 */
        block_barrier();
        UNROLL
        for (int j = 0; j < 4; j++)
            UNROLL
        for (int e = 0; e < 4; e++)
            staged[(m / 4 + g + e / 2 * 8) * MMA_PITCH + n + j * 8 + t * 2 + e % 2] = acc[i][j][e];
        block_barrier();
        for (int piece = (int)THREAD(0); piece < 512; piece += MMA_THREADS) {
            const int r = piece / 16, c = piece % 16 * 8;
            store_results(a, p, p->row + r / 16 * 64 + i * 16 + r % 16, p->column + c,
                          staged + r * MMA_PITCH + c);
        }
    }
}

#endif
