/* The figures of stages: rows, the printed table, and the text for Prometheus. */
#include "../board_of.h"
#include "curate/stage_table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static weft_stage_table table;

/* Ten videos on two workers: two ended, the second one failed; then the selection of 40 shots. */
static void set_up(void)
{
    weft_stage_table_init(&table, NULL);
    table.stage[WEFT_STAGE_CAPTION].used = true;
    weft_stage_table_begin(&table, WEFT_STAGE_ANALYSE, 10, 2, 100);
    weft_stage_table_item(&table, false, 10);
    weft_stage_table_item(&table, true, 30);
}

Test(stage_table, rows_count_items, .init = set_up)
{
    weft_stage_row r;
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    cr_expect_eq(r.input, 10);
    cr_expect_eq(r.output, 1);
    cr_expect_eq(r.failed, 1);
    cr_expect_eq(r.running, 2);
    cr_expect_eq(r.queued, 6);
    cr_expect_gt(r.rate, 0);
    table.began -= 40;
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    cr_expect_geq(r.seconds, 40);
    cr_expect_float_eq(r.rate, 2 / r.seconds, 1e-9, "%g", r.rate);
    for (int i = 0; i < 7; i++)
        weft_stage_table_item(&table, false, 5);
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    cr_expect_eq(r.running, 1);
    cr_expect_eq(r.queued, 0);
    weft_stage_table_item(&table, false, 5);
    weft_stage_table_end(&table, -1);
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    cr_expect(r.output == 9 && r.running == 0 && r.queued == 0 && r.remaining == 0);
    cr_expect_geq(r.seconds, 40);
}

/* Item k of `sizes` ends when all items so far took `item` seconds each and `unit` per size. */
static double remaining_of(const double *sizes, int ended, int items, double item, double unit)
{
    double work = 0, passed = 0;
    weft_stage_row r;
    for (int i = 0; i < items; i++)
        work += sizes[i];
    weft_stage_table_init(&table, NULL);
    weft_stage_table_begin(&table, WEFT_STAGE_ANALYSE, items, 1, work);
    for (int i = 0; i < ended; i++) {
        passed += item + unit * sizes[i];
        table.began = weft_now() - passed;
        weft_stage_table_item(&table, false, sizes[i]);
    }
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    weft_stage_table_end(&table, -1);
    return r.remaining;
}

/* The large videos have nearly all bytes; the many small ones have nearly all seconds. */
Test(stage_table, remaining_time_counts_items_and_sizes)
{
    const double mixed[] = {5000, 4000, 3000, 10, 10, 10, 10, 10}, equal[] = {7, 7, 7, 7};
    const double rising[] = {10, 20, 30, 40};
    double left = remaining_of(mixed, 3, 8, 300, 0.01);
    cr_expect_float_eq(left, 5 * 300.1, 1, "%g", left);
    left = remaining_of(mixed, 1, 8, 300, 0.01); /* one item does not determine two prices */
    cr_expect_float_eq(left, 350 * 7050.0 / 5000, 1, "%g", left);
    left = remaining_of(equal, 2, 4, 100, 10);
    cr_expect_float_eq(left, 340, 1, "%g", left);
    left = remaining_of(rising, 2, 4, 0, 10);
    cr_expect_float_eq(left, 700, 2, "%g", left);
}

Test(stage_table, runs_of_a_stage_add_up, .init = set_up)
{
    weft_stage_row r;
    weft_stage_table_end(&table, -1);
    weft_stage_table_begin(&table, WEFT_STAGE_ANALYSE, 3, 2, 3);
    weft_stage_table_row(&table, WEFT_STAGE_ANALYSE, &r);
    cr_expect(r.input == 13 && r.output == 1 && isnan(r.remaining));
    weft_stage_table_end(&table, -1);
    for (int i = 0; i < 2; i++) { /* the selection begins again */
        weft_stage_table_begin(&table, WEFT_STAGE_SELECT, 40, 40, 0);
        weft_stage_table_end(&table, 12);
    }
    weft_stage_table_row(&table, WEFT_STAGE_SELECT, &r);
    cr_expect(r.input == 40 && r.output == 12 && r.queued == 0);
}

Test(stage_table, table_has_the_used_stages, .init = set_up)
{
    weft_buf text = {0};
    weft_stage_table_print(&table, &text);
    cr_assert(!text.failed);
    cr_expect(strstr(text.data, "\nanalyse         10         1        1        6        2"), "%s",
              text.data);
    cr_expect(strstr(text.data, "\ncaption          -         -"), "%s", text.data);
    cr_expect(!strstr(text.data, "\nembed"), "%s", text.data);
    weft_buf_free(&text);
    weft_stage_table_metrics(&table, &text);
    cr_assert(!text.failed);
    cr_expect(strstr(text.data, "\nweft_curate_queued{stage=\"analyse\"} 6\n"), "%s", text.data);
    cr_expect(strstr(text.data, "\nweft_curate_input{stage=\"caption\"} 0\n"), "%s", text.data);
    cr_expect(strstr(text.data, "\nweft_curate_remaining_seconds{stage=\"caption\"} NaN\n"));
    cr_expect(!strstr(text.data, "{stage=\"embed\"}"), "%s", text.data);
    check_board("weft_curate_", text.data);
    weft_buf_free(&text);
}
