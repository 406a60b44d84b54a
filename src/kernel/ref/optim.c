/* The optimizer's step. */
#include "kernel/ref/ref.h"

#include <math.h>

REF_KERNEL(sum_squares)
{
    double sum = 0;
    for (int64_t i = 0, n = view_count(&args->in[0]); i < n; i++)
        sum += pow(view_get(&args->in[0], i), 2);
    view_set(&args->out[0], 0, sum);
    return WEFT_OK;
}

REF_KERNEL(clip_scale)
{
    const double norm = sqrt(view_get(&args->in[0], 0)), loss = view_get(&args->in[1], 0);
    const double max_norm = view_get(&args->in[2], 0);
    const double loss_limit = view_get(&args->in[3], 0), norm_limit = view_get(&args->in[4], 0);
    const bool healthy =
        isfinite(norm) && isfinite(loss) && norm <= norm_limit && loss <= loss_limit;
    view_set(&args->out[0], 0, healthy ? fmin(1, max_norm / (norm + 1e-6)) : NAN);
    view_set(&args->out[1], 0, norm);
    return WEFT_OK;
}

/* Decoupled weight decay (Loshchilov & Hutter, Algorithm 2). */
REF_KERNEL(adamw)
{
    const weft_attr_adamw *a = args->attr;
    const weft_view *p = &args->in[0], *g = &args->in[1], *m = &args->in[2], *v = &args->in[3];
    const double lr = view_get(&args->in[4], 0), step = view_get(&args->in[5], 0);
    const double scale = view_get(&args->in[6], 0);
    const double correct1 = 1 - pow(a->beta1, step), correct2 = 1 - pow(a->beta2, step);
    for (int64_t i = 0, n = view_count(p); i < n; i++) {
        double pi = view_get(p, i), mi = view_get(m, i), vi = view_get(v, i);
        if (!isnan(scale)) {
            const double gi = view_get(g, i) * scale;
            mi = a->beta1 * mi + (1 - a->beta1) * gi;
            vi = a->beta2 * vi + (1 - a->beta2) * gi * gi;
            pi -= lr * (mi / correct1 / (sqrt(vi / correct2) + a->eps) + a->weight_decay * pi);
        }
        view_set(&args->out[0], i, pi);
        view_set(&args->out[1], i, mi);
        view_set(&args->out[2], i, vi);
    }
    return WEFT_OK;
}

REF_KERNEL(ema)
{
    const double decay = view_get(&args->in[2], 0), scale = view_get(&args->in[3], 0);
    for (int64_t i = 0, n = view_count(&args->in[0]); i < n; i++) {
        const double e = view_get(&args->in[0], i), p = view_get(&args->in[1], i);
        view_set(&args->out[0], i, isnan(scale) ? e : e + (1 - decay) * (p - e));
    }
    return WEFT_OK;
}
