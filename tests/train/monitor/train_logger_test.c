/* The share of the peak that the progress line prints. */
#include "base/fs.h"
#include "train/monitor/train_logger.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void note(weft_train_logger *m, int64_t step, double gflops)
{
    const weft_step_figures f = {
        .step = step, .train_stage = "", .seconds = 2, .flops = 2e9 * gflops, .bucket = -1};
    cr_assert_eq(weft_train_logger_record(m, &f), WEFT_OK, "%s", weft_error_message());
}

Test(meter, share_of_the_peak_is_at_most_one)
{
    char folder[] = "/tmp/weft-meter-XXXXXX";
    weft_train_logger *m = NULL;
    cr_assert(mkdtemp(folder));
    cr_assert_eq(weft_train_logger_open(folder, 0, 4, 1, 100, &m), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(weft_train_logger_share(m), 0);
    note(m, 1, 50);
    cr_expect_float_eq(weft_train_logger_share(m), 0.5, 1e-9);
    note(m, 2, 400); /* the machine was busy when the peak was measured */
    cr_expect_float_eq(weft_train_logger_share(m), 1, 1e-9);
    note(m, 3, 100); /* earlier steps count by 0.95 */
    cr_expect_float_eq(weft_train_logger_share(m), (0.95 * 400 + 100) / 1.95 / 400, 1e-9);
    cr_assert_eq(weft_train_logger_close(m), WEFT_OK);
    cr_assert_eq(weft_train_logger_open(folder, 0, 4, 1, 0, &m), WEFT_OK);
    note(m, 1, 50);
    cr_expect_eq(weft_train_logger_share(m), 0, "no peak is known");
    cr_assert_eq(weft_train_logger_close(m), WEFT_OK);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}
