#include "format/tensors/quant_blocks.h"

#include "base/config.h"
#include "base/dtype.h"
#include "base/memory.h"

#include <math.h>

static float half_at(const unsigned char *p)
{
    return weft_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t word_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- blocks of 32 --------------------------------------------------------------------------- */

static void expand_q4_0(const unsigned char *b, float *to)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)((b[2 + i] & 15) - 8);
        to[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void expand_q4_1(const unsigned char *b, float *to)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        const float low = d * (float)(b[4 + i] & 15), high = d * (float)(b[4 + i] >> 4);
        to[i] = low + m;
        to[i + 16] = high + m;
    }
}

static int five_bits(const unsigned char *qs, uint32_t fifth, int i)
{
    return (i < 16 ? qs[i] & 15 : qs[i - 16] >> 4) | (int)(fifth >> i & 1) << 4;
}

static void expand_q5_0(const unsigned char *b, float *to)
{
    const float d = half_at(b);
    const uint32_t fifth = word_at(b + 2);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(five_bits(b + 6, fifth, i) - 16);
}

static void expand_q5_1(const unsigned char *b, float *to)
{
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t fifth = word_at(b + 4);
    for (int i = 0; i < 32; i++) {
        const float scaled = d * (float)five_bits(b + 8, fifth, i);
        to[i] = scaled + m;
    }
}

static void expand_q8_0(const unsigned char *b, float *to)
{
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        to[i] = (float)(int8_t)b[2 + i] * d;
}

/* ---- blocks of 256 with scales of their parts ----------------------------------------------- */

static void expand_q2_k(const unsigned char *b, float *to)
{
    const unsigned char *qs = b + 16;
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int k = 0; k < 16; k++) { /* two halves of 32 bytes, four fields of 2 bits each */
        const unsigned char *at = qs + k / 8 * 32 + k % 2 * 16;
        const int shift = k / 2 % 4 * 2;
        const float dl = d * (float)(b[k] & 15), ml = dmin * (float)(b[k] >> 4);
        for (int i = 0; i < 16; i++) {
            const float scaled = dl * (float)(at[i] >> shift & 3);
            to[16 * k + i] = scaled - ml;
        }
    }
}

static void expand_q3_k(const unsigned char *b, float *to)
{
    const unsigned char *mask = b, *qs = b + 32, *scales = b + 96;
    const float d = half_at(b + 108);
    for (int k = 0; k < 16; k++) {
        /* 8 bytes of low nibbles, then the same of high ones; 4 of top bits */
        const int low = scales[k % 8] >> (k / 8 * 4) & 15,
                  top = scales[8 + k % 4] >> (k / 4 * 2) & 3;
        const unsigned char *at = qs + k / 8 * 32 + k % 2 * 16, *borrow = mask + k % 2 * 16;
        const int shift = k / 2 % 4 * 2, bit = k / 2;
        const float dl = d * (float)((low | top << 4) - 32);
        for (int i = 0; i < 16; i++)
            to[16 * k + i] = dl * (float)((at[i] >> shift & 3) - 4 + (borrow[i] >> bit & 1) * 4);
    }
}

/* Part j of 8: its scale and minimum, of 6 bits each.
 *
 *   bytes 0-3    part 0-3: scale in the low 6 bits; above them the top 2 bits of part 4-7's scale
 *   bytes 4-7    the same of the minima
 *   bytes 8-11   part 4-7: low 4 bits of the scale, low 4 bits of the minimum */
static void scale_and_minimum(const unsigned char *s, int j, int *scale, int *minimum)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* Q5_K, with `fifth` (32 bytes, part j's in bit j), or where those are 0 Q4_K. */
static void expand_k(const unsigned char *b, const unsigned char *fifth, const unsigned char *qs,
                     float *to)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        scale_and_minimum(b + 4, j, &scale, &minimum);
        const float dl = d * (float)scale, ml = dmin * (float)minimum;
        const unsigned char *at = qs + j / 2 * 32;
        const int shift = j % 2 * 4;
        for (int i = 0; i < 32; i++) {
            const int q = (at[i] >> shift & 15) | (fifth[i] >> j & 1) << 4;
            const float scaled = dl * (float)q;
            to[32 * j + i] = scaled - ml;
        }
    }
}

static void expand_q4_k(const unsigned char *b, float *to)
{
    static const unsigned char none[32];
    expand_k(b, none, b + 16, to);
}

static void expand_q5_k(const unsigned char *b, float *to)
{
    expand_k(b, b + 16, b + 48, to);
}

static void expand_q6_k(const unsigned char *b, float *to)
{
    const unsigned char *low = b, *high = b + 128, *scales = b + 192;
    const float d = half_at(b + 208);
    for (int k = 0; k < 16; k++) { /* halves of 128: four rows of 32, two scales each */
        const int half = k / 8, row = k / 2 % 4;
        const unsigned char *of_low = low + 64 * half + row % 2 * 32 + k % 2 * 16,
                            *of_high = high + 32 * half + k % 2 * 16;
        const float dl = d * (float)(int8_t)scales[k];
        for (int i = 0; i < 16; i++) {
            const int q = (of_low[i] >> (row / 2 * 4) & 15) | (of_high[i] >> (2 * row) & 3) << 4;
            to[16 * k + i] = dl * (float)(q - 32);
        }
    }
}

static const float uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

static void expand_iq4_nl(const unsigned char *b, float *to)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        to[i] = d * uneven[b[2 + i] & 15];
        to[i + 16] = d * uneven[b[2 + i] >> 4];
    }
}

static void expand_iq4_xs(const unsigned char *b, float *to)
{
    const float d = half_at(b);
    const int top = b[2] | b[3] << 8;
    for (int j = 0; j < 8; j++) {
        const int scale = (b[4 + j / 2] >> (j % 2 * 4) & 15) | (top >> (2 * j) & 3) << 4;
        const float dl = d * (float)(scale - 32);
        for (int i = 0; i < 16; i++) {
            to[32 * j + i] = dl * uneven[b[8 + 16 * j + i] & 15];
            to[32 * j + 16 + i] = dl * uneven[b[8 + 16 * j + i] >> 4];
        }
    }
}

/* ---- single elements ------------------------------------------------------------------------ */

static void expand_e5m2(const unsigned char *b, float *to)
{
    *to = weft_f8e5m2_to_f32(*b);
}

static void expand_i16(const unsigned char *b, float *to)
{
    *to = (float)(int16_t)(b[0] | b[1] << 8);
}

static void expand_i8(const unsigned char *b, float *to)
{
    *to = (float)(int8_t)*b;
}

/* clang-format off */
static const weft_packing packings[] = {
    {"Q4_0",    2,  32,  18,  expand_q4_0},
    {"Q4_1",    3,  32,  20,  expand_q4_1},
    {"Q5_0",    6,  32,  22,  expand_q5_0},
    {"Q5_1",    7,  32,  24,  expand_q5_1},
    {"Q8_0",    8,  32,  34,  expand_q8_0},
    {"Q2_K",    10, 256, 84,  expand_q2_k},
    {"Q3_K",    11, 256, 110, expand_q3_k},
    {"Q4_K",    12, 256, 144, expand_q4_k},
    {"Q5_K",    13, 256, 176, expand_q5_k},
    {"Q6_K",    14, 256, 210, expand_q6_k},
    {"IQ4_NL",  20, 32,  18,  expand_iq4_nl},
    {"IQ4_XS",  23, 256, 136, expand_iq4_xs},
    {"F8_E5M2", -1, 1,   1,   expand_e5m2},
    {"I8",      24, 1,   1,   expand_i8},
    {"I16",     25, 1,   2,   expand_i16},
};
/* clang-format on */

const weft_packing *weft_packing_find(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(packings); i++)
        if (!strcmp(packings[i].name, name))
            return &packings[i];
    return NULL;
}

const weft_packing *weft_packing_gguf(int64_t type)
{
    for (int i = 0; i < WEFT_COUNT(packings); i++)
        if (packings[i].gguf == type && type >= 0)
            return &packings[i];
    return NULL;
}

void weft_int8_pack(const float *row, int64_t blocks, int64_t elements, unsigned char *to)
{
    for (; blocks > 0; blocks--, row += elements, to += 2 + elements) {
        float most = 0;
        for (int64_t i = 0; i < elements; i++)
            most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
        const uint16_t scale = weft_f32_to_f16(most / 127);
        const float unit = weft_f16_to_f32(scale), inverse = unit > 0 ? 1 / unit : 0;
        to[0] = (unsigned char)scale;
        to[1] = (unsigned char)(scale >> 8);
        for (int64_t i = 0; i < elements; i++) {
            const float q = rintf(row[i] * inverse);
            to[2 + i] = (unsigned char)(int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        }
    }
}

void weft_packing_expand(const weft_packing *p, const void *data, int64_t first, int64_t count,
                         float *to)
{
    const unsigned char *block = (const unsigned char *)data + first / p->elements * p->bytes;
    int64_t skip = first % p->elements;
    for (; count > 0; block += p->bytes) {
        const int64_t here = p->elements - skip < count ? p->elements - skip : count;
        if (here == p->elements) {
            p->expand(block, to);
        } else {
            float all[WEFT_PACKING_MOST];
            p->expand(block, all);
            memcpy(to, all + skip, (size_t)here * sizeof *to);
        }
        to += here;
        count -= here;
        skip = 0;
    }
}
