/* The elementwise ops, one definition each: the kernels of single ops (pointwise.cu, modulation.cu)
 * and the generated kernels of chains (pointwise_source.h) compute them.
 *
 * Compilers must not contract products and sums to fused multiply-adds here. A generated kernel and
 * the kernels that it replaces then have bitwise identical results. Functions that need
 * multiply-adds call f_fma(). */
#ifndef WEFT_KERNEL_CUDA_KERNELS_POINTWISE_OPS_H
#define WEFT_KERNEL_CUDA_KERNELS_POINTWISE_OPS_H

#include "kernel/cuda/kernels/simt.h"

/* `body` computes the result from x, dy, p and q, which are the attributes. */
#define UNARY_OF(name, body)                                                                       \
    DEV float name##_of(float x, float dy, float p, float q)                                       \
    {                                                                                              \
        (void)dy, (void)p, (void)q;                                                                \
        return body;                                                                               \
    }
#define BINARY_OF(name, body)                                                                      \
    DEV float name##_of(float x, float y)                                                          \
    {                                                                                              \
        return body;                                                                               \
    }
#define TERNARY_OF(name, body)                                                                     \
    DEV float name##_of(float x, float y, float z)                                                 \
    {                                                                                              \
        return body;                                                                               \
    }

UNARY_OF(stop, x)
UNARY_OF(neg, -x)
UNARY_OF(affine, f_fma(p, x, q))
UNARY_OF(cast, x)
UNARY_OF(exp, f_exp(x))
UNARY_OF(log, f_log(x))
UNARY_OF(sqrt, f_sqrt(x))
UNARY_OF(rsqrt, 1.0f / f_sqrt(x))
UNARY_OF(square, x *x)
UNARY_OF(sin, f_sin(x))
UNARY_OF(cos, f_cos(x))
UNARY_OF(tanh, f_tanh(x))
UNARY_OF(sigmoid, f_sigmoid(x))
UNARY_OF(silu, f_silu(x))
UNARY_OF(silu_grad, dy *f_silu_slope(x))
UNARY_OF(gelu, f_gelu(x))
UNARY_OF(gelu_exact, f_gelu_exact(x))
UNARY_OF(gelu_grad, dy *f_gelu_slope(x))
UNARY_OF(gelu_exact_grad, dy *f_gelu_exact_slope(x))
UNARY_OF(clamp, x<p ? p : x> q ? q : x)
UNARY_OF(clamp_grad, x<p || x> q ? 0.0f : dy)

BINARY_OF(add, x + y)
BINARY_OF(sub, x - y)
BINARY_OF(mul, x *y)
BINARY_OF(div, x / y)
BINARY_OF(scale_more, x *(1.0f + y)) /* the gradient of modulate for its first operand */

TERNARY_OF(modulate, f_fma(x, 1.0f + y, z))
TERNARY_OF(gated_add, f_fma(z, y, x))

#endif
