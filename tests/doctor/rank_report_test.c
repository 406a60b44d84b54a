/* Ranks that weft doctor --ranks names, of measurements that no machine has to reproduce. */
#include "doctor/rank_report.h"

#include <criterion/criterion.h>

enum { RANKS = 4 };

static void all_alike(weft_rank_report r[RANKS])
{
    for (int i = 0; i < RANKS; i++)
        r[i] = (weft_rank_report){.host = "node",
                                  .started = i,
                                  .value = {[WEFT_RANK_GEMM] = 50,
                                            [WEFT_RANK_MEMORY] = 10e9,
                                            [WEFT_RANK_BETWEEN] = 1e9,
                                            [WEFT_RANK_BETWEEN_LATENCY] = 20e-6}};
}

/* Checks that exactly the ranks of `want` (a bit per rank) are outliers of this measure, and that
 * no rank is one of another measure. */
static void expect_outliers(const weft_rank_report r[RANKS], weft_rank_measure measure,
                            unsigned want)
{
    weft_rank_outlier list[RANKS * WEFT_RANK_MEASURES];
    double scratch[RANKS];
    unsigned found = 0;
    const int count = weft_rank_outliers(r, RANKS, scratch, list);
    for (int k = 0; k < count; k++) {
        cr_expect_eq(list[k].measure, measure, "measure %d of rank %d", (int)list[k].measure,
                     list[k].rank);
        found |= 1u << list[k].rank;
    }
    cr_expect_eq(found, want, "ranks %x, expected %x", found, want);
}

Test(rank_report, equal_ranks_have_no_outlier)
{
    weft_rank_report r[RANKS];
    all_alike(r);
    expect_outliers(r, WEFT_RANK_GEMM, 0);
}

Test(rank_report, a_rank_with_slow_links_is_an_outlier)
{
    weft_rank_report r[RANKS];
    all_alike(r);
    r[2].value[WEFT_RANK_BETWEEN] = 0.1e9;
    expect_outliers(r, WEFT_RANK_BETWEEN, 1u << 2);
    all_alike(r);
    r[0].value[WEFT_RANK_BETWEEN_LATENCY] = 1e-3;
    expect_outliers(r, WEFT_RANK_BETWEEN_LATENCY, 1u << 0);
}

/* Faster ranks than the others are not outliers, and 20 % of a rate is the border. */
Test(rank_report, only_ranks_far_below_the_median_are_outliers)
{
    weft_rank_report r[RANKS];
    all_alike(r);
    r[1].value[WEFT_RANK_GEMM] = 500;
    r[1].value[WEFT_RANK_BETWEEN_LATENCY] = 1e-6;
    r[3].value[WEFT_RANK_GEMM] = 41;
    expect_outliers(r, WEFT_RANK_GEMM, 0);
    r[3].value[WEFT_RANK_GEMM] = 39;
    expect_outliers(r, WEFT_RANK_GEMM, 1u << 3);
}

/* With two ranks the median is the better one, so that the slower one is named. */
Test(rank_report, the_slower_of_two_ranks_is_an_outlier)
{
    weft_rank_report r[RANKS];
    weft_rank_outlier list[2 * WEFT_RANK_MEASURES];
    double scratch[2];
    all_alike(r);
    r[1].value[WEFT_RANK_MEMORY] = 5e9;
    r[1].value[WEFT_RANK_BETWEEN_LATENCY] = 100e-6;
    cr_assert_eq(weft_rank_outliers(r, 2, scratch, list), 2);
    for (int k = 0; k < 2; k++)
        cr_expect_eq(list[k].rank, 1);
    cr_expect_eq(list[0].measure, WEFT_RANK_MEMORY);
    cr_expect_eq(list[1].measure, WEFT_RANK_BETWEEN_LATENCY);
}

/* A measure of 0 was not taken: a rank alone on its machine has no link inside. */
Test(rank_report, a_missing_measure_is_not_compared)
{
    weft_rank_report r[RANKS];
    all_alike(r);
    r[0].value[WEFT_RANK_INSIDE] = r[1].value[WEFT_RANK_INSIDE] = 4e9;
    expect_outliers(r, WEFT_RANK_INSIDE, 0);
    r[1].value[WEFT_RANK_INSIDE] = 1e9;
    expect_outliers(r, WEFT_RANK_INSIDE, 1u << 1);
}
