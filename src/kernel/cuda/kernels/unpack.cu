/* Packed blocks of GGUF as numbers. Each product and each sum is rounded, because the results must
 * have the bits of format/tensors/quant_blocks.c. */
#include "kernel/cuda/kernels/simt.h"

/* The types, as GGUF files number them. */
enum {
    PACKED_Q4_0 = 2,
    PACKED_Q4_1 = 3,
    PACKED_Q5_0 = 6,
    PACKED_Q5_1 = 7,
    PACKED_Q8_0 = 8,
    PACKED_Q2_K = 10,
    PACKED_Q3_K = 11,
    PACKED_Q4_K = 12,
    PACKED_Q5_K = 13,
    PACKED_Q6_K = 14,
    PACKED_IQ4_NL = 20,
    PACKED_IQ4_XS = 23,
    PACKED_I8 = 24
};

DEV float half_at(const uint8_t *p)
{
    return f16_value(p[0] | (uint32_t)p[1] << 8);
}

DEV int32_t signed_byte(uint8_t x)
{
    return x < 128 ? x : (int32_t)x - 256;
}

/* scale q + add, rounded twice */
DEV float scaled_sum(float scale, int32_t q, float add)
{
    return f_add(f_multiply(scale, (float)q), add);
}

/* Element i of a block of 32: the low halves of 16 bytes, then the high ones. */
DEV int32_t half_byte(const uint8_t *b, int32_t i)
{
    return i < 16 ? b[i] & 15 : b[i - 16] >> 4;
}

DEV int32_t fifth_bit(const uint8_t *b, int32_t i)
{
    return (b[i / 8] >> i % 8 & 1) << 4;
}

DEV float uneven_level(int32_t q)
{
    switch (q) {
    case 0: return -127;
    case 1: return -104;
    case 2: return -83;
    case 3: return -65;
    case 4: return -49;
    case 5: return -35;
    case 6: return -22;
    case 7: return -10;
    case 8: return 1;
    case 9: return 13;
    case 10: return 25;
    case 11: return 38;
    case 12: return 53;
    case 13: return 69;
    case 14: return 89;
    default: return 113;
    }
}

DEV float of_q2_k(const uint8_t *b, int32_t i)
{
    const int32_t k = i / 16, q = b[16 + k / 8 * 32 + k % 2 * 16 + i % 16] >> k / 2 % 4 * 2 & 3;
    return scaled_sum(f_multiply(half_at(b + 80), (float)(b[k] & 15)), q,
                      -f_multiply(half_at(b + 82), (float)(b[k] >> 4)));
}

DEV float of_q3_k(const uint8_t *b, int32_t i)
{
    const int32_t k = i / 16, at = k % 2 * 16 + i % 16;
    const int32_t scale = (b[96 + k % 8] >> k / 8 * 4 & 15) | (b[104 + k % 4] >> k / 4 * 2 & 3)
                                                                  << 4;
    const int32_t q = (b[32 + k / 8 * 32 + at] >> k / 2 % 4 * 2 & 3) - 4 + (b[at] >> k / 2 & 1) * 4;
    return f_multiply(f_multiply(half_at(b + 108), (float)(scale - 32)), (float)q);
}

/* Q4_K, and Q5_K with a fifth bit. Part j of 8 has a scale and a minimum of 6 bits each. */
DEV float of_q45_k(const uint8_t *b, int32_t i, int five)
{
    const int32_t j = i / 32, e = i % 32;
    const uint8_t *s = b + 4, *low = b + (five ? 48 : 16) + j / 2 * 32;
    const int32_t scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4,
                  minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
    const int32_t q = (low[e] >> j % 2 * 4 & 15) | (five ? (b[16 + e] >> j & 1) << 4 : 0);
    return scaled_sum(f_multiply(half_at(b), (float)scale), q,
                      -f_multiply(half_at(b + 2), (float)minimum));
}

DEV float of_q6_k(const uint8_t *b, int32_t i)
{
    const int32_t k = i / 16, half = k / 8, row = k / 2 % 4, at = k % 2 * 16 + i % 16;
    const int32_t q = (b[64 * half + row % 2 * 32 + at] >> row / 2 * 4 & 15) |
                      (b[128 + 32 * half + at] >> 2 * row & 3) << 4;
    return f_multiply(f_multiply(half_at(b + 208), (float)signed_byte(b[192 + k])),
                      (float)(q - 32));
}

DEV float of_iq4_xs(const uint8_t *b, int32_t i)
{
    const int32_t j = i / 32, top = b[2] | b[3] << 8;
    const int32_t scale = (b[4 + j / 2] >> j % 2 * 4 & 15) | (top >> 2 * j & 3) << 4;
    return f_multiply(f_multiply(half_at(b), (float)(scale - 32)),
                      uneven_level(half_byte(b + 8 + 16 * j, i % 32)));
}

/* Element i of a block. */
DEV float unpacked(int32_t type, const uint8_t *b, int32_t i)
{
    switch (type) {
    case PACKED_Q4_0: return f_multiply(half_at(b), (float)(half_byte(b + 2, i) - 8));
    case PACKED_Q4_1: return scaled_sum(half_at(b), half_byte(b + 4, i), half_at(b + 2));
    case PACKED_Q5_0:
        return f_multiply(half_at(b), (float)((half_byte(b + 6, i) | fifth_bit(b + 2, i)) - 16));
    case PACKED_Q5_1:
        return scaled_sum(half_at(b), half_byte(b + 8, i) | fifth_bit(b + 4, i), half_at(b + 2));
    case PACKED_Q8_0: return f_multiply((float)signed_byte(b[2 + i]), half_at(b));
    case PACKED_Q2_K: return of_q2_k(b, i);
    case PACKED_Q3_K: return of_q3_k(b, i);
    case PACKED_Q4_K: return of_q45_k(b, i, 0);
    case PACKED_Q5_K: return of_q45_k(b, i, 1);
    case PACKED_Q6_K: return of_q6_k(b, i);
    case PACKED_IQ4_NL: return f_multiply(half_at(b), uneven_level(half_byte(b + 2, i)));
    case PACKED_IQ4_XS: return of_iq4_xs(b, i);
    case PACKED_I8: return (float)signed_byte(b[0]);
    default: return (float)(b[0] | signed_byte(b[1]) * 256); /* I16 */
    }
}

/* A block a part of a row. */
WEFT_KERNEL(weft_unpack, unpack_args, POINTWISE_THREADS)
{
    const int64_t r = BLOCK(0), c = (int64_t)BLOCK(1) * POINTWISE_THREADS + THREAD(0);
    const int64_t row = a.ids.data ? load_int(a.ids, r) : r;
    const int inside = row >= 0 && row < a.rows;
    if (!inside && c == 0)
        report_id(a.report, row);
    if (c >= a.width)
        return;
    const int64_t block = row * (a.width >> a.shift) + (c >> a.shift);
    const int32_t i = (int32_t)(c & (((int64_t)1 << a.shift) - 1));
    store_float(a.out, r * a.width + c,
                inside ? unpacked(a.type, a.from + block * a.bytes, i) : F_NAN);
}
