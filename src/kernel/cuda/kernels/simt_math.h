/* Functions of real numbers for kernels, included by simt.h. They are polynomials in C, not the
 * approximations of the hardware, so that the emulation computes the same function. f_exp, f_silu
 * and f_gelu have explicit multiply-adds only: all kernels and compilers agree bitwise. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_SIMT_MATH_H
#define WEFT_KERNEL_CUDA_KERNELS_SIMT_MATH_H

#define F_INFINITY bits_float(0x7f800000u)
#define F_NAN      bits_float(0x7fc00000u)

/* The nearest integer, for |x| < 2^51. */
DEV double d_round(double x)
{
    return (x + 6755399441055744.0) - 6755399441055744.0;
}

/* e^x to 1.5 ulp. Overflow gives infinity, underflow (below 2^-126) 0. NaN stays NaN. */
DEV float f_exp(float x)
{
    const float c = x > 88.7228f ? 88.7228f : x < -87.33f ? -87.33f : x;
    const float n = f_fma(c, 1.44269504f, 12582912.0f) - 12582912.0f; /* rounded to an integer */
    const float r = f_fma(n, 2.12194440e-4f, f_fma(n, -0.693359375f, c)); /* ln 2 in two parts */
    float p = 1.98756915e-4f;
    p = f_fma(p, r, 1.39819995e-3f);
    p = f_fma(p, r, 8.33345186e-3f);
    p = f_fma(p, r, 4.16657959e-2f);
    p = f_fma(p, r, 1.66666657e-1f);
    p = f_fma(p, r, 5.0e-1f);
    p = f_fma(p, r * r, r) + 1.0f;
    /* Two steps, because 2^128 has no representation while p 2^128 may. */
    const int e = (int)n, half = e >> 1;
    const float y =
        p * bits_float((uint32_t)(half + 127) << 23) * bits_float((uint32_t)(e - half + 127) << 23);
    return x != x ? x : x > 88.7228f ? F_INFINITY : x < -87.33f ? 0.0f : y;
}

DEV double d_exp(double x)
{
    if (x != x || x > 709.7)
        return x != x ? x : bits_double(0x7ff0000000000000ull);
    if (x < -708.0)
        return 0.0;
    const double n = d_round(x * 1.44269504088896340736);
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0;
    for (int k = 14; k > 0; k--)
        p = p * (r / (double)k) + 1.0;
    return p * bits_double((uint64_t)((int64_t)n + 1023) << 52);
}

/* ln x of a normal number, 0 or negative numbers. With x = m 2^e and f = (m - 1) / (m + 1):
 * ln m = 2 (f + f^3/3 + f^5/5 + ...). */
DEV double d_log(double x)
{
    if (!(x > 0.0) || x > 1.7e308)
        return x == 0.0 ? -bits_double(0x7ff0000000000000ull) : x > 0.0 ? x : x - x + 0.0 / 0.0;
    uint64_t bits = double_bits(x);
    int e = (int)(bits >> 52) - 1023;
    double m = bits_double((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.41421356237309505) {
        m *= 0.5;
        e++;
    }
    const double f = (m - 1.0) / (m + 1.0), s = f * f;
    double p = 0.0;
    UNROLL
    for (int k = 21; k > 0; k -= 2)
        p = p * s + 2.0 / (double)k;
    return (double)e * 1.90821492927058770002e-10 + (f * p + (double)e * 0.693147180369123816490);
}

DEV float f_log(float x)
{
    if (!(x > 0.0f) || x == F_INFINITY)
        return x == 0.0f ? -F_INFINITY : x > 0.0f ? x : F_NAN;
    const int tiny = x < 1.17549435e-38f;
    const uint32_t bits = float_bits(tiny ? x * 8388608.0f : x);
    int e = (int)(bits >> 23) - 127 - (tiny ? 23 : 0);
    float m = bits_float((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        e++;
    }
    const float f = (m - 1.0f) / (m + 1.0f), s = f * f;
    float p = 2.0f / 9.0f;
    p = p * s + 2.0f / 7.0f;
    p = p * s + 2.0f / 5.0f;
    p = p * s + 2.0f / 3.0f;
    return (float)e * -2.12194440e-4f + (f * s * p + 2.0f * f + (float)e * 0.693359375f);
}

/* cos and sin of a quarter turn times q, exactly reduced: |r| <= 1/2. */
DEV void d_turn(double q, double *cosine, double *sine)
{
    const double n = d_round(q), x = (q - n) * 1.57079632679489661923, s = x * x;
    const int quarter = (int)((int64_t)n & 3);
    double c = 1.0, d = 1.0;
    UNROLL
    for (int k = 18; k > 0; k -= 2) { /* Taylor series from the last term */
        c = 1.0 - c * s / (double)(k * (k - 1));
        d = 1.0 - d * s / (double)(k * (k + 1));
    }
    d *= x;
    const double a = quarter & 1 ? d : c, b = quarter & 1 ? c : d;
    *cosine = quarter == 1 || quarter == 2 ? -a : a;
    *sine = quarter >= 2 ? -b : b;
}

/* cos and sin of an angle below 2^31. */
DEV void d_rotate(double angle, double *cosine, double *sine)
{
    const double n = d_round(angle * 0.63661977236758134308);
    /* pi / 2 in three parts; the first two have zeros at the end, so that n times them is exact. */
    const double r = ((angle - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) -
                     n * 2.02226624879595063154e-21;
    const double rest = r * 0.63661977236758134308;
    d_turn(rest, cosine, sine);
    const int quarter = (int)((int64_t)n & 3);
    const double c = *cosine, s = *sine;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
}

/* Angles in f64: an f32 reduction loses the digits of large angles, and these ops are small. */
DEV float f_cos(float x)
{
    double c, s;
    d_rotate((double)x, &c, &s);
    return (float)c;
}

DEV float f_sin(float x)
{
    double c, s;
    d_rotate((double)x, &c, &s);
    return (float)s;
}

DEV float f_sigmoid(float x)
{
    return f_reciprocal(1.0f + f_exp(-x));
}

/* An odd polynomial below 0.3, where 1 - 2 / (e^2x + 1) would cancel, and that form above. */
DEV float f_tanh(float x)
{
    const float s = x * x;
    float p = -8.8632355e-3f;
    p = f_fma(p, s, 2.1869488e-2f);
    p = f_fma(p, s, -5.3968254e-2f);
    p = f_fma(p, s, 1.3333333e-1f);
    p = f_fma(p, s, -3.3333333e-1f);
    return s < 0.09f ? x + x * s * p : 1.0f - 2.0f * f_reciprocal(f_exp(x + x) + 1.0f);
}

DEV float f_silu(float x)
{
    return x * f_sigmoid(x);
}

DEV float f_silu_slope(float x)
{
    const float s = f_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = a x + b x^3 */
DEV float f_gelu(float x)
{
    return x * f_sigmoid(2.0f * x * f_fma(0.035677408f, x * x, 0.79788456f));
}

DEV float f_gelu_slope(float x)
{
    const float s = f_sigmoid(2.0f * x * f_fma(0.035677408f, x * x, 0.79788456f));
    return s + x * s * (1.0f - s) * 2.0f * f_fma(0.107032224f, x * x, 0.79788456f);
}

/* The cumulative normal distribution at x, to a relative error of 1e-6 for small values.
 * *bell = e^(-x^2/2). The tail is *bell times a polynomial of t = 1/(1 + z/2). */
DEV float f_normal_below(float x, float *bell)
{
    const float z = 0.70710678f * (x < 0.0f ? -x : x), t = f_reciprocal(1.0f + 0.5f * z);
    *bell = f_exp(-0.5f * x * x);
    float p = -0.059364147f;
    p = f_fma(p, t, 0.28601542f);
    p = f_fma(p, t, -0.49018249f);
    p = f_fma(p, t, 0.28147840f);
    p = f_fma(p, t, -0.028974043f);
    p = f_fma(p, t, 0.20367929f);
    p = f_fma(p, t, 0.24285343f);
    p = f_fma(p, t, 0.28240961f);
    p = f_fma(p, t, 0.28208446f);
    const float tail = 0.5f * *bell * p * t;
    return x < 0.0f ? tail : 1.0f - tail;
}

DEV float f_gelu_exact(float x)
{
    float bell;
    return x * f_normal_below(x, &bell);
}

DEV float f_gelu_exact_slope(float x)
{
    float bell;
    const float below = f_normal_below(x, &bell);
    return below + 0.39894228f * x * bell;
}

/* ---- narrow types ---------------------------------------------------------------------------- */

/* Rounds to nearest, ties to even, as base/dtype.h does. */
DEV uint32_t bf16_of(float x)
{
    const uint32_t bits = float_bits(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) & 0xffffu
                                              : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

DEV float bf16_value(uint32_t bits)
{
    return bits_float(bits << 16);
}

DEV float f16_value(uint32_t bits)
{
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
                   fraction = bits & 1023u;
    if (exponent == 0)
        return bits_float(float_bits((float)fraction * 5.9604644775390625e-8f) | sign);
    return bits_float(exponent == 31 ? sign | 0x7f800000u | fraction << 13
                                     : sign | (exponent + 112) << 23 | fraction << 13);
}

DEV uint32_t f16_of(float x)
{
    const uint32_t all = float_bits(x), sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
    if (bits > 0x7f800000u)
        return sign | 0x7e00u;
    if (bits >= 0x477ff000u) /* 65520 and more */
        return sign | 0x7c00u;
    if (bits < 0x38800000u) /* subnormal in f16: adding 0.5 leaves the rounded fraction */
        return sign | (float_bits(bits_float(bits) + 0.5f) - 0x3f000000u);
    return sign | (bits + 0xc8000fffu + (bits >> 13 & 1u)) >> 13;
}

DEV float f8_value(uint32_t bits)
{
    const uint32_t sign = (bits & 0x80u) << 24, exponent = bits >> 3 & 15u, fraction = bits & 7u;
    if (exponent == 0)
        return bits_float(float_bits((float)fraction * 0.001953125f) | sign);
    return bits_float(exponent == 15 && fraction == 7
                          ? sign | 0x7fc00000u
                          : sign | (exponent + 120) << 23 | fraction << 20);
}

DEV uint32_t f8_of(float x)
{
    const uint32_t all = float_bits(x), sign = all >> 24 & 0x80u, bits = all & 0x7fffffffu;
    if (bits > 0x43e80000u)
        return sign | 0x7fu;
    if (bits < 0x3c800000u) /* below 2^-6: adding 2^14 leaves the rounded multiple of 2^-9 */
        return sign | (float_bits(bits_float(bits) + 16384.0f) - 0x46800000u);
    return sign | (bits + 0xc407ffffu + (bits >> 20 & 1u)) >> 20;
}

#endif
