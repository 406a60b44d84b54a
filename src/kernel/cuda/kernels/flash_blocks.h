/* Attention over chosen blocks and its gradients on tensor cores (flash_tiles.h). A block of
 * threads has 64 rows of one block of queries, or of keys, and a warp 16. Tiles of the chosen
 * blocks of the other side arrive in sequence: the next one is copied while one is multiplied, also
 * from one run of blocks to the next. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_FLASH_BLOCKS_H
#define WEFT_KERNEL_CUDA_KERNELS_FLASH_BLOCKS_H

#include "kernel/cuda/kernels/chosen_tiles.h"
#include "kernel/cuda/kernels/flash_tiles.h"

/* The arguments with constants for what attention over blocks does not have. */
DEV attention_args plain_args(attention_args a)
{
    a.causal = 0;
    a.bias = NULL;
    a.segments = NULL;
    return a;
}

/* Starts the copy of a tile of keys and of its values. */
DEV void copy_keys(char *to, const attention_args *a, const chosen_tiles *t)
{
    copy_rows(to, a->k, a, t->begin, t->end, TILE);
    copy_rows(to + TILE * ROW, a->v, a, t->begin, t->end, TILE);
}

DEV segment keys_of_tile(const block_rows *r, const chosen_tiles *t)
{
    const segment g = {r->row, r->end, t->begin, t->end};
    return g;
}

/* Tiles of keys in two stages. wait_for_tile() returns the one that has arrived and starts the copy
 * of the next one, which `ahead` has; `is` says whether there is one. */
typedef struct key_stages {
    chosen_tiles ahead;
    char *stages;
    int stage, is;
} key_stages;

DEV void first_keys(key_stages *s, const attention_args *a)
{
    s->stage = 0;
    s->is = next_tile(&s->ahead, TILE);
    if (s->is)
        copy_keys(s->stages, a, &s->ahead);
    copy_commit();
}

DEV const char *wait_for_keys(key_stages *s, const attention_args *a)
{
    const char *here = s->stages + s->stage * 2 * TILE * ROW;
    COPY_WAIT(0);
    block_barrier();
    s->stage = 1 - s->stage;
    s->is = next_tile(&s->ahead, TILE);
    if (s->is)
        copy_keys(s->stages + s->stage * 2 * TILE * ROW, a, &s->ahead);
    copy_commit();
    return here;
}

/* `shared`: the tile of queries, then two stages of keys and values. */
DEV void forward_blocks(const attention_args *a, char *shared)
{
    const block_rows r = own_rows(a->queries, a->query_blocks, FLASH_GRAD_ROWS);
    key_stages s = {tiles_of_keys(a, &r), shared + FLASH_GRAD_ROWS * ROW, 0, 0};
    forward_sums f;
    forward_begin(&f, 1);
    copy_rows(shared, a->q, a, r.row, r.end, FLASH_GRAD_ROWS);
    first_keys(&s, a);
    while (s.is) {
        const segment g = keys_of_tile(&r, &s.ahead);
        const char *k = wait_for_keys(&s, a);
        forward_tile(&f, shared, k, a, g, r.row, r.end, g.k0, 1);
    }
    COPY_WAIT(0);
    block_barrier();
    forward_end(&f, shared, a, r.row, r.end, 1);
}

FLASH_KERNEL(weft_flash_blocks)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    const attention_args plain = plain_args(a);
    forward_blocks(&plain, shared);
}

DEV void blocks_of_queries(const attention_args *a, char *shared)
{
    const block_rows r = own_rows(a->queries, a->query_blocks, FLASH_GRAD_ROWS);
    key_stages s = {tiles_of_keys(a, &r), shared + DQ_STAGES, 0, 0};
    fragments dq[1];
    query_rows rows;
    clear(dq, 1, WIDE / 8);
    load_query_rows(&rows, shared, a, r.row, r.end);
    block_barrier(); /* the tiles of queries are read */
    first_keys(&s, a);
    while (s.is) {
        const segment g = keys_of_tile(&r, &s.ahead);
        const char *k = wait_for_keys(&s, a);
        dq_tile(dq, &rows, k, a, g, r.row, r.end, g.k0);
    }
    COPY_WAIT(0);
    dq_end(dq, shared, a, r.row, r.end);
}

FLASH_KERNEL(weft_flash_blocks_dq)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    const attention_args plain = plain_args(a);
    blocks_of_queries(&plain, shared);
}

/* `shared`: the tiles of keys and values, then two stages of queries. */
DEV void blocks_of_keys(const attention_args *a, char *shared)
{
    const block_rows r = own_rows(a->keys, a->key_blocks, FLASH_GRAD_ROWS);
    char *stages = shared + 2 * FLASH_GRAD_ROWS * ROW;
    chosen_tiles ahead = tiles_of_queries(a, &r);
    fragments dk[1], dv[1];
    const segment any = {0, 0, 0, 0};
    int is = next_tile(&ahead, TILE), stage = 0;
    dkv_begin(dk, dv, shared, a, r.row, r.end);
    if (is)
        copy_queries(stages, a, ahead.begin, ahead.end);
    copy_commit();
    while (is) {
        const char *q = stages + stage * DKV_STAGE;
        COPY_WAIT(0);
        block_barrier();
        stage = 1 - stage;
        is = next_tile(&ahead, TILE);
        if (is)
            copy_queries(stages + stage * DKV_STAGE, a, ahead.begin, ahead.end);
        copy_commit();
        /* Rows after the tile have weights of 0. */
        dkv_tile(dk, dv, shared, q, a, any, r.row, 0, 1);
    }
    dkv_end(dk, dv, shared, a, r.row, r.end);
}

FLASH_KERNEL(weft_flash_blocks_dkv)
{
    WEFT_SHARED_DYNAMIC(char, shared);
    const attention_args plain = plain_args(a);
    blocks_of_keys(&plain, shared);
}

#endif
