/* Event files, metrics, drawings and pages: what weft reports with. */
#include "base/fs.h"
#include "draw/html.h"
#include "draw/plot.h"
#include "draw/svg.h"
#include "format/log/metrics.h"
#include "format/log/tfevents.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/weft-report-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(report, .init = set_up, .fini = tear_down);

/* RFC 3720 B.4 and the check value of the CRC catalogue. */
Test(report, crc32c_known_answers)
{
    unsigned char zero[32] = {0}, count[32];
    for (int i = 0; i < 32; i++)
        count[i] = (unsigned char)i;
    cr_assert_eq(weft_crc32c("123456789", 9), 0xe3069283u);
    cr_assert_eq(weft_crc32c(zero, 32), 0x8a9136aau);
    cr_assert_eq(weft_crc32c(count, 32), 0x46dd794eu);
    /* rotated right by 15, plus 0xa282ead8 (TFRecord) */
    cr_assert_eq(weft_crc32c_masked("123456789", 9), 0xc78ab0e5u);
}

/* Little-endian number at p. */
static uint64_t little(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

/* The events of the folder's one file, checked record by record; returns how many. */
static int read_events(const unsigned char *payload[], int64_t length[], int limit, weft_map *map)
{
    weft_names names = {0};
    char *path = NULL;
    cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK);
    for (int64_t i = 0; i < names.count; i++) {
        if (!strncmp(names.name[i], "events.out.tfevents.", 20))
            path = weft_path_join(folder, names.name[i]);
    }
    weft_names_free(&names);
    cr_assert(path);
    cr_assert_eq(weft_map_open(path, map), WEFT_OK);
    weft_free(path);
    int count = 0;
    for (int64_t at = 0; at < map->bytes; count++) {
        const unsigned char *p = map->data + at;
        cr_assert_leq(at + 16, map->bytes);
        const int64_t bytes = (int64_t)little(p, 8);
        cr_assert_eq(little(p + 8, 4), weft_crc32c_masked(p, 8));
        cr_assert_leq(at + 16 + bytes, map->bytes);
        cr_assert_eq(little(p + 12 + bytes, 4), weft_crc32c_masked(p + 12, bytes));
        cr_assert_lt(count, limit);
        payload[count] = p + 12;
        length[count] = bytes;
        at += 16 + bytes;
    }
    return count;
}

Test(report, event_records)
{
    weft_tfevents *e;
    cr_assert_eq(weft_tfevents_open(folder, &e), WEFT_OK);
    cr_assert_eq(weft_tfevents_scalar(e, "loss", 300, 0.25), WEFT_OK);
    cr_assert_eq(weft_tfevents_close(e), WEFT_OK);
    const unsigned char *p[4];
    int64_t n[4];
    weft_map map;
    cr_assert_eq(read_events(p, n, 4, &map), 2);
    cr_assert(memmem(p[0], (size_t)n[0], "brain.Event:2", 13));
    /* wall_time (1, fixed64), step (2, varint 300), summary (5) {value (1) {tag (1) "loss",
     * simple_value (2) 0.25}} */
    const unsigned char expected[] = {0x10, 0xac, 0x02, 0x2a, 13,   0x0a, 11, 0x0a, 4,
                                      'l',  'o',  's',  's',  0x15, 0,    0,  0x80, 0x3e};
    cr_assert_eq(n[1], 9 + (int64_t)sizeof expected);
    cr_assert_eq(p[1][0], 0x09);
    cr_assert_arr_eq(p[1] + 9, expected, sizeof expected);
    weft_map_close(&map);
}

/* A run that is killed after step 7 and resumed from step 5 leaves one line a step. */
Test(report, metrics_resume)
{
    weft_metrics *m;
    char path[128];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    cr_assert_eq(weft_metrics_open(folder, 0, &m), WEFT_OK);
    for (int step = 0; step <= 7; step++)
        cr_assert_eq(weft_metrics_write(m, step, &(weft_metric){"loss", step + 0.5}, 1), WEFT_OK);
    cr_assert_eq(weft_metrics_close(m), WEFT_OK);
    FILE *f = fopen(path, "a");
    fputs("{\"step\": 8, \"lo", f); /* the kill */
    fclose(f);
    cr_assert_eq(weft_metrics_open(folder, 5, &m), WEFT_OK);
    for (int step = 5; step <= 9; step++)
        cr_assert_eq(
            weft_metrics_write(m, step, &(weft_metric){"loss", step == 9 ? NAN : step + 0.25}, 1),
            WEFT_OK);
    cr_assert_eq(weft_metrics_close(m), WEFT_OK);
    double *step, *value;
    int64_t count;
    cr_assert_eq(weft_metrics_read(path, "loss", &step, &value, &count), WEFT_OK);
    cr_assert_eq(count, 10);
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(step[i], i);
        cr_assert_eq(value[i], i < 5 ? i + 0.5 : i + 0.25);
    }
    cr_assert(isnan(value[9]));
    weft_free(step);
    weft_free(value);
    cr_assert_eq(weft_metrics_read(path, "other", &step, &value, &count), WEFT_OK);
    cr_assert_eq(count, 0);
    weft_free(step);
    weft_free(value);
}

static weft_status_code read_metrics_of(const char *text, int64_t *count)
{
    char path[128];
    double *step = NULL, *value = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    cr_assert_eq(weft_file_write_atomic(path, text, (int64_t)strlen(text)), WEFT_OK);
    const weft_status_code status = weft_metrics_read(path, "loss", &step, &value, count);
    if (status == WEFT_OK) {
        weft_free(step);
        weft_free(value);
    }
    return status;
}

/* A damaged line is an error that names it; only the last line may be incomplete, after a kill. */
Test(report, damaged_metrics_are_an_error)
{
    static const char *const damaged[] = {"",
                                          "{\"st",
                                          "{}\n",
                                          "[1]\n",
                                          "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo\n",
                                          "{\"step\": 1, \"loss\": 2}\n\n"};
    int64_t count = 0;
    for (int i = 0; i < 6; i++)
        cr_expect_eq(read_metrics_of(damaged[i], &count), WEFT_E_FORMAT, "%s", damaged[i]);
    cr_expect_eq(weft_error_class(), WEFT_MSG_TEXT_DAMAGED, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->line, 2);
    cr_expect_eq(read_metrics_of("{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo", &count),
                 WEFT_OK);
    cr_expect_eq(count, 1);
    cr_expect_eq(read_metrics_of("{\"step\": 1, \"skipped\": 1}\n", &count), WEFT_OK);
    cr_expect_eq(count, 0);
}

static bool well_formed(const weft_buf *text, const char *name)
{
    char path[128], command[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(weft_file_write_atomic(path, text->data, text->len), WEFT_OK);
    snprintf(command, sizeof command,
             "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' %s", path);
    return system(command) == 0;
}

static int occurrences(const weft_buf *text, const char *word)
{
    int count = 0;
    for (const char *p = text->data; (p = strstr(p, word)); p++)
        count++;
    return count;
}

Test(report, plot)
{
    enum { N = 20000 };
    static double x[N], y[N], smooth[N];
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 10 * exp(-i / 3000.0) + 0.1 * sin(i);
    }
    y[777] = NAN;
    y[9000] = 99; /* spikes that thinning must keep: each is inside a pixel column */
    y[12010] = -50;
    weft_smooth(y, N, 0.99, smooth);
    cr_assert(isfinite(smooth[777]));
    const weft_plot_series series[2] = {
        {.name = "raw <&> \xff", .count = N, .x = x, .y = y, .faint = true},
        {.name = "smooth", .count = N, .x = x, .y = smooth}};
    weft_buf text = {0};
    cr_assert_eq(weft_plot_write(&(weft_plot){.title = "a \"loss\"",
                                              .x_label = "step",
                                              .y_label = "loss",
                                              .series = series,
                                              .series_count = 2},
                                 &text),
                 WEFT_OK);
    cr_assert(well_formed(&text, "plot.svg"));
    cr_assert_lt(text.len, 80000);
    cr_assert_eq(occurrences(&text, "<path"), 2);
    cr_assert(strstr(text.data, "raw &lt;&amp;&gt; ?"));
    /* the axis reaches over the spikes, which are drawn near its ends; pixel rows go downwards */
    cr_assert(strstr(text.data, ">100</text>"));
    cr_assert(strstr(text.data, ">-50</text>"));
    double highest = 1e9, lowest = 0, v;
    for (const char *p = strstr(text.data, "<path"); (p = strchr(p, 'V')); p++) {
        if (sscanf(p, "V%lf", &v) == 1) {
            highest = v < highest ? v : highest;
            lowest = v > lowest ? v : lowest;
        }
    }
    cr_assert_lt(highest, 60);
    cr_assert_gt(lowest, 310);
    weft_buf_free(&text);
    /* nothing to draw, and one point, on a log axis */
    const double zero = 0, three = 3;
    weft_plot_series one = {.name = "z", .count = 1, .x = &three, .y = &zero};
    const weft_plot log_plot = {.series = &one, .series_count = 1, .log_y = true};
    cr_assert_eq(weft_plot_write(&log_plot, &text), WEFT_OK);
    cr_assert(strstr(text.data, "no values"));
    weft_buf_free(&text);
    one.y = &three;
    one.dots = true;
    cr_assert_eq(weft_plot_write(&log_plot, &text), WEFT_OK);
    cr_assert(well_formed(&text, "one.svg"));
    cr_assert_eq(occurrences(&text, "<circle"), 1);
    cr_assert_not(strstr(text.data, "nan"));
    weft_buf_free(&text);
}

/* No label of a plot from (low, low) to (high, high) equals the label before it. */
static void check_ticks_differ(double low, double high, bool log)
{
    const double at[2] = {low, high};
    const weft_plot_series series = {.name = "s", .count = 2, .x = at, .y = at};
    weft_buf text = {0};
    char last[64] = "";
    int ticks = 0;
    cr_assert_eq(
        weft_plot_write(
            &(weft_plot){.series = &series, .series_count = 1, .log_x = log, .log_y = log}, &text),
        WEFT_OK);
    for (const char *p = text.data; (p = strstr(p, "</text>")); p++) {
        const char *from = p;
        char now[64];
        while (from[-1] != '>')
            from--;
        snprintf(now, sizeof now, "%.*s", (int)(p - from), from);
        ticks++;
        cr_expect_str_neq(now, last, "%g to %g%s", low, high, log ? ", log" : "");
        strcpy(last, now);
    }
    cr_expect_geq(ticks, 4);
    weft_buf_free(&text);
}

Test(report, ticks_do_not_repeat)
{
    check_ticks_differ(1, 1.0005, true);
    check_ticks_differ(0.693, 0.6932, true);
    check_ticks_differ(1e-4, 3e-2, true);
    check_ticks_differ(1e9, 1e9 + 1, false);
    check_ticks_differ(123456.1, 123456.2, false);
    check_ticks_differ(1, 3, false);
    check_ticks_differ(-2e-9, 5e-9, false);
}

Test(report, page)
{
    weft_buf page = {0}, base = {0};
    static const char *const answers[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                          "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"}; /* RFC 4648 */
    for (int n = 0; n <= 6; n++) {
        base.len = 0;
        weft_base64(&base, "foobar", n);
        cr_assert_str_eq(base.data ? base.data : "", answers[n]);
    }
    weft_html_begin(&page, "report <1>");
    weft_html_heading(&page, "scores");
    const char *const head[] = {"what", "value"}, *const cell[] = {"PSNR", "31.2 dB", "colour",
                                                                   "97 %", "none",    "n/a"};
    weft_html_table(&page, head, cell, 3, 2);
    weft_html_figures_begin(&page);
    weft_html_png(&page, "png", 3, 64, "a & b");
    weft_html_mp4(&page, "mp4", 3, 0, NULL);
    weft_html_figures_end(&page);
    weft_html_end(&page);
    cr_assert_eq(weft_buf_check(&page), WEFT_OK);
    cr_assert_eq(occurrences(&page, "class=\"n\""), 2);
    cr_assert(strstr(page.data, "<title>report &lt;1&gt;</title>"));
    cr_assert(strstr(page.data, "src=\"data:image/png;base64,cG5n\""));
    cr_assert_not(strstr(page.data, "http")); /* nothing is loaded from elsewhere */
    weft_buf_free(&page);
    weft_buf_free(&base);
}
