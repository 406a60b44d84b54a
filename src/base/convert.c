#include "base/convert.h"

#include <math.h>
#include <stdbool.h>

enum { CHUNK = 256 };

/* Any type through f64, a chunk at a time; `from` and `to` need not be aligned. */
static void read_f64(double *to, const void *from, weft_dtype dtype, int64_t count)
{
    char raw[CHUNK * 8] __attribute__((aligned(8)));
    memcpy(raw, from, (size_t)(count * weft_dtype_bytes(dtype)));
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case WEFT_F32: to[i] = ((const float *)raw)[i]; break;
        case WEFT_F64: to[i] = ((const double *)raw)[i]; break;
        case WEFT_BF16: to[i] = weft_bf16_to_f32(((const uint16_t *)raw)[i]); break;
        case WEFT_F16: to[i] = weft_f16_to_f32(((const uint16_t *)raw)[i]); break;
        case WEFT_F8E4M3: to[i] = weft_f8e4m3_to_f32(((const uint8_t *)raw)[i]); break;
        case WEFT_I32: to[i] = ((const int32_t *)raw)[i]; break;
        case WEFT_I64: to[i] = (double)((const int64_t *)raw)[i]; break;
        case WEFT_U8: to[i] = ((const uint8_t *)raw)[i]; break;
        default: to[i] = 0;
        }
    }
}

static void write_f64(void *to, weft_dtype dtype, const double *from, int64_t count)
{
    char raw[CHUNK * 8] __attribute__((aligned(8)));
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case WEFT_F32: ((float *)raw)[i] = (float)from[i]; break;
        case WEFT_F64: ((double *)raw)[i] = from[i]; break;
        case WEFT_BF16: ((uint16_t *)raw)[i] = weft_f32_to_bf16((float)from[i]); break;
        case WEFT_F16: ((uint16_t *)raw)[i] = weft_f32_to_f16((float)from[i]); break;
        case WEFT_F8E4M3:
            ((uint8_t *)raw)[i] = weft_f32_to_f8e4m3(weft_f8e4m3_clamp((float)from[i]));
            break;
        case WEFT_I32: ((int32_t *)raw)[i] = (int32_t)from[i]; break;
        case WEFT_I64: ((int64_t *)raw)[i] = (int64_t)from[i]; break;
        case WEFT_U8: ((uint8_t *)raw)[i] = (uint8_t)from[i]; break;
        default: break;
        }
    }
    memcpy(to, raw, (size_t)(count * weft_dtype_bytes(dtype)));
}

/* bf16 and f16 to f32 and back, as sums of ranks need them: the same values as through f64. */
typedef uint16_t any_u16 __attribute__((aligned(1)));
typedef float any_f32 __attribute__((aligned(1)));

static bool convert_half(void *to, weft_dtype to_dtype, const void *from, weft_dtype from_dtype,
                         int64_t count)
{
    if (to_dtype == WEFT_F32 && from_dtype == WEFT_BF16)
        for (int64_t i = 0; i < count; i++)
            ((any_f32 *)to)[i] = weft_bf16_to_f32(((const any_u16 *)from)[i]);
    else if (to_dtype == WEFT_F32 && from_dtype == WEFT_F16)
        for (int64_t i = 0; i < count; i++)
            ((any_f32 *)to)[i] = weft_f16_to_f32(((const any_u16 *)from)[i]);
    else if (to_dtype == WEFT_BF16 && from_dtype == WEFT_F32)
        for (int64_t i = 0; i < count; i++)
            ((any_u16 *)to)[i] = weft_f32_to_bf16(((const any_f32 *)from)[i]);
    else if (to_dtype == WEFT_F16 && from_dtype == WEFT_F32)
        for (int64_t i = 0; i < count; i++)
            ((any_u16 *)to)[i] = weft_f32_to_f16(((const any_f32 *)from)[i]);
    else
        return false;
    return true;
}

void weft_convert(void *to, weft_dtype to_dtype, const void *from, weft_dtype from_dtype,
                  int64_t count)
{
    double chunk[CHUNK];
    if (to_dtype == from_dtype) {
        memmove(to, from, (size_t)(count * weft_dtype_bytes(to_dtype)));
        return;
    }
    if (convert_half(to, to_dtype, from, from_dtype, count))
        return;
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        read_f64(chunk, (const char *)from + at * weft_dtype_bytes(from_dtype), from_dtype, n);
        write_f64((char *)to + at * weft_dtype_bytes(to_dtype), to_dtype, chunk, n);
    }
}

/* ---- finite elements ------------------------------------------------------------------------ */

typedef uint32_t any_u32 __attribute__((aligned(1)));

/* Whether an element of the block has an exponent of ones only. */
static bool has_full_u16(const any_u16 *bits, uint16_t exponent, int64_t count)
{
    uint16_t full = 0;
    for (int64_t i = 0; i < count; i++)
        full = (uint16_t)(full | ((bits[i] & exponent) == exponent));
    return full != 0;
}

static bool has_full_u32(const any_u32 *bits, int64_t count)
{
    uint32_t full = 0;
    for (int64_t i = 0; i < count; i++)
        full |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    return full != 0;
}

/* True where the types' bits do not answer it. */
static bool may_be_infinite(const void *data, weft_dtype dtype, int64_t count)
{
    switch (dtype) {
    case WEFT_F32: return has_full_u32(data, count);
    case WEFT_BF16: return has_full_u16(data, 0x7f80, count);
    case WEFT_F16: return has_full_u16(data, 0x7c00, count);
    default: return weft_dtype_is_float(dtype);
    }
}

int64_t weft_first_not_finite(const void *data, weft_dtype dtype, int64_t count)
{
    double chunk[CHUNK];
    const int64_t bytes = weft_dtype_bytes(dtype);
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        const char *from = (const char *)data + at * bytes;
        if (!may_be_infinite(from, dtype, n))
            continue;
        read_f64(chunk, from, dtype, n);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(chunk[i]))
                return at + i;
    }
    return -1;
}
