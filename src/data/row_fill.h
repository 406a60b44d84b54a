/* Chooses samples that fill a row of tokens.
 *
 * Samples have one of a few token counts (kinds). For every number of samples, the sums of tokens
 * that the available samples can have are computed as bits, one kind after the other. The fullest
 * row is then read back. */
#ifndef WEFT_DATA_ROW_FILL_H
#define WEFT_DATA_ROW_FILL_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_row_fill {
    const int64_t *tokens; /* [kinds] borrowed: tokens of a sample of each kind */
    int kinds;
    int64_t places;    /* maximum number of samples */
    int64_t unit;      /* tokens of a bit: their greatest common divisor */
    int64_t low, high; /* bits of the kinds with the fewest and with the most tokens */
    int64_t words;     /* 64-bit words of a set of sums */
    uint64_t *sums;    /* owned; [kinds + 1][places + 1][words]; NULL: more than the memory limit */
} weft_row_fill;

/* Bytes of `sums` above which a row is not computed. */
#define WEFT_ROW_FILL_LIMIT ((int64_t)64 << 20)

/* Reserves memory for rows of up to `row` tokens and `places` samples. `tokens` are above 0. */
weft_status weft_row_fill_create(const int64_t *tokens, int kinds, int64_t row, int64_t places,
                                 weft_row_fill *fill);
void weft_row_fill_free(weft_row_fill *fill);
/* Sets count[kind], at most available[kind] and at most `places` together, for up to `left` tokens.
 * Of the sums within `slack` tokens of `left`, the one whose number of samples is nearest to
 * `wanted` is chosen, then the largest one; else the largest sum. False: fill->sums is NULL. */
bool weft_row_fill_choose(weft_row_fill *fill, const int64_t *available, int64_t left,
                          int64_t places, int64_t wanted, int64_t slack, int64_t *count);

#endif
