/* Normalisation, modulation, rope. */
#include "kernel/ref/ref.h"

#include <math.h>

static const weft_view *optional(const weft_kernel_args *args, int i)
{
    return args->in_count > i && view_present(&args->in[i]) ? &args->in[i] : NULL;
}

static double gamma_at(const weft_view *gamma, int64_t c)
{
    return gamma ? view_get(gamma, c) : 1;
}

REF_KERNEL(layer_norm)
{
    const weft_attr_norm *attr = args->attr;
    const weft_view *x = &args->in[0], *gamma = optional(args, 1), *beta = optional(args, 2);
    const int64_t C = view_last(x), rows = C ? view_count(x) / C : 0;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, var = 0;
        for (int64_t c = 0; c < C; c++)
            mean += view_get(x, r * C + c) / (double)C;
        for (int64_t c = 0; c < C; c++)
            var += pow(view_get(x, r * C + c) - mean, 2) / (double)C;
        for (int64_t c = 0; c < C; c++)
            view_set(&args->out[0], r * C + c,
                     (view_get(x, r * C + c) - mean) / sqrt(var + attr->eps) * gamma_at(gamma, c) +
                         (beta ? view_get(beta, c) : 0));
    }
    return WEFT_OK;
}

static void clear_weight_grads(const weft_kernel_args *args)
{
    for (int o = 1; o < args->out_count; o++)
        for (int64_t i = 0, n = view_count(&args->out[o]); i < n; i++)
            view_set(&args->out[o], i, 0);
}

static void accumulate(const weft_view *v, int64_t i, double value)
{
    view_set(v, i, view_get(v, i) + value);
}

/* Gradients of layer_norm. With h = (x - mean) r, r = 1/sqrt(var + eps), g = dy gamma:
 *
 *   dx = r (g - mean(g) - h mean(g h)), dgamma = sum dy h, dbeta = sum dy */
REF_KERNEL(layer_norm_grad)
{
    const weft_attr_norm *attr = args->attr;
    const weft_view *x = &args->in[0], *dy = &args->in[1], *gamma = optional(args, 2);
    const int64_t C = view_last(x), rows = C ? view_count(x) / C : 0;
    clear_weight_grads(args);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, var = 0, g_mean = 0, gh_mean = 0;
        for (int64_t c = 0; c < C; c++)
            mean += view_get(x, r * C + c) / (double)C;
        for (int64_t c = 0; c < C; c++)
            var += pow(view_get(x, r * C + c) - mean, 2) / (double)C;
        const double rstd = 1 / sqrt(var + attr->eps);
        for (int64_t c = 0; c < C; c++) {
            const double g = view_get(dy, r * C + c) * gamma_at(gamma, c);
            g_mean += g / (double)C;
            gh_mean += g * (view_get(x, r * C + c) - mean) * rstd / (double)C;
        }
        for (int64_t c = 0; c < C; c++) {
            const double d = view_get(dy, r * C + c), h = (view_get(x, r * C + c) - mean) * rstd;
            view_set(&args->out[0], r * C + c,
                     rstd * (d * gamma_at(gamma, c) - g_mean - h * gh_mean));
            if (args->out_count > 1)
                accumulate(&args->out[1], c, d * h);
            if (args->out_count > 2)
                accumulate(&args->out[2], c, d);
        }
    }
    return WEFT_OK;
}

/* Returns the factor f of one row in y = f x gamma. Sets *slope with df/dx_c = slope x_c. */
static double rms_factor(const weft_view *x, int64_t row, int64_t C, const weft_attr_norm *attr,
                         double *slope)
{
    double square = 0;
    for (int64_t c = 0; c < C; c++)
        square += pow(view_get(x, row * C + c), 2);
    if (attr->l2) { /* sqrt(C) / max(||x||, eps): constant below eps */
        const double norm = sqrt(square), f = sqrt((double)C) / fmax(norm, attr->eps);
        *slope = norm > attr->eps ? -f / square : 0;
        return f;
    }
    const double f = 1 / sqrt(square / (double)C + attr->eps);
    *slope = -f * f * f / (double)C;
    return f;
}

REF_KERNEL(rms_norm)
{
    const weft_view *x = &args->in[0], *gamma = optional(args, 1);
    const int64_t C = view_last(x), rows = C ? view_count(x) / C : 0;
    for (int64_t r = 0; r < rows; r++) {
        double slope;
        const double f = rms_factor(x, r, C, args->attr, &slope);
        for (int64_t c = 0; c < C; c++)
            view_set(&args->out[0], r * C + c, view_get(x, r * C + c) * f * gamma_at(gamma, c));
    }
    return WEFT_OK;
}

REF_KERNEL(softmax)
{
    const weft_view *x = &args->in[0];
    const int64_t C = view_last(x), rows = C ? view_count(x) / C : 0;
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int64_t c = 0; c < C; c++)
            most = fmax(most, view_get(x, r * C + c));
        for (int64_t c = 0; c < C; c++)
            sum += exp(view_get(x, r * C + c) - most);
        for (int64_t c = 0; c < C; c++)
            view_set(&args->out[0], r * C + c, exp(view_get(x, r * C + c) - most) / sum);
    }
    return WEFT_OK;
}

/* y_c = f x_c gamma_c: dx_c = f g_c + slope x_c sum(g x), dgamma = sum dy f x. */
REF_KERNEL(rms_norm_grad)
{
    const weft_view *x = &args->in[0], *dy = &args->in[1], *gamma = optional(args, 2);
    const int64_t C = view_last(x), rows = C ? view_count(x) / C : 0;
    clear_weight_grads(args);
    for (int64_t r = 0; r < rows; r++) {
        double slope, gx = 0;
        const double f = rms_factor(x, r, C, args->attr, &slope);
        for (int64_t c = 0; c < C; c++)
            gx += view_get(dy, r * C + c) * gamma_at(gamma, c) * view_get(x, r * C + c);
        for (int64_t c = 0; c < C; c++) {
            const double d = view_get(dy, r * C + c), xc = view_get(x, r * C + c);
            view_set(&args->out[0], r * C + c, f * d * gamma_at(gamma, c) + slope * xc * gx);
            if (args->out_count > 1)
                accumulate(&args->out[1], c, d * f * xc);
        }
    }
    return WEFT_OK;
}

/* Returns the offset of `index` in a tensor that is broadcast. */
static int64_t view_offset(const weft_view *v, const int64_t *index)
{
    int64_t stride[WEFT_MAX_RANK], sum = 0;
    shape_strides(&v->shape, stride);
    for (int d = 0; d < v->shape.rank; d++)
        sum += index[d] * stride[d];
    return sum;
}

REF_KERNEL(modulate)
{
    const weft_view *x = &args->in[0], *scale = &args->in[1], *shift = &args->in[2];
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index))
        view_set(&args->out[0], i,
                 view_get(x, i) * (1 + view_get(scale, view_offset(scale, index))) +
                     view_get(shift, view_offset(shift, index)));
    return WEFT_OK;
}

REF_KERNEL(modulate_grad)
{
    const weft_view *x = &args->in[0], *scale = &args->in[1], *dy = &args->in[2];
    const weft_view *dscale = &args->out[1], *dshift = &args->out[2];
    int64_t index[WEFT_MAX_RANK] = {0};
    clear_weight_grads(args);
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index)) {
        const double d = view_get(dy, i);
        view_set(&args->out[0], i, d * (1 + view_get(scale, view_offset(scale, index))));
        accumulate(dscale, view_offset(dscale, index), d * view_get(x, i));
        accumulate(dshift, view_offset(dshift, index), d);
    }
    return WEFT_OK;
}

REF_KERNEL(gated_add)
{
    const weft_view *x = &args->in[0], *y = &args->in[1], *gate = &args->in[2];
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index))
        view_set(&args->out[0], i,
                 view_get(x, i) + view_get(gate, view_offset(gate, index)) * view_get(y, i));
    return WEFT_OK;
}

REF_KERNEL(gated_add_grad)
{
    const weft_view *y = &args->in[0], *gate = &args->in[1], *dout = &args->in[2],
                    *dgate = &args->out[1];
    int64_t index[WEFT_MAX_RANK] = {0};
    clear_weight_grads(args);
    for (int64_t i = 0, n = view_count(y); i < n; i++, shape_next(&y->shape, index)) {
        const double d = view_get(dout, i);
        view_set(&args->out[0], i, d * view_get(gate, view_offset(gate, index)));
        accumulate(dgate, view_offset(dgate, index), d * view_get(y, i));
    }
    return WEFT_OK;
}

REF_KERNEL(rope)
{
    const weft_attr_rope *attr = args->attr;
    const weft_view *x = &args->in[0], *cosine = &args->in[1], *sine = &args->in[2];
    const int64_t S = x->shape.dim[1], H = x->shape.dim[2], half = x->shape.dim[3] / 2;
    const bool plain = cosine->shape.rank == 2;
    const int64_t heads = plain ? 1 : cosine->shape.dim[2],
                  batch = plain ? 1 : cosine->shape.dim[0];
    for (int64_t pair = 0, n = view_count(x) / 2; pair < n; pair++) {
        const int64_t i = pair % half, h = pair / half % H, s_at = pair / (half * H) % S,
                      b_at = pair / (half * H * S);
        const int64_t angle = ((b_at % batch * S + s_at) * heads + (heads > 1 ? h : 0)) * half + i;
        const int64_t first = attr->rotate_half ? (pair - i) * 2 + i : 2 * pair,
                      second = attr->rotate_half ? first + half : first + 1;
        const double c = view_get(cosine, angle),
                     s = view_get(sine, angle) * (attr->inverse ? -1 : 1);
        const double a = view_get(x, first), b = view_get(x, second);
        view_set(&args->out[0], first, a * c - b * s);
        view_set(&args->out[0], second, a * s + b * c);
    }
    return WEFT_OK;
}

REF_KERNEL(rope_table)
{
    const weft_attr_rope_table *a = args->attr;
    int64_t at = 0;
    const int64_t tokens = a->grid[0] * a->grid[1] * a->grid[2];
    for (int64_t t = a->start; t < a->start + a->len; t++) {
        const int64_t s = t - a->before;
        const bool rotates = s >= 0 && s < tokens;
        for (int d = 0; d < 3; d++)
            for (int64_t i = 0; i < a->pairs[d]; i++, at++) {
                const int64_t position = !rotates ? 0
                                         : d == 0 ? s / (a->grid[1] * a->grid[2])
                                         : d == 1 ? s / a->grid[2] % a->grid[1]
                                                  : s % a->grid[2];
                const double angle =
                    rotates ? (a->origin[d] + (double)position * a->step[d]) *
                                  (1.0 / pow(a->theta[d], (double)i / (double)a->pairs[d]))
                            : 0;
                view_set(&args->out[0], at, cos(angle));
                view_set(&args->out[1], at, sin(angle));
            }
    }
    return WEFT_OK;
}
