#include "report/report_page.h"

#include "base/fs.h"
#include "base/json.h"
#include "draw/html.h"
#include "draw/plot.h"
#include "draw/svg.h"
#include "evaluate/image_metrics.h"
#include "format/log/metrics.h"
#include "report/report_cascades.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "name=path" */
static const char *split_pair(const char *pair, char name[128])
{
    const char *equal = strchr(pair, '=');
    snprintf(name, 128, "%.*s", equal ? (int)(equal - pair) : 0, pair);
    return equal ? equal + 1 : pair;
}

/* ---- curves -------------------------------------------------------------------------------- */

static weft_status plot_metric(weft_buf *page, const char *path, const char *metric,
                               const char *title, bool log_y)
{
    double *step = NULL, *value = NULL, *smooth = NULL;
    int64_t count = 0;
    weft_buf svg = {0};
    weft_status_code status = weft_metrics_read(path, metric, &step, &value, &count);
    if (status != WEFT_OK || count == 0)
        goto out;
    WEFT_GO(WEFT_NEW(smooth, count, "%" PRId64 " steps", count));
    weft_smooth(value, count, 0.95, smooth);
    const weft_plot_series series[2] = {
        {.name = metric, .count = count, .x = step, .y = value, .faint = true},
        {.name = "smoothed", .count = count, .x = step, .y = smooth}};
    const weft_plot plot = {.title = title,
                            .x_label = "step",
                            .y_label = metric,
                            .series = series,
                            .series_count = 2,
                            .log_y = log_y};
    WEFT_GO(weft_plot_write(&plot, &svg));
    weft_html_svg(page, &svg);
out:
    weft_buf_free(&svg);
    weft_free(step);
    weft_free(value);
    weft_free(smooth);
    return status;
}

static weft_status write_run(const char *name, const char *folder, weft_buf *page)
{
    static const struct {
        const char *metric;
        bool log_y;
    } curves[] = {{"loss", true},
                  {"lpips", true},
                  {"generator", false},
                  {"discriminator", false},
                  {"balance", false},
                  {"fullest", false},
                  {"dropped", false},
                  {"grad_norm", true},
                  {"samples_per_second", false}}; /* curves that a run may have */
    char title[192], *path = weft_path_join(folder, "metrics.jsonl");
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(path, "the report"));
    snprintf(title, sizeof title, "Training: %s", name);
    weft_html_heading(page, title);
    for (int c = 0; c < WEFT_COUNT(curves); c++) {
        snprintf(title, sizeof title, "%s: %s", name, curves[c].metric);
        WEFT_GO(plot_metric(page, path, curves[c].metric, title, curves[c].log_y));
    }
    WEFT_GO(weft_report_cascades(name, folder, page));
out:
    weft_free(path);
    return status;
}

static weft_status write_runs(const weft_report_sources *s, weft_buf *page)
{
    for (int r = 0; r < s->run_count; r++) {
        char name[128];
        const char *folder = split_pair(s->runs[r], name);
        WEFT_TRY(write_run(*name ? name : folder, folder, page));
    }
    return WEFT_OK;
}

/* ---- scores -------------------------------------------------------------------------------- */

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static weft_status write_vae_scores(const char *path, weft_buf *page)
{
    json_t *r;
    WEFT_TRY(weft_json_load(path, &r));
    char text[6][32];
    snprintf(text[0], 32, "%" PRId64, (int64_t)number(r, "clips"));
    weft_psnr_text(json_object_get(r, "psnr"), text[1]);
    snprintf(text[2], 32, "%.4f", number(r, "ssim"));
    weft_psnr_text(json_object_get(r, "box_psnr"), text[3]);
    snprintf(text[4], 32, "%.4f", number(r, "box_ssim"));
    const char *const head[] = {"", "clips", "PSNR dB", "SSIM"};
    const char *const cells[] = {
        "VAE",   text[0], text[1], text[2], "box averages of the same size",
        text[0], text[3], text[4]};
    weft_html_heading(page, "Reconstruction of held-out clips");
    weft_html_table(page, head, cells, 2, 4);
    json_decref(r);
    return WEFT_OK;
}

static weft_status write_prompt_scores(const char *path, weft_buf *page)
{
    static const char *const rows[] = {"held_out", "seen", "chance"};
    static const char *const names[] = {"combinations never trained on", "combinations trained on",
                                        "chance"};
    static const char *const keys[] = {"colour", "shape", "direction", "all"};
    json_t *r;
    char text[3][5][32];
    const char *cells[18];
    WEFT_TRY(weft_json_load(path, &r));
    for (int i = 0; i < 3; i++) {
        const json_t *row = json_object_get(r, rows[i]);
        cells[6 * i] = names[i];
        snprintf(text[i][4], 32, i < 2 ? "%" PRId64 : "", (int64_t)number(row, "prompts"));
        cells[6 * i + 1] = text[i][4];
        for (int k = 0; k < 4; k++) {
            if (json_is_number(json_object_get(row, keys[k])))
                snprintf(text[i][k], 32, "%.1f %%", 100 * number(row, keys[k]));
            else
                snprintf(text[i][k], 32, "-"); /* images have no direction */
            cells[6 * i + 2 + k] = text[i][k];
        }
    }
    const char *const head[] = {"", "prompts", "colour", "shape", "direction", "all three"};
    weft_html_heading(page, "Prompt following, read from the pixels");
    weft_html_table(page, head, cells, 3, 6);
    json_decref(r);
    return WEFT_OK;
}

/* ---- samples next to real videos ----------------------------------------------------------- */

/* Returns the first <name>.mp4 under `root` whose <name>.txt is `caption`; heap; NULL: none. */
static char *find_truth(const char *root, const weft_names *names, const char *caption)
{
    for (int64_t i = 0; i < names->count; i++) {
        const size_t len = strlen(names->name[i]);
        if (len < 5 || strcmp(names->name[i] + len - 4, ".txt") != 0)
            continue;
        char *path = weft_path_join(root, names->name[i]), *text = NULL;
        int64_t bytes = 0;
        bool same = false;
        if (path && weft_file_read(path, 1 << 16, &text, &bytes) == WEFT_OK) {
            while (bytes > 0 && strchr(" \r\n", text[bytes - 1]))
                text[--bytes] = '\0';
            same = !strcmp(text, caption);
        }
        weft_free(text);
        if (same) {
            memcpy(path + strlen(path) - 3, "mp4", 3);
            if (weft_path_exists(path))
                return path;
        }
        weft_free(path);
    }
    return NULL;
}

static weft_status write_sample(const weft_report_sources *s, const weft_names *truths,
                                const char *line, int64_t len, weft_buf *page)
{
    json_t *json;
    char caption[256], *path = NULL, *truth = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_json_parse(line, len, "prompts.jsonl", &json));
    const char *file = json_string_value(json_object_get(json, "file")),
               *prompt = json_string_value(json_object_get(json, "prompt"));
    if (!file || !prompt)
        WEFT_GO(weft_error(WEFT_MSG_JSON_VALUE,
                           WEFT_AT(.file = s->videos, .key = file ? "prompt" : "file"),
                           "a line of prompts.jsonl lacks this member"));
    path = weft_path_join(s->videos, file);
    truth = s->truth ? find_truth(s->truth, truths, prompt) : NULL;
    WEFT_GO(WEFT_ALLOCATED(path, "the report"));
    weft_html_figures_begin(page);
    snprintf(caption, sizeof caption, "generated: %s", prompt);
    WEFT_GO(weft_html_file(page, path, 256, caption));
    if (truth)
        WEFT_GO(weft_html_file(page, truth, 256, "real footage of the same caption"));
    weft_html_figures_end(page);
out:
    weft_free(truth);
    weft_free(path);
    json_decref(json);
    return status;
}

static weft_status write_samples(const weft_report_sources *s, weft_buf *page)
{
    enum { MOST = 24 };
    weft_names truths = {0};
    char *data = NULL, *path = weft_path_join(s->videos, "prompts.jsonl");
    int64_t bytes = 0, shown = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(path ? weft_file_read(path, 1 << 24, &data, &bytes) : weft_no_memory("the report"));
    if (s->truth)
        WEFT_GO(weft_list_dir(s->truth, true, &truths));
    weft_html_heading(page, "Samples");
    for (char *line = data; line && line < data + bytes && shown < MOST; shown++) {
        const int64_t len = (int64_t)strcspn(line, "\n");
        if (len)
            WEFT_GO(write_sample(s, &truths, line, len, page));
        line += len + 1;
    }
out:
    weft_names_free(&truths);
    weft_free(data);
    weft_free(path);
    return status;
}

/* ---- times --------------------------------------------------------------------------------- */

static weft_status write_times(const char *path, weft_buf *page)
{
    enum { MOST = 64 };
    char *data, text[MOST + 1][32];
    const char *cells[2 * (MOST + 1)];
    json_t *line[MOST];
    int64_t bytes;
    int rows = 0;
    double total = 0;
    WEFT_TRY(weft_file_read(path, 1 << 20, &data, &bytes));
    weft_status_code status = WEFT_OK;
    for (char *p = data; p < data + bytes && rows < MOST;) {
        const int64_t len = (int64_t)strcspn(p, "\n");
        if (len) {
            WEFT_GO(weft_json_parse(p, len, path, &line[rows]));
            const char *name = json_string_value(json_object_get(line[rows], "step"));
            cells[2 * rows] = name ? name : "?";
            weft_format_seconds(number(line[rows], "seconds"), text[rows]);
            cells[2 * rows + 1] = text[rows];
            total += number(line[rows], "seconds");
            rows++;
        }
        p += len + 1;
    }
    cells[2 * rows] = "in all";
    cells[2 * rows + 1] = weft_format_seconds(total, text[rows]);
    weft_html_heading(page, "Time of each step");
    weft_html_table(page, (const char *const[]){"step", "time"}, cells, rows + 1, 2);
out:
    for (int i = 0; i < rows; i++)
        json_decref(line[i]);
    weft_free(data);
    return status;
}

weft_status weft_report_write(const weft_report_sources *s, const char *path)
{
    weft_buf page = {0};
    weft_status_code status = WEFT_OK;
    weft_html_begin(&page, s->title);
    if (s->prompt_eval)
        WEFT_GO(write_prompt_scores(s->prompt_eval, &page));
    if (s->vae_eval)
        WEFT_GO(write_vae_scores(s->vae_eval, &page));
    if (s->videos)
        WEFT_GO(write_samples(s, &page));
    WEFT_GO(write_runs(s, &page));
    if (s->times)
        WEFT_GO(write_times(s->times, &page));
    for (int i = 0; i < s->image_count; i++) { /* last, because a contact sheet is long */
        char title[128];
        const char *file = split_pair(s->images[i], title);
        weft_html_heading(&page, *title ? title : file);
        WEFT_GO(weft_html_file(&page, file, 0, NULL));
    }
    weft_html_end(&page);
    WEFT_GO(weft_buf_check(&page));
    status = weft_file_write_atomic(path, page.data, page.len);
out:
    weft_buf_free(&page);
    return status;
}
