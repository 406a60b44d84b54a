/* The share of the peak that the progress line prints. */
#include "../../board_of.h"
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
    cr_assert_eq(weft_train_logger_open(folder, 0, 4, 1, (weft_peak_gflops){100, 0}, &m), WEFT_OK,
                 "%s", weft_error_message());
    cr_expect_eq(weft_train_logger_share(m), 0);
    note(m, 1, 50);
    cr_expect_float_eq(weft_train_logger_share(m), 0.5, 1e-9);
    note(m, 2, 400); /* the machine was busy when the peak was measured */
    cr_expect_float_eq(weft_train_logger_share(m), 1, 1e-9);
    note(m, 3, 100); /* earlier steps count by 0.95 */
    cr_expect_float_eq(weft_train_logger_share(m), (0.95 * 400 + 100) / 1.95 / 400, 1e-9);
    cr_assert_eq(weft_train_logger_close(m), WEFT_OK);
    cr_assert_eq(weft_train_logger_open(folder, 0, 4, 1, (weft_peak_gflops){0, 0}, &m), WEFT_OK);
    note(m, 1, 50);
    cr_expect_eq(weft_train_logger_share(m), 0, "no peak is known");
    cr_assert_eq(weft_train_logger_close(m), WEFT_OK);
    /* FLOPs in bf16 are compared with the peak of bf16, the others with the peak of f32 */
    cr_assert_eq(weft_train_logger_open(folder, 0, 4, 1, (weft_peak_gflops){100, 400}, &m),
                 WEFT_OK);
    const weft_step_figures mixed = {
        .step = 1, .train_stage = "", .seconds = 1, .flops = 220e9, .bf16_flops = 200e9};
    cr_assert_eq(weft_train_logger_record(m, &mixed), WEFT_OK);
    cr_expect_float_eq(weft_train_logger_share(m), 20.0 / 100 + 200.0 / 400, 1e-9);
    cr_assert_eq(weft_train_logger_close(m), WEFT_OK);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

/* Figures of a step for Prometheus: the board's, and further ones of the objective by name. */
Test(meter, figures_for_prometheus)
{
    const weft_metric more[] = {{"samples/footage", 12}, {"samples/a\"b", 4}};
    const weft_step_figures f = {.step = 30,
                                 .train_stage = "",
                                 .loss = 0.25,
                                 .skipped_total = 2,
                                 .extra = {0.5},
                                 .extra_name = {"lpips"},
                                 .more = more,
                                 .more_count = 2};
    const weft_train_rates r = {.samples_per_second = 8, .samples = 64, .total = 90};
    weft_buf text = {0};
    weft_train_metrics_print(&f, &r, &text);
    cr_assert(!text.failed);
    static const char *const lines[] = {
        "\nweft_train_step 30\n",
        "\nweft_train_steps 90\n",
        "\nweft_train_loss 0.25\n",
        "\nweft_train_samples_per_second 8\n",
        "\nweft_train_samples_total 64\n",
        "\nweft_train_skipped_steps_total 2\n",
        "\nweft_train_figure{name=\"lpips\"} 0.5\n",
        "\nweft_train_figure{name=\"samples/a\\\"b\"} 4\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(text.data, lines[i]), "no line%s in\n%s", lines[i], text.data);
    check_board("weft_train_", text.data);
    FILE *promtool = popen("command -v promtool >/dev/null || exec cat >/dev/null; "
                           "promtool check metrics",
                           "w");
    cr_assert(promtool);
    cr_assert_eq(fwrite(text.data, 1, (size_t)text.len, promtool), (size_t)text.len);
    cr_expect_eq(pclose(promtool), 0, "promtool rejects the figures");
    weft_buf_free(&text);
}
