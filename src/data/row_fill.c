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

/* Adds the sums of `from`, each plus `shift`, to `to`. */
static void add_shifted(uint64_t *to, const uint64_t *from, int64_t words, int64_t shift)
{
    const int64_t word = shift / 64;
    const int bit = (int)(shift % 64);
    for (int64_t w = words - 1; w >= word; w--) {
        uint64_t moved = from[w - word] << bit;
        if (bit && w > word)
            moved |= from[w - word - 1] >> (64 - bit);
        to[w] |= moved;
    }
}

/* Computes the sums of all kinds. A further sample of a kind adds to the sums with one fewer. */
static void add_kinds(weft_row_fill *f, const int64_t *available, int64_t places)
{
    const int64_t bytes = (f->places + 1) * f->words * (int64_t)sizeof *f->sums;
    memset(f->sums, 0, (size_t)bytes);
    f->sums[0] = 1; /* no sample has the sum 0 */
    for (int k = 0; k < f->kinds; k++) {
        memcpy(sums_of(f, k + 1, 0), sums_of(f, k, 0), (size_t)bytes);
        for (int64_t i = 0; i < available[k] && i < places; i++)
            for (int64_t n = places; n > 0; n--)
                add_shifted(sums_of(f, k + 1, n), sums_of(f, k + 1, n - 1), f->words,
                            f->tokens[k] / f->unit);
    }
}

/* Chooses a number of samples and a sum of up to `most`. */
static void choose_sum(const weft_row_fill *f, int64_t most, int64_t least, int64_t places,
                       int64_t wanted, int64_t *samples, int64_t *sum)
{
    *samples = *sum = 0;
    for (int64_t n = 0; n <= places; n++) {
        const uint64_t *sums = sums_of(f, f->kinds, n);
        int64_t s = most;
        while (s >= 0 && !has(sums, s))
            s--;
        if (s < 0)
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
