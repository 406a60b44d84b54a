/* Tiles of the blocks that are chosen, in attention over blocks. `chosen` (B,H,M,N) is positive
 * where queries of block m attend to keys of block n. Neighbouring chosen blocks are a run, which
 * is cut into tiles: a tile may have rows of several blocks. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_CHOSEN_TILES_H
#define WEFT_KERNEL_CUDA_KERNELS_CHOSEN_TILES_H

#include "kernel/cuda/kernels/simt.h"

/* The rows of a block of threads, which all are in one block of queries, or of keys. */
typedef struct block_rows {
    int32_t item, block; /* batch item, and block of queries or keys */
    int32_t row, end;    /* of (B*S) */
} block_rows;

/* BLOCK(0) counts parts of `most` rows of all blocks. */
DEV block_rows own_rows(int64_t tokens, int32_t blocks, int32_t most)
{
    const int32_t size = (int32_t)(tokens / blocks), parts = (size + most - 1) / most,
                  at = (int32_t)BLOCK(0) / parts;
    block_rows r;
    r.item = at / blocks;
    r.block = at % blocks;
    const int32_t first = r.item * (int32_t)tokens + r.block * size, last = first + size;
    r.row = first + (int32_t)BLOCK(0) % parts * most;
    r.end = r.row + most < last ? r.row + most : last;
    return r;
}

/* The other side's tiles: rows [begin, end) of (B*S), of which a tile takes the first. */
typedef struct chosen_tiles {
    const float *flag; /* of block 0; the flags are `step` apart */
    int32_t step, count, next;
    int32_t first, size; /* row of block 0; rows of a block */
    int32_t begin, end;
} chosen_tiles;

/* Keys that the queries of a block chose. */
DEV chosen_tiles tiles_of_keys(const attention_args *a, const block_rows *r)
{
    const int64_t of_head = (r->item * a->heads + BLOCK(1)) * a->query_blocks;
    const chosen_tiles t = {a->chosen + (of_head + r->block) * a->key_blocks,
                            1,
                            a->keys ? a->key_blocks : 0,
                            0,
                            r->item * (int32_t)a->keys,
                            (int32_t)a->keys / a->key_blocks,
                            0,
                            0};
    return t;
}

/* Queries that chose the keys of a block. */
DEV chosen_tiles tiles_of_queries(const attention_args *a, const block_rows *r)
{
    const int64_t of_head = (r->item * a->heads + BLOCK(1)) * a->query_blocks;
    const chosen_tiles t = {a->chosen + of_head * a->key_blocks + r->block,
                            a->key_blocks,
                            a->queries ? a->query_blocks : 0,
                            0,
                            r->item * (int32_t)a->queries,
                            (int32_t)a->queries / a->query_blocks,
                            0,
                            0};
    return t;
}

/* The first block from `from` on that is chosen, or (`is` 0) is not; the warp looks at 32. */
DEV int32_t seek_block(const chosen_tiles *t, int32_t from, int is)
{
    for (int32_t base = from; base < t->count; base += 32) {
        const int32_t n = base + (int32_t)LANE;
        const uint32_t found =
            warp_ballot(n < t->count && (t->flag[(int64_t)n * t->step] > 0) == is);
        if (found)
            return base + (int32_t)lowest_bit(found);
    }
    return t->count;
}

/* Proceeds to the next tile, after one of `rows` rows. Returns 0 after the last. */
DEV int next_tile(chosen_tiles *t, int32_t rows)
{
    t->begin += rows;
    if (t->begin < t->end)
        return 1;
    const int32_t from = seek_block(t, t->next, 1);
    if (from == t->count)
        return 0;
    t->next = seek_block(t, from, 0);
    t->begin = t->first + from * t->size;
    t->end = t->first + t->next * t->size;
    return 1;
}

#endif
