/* The step of the optimizer. A NaN scale changes nothing. */
#include "kernel/cuda/kernels/simt.h"

WEFT_KERNEL(weft_clip_scale, clip_args, 32)
{
    if (THREAD(0) != 0)
        return;
    const double norm = d_sqrt((double)load_float(a.squares, 0));
    const float loss = load_float(a.loss, 0), most = load_float(a.max_norm, 0);
    const int finite = norm - norm == 0.0 && loss - loss == 0.0f;
    const int healthy = finite && norm <= (double)load_float(a.norm_limit, 0) &&
                        loss <= load_float(a.loss_limit, 0);
    const double scale = (double)most / (norm + 1e-6);
    store_float(a.scale, 0, !healthy ? F_NAN : scale < 1.0 ? (float)scale : 1.0f);
    store_float(a.norm, 0, (float)norm);
}

/* Decoupled weight decay (Loshchilov & Hutter, Algorithm 2). */
DEV void adamw_step(float *p, float g, float *m, float *v, const float *c, const adamw_args *a)
{
    g *= c[0];
    *m = c[1] * *m + (1.0f - c[1]) * g;
    *v = c[2] * *v + c[5] * g * g;
    *p -= c[3] * (*m / (f_sqrt(*v * c[4]) + a->eps)) + c[6] * *p;
}

/* Four elements of f32 in one access, of 2 bytes each in two accesses. `i` is a multiple of 4. */
DEV void load_four(float v[4], tensor_ref t, int64_t i)
{
    if (t.type == TYPE_F32) {
        const quad q = load_quad((const float *)t.data + i);
        UNROLL
        for (int k = 0; k < 4; k++)
            v[k] = bits_float(q.x[k]);
        return;
    }
    const uint32_t *words = (const uint32_t *)((const uint16_t *)t.data + i);
    UNROLL
    for (int k = 0; k < 2; k++) {
        const uint32_t w = words[k];
        v[2 * k] = t.type == TYPE_BF16 ? bits_float(w << 16) : f16_value(w & 0xffffu);
        v[2 * k + 1] = t.type == TYPE_BF16 ? bits_float(w & 0xffff0000u) : f16_value(w >> 16);
    }
}

DEV void store_four(tensor_ref t, int64_t i, const float v[4])
{
    if (t.type == TYPE_F32) {
        quad q;
        UNROLL
        for (int k = 0; k < 4; k++)
            q.x[k] = float_bits(v[k]);
        store_quad((float *)t.data + i, q);
        return;
    }
    uint32_t *words = (uint32_t *)((uint16_t *)t.data + i);
    UNROLL
    for (int k = 0; k < 2; k++)
        words[k] = t.type == TYPE_BF16 ? bf16_of(v[2 * k]) | bf16_of(v[2 * k + 1]) << 16
                                       : f16_of(v[2 * k]) | f16_of(v[2 * k + 1]) << 16;
}

/* The first `count` of four elements, one at a time; 0: four in a vector. */
DEV void load_part(float v[4], tensor_ref t, int64_t i, int count)
{
    if (count == 0) {
        load_four(v, t, i);
        return;
    }
    UNROLL
    for (int k = 0; k < 4; k++)
        v[k] = k < count ? load_float(t, i + k) : 0.0f;
}

DEV void store_part(tensor_ref t, int64_t i, const float v[4], int count)
{
    if (count == 0) {
        store_four(t, i, v);
        return;
    }
    UNROLL
    for (int k = 0; k < 4; k++)
        if (k < count)
            store_float(t, i + k, v[k]);
}

/* A block's 2,048 elements in two parts: 28 bytes an element of f32, in accesses of 16 bytes. Four
 * elements a time need few registers, so that other warps hide the latency of memory. The
 * corrections of the bias need f64; one thread of a block computes them. */
WEFT_KERNEL_LISTED(weft_adamw, adamw_args, POINTWISE_THREADS)
{
    WEFT_SHARED(float, c, 8);
    const float scale = load_float(a.scale, 0);
    if (THREAD(0) == 0) {
        const double step = (double)load_float(a.step, 0), lr = (double)load_float(a.lr, 0);
        c[0] = scale;
        c[1] = (float)a.beta1;
        c[2] = (float)a.beta2;
        c[3] = (float)(lr / (1.0 - d_exp(step * a.log_beta1)));
        c[4] = (float)(1.0 / (1.0 - d_exp(step * a.log_beta2)));
        c[5] = (float)(1.0 - a.beta2);
        c[6] = (float)(lr * (double)a.weight_decay);
    }
    block_barrier();
    const int64_t begin = (int64_t)block.x * POINTWISE_THREADS * 8,
                  last = begin + POINTWISE_THREADS * 8, end = last < a.count ? last : a.count;
    NO_UNROLL
    for (int64_t i = begin + THREAD(0) * 4; i < end; i += POINTWISE_THREADS * 4) {
        const int count = !a.vector || end - i < 4 ? (int)(end - i) : 0; /* 0: a vector */
        float p[4], g[4], m[4], v[4];
        load_part(p, a.p, i, count);
        load_part(g, a.g, i, count);
        load_part(m, a.m, i, count);
        load_part(v, a.v, i, count);
        if (scale == scale) {
            UNROLL
            for (int k = 0; k < 4; k++)
                adamw_step(&p[k], g[k], &m[k], &v[k], c, &a);
        }
        store_part(a.p_out, i, p, count);
        store_part(a.m_out, i, m, count);
        store_part(a.v_out, i, v, count);
    }
}

WEFT_KERNEL_LISTED(weft_ema, ema_args, POINTWISE_THREADS)
{
    const float scale = load_float(a.scale, 0),
                part = scale == scale ? 1.0f - load_float(a.decay, 0) : 0.0f;
    const int64_t first = (block.x * POINTWISE_THREADS + THREAD(0)) * 8;
    if (a.vector && first + 8 <= a.count) {
        float e[8], p[8];
        load_eight(e, a.e, first);
        load_eight(p, a.p, first);
        UNROLL
        for (int k = 0; k < 8; k++)
            e[k] = part == 0.0f ? e[k] : e[k] + part * (p[k] - e[k]);
        store_eight(a.out, first, e);
        return;
    }
    for (int64_t i = first; i < first + 8 && i < a.count; i++) {
        const float e = load_float(a.e, i);
        store_float(a.out, i, part == 0.0f ? e : e + part * (load_float(a.p, i) - e));
    }
}
