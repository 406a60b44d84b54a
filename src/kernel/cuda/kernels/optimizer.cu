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

/* A block's 2,048 elements: 28 bytes an element of f32, in accesses of 16 bytes. The corrections of
 * the bias need f64; one thread of a block computes them. */
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
    const int64_t first = (block.x * POINTWISE_THREADS + THREAD(0)) * 8;
    if (a.vector && first + 8 <= a.count) {
        float p[8], g[8], m[8], v[8];
        load_eight(p, a.p, first);
        load_eight(g, a.g, first);
        load_eight(m, a.m, first);
        load_eight(v, a.v, first);
        if (scale == scale) {
            UNROLL
            for (int k = 0; k < 8; k++)
                adamw_step(&p[k], g[k], &m[k], &v[k], c, &a);
        }
        store_eight(a.p_out, first, p);
        store_eight(a.m_out, first, m);
        store_eight(a.v_out, first, v);
        return;
    }
    for (int64_t i = first; i < first + 8 && i < a.count; i++) {
        float p = load_float(a.p, i), m = load_float(a.m, i), v = load_float(a.v, i);
        if (scale == scale)
            adamw_step(&p, load_float(a.g, i), &m, &v, c, &a);
        store_float(a.p_out, i, p);
        store_float(a.m_out, i, m);
        store_float(a.v_out, i, v);
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
