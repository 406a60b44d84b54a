/* Attention and its gradients on tensor cores, for heads of up to 128 columns, in bf16. With
 * FLASH_TF32 values are f32, and operands of products are rounded to TF32. Sums,
 * softmax and log-sum-exp are f32. A tile of one side stays while tiles of the other side arrive:
 * the next one is copied while this one is multiplied. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_FLASH_H
#define WEFT_KERNEL_CUDA_KERNELS_FLASH_H

#include "kernel/cuda/kernels/flash_tiles.h"

/* Keys [g.k0, result) of a segment are seen by some of the queries up to `end`. */
DEV int32_t last_key(const attention_args *a, segment g, int32_t end)
{
    const int64_t seen = (int64_t)(end < g.q1 ? end : g.q1) + seen_ahead(a, g);
    return seen < g.k1 ? (int32_t)seen : g.k1;
}

/* Adds a segment. `q`: tile of queries; after it two stages of keys and values. */
DEV void forward_segment(forward_sums *f, char *q, const attention_args *a, segment g, int32_t row,
                         int32_t end)
{
    const int tile = TILE * ROW;
    char *stages = q + FLASH_ROWS * ROW;
    const int32_t last = last_key(a, g, end);
    int stage = 0;
    block_barrier(); /* the segment before is read */
    if (g.k0 < last) {
        copy_rows(stages, a->k, a, g.k0, g.k1, TILE);
        copy_rows(stages + tile, a->v, a, g.k0, g.k1, TILE);
    }
    copy_commit();
    for (int32_t key = g.k0; key < last; key += TILE) {
        COPY_WAIT(0);
        block_barrier();
        char *k = stages + stage * 2 * tile, *next = stages + (1 - stage) * 2 * tile;
        if (key + TILE < last) {
            copy_rows(next, a->k, a, key + TILE, g.k1, TILE);
            copy_rows(next + tile, a->v, a, key + TILE, g.k1, TILE);
        }
        copy_commit();
        forward_tile(f, q, k, a, g, row, end, key, 2);
        stage = 1 - stage;
    }
    COPY_WAIT(0);
}

/* A block has 128 queries of a head, a warp 32. */
DEV void forward(const attention_args *a, char *shared)
{
    const int32_t row = (int32_t)BLOCK(0) * FLASH_ROWS, all = (int32_t)(a->batch * a->queries),
                  end = row + FLASH_ROWS < all ? row + FLASH_ROWS : all;
    forward_sums f;
    forward_begin(&f, 2);
    copy_rows(shared, a->q, a, row, end, FLASH_ROWS);
    for (int32_t n = 0; n < (int32_t)a->segment_count; n++) {
        const segment g = segment_at(a, n);
        if (g.q1 > row && g.q0 < end)
            forward_segment(&f, shared, a, g, row, end);
    }
    COPY_WAIT(0);
    block_barrier();
    forward_end(&f, shared, a, row, end, 2);
}

FLASH_KERNEL(weft_flash)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    forward(&a, shared);
}

DEV void dq_segment(fragments *dq, const query_rows *r, char *stages, const attention_args *a,
                    segment g, int32_t row, int32_t end)
{
    const int tile = TILE * ROW;
    const int32_t last = last_key(a, g, end);
    int stage = 0;
    block_barrier();
    if (g.k0 < last) {
        copy_rows(stages, a->k, a, g.k0, g.k1, TILE);
        copy_rows(stages + tile, a->v, a, g.k0, g.k1, TILE);
    }
    copy_commit();
    for (int32_t key = g.k0; key < last; key += TILE) {
        COPY_WAIT(0);
        block_barrier();
        char *k = stages + stage * 2 * tile, *next = stages + (1 - stage) * 2 * tile;
        if (key + TILE < last) {
            copy_rows(next, a->k, a, key + TILE, g.k1, TILE);
            copy_rows(next + tile, a->v, a, key + TILE, g.k1, TILE);
        }
        copy_commit();
        dq_tile(dq, r, k, a, g, row, end, key);
        stage = 1 - stage;
    }
    COPY_WAIT(0);
}

/* dq = dS k: a block has 64 queries of a head, a warp 16. */
DEV void gradient_of_queries(const attention_args *a, char *shared)
{
    const int32_t row = (int32_t)BLOCK(0) * FLASH_GRAD_ROWS, all = (int32_t)(a->batch * a->queries),
                  end = row + FLASH_GRAD_ROWS < all ? row + FLASH_GRAD_ROWS : all;
    fragments dq[1];
    query_rows r;
    clear(dq, 1, WIDE / 8);
    load_query_rows(&r, shared, a, row, end);
    for (int32_t n = 0; n < (int32_t)a->segment_count; n++) {
        const segment g = segment_at(a, n);
        if (g.q1 > row && g.q0 < end)
            dq_segment(dq, &r, shared + DQ_STAGES, a, g, row, end);
    }
    dq_end(dq, shared, a, row, end);
}

FLASH_KERNEL(weft_flash_dq)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    gradient_of_queries(&a, shared);
}

/* The first query of a segment that sees a key from `row` on. */
DEV int32_t first_query(const attention_args *a, segment g, int32_t row)
{
    const int32_t j = row > g.k0 ? row : g.k0, first = j - seen_ahead(a, g);
    return first > g.q0 ? first : g.q0;
}

/* `shared`: the tiles of keys and values, then two stages of queries. */
DEV void dkv_segment(fragments *dk, fragments *dv, char *shared, const attention_args *a, segment g,
                     int32_t row, int32_t end)
{
    char *stages = shared + 2 * FLASH_GRAD_ROWS * ROW;
    const int32_t begin = first_query(a, g, row);
    int stage = 0;
    block_barrier();
    if (begin < g.q1)
        copy_queries(stages, a, begin, g.q1);
    copy_commit();
    for (int32_t query = begin; query < g.q1; query += TILE) {
        COPY_WAIT(0);
        block_barrier();
        char *q = stages + stage * DKV_STAGE;
        if (query + TILE < g.q1)
            copy_queries(stages + (1 - stage) * DKV_STAGE, a, query + TILE, g.q1);
        copy_commit();
        const int32_t first = row + (int32_t)THREAD(0) / 32 * 16,
                      j_end = first + 16 < end ? first + 16 : end;
        const int whole = all_seen(g, seen_ahead(a, g), query, query + TILE, first, j_end);
        dkv_tile(dk, dv, shared, q, a, g, row, query, whole);
        stage = 1 - stage;
    }
    COPY_WAIT(0);
}

/* dk = dS^T q and dv = P^T dout: a block has 64 keys of a head, a warp 16. */
DEV void gradient_of_keys(const attention_args *a, char *shared)
{
    const int32_t row = (int32_t)BLOCK(0) * FLASH_GRAD_ROWS, all = (int32_t)(a->batch * a->keys),
                  end = row + FLASH_GRAD_ROWS < all ? row + FLASH_GRAD_ROWS : all;
    fragments dk[1], dv[1];
    dkv_begin(dk, dv, shared, a, row, end);
    for (int32_t n = 0; n < (int32_t)a->segment_count; n++) {
        const segment g = segment_at(a, n);
        if (g.k1 > row && g.k0 < end)
            dkv_segment(dk, dv, shared, a, g, row, end);
    }
    dkv_end(dk, dv, shared, a, row, end);
}

FLASH_KERNEL(weft_flash_dkv)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    gradient_of_keys(&a, shared);
}

#endif
