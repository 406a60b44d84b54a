#include "runtime/convert.h"

#include <string.h>

enum { CHUNK = 256 };

static float f8_to_f32(uint8_t bits) /* e4m3: bias 7, no infinity, 0x7f is NaN */
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    if (exponent == 15 && fraction == 7)
        return (bits & 0x80) ? -__builtin_nanf("") : __builtin_nanf("");
    const float value = exponent ? (float)(8 + fraction) * __builtin_ldexpf(1, exponent - 10)
                                 : (float)fraction * 0x1p-9f;
    return (bits & 0x80) ? -value : value;
}

static uint8_t f32_to_f8(float value)
{
    const uint8_t sign = __builtin_signbit(value) ? 0x80 : 0;
    const float size = __builtin_fabsf(value);
    if (size != size)
        return (uint8_t)(sign | 0x7f);
    if (size >= 464) /* half a step over the largest, 448: saturate */
        return (uint8_t)(sign | 0x7e);
    int low = 0, high = 0x7e; /* codes are ordered like their values */
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (f8_to_f32((uint8_t)middle) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < 0x7e) {
        const float below = size - f8_to_f32((uint8_t)low),
                    above = f8_to_f32((uint8_t)(low + 1)) - size;
        if (above < below || (above == below && (low & 1)))
            low++;
    }
    return (uint8_t)(sign | low);
}

static void read_f64(double *to, const void *from, weft_dtype dtype, int64_t at, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case WEFT_F32: to[i] = ((const float *)from)[at + i]; break;
        case WEFT_F64: to[i] = ((const double *)from)[at + i]; break;
        case WEFT_BF16: to[i] = weft_bf16_to_f32(((const uint16_t *)from)[at + i]); break;
        case WEFT_F16: to[i] = weft_f16_to_f32(((const uint16_t *)from)[at + i]); break;
        case WEFT_F8E4M3: to[i] = f8_to_f32(((const uint8_t *)from)[at + i]); break;
        case WEFT_I32: to[i] = ((const int32_t *)from)[at + i]; break;
        case WEFT_I64: to[i] = (double)((const int64_t *)from)[at + i]; break;
        case WEFT_U8: to[i] = ((const uint8_t *)from)[at + i]; break;
        default: to[i] = 0;
        }
    }
}

static void write_f64(void *to, weft_dtype dtype, int64_t at, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case WEFT_F32: ((float *)to)[at + i] = (float)from[i]; break;
        case WEFT_F64: ((double *)to)[at + i] = from[i]; break;
        case WEFT_BF16: ((uint16_t *)to)[at + i] = weft_f32_to_bf16((float)from[i]); break;
        case WEFT_F16: ((uint16_t *)to)[at + i] = weft_f32_to_f16((float)from[i]); break;
        case WEFT_F8E4M3: ((uint8_t *)to)[at + i] = f32_to_f8((float)from[i]); break;
        case WEFT_I32: ((int32_t *)to)[at + i] = (int32_t)from[i]; break;
        case WEFT_I64: ((int64_t *)to)[at + i] = (int64_t)from[i]; break;
        case WEFT_U8: ((uint8_t *)to)[at + i] = (uint8_t)from[i]; break;
        default: break;
        }
    }
}

void weft_convert(void *to, weft_dtype to_dtype, const void *from, weft_dtype from_dtype,
                  int64_t count)
{
    double chunk[CHUNK];
    if (to_dtype == from_dtype) {
        memmove(to, from, (size_t)(count * weft_dtype_bytes(to_dtype)));
        return;
    }
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        read_f64(chunk, from, from_dtype, at, n);
        write_f64(to, to_dtype, at, chunk, n);
    }
}
