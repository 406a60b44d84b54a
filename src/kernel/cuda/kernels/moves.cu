/* Ops that move elements. */
#include "kernel/cuda/kernels/simt.h"

DEV void move_item(void *to, int64_t i, const void *from, int64_t j, int bytes)
{
    switch (bytes) {
    case 1: ((uint8_t *)to)[i] = ((const uint8_t *)from)[j]; break;
    case 2: ((uint16_t *)to)[i] = ((const uint16_t *)from)[j]; break;
    case 4: ((uint32_t *)to)[i] = ((const uint32_t *)from)[j]; break;
    case 8: ((uint64_t *)to)[i] = ((const uint64_t *)from)[j]; break;
    default: store_quad((uint8_t *)to + 16 * i, load_quad((const uint8_t *)from + 16 * j)); break;
    }
}

/* broadcast, permute, slice, pad, concat: the host merges dims, and makes items of up to 16 bytes
 * from the elements of the last dim where strides and addresses allow. */
WEFT_KERNEL_LISTED(weft_move, move_args, POINTWISE_THREADS)
{
    for (int k = 0; k < POINTWISE_PER_THREAD; k++) {
        const int64_t i = block.x * POINTWISE_THREADS * POINTWISE_PER_THREAD + THREAD(0) +
                          k * POINTWISE_THREADS;
        if (i < a.items)
            move_item(a.out, loop_offset(&a.shape, a.out_stride, (uint32_t)i), a.from,
                      loop_offset(&a.shape, a.from_stride, (uint32_t)i), a.bytes);
    }
}

/* Tiles of 32 x 32 through shared memory, so that reads and writes are to neighbours. The row of a
 * tile has one more element: a column is then in 32 banks. */
WEFT_KERNEL(weft_transpose, transpose_args, TRANSPOSE_TILE *TRANSPOSE_ROWS)
{
    WEFT_SHARED(uint64_t, tile_shared, TRANSPOSE_TILE * (TRANSPOSE_TILE + 1));
    const int64_t row = (int64_t)BLOCK(1) * TRANSPOSE_TILE,
                  column = (int64_t)BLOCK(0) * TRANSPOSE_TILE,
                  start = (int64_t)BLOCK(2) * a.rows * a.columns;
    const int x = (int)(THREAD(0) % TRANSPOSE_TILE), y = (int)(THREAD(0) / TRANSPOSE_TILE);
    for (int r = y; r < TRANSPOSE_TILE; r += TRANSPOSE_ROWS)
        if (row + r < a.rows && column + x < a.columns)
            move_item(tile_shared, r * (TRANSPOSE_TILE + 1) + x, a.from,
                      start + (row + r) * a.columns + column + x, a.bytes);
    block_barrier();
    for (int r = y; r < TRANSPOSE_TILE; r += TRANSPOSE_ROWS)
        if (column + r < a.columns && row + x < a.rows)
            move_item(a.out, start + (column + r) * a.rows + row + x, tile_shared,
                      x * (TRANSPOSE_TILE + 1) + r, a.bytes);
}

WEFT_KERNEL_LISTED(weft_fill, fill_args, POINTWISE_THREADS)
{
    const int64_t i = (block.x * POINTWISE_THREADS + THREAD(0)) * 16;
    if (i + 16 <= a.bytes) {
        quad q;
        q.x[0] = q.x[2] = (uint32_t)a.pattern;
        q.x[1] = q.x[3] = (uint32_t)(a.pattern >> 32);
        store_quad((uint8_t *)a.out + i, q);
        return;
    }
    for (int64_t k = i; k < a.bytes; k++)
        ((uint8_t *)a.out)[k] = (uint8_t)(a.pattern >> (8 * (k % 8)));
}
