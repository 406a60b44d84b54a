/* Attention and its gradients in f32, over segments or batch items (attention_tiles.h). */
#include "kernel/cuda/kernels/attention_tiles.h"

WEFT_KERNEL(weft_attention, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, NULL};
    const int64_t row = (int64_t)BLOCK(0) * ROWS, all = a.batch * a.queries;
    const int64_t end = row + ROWS < all ? row + ROWS : all;
    forward_sums f;
    forward_begin(&f);
    for (int64_t n = 0; n < a.segment_count; n++) {
        const segment g = segment_at(&a, n);
        if (g.q1 <= row || g.q0 >= end)
            continue;
        int64_t last = g.k1;
        if (a.causal) {
            const int64_t seen = g.k0 + (end - g.q0) + (g.k1 - g.k0) - (g.q1 - g.q0);
            last = seen < last ? seen : last;
        }
        for (int64_t key = g.k0; key < last; key += ROWS)
            forward_tile(&f, space, &a, g, row, end, key);
    }
    forward_end(&f, &a, row, end);
}

/* delta = sum_d dout out - dlse, a warp a query and head. */
WEFT_KERNEL(weft_attention_delta, attention_args, ATTENTION_THREADS)
{
    const int64_t row = (int64_t)BLOCK(0) * (ATTENTION_THREADS / 32) + THREAD(0) / 32;
    if (row >= a.batch * a.queries)
        return;
    float sum = 0;
    const int64_t first = (row * a.heads + BLOCK(1)) * a.width;
    for (int64_t d = (int64_t)LANE * 8; a.vector && d < a.width; d += 32 * 8) {
        float x[8], dy[8];
        load_eight(x, a.out, first + d);
        load_eight(dy, a.dout, first + d);
        UNROLL
        for (int k = 0; k < 8; k++)
            sum = f_fma(x[k], dy[k], sum);
    }
    for (int64_t d = LANE; !a.vector && d < a.width; d += 32)
        sum = f_fma(load_float(a.out, first + d), load_float(a.dout, first + d), sum);
    sum = warp_sum(sum);
    const int64_t at = lse_of_row(&a, row);
    if (LANE == 0)
        a.delta[at] = sum - (a.dlse ? a.dlse[at] : 0.0f);
}

/* Replaces delta of the rows that see all their keys here: base is dP of the first key, and delta the
 * mean of dP - base, less dlse. Then a row of dS sums to 0, even where keys hardly differ and the
 * result is small compared with the rounding of dout out. Costs two products. */
WEFT_KERNEL(weft_attention_delta_few, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    const tile_space space = {x, y, NULL, NULL};
    const int64_t row = (int64_t)BLOCK(0) * ROWS, all = a.batch * a.queries;
    const int64_t end = row + ROWS < all ? row + ROWS : all;
    few_sums f;
    few_begin(&f);
    for (int64_t n = 0; n < a.segment_count; n++) {
        const segment g = segment_at(&a, n);
        if (g.q1 <= row || g.q0 >= end)
            continue;
        for (int64_t key = g.k0; key < g.k1; key += ROWS)
            few_tile(&f, space, &a, g, row, end, key, key == g.k0);
    }
    few_end(&f, &a, row, end);
}

/* dq = dS k: queries are the rows of the block. */
WEFT_KERNEL(weft_attention_dq, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, NULL};
    const int64_t row = (int64_t)BLOCK(0) * ROWS, all = a.batch * a.queries;
    const int64_t end = row + ROWS < all ? row + ROWS : all;
    float dq[PARTS][4][4];
    clear(dq);
    for (int64_t n = 0; n < a.segment_count; n++) {
        const segment g = segment_at(&a, n);
        if (g.q1 <= row || g.q0 >= end)
            continue;
        for (int64_t key = g.k0; key < g.k1; key += ROWS)
            dq_tile(dq, space, &a, g, row, end, key);
    }
    store_sums(a.dq, &a, row, end, dq);
}

/* dk = dS^T q and dv = P^T dout: keys are the rows of the block. */
WEFT_KERNEL(weft_attention_dkv, attention_args, ATTENTION_THREADS)
{
    WEFT_SHARED(float, x, ROWS *PITCH);
    WEFT_SHARED(float, y, ROWS *PITCH);
    WEFT_SHARED(float, weights, ROWS *SCORE_PITCH);
    WEFT_SHARED(float, slopes, ROWS *SCORE_PITCH);
    const tile_space space = {x, y, weights, slopes};
    const int64_t row = (int64_t)BLOCK(0) * ROWS, all = a.batch * a.keys;
    const int64_t end = row + ROWS < all ? row + ROWS : all;
    float dk[PARTS][4][4], dv[PARTS][4][4];
    clear(dk);
    clear(dv);
    for (int64_t n = 0; n < a.segment_count; n++) {
        const segment g = segment_at(&a, n);
        if (g.k1 <= row || g.k0 >= end)
            continue;
        for (int64_t query = g.q0; query < g.q1; query += ROWS)
            dkv_tile(dk, dv, space, &a, g, row, end, query);
    }
    store_sums(a.dk, &a, row, end, dk);
    store_sums(a.dv, &a, row, end, dv);
}
