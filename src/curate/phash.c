#include "curate/phash.h"

#include "video/image.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { SIDE = 64, KEPT = 16 };
/* Of the shorter list every STRIDE-th is looked for, at most SLACK steps from its place. */
enum { STRIDE = 4, SLACK = 2 };

typedef float cosines[KEPT][SIDE];

static void fill_cosines(cosines table)
{
    for (int k = 0; k < KEPT; k++)
        for (int x = 0; x < SIDE; x++)
            table[k][x] = cosf(3.14159265f / SIDE * ((float)x + 0.5f) * (float)(k + 1));
}

/* Coefficients 1 .. 16 of the DCT-II of each row of 64. */
static void transform(cosines table, const float *from, int64_t from_step, float *to, int64_t to_step)
{
    for (int k = 0; k < KEPT; k++) {
        float sum = 0;
        for (int x = 0; x < SIDE; x++)
            sum += from[x * from_step] * table[k][x];
        to[k * to_step] = sum;
    }
}

static float median(const float *values, int count)
{
    float sorted[KEPT * KEPT];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    for (int i = 1; i < count; i++) {
        const float v = sorted[i];
        int j = i;
        for (; j > 0 && sorted[j - 1] > v; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = v;
    }
    return 0.5f * (sorted[count / 2 - 1] + sorted[count / 2]);
}

static void pack(const float *coefficients, weft_phash *hash)
{
    const float middle = median(coefficients, KEPT * KEPT);
    memset(hash, 0, sizeof *hash);
    for (int i = 0; i < KEPT * KEPT; i++)
        if (coefficients[i] > middle)
            hash->word[i / 64] |= (uint64_t)1 << (i % 64);
}

void weft_phash_make(const uint8_t *luma, int64_t width, int64_t height, int64_t stride,
                     weft_phash *hash, weft_phash *mirrored)
{
    uint8_t square[SIDE * SIDE], packed[512 * 512];
    float plane[SIDE * SIDE], rows[SIDE * KEPT], coefficients[KEPT * KEPT];
    if (width > 512 || height > 512) {
        memset(hash, 0, sizeof *hash);
        memset(mirrored, 0, sizeof *mirrored);
        return;
    }
    for (int64_t y = 0; y < height; y++)
        memcpy(packed + y * width, luma + y * stride, (size_t)width);
    weft_image_resize(packed, width, height, 1, square, SIDE, SIDE);
    cosines table;
    fill_cosines(table);
    for (int i = 0; i < SIDE * SIDE; i++)
        plane[i] = square[i];
    for (int y = 0; y < SIDE; y++)
        transform(table, plane + y * SIDE, 1, rows + y * KEPT, 1);
    for (int u = 0; u < KEPT; u++)
        transform(table, rows + u, KEPT, coefficients + u, KEPT);
    pack(coefficients, hash);
    for (int i = 0; i < KEPT * KEPT; i++) /* a mirror turns the sign of odd horizontal frequencies */
        if (i % KEPT % 2 == 0)
            coefficients[i] = -coefficients[i];
    pack(coefficients, mirrored);
}

int weft_phash_distance(const weft_phash *a, const weft_phash *b)
{
    int bits = 0;
    for (int i = 0; i < WEFT_PHASH_WORDS; i++)
        bits += __builtin_popcountll(a->word[i] ^ b->word[i]);
    return bits;
}

double weft_phash_overlap(const weft_phash *a, int64_t a_count, const weft_phash *b, int64_t b_count,
                          int distance)
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
        for (int64_t i = 0; i < a_count && same + (a_count - i + STRIDE - 1) / STRIDE > best; i += STRIDE) {
            bool near = false;
            for (int64_t j = i + shift - SLACK; j <= i + shift + SLACK && !near; j++)
                near = j >= 0 && j < b_count && weft_phash_distance(&a[i], &b[j]) <= distance;
            same += near;
        }
        best = same > best ? same : best;
    }
    return (double)best / (double)samples;
}
