#include "estimate/plan_simulation.h"

#include "base/fs.h"
#include "estimate/plan_models.h"
#include "estimate/plan_target.h"
#include "plan/cascade/assign_trace.h"
#include "plan/cascade/plan_file.h"
#include "plan/cluster/cluster_path.h"
#include "plan/pipeline/activation_report.h"
#include "plan/pipeline/degree_report.h"
#include "plan/pipeline/pipeline_json.h"
#include "plan/pipeline/pipeline_report.h"
#include "plan/pipeline/pipeline_trace.h"
#include "plan/pipeline/pulse_report.h"
#include "plan/plan_checksum.h"
#include "plan/simulate/gantt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the first and last time of each owner's steps. */
static weft_gantt_bar *owner_spans(const weft_trace *t, const weft_simulation *r, int32_t *owners)
{
    *owners = 0;
    for (int64_t i = 0; i < t->step_count; i++)
        *owners = t->step[i].owner >= *owners ? t->step[i].owner + 1 : *owners;
    weft_gantt_bar *span = weft_calloc(*owners + 1, sizeof *span);
    for (int32_t o = 0; span && o < *owners; o++)
        span[o] = (weft_gantt_bar){.start = INFINITY, .part = WEFT_GANTT_LABEL};
    for (int64_t i = 0; span && i < t->step_count; i++) {
        const weft_trace_step *s = &t->step[i];
        if (s->owner < 0 || s->stream == WEFT_STREAM_HOST || r->end[i] <= r->start[i])
            continue;
        span[s->owner].start = fmin(span[s->owner].start, r->start[i]);
        span[s->owner].end = fmax(span[s->owner].end, r->end[i]);
    }
    return span;
}

/* Writes a Gantt chart. `placed` NULL: colours by owner (a pipeline's microbatch). Otherwise:
 * colours by the cascade's sample and labels each cascade. */
static weft_status write_chart(const char *path, const weft_trace *t, const weft_cluster *c,
                               const weft_assigned *placed, const weft_simulation *r,
                               const char *title)
{
    int32_t owners;
    weft_gantt_bar *span = owner_spans(t, r, &owners);
    int64_t capacity = 0, count = 0;
    for (int64_t i = 0; i < t->step_count; i++)
        capacity += t->group[t->step[i].group].count;
    for (int32_t o = 0; placed && o < owners; o++)
        capacity += placed[o].degree;
    weft_gantt_bar *bar = weft_calloc(capacity, sizeof *bar);
    weft_buf svg = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(bar && span, "drawing the simulation"));
    for (int64_t i = 0; i < t->step_count; i++) {
        const weft_trace_step *s = &t->step[i];
        const weft_trace_group *g = &t->group[s->group];
        if (s->stream == WEFT_STREAM_HOST || r->end[i] <= r->start[i])
            continue;
        const int colour = s->owner >= 0 && placed
                               ? weft_gantt_colour(placed[s->owner].id, s->owner)
                               : s->owner + 1;
        const bool comm = s->stream == WEFT_STREAM_COMM;
        for (int32_t k = 0; k < g->count; k++)
            bar[count++] = (weft_gantt_bar){t->member[g->first + k],
                                            r->start[i],
                                            r->end[i],
                                            colour,
                                            comm ? 0.7 : 0.1,
                                            t->name[s->name],
                                            placed ? WEFT_GANTT_INNER : WEFT_GANTT_BAR};
    }
    for (int32_t o = 0; placed && o < owners; o++)
        for (int64_t k = 0; k < placed[o].degree && isfinite(span[o].start); k++) {
            bar[count] = span[o];
            bar[count].row = placed[o].device[k];
            bar[count++].label = placed[o].id;
        }
    WEFT_GO(weft_gantt_svg(title, bar, count, t->devices, r->seconds, c->devices, &svg));
    WEFT_GO(weft_file_write_atomic(path, svg.data, svg.len));
out:
    weft_buf_free(&svg);
    weft_free(span);
    weft_free(bar);
    return status;
}

typedef struct totals {
    double busy, exposed, idle, peak, bytes;
} totals;

static totals add_up(const weft_simulation *r)
{
    totals t = {0};
    for (int64_t d = 0; d < r->devices; d++) {
        t.busy += r->busy[d] / (double)r->devices;
        t.exposed += r->exposed[d] / (double)r->devices;
        t.peak = fmax(t.peak, r->peak[d]);
    }
    for (int64_t l = 0; l < r->links; l++)
        t.bytes += r->link_bytes[l];
    t.idle = r->seconds > 0 ? 1 - (t.busy + t.exposed) / r->seconds : 0;
    return t;
}

static void print_links(const weft_cluster *c, const weft_simulation *r, int64_t wanted)
{
    printf("\n%-28s %14s %10s\n", "busiest links", "bytes", "used %");
    double ceiling = INFINITY;
    int64_t shown = 0;
    while (shown < wanted) { /* prints the busiest links first, equal links together */
        double next = -1;
        for (int64_t l = 0; l < r->links; l++) {
            const double used = r->link_bytes[l] / (weft_cluster_link_bandwidth(c, l) * r->seconds);
            if (used < ceiling && used > next)
                next = used;
        }
        if (!(next > 0))
            return;
        for (int64_t l = 0; l < r->links && shown < wanted; l++) {
            const double used = r->link_bytes[l] / (weft_cluster_link_bandwidth(c, l) * r->seconds);
            if (used != next)
                continue;
            char name[64], bytes[32];
            weft_cluster_link_name(c, l, name);
            printf("%-28s %14s %10.2f\n", name, weft_format_bytes((int64_t)r->link_bytes[l], bytes),
                   100 * used);
            shown++;
        }
        ceiling = next;
    }
}

static weft_status write_figures(const char *path, const weft_simulated_plan *f,
                                 const weft_simulation *r, const totals *t)
{
    const weft_cluster *c = f->cluster;
    json_t *links = json_object(), *root = NULL;
    for (int64_t l = 0; l < r->links; l++)
        if (r->link_bytes[l] > 0) {
            char name[64];
            weft_cluster_link_name(c, l, name);
            json_object_set_new(links, name, json_real(r->link_bytes[l]));
        }
    root = json_pack("{s:f,s:f,s:f,s:f,s:f,s:I,s:o}", "seconds", r->seconds,
                     f->executed ? "executed_seconds" : "planned_seconds", f->seconds, "idle",
                     t->idle, "exposed_seconds", t->exposed, "peak_bytes", t->peak, "events",
                     (json_int_t)r->events, "link_bytes", links);
    const weft_status_code status =
        root ? weft_json_save(path, root) : weft_no_memory("the simulation");
    json_decref(root);
    return status;
}

static weft_status write_chrome(const char *path, const weft_trace *trace,
                                const weft_cluster *cluster, const weft_simulation *r)
{
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_trace_chrome(trace, cluster->devices, r->start, r->end, &text));
    WEFT_GO(weft_file_write_atomic(path, text.data, text.len));
out:
    weft_buf_free(&text);
    return status;
}

weft_status weft_simulation_report(const weft_simulation_options *o, const weft_simulated_plan *f,
                                   const weft_trace *trace, const weft_simulation *r,
                                   const char *path)
{
    const totals t = add_up(r);
    char text[32];
    if (f->executed)
        printf("simulated             %.6g s\nexecuted              %.6g s (%+.2f %%)\n",
               r->seconds, f->seconds, 100 * (f->seconds / r->seconds - 1));
    else
        printf("iteration time        %.6g s (planned %.6g s, bound %.6g s)\n", r->seconds,
               f->seconds, f->bound);
    printf("idle                  %.2f %%\n", 100 * t.idle);
    printf("exposed communication %.4g s per device (%.2f %%)\n", t.exposed,
           r->seconds > 0 ? 100 * t.exposed / r->seconds : 0);
    printf("peak memory           %s per device\n", weft_format_bytes((int64_t)t.peak, text));
    printf("bytes over links      %s\n", weft_format_bytes((int64_t)t.bytes, text));
    printf("devices %" PRId64 ", steps %" PRId64 ", events %" PRId64 "\n", r->devices,
           trace->step_count, r->events);
    print_links(f->cluster, r, o->links);
    if (o->chrome)
        WEFT_TRY(write_chrome(o->chrome, trace, f->cluster, r));
    if (o->svg)
        WEFT_TRY(write_chart(o->svg, trace, f->cluster, f->placed, r, weft_path_base(path)));
    return o->out ? write_figures(o->out, f, r, &t) : WEFT_OK;
}

/* Returns the cluster of a pipeline plan, or one node of devices with the bandwidth of its
 * costs. */
static weft_status pipeline_cluster(const weft_simulation_options *o, weft_arena *arena,
                                    const char *path, const weft_pipeline_plan *plan,
                                    const json_t *json, weft_cluster *c)
{
    bool known;
    WEFT_TRY(weft_plan_target_check(json, path, o->cluster, arena, c, &known));
    if (known)
        return plan->schedule.devices > weft_cluster_devices(c)
                   ? weft_error(
                         WEFT_MSG_OPTION_INVALID,
                         WEFT_AT(.file = path, .key = "--on", WEFT_NUMBER(weft_cluster_devices(c))),
                         "the plan needs %" PRId64 " devices, but the cluster has %" PRId64
                         "; give a "
                         "larger one with --on",
                         plan->schedule.devices, weft_cluster_devices(c))
                   : WEFT_OK;
    const double rate = plan->bandwidth > 0 ? plan->bandwidth : 1e15;
    *c = (weft_cluster){.name = "costs",
                        .nodes = 1,
                        .devices = plan->schedule.devices,
                        .device = {.type = "device",
                                   .memory = INT64_MAX,
                                   .flops = 1,
                                   .memory_bandwidth = 1,
                                   .gemm = 1,
                                   .attention = 1,
                                   .conv = 1,
                                   .memory_fraction = 1},
                        .link = {rate, plan->latency / 2},
                        .host = {rate, plan->latency / 2}};
    return weft_cluster_resolve(c, path);
}

weft_status weft_simulation_refuse_splits(const weft_simulation_options *o, const char *path,
                                          const char *kind)
{
    return o->splits_set
               ? weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--pass-splits"),
                            "%s is %s, which has no passes over layers; remove this option", path,
                            kind)
               : WEFT_OK;
}

static weft_status run_pipeline(const weft_simulation_options *o, const char *path,
                                const json_t *json)
{
    weft_pipeline_plan plan = {0};
    weft_cluster cluster = {0};
    weft_trace trace = {0};
    weft_simulation result = {0};
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(arena, "the simulation"));
    WEFT_GO(weft_simulation_refuse_splits(o, path, "a pipeline's plan"));
    WEFT_GO(weft_pipeline_plan_load(path, &plan));
    WEFT_GO(pipeline_cluster(o, arena, path, &plan, json, &cluster));
    WEFT_GO(weft_pipeline_trace(&plan, 1, 1, &trace));
    WEFT_GO(weft_simulate(&trace, &cluster, &result));
    double busiest = 0; /* the busiest device's work is a lower bound of the iteration */
    for (int64_t d = 0; d < result.devices; d++)
        busiest = fmax(busiest, result.busy[d]);
    const weft_simulated_plan made = {
        .cluster = &cluster, .seconds = plan.timing.seconds, .bound = busiest};
    WEFT_GO(weft_simulation_report(o, &made, &trace, &result, path));
out:
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_pipeline_plan_free(&plan);
    weft_arena_free(arena);
    return status;
}

/* Rejects plans without times. A modified plan is reported first. */
static weft_status refuse_others(const weft_simulation_options *o, const char *path,
                                 const char *format, const json_t *json)
{
    static const char *const known[] = {WEFT_LAYOUT_FORMAT, WEFT_PULSE_FORMAT, WEFT_MEMORY_FORMAT};
    weft_cluster cluster;
    bool described;
    int k = 0;
    while (k < WEFT_COUNT(known) && strcmp(known[k], format))
        k++;
    if (k == WEFT_COUNT(known))
        return weft_error(
            WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = path, .key = "format", .value = format),
            "'%.40s' is not a plan of this version of weft (%s); plan again", format, WEFT_VERSION);
    WEFT_TRY(weft_plan_verify_checksum(json, format, path));
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the simulation"));
    const weft_status_code status =
        weft_plan_target_check(json, path, o->cluster, arena, &cluster, &described);
    weft_arena_free(arena);
    WEFT_TRY(status);
    return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                      WEFT_AT(.file = path, .key = "format", .value = format),
                      "a plan of the kind %s has no steps to simulate; use a plan of weft plan "
                      "cascades or weft plan pipeline",
                      format);
}

static weft_status run_cascades(const weft_simulation_options *o, const char *path)
{
    weft_arena *arena = weft_arena_create();
    weft_plan_file *file = arena ? weft_arena_alloc(arena, sizeof *file) : NULL;
    weft_trace trace = {0};
    weft_simulation result = {0};
    weft_model_work model;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(file, "the simulation"));
    WEFT_GO(weft_plan_file_load(path, o->cluster, arena, file));
    if (file->described) {
        WEFT_GO(weft_plan_model_work(arena, file->model_name, &file->samples, &file->cluster.device,
                                     &model));
        WEFT_GO(weft_plan_file_attach(file, path, &model));
    } else {
        WEFT_GO(weft_simulation_refuse_splits(o, path, "a plan of bare numbers"));
    }
    WEFT_GO(weft_assign_trace(file->placed, file->plan.count, file->plan.devices,
                              file->described ? &file->costs : NULL, &file->samples, o->pass_splits,
                              &trace));
    WEFT_GO(weft_simulate(&trace, &file->cluster, &result));
    const weft_simulated_plan made = {.cluster = &file->cluster,
                                      .placed = file->placed,
                                      .seconds = file->plan.makespan,
                                      .bound = file->plan.lower_bound};
    WEFT_GO(weft_simulation_report(o, &made, &trace, &result, path));
out:
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_arena_free(arena);
    return status;
}

weft_status weft_plan_simulate(const weft_simulation_options *options, const char *path,
                               const json_t *json)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    if (!format || !strcmp(format, WEFT_CASCADE_FORMAT))
        return run_cascades(options, path);
    return strcmp(format, WEFT_PIPELINE_FORMAT) ? refuse_others(options, path, format, json)
                                                : run_pipeline(options, path, json);
}
