/* Tables of embeddings, and the routing of tokens to experts. An id outside the table is reported,
 * and gives NaN. */
#include "kernel/cuda/kernels/simt.h"

/* A block a row of the output. */
WEFT_KERNEL(weft_embed, embed_args, POINTWISE_THREADS)
{
    const int64_t i = BLOCK(0), id = load_int(a.ids, i);
    const int inside = id >= 0 && id < a.rows;
    if (!inside && THREAD(0) == 0)
        report_id(a.report, id);
    for (int64_t c = (int64_t)THREAD(0) * 8; a.vector && inside && c < a.width;
         c += POINTWISE_THREADS * 8)
        copy_eight(a.out, i * a.width + c, a.table, id * a.width + c);
    if (a.vector && inside)
        return;
    for (int64_t c = THREAD(0); c < a.width; c += POINTWISE_THREADS)
        store_float(a.out, i * a.width + c, inside ? load_float(a.table, id * a.width + c) : F_NAN);
}

/* A block a row of the table. Every row looks at all ids, in their order, so no atomics are needed.
 */
WEFT_KERNEL(weft_embed_grad, embed_args, POINTWISE_THREADS)
{
    const int64_t row = BLOCK(0);
    for (int64_t i = THREAD(0); row == 0 && i < a.count; i += POINTWISE_THREADS)
        if (load_int(a.ids, i) < 0 || load_int(a.ids, i) >= a.rows)
            report_id(a.report, load_int(a.ids, i));
    for (int64_t c = THREAD(0); c < a.width; c += POINTWISE_THREADS) {
        float sum = 0;
        for (int64_t i = 0; i < a.count; i++)
            if (load_int(a.ids, i) == row)
                sum += load_float(a.table, i * a.width + c);
        store_float(a.out, row * a.width + c, sum);
    }
}

DEV float best_two(const float *score, int32_t each)
{
    float first = -F_INFINITY, second = -F_INFINITY;
    for (int32_t e = 0; e < each; e++) {
        second = score[e] > first ? first : f_max(second, score[e]);
        first = f_max(first, score[e]);
    }
    return each > 1 ? first + second : first;
}

/* A warp a row. The place of an expert is the number of allowed experts that precede it. */
WEFT_KERNEL(weft_top_k, top_k_args, 32)
{
    WEFT_SHARED(float, score, TOP_K_MOST);
    WEFT_SHARED(float, best, TOP_K_GROUPS);
    WEFT_SHARED(int32_t, open, TOP_K_GROUPS);
    const int64_t row = BLOCK(0);
    const int32_t lane = (int32_t)LANE, each = a.groups ? a.experts / a.groups : a.experts;
    for (int32_t e = lane; e < a.experts; e += 32)
        score[e] = load_float(a.scores, row * a.experts + e) +
                   (a.bias.data ? load_float(a.bias, e) : 0.0f);
    block_barrier();
    for (int32_t q = lane; q < a.groups; q += 32)
        best[q] = best_two(score + q * each, each);
    block_barrier();
    for (int32_t q = lane; q < a.groups; q += 32) {
        int32_t order = 0;
        for (int32_t p = 0; p < a.groups; p++)
            order += best[p] > best[q] || (best[p] == best[q] && p < q);
        open[q] = order < a.top_groups;
    }
    block_barrier();
    for (int32_t e = lane; e < a.experts; e += 32) {
        int32_t order = 0;
        if (a.groups && !open[e / each])
            continue;
        for (int32_t o = 0; o < a.experts; o++)
            order += (!a.groups || open[o / each]) &&
                     (score[o] > score[e] || (score[o] == score[e] && o < e));
        if (order < a.count)
            a.out[row * a.count + order] = e;
    }
}

WEFT_KERNEL(weft_pick, pick_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);
    if (i >= a.rows * a.count)
        return;
    const int32_t e = a.ids[i];
    if (e >= a.experts)
        report_id(a.report, e);
    store_float(a.out, i,
                e < 0            ? 0.0f
                : e >= a.experts ? F_NAN
                                 : load_float(a.x, i / a.count * a.experts + e));
}

/* One thread an element of the output: the sum of dy where the expert was chosen. */
WEFT_KERNEL(weft_pick_grad, pick_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);
    if (i >= a.rows * a.experts)
        return;
    const int64_t first = i / a.experts * a.count;
    float sum = 0;
    for (int64_t j = first; j < first + a.count; j++) {
        if (a.ids[j] == i % a.experts)
            sum += load_float(a.x, j);
        if (a.ids[j] >= a.experts)
            report_id(a.report, a.ids[j]);
    }
    store_float(a.out, i, sum);
}

/* A warp an expert and a sample: of 32 choices at a time, each of the expert takes the next
 * slot. */
WEFT_KERNEL(weft_slot_rows, slots_args, 32)
{
    const int64_t e = BLOCK(0), b = BLOCK(1), choices = a.tokens * a.choices,
                  slots = a.slots ? a.slots : a.tokens;
    int64_t taken = 0;
    for (int64_t first = 0; first < choices; first += 32) {
        const int64_t i = first + LANE;
        const int own = i < choices && a.ids[b * choices + i] == e;
        const uint32_t chosen = warp_ballot(own);
        const int64_t slot =
            a.slots ? taken + count_bits(chosen & ((1u << LANE) - 1u)) : i / a.choices;
        if (own)
            a.rows[b * choices + i] =
                slot < slots ? (int32_t)((e * a.batch + b) * slots + slot) : -1;
        taken += count_bits(chosen);
    }
}

/* Choices of no expert have no row; slot_rows writes the others. */
WEFT_KERNEL(weft_no_rows, slots_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);
    if (i >= a.batch * a.tokens * a.choices)
        return;
    a.rows[i] = -1;
    if (a.ids[i] >= a.experts)
        report_id(a.report, a.ids[i]);
}

/* A warp a choice: copies its row there or back. */
WEFT_KERNEL(weft_route, route_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * (POINTWISE_THREADS / 32) + THREAD(0) / 32;
    if (i >= a.count)
        return;
    const int64_t row = a.rows[i];
    if (a.to_rows && row < 0)
        return;
    if (a.vector && row >= 0) {
        const int64_t to = a.to_rows ? row : i, from = a.to_rows ? i / a.shared : row;
        for (int64_t c = (int64_t)LANE * 8; c < a.width; c += 32 * 8)
            copy_eight(a.out, to * a.width + c, a.x, from * a.width + c);
        return;
    }
    for (int64_t c = LANE; c < a.width; c += 32) {
        if (!a.x.data)
            ((int32_t *)a.out.data)[row] = a.ids[i];
        else if (a.to_rows)
            store_float(a.out, row * a.width + c, load_float(a.x, i / a.shared * a.width + c));
        else
            store_float(a.out, i * a.width + c,
                        row < 0 ? 0.0f : load_float(a.x, row * a.width + c));
    }
}
