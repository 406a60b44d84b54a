/* The loop of a product on tensor cores, for a file that defines before:
 *
 *   TILE_DEPTH, FRAGMENT_DEPTH   k of a tile in shared memory, and of a fragment
 *   copy_tile, load_a, load_b    tiles of the operands' type
 *   multiply                     a fragment of 16 x 8 sums
 *
 * A block computes 128 x 128, a warp 64 x 32 as 4 x 4 fragments. Three stages of tiles: two are
 * under way while one is multiplied. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_GEMM_LOOP_H
#define WEFT_KERNEL_CUDA_KERNELS_GEMM_LOOP_H

#include "kernel/cuda/kernels/gemm_operand.h"

DEV void copy_tiles(quad *to, const gemm_args *a, const gemm_part *p, int64_t k)
{
    copy_tile(to, a, &a->a, p->a_base, p->row, k, a->rows, p->end);
    copy_tile(to + 512, a, &a->b, p->b_base, p->column, k, a->columns, p->end);
    copy_commit();
}

/* Adds the products of a pair of tiles to the sums of the warp at row m and column n. */
DEV void multiply_tiles(float acc[4][4][4], const gemm_args *a, const quad *tiles, int m, int n)
{
    const int a_depth = a->a.depth_stride == 1, b_depth = a->b.depth_stride == 1;
    UNROLL
    for (int d = 0; d < TILE_DEPTH; d += FRAGMENT_DEPTH) {
        uint32_t fa[4][4], fb[2][4];
        UNROLL
        for (int i = 0; i < 4; i++)
            load_a(fa[i], tiles, a_depth, m + i * 16, d);
        UNROLL
        for (int j = 0; j < 2; j++)
            load_b(fb[j], tiles + 512, b_depth, n + j * 16, d);
        UNROLL
        for (int i = 0; i < 4; i++)
            UNROLL
        for (int j = 0; j < 4; j++)
            multiply(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
}

/* `tiles`: MMA_STAGES pairs of 512 quads in shared memory. */
DEV void gemm_blocks(const gemm_args *a, quad *tiles)
{
    const gemm_part p = own_part(a, MMA_TILE);
    if (p.none)
        return;
    const int warp = (int)THREAD(0) / 32, m = warp / 4 * 64, n = warp % 4 * 32;
    float acc[4][4][4];
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int j = 0; j < 4; j++)
        UNROLL
    for (int e = 0; e < 4; e++)
        acc[i][j][e] = 0;
    for (int s = 0; s < MMA_STAGES - 1; s++)
        copy_tiles(tiles + s * 1024, a, &p, p.begin + s * TILE_DEPTH);
    int stage = 0;
    for (int64_t k = p.begin; k < p.end; k += TILE_DEPTH) {
        COPY_WAIT(MMA_STAGES - 2);
        block_barrier();
        const int next = stage == 0 ? MMA_STAGES - 1 : stage - 1; /* was multiplied before */
        copy_tiles(tiles + next * 1024, a, &p, k + (MMA_STAGES - 1) * TILE_DEPTH);
        multiply_tiles(acc, a, tiles + stage * 1024, m, n);
        stage = stage == MMA_STAGES - 1 ? 0 : stage + 1;
    }
    COPY_WAIT(0);
    store_fragments(a, &p, (float *)tiles, acc);
}

#endif
