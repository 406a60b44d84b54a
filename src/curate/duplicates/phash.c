#include "curate/duplicates/phash.h"

#include "base/hex.h"
#include "video/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, FREQUENCIES = 16, GRID = 4 };
/* Frames are searched at most SLACK steps from the expected position. */
enum { STRIDE = WEFT_PHASH_STRIDE, SLACK = 2 };

typedef float cosines[FREQUENCIES][SIDE];

static void fill_cosines(cosines table)
{
    for (int k = 0; k < FREQUENCIES; k++)
        for (int x = 0; x < SIDE; x++)
            table[k][x] = cosf(3.14159265f / SIDE * ((float)x + 0.5f) * (float)(k + 1));
}

/* Coefficients 1 .. 16 of the DCT-II of each row of 64. */
static void transform(cosines table, const float *from, int64_t from_step, float *to,
                      int64_t to_step)
{
    for (int k = 0; k < FREQUENCIES; k++) {
        float sum = 0;
        for (int x = 0; x < SIDE; x++)
            sum += from[x * from_step] * table[k][x];
        to[k * to_step] = sum;
    }
}

/* Means of the cells of a plane. */
static void cell_means(const uint8_t *plane, int64_t stride, int64_t width, int64_t height,
                       uint8_t to[WEFT_PHASH_CELLS])
{
    for (int64_t v = 0; v < GRID; v++)
        for (int64_t u = 0; u < GRID; u++) {
            const int64_t x0 = u * width / GRID, x1 = (u + 1) * width / GRID;
            const int64_t y0 = v * height / GRID, y1 = (v + 1) * height / GRID;
            int64_t sum = 0, count = (x1 - x0) * (y1 - y0);
            for (int64_t y = y0; y < y1; y++)
                for (int64_t x = x0; x < x1; x++)
                    sum += plane[y * stride + x];
            to[v * GRID + u] = (uint8_t)(count ? (sum + count / 2) / count : 128);
        }
}

void weft_phash_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                     int64_t height, weft_phash *hash)
{
    uint8_t square[SIDE * SIDE], packed[512 * 512];
    float luma[SIDE * SIDE], rows[SIDE * FREQUENCIES], coefficients[FREQUENCIES * FREQUENCIES];
    memset(hash, 0, sizeof *hash);
    if (width > 512 || height > 512)
        return;
    for (int64_t y = 0; y < height; y++)
        memcpy(packed + y * width, plane[0] + y * stride[0], (size_t)width);
    weft_image_resize(packed, width, height, 1, square, SIDE, SIDE);
    cosines table;
    fill_cosines(table);
    for (int i = 0; i < SIDE * SIDE; i++)
        luma[i] = square[i];
    for (int y = 0; y < SIDE; y++)
        transform(table, luma + y * SIDE, 1, rows + y * FREQUENCIES, 1);
    for (int u = 0; u < FREQUENCIES; u++)
        transform(table, rows + u, FREQUENCIES, coefficients + u, FREQUENCIES);
    for (int i = 0; i < FREQUENCIES * FREQUENCIES; i++)
        hash->word[i / 64] |= (uint64_t)(coefficients[i] > 0) << (i % 64);
    cell_means(plane[1], stride[1], width, height, hash->cb);
    cell_means(plane[2], stride[2], width, height, hash->cr);
}

/* A mirror flips the sign of the odd horizontal frequencies: every second of a row of 16, from the
 * first on. */
weft_phash weft_phash_mirror(const weft_phash *hash)
{
    weft_phash m;
    for (int w = 0; w < WEFT_PHASH_WORDS; w++)
        m.word[w] = hash->word[w] ^ 0x5555555555555555u;
    for (int i = 0; i < WEFT_PHASH_CELLS; i++) {
        m.cb[i] = hash->cb[i / GRID * GRID + GRID - 1 - i % GRID];
        m.cr[i] = hash->cr[i / GRID * GRID + GRID - 1 - i % GRID];
    }
    return m;
}

int weft_phash_distance(const weft_phash *a, const weft_phash *b)
{
    int bits = 0;
    for (int i = 0; i < WEFT_PHASH_WORDS; i++)
        bits += __builtin_popcountll(a->word[i] ^ b->word[i]);
    return bits;
}

bool weft_phash_same(const weft_phash *a, const weft_phash *b, weft_phash_limits limits)
{
    if (weft_phash_distance(a, b) > limits.bits)
        return false;
    for (int i = 0; i < WEFT_PHASH_CELLS; i++)
        if (abs(a->cb[i] - b->cb[i]) > limits.colour || abs(a->cr[i] - b->cr[i]) > limits.colour)
            return false;
    return true;
}

void weft_phash_print(const weft_phash *hash, char text[WEFT_PHASH_TEXT])
{
    for (int w = 0; w < WEFT_PHASH_WORDS; w++)
        weft_hex_print(hash->word[w], text + 16 * w);
    for (int i = 0; i < WEFT_PHASH_CELLS; i += 4) {
        uint64_t four = 0;
        for (int k = i; k < i + 4; k++)
            four = four << 16 | (uint64_t)hash->cb[k] << 8 | hash->cr[k];
        weft_hex_print(four, text + 64 + 4 * i);
    }
}

bool weft_phash_parse(const char *text, weft_phash *hash)
{
    uint64_t number[WEFT_PHASH_TEXT / 16];
    if (!text || strlen(text) != WEFT_PHASH_TEXT - 1)
        return false;
    for (int n = 0; n < WEFT_PHASH_TEXT / 16; n++) {
        char digits[WEFT_HEX_BYTES] = {0};
        memcpy(digits, text + 16 * n, 16);
        if (!weft_hex_parse(digits, &number[n]))
            return false;
    }
    memcpy(hash->word, number, sizeof hash->word);
    for (int i = 0; i < WEFT_PHASH_CELLS; i++) {
        const uint64_t four = number[WEFT_PHASH_WORDS + i / 4] >> (48 - 16 * (i % 4));
        hash->cb[i] = (uint8_t)(four >> 8);
        hash->cr[i] = (uint8_t)four;
    }
    return true;
}

double weft_phash_overlap(const weft_phash *a, int64_t a_count, const weft_phash *b,
                          int64_t b_count, weft_phash_limits limits)
{
    if (a_count < 1 || b_count < 1)
        return 0;
    if (a_count > b_count) {
        const weft_phash *t = a;
        const int64_t n = a_count;
        a = b, a_count = b_count;
        b = t, b_count = n;
    }
    const int64_t samples = (a_count + STRIDE - 1) / STRIDE;
    int64_t best = 0;
    /* Half of the shorter may hang over either end. */
    for (int64_t shift = -a_count / 2; shift <= b_count - (a_count + 1) / 2; shift++) {
        int64_t same = 0;
        for (int64_t i = 0; i < a_count && same + (a_count - i + STRIDE - 1) / STRIDE > best;
             i += STRIDE) {
            bool near = false;
            for (int64_t j = i + shift - SLACK; j <= i + shift + SLACK && !near; j++)
                near = j >= 0 && j < b_count && weft_phash_same(&a[i], &b[j], limits);
            same += near;
        }
        best = same > best ? same : best;
    }
    return (double)best / (double)samples;
}
