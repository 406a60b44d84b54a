#include "cli/simulate_run.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "plan/cost/rates.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/simulate/simulator.h"
#include "train/modelled.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the cluster as devices and links ------------------------------------------------------ */

static weft_virtual_rates rates_of(const weft_device_type *d)
{
    weft_virtual_rates r = {.flops = d->flops,
                            .bytes = d->memory_bandwidth * d->memory_fraction,
                            .launch = 5e-6,
                            .scale = 1};
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const weft_node node = {.op = (weft_op)op};
        const weft_work work = weft_node_work(&node);
        r.op_flops[op] = d->flops * (work == WEFT_WORK_GEMM        ? d->gemm
                                     : work == WEFT_WORK_ATTENTION ? d->attention
                                     : work == WEFT_WORK_CONV      ? d->conv
                                                                   : 1);
    }
    return r;
}

/* The way from one device to another, where no one else sends. */
static weft_link_speed speed_of(const weft_cluster *c, int64_t from, int64_t to)
{
    weft_path path;
    double bandwidth = INFINITY;
    weft_cluster_path(c, from, to, &path);
    for (int32_t i = 0; i < path.count; i++)
        bandwidth = fmin(bandwidth, weft_cluster_link_bandwidth(c, path.link[i]));
    return (weft_link_speed){.bytes_per_second = bandwidth, .latency = path.latency};
}

static weft_link_model links_of(const weft_cluster *c)
{
    weft_link_model m = {.per_node = (int)c->devices, .cluster = c};
    if (c->devices > 1)
        m.inside = speed_of(c, 0, 1);
    m.between = c->nodes > 1 ? speed_of(c, 0, c->devices) : m.inside;
    return m;
}

/* ---- what the event simulator says --------------------------------------------------------- */

typedef struct said {
    double seconds, idle;
} said;

/* The ranks that differ in nothing but their stage are so far apart. */
static int64_t stride_of(const weft_mesh *mesh)
{
    int64_t stride = 1;
    for (int a = weft_mesh_axis(mesh, WEFT_STAGES_AXIS) + 1; a < mesh->axis_count; a++)
        stride *= mesh->axis[a].size;
    return stride;
}

typedef struct seconds {
    double *forward, *backward, *weight, *send, *bytes, *none; /* [stages] */
} seconds;

static weft_status stage_seconds(const weft_modelled_step *s, const weft_cluster *c,
                                 weft_arena *arena, seconds *t)
{
    const int64_t stride = stride_of(&s->mesh), room = (s->stages + 1) * (int64_t)sizeof(double);
    double **list[] = {&t->forward, &t->backward, &t->weight, &t->send, &t->bytes, &t->none};
    for (int i = 0; i < WEFT_COUNT(list); i++)
        if (!(*list[i] = weft_arena_alloc(arena, room)))
            return weft_fail(WEFT_E_MEMORY, "out of memory for %d stages", s->stages);
    for (int q = 0; q < s->stages; q++) {
        const weft_modelled_stage *stage = &s->stage[q];
        t->forward[q] = stage->seconds[WEFT_STAGE_F];
        t->weight[q] = stage->seconds[WEFT_STAGE_W];
        t->backward[q] = stage->seconds[WEFT_STAGE_B] + t->weight[q];
        t->bytes[q] = stage->sent;
        if (q + 1 == s->stages || s->table.device_of[q] == s->table.device_of[q + 1])
            continue;
        const weft_link_speed way =
            speed_of(c, s->table.device_of[q] * stride, s->table.device_of[q + 1] * stride);
        t->send[q] = way.latency + stage->sent / way.bytes_per_second;
    }
    return WEFT_OK;
}

static weft_status simulate(weft_modelled_step *s, const weft_cluster *c, weft_arena *arena,
                            said *out)
{
    seconds t;
    weft_trace trace = {0};
    weft_simulation r = {0};
    weft_schedule_timing timing;
    weft_status_code status = WEFT_OK;
    WEFT_GO(stage_seconds(s, c, arena, &t));
    const weft_stage_times times = {.forward = t.forward,
                                    .backward = t.backward,
                                    .weight = s->table.split ? t.weight : NULL,
                                    .send = t.send,
                                    .send_back = t.send};
    WEFT_GO(weft_schedule_time(&s->table, &times, &timing));
    const weft_pipeline_plan plan = {.schedule = s->table,
                                     .timing = timing,
                                     .boundary_bytes = t.bytes,
                                     .stage_activation = t.none,
                                     .parameter_bytes = t.none};
    WEFT_GO(weft_pipeline_trace(&plan, stride_of(&s->mesh), s->ranks / s->table.devices, &trace));
    WEFT_GO(weft_simulate(&trace, c, &r));
    *out = (said){.seconds = r.seconds,
                  .idle = 1 - timing.busy / (r.seconds * (double)s->table.devices)};
out:
    weft_simulation_free(&r);
    weft_trace_free(&trace);
    return status;
}

/* ---- telling ------------------------------------------------------------------------------- */

static void add_up(const weft_modelled_step *s, int64_t *sent, int64_t *messages, int64_t *peak)
{
    *sent = *messages = *peak = 0;
    for (int r = 0; r < s->ranks; r++) {
        *sent += s->rank[r].sent;
        *messages += s->rank[r].messages;
        *peak = s->rank[r].bytes > *peak ? s->rank[r].bytes : *peak;
    }
}

static void print(const weft_modelled_step *s, const said *by, const char *cluster, double took)
{
    char text[32];
    int64_t sent, messages, peak;
    add_up(s, &sent, &messages, &peak);
    printf("%d ranks of %s, modelled\n%s", s->ranks, cluster, s->print);
    printf("%-10s %14s %10s\n", "", "iteration", "idle");
    printf("%-10s %14s %8.2f %%\n", "simulated", weft_format_seconds(by->seconds, text),
           100 * by->idle);
    printf("%-10s %14s %8.2f %%  %+.2f %%\n", "executed", weft_format_seconds(s->seconds, text),
           100 * s->idle, 100 * (s->seconds / by->seconds - 1));
    printf("%-10s %14s  sums of what stages share, and the update\n", "behind it",
           weft_format_seconds(s->behind, text));
    printf("%-10s %14s  a microbatch, by all ranks, there and back\n", "sent",
           weft_format_bytes(sent / s->microbatches, text));
    printf("%-10s %14s  of the fullest rank: weights, programs, records\n", "memory",
           weft_format_bytes(peak, text));
    printf("run by threads in %.1f s\n", took);
}

static weft_status write_figures(const char *path, const weft_modelled_step *s, const said *by)
{
    int64_t sent, messages, peak;
    add_up(s, &sent, &messages, &peak);
    json_t *root = json_pack(
        "{s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "simulated_seconds", by->seconds,
        "executed_seconds", s->seconds, "simulated_idle", by->idle, "executed_idle", s->idle,
        "behind_seconds", s->behind, "ranks", (json_int_t)s->ranks, "stages", (json_int_t)s->stages,
        "microbatches", (json_int_t)s->microbatches, "sent_bytes", (json_int_t)sent, "messages",
        (json_int_t)messages, "peak_bytes", (json_int_t)peak);
    const weft_status_code status =
        root ? weft_json_save(path, root) : weft_fail(WEFT_E_MEMORY, "out of memory");
    json_decref(root);
    return status;
}

/* Stages as the operators of a sequence: what `weft plan pipeline --costs` reads, to make another
 * schedule of the same stages. */
static weft_status write_costs(const char *path, const weft_modelled_step *s, const weft_cluster *c)
{
    const weft_link_speed way = links_of(c).between;
    json_t *ops = json_array();
    for (int q = 0; q < s->stages; q++) {
        const weft_modelled_stage *stage = &s->stage[q];
        char name[32];
        snprintf(name, sizeof name, "stage %d", q);
        json_array_append_new(ops,
                              json_pack("{s:s,s:f,s:f,s:f}", "name", name, "forward",
                                        stage->seconds[WEFT_STAGE_F], "backward",
                                        stage->seconds[WEFT_STAGE_B] + stage->seconds[WEFT_STAGE_W],
                                        "output_bytes", stage->sent));
    }
    json_t *skips = json_array();
    for (int i = 0; i < s->skips; i++)
        json_array_append_new(skips, json_pack("[i,i,f]", (int)s->skip[i].from, (int)s->skip[i].to,
                                               s->skip[i].bytes));
    json_t *root = json_pack("{s:o,s:o,s:f,s:f,s:f}", "ops", ops, "skips", skips, "lambda", 1.0,
                             "bandwidth", way.bytes_per_second, "latency", way.latency);
    const weft_status_code status =
        root ? weft_json_save(path, root) : weft_fail(WEFT_E_MEMORY, "out of memory");
    json_decref(root);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------- */

/* Kernels are all that stages take: no axis may have collectives inside of them. */
static weft_status check_axes(const weft_mesh *mesh, const weft_cluster *c, const char *path)
{
    for (int a = 0; a < mesh->axis_count; a++)
        if (mesh->axis[a].size > 1 && strcmp(mesh->axis[a].name, WEFT_STAGES_AXIS) &&
            strcmp(mesh->axis[a].name, "dp"))
            return weft_fail(WEFT_E_UNSUPPORTED,
                             "%s: parallel.%s: a step is modelled over pp and dp only", path,
                             mesh->axis[a].name);
    if (weft_mesh_ranks(mesh) > weft_cluster_devices(c))
        return weft_fail(
            WEFT_E_ARG, "%s: %d ranks, the cluster %s has %lld devices: --cluster %s:NODES", path,
            weft_mesh_ranks(mesh), c->name, (long long)weft_cluster_devices(c), c->name);
    return WEFT_OK;
}

weft_status weft_simulate_run(const weft_args *args, const char *path)
{
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
    weft_mesh mesh;
    weft_modelled_step step = {0};
    said by;
    weft_status_code status = WEFT_OK;
    const char *spec = weft_args_string(args, "--cluster");
    const char *out = weft_args_string(args, "--out"), *costs = weft_args_string(args, "--costs");
    const char *const *set;
    int sets;
    static const char *const of_plans[] = {"--chrome", "--svg", "--links", "--folds"};
    for (int i = 0; i < WEFT_COUNT(of_plans); i++)
        if (weft_args_flag(args, of_plans[i]))
            return weft_fail(WEFT_E_ARG, "%s is for a plan (.json), %s is a run", of_plans[i],
                             path);
    const double begin = weft_now();
    weft_arena *arena = weft_arena_create();
    if (!arena)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    set = weft_args_list(args, "--set", &sets);
    WEFT_GO(weft_config_load(arena, path, set, sets, &weft_run_section, &run));
    WEFT_GO(weft_cluster_load(arena, spec ? spec : "h100", &cluster));
    WEFT_GO(weft_run_check(&run, path));
    WEFT_GO(weft_run_models_read(&run, path, &models));
    WEFT_GO(weft_parallel_mesh(&run.parallel, 0, path, &mesh));
    WEFT_GO(weft_pipe_check_trained(&mesh, weft_run_denoises(&models), path));
    WEFT_GO(check_axes(&mesh, &cluster, path));
    const weft_modelled_setup setup = {.run = &run,
                                       .path = path,
                                       .models = &models,
                                       .stage = run.stages.item,
                                       .rates = rates_of(&cluster.device),
                                       .links = links_of(&cluster)};
    WEFT_GO(weft_modelled_step_run(&setup, &step));
    WEFT_GO(simulate(&step, &cluster, arena, &by));
    print(&step, &by, spec ? spec : "h100", weft_now() - begin);
    if (out)
        WEFT_GO(write_figures(out, &step, &by));
    if (costs)
        WEFT_GO(write_costs(costs, &step, &cluster));
out:
    weft_modelled_step_free(&step);
    weft_arena_free(arena);
    return status;
}
