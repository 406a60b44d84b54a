#include "train/rank_kinds.h"

#include "base/log.h"
#include "train/rehearsal.h"

/* Ranks from which on a simulation takes long enough to be announced. */
enum { MANY = 256 };

typedef struct planner {
    const weft_modelled_setup *setup;
    const weft_mesh *mesh;
    const weft_backend *backend;
    weft_rank_kinds *out;
    int stages, replicas; /* axes of the mesh; -1: none */
    bool *begins;         /* [replicas of dp] parts from this replica on have another size */
} planner;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the kinds of ranks");
}

/* ---- one kind ------------------------------------------------------------------------------- */

static weft_place_of_run place_of(const planner *p, const weft_rank_kind *kind)
{
    weft_place_of_run place = weft_place_by(p->setup->run, p->setup->models);
    place.mesh = *p->mesh;
    place.backend = p->backend;
    place.rank = kind->rank;
    place.pipe = kind->pipe;
    return place;
}

static weft_status plan_kind(const planner *p, weft_rank_kind *kind)
{
    const weft_modelled_setup *s = p->setup;
    WEFT_TRY(weft_pipe_open(&s->run->parallel, p->mesh, kind->rank, s->path, &kind->pipe));
    const weft_place_of_run place = place_of(p, kind);
    kind->cache = weft_step_cache_create();
    kind->store = weft_store_create_on(p->backend->device);
    if (!kind->cache || !kind->store)
        return no_memory();
    WEFT_TRY(weft_stage_steps_plan(kind->cache, s->run, s->models, s->stage, &place, &kind->steps));
    return weft_stage_steps_bytes(&kind->steps, &kind->bytes);
}

static void free_kind(weft_rank_kind *kind)
{
    weft_stage_steps_free(&kind->steps);
    weft_step_cache_free(kind->cache);
    weft_store_free(kind->store);
    weft_pipe_free(kind->pipe);
}

static void add_kernels(weft_rank_kind *kind)
{
    const weft_stage_steps *s = &kind->steps;
    for (int64_t m = 0; m < s->runs; m++) {
        const weft_pipe_step *step = s->bucket[m % s->buckets]->pipe;
        for (int i = 0; i < step->owns; i++)
            for (int k = 0; k < WEFT_PIPE_KINDS; k++)
                if (step->own[i].program[k])
                    kind->kernels += weft_rehearsal_kernels(
                        weft_program_backend(step->own[i].program[k]), step->own[i].graph[k]);
    }
}

/* ---- which ranks are equal ------------------------------------------------------------------ */

static void note_length(planner *p, int64_t length)
{
    const int n = p->mesh->axis[p->replicas].size;
    p->begins[length % n] = true; /* longer parts come first */
}

/* dp splits batches and, with zero, parameters and states. */
static void note_lengths(planner *p, const weft_graph *whole)
{
    for (int32_t n = 0; n < weft_graph_node_count(whole); n++) {
        const weft_node *node = weft_graph_node(whole, n);
        const bool stored = weft_op_has(node->op, WEFT_TRAIT_PERSISTENT);
        if (node->op != WEFT_OP_INPUT && !(stored && p->setup->run->parallel.zero))
            continue;
        const weft_shape *shape = &weft_value_get(whole, node->out[0])->shape;
        for (int d = 0; d < (stored ? shape->rank : 1) && shape->rank; d++)
            note_length(p, shape->dim[d]);
        if (stored)
            note_length(p, weft_shape_count(shape));
    }
}

/* A number for all ranks of a kind. */
static int64_t name_of(const planner *p, int rank)
{
    int at[WEFT_MAX_AXES];
    int64_t name = 0;
    weft_mesh_coordinates(p->mesh, rank, at);
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
    int64_t *name = weft_alloc((out->ranks + 1) * (int64_t)sizeof *name);
    if (!name)
        return no_memory();
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

/* The kind of the rank that has stage device `device` in the pipeline of `rank`. */
static int beside(const planner *p, int rank, int device)
{
    int at[WEFT_MAX_AXES], other = 0;
    weft_mesh_coordinates(p->mesh, rank, at);
    at[p->stages] = device;
    for (int a = 0; a < p->mesh->axis_count; a++)
        other = other * p->mesh->axis[a].size + at[a];
    return p->out->of[other];
}

static weft_status fill_store(const planner *p, weft_rank_kind *kind, const weft_buf *list,
                              weft_buf *of_devices)
{
    const weft_place_of_run place = place_of(p, kind);
    for (int d = 0; d < kind->pipe->devices; d++)
        of_devices[d] = list[beside(p, kind->rank, d)];
    WEFT_TRY(weft_steps_fill_listed(kind->steps.bucket, kind->steps.count, &place, of_devices,
                                    kind->store, 0));
    kind->bytes += weft_store_bytes(kind->store);
    return WEFT_OK;
}

static weft_status fill_stores(const planner *p)
{
    weft_rank_kinds *out = p->out;
    const int devices = p->mesh->axis[p->stages].size;
    weft_buf *list = weft_alloc((out->count + 1) * (int64_t)sizeof *list),
             *of_devices = weft_alloc((devices + 1) * (int64_t)sizeof *of_devices);
    weft_status_code status = list && of_devices ? WEFT_OK : no_memory();
    for (int k = 0; k < out->count && status == WEFT_OK; k++)
        status = weft_steps_list(out->kind[k].steps.bucket, out->kind[k].steps.count, &list[k]);
    for (int k = 0; k < out->count && status == WEFT_OK; k++)
        status = fill_store(p, &out->kind[k], list, of_devices);
    for (int k = 0; k < out->count && list; k++)
        weft_buf_free(&list[k]);
    weft_free(list);
    weft_free(of_devices);
    return status;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static weft_status plan(planner *p)
{
    weft_rank_kinds *out = p->out;
    const int replicas = p->replicas >= 0 ? p->mesh->axis[p->replicas].size : 1;
    out->ranks = weft_mesh_ranks(p->mesh);
    out->of = weft_alloc((out->ranks + 1) * (int64_t)sizeof *out->of);
    out->kind = weft_alloc((out->ranks + 1) * (int64_t)sizeof *out->kind);
    p->begins = weft_alloc((replicas + 1) * (int64_t)sizeof *p->begins);
    if (!out->of || !out->kind || !p->begins)
        return no_memory();
    WEFT_TRY(plan_kind(p, &out->kind[0])); /* its graphs say which parts differ */
    for (int i = 0; i < out->kind[0].steps.buckets && p->replicas >= 0; i++)
        note_lengths(p, out->kind[0].steps.bucket[i]->whole);
    WEFT_TRY(find_kinds(p));
    for (int k = 1; k < out->count; k++)
        WEFT_TRY(plan_kind(p, &out->kind[k]));
    WEFT_TRY(fill_stores(p));
    for (int k = 0; k < out->count; k++)
        add_kernels(&out->kind[k]);
    if (out->ranks >= MANY)
        weft_info("%d ranks share the programs of %d; each runs two steps on a thread", out->ranks,
                  out->count);
    return WEFT_OK;
}

weft_status weft_rank_kinds_plan(const weft_modelled_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, weft_rank_kinds *kinds)
{
    planner p = {.setup = setup,
                 .mesh = mesh,
                 .backend = backend,
                 .out = kinds,
                 .stages = weft_mesh_axis(mesh, WEFT_STAGES_AXIS),
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
