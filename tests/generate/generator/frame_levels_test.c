/* Rounds of blocks with noise levels of their own, compared with tables made by hand. */
#include "generate/generator/frame_levels.h"

#include <criterion/criterion.h>

enum { BLOCKS = 3 };

typedef struct round {
    int64_t row[BLOCKS];
    bool runs[BLOCKS];
} round;

static void expect_rounds(int64_t steps, int64_t lag, int64_t ready, const round *want,
                          int64_t count)
{
    int64_t row[BLOCKS], rounds = 0;
    bool runs[BLOCKS];
    weft_frame_levels l = {
        .blocks = BLOCKS, .steps = steps, .lag = lag, .ready = ready, .row = row, .runs = runs};
    weft_frame_levels_begin(&l);
    for (; weft_frame_levels_next(&l) && rounds < count; rounds++)
        for (int i = 0; i < BLOCKS; i++) {
            cr_expect_eq(row[i], want[rounds].row[i], "round %d, block %d", (int)rounds, i);
            cr_expect_eq(runs[i], want[rounds].runs[i], "round %d, block %d", (int)rounds, i);
        }
    cr_expect_eq(rounds, count);
    cr_expect_eq(weft_frame_levels_rounds(BLOCKS, steps, lag, ready), count);
}

Test(frame_levels, all_blocks_together)
{
    static const round want[] = {{{1, 1, 1}, {true, true, true}}, {{2, 2, 2}, {true, true, true}}};
    expect_rounds(2, 0, 0, want, 2);
}

Test(frame_levels, a_block_follows_the_one_before)
{
    static const round want[] = {
        {{1, 0, 0}, {true, false, false}}, {{2, 0, 0}, {true, false, false}},
        {{3, 1, 0}, {true, true, false}},  {{4, 2, 0}, {false, true, false}},
        {{4, 3, 1}, {false, true, true}},  {{4, 4, 2}, {false, false, true}},
        {{4, 4, 3}, {false, false, true}}};
    expect_rounds(3, 2, 0, want, 7);
}

Test(frame_levels, a_lag_above_the_steps_waits_for_the_block_before)
{
    static const round want[] = {
        {{1, 0, 0}, {true, false, false}}, {{2, 0, 0}, {true, false, false}},
        {{3, 1, 0}, {false, true, false}}, {{3, 2, 0}, {false, true, false}},
        {{3, 3, 1}, {false, false, true}}, {{3, 3, 2}, {false, false, true}}};
    expect_rounds(2, 9, 0, want, 6);
}

Test(frame_levels, given_blocks_never_run)
{
    static const round want[] = {{{3, 1, 0}, {false, true, false}},
                                 {{3, 2, 1}, {false, true, true}},
                                 {{3, 3, 2}, {false, false, true}}};
    expect_rounds(2, 1, 1, want, 3);
}
