/* weft simulate: a plan on a clock. */
#include "base/fs.h"
#include "cli/plan.h"
#include "cli/simulate_run.h"
#include "cli/simulate_trace.h"
#include "plan/cascade/plan_file.h"
#include "plan/pipeline/degrees_report.h"
#include "plan/pipeline/keep_report.h"
#include "plan/pipeline/pipeline_report.h"
#include "plan/seal_file.h"
#include "plan/simulate/gantt.h"
#include "plan/simulate/simulator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_option options[] = {
    {"--cluster", "SPEC", NULL,
     "preset or YAML file; of a plan it must be the one that it was made for"},
    {"--chrome", "FILE.json", NULL, "write a Chrome trace (open it in Perfetto)"},
    {"--svg", "FILE.svg", NULL, "draw a Gantt chart: a row per device, a colour per sample"},
    {"--out", "FILE.json", NULL, "write the figures as JSON"},
    {"--links", "N", "8", "list the N busiest links"},
    {"--set", "KEY=VALUE", NULL, "of a run: stands in for what its config says", .repeated = true},
    {"--costs", "FILE.json", NULL,
     "of a run: write what its stages take, for weft plan pipeline --costs"},
    {"--folds", "N", "0", "parts per pass over the layers; 0: by the number of devices"},
};

/* From where to where each owner's steps run. */
static weft_gantt_bar *owner_spans(const weft_trace *t, const weft_simulation *r, int32_t *owners)
{
    *owners = 0;
    for (int64_t i = 0; i < t->step_count; i++)
        *owners = t->step[i].owner >= *owners ? t->step[i].owner + 1 : *owners;
    weft_gantt_bar *span = weft_alloc((*owners + 1) * (int64_t)sizeof *span);
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

/* `placed` NULL: an owner is what is coloured (a pipeline's microbatch); else its cascade's sample,
 * with the cascade's name over all of its steps. */
static weft_status write_chart(const char *path, const weft_trace *t, const weft_cluster *c,
                               const weft_assigned *placed, const weft_simulation *r,
                               const char *title)
{
    int32_t owners;
    weft_gantt_bar *span = owner_spans(t, r, &owners);
    int64_t room = 0, count = 0;
    for (int64_t i = 0; i < t->step_count; i++)
        room += t->group[t->step[i].group].count;
    for (int32_t o = 0; placed && o < owners; o++)
        room += placed[o].degree;
    weft_gantt_bar *bar = weft_alloc(room * (int64_t)sizeof *bar);
    weft_buf svg = {0};
    weft_status_code status = WEFT_OK;
    if (!bar || !span)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory drawing the simulation"));
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
    while (shown < wanted) { /* by falling use, equal ones together */
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

/* What a report needs to know of what is simulated. */
typedef struct planned {
    const weft_cluster *cluster;
    const weft_assigned *placed; /* NULL: a pipeline, or executed */
    double seconds, bound;
    bool executed; /* seconds: that it took */
} planned;

static weft_status write_figures(const char *path, const planned *f, const weft_simulation *r,
                                 const totals *t)
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
        root ? weft_json_save(path, root) : weft_fail(WEFT_E_MEMORY, "out of memory");
    json_decref(root);
    return status;
}

static weft_status report(const weft_args *args, const planned *f, const weft_trace *trace,
                          const weft_simulation *r, const char *path)
{
    int64_t links;
    WEFT_TRY(weft_args_i64(args, "--links", 0, 1 << 20, &links));
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
    printf("devices %lld, steps %lld, events %lld\n", (long long)r->devices,
           (long long)trace->step_count, (long long)r->events);
    print_links(f->cluster, r, links);
    const char *chrome = weft_args_string(args, "--chrome"), *svg = weft_args_string(args, "--svg");
    const char *out = weft_args_string(args, "--out");
    if (chrome) {
        weft_buf text_out = {0};
        weft_status_code status =
            weft_trace_chrome(trace, f->cluster->devices, r->start, r->end, &text_out);
        if (status == WEFT_OK)
            status = weft_file_write_atomic(chrome, text_out.data, text_out.len);
        weft_buf_free(&text_out);
        WEFT_TRY(status);
    }
    if (svg)
        WEFT_TRY(write_chart(svg, trace, f->cluster, f->placed, r, weft_path_base(path)));
    return out ? write_figures(out, f, r, &t) : WEFT_OK;
}

/* The cluster of a pipeline plan: the one it names, or a node of devices with the bandwidth of its
 * costs. */
static weft_status pipeline_cluster(const weft_args *args, weft_arena *arena, const char *path,
                                    const weft_pipeline_plan *plan, const json_t *json,
                                    weft_cluster *c)
{
    bool known;
    WEFT_TRY(
        weft_plan_target_check(json, path, weft_args_string(args, "--cluster"), arena, c, &known));
    if (known)
        return plan->schedule.devices > weft_cluster_devices(c)
                   ? weft_fail(WEFT_E_ARG, "%s needs %lld devices, the cluster has %lld", path,
                               (long long)plan->schedule.devices,
                               (long long)weft_cluster_devices(c))
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

/* Only what has passes over layers is cut into folds. */
static weft_status refuse_folds(const weft_args *args, const char *path, const char *kind)
{
    return weft_args_flag(args, "--folds")
               ? weft_fail(WEFT_E_ARG,
                           "--folds: %s is %s, which has no passes over layers to cut; leave "
                           "--folds out",
                           path, kind)
               : WEFT_OK;
}

static weft_status run_pipeline(const weft_args *args, const char *path, const json_t *json)
{
    weft_pipeline_plan plan = {0};
    weft_cluster cluster = {0};
    weft_trace trace = {0};
    weft_simulation result = {0};
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    if (!arena)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(refuse_folds(args, path, "a pipeline's plan"));
    WEFT_GO(weft_pipeline_plan_load(path, &plan));
    WEFT_GO(pipeline_cluster(args, arena, path, &plan, json, &cluster));
    WEFT_GO(weft_pipeline_trace(&plan, 1, 1, &trace));
    WEFT_GO(weft_simulate(&trace, &cluster, &result));
    double busiest = 0; /* a device's own work bounds the iteration */
    for (int64_t d = 0; d < result.devices; d++)
        busiest = fmax(busiest, result.busy[d]);
    const planned made = {.cluster = &cluster, .seconds = plan.timing.seconds, .bound = busiest};
    WEFT_GO(report(args, &made, &trace, &result, path));
out:
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_pipeline_plan_free(&plan);
    weft_arena_free(arena);
    return status;
}

/* Plans that say how much and not when: still, one that is not as it was made is told first. */
static weft_status refuse_others(const weft_args *args, const char *path, const char *format,
                                 const json_t *json)
{
    static const char *const known[] = {WEFT_LAYOUT_FORMAT, WEFT_PULSE_FORMAT, WEFT_MEMORY_FORMAT};
    weft_cluster cluster;
    bool described;
    int k = 0;
    while (k < WEFT_COUNT(known) && strcmp(known[k], format))
        k++;
    if (k == WEFT_COUNT(known))
        return weft_fail(WEFT_E_FORMAT, "%s: \"format\" is \"%.40s\", no plan of this weft (%s)",
                         path, format, WEFT_VERSION);
    WEFT_TRY(weft_plan_seal_check(json, format, path));
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = weft_plan_target_check(
        json, path, weft_args_string(args, "--cluster"), arena, &cluster, &described);
    weft_arena_free(arena);
    return status != WEFT_OK
               ? status
               : weft_fail(WEFT_E_ARG,
                           "%s: a plan of the kind %s has no steps to run; those of weft plan "
                           "cascades and weft plan pipeline have",
                           path, format);
}

/* What ranks have executed, over the links of a cluster. */
static weft_status run_traces(const weft_args *args, const char *const *paths, int count)
{
    weft_cluster cluster = {0};
    weft_trace trace = {0};
    weft_simulation result = {0};
    planned made = {.cluster = &cluster, .executed = true};
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    if (!arena)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(refuse_folds(args, paths[0], "a trace of what was executed"));
    WEFT_GO(weft_simulate_traces(args, paths, count, arena, &trace, &cluster, &made.seconds));
    WEFT_GO(weft_simulate(&trace, &cluster, &result));
    WEFT_GO(report(args, &made, &trace, &result, paths[0]));
out:
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_arena_free(arena);
    return status;
}

static weft_status run_simulate(const weft_args *args)
{
    int count;
    const char *const *paths = weft_args_positional(args, &count), *path = paths[0];
    json_t *json;
    if (!strcmp(weft_path_extension(path), "yaml") || !strcmp(weft_path_extension(path), "yml"))
        return count > 1 ? weft_fail(WEFT_E_ARG,
                                     "%s is a run, which is simulated alone; leave %s "
                                     "out",
                                     path, paths[1])
                         : weft_simulate_run(args, path);
    if (weft_args_flag(args, "--set") || weft_args_flag(args, "--costs"))
        return weft_fail(WEFT_E_ARG, "--set and --costs are for a run (.yaml), %s is a plan", path);
    if (!strcmp(weft_path_extension(path), "jsonl"))
        return weft_fail(WEFT_E_ARG,
                         "%s has a line for every iteration, which weft report draws; what is "
                         "simulated is a plan of weft plan or a trace of what ran",
                         path);
    WEFT_TRY(weft_json_load(path, &json));
    if (weft_simulate_is_trace(json)) {
        json_decref(json);
        return run_traces(args, paths, count);
    }
    if (count > 1) {
        json_decref(json);
        return weft_fail(WEFT_E_ARG, "%s is a plan, which is simulated alone; leave %s out", path,
                         paths[1]);
    }
    const char *format = json_string_value(json_object_get(json, "format"));
    if (format && strcmp(format, WEFT_CASCADE_FORMAT) != 0) {
        const weft_status_code done = strcmp(format, WEFT_PIPELINE_FORMAT) == 0
                                          ? run_pipeline(args, path, json)
                                          : refuse_others(args, path, format, json);
        json_decref(json);
        return done;
    }
    json_decref(json);
    int64_t folds;
    WEFT_TRY(weft_args_i64(args, "--folds", 0, 1000, &folds));
    weft_arena *arena = weft_arena_create();
    weft_plan_file *file = arena ? weft_arena_alloc(arena, sizeof *file) : NULL;
    weft_trace trace = {0};
    weft_simulation result = {0};
    weft_status_code status = file ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK)
        status = weft_plan_file_load(path, weft_args_string(args, "--cluster"), arena, file);
    weft_model_work model;
    if (status == WEFT_OK && !file->described)
        status = refuse_folds(args, path, "a plan of bare numbers");
    if (status == WEFT_OK && file->described)
        status = weft_plan_model_work(arena, file->model_name, &file->samples,
                                      &file->cluster.device, &model);
    if (status == WEFT_OK && file->described)
        status = weft_plan_file_attach(file, path, &model);
    if (status == WEFT_OK)
        status =
            weft_assign_trace(file->placed, file->plan.count, file->plan.devices,
                              file->described ? &file->costs : NULL, &file->samples, folds, &trace);
    if (status == WEFT_OK)
        status = weft_simulate(&trace, &file->cluster, &result);
    const planned made = {.cluster = file ? &file->cluster : NULL,
                          .placed = file ? file->placed : NULL,
                          .seconds = file ? file->plan.makespan : 0,
                          .bound = file ? file->plan.lower_bound : 0};
    if (status == WEFT_OK)
        status = report(args, &made, &trace, &result, path);
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_simulate = {
    .name = "simulate",
    .summary = "run a plan on a clock: time, idle, exposed communication, links, memory",
    .usage = "PLAN.json | RUN.yaml | TRACE.json... [options]",
    .details =
        "Reads a plan of `weft plan cascades --out` or `weft plan pipeline --out`, turns it into "
        "the steps that every device would take, and runs them over the cluster with an event "
        "simulator: collectives as their algorithms do them, links shared fairly, compute and "
        "communication on streams of their own. Prints the iteration time, the idle part, "
        "communication that compute does not hide, peak memory and the busiest links.\n\n"
        "A plan of bare numbers (--costs) has only its seconds: it is replayed without "
        "communication. A plan that was made for another cluster is refused.\n\n"
        "A config of weft train with parallel.pp (and dp) is simulated and also executed, by as "
        "many ranks as its mesh has, threads of this process: the run's own programs, table and "
        "exchanges, on devices and links that are the cluster's figures and cost nothing here. "
        "Told are the iteration and the idle share by both, the sums and the update behind the "
        "microbatches, the bytes that the ranks sent, and the memory of the fullest one. The "
        "first size of the first stage is taken. Options of plans (--chrome, --svg, --links, "
        "--folds) are not for runs.\n\n"
        "Traces of all ranks of a run (weft generate --trace, `trace: true` of weft train) are "
        "joined and replayed over the links of --cluster: kernels, and what lies between them, "
        "take what they took, exchanges what their bytes take over those links, waits what is "
        "left. Told is how far what was executed is from that, or, with other links, what they "
        "would have made of it.",
    .examples =
        "weft plan cascades --set stage=1080p --out plan.json\n"
        "weft simulate plan.json --svg gantt.svg --chrome trace.json\n"
        "weft plan pipeline examples/plan-pipeline.yaml --out wave.json\n"
        "weft simulate wave.json --chrome trace.json\n"
        "weft simulate run.yaml --set parallel.pp=16 --set parallel.schedule=wave --cluster "
        "v100:2 --costs costs.json\n"
        "weft plan pipeline --costs costs.json --stages 32 --devices 16 --out plan.json\n"
        "weft simulate run.yaml --set parallel.pp=16 --set parallel.schedule=plan.json "
        "--cluster v100:2\n"
        "weft simulate traced/trace-*.json --cluster two.yaml --svg executed.svg\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 4096,
    .run = run_simulate,
};
