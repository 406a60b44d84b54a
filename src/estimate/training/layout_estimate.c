#include "train/layout_price.h"

#include "base/fs.h"
#include "runtime/program_price.h"
#include "train/bulletin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rank that is planned for: the first of every axis, and `device` of pp. */
typedef struct seat {
    weft_place_of_run place;
    weft_pipe *pipe;
    weft_step_cache *cache;
    weft_store *store;
    weft_stage_steps *stage; /* by stage of the run */
    weft_fates *fates;       /* likewise; NULL: no limit */
} seat;

typedef struct pricing {
    const weft_pricer *p;
    weft_run run; /* the pricer's, laid out in this way */
    weft_layout_price *out;
    seat *seat;
    int seats;
} pricing;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for the price of a layout");
}

/* ---- planning ------------------------------------------------------------------------------- */

static void close_steps(pricing *w, seat *s)
{
    for (int64_t i = 0; s->stage && i < w->run.stages.count; i++)
        weft_stage_steps_free(&s->stage[i]);
    weft_step_cache_free(s->cache);
    s->cache = NULL;
}

static void close_seat(pricing *w, seat *s)
{
    close_steps(w, s);
    weft_run_fates_free(s->fates, w->run.stages.count);
    weft_free(s->stage);
    weft_store_free(s->store);
    weft_pipe_free(s->pipe);
}

static weft_status open_seat(pricing *w, int device, seat *s)
{
    const weft_pricer *p = w->p;
    const weft_mesh *mesh = &w->out->mesh;
    const int axis = weft_mesh_axis(mesh, WEFT_STAGES_AXIS);
    const int told = w->run.stragglers.steps ? weft_mesh_ranks(mesh) : 0;
    int stride = 1;
    for (int a = mesh->axis_count - 1; a > axis && axis >= 0; a--)
        stride *= mesh->axis[a].size;
    const weft_run_place away = weft_run_away(&w->run);
    s->place = weft_place_by(&w->run, p->models);
    s->place.away = away.dir;
    s->place.away_states = away.states;
    s->place.rank = device * stride;
    s->place.mesh = *mesh;
    s->place.bulletin = weft_bulletin_floats(told);
    if (!s->place.backend)
        return weft_fail(WEFT_E_CONFIG, "%s: backend: '%s' is not one of %s", p->path,
                         w->run.backend, weft_backend_names());
    WEFT_TRY(weft_pipe_check_trained(mesh, weft_run_denoises(p->models), p->path));
    WEFT_TRY(weft_pipe_open(&w->run.parallel, mesh, s->place.rank, p->path, &s->pipe));
    s->place.pipe = s->pipe;
    s->store = weft_store_create_on(weft_backend_find("virtual")->device);
    int states;
    const char *const *moved = weft_step_away_states(&states);
    if (s->store && s->place.away_states)
        weft_store_keep_away(s->store, moved, states, s->place.away);
    s->stage = weft_alloc((w->run.stages.count + 1) * (int64_t)sizeof *s->stage);
    return s->store && s->stage ? WEFT_OK : no_memory();
}

/* All stages' programs of all seats, with what is made again so far. */
static weft_status plan_steps(pricing *w)
{
    const weft_stage *stage = w->run.stages.item;
    for (int d = 0; d < w->seats; d++) {
        seat *s = &w->seat[d];
        close_steps(w, s);
        s->cache = weft_step_cache_create();
        if (!s->cache)
            return no_memory();
        s->place.stage_fates = s->fates;
        for (int64_t i = 0; i < w->run.stages.count; i++)
            WEFT_TRY(weft_stage_steps_plan(s->cache, &w->run, w->p->models, &stage[i], &s->place,
                                           &s->stage[i]));
    }
    return WEFT_OK;
}

/* What the steps of one stage keep, into the seats' stores. */
static weft_status fill_stage(pricing *w, int64_t i, weft_buf *list)
{
    if (!w->seat[0].pipe)
        return weft_steps_fill(w->seat[0].stage[i].bucket, w->seat[0].stage[i].count,
                               &w->seat[0].place, w->seat[0].store, 0);
    for (int d = 0; d < w->seats; d++)
        WEFT_TRY(weft_steps_list(w->seat[d].stage[i].bucket, w->seat[d].stage[i].count, &list[d]));
    for (int d = 0; d < w->seats; d++)
        WEFT_TRY(weft_steps_fill_listed(w->seat[d].stage[i].bucket, w->seat[d].stage[i].count,
                                        &w->seat[d].place, list, w->seat[d].store, 0));
    return WEFT_OK;
}

static weft_status fill_stores(pricing *w)
{
    weft_buf *list = weft_alloc((w->seats + 1) * (int64_t)sizeof *list);
    weft_status_code status = list ? WEFT_OK : no_memory();
    for (int64_t i = 0; i < w->run.stages.count && status == WEFT_OK; i++) {
        status = fill_stage(w, i, list);
        for (int d = 0; d < w->seats; d++)
            weft_buf_free(&list[d]);
    }
    weft_free(list);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* The most of any seat, and what that one says. */
static weft_status find_peak(pricing *w)
{
    w->out->peak = (weft_run_bytes){0};
    for (int d = 0; d < w->seats; d++) {
        seat *s = &w->seat[d];
        weft_buf told = {0};
        weft_run_bytes peak = {0};
        weft_status_code status = weft_run_memory(&w->run, w->p->models, &s->place, s->cache,
                                                  s->store, w->p->process, &peak, &told);
        if (status == WEFT_OK && weft_run_bytes_sum(peak) > weft_run_bytes_sum(w->out->peak)) {
            w->out->peak = peak;
            w->out->memory = weft_arena_strdup(w->p->arena, told.data);
            status = w->out->memory ? WEFT_OK : no_memory();
        }
        weft_buf_free(&told);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* Each seat for itself. */
static weft_status keep_below(pricing *w, int64_t limit)
{
    w->run.memory.limit = limit;
    for (int d = 0; d < w->seats; d++) {
        seat *s = &w->seat[d];
        weft_buf told = {0};
        s->fates = weft_alloc(w->run.stages.count * (int64_t)sizeof *s->fates);
        if (!s->fates)
            return no_memory();
        const weft_status_code status = weft_run_fit(
            &w->run, w->p->models, &s->place, NULL, s->store, w->p->process, NULL, s->fates, &told);
        weft_buf_free(&told);
        WEFT_TRY(status);
    }
    WEFT_TRY(plan_steps(w));
    return find_peak(w);
}

static weft_status fit_memory(pricing *w)
{
    const int64_t told = w->run.memory.limit, limit = told ? told : w->p->limit;
    WEFT_TRY(find_peak(w));
    if (!told && (!limit || weft_run_bytes_sum(w->out->peak) <= limit))
        return WEFT_OK;
    w->out->limit = told ? 0 : limit;
    return keep_below(w, limit);
}

/* ---- seconds -------------------------------------------------------------------------------- */

static weft_priced_links links_of(const pricing *w)
{
    return (weft_priced_links){w->p->cluster, &w->out->mesh};
}

static weft_status spend(const pricing *w, const weft_program *program, bool updates,
                         weft_program_cost *out)
{
    const weft_priced_links links = links_of(w);
    return weft_program_cost_of(&links, program, updates, out);
}

static weft_status spend_step(const pricing *w, const weft_step *step, bool updates,
                              weft_program_cost *out)
{
    return spend(w, step->program, updates, out);
}

/* What follows the batches of a step. */
static weft_status spend_behind(const pricing *w, const weft_stage_steps *s, weft_program_cost *out)
{
    for (int i = s->buckets; i < s->count; i++) {
        weft_program_cost one;
        WEFT_TRY(spend_step(w, s->bucket[i], true, &one));
        weft_program_cost_add(out, &one, 1);
    }
    return WEFT_OK;
}

static weft_status price_in_turn(const pricing *w, const weft_stage_steps *s,
                                 weft_program_cost *out)
{
    for (int b = 0; b < s->buckets; b++) {
        weft_program_cost one;
        WEFT_TRY(spend_step(w, s->bucket[b], false, &one));
        weft_program_cost_add(out, &one, (double)s->runs / s->buckets);
    }
    return spend_behind(w, s, out);
}

/* ---- through stages ------------------------------------------------------------------------- */

typedef struct stage_times {
    double *forward, *backward, *weight, *send, *send_back; /* by stage, of one microbatch */
    weft_program_cost *device;                              /* of all microbatches */
} stage_times;

static weft_status time_own_stages(const pricing *w, int64_t stage, int d, stage_times *t)
{
    const weft_stage_steps *s = &w->seat[d].stage[stage];
    for (int b = 0; b < s->buckets; b++) {
        const weft_pipe_step *step = s->bucket[b]->pipe;
        for (int i = 0; i < step->owns; i++)
            for (int k = 0; k < WEFT_PIPE_KINDS; k++) {
                const weft_pipe_stage *own = &step->own[i];
                const int q = own->stage;
                weft_program_cost one;
                if (!own->program[k])
                    continue;
                WEFT_TRY(spend(w, own->program[k], false, &one));
                const double mean = one.seconds / s->buckets;
                *(k == WEFT_STAGE_F ? &t->forward[q] : &t->backward[q]) += mean;
                t->weight[q] += k == WEFT_STAGE_W ? mean : 0;
                weft_program_cost_add(&t->device[d], &one, (double)s->runs / s->buckets);
            }
    }
    return WEFT_OK;
}

/* Values of a microbatch to the next stage, and gradients back. */
static void time_sends(const pricing *w, int64_t stage, stage_times *t)
{
    const weft_priced_links links = links_of(w);
    const weft_stage_steps *s = &w->seat[0].stage[stage];
    for (int b = 0; b < s->buckets; b++) {
        const weft_stages *stages = &s->bucket[b]->pipe->stages;
        for (int i = 0; i < stages->links; i++) {
            const weft_stage_link *link = &stages->link[i];
            const weft_value_info *info = weft_value_get(stages->graph, (weft_value){link->value});
            const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
            if (link->local)
                continue;
            const double seconds =
                weft_exchange_price(&links, "send", WEFT_COLL_SEND, w->seat[0].pipe->axis, bytes) /
                s->buckets;
            t->send[link->from] += seconds;
            t->send_back[link->from] += seconds;
        }
    }
}

static weft_status time_table(const pricing *w, int64_t runs, const stage_times *t, double *seconds)
{
    weft_schedule table;
    weft_schedule_timing timing;
    const weft_stage_times times = {.forward = t->forward,
                                    .backward = t->backward,
                                    .weight = t->weight,
                                    .send = t->send,
                                    .send_back = t->send_back};
    WEFT_TRY(weft_pipe_table(w->seat[0].pipe, runs, &table));
    const weft_status_code status = weft_schedule_time(&table, &times, &timing);
    weft_schedule_free(&table);
    *seconds = timing.seconds;
    return status;
}

static weft_status price_in_stages(const pricing *w, int64_t stage, weft_program_cost *out,
                                   double *bubble)
{
    const int64_t stages = w->seat[0].pipe->stages, f64 = (int64_t)sizeof(double);
    double *room = weft_alloc((5 * stages + 1) * f64), seconds = 0;
    stage_times t = {room,
                     room + stages,
                     room + 2 * stages,
                     room + 3 * stages,
                     room + 4 * stages,
                     weft_alloc((w->seats + 1) * (int64_t)sizeof *t.device)};
    weft_status_code status = room && t.device ? WEFT_OK : no_memory();
    weft_program_cost behind = {0};
    int most = 0;
    for (int d = 0; d < w->seats && status == WEFT_OK; d++)
        status = time_own_stages(w, stage, d, &t);
    if (status == WEFT_OK)
        time_sends(w, stage, &t);
    if (status == WEFT_OK)
        status = time_table(w, w->seat[0].stage[stage].runs, &t, &seconds);
    for (int d = 0; d < w->seats && status == WEFT_OK; d++) {
        weft_program_cost own = {0};
        status = spend_behind(w, &w->seat[d].stage[stage], &own);
        behind = own.seconds > behind.seconds ? own : behind;
        most = t.device[d].seconds > t.device[most].seconds ? d : most;
    }
    if (status == WEFT_OK) {
        *bubble = seconds - t.device[most].seconds;
        *out = t.device[most];
        out->seconds = seconds;
        weft_program_cost_add(out, &behind, 1);
    }
    weft_free(room);
    weft_free(t.device);
    return status;
}

static weft_status find_seconds(pricing *w)
{
    weft_layout_price *out = w->out;
    const weft_stage *stage = w->run.stages.item;
    const double all = (double)weft_run_first_step(&w->run, w->run.stages.count);
    double kernels = 0, exact = 0;
    for (int64_t i = 0; i < w->run.stages.count; i++) {
        weft_program_cost s = {0};
        double bubble = 0;
        WEFT_TRY(w->seat[0].pipe ? price_in_stages(w, i, &s, &bubble)
                                 : price_in_turn(w, &w->seat[0].stage[i], &s));
        const double share = (double)stage[i].steps / all;
        out->seconds += share * s.seconds;
        out->compute += share * s.forward;
        out->optimizer += share * s.update;
        out->exchange += share * s.exposed;
        out->hidden += share * s.hidden;
        out->bubble += share * bubble;
        kernels += share * (s.forward + s.update);
        exact += share * s.exact;
    }
    out->exact = kernels > 0 ? fmin(1, exact / kernels) : 0;
    return WEFT_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static weft_status price(pricing *w)
{
    const weft_pricer *p = w->p;
    WEFT_TRY(weft_parallel_mesh(&w->run.parallel, p->ranks, p->path, &w->out->mesh));
    const int axis = weft_mesh_axis(&w->out->mesh, WEFT_STAGES_AXIS);
    const int seats = axis >= 0 ? w->out->mesh.axis[axis].size : 1;
    w->seat = weft_alloc((seats + 1) * (int64_t)sizeof *w->seat);
    if (!w->seat)
        return no_memory();
    for (; w->seats < seats; w->seats++) {
        const weft_status_code status = open_seat(w, w->seats, &w->seat[w->seats]);
        if (status != WEFT_OK)
            close_seat(w, &w->seat[w->seats]);
        WEFT_TRY(status);
    }
    WEFT_TRY(plan_steps(w));
    WEFT_TRY(fill_stores(w));
    w->out->legal = true;
    WEFT_TRY(fit_memory(w));
    w->out->fits = true;
    return find_seconds(w);
}

/* What a layout is refused for, in difference to what stops the search. */
static bool is_verdict(weft_status_code status, bool legal)
{
    return status == WEFT_E_CONFIG || status == WEFT_E_ARG || status == WEFT_E_UNSUPPORTED ||
           status == WEFT_E_INFEASIBLE || status == WEFT_E_SHAPE ||
           (status == WEFT_E_MEMORY && legal);
}

weft_status weft_layout_price_of(const weft_pricer *pricer, const weft_parallel *parallel,
                                 weft_layout_price *out)
{
    pricing w = {.p = pricer, .run = *pricer->run, .out = out};
    *out = (weft_layout_price){.parallel = *parallel};
    w.run.parallel = *parallel;
    weft_status_code status = price(&w);
    if (is_verdict(status, out->legal)) {
        out->legal = status == WEFT_E_MEMORY;
        out->fits = false;
        out->why = weft_arena_strdup(pricer->arena, weft_error_message());
        status = out->why ? WEFT_OK : no_memory();
    }
    for (int d = 0; d < w.seats; d++)
        close_seat(&w, &w.seat[d]);
    weft_free(w.seat);
    return status;
}

weft_status weft_run_cluster(weft_arena *arena, const weft_run *run, const char *spec,
                             weft_cluster *cluster, char name[512])
{
    snprintf(name, 512, "%s/profile.json", run->out);
    if (strcmp(spec, "local") || !weft_path_exists(name))
        snprintf(name, 512, "%s", spec);
    return weft_cluster_load(arena, name, cluster);
}

weft_status weft_cascade_cluster(weft_arena *arena, const weft_run *run, weft_cluster *cluster,
                                 char name[512])
{
    const weft_status_code status =
        weft_run_cluster(arena, run, run->cascades.cluster, cluster, name);
    if (status == WEFT_OK)
        return WEFT_OK;
    return weft_fail_remedy(weft_fail_context(status, "parallel.cascades.cluster"),
                            "Give local, a preset, or a file that `weft profile` wrote");
}
