/* Packed number formats that exist only in files: blocks of small integers with their own scales
 * (GGUF), and byte types that graphs do not have. Loading expands them to f32.
 *
 *   Q4_0, 18 bytes:    | d f16 | 16 x (element i + 16 : 4 bits, element i : 4 bits) |   d * (q - 8)
 *   Q4_K, 144 bytes:   | d f16 | dmin f16 | 12 bytes: 8 scales and 8 minima of 6 bits | 128 bytes |
 *
 * The arithmetic is ggml's reference arithmetic, in f32 and in the same order, bitwise. */
#ifndef WEFT_FORMAT_TENSORS_QUANT_BLOCKS_H
#define WEFT_FORMAT_TENSORS_QUANT_BLOCKS_H

#include "base/dtype.h"

enum { WEFT_PACKING_MOST = 256 }; /* elements of a block */

typedef struct weft_packing {
    const char *name;    /* "Q4_K" */
    int gguf;            /* its number in a GGUF file; -1: none */
    int elements, bytes; /* elements and bytes per block */
    void (*expand)(const unsigned char *block, float *to);
} weft_packing;

const weft_packing *weft_packing_find(const char *name); /* NULL: unknown */
const weft_packing *weft_packing_gguf(int64_t type);     /* NULL: none */

/* Elements [first, first + count) of packed data, wherever blocks begin. */
void weft_packing_expand(const weft_packing *p, const void *data, int64_t first, int64_t count,
                         float *to);

/* Rounds `blocks` blocks of a row to an f16 scale and `elements` signed bytes each: 2 + elements
 * bytes (Q8_0 if elements is 32). The largest value of a block becomes 127 or -127. */
void weft_int8_pack(const float *row, int64_t blocks, int64_t elements, unsigned char *to);

/* The upper half of an f16: 5 bits of exponent, infinities and NaN as there. */
static inline float weft_f8e5m2_to_f32(uint8_t bits)
{
    return weft_f16_to_f32((uint16_t)(bits << 8));
}

/* Round to nearest, ties to even; over the range becomes infinite. */
static inline uint8_t weft_f32_to_f8e5m2(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (bits >= 0x47700000) /* 61440: halfway between 57344 and the next, which does not exist */
        return (uint8_t)(sign | 0x7c);
    if (bits < 0x38800000) { /* below 2^-14: a multiple of 2^-16; adding 2^7 leaves the fraction */
        float tiny;
        memcpy(&tiny, &bits, sizeof tiny);
        tiny += 128.0f;
        memcpy(&bits, &tiny, sizeof bits);
        return (uint8_t)(sign | (bits - 0x43000000));
    }
    bits += 0xc80fffff + (bits >> 21 & 1); /* exponent bias 127 -> 15, and rounding */
    return (uint8_t)(sign | bits >> 21);
}

#endif
