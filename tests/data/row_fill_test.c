#include "data/row_fill.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 3 };

static int64_t tokens_of(const int64_t *tokens, const int64_t *count)
{
    int64_t sum = 0;
    for (int k = 0; k < KINDS; k++)
        sum += tokens[k] * count[k];
    return sum;
}

/* The rule of the header by enumeration: samples and tokens of the choice. */
static void enumerate(const int64_t *tokens, const int64_t *available, int64_t left, int64_t places,
                      int64_t wanted, int64_t slack, int64_t best[2])
{
    int64_t n[KINDS];
    best[0] = best[1] = 0;
    for (n[0] = 0; n[0] <= available[0]; n[0]++)
        for (n[1] = 0; n[1] <= available[1]; n[1]++)
            for (n[2] = 0; n[2] <= available[2]; n[2]++) {
                const int64_t sum = tokens_of(tokens, n), samples = n[0] + n[1] + n[2];
                if (sum > left || samples > places)
                    continue;
                const bool full = sum >= left - slack, was = best[1] >= left - slack;
                const int64_t far = llabs(samples - wanted), before = llabs(best[0] - wanted);
                const bool better =
                    full && was ? far < before || (far == before && sum > best[1]) : sum > best[1];
                /* fewer samples win if all else is equal */
                if (better || (sum == best[1] && far == before && samples < best[0])) {
                    best[0] = samples;
                    best[1] = sum;
                }
            }
}

Test(row_fill, equals_enumeration)
{
    uint32_t random = 7;
    for (int i = 0; i < 3000; i++) {
        int64_t number[12], count[KINDS], best[2];
        for (int k = 0; k < 12; k++) {
            random = random * 1664525 + 1013904223;
            number[k] = random >> 8;
        }
        const int64_t unit = 1 + number[0] % 3;
        const int64_t tokens[KINDS] = {unit * (1 + number[1] % 40), unit * (1 + number[2] % 90),
                                       unit * (1 + number[3] % 200)},
                      available[KINDS] = {number[4] % 6, number[5] % 6, number[6] % 4},
                      row = unit * (200 + number[7] % 300), places = 1 + number[8] % 12,
                      left = row * (number[9] % 101) / 100, wanted = number[10] % 12;
        weft_row_fill fill;
        cr_assert_eq(weft_row_fill_create(tokens, KINDS, row, places, &fill), WEFT_OK);
        cr_assert(weft_row_fill_choose(&fill, available, left, places, wanted, 0, count));
        enumerate(tokens, available, left, places, wanted, 0, best);
        int64_t samples = 0;
        for (int k = 0; k < KINDS; k++) {
            cr_assert(count[k] >= 0 && count[k] <= available[k]);
            samples += count[k];
        }
        cr_assert_leq(samples, places);
        cr_assert_eq(tokens_of(tokens, count), best[1], "case %d", i);
        weft_row_fill_free(&fill);
    }
}

/* Near a full row, the number of samples decides. */
Test(row_fill, prefers_the_wanted_number_of_samples)
{
    const int64_t tokens[KINDS] = {10, 30, 59}, available[KINDS] = {6, 2, 1};
    int64_t count[KINDS];
    weft_row_fill fill;
    cr_assert_eq(weft_row_fill_create(tokens, KINDS, 100, 8, &fill), WEFT_OK);
    const struct {
        int64_t wanted, places, count[KINDS];
    } cases[] = {
        {6, 8, {4, 2, 0}}, /* 100 tokens */
        {5, 8, {4, 0, 1}}, /* 99 tokens; 100 have 6 samples */
        {3, 8, {1, 1, 1}}, /* 99 tokens */
        {6, 3, {1, 1, 1}}, /* no more than 3 samples */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(weft_row_fill_choose(&fill, available, 100, cases[i].places, cases[i].wanted, 1,
                                       count));
        cr_assert(memcmp(count, cases[i].count, sizeof count) == 0, "case %zu: %d %d %d", i,
                  (int)count[0], (int)count[1], (int)count[2]);
    }
    weft_row_fill_free(&fill);
}

/* More sums than the memory limit: the caller chooses otherwise. */
Test(row_fill, large_rows_are_refused)
{
    const int64_t tokens[KINDS] = {1, 2, 3}, available[KINDS] = {1, 1, 1};
    int64_t count[KINDS];
    weft_row_fill fill;
    cr_assert_eq(weft_row_fill_create(tokens, KINDS, (int64_t)1 << 30, 4096, &fill), WEFT_OK);
    cr_assert_null(fill.sums);
    cr_assert_not(weft_row_fill_choose(&fill, available, 6, 3, 3, 0, count));
    weft_row_fill_free(&fill);
}

/* Many samples of a kind are added in groups: the largest sum is the one of their best number. */
Test(row_fill, many_samples_of_few_kinds)
{
    const int64_t tokens[KINDS] = {7, 12, 31}, available[KINDS] = {90, 61, 33};
    for (int64_t left = 700; left <= 1500; left += 53) {
        weft_row_fill fill;
        int64_t count[KINDS], best[2];
        cr_assert_eq(weft_row_fill_create(tokens, KINDS, 1500, 100, &fill), WEFT_OK);
        cr_assert(weft_row_fill_choose(&fill, available, left, 100, 50, 0, count));
        enumerate(tokens, available, left, 100, 50, 0, best);
        cr_assert_eq(tokens_of(tokens, count), best[1]);
        cr_assert_eq(count[0] + count[1] + count[2], best[0]);
        for (int k = 0; k < KINDS; k++)
            cr_assert(count[k] >= 0 && count[k] <= available[k]);
        weft_row_fill_free(&fill);
    }
}
