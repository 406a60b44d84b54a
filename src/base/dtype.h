/* Element types of tensors, and the narrow float conversions. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include "weft/types.h"

#include <stdint.h>
#include <string.h>

/* Bytes of one element. */
static inline int64_t weft_dtype_bytes(weft_dtype dtype)
{
    static const int8_t bytes[WEFT_DTYPE_COUNT] = {4, 2, 2, 1, 4, 8, 1, 8};
    return bytes[dtype];
}

/* "f32", "bf16", "f16", "f8e4m3", "i32", "i64", "u8", "f64". */
static inline const char *weft_dtype_name(weft_dtype dtype)
{
    static const char *const name[WEFT_DTYPE_COUNT] = {"f32", "bf16", "f16", "f8e4m3",
                                                       "i32", "i64",  "u8",  "f64"};
    return name[dtype];
}

static inline int weft_dtype_is_float(weft_dtype dtype)
{
    return dtype <= WEFT_F8E4M3 || dtype == WEFT_F64;
}

static inline float weft_bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t weft_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float weft_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    uint32_t wide;
    float value;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
        value = (float)fraction * 0x1p-24f;
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    } else if (exponent == 31) {
        wide = sign | 0x7f800000 | fraction << 13;
    } else {
        wide = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest, ties to even; over the range becomes infinite. */
static inline uint16_t weft_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) /* 65520 and more */
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* subnormal in f16: adding 0.5 leaves the rounded fraction */
        float tiny;
        memcpy(&tiny, &bits, sizeof tiny);
        tiny += 0.5f;
        memcpy(&bits, &tiny, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xc8000fff + (bits >> 13 & 1); /* exponent bias 127 -> 15, and rounding */
    return (uint16_t)(sign | bits >> 13);
}

/* The "fn" variant: no infinities, 0x7f and 0xff are NaN. */
static inline float weft_f8e4m3_to_f32(uint8_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x80) << 24, exponent = bits >> 3 & 15,
                   fraction = bits & 7;
    uint32_t wide;
    float value;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-9 */
        value = (float)fraction * 0x1p-9f;
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    } else if (exponent == 15 && fraction == 7) {
        wide = sign | 0x7fc00000;
    } else {
        wide = sign | (exponent + 120) << 23 | fraction << 20;
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest, ties to even; beyond 448 becomes NaN, as in the reference frameworks. */
static inline uint8_t weft_f32_to_f8e4m3(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffff;
    if (bits > 0x43e80000) /* 464: halfway between 448 and the next, which does not exist */
        return (uint8_t)(sign | 0x7f);
    if (bits < 0x3c800000) {
        /* below 2^-6: a multiple of 2^-9; adding 2^14 leaves the rounded fraction */
        float tiny;
        memcpy(&tiny, &bits, sizeof tiny);
        tiny += 16384.0f;
        memcpy(&bits, &tiny, sizeof bits);
        return (uint8_t)(sign | (bits - 0x46800000));
    }
    bits += 0xc407ffff + (bits >> 20 & 1); /* exponent bias 127 -> 7, and rounding */
    return (uint8_t)(sign | bits >> 20);
}

#endif
