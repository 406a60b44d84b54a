#include "estimate/training/layout_estimate.h"

#include "base/fs.h"
#include "estimate/program_estimate.h"
#include "kernel/registry/backend.h"
#include "train/monitor/rank_telemetry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rank that is planned for: the first of every axis, and `device` of pp. */
typedef struct pp_device {
    weft_exec_config exec;
    weft_pp_layout *pp;
    weft_compiled_steps *cache;
    weft_store *store;
    weft_stage_programs *programs;     /* [train_stages] */
    weft_activation_plan *activations; /* [train_stages]; NULL: no limit */
} pp_device;

typedef struct estimation {
    const weft_layout_estimator *p;
    weft_run run; /* the estimator's run with this layout */
    weft_layout_estimate *out;
    pp_device *device;
    int devices;
    int peak_device; /* device with the largest peak */
} estimation;

/* ---- planning ------------------------------------------------------------------------------- */

static void close_steps(estimation *w, pp_device *s)
{
    for (int64_t i = 0; s->programs && i < w->run.train_stages.count; i++)
        weft_stage_programs_free(&s->programs[i]);
    weft_compiled_steps_free(s->cache);
    s->cache = NULL;
}

static void close_device(estimation *w, pp_device *s)
{
    close_steps(w, s);
    weft_activation_plans_free(s->activations, w->run.train_stages.count);
    weft_free(s->programs);
    weft_store_free(s->store);
    weft_pp_layout_free(s->pp);
}

static weft_status open_device(estimation *w, int device, pp_device *s)
{
    const weft_layout_estimator *p = w->p;
    const weft_mesh *mesh = &w->out->mesh;
    const int axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS);
    const int telemetry_ranks = w->run.stragglers.steps ? weft_mesh_ranks(mesh) : 0;
    int stride = 1;
    for (int a = mesh->axis_count - 1; a > axis && axis >= 0; a--)
        stride *= mesh->axis[a].size;
    const weft_offload_target offload = weft_run_offload_target(&w->run);
    s->exec = weft_exec_config_of(&w->run, p->models);
    s->exec.offload_dir = offload.dir;
    s->exec.offload_states = offload.states;
    s->exec.rank = device * stride;
    s->exec.encoded = p->encoded;
    s->exec.mesh = *mesh;
    s->exec.telemetry_floats = weft_rank_telemetry_floats(telemetry_ranks);
    WEFT_TRY(weft_pp_layout_check_trained(mesh, weft_run_trains_denoiser(p->models), p->path));
    WEFT_TRY(weft_pp_layout_open(&w->run.parallel, mesh, s->exec.rank, p->path, &s->pp));
    s->exec.pp = s->pp;
    s->store = weft_store_create_on(weft_backend_find("virtual")->device);
    int states;
    const char *const *offload_states = weft_step_offloaded_states(&states);
    if (s->store && s->exec.offload_states)
        weft_store_set_offload(s->store, offload_states, states, s->exec.offload_dir);
    s->programs = weft_calloc(w->run.train_stages.count + 1, sizeof *s->programs);
    return WEFT_ALLOCATED(s->store && s->programs, "the estimate of a layout");
}

/* Plans all training stages' programs on all estimated ranks, with the current activation plans. */
static weft_status plan_steps(estimation *w)
{
    const weft_train_stage *train_stage = w->run.train_stages.item;
    for (int d = 0; d < w->devices; d++) {
        pp_device *s = &w->device[d];
        close_steps(w, s);
        s->cache = weft_compiled_steps_create();
        WEFT_TRY(WEFT_ALLOCATED(s->cache, "the estimate of a layout"));
        s->exec.stage_activations = s->activations;
        for (int64_t i = 0; i < w->run.train_stages.count; i++)
            WEFT_TRY(weft_stage_programs_plan(s->cache, &w->run, w->p->models, &train_stage[i],
                                              &s->exec, &s->programs[i]));
    }
    return WEFT_OK;
}

/* Adds the tensors of one training stage's steps to the stores of the estimated ranks. */
static weft_status fill_train_stage(estimation *w, int64_t i, weft_buf *list)
{
    if (!w->device[0].pp)
        return weft_steps_fill(w->device[0].programs[i].bucket, w->device[0].programs[i].count,
                               &w->device[0].exec, w->device[0].store, 0);
    for (int d = 0; d < w->devices; d++)
        WEFT_TRY(weft_steps_list(w->device[d].programs[i].bucket, w->device[d].programs[i].count,
                                 &list[d]));
    for (int d = 0; d < w->devices; d++)
        WEFT_TRY(weft_steps_fill_listed(w->device[d].programs[i].bucket,
                                        w->device[d].programs[i].count, &w->device[d].exec, list,
                                        w->device[d].store, 0));
    return WEFT_OK;
}

static weft_status fill_stores(estimation *w)
{
    weft_buf *list = weft_calloc(w->devices + 1, sizeof *list);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(list, "the estimate of a layout"));
    for (int64_t i = 0; i < w->run.train_stages.count; i++) {
        status = fill_train_stage(w, i, list);
        for (int d = 0; d < w->devices; d++)
            weft_buf_free(&list[d]);
        WEFT_GO(status);
    }
out:
    weft_free(list);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Finds the estimated rank with the largest peak, and its memory report. */
static weft_status find_device_peak(estimation *w, int d)
{
    const pp_device *s = &w->device[d];
    weft_buf out = {0};
    weft_run_bytes peak = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_memory(&w->run, w->p->models, &s->exec, s->cache, s->store,
                            w->p->process_bytes, &peak, &out));
    if (weft_run_bytes_sum(peak) > weft_run_bytes_sum(w->out->peak)) {
        w->out->peak = peak;
        w->out->weight_bytes = weft_store_bytes(s->store);
        w->peak_device = d;
        w->out->memory = weft_arena_strdup(w->p->arena, out.data);
        WEFT_GO(WEFT_ALLOCATED(w->out->memory, "the estimate of a layout"));
    }
out:
    weft_buf_free(&out);
    return status;
}

static weft_status find_peak(estimation *w)
{
    w->out->peak = (weft_run_bytes){0};
    for (int d = 0; d < w->devices; d++)
        WEFT_TRY(find_device_peak(w, d));
    return WEFT_OK;
}

/* Fits each estimated rank below the limit separately. */
static weft_status fit_device(estimation *w, pp_device *s)
{
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(s->activations, w->run.train_stages.count, "the estimate of a layout"));
    WEFT_GO(weft_run_fit_memory(&w->run, w->p->models, &s->exec, NULL, s->store,
                                w->p->process_bytes, w->devices == 1 ? w->p->stored : NULL,
                                s->activations, &out));
    if (w->p->by_stage && out.len)
        w->out->fit = weft_arena_printf(w->p->arena, "%s%s", w->out->fit, out.data);
    WEFT_GO(WEFT_ALLOCATED(w->out->fit, "the estimate of a layout"));
out:
    weft_buf_free(&out);
    return status;
}

static weft_status fit_below_limit(estimation *w, int64_t limit)
{
    w->run.memory.limit = limit;
    for (int d = 0; d < w->devices; d++)
        WEFT_TRY(fit_device(w, &w->device[d]));
    WEFT_TRY(plan_steps(w));
    return find_peak(w);
}

static weft_status fit_memory(estimation *w)
{
    const int64_t config_limit = w->run.memory.limit,
                  limit = config_limit ? config_limit : w->p->limit;
    WEFT_TRY(find_peak(w));
    if (!config_limit && (!limit || weft_run_bytes_sum(w->out->peak) <= limit))
        return WEFT_OK;
    w->out->limit = config_limit ? 0 : limit;
    return fit_below_limit(w, limit);
}

/* ---- seconds -------------------------------------------------------------------------------- */

static weft_rank_links links_of(const estimation *w)
{
    return (weft_rank_links){w->p->cluster, &w->out->mesh};
}

static weft_status spend(const estimation *w, const weft_program *program, bool updates,
                         weft_program_cost *out)
{
    const weft_rank_links links = links_of(w);
    return weft_program_cost_of(&links, program, updates, out);
}

static weft_status spend_step(const estimation *w, const weft_step *step, bool updates,
                              weft_program_cost *out)
{
    return spend(w, step->program, updates, out);
}

/* Estimates the programs that follow the batches of a step. */
static weft_status add_update_cost(const estimation *w, const weft_stage_programs *s,
                                   weft_program_cost *out)
{
    for (int i = s->buckets; i < s->count; i++) {
        weft_program_cost one;
        WEFT_TRY(spend_step(w, s->bucket[i], true, &one));
        weft_program_cost_add(out, &one, 1);
    }
    return WEFT_OK;
}

static weft_status estimate_sequential(const estimation *w, const weft_stage_programs *s,
                                       weft_program_cost *out)
{
    for (int b = 0; b < s->buckets; b++) {
        weft_program_cost one;
        WEFT_TRY(spend_step(w, s->bucket[b], false, &one));
        weft_program_cost_add(out, &one, (double)s->runs / s->buckets);
    }
    return add_update_cost(w, s, out);
}

/* ---- through stages ------------------------------------------------------------------------- */

typedef struct pp_stage_times {
    /* [pipeline stages] seconds of one microbatch */
    double *forward, *backward, *weight, *send, *send_back;
    weft_program_cost *device; /* cost of all microbatches */
} pp_stage_times;

static weft_status time_own_pp_stages(const estimation *w, int64_t train_stage, int d,
                                      pp_stage_times *t)
{
    const weft_stage_programs *s = &w->device[d].programs[train_stage];
    for (int b = 0; b < s->buckets; b++) {
        const weft_pp_step *step = s->bucket[b]->pp_step;
        for (int i = 0; i < step->owns; i++)
            for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
                const weft_pp_local_stage *own = &step->own[i];
                const int q = own->pp_stage;
                weft_program_cost one;
                if (!own->program[k])
                    continue;
                WEFT_TRY(spend(w, own->program[k], false, &one));
                const double mean = one.seconds / s->buckets;
                *(k == WEFT_PP_TASK_F ? &t->forward[q] : &t->backward[q]) += mean;
                t->weight[q] += k == WEFT_PP_TASK_W ? mean : 0;
                weft_program_cost_add(&t->device[d], &one, (double)s->runs / s->buckets);
            }
    }
    return WEFT_OK;
}

/* Values of a microbatch to the next stage, and gradients back. */
static void time_sends(const estimation *w, int64_t train_stage, pp_stage_times *t)
{
    const weft_rank_links links = links_of(w);
    const weft_stage_programs *s = &w->device[0].programs[train_stage];
    for (int b = 0; b < s->buckets; b++) {
        const weft_pp_stages *pp_stages = &s->bucket[b]->pp_step->pp_stages;
        for (int i = 0; i < pp_stages->links; i++) {
            const weft_pp_edge *link = &pp_stages->link[i];
            const weft_value_info *info =
                weft_value_get(pp_stages->graph, (weft_value){link->value});
            const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
            if (link->local)
                continue;
            const double seconds =
                weft_comm_estimate(&links, "send", WEFT_COLL_SEND, w->device[0].pp->axis, bytes) /
                s->buckets;
            t->send[link->from] += seconds;
            t->send_back[link->from] += seconds;
        }
    }
}

static weft_status time_table(const estimation *w, int64_t runs, const pp_stage_times *t,
                              double *seconds)
{
    weft_pp_schedule table;
    weft_pp_schedule_timing timing;
    const weft_pp_stage_times times = {.forward = t->forward,
                                       .backward = t->backward,
                                       .weight = t->weight,
                                       .send = t->send,
                                       .send_back = t->send_back};
    WEFT_TRY(weft_pp_schedule_csv(w->device[0].pp, runs, &table));
    const weft_status_code status = weft_pp_schedule_time(&table, &times, &timing);
    weft_pp_schedule_free(&table);
    *seconds = timing.seconds;
    return status;
}

static weft_status estimate_pipeline(const estimation *w, int64_t train_stage,
                                     weft_program_cost *out, double *bubble)
{
    const int64_t pp_stages = w->device[0].pp->pp_stages, f64 = (int64_t)sizeof(double);
    double *scratch = weft_alloc((5 * pp_stages + 1) * f64), seconds = 0;
    pp_stage_times t = {scratch,
                        scratch + pp_stages,
                        scratch + 2 * pp_stages,
                        scratch + 3 * pp_stages,
                        scratch + 4 * pp_stages,
                        weft_calloc(w->devices + 1, sizeof *t.device)};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(scratch && t.device, "the estimate of a layout"));
    weft_program_cost update = {0};
    int most = 0;
    for (int d = 0; d < w->devices; d++)
        WEFT_GO(time_own_pp_stages(w, train_stage, d, &t));
    time_sends(w, train_stage, &t);
    WEFT_GO(time_table(w, w->device[0].programs[train_stage].runs, &t, &seconds));
    for (int d = 0; d < w->devices; d++) {
        weft_program_cost own = {0};
        WEFT_GO(add_update_cost(w, &w->device[d].programs[train_stage], &own));
        update = own.seconds > update.seconds ? own : update;
        most = t.device[d].seconds > t.device[most].seconds ? d : most;
    }
    *bubble = seconds - t.device[most].seconds;
    *out = t.device[most];
    out->seconds = seconds;
    weft_program_cost_add(out, &update, 1);
out:
    weft_free(scratch);
    weft_free(t.device);
    return status;
}

/* FLOPs of a step on all ranks: the first rank of each pipeline device represents its ranks. */
static weft_status add_flops(const estimation *w, int64_t train_stage, weft_stage_estimate *out)
{
    const weft_stage_programs *first = &w->device[0].programs[train_stage];
    const double ranks = (double)w->p->ranks / w->devices, runs = (double)first->runs;
    WEFT_TRY(WEFT_ARENA_NEW(w->p->arena, out->flops, first->buckets, "the estimate of a layout"));
    for (int b = 0; b < first->buckets; b++) {
        for (int d = 0; d < w->devices; d++) {
            const weft_stage_programs *s = &w->device[d].programs[train_stage];
            out->flops[b] += ranks * runs * (double)s->bucket[b]->cost.flops;
            for (int i = s->buckets; i < s->count; i++)
                out->flops[b] += ranks * (double)s->bucket[i]->cost.flops;
        }
    }
    return WEFT_OK;
}

static double measured_share(double kernels, double measured)
{
    return kernels > 0 ? fmin(1, measured / kernels) : 0;
}

static weft_status find_stage(const estimation *w, int64_t train_stage,
                              const weft_program_cost *cost, double bubble,
                              weft_stage_estimate *out)
{
    const pp_device *first = &w->device[0];
    const weft_stage_programs *s = &first->programs[train_stage];
    const double kernels = cost->compute + cost->update;
    weft_sent inside;
    *out = (weft_stage_estimate){.parameters = weft_graph_param_count(s->bucket[0]->whole),
                                 .time = {.total = cost->seconds,
                                          .compute = cost->compute,
                                          .comm = cost->exposed,
                                          .optimizer = cost->update,
                                          .bubble = bubble,
                                          .hidden = cost->hidden,
                                          .exact = measured_share(kernels, cost->exact)}};
    WEFT_TRY(weft_stage_programs_bytes(&w->device[w->peak_device].programs[train_stage],
                                       &out->program_bytes));
    WEFT_TRY(weft_stage_programs_sent(s, first->pp,
                                      weft_mesh_axis(&w->out->mesh, WEFT_PP_STAGES_AXIS),
                                      (int)w->p->cluster->devices, &inside, out->sent));
    return add_flops(w, train_stage, out);
}

static weft_status find_seconds(estimation *w)
{
    weft_layout_estimate *out = w->out;
    weft_step_seconds *mean = &out->time;
    const weft_train_stage *train_stage = w->run.train_stages.item;
    const double all = (double)weft_run_first_step(&w->run, w->run.train_stages.count);
    double kernels = 0, exact = 0;
    for (int64_t i = 0; i < w->run.train_stages.count; i++) {
        weft_program_cost s = {0};
        double bubble = 0;
        WEFT_TRY(w->device[0].pp ? estimate_pipeline(w, i, &s, &bubble)
                                 : estimate_sequential(w, &w->device[0].programs[i], &s));
        const double share = (double)train_stage[i].steps / all;
        mean->total += share * s.seconds;
        mean->compute += share * s.compute;
        mean->optimizer += share * s.update;
        mean->comm += share * s.exposed;
        mean->hidden += share * s.hidden;
        mean->bubble += share * bubble;
        kernels += share * (s.compute + s.update);
        exact += share * s.exact;
        if (out->train_stage)
            WEFT_TRY(find_stage(w, i, &s, bubble, &out->train_stage[i]));
    }
    mean->exact = measured_share(kernels, exact);
    return WEFT_OK;
}

/* ---- complete estimate ----------------------------------------------------------------------- */

static weft_status estimate(estimation *w)
{
    const weft_layout_estimator *p = w->p;
    WEFT_TRY(weft_parallel_mesh(&w->run.parallel, p->ranks, p->path, &w->out->mesh));
    const int axis = weft_mesh_axis(&w->out->mesh, WEFT_PP_STAGES_AXIS);
    const int devices = axis >= 0 ? w->out->mesh.axis[axis].size : 1;
    WEFT_TRY(WEFT_NEW(w->device, devices + 1, "the estimate of a layout"));
    for (; w->devices < devices; w->devices++) {
        const weft_status_code status = open_device(w, w->devices, &w->device[w->devices]);
        if (status != WEFT_OK)
            close_device(w, &w->device[w->devices]);
        WEFT_TRY(status);
    }
    if (p->by_stage)
        WEFT_TRY(WEFT_ARENA_NEW(p->arena, w->out->train_stage, w->run.train_stages.count,
                                "the estimate of a layout"));
    WEFT_TRY(plan_steps(w));
    WEFT_TRY(fill_stores(w));
    w->out->legal = true;
    WEFT_TRY(fit_memory(w));
    w->out->fits = true;
    return find_seconds(w);
}

static weft_status estimate_layout(const weft_layout_estimator *estimator,
                                   const weft_parallel *parallel, weft_layout_estimate *out)
{
    estimation w = {.p = estimator, .run = *estimator->run, .out = out};
    *out = (weft_layout_estimate){.parallel = *parallel, .fit = ""};
    w.run.parallel = *parallel;
    const weft_status_code status = estimate(&w);
    for (int d = 0; d < w.devices; d++)
        close_device(&w, &w.device[d]);
    weft_free(w.device);
    return status;
}

weft_status weft_layout_estimate_run(const weft_layout_estimator *estimator,
                                     weft_layout_estimate *out)
{
    return estimate_layout(estimator, &estimator->run->parallel, out);
}

/* True for errors that reject a layout; other errors stop the search. */
static bool is_verdict(weft_status_code status, bool legal)
{
    return status == WEFT_E_CONFIG || status == WEFT_E_ARG || status == WEFT_E_UNSUPPORTED ||
           status == WEFT_E_INFEASIBLE || status == WEFT_E_SHAPE ||
           (status == WEFT_E_MEMORY && legal);
}

weft_status weft_layout_estimate_make(const weft_layout_estimator *estimator,
                                      const weft_parallel *parallel, weft_layout_estimate *out)
{
    const weft_status_code status = estimate_layout(estimator, parallel, out);
    if (!is_verdict(status, out->legal))
        return status;
    out->legal = status == WEFT_E_MEMORY;
    out->fits = false;
    out->why = weft_arena_strdup(estimator->arena, weft_error_message());
    return WEFT_ALLOCATED(out->why, "the estimate of a layout");
}

void weft_step_seconds_json(const weft_step_seconds *time, json_t *to)
{
    const struct {
        const char *key;
        double value;
    } field[] = {{"seconds", time->total},         {"compute_seconds", time->compute},
                 {"exposed_seconds", time->comm},  {"optimizer_seconds", time->optimizer},
                 {"bubble_seconds", time->bubble}, {"hidden_seconds", time->hidden},
                 {"measured_share", time->exact}};
    for (int i = 0; i < WEFT_COUNT(field); i++)
        json_object_set_new(to, field[i].key, json_real(field[i].value));
}

void weft_layout_estimate_json(const weft_layout_estimate *layout, json_t *to)
{
    const weft_run_bytes *peak = &layout->peak;
    weft_step_seconds_json(&layout->time, to);
    json_object_set_new(to, "weight_bytes", json_integer(layout->weight_bytes));
    json_object_set_new(to, "peak_bytes", json_integer(weft_run_bytes_sum(*peak)));
    json_object_set_new(to, "device_bytes", json_integer(peak->device));
    json_object_set_new(to, "host_bytes", json_integer(peak->host));
    json_object_set_new(to, "offloaded_bytes", json_integer(peak->offloaded));
    json_object_set_new(to, "reserved_bytes", json_integer(weft_run_bytes_reserved(*peak)));
}

weft_status weft_run_cluster(weft_arena *arena, const weft_run *run, const char *spec,
                             weft_cluster *cluster, char name[512])
{
    snprintf(name, 512, "%s/profile.json", run->out);
    if (strcmp(spec, "local") || !weft_path_exists(name))
        snprintf(name, 512, "%s", spec);
    return weft_cluster_load(arena, name, cluster);
}

weft_status weft_cascade_cluster(weft_arena *arena, const weft_run *run, const char *path,
                                 weft_cluster *cluster, char name[512])
{
    return weft_error_add(
        weft_error_at(weft_run_cluster(arena, run, run->cascades.cluster, cluster, name),
                      WEFT_AT(.file = path, .key = "parallel.cascades.cluster")),
        "Give local, a preset, or a file that `weft profile` wrote");
}
