#include "report/report_cascades.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "draw/plot.h"
#include "plan/simulate/gantt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* All lines of the file. */
typedef struct iterations {
    json_t **line; /* owned references */
    int64_t count, capacity;
} iterations;

static weft_status add_line(void *user, json_t *value)
{
    iterations *all = user;
    WEFT_TRY(weft_grow((void **)&all->line, all->count, &all->capacity, sizeof *all->line));
    all->line[all->count++] = json_incref(value);
    return WEFT_OK;
}

/* Value of "planned.makespan" and similar keys; NAN: absent. */
static double number(const json_t *line, const char *group, const char *key)
{
    const json_t *of = group ? json_object_get(line, group) : line;
    const json_t *value = json_object_get(of, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int64_t ranks_of(const json_t *line)
{
    return (int64_t)json_array_size(json_object_get(line, "idle"));
}

/* ---- one iteration -------------------------------------------------------------------------- */

static weft_status draw(const json_t *line, const char *which, const char *title, double seconds,
                        weft_buf *page)
{
    const json_t *cascades = json_object_get(line, "cascades");
    int64_t most_bars = 0, count = 0;
    for (size_t c = 0; c < json_array_size(cascades); c++)
        most_bars +=
            (int64_t)json_array_size(json_object_get(json_array_get(cascades, c), "ranks"));
    weft_gantt_bar *bar = weft_calloc(most_bars + 1, sizeof *bar);
    weft_buf svg = {0};
    WEFT_TRY(WEFT_ALLOCATED(bar, "the page of a run of cascades"));
    for (size_t c = 0; c < json_array_size(cascades); c++) {
        const json_t *item = json_array_get(cascades, c), *at = json_object_get(item, which),
                     *ranks = json_object_get(item, "ranks");
        const char *id = json_string_value(json_object_get(item, "id")),
                   *module = json_string_value(json_object_get(item, "module"));
        if (!id || !module || !json_is_number(json_array_get(at, 0)))
            continue;
        for (size_t i = 0; i < json_array_size(ranks) && count < most_bars; i++)
            bar[count++] = (weft_gantt_bar){json_integer_value(json_array_get(ranks, i)),
                                            json_number_value(json_array_get(at, 0)),
                                            json_number_value(json_array_get(at, 1)),
                                            weft_gantt_colour(id, (int)c),
                                            strcmp(module, "dit") ? 0.5 : 0,
                                            id};
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_gantt_svg(title, bar, count, ranks_of(line), seconds, 0, &svg));
    weft_html_svg(page, &svg);
out:
    weft_buf_free(&svg);
    weft_free(bar);
    return status;
}

static weft_status draw_both(const json_t *line, const char *what, weft_buf *page)
{
    char title[2][160];
    const double planned = number(line, "planned", "makespan"),
                 executed = number(line, "executed", "makespan");
    snprintf(title[0], sizeof title[0],
             "%s, iteration %.0f, as planned: %.4g s, ranks idle %.1f %%", what,
             number(line, NULL, "step"), planned, 100 * number(line, "planned", "idle"));
    snprintf(title[1], sizeof title[1],
             "as executed: %.4g s, ranks idle %.1f %%, then sums and the "
             "update %.3g s",
             executed, 100 * number(line, "executed", "idle"), number(line, "executed", "reduce"));
    WEFT_TRY(draw(line, "planned", title[0], fmax(planned, executed), page));
    return draw(line, "executed", title[1], fmax(planned, executed), page);
}

/* ---- over iterations ------------------------------------------------------------------------ */

/* A plotted quantity: value `index` of a list, or a number, under group and key. */
typedef struct curve {
    const char *name, *group, *key;
    int64_t index; /* -1: a number */
    double scale;
    bool faint;
} curve;

static double value_of(const json_t *line, const curve *c)
{
    if (c->index >= 0) {
        const json_t *value = json_array_get(json_object_get(line, c->key), (size_t)c->index);
        return json_is_number(value) ? c->scale * json_number_value(value) : (double)NAN;
    }
    if (strcmp(c->key, "off"))
        return c->scale * number(line, c->group, c->key);
    return c->scale *
           (number(line, "executed", "makespan") / number(line, "planned", "makespan") - 1);
}

static weft_status plot(const iterations *all, const char *title, const char *y_label,
                        const curve *curves, int count, weft_buf *page)
{
    enum { MOST = 16 };
    weft_plot_series series[MOST];
    double *values = weft_calloc((count + 1) * (all->count + 1), sizeof *values);
    weft_buf svg = {0};
    WEFT_TRY(WEFT_ALLOCATED(values, "the page of a run of cascades"));
    for (int64_t i = 0; i < all->count; i++)
        values[i] = number(all->line[i], NULL, "step");
    for (int c = 0; c < count && c < MOST; c++) {
        double *y = values + (c + 1) * all->count;
        for (int64_t i = 0; i < all->count; i++)
            y[i] = value_of(all->line[i], &curves[c]);
        series[c] = (weft_plot_series){.name = curves[c].name,
                                       .count = all->count,
                                       .x = values,
                                       .y = y,
                                       .faint = curves[c].faint,
                                       .dots = all->count < 40};
    }
    const weft_plot p = {.title = title,
                         .x_label = "iteration",
                         .y_label = y_label,
                         .series = series,
                         .series_count = count < MOST ? count : MOST};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_plot_write(&p, &svg));
    weft_html_svg(page, &svg);
out:
    weft_buf_free(&svg);
    weft_free(values);
    return status;
}

static weft_status plot_idle(const iterations *all, weft_buf *page)
{
    enum { MOST = 8 };
    char name[MOST][32];
    curve curves[MOST + 2] = {{"all, planned", "planned", "idle", -1, 100, false},
                              {"all, executed", "executed", "idle", -1, 100, false}};
    const int64_t ranks = ranks_of(all->line[0]);
    int count = 2;
    for (int64_t r = 0; r < ranks && ranks <= MOST; r++) {
        snprintf(name[r], sizeof name[r], "rank %" PRId64, r);
        curves[count++] = (curve){name[r], NULL, "idle", r, 100, true};
    }
    return plot(all, "Ranks idle", "% of the makespan", curves, count, page);
}

static weft_status plot_all(const iterations *all, weft_buf *page)
{
    static const curve spans[] = {{"planned", "planned", "makespan", -1, 1, false},
                                  {"executed", "executed", "makespan", -1, 1, false},
                                  {"lower bound", "planned", "lower_bound", -1, 1, true}},
                       gaps[] = {{"plan over lower bound", "planned", "gap", -1, 100, false},
                                 {"execution over plan", NULL, "off", -1, 100, false}};
    WEFT_TRY(plot(all, "Makespan", "s", spans, WEFT_COUNT(spans), page));
    WEFT_TRY(plot_idle(all, page));
    return plot(all, "Gaps", "%", gaps, WEFT_COUNT(gaps), page);
}

/* ---- means ---------------------------------------------------------------------------------- */

static const char *const modules[] = {"text", "vae", "dit"};

/* Mean of a quantity over the iterations that have it. */
static double mean(const iterations *all, const char *group, const char *key)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        const double x = number(all->line[i], group, key);
        if (!isfinite(x))
            continue;
        sum += x;
        count++;
    }
    return count ? sum / (double)count : (double)NAN;
}

/* Mean |ln(predicted / measured)| of a module's costs, with refitted or initial predictions. Lines
 * without "version" may have the key `earlier` (or NULL) instead. */
static double mean_fit(const iterations *all, const char *module, const char *which,
                       const char *earlier)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        const json_t *fit = json_object_get(all->line[i], "fit");
        double x = number(fit, module, which);
        if (!isfinite(x) && earlier)
            x = number(fit, module, earlier);
        if (!isfinite(x))
            continue;
        sum += x;
        count++;
    }
    return count ? sum / (double)count : (double)NAN;
}

/* "1.25": the ratio of prediction and measurement, in either direction. */
static const char *factor_text(double logarithm, char text[32])
{
    if (!isfinite(logarithm))
        return "";
    snprintf(text, 32, "%.3f", exp(logarithm));
    return text;
}

static const char *percent(double x, char text[32])
{
    if (!isfinite(x))
        return "";
    snprintf(text, 32, "%.1f %%", 100 * x);
    return text;
}

static void table_modules(const iterations *all, weft_buf *page)
{
    enum { COLUMNS = 5 };
    char text[WEFT_COUNT(modules)][COLUMNS][32];
    const char *cells[WEFT_COUNT(modules) * COLUMNS];
    double sum = 0;
    for (int m = 0; m < WEFT_COUNT(modules); m++)
        sum += mean(all, "modules", modules[m]);
    for (int m = 0; m < WEFT_COUNT(modules); m++) {
        const double own = mean(all, "modules", modules[m]);
        snprintf(text[m][0], 32, "%.4g", own);
        cells[m * COLUMNS] = modules[m];
        cells[m * COLUMNS + 1] = text[m][0];
        cells[m * COLUMNS + 2] = percent(sum > 0 ? own / sum : (double)NAN, text[m][1]);
        cells[m * COLUMNS + 3] =
            factor_text(mean_fit(all, modules[m], "planned", NULL), text[m][2]);
        cells[m * COLUMNS + 4] =
            factor_text(mean_fit(all, modules[m], "estimate", "told"), text[m][3]);
    }
    const char *const head[] = {"module", "rank-seconds an iteration", "share",
                                "costs off by a factor, refitted",
                                "costs off by a factor, at first"};
    weft_html_table(page, head, cells, WEFT_COUNT(modules), COLUMNS);
}

static void table_figures(const iterations *all, weft_buf *page)
{
    static const struct {
        const char *name, *group, *key;
        double scale;
        const char *unit;
    } rows[] = {
        {"makespan as planned", "planned", "makespan", 1, "s"},
        {"makespan as executed", "executed", "makespan", 1, "s"},
        {"lower bound", "planned", "lower_bound", 1, "s"},
        {"idle as planned", "planned", "idle", 100, "%"},
        {"idle as executed", "executed", "idle", 100, "%"},
        {"sums of gradients and update", "executed", "reduce", 1, "s"},
        {"handed on in place", "bytes", "in_place", 1.0 / (1 << 20), "MiB"},
        {"handed on to other ranks", "bytes", "received", 1.0 / (1 << 20), "MiB"},
        {"sent for sums of gradients", "bytes", "reduced", 1.0 / (1 << 20), "MiB"},
        {"planner", "planner", "seconds", 1, "s"},
        {"steps waited for the planner", "planner", "late", 1, "s"},
    };
    char text[WEFT_COUNT(rows)][48];
    const char *cells[2 * WEFT_COUNT(rows)];
    for (int i = 0; i < WEFT_COUNT(rows); i++) {
        snprintf(text[i], sizeof text[i], "%.4g %s",
                 rows[i].scale * mean(all, rows[i].group, rows[i].key), rows[i].unit);
        cells[2 * i] = rows[i].name;
        cells[2 * i + 1] = text[i];
    }
    weft_html_table(page, (const char *const[]){"mean of an iteration", ""}, cells,
                    WEFT_COUNT(rows), 2);
}

/* ---- the page ------------------------------------------------------------------------------- */

/* The iteration with the largest ratio of measured to planned time, except the first, which
 * compiles. */
static int64_t worst_of(const iterations *all)
{
    static const curve off = {"", NULL, "off", -1, 1, false};
    int64_t worst = all->count - 1;
    for (int64_t i = 1; i < all->count; i++)
        if (value_of(all->line[i], &off) > value_of(all->line[worst], &off))
            worst = i;
    return worst;
}

static weft_status write_page(const char *name, const iterations *all, weft_buf *page)
{
    char title[192];
    snprintf(title, sizeof title, "Cascades: %s", name);
    weft_html_heading(page, title);
    table_figures(all, page);
    WEFT_TRY(draw_both(all->line[all->count - 1], "The last one", page));
    const int64_t worst = worst_of(all);
    if (worst != all->count - 1)
        WEFT_TRY(draw_both(all->line[worst], "The one longest over its plan", page));
    WEFT_TRY(plot_all(all, page));
    table_modules(all, page);
    return WEFT_OK;
}

weft_status weft_report_cascades(const char *name, const char *folder, weft_buf *page)
{
    iterations all = {0};
    weft_status_code status = WEFT_OK;
    char *path = weft_path_join(folder, "cascades/iterations.jsonl");
    WEFT_TRY(WEFT_ALLOCATED(path, "the page of a run of cascades"));
    if (weft_path_exists(path))
        WEFT_GO(weft_json_log_lines(path, add_line, &all));
    if (all.count && ranks_of(all.line[0]) < 1)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = path),
                           "the file is not the log of a run with cascades"));
    if (all.count)
        WEFT_GO(write_page(name, &all, page));
out:
    for (int64_t i = 0; i < all.count; i++)
        json_decref(all.line[i]);
    weft_free(all.line);
    weft_free(path);
    return status;
}
