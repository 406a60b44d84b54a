#include "estimate/training/run_simulation.h"

#include "base/log.h"
#include "plan/cluster/cluster_path.h"
#include "plan/ops/rates.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pipeline_trace.h"
#include "plan/simulate/simulator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the cluster as devices and links ------------------------------------------------------ */

static weft_virtual_rates rates_of(const weft_device_type *d)
{
    weft_virtual_rates r = {
        .flops = d->flops, .bytes = weft_device_bytes(d), .launch = d->launch, .scale = 1};
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const weft_node node = {.op = (weft_op)op};
        r.op_flops[op] = weft_device_flops(d, weft_node_work(&node), WEFT_F32);
        r.op_bf16[op] = weft_device_flops(d, weft_node_work(&node), WEFT_BF16);
    }
    return r;
}

/* Returns the speed of the path between two devices without other traffic. */
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

/* ---- results of the event simulator -------------------------------------------------------- */

/* Returns the distance between ranks that differ only in their pipeline stage. */
static int64_t stride_of(const weft_mesh *mesh)
{
    int64_t stride = 1;
    for (int a = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS) + 1; a < mesh->axis_count; a++)
        stride *= mesh->axis[a].size;
    return stride;
}

typedef struct pp_stage_times {
    double *forward, *backward, *weight, *send, *bytes, *none; /* [pp_stages] */
} pp_stage_times;

static weft_status pp_stage_seconds(const weft_simulated_step *s, const weft_cluster *c,
                                    weft_arena *arena, pp_stage_times *t)
{
    const int64_t stride = stride_of(&s->mesh),
                  bytes = (s->pp_stages + 1) * (int64_t)sizeof(double);
    double **list[] = {&t->forward, &t->backward, &t->weight, &t->send, &t->bytes, &t->none};
    for (int i = 0; i < WEFT_COUNT(list); i++)
        if (!(*list[i] = weft_arena_alloc(arena, bytes)))
            return weft_no_memory("%d stages", s->pp_stages);
    for (int q = 0; q < s->pp_stages; q++) {
        const weft_simulated_stage *pp_stage = &s->pp_stage[q];
        t->forward[q] = pp_stage->seconds[WEFT_PP_TASK_F];
        t->weight[q] = pp_stage->seconds[WEFT_PP_TASK_W];
        t->backward[q] = pp_stage->seconds[WEFT_PP_TASK_B] + t->weight[q];
        t->bytes[q] = pp_stage->sent;
        if (q + 1 == s->pp_stages || s->table.device_of[q] == s->table.device_of[q + 1])
            continue;
        const weft_link_speed link =
            speed_of(c, s->table.device_of[q] * stride, s->table.device_of[q + 1] * stride);
        t->send[q] = link.latency + pp_stage->sent / link.bytes_per_second;
    }
    return WEFT_OK;
}

/* Simulates pipeline stages by their schedule. */
static weft_status simulate_pp_stages(weft_simulated_step *s, const weft_cluster *c,
                                      weft_arena *arena, double *seconds)
{
    pp_stage_times t;
    weft_trace trace = {0};
    weft_simulation r = {0};
    weft_pp_schedule_timing timing;
    weft_status_code status = WEFT_OK;
    WEFT_GO(pp_stage_seconds(s, c, arena, &t));
    const weft_pp_stage_times times = {.forward = t.forward,
                                       .backward = t.backward,
                                       .weight = s->table.split ? t.weight : NULL,
                                       .send = t.send,
                                       .send_back = t.send};
    WEFT_GO(weft_pp_schedule_time(&s->table, &times, &timing));
    const weft_pipeline_plan plan = {.schedule = s->table,
                                     .timing = timing,
                                     .boundary_bytes = t.bytes,
                                     .pp_stage_activation = t.none,
                                     .parameter_bytes = t.none};
    WEFT_GO(weft_pipeline_trace(&plan, stride_of(&s->mesh), s->ranks / s->table.devices, &trace));
    WEFT_GO(weft_simulate(&trace, c, &r));
    *seconds = r.seconds;
out:
    weft_simulation_free(&r);
    weft_trace_free(&trace);
    return status;
}

static weft_status simulate(weft_run_simulation *out, const weft_cluster *c, weft_arena *arena)
{
    weft_simulated_step *s = &out->step;
    double kernels = 0;
    out->seconds = s->estimated_seconds;
    if (s->pp_stages)
        WEFT_TRY(simulate_pp_stages(s, c, arena, &out->seconds));
    for (int r = 0; r < s->ranks; r++)
        kernels += s->rank[r].kernels;
    out->idle = 1 - kernels / (out->seconds * s->ranks);
    return WEFT_OK;
}

static weft_status check_size(const weft_run_simulation_setup *setup)
{
    const weft_cluster *c = setup->cluster;
    weft_mesh mesh;
    WEFT_TRY(weft_parallel_mesh(&setup->run->parallel, 0, setup->path, &mesh));
    WEFT_TRY(
        weft_pp_layout_check_trained(&mesh, weft_run_trains_denoiser(setup->models), setup->path));
    if (weft_mesh_ranks(&mesh) > weft_cluster_devices(c))
        return weft_error(
            WEFT_MSG_MESH_INVALID,
            WEFT_AT(.file = setup->path, .key = "parallel", WEFT_NUMBER(weft_mesh_ranks(&mesh))),
            "the layout has %d ranks, but the cluster %s has %" PRId64 " devices; give more with "
            "--on %s:NODES",
            weft_mesh_ranks(&mesh), c->name, weft_cluster_devices(c), c->name);
    return WEFT_OK;
}

weft_status weft_run_simulate(const weft_run_simulation_setup *setup, weft_run_simulation *out)
{
    weft_simulated_setup step = {.run = setup->run,
                                 .path = setup->path,
                                 .models = setup->models,
                                 .train_stage = setup->train_stage,
                                 .device = setup->cluster->device,
                                 .rates = rates_of(&setup->cluster->device),
                                 .links = links_of(setup->cluster),
                                 .execute = setup->execute,
                                 .separate = setup->separate};
    const double begin = weft_now();
    step.device.rates = NULL; /* the execution knows ops, not shapes */
    *out = (weft_run_simulation){0};
    WEFT_TRY(check_size(setup));
    WEFT_TRY(weft_simulated_step_run(&step, &out->step));
    const weft_status_code status = simulate(out, setup->cluster, setup->arena);
    out->took = weft_now() - begin;
    if (status != WEFT_OK)
        weft_run_simulation_free(out);
    return status;
}

void weft_run_simulation_free(weft_run_simulation *simulation)
{
    weft_simulated_step_free(&simulation->step);
}

/* ---- output -------------------------------------------------------------------------------- */

static void add_up(const weft_simulated_step *s, int64_t *sent, int64_t *messages, int64_t *peak)
{
    *sent = *messages = *peak = 0;
    for (int r = 0; r < s->ranks; r++) {
        *sent += s->rank[r].sent;
        *messages += s->rank[r].messages;
        *peak = s->rank[r].bytes > *peak ? s->rank[r].bytes : *peak;
    }
}

/* Prints the messages of the first rank, one axis per line. */
static void print_axes(const weft_simulated_step *s, weft_buf *out)
{
    char text[32];
    weft_buf_printf(out, "%-10s %14s %10s  of the first rank in a step\n", "axis", "sent",
                    "messages");
    for (int a = 0; a < s->mesh.axis_count; a++) {
        const weft_sent *sent = s->executed ? &s->sent[a] : &s->planned[a];
        weft_buf_printf(out, "%-10s %14s %10" PRId64 "  %d ranks\n", s->mesh.axis[a].name,
                        weft_format_bytes(sent->bytes, text), sent->messages, s->mesh.axis[a].size);
    }
}

void weft_run_simulation_print(const weft_run_simulation *simulation, const char *cluster,
                               weft_buf *out)
{
    const weft_simulated_step *s = &simulation->step;
    char text[32];
    int64_t sent, messages, peak;
    const double update_seconds = s->executed ? s->update_seconds : s->estimated_update_seconds;
    add_up(s, &sent, &messages, &peak);
    weft_buf_printf(out, "%d simulated ranks of %s\n%s", s->ranks, cluster,
                    s->print ? s->print : "");
    weft_buf_printf(out, "%-10s %14s %10s\n", "", "iteration", "idle");
    weft_buf_printf(out, "%-10s %14s %8.2f %%\n", "simulated",
                    weft_format_seconds(simulation->seconds, text), 100 * simulation->idle);
    if (s->executed)
        weft_buf_printf(out, "%-10s %14s %8.2f %%  %+.2f %%\n", "executed",
                        weft_format_seconds(s->seconds, text), 100 * s->idle,
                        100 * (s->seconds / simulation->seconds - 1));
    weft_buf_printf(out, "%-10s %14s  after the microbatches: shared gradients and the update\n",
                    "update", weft_format_seconds(update_seconds, text));
    weft_buf_printf(out, "%-10s %14s  per microbatch, all ranks, forward and backward\n", "sent",
                    weft_format_bytes(sent / s->microbatches, text));
    weft_buf_printf(out, "%-10s %14s  rank with the largest peak: weights, programs, buffers\n",
                    "memory", weft_format_bytes(peak, text));
    print_axes(s, out);
    if (s->executed)
        weft_buf_printf(out, "executed by threads in %.1f s, with the programs of %d ranks\n",
                        simulation->took, s->kinds);
    else
        weft_buf_printf(out,
                        "not executed: an execution takes about %s; --execute always executes. "
                        "Planned in %.1f s, with the programs of %d ranks\n",
                        weft_format_seconds(s->estimate, text), simulation->took, s->kinds);
}

static json_t *axes_of(const weft_simulated_step *s, const weft_sent *sent)
{
    json_t *list = json_array();
    for (int a = 0; a < s->mesh.axis_count; a++)
        json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I}", "axis", s->mesh.axis[a].name,
                                              "ranks", (json_int_t)s->mesh.axis[a].size, "messages",
                                              (json_int_t)sent[a].messages, "bytes",
                                              (json_int_t)sent[a].bytes));
    return list;
}

json_t *weft_run_simulation_json(const weft_run_simulation *simulation)
{
    const weft_simulated_step *s = &simulation->step;
    int64_t sent, messages, peak;
    add_up(s, &sent, &messages, &peak);
    json_t *root = json_pack(
        "{s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "simulated_seconds", simulation->seconds,
        "simulated_idle", simulation->idle, "simulated_behind_seconds", s->estimated_update_seconds,
        "ranks", (json_int_t)s->ranks, "stages", (json_int_t)s->pp_stages, "microbatches",
        (json_int_t)s->microbatches, "sent_bytes", (json_int_t)sent, "messages",
        (json_int_t)messages, "peak_bytes", (json_int_t)peak, "axes", axes_of(s, s->planned));
    if (root && s->executed)
        json_object_update_missing_new(root, json_pack("{s:f,s:f,s:f,s:o}", "executed_seconds",
                                                       s->seconds, "executed_idle", s->idle,
                                                       "behind_seconds", s->update_seconds,
                                                       "executed_axes", axes_of(s, s->sent)));
    return root;
}

/* Pipeline stages as a sequence of operators. */
weft_status weft_run_simulation_save_costs(const char *path, const weft_run_simulation *simulation,
                                           const weft_cluster *c)
{
    const weft_simulated_step *s = &simulation->step;
    const weft_link_speed link = links_of(c).between;
    json_t *ops = json_array();
    for (int q = 0; q < s->pp_stages; q++) {
        const weft_simulated_stage *pp_stage = &s->pp_stage[q];
        char name[32];
        snprintf(name, sizeof name, "stage %d", q);
        json_array_append_new(
            ops, json_pack("{s:s,s:f,s:f,s:f}", "name", name, "forward",
                           pp_stage->seconds[WEFT_PP_TASK_F], "backward",
                           pp_stage->seconds[WEFT_PP_TASK_B] + pp_stage->seconds[WEFT_PP_TASK_W],
                           "output_bytes", pp_stage->sent));
    }
    json_t *skips = json_array();
    for (int i = 0; i < s->skips; i++)
        json_array_append_new(skips, json_pack("[i,i,f]", (int)s->skip[i].from, (int)s->skip[i].to,
                                               s->skip[i].bytes));
    json_t *root = json_pack("{s:o,s:o,s:f,s:f,s:f}", "ops", ops, "skips", skips, "lambda", 1.0,
                             "bandwidth", link.bytes_per_second, "latency", link.latency);
    const weft_status_code status =
        root ? weft_json_save(path, root) : weft_no_memory("the simulation");
    json_decref(root);
    return status;
}
