/* The rank that is named as slow: a rank whose own work takes longer, however long the others wait.
 * Not a rank that waits, not one with a larger share of the work, and not one whose small share
 * costs more per sample. */
#include "train/monitor/stragglers.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 5, WINDOW = 4 };
static const weft_straggler_config config = {.share = 0.25, .steps = WINDOW};

static weft_stragglers *make(int ranks, const double *flops)
{
    weft_stragglers *s;
    cr_assert_eq(weft_stragglers_create(&config, ranks, flops, &s), WEFT_OK);
    return s;
}

/* Steps of a second in which rank r works for work[r] and `data` seconds more, and waits the
 * rest. */
static char *after(weft_stragglers *s, int ranks, const double *work, double data, int steps)
{
    weft_buf told = {0};
    weft_step_timing pace[RANKS];
    for (int r = 0; r < ranks; r++)
        pace[r] = (weft_step_timing){(float)work[r], (float)(1 - work[r] - data), (float)data};
    for (int i = 0; i < steps; i++)
        weft_stragglers_record(s, pace, &told);
    return told.data ? told.data : weft_strdup("");
}

Test(stragglers, one_that_works_longer_is_named_with_its_work_and_waits)
{
    weft_stragglers *s = make(RANKS, NULL);
    char *told = after(s, RANKS, (double[]){0.5, 0.5, 0.7, 0.5, 0.5}, 0.1, WINDOW - 1);
    cr_expect_str_eq(told, "", "said before the window ends: %s", told);
    weft_free(told);
    told = after(s, RANKS, (double[]){0.5, 0.5, 0.9, 0.5, 0.5}, 0.1, 1);
    cr_expect_str_eq(told,
                     "rank 2 is slower than the others: in the last 4 steps its own work took 850 "
                     "ms a step (kernels 750 ms, data 100 ms) and it waited 150 ms; the median of "
                     "5 ranks is 600 ms of work and 400 ms of waits");
    weft_free(told);
    weft_stragglers_free(s);
}

Test(stragglers, it_is_said_again_at_longer_and_longer_times_and_when_it_is_over)
{
    static const double slow[] = {0.5, 0.9}, even[] = {0.5, 0.5};
    weft_stragglers *s = make(2, NULL);
    for (int window = 1; window <= 9; window++) {
        char *told = after(s, 2, slow, 0, WINDOW);
        const bool said = window == 1 || window == 2 || window == 4 || window == 8;
        cr_expect_eq(*told != 0, said, "window %d: %s", window, told);
        cr_expect(!said || !strncmp(told, "rank 1 is slower", 16), "%s", told);
        weft_free(told);
    }
    char *told = after(s, 2, even, 0, WINDOW);
    cr_expect_str_eq(told, "rank 1 is no longer slower than the others");
    weft_free(told);
    told = after(s, 2, even, 0, 3 * WINDOW);
    cr_expect_str_eq(told, "");
    weft_free(told);
    weft_stragglers_free(s);
}

Test(stragglers, uneven_parts_are_none)
{
    /* twice the FLOPs and twice the time; a tenth of the FLOPs and half of the time */
    static const double flops[] = {2, 1, 1, 1, 0.1}, work[] = {0.8, 0.4, 0.4, 0.4, 0.2};
    weft_stragglers *s = make(RANKS, flops);
    char *told = after(s, RANKS, work, 0, 4 * WINDOW);
    cr_expect_str_eq(told, "");
    weft_free(told);
    weft_stragglers_free(s);
    s = make(RANKS, NULL); /* without them the first is slow */
    told = after(s, RANKS, work, 0, WINDOW);
    cr_expect(!strncmp(told, "rank 0 is slower", 16), "%s", told);
    weft_free(told);
    weft_stragglers_free(s);
}

Test(stragglers, one_that_waits_for_its_data_is_named_and_a_small_difference_is_not)
{
    weft_stragglers *s = make(2, NULL);
    weft_buf told = {0};
    const weft_step_timing pace[2] = {{0.4f, 0.5f, 0.0f}, {0.4f, 0.1f, 0.4f}};
    for (int i = 0; i < WINDOW; i++)
        weft_stragglers_record(s, pace, &told);
    cr_expect(told.data && strstr(told.data, "rank 1 is slower") &&
                  strstr(told.data, "data 400 ms"),
              "%s", told.data ? told.data : "nothing");
    weft_buf_free(&told);
    weft_stragglers_free(s);
    s = make(2, NULL);
    char *none = after(s, 2, (double[]){0.5, 0.6}, 0, 3 * WINDOW);
    cr_expect_str_eq(none, "");
    weft_free(none);
    weft_stragglers_free(s);
}
