#include "data/row_fill.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

weft_status weft_row_fill_create(const int64_t *tokens, int kinds, int64_t row, int64_t places,
                                 weft_row_fill *fill)
{
    *fill = (weft_row_fill){.tokens = tokens, .kinds = kinds, .places = places};
    for (int k = 0; k < kinds; k++)
        fill->unit = common_divisor(tokens[k], fill->unit);
    for (int k = 0; k < kinds; k++) {
        const int64_t bits = tokens[k] / fill->unit;
        fill->low = k == 0 || bits < fill->low ? bits : fill->low;
        fill->high = bits > fill->high ? bits : fill->high;
    }
    fill->words = fill->unit ? row / fill->unit / 64 + 1 : 1;
    const double sets = ((double)kinds + 1) * ((double)places + 1);
    if (sets * (double)fill->words * 8 > (double)WEFT_ROW_FILL_LIMIT)
        return WEFT_OK;
    return WEFT_NEW(fill->sums, (kinds + 1) * (places + 1) * fill->words, "sums of a row");
}

void weft_row_fill_free(weft_row_fill *fill)
{
    weft_free(fill->sums);
    *fill = (weft_row_fill){0};
}

/* The sums of `samples` samples of the first `kinds` kinds. */
static uint64_t *sums_of(const weft_row_fill *f, int kinds, int64_t samples)
{
    return f->sums + (kinds * (f->places + 1) + samples) * f->words;
}

static bool has(const uint64_t *sums, int64_t sum)
{
    return sums[sum / 64] >> (sum % 64) & 1;
}

/* A range of words of a set. */
typedef struct word_range {
    int64_t first, end;
} word_range;

/* The words that the sums of `samples` samples can be in. All others are 0 at all times. */
static word_range words_of(const weft_row_fill *f, int64_t samples)
{
    const int64_t end = samples * f->high / 64 + 1;
    return (word_range){samples * f->low / 64, end < f->words ? end : f->words};
}

/* Adds the sums of `from`, each plus `shift`, to `to`, which is another set. */
static void add_shifted(uint64_t *restrict to, const uint64_t *restrict from, word_range range,
                        int64_t words, int64_t shift)
{
    const int64_t word = shift / 64;
    const int bit = (int)(shift % 64);
    const int64_t end = range.end < words - word ? range.end : words - word;
    for (int64_t w = range.first; w < end; w++)
        to[w + word] |= from[w] << bit;
    if (bit == 0)
        return;
    for (int64_t w = range.first; w < end && w + word + 1 < words; w++)
        to[w + word + 1] |= from[w] >> (64 - bit);
}

/* Adds `group` samples of a kind, all or none, to the sums of `kinds` kinds. */
static void add_group(weft_row_fill *f, int kinds, int64_t group, int64_t tokens, int64_t places)
{
    for (int64_t n = places; n >= group; n--)
        add_shifted(sums_of(f, kinds, n), sums_of(f, kinds, n - group), words_of(f, n - group),
                    f->words, group * tokens / f->unit);
}

/* Copies the sums of one kind fewer. */
static void copy_sums(weft_row_fill *f, int kinds, int64_t places)
{
    for (int64_t n = 0; n <= places; n++) {
        const word_range r = words_of(f, n);
        if (r.first < r.end)
            memcpy(sums_of(f, kinds, n) + r.first, sums_of(f, kinds - 1, n) + r.first,
                   (size_t)(r.end - r.first) * sizeof *f->sums);
    }
}

/* Computes the sums of all kinds. Groups of 1, 2, 4, ... samples of a kind, and of the rest, have
 * all numbers of samples together: the time is logarithmic in the samples. */
static void add_kinds(weft_row_fill *f, const int64_t *available, int64_t places)
{
    f->sums[0] = 1; /* no sample has the sum 0, and without kinds this is the only sum */
    for (int k = 0; k < f->kinds; k++) {
        int64_t left = available[k] < places ? available[k] : places;
        copy_sums(f, k + 1, places);
        for (int64_t group = 1; left > 0; group *= 2) {
            const int64_t own = group < left ? group : left;
            add_group(f, k + 1, own, f->tokens[k], places);
            left -= own;
        }
    }
}

/* Chooses a number of samples and a sum of up to `most`. */
static void choose_sum(const weft_row_fill *f, int64_t most, int64_t least, int64_t places,
                       int64_t wanted, int64_t *samples, int64_t *sum)
{
    *samples = *sum = 0;
    for (int64_t n = 0; n <= places; n++) {
        const uint64_t *sums = sums_of(f, f->kinds, n);
        int64_t s = most < n * f->high ? most : n * f->high;
        while (s >= n * f->low && !has(sums, s))
            s--;
        if (s < n * f->low)
            continue;
        const bool full = s >= least, was = *sum >= least;
        const int64_t far = llabs(n - wanted), before = llabs(*samples - wanted);
        if (full && was ? far < before || (far == before && s > *sum) : s > *sum) {
            *samples = n;
            *sum = s;
        }
    }
}

bool weft_row_fill_choose(weft_row_fill *f, const int64_t *available, int64_t left, int64_t places,
                          int64_t wanted, int64_t slack, int64_t *count)
{
    int64_t samples, sum;
    if (!f->sums)
        return false;
    memset(count, 0, (size_t)f->kinds * sizeof *count);
    add_kinds(f, available, places);
    choose_sum(f, left / f->unit, (left - slack) / f->unit, places, wanted, &samples, &sum);
    for (int k = f->kinds - 1; k >= 0; k--) { /* samples of kind k: as few as possible */
        const int64_t tokens = f->tokens[k] / f->unit;
        while (!has(sums_of(f, k, samples), sum)) {
            count[k]++;
            samples--;
            sum -= tokens;
        }
    }
    return true;
}
