/* Elementwise ops: sources that are functions of the index, unary and binary maths. */
#include "kernel/ref/ref.h"

#include <math.h>

REF_KERNEL(fill)
{
    const weft_attr_fill *attr = args->attr;
    const int64_t count = view_count(&args->out[0]);
    for (int64_t i = 0; i < count; i++)
        view_set(&args->out[0], i, attr->value);
    return WEFT_OK;
}

/* Fills the output with random values. Element (b, i) is a function of key[b], the purpose, and the
 * index of i in the sample's global shape. */
static void random_fill(const weft_kernel_args *args,
                        float (*draw)(uint64_t seed, weft_rng_purpose purpose, uint64_t index))
{
    const weft_attr_random *attr = args->attr;
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out);
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0; i < count; i++, shape_next(&out->shape, index)) {
        int64_t global = 0;
        for (int d = 1; d < out->shape.rank; d++)
            global = global * attr->global.dim[d] + attr->start[d] + index[d];
        const uint64_t key = (uint64_t)view_get_int(&args->in[0], index[0]);
        view_set(out, i, draw(key, attr->purpose, (uint64_t)global));
    }
}

REF_KERNEL(random_normal)
{
    random_fill(args, weft_random_normal);
    return WEFT_OK;
}

REF_KERNEL(random_uniform)
{
    random_fill(args, weft_random_uniform);
    return WEFT_OK;
}

#define UNARY(name, expression)                                                                    \
    REF_KERNEL(name)                                                                               \
    {                                                                                              \
        const int64_t count = view_count(&args->out[0]);                                           \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const double x = view_get(&args->in[0], i);                                            \
            view_set(&args->out[0], i, expression);                                                \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

UNARY(neg, -x)
UNARY(stop, x)
UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(sqrt, sqrt(x))
UNARY(rsqrt, 1 / sqrt(x))
UNARY(square, x *x)
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(tanh, tanh(x))
UNARY(sigmoid, sigmoid(x))
UNARY(silu, x *sigmoid(x))
UNARY(cast, x)

/* Unary maths with attributes, and gradients with the inputs x and dy. */
#define WITH_ATTR(name, type, expression)                                                          \
    REF_KERNEL(name)                                                                               \
    {                                                                                              \
        const type *a = args->attr;                                                                \
        (void)a;                                                                                   \
        const int64_t count = view_count(&args->out[0]);                                           \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const double x = view_get(&args->in[0], i);                                            \
            const double dy = args->in_count > 1 ? view_get(&args->in[1], i) : 0;                  \
            (void)dy;                                                                              \
            view_set(&args->out[0], i, expression);                                                \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }

static const double SQRT_HALF = 0.70710678118654752440;    /* sqrt(1/2) */
static const double SQRT_2_BY_PI = 0.79788456080286535588; /* sqrt(2/pi) */
static const double GELU_CUBIC = 0.044715;

static double gelu(double x, bool exact)
{
    if (exact)
        return 0.5 * x * (1 + erf(x * SQRT_HALF));
    return 0.5 * x * (1 + tanh(SQRT_2_BY_PI * (x + GELU_CUBIC * x * x * x)));
}

static double gelu_slope(double x, bool exact)
{
    if (exact)
        return 0.5 * (1 + erf(x * SQRT_HALF)) + x * exp(-0.5 * x * x) * 0.5 * SQRT_2_BY_PI;
    const double t = tanh(SQRT_2_BY_PI * (x + GELU_CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_BY_PI * (1 + 3 * GELU_CUBIC * x * x);
}

static double silu_slope(double x)
{
    const double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

WITH_ATTR(affine, weft_attr_affine, a->scale *x + a->offset)
WITH_ATTR(gelu, weft_attr_gelu, gelu(x, a->exact))
WITH_ATTR(gelu_grad, weft_attr_gelu, dy *gelu_slope(x, a->exact))
WITH_ATTR(silu_grad, weft_attr_none, dy *silu_slope(x))
WITH_ATTR(clamp, weft_attr_clamp, x<a->lo ? a->lo : x> a->hi ? a->hi : x)
WITH_ATTR(clamp_grad, weft_attr_clamp, x<a->lo || x> a->hi ? 0 : dy)

/* Broadcasting by NumPy's rule for equal ranks: a dim is equal or 1. */
#define BINARY(name, expression)                                                                   \
    REF_KERNEL(name)                                                                               \
    {                                                                                              \
        const weft_view *out = &args->out[0];                                                      \
        const int64_t count = view_count(out);                                                     \
        int64_t index[WEFT_MAX_RANK] = {0}, sa[WEFT_MAX_RANK], sb[WEFT_MAX_RANK];                  \
        shape_strides(&args->in[0].shape, sa);                                                     \
        shape_strides(&args->in[1].shape, sb);                                                     \
        for (int64_t i = 0; i < count; i++, shape_next(&out->shape, index)) {                      \
            int64_t ia = 0, ib = 0;                                                                \
            for (int d = 0; d < out->shape.rank; d++) {                                            \
                ia += index[d] * sa[d];                                                            \
                ib += index[d] * sb[d];                                                            \
            }                                                                                      \
            const double a = view_get(&args->in[0], ia), b = view_get(&args->in[1], ib);           \
            view_set(out, i, expression);                                                          \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, a / b)
