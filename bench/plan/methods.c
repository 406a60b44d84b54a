#include "methods.h"

#include "plan/pipeline/pipeline_trace.h"
#include "plan/simulate/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(weft_status_code status)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "pipeline bench: %s\n", weft_error_message());
    exit(1);
}

setting open_setting(const char *model, const char *cluster)
{
    setting s = {.arena = weft_arena_create()};
    must(s.arena ? WEFT_OK : weft_no_memory("the benchmark"));
    must(weft_unet_costs(s.arena, model, &s.model));
    must(weft_cluster_load(s.arena, cluster, &s.cluster));
    s.fabric = weft_fabric_from_cluster(&s.cluster);
    return s;
}

/* Gradients (or weights) summed over the replicas of one stage device, G neighbours. */
static double all_reduce(const setting *s, int64_t g, double bytes)
{
    const int64_t together = g < s->cluster.devices ? g : s->cluster.devices;
    return 2 * weft_fabric_gather(&s->fabric, g, together, bytes);
}

/* ---- pipelines ----------------------------------------------------------------------------- */

/* A pipeline cut into stages, by stage; `weights` by device. */
typedef struct stages {
    weft_partition part;
    int64_t p, g, b;
    int32_t device_of[MOST_STAGES];
    double forward[MOST_STAGES], backward[MOST_STAGES], kept[MOST_STAGES], weights[MOST_STAGES];
    double boundary[MOST_STAGES];                     /* bytes to the next stage */
    double send[MOST_STAGES], send_back[MOST_STAGES]; /* seconds to the next stage, and back */
} stages;

static double send_seconds(const setting *s, const stages *x, int64_t q, double bytes)
{
    const int64_t per_node = s->cluster.devices, from = x->device_of[q] * x->g / per_node,
                  to = x->device_of[q + 1] * x->g / per_node;
    if (bytes <= 0)
        return 0;
    if (from == to)
        return s->fabric.intra_latency + bytes / s->fabric.intra;
    /* the node's replicas send at the same time */
    const double flows = (double)(x->g < per_node ? x->g : per_node);
    return s->fabric.inter_latency + bytes * flows / (s->fabric.inter * (double)per_node);
}

/* Returns false if the model has too few blocks for the number of stages. */
static bool cut_stages(const setting *s, method how, int64_t p, int64_t g, int64_t b, stages *x)
{
    const bool wave = how != ONE_F_ONE_B, relay = how == HANAYO || how == ONE_F_ONE_B;
    const int64_t count = wave ? 2 * p : p;
    *x = (stages){.p = p, .g = g, .b = b};
    weft_pp_costs c;
    must(weft_pp_costs_from_list(s->arena, &s->model.list, &s->cluster.device, (double)b, &c));
    c.lambda = 1;
    c.bandwidth = s->fabric.inter * (double)s->cluster.devices;
    c.latency = s->fabric.inter_latency;
    const weft_status_code cut =
        how == PULSE ? weft_partition_solve(&c, count, WEFT_COLLOCATE_ALL, &x->part)
                     : weft_partition_blockwise(&c, count, s->model.block, &x->part);
    if (cut != WEFT_OK)
        return false;
    weft_pp_stage_map_fill(wave ? WEFT_MAP_FOLD : WEFT_MAP_ROUND, count, p, x->device_of);
    weft_pipeline_bytes(&c, &x->part, x->device_of, relay, x->boundary);
    for (int64_t q = 0; q < count; q++) {
        for (int64_t i = x->part.cut[q]; i < x->part.cut[q + 1]; i++) {
            x->forward[q] += c.op[i].forward;
            x->backward[q] += c.op[i].backward;
            x->kept[q] += c.op[i].activation_bytes;
            x->weights[x->device_of[q]] += c.op[i].parameter_bytes;
        }
        if (q + 1 == count)
            break;
        const double context = s->model.context_bytes * (double)b; /* has no gradient */
        x->send[q] = send_seconds(s, x, q, x->boundary[q]);
        x->send_back[q] = send_seconds(s, x, q, x->boundary[q] - context);
    }
    return true;
}

/* Communication of a device as the paper counts it for Fig. 11: per microbatch
 * max(send, receive) of the activations and max(send, receive) of the gradients. */
static double paper_exchange(const stages *x, int64_t device)
{
    double sent = 0, received = 0, sent_back = 0, received_back = 0;
    for (int64_t q = 0; q + 1 < x->part.pp_stages; q++) {
        sent += x->device_of[q] == device ? x->send[q] : 0;
        received += x->device_of[q + 1] == device ? x->send[q] : 0;
        sent_back += x->device_of[q + 1] == device ? x->send_back[q] : 0;
        received_back += x->device_of[q] == device ? x->send_back[q] : 0;
    }
    return fmax(sent, received) + fmax(sent_back, received_back);
}

static time_parts pipeline_parts(const stages *x, double seconds, double reduce)
{
    const double batch = (double)(x->b * x->p * x->g);
    time_parts t = {.reduce = reduce / batch};
    for (int64_t q = 0; q < x->part.pp_stages; q++) {
        t.compute += (x->forward[q] + x->backward[q]) / batch; /* P microbatches, P devices */
        t.send += (x->send[q] + x->send_back[q]) / batch;
    }
    for (int64_t d = 0; d < x->p; d++)
        t.paper += paper_exchange(x, d) / batch;
    t.idle = seconds / batch - t.compute - t.send;
    return t;
}

static double highest(const double *value, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, value[i]);
    return most;
}

/* All replicas and the reductions of their gradients on the event simulator: seconds. */
static double simulate_pipeline(const setting *s, const stages *x, const weft_pp_schedule *schedule)
{
    weft_pipeline_plan plan = {.schedule = *schedule,
                               .pp_stage_activation = (double *)x->kept,
                               .parameter_bytes = (double *)x->weights,
                               .boundary_bytes = (double *)x->boundary};
    weft_trace trace;
    must(weft_pipeline_trace(&plan, x->g, x->g, &trace));
    int32_t *last = weft_alloc(trace.devices * (int64_t)sizeof *last);
    must(last ? WEFT_OK : weft_no_memory("the benchmark"));
    for (int64_t i = 0; i < trace.step_count; i++)
        if (trace.step[i].kind == WEFT_TRACE_COMPUTE)
            last[trace.member[trace.group[trace.step[i].group].first]] = (int32_t)i;
    for (int64_t d = 0; d < x->p && x->g > 1; d++) {
        weft_trace_step step = {.kind = WEFT_TRACE_ALL_REDUCE,
                                .stream = WEFT_STREAM_COMM,
                                .repeat = 1,
                                .owner = -1,
                                .bytes = x->weights[d]};
        int32_t member[MOST_STAGES], after[MOST_STAGES];
        for (int64_t r = 0; r < x->g; r++) {
            member[r] = (int32_t)(d * x->g + r);
            after[r] = last[member[r]];
        }
        must(weft_trace_add_name(&trace, "all-reduce", &step.name));
        must(weft_trace_add_group(&trace, member, x->g, &step.group));
        must(weft_trace_add_step(&trace, step, after, x->g, NULL));
    }
    weft_simulation made;
    must(weft_simulate(&trace, &s->cluster, &made));
    const double seconds = made.seconds;
    weft_simulation_free(&made);
    weft_trace_free(&trace);
    weft_free(last);
    return seconds;
}

static run run_pipeline(const setting *s, method how, int64_t p, int64_t g, int64_t b,
                        bool simulate)
{
    run r = {.p = p, .g = g, .b = b};
    const bool wave = how != ONE_F_ONE_B;
    stages x;
    if (!cut_stages(s, how, p, g, b, &x))
        return r;
    const int64_t count = x.part.pp_stages;
    const weft_pp_stage_times times = {.forward = x.forward,
                                       .backward = x.backward,
                                       .send = x.send,
                                       .send_back = x.send_back,
                                       .blocking = true};
    weft_pp_schedule schedule;
    weft_pp_schedule_timing timing;
    double peak[MOST_STAGES], busy[MOST_STAGES] = {0};
    must(weft_pp_schedule_make(wave ? WEFT_PP_SCHEDULE_WAVE : WEFT_PP_SCHEDULE_1F1B, x.device_of,
                               count, p, p, &times, &schedule));
    must(weft_pp_schedule_time(&schedule, &times, &timing));
    must(weft_pp_schedule_memory(&schedule, x.kept, NULL, peak));
    for (int64_t q = 0; q < count; q++) {
        busy[x.device_of[q]] += (double)p * (x.forward[q] + x.backward[q]);
        if (x.boundary[q] > 0)
            r.bytes += 2 * x.boundary[q] / (double)b - s->model.context_bytes;
    }
    for (int64_t d = 0; d < p; d++)
        r.memory = fmax(r.memory, 7 * x.weights[d] + peak[d]); /* Eq. 14 */
    const double reduce = all_reduce(s, g, highest(x.weights, p)),
                 seconds = timing.seconds + reduce;
    r.parts = pipeline_parts(&x, timing.seconds, reduce);
    r.throughput = r.memory < weft_fabric_usable(&s->fabric) ? (double)(b * p * g) / seconds : 0;
    r.share = 1 - highest(busy, p) / seconds;
    if (simulate)
        r.simulated = simulate_pipeline(s, &x, &schedule) / (double)(b * p * g);
    weft_pp_schedule_free(&schedule);
    weft_partition_free(&x.part);
    return r;
}

/* ---- ZeRO-2 -------------------------------------------------------------------------------- */

/* A reduce-scatter of the gradients and a gather of the weights as flat rings over all devices. */
static double simulate_rings(const setting *s, double bytes)
{
    const int64_t n = weft_cluster_devices(&s->cluster);
    weft_trace trace = {.devices = n};
    weft_trace_step step = {.stream = WEFT_STREAM_COMM, .repeat = 1, .owner = -1, .bytes = bytes};
    int32_t member[MOST_STAGES];
    for (int32_t d = 0; d < n; d++)
        member[d] = d;
    must(weft_trace_add_name(&trace, "rings", &step.name));
    must(weft_trace_add_group(&trace, member, n, &step.group));
    step.kind = WEFT_TRACE_REDUCE_SCATTER;
    must(weft_trace_add_step(&trace, step, NULL, 0, NULL));
    step.kind = WEFT_TRACE_ALL_GATHER;
    must(weft_trace_add_step(&trace, step, NULL, 0, NULL));
    weft_simulation made;
    must(weft_simulate(&trace, &s->cluster, &made));
    const double seconds = made.seconds;
    weft_simulation_free(&made);
    weft_trace_free(&trace);
    return seconds;
}

static run run_zero(const setting *s, int64_t b, bool simulate)
{
    const int64_t n = weft_cluster_devices(&s->cluster);
    run r = {.p = 1, .g = n, .b = b};
    weft_pp_costs c;
    must(weft_pp_costs_from_list(s->arena, &s->model.list, &s->cluster.device, (double)b, &c));
    double compute = 0, kept = 0, weights = 0;
    for (int64_t i = 0; i < c.op_count; i++) {
        compute += c.op[i].forward + c.op[i].backward;
        kept += c.op[i].activation_bytes;
        weights += c.op[i].parameter_bytes;
    }
    r.memory = weights + 6 * weights / (double)n + kept;
    const double reduce = all_reduce(s, n, weights), /* reduce-scatter, then gather */
        seconds = compute + reduce, batch = (double)(b * n);
    r.bytes = 2 * weights / (double)b / 2; /* the paper counts the reduce-scatter */
    r.parts = (time_parts){
        .compute = compute / batch, .reduce = reduce / batch, .paper = reduce / 2 / batch};
    r.throughput = r.memory < weft_fabric_usable(&s->fabric) ? batch / seconds : 0;
    r.share = 1 - compute / seconds;
    if (simulate)
        r.simulated = (compute + simulate_rings(s, weights)) / batch;
    return r;
}

/* ---- comparisons --------------------------------------------------------------------------- */

run run_method(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    return how == ZERO_2 ? run_zero(s, b, false) : run_pipeline(s, how, p, g, b, false);
}

run run_simulated(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    return how == ZERO_2 ? run_zero(s, b, true) : run_pipeline(s, how, p, g, b, true);
}

run run_fitting(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    run r = run_method(s, how, p, g, b);
    for (b /= 2; b >= 1 && r.throughput == 0; b /= 2)
        r = run_method(s, how, p, g, b);
    return r;
}

run best_pulse(const setting *s, int64_t p)
{
    run best = {0};
    const int64_t n = weft_cluster_devices(&s->cluster);
    for (int64_t q = 2; q <= n; q++) {
        if (n % q != 0 || (p > 0 && q != p) || 2 * q > MOST_STAGES)
            continue;
        for (int64_t b = 1; b <= MOST_B; b *= 2) {
            const run r = run_method(s, PULSE, q, n / q, b);
            if (r.throughput > best.throughput)
                best = r;
        }
    }
    return best;
}
