#include "train/estimate/rank_kinds.h"

#include "base/log.h"
#include "exec/program_sent.h"
#include "train/estimate/dry_run.h"
#include "train/monitor/rank_telemetry.h"

typedef struct planner {
    const weft_modelled_setup *setup;
    const weft_mesh *mesh;
    const weft_backend *backend;
    weft_rank_kinds *out;
    bool firsts;           /* one kind per pipeline device */
    int pp_axis, replicas; /* mesh axes; -1: none */
    bool *begins;          /* [dp replicas + 1] shard sizes change at this replica */
} planner;

/* ---- one kind ------------------------------------------------------------------------------- */

static weft_exec_config exec_of(const planner *p, const weft_rank_kind *kind)
{
    weft_exec_config exec = weft_exec_config_of(p->setup->run, p->setup->models);
    exec.mesh = *p->mesh;
    exec.backend = p->backend;
    exec.rank = kind->rank;
    exec.pp = kind->pp;
    exec.telemetry_floats =
        weft_rank_telemetry_floats(p->setup->run->stragglers.steps ? weft_mesh_ranks(p->mesh) : 0);
    return exec;
}

static weft_status plan_kind(const planner *p, weft_rank_kind *kind)
{
    const weft_modelled_setup *s = p->setup;
    WEFT_TRY(weft_pp_layout_open(&s->run->parallel, p->mesh, kind->rank, s->path, &kind->pp));
    const weft_exec_config exec = exec_of(p, kind);
    kind->cache = weft_compiled_steps_create();
    kind->store = weft_store_create_on(p->backend->device);
    WEFT_TRY(WEFT_ALLOCATED(kind->cache && kind->store, "the kinds of ranks"));
    WEFT_TRY(weft_stage_programs_plan(kind->cache, s->run, s->models, s->train_stage, &exec,
                                      &kind->steps));
    return weft_stage_programs_bytes(&kind->steps, &kind->bytes);
}

static void free_kind(weft_rank_kind *kind)
{
    weft_stage_programs_free(&kind->steps);
    weft_compiled_steps_free(kind->cache);
    weft_store_free(kind->store);
    weft_pp_layout_free(kind->pp);
}

/* Runs of bucket `b`'s program in a step. */
static int64_t runs_of(const weft_stage_programs *s, int b)
{
    return s->runs / s->buckets + (b < s->runs % s->buckets);
}

static void add_kernels(weft_rank_kind *kind, const weft_backend *backend)
{
    const weft_stage_programs *s = &kind->steps;
    for (int b = 0; b < s->buckets; b++) {
        const weft_pp_step *step = s->bucket[b]->pp_step;
        const double times = (double)runs_of(s, b);
        if (!step)
            kind->kernels += times * weft_dry_run_kernels(backend, s->bucket[b]->graph);
        for (int i = 0; step && i < step->owns; i++)
            for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
                if (step->own[i].program[k])
                    kind->kernels += times * weft_dry_run_kernels(backend, step->own[i].graph[k]);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Adds `times` transfers of values to pipeline stages of other ranks and of gradients back. */
static void add_links(const weft_pp_layout *pp, const weft_pp_stages *s, int64_t times,
                      weft_sent *sent)
{
    for (int l = 0; l < s->links; l++) {
        const weft_pp_edge *link = &s->link[l];
        const weft_value_info *info = weft_value_get(s->graph, (weft_value){link->value});
        const int64_t element = weft_dtype_bytes(info->dtype),
                      count = weft_shape_count(&info->shape), segment = WEFT_COMM_SEGMENT / element;
        const int ends =
            (s->device_of[link->from] == pp->device) + (s->device_of[link->to] == pp->device);
        if (link->local)
            continue;
        sent->messages += times * ends * ((count + segment - 1) / segment);
        sent->bytes += times * ends * count * element;
    }
}

weft_status weft_stage_programs_sent(const weft_stage_programs *s, const weft_pp_layout *pp,
                                     int pp_axis, int per_node, weft_sent *inside, weft_sent *sent)
{
    for (int b = 0; b < s->buckets; b++) {
        weft_program *list[64];
        const weft_pp_step *step = s->bucket[b]->pp_step;
        const int programs = weft_step_programs(s->bucket[b], NULL);
        weft_program **program = programs <= 64 ? list : weft_calloc(programs, sizeof *program);
        weft_status_code status = WEFT_ALLOCATED(program, "the messages of a step");
        if (program)
            weft_step_programs(s->bucket[b], program);
        for (int i = 0; i < programs && status == WEFT_OK; i++)
            status = weft_program_add_planned(program[i], per_node, runs_of(s, b), sent);
        if (program != list)
            weft_free(program);
        WEFT_TRY(status);
        if (step)
            add_links(pp, &step->pp_stages, runs_of(s, b), &sent[pp_axis]);
    }
    *inside = (weft_sent){0};
    for (int a = 0; a < WEFT_MAX_AXES; a++) {
        inside->messages += sent[a].messages;
        inside->bytes += sent[a].bytes;
    }
    for (int i = s->buckets; i < s->count; i++)
        WEFT_TRY(weft_program_add_planned(s->bucket[i]->program, per_node, 1, sent));
    return WEFT_OK;
}

/* ---- equal ranks ---------------------------------------------------------------------------- */

/* Records where dp shards of a dimension change size. Includes dimensions that axes from `axis` on
 * have already split. */
static void record_length(planner *p, int64_t length, int axis)
{
    const weft_mesh *mesh = p->mesh;
    p->begins[length % mesh->axis[p->replicas].size] = true; /* longer shards come first */
    for (int a = axis; a < mesh->axis_count; a++) {
        const int n = mesh->axis[a].size;
        if (a == p->replicas || a == p->pp_axis || n == 1)
            continue;
        record_length(p, length / n, a + 1);
        if (length % n)
            record_length(p, length / n + 1, a + 1);
    }
}

/* Records all dimensions that dp splits: batches and, with zero, parameters and states. */
static void record_lengths(planner *p, const weft_graph *whole)
{
    for (int32_t n = 0; n < weft_graph_node_count(whole); n++) {
        const weft_node *node = weft_graph_node(whole, n);
        const bool stored = weft_op_has(node->op, WEFT_TRAIT_PERSISTENT);
        if (node->op != WEFT_OP_INPUT && !(stored && p->setup->run->parallel.zero))
            continue;
        const weft_shape *shape = &weft_value_get(whole, node->out[0])->shape;
        for (int d = 0; d < (stored ? shape->rank : 1) && shape->rank; d++)
            record_length(p, shape->dim[d], 0);
        if (stored)
            record_length(p, weft_shape_count(shape), 0);
    }
}

/* A number that is the same for all ranks of a kind. */
static int64_t name_of(const planner *p, int rank)
{
    int at[WEFT_MAX_AXES];
    int64_t name = 0;
    weft_mesh_coordinates(p->mesh, rank, at);
    if (p->firsts)
        return p->pp_axis >= 0 ? at[p->pp_axis] : 0;
    for (int a = 0; a < p->mesh->axis_count; a++) {
        int part = a == p->replicas ? 0 : at[a];
        for (int i = 1; a == p->replicas && i <= at[a]; i++)
            part += p->begins[i];
        name = name * p->mesh->axis[a].size + part;
    }
    return name;
}

static weft_status find_kinds(planner *p)
{
    weft_rank_kinds *out = p->out;
    int64_t *name;
    WEFT_TRY(WEFT_NEW(name, out->ranks + 1, "the kinds of ranks"));
    for (int r = 0; r < out->ranks; r++) {
        const int64_t own = name_of(p, r);
        int k = 0;
        while (k < out->count && name[k] != own)
            k++;
        if (k == out->count) {
            name[k] = own;
            out->kind[out->count++].rank = r;
        }
        out->of[r] = k;
    }
    weft_free(name);
    return WEFT_OK;
}

/* ---- stores --------------------------------------------------------------------------------- */

/* Kind of the rank that is `device` in the pipeline of `rank`. */
static int pp_peer_kind(const planner *p, int rank, int device)
{
    int at[WEFT_MAX_AXES], other = 0;
    weft_mesh_coordinates(p->mesh, rank, at);
    at[p->pp_axis] = device;
    for (int a = 0; a < p->mesh->axis_count; a++)
        other = other * p->mesh->axis[a].size + at[a];
    return p->out->of[other];
}

static weft_status fill_store(const planner *p, weft_rank_kind *kind, const weft_buf *list,
                              weft_buf *of_devices)
{
    const weft_exec_config exec = exec_of(p, kind);
    for (int d = 0; kind->pp && d < kind->pp->devices; d++)
        of_devices[d] = list[pp_peer_kind(p, kind->rank, d)];
    WEFT_TRY(kind->pp
                 ? weft_steps_fill_listed(kind->steps.bucket, kind->steps.count, &exec, of_devices,
                                          kind->store, 0)
                 : weft_steps_fill(kind->steps.bucket, kind->steps.count, &exec, kind->store, 0));
    kind->bytes += weft_store_bytes(kind->store);
    return WEFT_OK;
}

static weft_status fill_stores(const planner *p)
{
    weft_rank_kinds *out = p->out;
    const int devices = p->pp_axis >= 0 ? p->mesh->axis[p->pp_axis].size : 1;
    weft_buf *list = weft_calloc(out->count + 1, sizeof *list),
             *of_devices = weft_calloc(devices + 1, sizeof *of_devices);
    weft_status_code status = WEFT_ALLOCATED(list && of_devices, "the kinds of ranks");
    for (int k = 0; k < out->count && status == WEFT_OK && p->pp_axis >= 0; k++)
        status = weft_steps_list(out->kind[k].steps.bucket, out->kind[k].steps.count, &list[k]);
    for (int k = 0; k < out->count && status == WEFT_OK; k++)
        status = fill_store(p, &out->kind[k], list, of_devices);
    for (int k = 0; k < out->count && list; k++)
        weft_buf_free(&list[k]);
    weft_free(list);
    weft_free(of_devices);
    return status;
}

/* ---- all kinds ------------------------------------------------------------------------------ */

static weft_status plan(planner *p)
{
    weft_rank_kinds *out = p->out;
    const int replicas = p->replicas >= 0 ? p->mesh->axis[p->replicas].size : 1;
    out->ranks = weft_mesh_ranks(p->mesh);
    out->of = weft_calloc(out->ranks + 1, sizeof *out->of);
    out->kind = weft_calloc(out->ranks + 1, sizeof *out->kind);
    p->begins = weft_calloc(replicas + 1, sizeof *p->begins);
    WEFT_TRY(WEFT_ALLOCATED(out->of && out->kind && p->begins, "the kinds of ranks"));
    weft_progress progress;
    double first = weft_now();
    WEFT_TRY(plan_kind(p, &out->kind[0])); /* its graphs determine the shard sizes */
    first = weft_now() - first;
    for (int i = 0; i < out->kind[0].steps.buckets && p->replicas >= 0 && !p->firsts; i++)
        record_lengths(p, out->kind[0].steps.bucket[i]->whole);
    WEFT_TRY(find_kinds(p));
    weft_progress_begin_late(&progress, "planning", out->count);
    progress.started -= first; /* include the first kind, planned above */
    for (int k = 1; k < out->count; k++) {
        weft_progress_update(&progress, k, "kinds of ranks");
        WEFT_TRY(plan_kind(p, &out->kind[k]));
    }
    weft_progress_end(&progress, out->count, "kinds of ranks");
    WEFT_TRY(fill_stores(p));
    for (int k = 0; k < out->count; k++) {
        add_kernels(&out->kind[k], p->backend);
        weft_rank_kind *kind = &out->kind[k];
        WEFT_TRY(weft_stage_programs_sent(&kind->steps, kind->pp, p->pp_axis,
                                          p->setup->links.per_node, &kind->inside, kind->sent));
    }
    return WEFT_OK;
}

weft_status weft_rank_kinds_plan(const weft_modelled_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, bool firsts, weft_rank_kinds *kinds)
{
    planner p = {.setup = setup,
                 .firsts = firsts,
                 .mesh = mesh,
                 .backend = backend,
                 .out = kinds,
                 .pp_axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS),
                 .replicas = weft_mesh_axis(mesh, "dp")};
    *kinds = (weft_rank_kinds){0};
    const weft_status_code status = plan(&p);
    weft_free(p.begins);
    if (status != WEFT_OK)
        weft_rank_kinds_free(kinds);
    return status;
}

void weft_rank_kinds_free(weft_rank_kinds *kinds)
{
    for (int r = 0; kinds->kind && r < kinds->ranks; r++)
        free_kind(&kinds->kind[r]);
    weft_free(kinds->kind);
    weft_free(kinds->of);
    *kinds = (weft_rank_kinds){0};
}
