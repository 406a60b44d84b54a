#include "train/cascade/cascade_log.h"

#include "base/fs.h"
#include "comm/comm_world.h"
#include "plan/cascade/cascade.h"
#include "plan/simulate/gantt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status no_memory(void)
{
    return weft_no_memory("the log of an iteration");
}

/* ---- timing of an iteration on all ranks ---------------------------------------------------- */

/* Figures of a rank outside its cascades. */
typedef struct figures {
    double begin; /* begin of the iteration, on the common clock */
    double clock_age;
    double all, reduce, summed;
    int64_t reduced;
} figures;

/* Converts the times of rank `r` from its own begin to the begin of the first rank. `late`: seconds
 * between both begins. */
static void shift_times(weft_iteration_timing *e, int r, double late)
{
    for (int64_t c = 0; c < e->cascades; c++) {
        weft_cascade_timing *d = &e->of[r * e->cascades + c];
        d->start += d->took_part ? late : 0;
        d->end += d->took_part ? late : 0;
    }
}

static void sum_figures(const figures *all, weft_iteration_timing *e)
{
    double first = INFINITY;
    e->clock_age = all[0].clock_age;
    for (int r = 0; r < e->ranks; r++)
        first = fmin(first, all[r].begin);
    for (int r = 0; r < e->ranks; r++) {
        const double late = all[r].begin - first;
        shift_times(e, r, late);
        e->all = fmax(e->all, late + all[r].all);
        e->reduce = fmax(e->reduce, all[r].reduce);
        e->reduced += all[r].reduced;
        if (all[r].summed > 0)
            e->summed = fmax(e->summed, late + all[r].summed);
    }
}

static const weft_cascade_timing *side(const weft_iteration_timing *e, int rank, int64_t cascade)
{
    return &e->of[rank * e->cascades + cascade];
}

/* Combines the ranks' times by cascade. A cascade starts when its last rank has started. */
static void sum_cascades(const weft_placed_iteration *plan, weft_iteration_timing *e)
{
    for (int64_t c = 0; c < e->cascades; c++) {
        e->start[c] = e->end[c] = NAN;
        for (int r = 0; r < e->ranks; r++) {
            const weft_cascade_timing *d = side(e, r, c);
            if (!d->took_part)
                continue;
            e->start[c] = fmax(e->start[c], d->start); /* fmax ignores NAN */
            e->end[c] = fmax(e->end[c], d->end);
            e->cold[c] |= d->first;
        }
        e->seconds[c] = e->end[c] - e->start[c];
        e->makespan = fmax(e->makespan, e->end[c]);
        if (isfinite(e->seconds[c]))
            e->module[plan->cascade[c].module] +=
                e->seconds[c] * (double)plan->cascade[c].at.degree;
    }
}

/* Returns the busy seconds of a rank in a cascade. DiT: from the start on all ranks. Encoders: the
 * rank's own busy time, because shares differ and members start separately. */
static double own_seconds(const weft_placed_iteration *plan, const weft_iteration_timing *e,
                          int64_t c, const weft_cascade_timing *d)
{
    const bool denoises = plan->cascade[c].module == WEFT_CASCADE_DIT;
    return denoises ? fmax(0, d->end - fmax(d->start, e->start[c])) : d->busy;
}

static void sum_ranks(const weft_placed_iteration *plan, weft_iteration_timing *e)
{
    for (int r = 0; r < e->ranks; r++) {
        double busy = 0, compiled = 0;
        for (int64_t c = 0; c < e->cascades; c++) {
            const weft_cascade_timing *d = side(e, r, c);
            e->in_place += d->in_place;
            e->received += d->received;
            e->sent += d->sent; /* also of kept rows, which no rank encodes */
            if (!d->took_part)
                continue;
            busy += own_seconds(plan, e, c, d);
            compiled += d->compiled;
            e->peak = fmax(e->peak, d->peak);
        }
        e->compiled = fmax(e->compiled, compiled);
        e->idle[r] = e->makespan > 0 ? fmax(0, 1 - busy / e->makespan) : 0;
    }
}

weft_status weft_cascade_gather(weft_comm *comm, const weft_placed_iteration *plan,
                                const weft_iteration_done *done, weft_iteration_timing *out)
{
    const int ranks = weft_comm_ranks(comm);
    const int64_t n = plan->cascades, bytes = n * (int64_t)sizeof(weft_cascade_timing);
    const int64_t f64 = (int64_t)sizeof(double);
    weft_iteration_timing e = {.ranks = ranks, .cascades = n};
    figures own = {done->begin,  done->clock_age, done->seconds,
                   done->reduce, done->summed,    done->reduced_bytes},
            *all = weft_calloc(ranks, sizeof *all);
    e.of = weft_alloc(ranks * bytes + 1);
    e.start = weft_alloc((3 * n + ranks + WEFT_CASCADE_MODULES) * f64);
    e.cold = weft_alloc(n + 1);
    weft_status_code status =
        WEFT_ALLOCATED(all && e.of && e.start && e.cold, "the log of an iteration");
    WEFT_GO(status);
    e.end = e.start + n;
    e.seconds = e.end + n;
    e.idle = e.seconds + n;
    e.module = e.idle + ranks;
    WEFT_GO(weft_comm_all_gather(comm, done->cascade, bytes, e.of));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    sum_figures(all, &e);
    sum_cascades(plan, &e);
    sum_ranks(plan, &e);
    e.exposed = e.summed > 0 ? fmax(0, e.summed - e.makespan) : e.reduce;
    *out = e;
    e = (weft_iteration_timing){0};
out:
    weft_free(all);
    weft_iteration_timing_free(&e);
    return status;
}

void weft_iteration_timing_free(weft_iteration_timing *e)
{
    weft_free(e->of);
    weft_free(e->start);
    weft_free(e->cold);
    *e = (weft_iteration_timing){0};
}

/* ---- table and chart of an iteration -------------------------------------------------------- */

static void put_ranks(const weft_assigned *at, weft_buf *out)
{
    for (int64_t j = 0; j < at->degree;) { /* runs as a-b */
        int64_t k = j;
        while (k + 1 < at->degree && at->device[k + 1] == at->device[k] + 1)
            k++;
        weft_buf_printf(out, k > j ? "%s%d-%d" : "%s%d", j ? "," : " ", at->device[j],
                        at->device[k]);
        j = k + 1;
    }
}

void weft_placed_print(const weft_placed_iteration *p, weft_buf *out)
{
    weft_buf_printf(out, "%-12s %6s %6s %12s %12s  %s\n", "cascade", "bucket", "degree", "start",
                    "end", "ranks");
    for (int64_t c = 0; c < weft_placed_scheduled(p); c++) {
        const weft_assigned *at = &p->cascade[c].at;
        weft_buf_printf(out, "%-12s %6d %6" PRId64 " %12.6g %12.6g ", at->id,
                        p->sample[p->cascade[c].sample].bucket, at->degree, at->start,
                        at->start + at->seconds);
        put_ranks(at, out);
        weft_buf_printf(out, "\n");
    }
    weft_buf_printf(out, "makespan %.6g s, lower bound %.6g s, gap %.2f %%\n", p->makespan,
                    p->lower_bound, 100 * weft_cascade_gap(p->makespan, p->lower_bound));
}

/* Appends the chart of an execution. `e` NULL: of the plan. */
static weft_status draw(const char *title, const weft_placed_iteration *p, int ranks,
                        const weft_iteration_timing *e, double seconds, weft_buf *svg)
{
    int64_t max_bars = 0, count = 0;
    for (int64_t c = 0; c < weft_placed_scheduled(p); c++)
        max_bars += p->cascade[c].at.degree;
    weft_gantt_bar *bar;
    WEFT_TRY(WEFT_NEW(bar, max_bars + 1, "the log of an iteration"));
    for (int64_t c = 0; c < weft_placed_scheduled(p); c++) {
        const weft_assigned *at = &p->cascade[c].at;
        const double start = e ? e->start[c] : at->start,
                     end = e ? e->end[c] : at->start + at->seconds;
        for (int64_t i = 0; i < (e ? e->ranks : at->degree) && isfinite(start); i++) {
            if (e && !side(e, (int)i, c)->took_part)
                continue; /* moved by late dispatch */
            bar[count++] = (weft_gantt_bar){e ? (int32_t)i : at->device[i],
                                            start,
                                            end,
                                            weft_gantt_colour(at->id, (int)c),
                                            p->cascade[c].module == WEFT_CASCADE_DIT ? 0 : 0.5,
                                            at->id};
        }
    }
    const weft_status_code status = weft_gantt_svg(title, bar, count, ranks, seconds, 0, svg);
    weft_free(bar);
    return status;
}

weft_status weft_placed_svg(const char *title, const weft_placed_iteration *p, int ranks,
                            const weft_iteration_timing *e, weft_buf *svg)
{
    weft_buf above = {0}, below = {0};
    double width = 0, height = 0;
    if (!e)
        return draw(title, p, ranks, NULL, p->makespan, svg);
    const double seconds = fmax(p->makespan, e->makespan);
    weft_status_code status = WEFT_OK;
    WEFT_GO(draw(title, p, ranks, NULL, seconds, &above));
    WEFT_GO(draw("as executed", p, ranks, e, seconds, &below));
    if (sscanf(above.data, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lf\" height=\"%lf\"",
               &width, &height) == 2)
        weft_buf_printf(svg,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\">\n%s"
                        "<g transform=\"translate(0,%g)\">%s</g></svg>\n",
                        width, 2 * height, above.data, height, below.data);
    WEFT_GO(weft_buf_check(svg));
out:
    weft_buf_free(&above);
    weft_buf_free(&below);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char plans_name[] = "plans.jsonl", iterations_name[] = "iterations.jsonl";

struct weft_cascade_log {
    char *folder;
    FILE *plans, *iterations;
    weft_buf svg;
    char *trace;
};

/* Keeps the lines of a file without a step or with a step before `step`, and removes the others. */
static weft_status cut_lines(const char *path, int64_t step)
{
    char *text;
    int64_t bytes;
    weft_buf retained = {0};
    if (!weft_path_exists(path))
        return WEFT_OK;
    WEFT_TRY(weft_file_read(path, INT64_MAX - 1, &text, &bytes));
    for (char *at = text; at < text + bytes;) {
        char *stop = memchr(at, '\n', (size_t)(text + bytes - at));
        json_t *line = NULL;
        if (!stop) /* cut by a kill */
            break;
        const bool whole = weft_json_parse(at, stop - at, path, &line) == WEFT_OK;
        const json_t *of = whole ? json_object_get(line, "step") : NULL;
        if (whole && (!of || json_integer_value(of) < step))
            weft_buf_append(&retained, at, stop + 1 - at);
        json_decref(line);
        at = stop + 1;
    }
    weft_free(text);
    return weft_file_write_buf(path, &retained);
}

static weft_status open_lines(const weft_cascade_log *log, const char *name, int64_t step,
                              FILE **out)
{
    char *path = weft_path_join(log->folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "the log of an iteration"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(cut_lines(path, step));
    *out = fopen(path, "a");
    WEFT_GO(*out ? WEFT_OK : weft_error_errno(WEFT_AT(.file = path), "cannot open the file"));
out:
    weft_free(path);
    return status;
}

static weft_status put_text(const weft_cascade_log *log, FILE *to, const char *text)
{
    if (fprintf(to, "%s\n", text) > 0 && fflush(to) == 0)
        return WEFT_OK;
    int cause = errno;
    char *path = weft_path_join(log->folder, to == log->plans ? plans_name : iterations_name);
    errno = cause;
    weft_status_code status =
        path ? weft_error_errno(WEFT_AT(.file = path), "cannot write the file") : no_memory();
    weft_free(path);
    return status;
}

static weft_status put_line(const weft_cascade_log *log, FILE *to, json_t *line)
{
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    WEFT_TRY(WEFT_ALLOCATED(text, "the log of an iteration"));
    const weft_status_code status = put_text(log, to, text);
    weft_free(text);
    return status;
}

void weft_cascade_log_drop(weft_cascade_log *log)
{
    if (!log)
        return;
    if (log->plans)
        fclose(log->plans);
    if (log->iterations)
        fclose(log->iterations);
    weft_buf_free(&log->svg);
    weft_free(log->trace);
    weft_free(log->folder);
    weft_free(log);
}

static weft_status save_head(void *user, json_t *line)
{
    json_t **head = user;
    if (json_object_get(line, "format")) {
        json_decref(*head);
        *head = json_incref(line);
    }
    return WEFT_OK;
}

/* Writes the head of the following plans, unless the last head in the file is equal. */
static weft_status put_head(const weft_cascade_log *log, const weft_plans_stamp *stamp)
{
    json_t *last = NULL, *own = weft_plans_head(stamp);
    char *path = weft_path_join(log->folder, plans_name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(path ? weft_json_lines(path, save_head, &last) : no_memory());
    if (!(last && json_equal(last, own)))
        WEFT_GO(put_line(log, log->plans, json_incref(own)));
out:
    json_decref(own);
    json_decref(last);
    weft_free(path);
    return status;
}

weft_status weft_cascade_log_open(const char *run, const weft_plans_stamp *stamp, int64_t step,
                                  weft_cascade_log **out)
{
    weft_cascade_log *log;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(log, 1, "the log of an iteration"));
    log->folder = weft_path_join(run, "cascades");
    WEFT_GO(log->folder ? weft_make_dirs(log->folder) : no_memory());
    WEFT_GO(open_lines(log, plans_name, step, &log->plans));
    WEFT_GO(open_lines(log, iterations_name, step, &log->iterations));
    WEFT_GO(put_head(log, stamp));
    *out = log;
    return WEFT_OK;
out:
    weft_cascade_log_drop(log);
    return status;
}

/* ---- a line --------------------------------------------------------------------------------- */

static json_t *cascade_line(const weft_placed_iteration *p, const weft_iteration_timing *e,
                            int64_t c)
{
    const weft_placed_cascade *item = &p->cascade[c];
    json_t *ranks = json_array();
    double waited = 0, compiled = 0, peak = 0;
    int64_t received = 0, in_place = 0, sent = 0;
    for (int64_t i = 0; i < item->at.degree; i++) {
        const weft_cascade_timing *d = side(e, item->at.device[i], c);
        json_array_append_new(ranks, json_integer(item->at.device[i]));
        waited = fmax(waited, d->waited);
        compiled = fmax(compiled, d->compiled);
        peak = fmax(peak, d->peak);
        received += d->received;
        in_place += d->in_place;
        sent += d->sent;
    }
    return json_pack("{s:s, s:s, s:i, s:i, s:o, s:[f, f], s:[o, o], s:f, s:f, s:I, s:I, s:I, s:f}",
                     "id", item->at.id, "module", weft_cascade_module_name(item->module), "sample",
                     (int)item->sample, "bucket", p->sample[item->sample].bucket, "ranks", ranks,
                     "planned", item->at.start, item->at.start + item->at.seconds, "executed",
                     weft_json_finite(e->start[c]), weft_json_finite(e->end[c]), "waited", waited,
                     "compiled", compiled, "received", (json_int_t)received, "in_place",
                     (json_int_t)in_place, "sent", (json_int_t)sent, "peak", peak);
}

static json_t *fit_line(const weft_cascade_fit *fit)
{
    json_t *all = json_object();
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++)
        if (isfinite(fit->planned[m]))
            json_object_set_new(all, weft_cascade_module_name((weft_cascade_module)m),
                                json_pack("{s:o, s:o}", "planned",
                                          weft_json_finite(fit->planned[m]), "estimate",
                                          weft_json_finite(fit->estimated[m])));
    json_object_set_new(all, "factor", weft_json_finite(fit->factor));
    return all;
}

static json_t *iteration_line(const weft_placed_iteration *p, const weft_planning_stats *stats,
                              const weft_cascade_fit *fit, const weft_iteration_timing *e)
{
    json_t *cascades = json_array(), *idle = json_array(), *modules = json_object();
    double all_idle = 0;
    for (int64_t c = 0; c < weft_placed_scheduled(p); c++)
        json_array_append_new(cascades, cascade_line(p, e, c));
    for (int r = 0; r < e->ranks; r++) {
        json_array_append_new(idle, weft_json_finite(e->idle[r]));
        all_idle += e->idle[r] / e->ranks;
    }
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++)
        json_object_set_new(modules, weft_cascade_module_name((weft_cascade_module)m),
                            weft_json_finite(e->module[m]));
    return json_pack(
        "{s:i, s:I, s:I, s:{s:f, s:f, s:f, s:o}, s:{s:f, s:f, s:f, s:f, s:f, s:f}, s:{s:I, "
        "s:I, s:I, s:I}, "
        "s:{s:f, s:f, s:f, s:I, s:b, s:b, s:I, s:s, s:I}, s:o, s:o, s:o, s:f, s:o}",
        "version", 2, "step", (json_int_t)p->step, "samples", (json_int_t)weft_placed_trained(p),
        "planned", "makespan", p->makespan, "idle", stats->idle, "lower_bound", p->lower_bound,
        "gap", weft_json_finite(weft_cascade_gap(p->makespan, p->lower_bound)), "executed",
        "makespan", e->makespan, "idle", all_idle, "sums", e->exposed, "reduce", e->reduce,
        "seconds", e->all, "compiled", e->compiled, "bytes", "in_place", (json_int_t)e->in_place,
        "received", (json_int_t)e->received, "sent", (json_int_t)e->sent, "reduced",
        (json_int_t)e->reduced, "planner", "seconds", stats->seconds, "busy", stats->busy, "late",
        stats->late, "rounds", (json_int_t)stats->rounds, "proved", stats->proved, "replayed",
        stats->replayed, "left_out", (json_int_t)stats->left_out, "dispatch",
        p->search ? "search"
        : p->late ? "late"
                  : "planned",
        "searches", (json_int_t)stats->searches, "fit", fit_line(fit), "modules", modules, "idle",
        idle, "peak", e->peak, "cascades", cascades);
}

/* ---- charts --------------------------------------------------------------------------------- */

/* Adds the begin and end of `d`, and its byte counts if the cascade was executed. */
static void add_event(json_t *events, const char *name, int process, int rank,
                      const weft_cascade_timing *d)
{
    if (!isfinite(d->start))
        return;
    json_t *event =
        json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "name", name, "ph", "X", "pid", process, "tid",
                  rank, "ts", 1e6 * d->start, "dur", 1e6 * (d->end - d->start));
    if (d->took_part && event)
        json_object_set_new(event, "args",
                            json_pack("{s:I, s:I, s:I}", "bytes in place", (json_int_t)d->in_place,
                                      "bytes received", (json_int_t)d->received, "bytes sent",
                                      (json_int_t)d->sent));
    json_array_append_new(events, event);
}

static char *chrome(const weft_placed_iteration *p, const weft_iteration_timing *e)
{
    static const char *const names[] = {"planned", "executed"};
    json_t *events = json_array();
    for (int i = 0; i < WEFT_COUNT(names); i++)
        json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name",
                                                "ph", "M", "pid", i, "args", "name", names[i]));
    for (int64_t c = 0; c < weft_placed_scheduled(p); c++) {
        const weft_assigned *at = &p->cascade[c].at;
        const weft_cascade_timing planned = {.start = at->start, .end = at->start + at->seconds};
        for (int64_t i = 0; i < at->degree; i++) {
            const weft_cascade_timing *d = side(e, at->device[i], c);
            add_event(events, at->id, 0, at->device[i], &planned);
            if (d->took_part)
                add_event(events, at->id, 1, at->device[i], d);
        }
    }
    json_t *root = json_pack("{s:o}", "traceEvents", events);
    char *text = root ? weft_json_line(root) : NULL;
    json_decref(root);
    return text;
}

weft_status weft_cascade_log_record(weft_cascade_log *log, const weft_placed_iteration *plan,
                                    const char *text, const weft_planning_stats *stats,
                                    const weft_cascade_fit *fit,
                                    const weft_iteration_timing *executed)
{
    char title[160];
    WEFT_TRY(put_text(log, log->plans, text));
    WEFT_TRY(put_line(log, log->iterations, iteration_line(plan, stats, fit, executed)));
    snprintf(title, sizeof title,
             "iteration %" PRId64 " as planned: %.4g s; below as executed: %.4g s", plan->step,
             plan->makespan, executed->makespan);
    log->svg.len = 0;
    WEFT_TRY(weft_placed_svg(title, plan, executed->ranks, executed, &log->svg));
    weft_free(log->trace);
    log->trace = chrome(plan, executed);
    return WEFT_ALLOCATED(log->trace, "the log of an iteration");
}

static weft_status write_file(const weft_cascade_log *log, const char *name, const char *text,
                              int64_t bytes)
{
    char *path = weft_path_join(log->folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "the log of an iteration"));
    const weft_status_code status = weft_file_write_atomic(path, text, bytes);
    weft_free(path);
    return status;
}

weft_status weft_cascade_log_close(weft_cascade_log *log)
{
    weft_status_code status = WEFT_OK;
    if (!log)
        return status;
    if (log->trace) {
        WEFT_GO(write_file(log, "timeline.svg", log->svg.data, log->svg.len));
        WEFT_GO(write_file(log, "trace.json", log->trace, (int64_t)strlen(log->trace)));
    }
out:
    weft_cascade_log_drop(log); /* every line is already flushed */
    return status;
}
