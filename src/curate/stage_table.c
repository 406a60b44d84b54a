#include "curate/stage_table.h"

#include "base/config.h"

#include <math.h>
#include <stdio.h>

typedef struct stage_name {
    const char *name, *title, *items;
} stage_name;

static const stage_name names[WEFT_CURATE_STAGES] = {
    [WEFT_STAGE_ANALYSE] = {"analyse", "curate: analyse", "videos"},
    [WEFT_STAGE_EMBED] = {"embed", "curate: embed", "videos"},
    [WEFT_STAGE_SCORE] = {"score", "curate: score", "videos"},
    [WEFT_STAGE_SELECT] = {"select", "curate: select", "shots"},
    [WEFT_STAGE_WRITE] = {"write", "curate: write", "videos"},
    [WEFT_STAGE_CAPTION] = {"caption", "curate: caption", "clips"},
};

void weft_stage_table_init(weft_stage_table *t, weft_metrics_server *server)
{
    *t = (weft_stage_table){
        .server = server, .now = -1, .on_terminal = weft_log_has_table(), .is_late = true};
}

/* ---- remaining time ------------------------------------------------------------------------- */

static void fit_item(weft_stage_table *t)
{
    const double items = (double)(t->items - t->left), seconds = weft_now() - t->began;
    t->fit.items_items += items * items;
    t->fit.items_work += items * t->done;
    t->fit.work_work += t->done * t->done;
    t->fit.items_seconds += items * seconds;
    t->fit.work_seconds += t->done * seconds;
}

/* The seconds of an item and of a unit of work: least squares of the seconds at which items ended,
 * without negative prices. Large videos are first, and a small one costs more than its share of the
 * bytes: a price for bytes alone would promise too early an end. */
static void prices(const weft_stage_fit *f, double *item, double *unit)
{
    const double det = f->items_items * f->work_work - f->items_work * f->items_work;
    *item = *unit = 0;
    if (det > 1e-9 * f->items_items * f->work_work) { /* sizes differ */
        *item = (f->items_seconds * f->work_work - f->work_seconds * f->items_work) / det;
        *unit = (f->work_seconds * f->items_items - f->items_seconds * f->items_work) / det;
    }
    if (*item > 0 && *unit < 0) {
        *unit = 0;
    } else if (*item <= 0) {
        *item = 0;
        *unit = 1;
    }
}

/* Scales the seconds so far, which include the items that run. */
static double remaining(const weft_stage_table *t, double passed)
{
    double item, unit;
    prices(&t->fit, &item, &unit);
    const double ended = item * (double)(t->items - t->left) + unit * t->done;
    return passed * (item * (double)t->left + unit * fmax(t->work - t->done, 0)) / ended;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void weft_stage_table_row(const weft_stage_table *t, weft_curate_stage stage, weft_stage_row *row)
{
    const weft_stage_count *s = &t->stage[stage];
    const bool runs = t->now == (int)stage;
    const double passed = runs ? weft_now() - t->began : 0;
    *row = (weft_stage_row){.input = s->input,
                            .output = s->output,
                            .failed = s->failed,
                            .seconds = s->seconds + passed,
                            .remaining = s->input > 0 && !runs ? 0 : NAN};
    if (runs) {
        row->running = t->left < t->workers ? t->left : t->workers;
        row->queued = t->left - row->running;
        if (t->done > 0)
            row->remaining = remaining(t, passed);
    }
    const int64_t ended = s->input - (runs ? t->left : 0);
    row->rate = row->seconds > 0 ? (double)ended / row->seconds : 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

void weft_stage_table_print(const weft_stage_table *t, weft_buf *text)
{
    weft_buf_printf(text, "%-8s %9s %9s %8s %8s %8s %10s %10s  %s\n", "stage", "input", "output",
                    "failed", "queued", "running", "seconds", "items/s", "remaining");
    for (int i = 0; i < WEFT_CURATE_STAGES; i++) {
        weft_stage_row r;
        char left[32] = "-";
        weft_stage_table_row(t, (weft_curate_stage)i, &r);
        if (!t->stage[i].used)
            continue;
        if (r.input == 0) {
            weft_buf_printf(text, "%-8s %9s %9s %8s %8s %8s %10s %10s  -\n", names[i].name, "-",
                            "-", "-", "-", "-", "-", "-");
            continue;
        }
        if (isfinite(r.remaining) && t->now == i)
            weft_format_seconds(r.remaining, left);
        weft_buf_printf(text,
                        "%-8s %9" PRId64 " %9" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64
                        " %10.1f %10.3g  %s\n",
                        names[i].name, r.input, r.output, r.failed, r.queued, r.running, r.seconds,
                        r.rate, left);
    }
}

void weft_stage_table_metrics(const weft_stage_table *t, weft_buf *text)
{
    static const struct {
        const char *name, *type, *help;
    } metric[] = {
        {"weft_curate_input", "gauge", "Items that the stage received."},
        {"weft_curate_output", "gauge", "Items that left the stage."},
        {"weft_curate_failed", "gauge", "Items that failed in the stage."},
        {"weft_curate_queued", "gauge", "Items that wait for a worker of the stage."},
        {"weft_curate_running", "gauge", "Items that workers of the stage have."},
        {"weft_curate_seconds", "gauge", "Seconds in which the stage ran."},
        {"weft_curate_items_per_second", "gauge", "Mean rate of the stage."},
        {"weft_curate_remaining_seconds", "gauge", "Predicted seconds until the stage ends."},
    };
    weft_metric_text_head(text, "weft_build_info", "gauge", "Version of the running program.");
    weft_metric_text_value(text, "weft_build_info", "version", WEFT_VERSION, 1);
    for (int k = 0; k < WEFT_COUNT(metric); k++) {
        weft_metric_text_head(text, metric[k].name, metric[k].type, metric[k].help);
        for (int i = 0; i < WEFT_CURATE_STAGES; i++) {
            weft_stage_row r;
            weft_stage_table_row(t, (weft_curate_stage)i, &r);
            const double value[] = {(double)r.input,  (double)r.output,  (double)r.failed,
                                    (double)r.queued, (double)r.running, r.seconds,
                                    r.rate,           r.remaining};
            if (t->stage[i].used)
                weft_metric_text_value(text, metric[k].name, "stage", names[i].name, value[k]);
        }
    }
}

/* ---- shown while it runs -------------------------------------------------------------------- */

static void publish(weft_stage_table *t)
{
    weft_buf text = {0};
    if (!t->server)
        return;
    weft_stage_table_metrics(t, &text);
    if (!text.failed)
        (void)!weft_metrics_server_publish(t->server, &text); /* the next text replaces it */
    weft_buf_free(&text);
}

static void show_table(weft_stage_table *t, bool last)
{
    weft_buf text = {0};
    weft_stage_table_print(t, &text);
    if (!text.failed && text.data)
        weft_log_show_table(text.data, last);
    weft_buf_free(&text);
    t->shown = weft_now();
}

/* The figures of the running stage in a line of progress. */
static void show_line(weft_stage_table *t, bool last)
{
    weft_stage_row r;
    char detail[160];
    weft_stage_table_row(t, (weft_curate_stage)t->now, &r);
    snprintf(detail, sizeof detail,
             "%s, output %" PRId64 ", failed %" PRId64 ", queued %" PRId64 ", %.3g/s",
             names[t->now].items, r.output, r.failed, r.queued, r.rate);
    if (last)
        weft_progress_end(&t->progress, t->items - t->left, detail);
    else
        weft_progress_update_left(&t->progress, t->items - t->left, detail,
                                  isfinite(r.remaining) ? r.remaining : -1);
}

static void show(weft_stage_table *t)
{
    if (t->now < 0)
        return;
    if (!t->on_terminal)
        show_line(t, false);
    else if (weft_now() - t->shown >= 0.1)
        show_table(t, false);
    if (weft_metrics_server_is_due(t->server))
        publish(t);
}

void weft_stage_table_begin(weft_stage_table *t, weft_curate_stage stage, int64_t items,
                            int64_t workers, double work)
{
    t->now = (int)stage;
    t->stage[stage].used = true;
    if (stage == WEFT_STAGE_SELECT) /* selects again from all shots */
        t->stage[stage].input = 0;
    t->stage[stage].input += items;
    t->items = t->left = items;
    t->workers = workers;
    t->work = work;
    t->done = 0;
    t->fit = (weft_stage_fit){0};
    t->began = weft_now();
    t->is_late = false;
    if (!t->on_terminal)
        weft_progress_begin(&t->progress, names[stage].title, items, 0);
    publish(t);
    show(t);
}

void weft_stage_table_item(weft_stage_table *t, bool failed, double work)
{
    if (t->now < 0)
        return;
    t->left--;
    t->stage[t->now].output += !failed;
    t->stage[t->now].failed += failed;
    t->done += work;
    fit_item(t);
    show(t);
}

void weft_stage_table_tick(weft_stage_table *t)
{
    show(t);
}

void weft_stage_table_end(weft_stage_table *t, int64_t output)
{
    if (t->now < 0)
        return;
    if (output >= 0) {
        t->stage[t->now].output = output;
        t->left = 0;
    }
    if (!t->on_terminal)
        show_line(t, true);
    t->stage[t->now].seconds += weft_now() - t->began;
    t->now = -1;
    if (t->on_terminal)
        show_table(t, false);
    publish(t);
}

void weft_stage_table_close(weft_stage_table *t)
{
    if (t->on_terminal && !t->is_late)
        show_table(t, true);
    t->is_late = true;
}
