/* Products of f32 on tensor cores, whose operands are rounded to TF32. The same blocks as
 * weft_gemm_bf16, with half of the depth in a tile of equal size. */
#include "kernel/cuda/kernels/gemm_operand.h"

/* A tile in shared memory is rows of 16 k (64 bytes), or k of 128 rows (512 bytes). Pieces of 16
 * bytes are exchanged within it: the eight rows of a matrix, or the 32 elements of a fragment, are
 * in different banks. */
DEV int piece_of(int along_depth, int row, int k)
{
    if (along_depth)
        return row * 4 + ((k / 4) ^ (row / 2 % 4));
    return k * 32 + ((row / 4) ^ (k % 4 * 2));
}

/* Starts the copies of one tile: 512 pieces, two a thread. */
DEV void copy_tile(quad *tile, const gemm_args *a, const gemm_operand *o, int64_t base, int64_t row,
                   int64_t k, int64_t rows, int64_t end)
{
    const int along_depth = o->depth_stride == 1;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int piece = (int)THREAD(0) + i * MMA_THREADS;
        const int r = along_depth ? piece / 4 : piece % 32 * 4,
                  d = along_depth ? piece % 4 * 4 : piece / 32;
        const int64_t at =
            row + r < rows && k + d < end ? operand_offset(a, o, row + r, k + d) : -1;
        copy_async(tile + piece_of(along_depth, r, d),
                   (const float *)o->t.data + (at >= 0 ? base + at : 0), at >= 0 ? 16 : 0);
    }
}

/* An element of a tile whose k are apart. ldmatrix transposes elements of 2 bytes only. */
DEV uint32_t element_of(const quad *tile, int row, int k)
{
    return ((const uint32_t *)(tile + piece_of(0, row, k)))[row % 4];
}

DEV void round_fragment(uint32_t f[4])
{
    UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = tf32_of(f[i]);
}

/* The fragment of 16 rows of a and 8 k. */
DEV void load_a(uint32_t to[4], const quad *tile, int along_depth, int row, int k)
{
    const int i = (int)LANE / 8, r = (int)LANE % 8, g = (int)LANE / 4, t = (int)LANE % 4;
    if (along_depth) {
        load_matrix4(to, tile + piece_of(1, row + i % 2 * 8 + r, k + i / 2 * 4));
    } else {
        UNROLL
        for (int e = 0; e < 4; e++)
            to[e] = element_of(tile, row + g + e % 2 * 8, k + t + e / 2 * 4);
    }
    round_fragment(to);
}

/* The fragments of 16 columns (rows of b) and 8 k: [0], [1] of the first 8, [2], [3]. */
DEV void load_b(uint32_t to[4], const quad *tile, int along_depth, int row, int k)
{
    const int i = (int)LANE / 8, r = (int)LANE % 8, g = (int)LANE / 4, t = (int)LANE % 4;
    if (along_depth) {
        load_matrix4(to, tile + piece_of(1, row + i / 2 * 8 + r, k + i % 2 * 4));
    } else {
        UNROLL
        for (int e = 0; e < 4; e++)
            to[e] = element_of(tile, row + g + e / 2 * 8, k + t + e % 2 * 4);
    }
    round_fragment(to);
}

enum { TILE_DEPTH = MMA_DEPTH / 2, FRAGMENT_DEPTH = 8 };

DEV void multiply(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    mma_tf32(acc, a, b0, b1);
}

#include "kernel/cuda/kernels/gemm_loop.h"

WEFT_KERNEL(weft_gemm_tf32, gemm_args, MMA_THREADS)
{
    WEFT_SHARED(quad, tiles, MMA_STAGES * 2 * 512);
    gemm_blocks(&a, tiles);
}
