/* Attention over chosen blocks and its gradients in f32 (attention_tiles.h). The rows of a block of
 * threads are of one block of queries, or of keys. Tiles of blocks that are not chosen are not
 * read. */
#include "kernel/cuda/kernels/attention_tiles.h"
#include "kernel/cuda/kernels/chosen_tiles.h"

/* A tile of keys of a block of queries. */
DEV segment keys_of_tile(const block_rows *r, const chosen_tiles *t)
{
    const segment g = {r->row, r->end, t->begin, t->end};
    return g;
}

WEFT_KERNEL(weft_attention_blocks, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, NULL};
    const block_rows r = own_rows(a.queries, a.query_blocks, ROWS);
    chosen_tiles t = tiles_of_keys(&a, &r);
    forward_sums f;
    forward_begin(&f);
    while (next_tile(&t, ROWS))
        forward_tile(&f, space, &a, keys_of_tile(&r, &t), r.row, r.end, t.begin);
    forward_end(&f, &a, r.row, r.end);
}

/* Does for blocks what weft_attention_delta_few does. */
WEFT_KERNEL(weft_attention_blocks_few, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    const tile_space space = {x, y, NULL, NULL};
    const block_rows r = own_rows(a.queries, a.query_blocks, ROWS);
    chosen_tiles t = tiles_of_keys(&a, &r);
    few_sums f;
    few_begin(&f);
    for (int is_first = 1; next_tile(&t, ROWS); is_first = 0)
        few_tile(&f, space, &a, keys_of_tile(&r, &t), r.row, r.end, t.begin, is_first);
    few_end(&f, &a, r.row, r.end);
}

WEFT_KERNEL(weft_attention_blocks_dq, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, NULL};
    const block_rows r = own_rows(a.queries, a.query_blocks, ROWS);
    chosen_tiles t = tiles_of_keys(&a, &r);
    float dq[PARTS][4][4];
    clear(dq);
    while (next_tile(&t, ROWS))
        dq_tile(dq, space, &a, keys_of_tile(&r, &t), r.row, r.end, t.begin);
    store_sums(a.dq, &a, r.row, r.end, dq);
}

WEFT_KERNEL(weft_attention_blocks_dkv, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    WEFT_SHARED(float, slopes, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, slopes};
    const block_rows r = own_rows(a.keys, a.key_blocks, ROWS);
    chosen_tiles t = tiles_of_queries(&a, &r);
    float dk[PARTS][4][4], dv[PARTS][4][4];
    clear(dk);
    clear(dv);
    while (next_tile(&t, ROWS)) {
        const segment g = {t.begin, t.end, r.row, r.end};
        dkv_tile(dk, dv, space, &a, g, r.row, r.end, t.begin);
    }
    store_sums(a.dk, &a, r.row, r.end, dk);
    store_sums(a.dv, &a, r.row, r.end, dv);
}
