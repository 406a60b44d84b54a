/* Attention over two blocks of keys as one, and its gradient: a warp a query and head. */
#include "kernel/cuda/kernels/simt.h"

/* The weight of a part with log-sum-exp `part` in the whole; 0 if no part sees a key. */
DEV float share_of(float part, float whole)
{
    return whole == -F_INFINITY ? 0.0f : f_exp(part - whole);
}

/* Index of the log-sum-exp (B,H,S) of row i of (B,S,H). */
DEV int64_t lse_index(const merge_args *a, int64_t i)
{
    const int64_t h = i % a->heads, s = i / a->heads % a->tokens, b = i / a->heads / a->tokens;
    return (b * a->heads + h) * a->tokens + s;
}

/* The weights are normalised to add up to 1: as e^(lse_part - lse) their sum would be off by a
 * rounding of lse. */
WEFT_KERNEL(weft_attention_merge, merge_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * (POINTWISE_THREADS / 32) + THREAD(0) / 32;
    if (i >= a.batch * a.tokens * a.heads)
        return;
    const int64_t at = lse_index(&a, i);
    const float la = load_float(a.lse_a, at), lb = load_float(a.lse_b, at), most = f_max(la, lb);
    float wa = share_of(la, most), wb = share_of(lb, most);
    const float sum = wa + wb;
    wa /= sum > 0.0f ? sum : 1.0f;
    wb /= sum > 0.0f ? sum : 1.0f;
    for (int64_t d = LANE; d < a.width; d += 32) {
        const int64_t e = i * a.width + d;
        store_float(a.out, e, wa * load_float(a.a, e) + wb * load_float(a.b, e));
    }
    if (LANE == 0)
        store_float(a.lse, at, most == -F_INFINITY ? most : most + f_log(sum));
}

/* w = e^(lse_part - lse): dout_part = w dout,
 *                         dlse_part = w (sum_d dout (out_part - out) + dlse). */
WEFT_KERNEL(weft_attention_merge_grad, merge_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * (POINTWISE_THREADS / 32) + THREAD(0) / 32;
    if (i >= a.batch * a.tokens * a.heads)
        return;
    const int64_t at = lse_index(&a, i);
    const float w = share_of(load_float(a.lse_a, at), load_float(a.lse_b, at));
    float slope = 0;
    for (int64_t d = LANE; d < a.width; d += 32) {
        const int64_t e = i * a.width + d;
        const float dout = load_float(a.dout, e);
        slope += dout * (load_float(a.a, e) - load_float(a.b, e));
        store_float(a.out, e, w * dout);
    }
    slope = warp_sum(slope) + (a.dlse.data ? load_float(a.dlse, at) : 0.0f);
    if (LANE == 0)
        store_float(a.lse, at, w * slope);
}
