#include "train/estimate/rank_kinds.h"

#include "base/log.h"
#include "base/rng.h"
#include "exec/program_sent.h"
#include "graph/dump.h"
#include "train/estimate/dry_run.h"
#include "train/monitor/rank_telemetry.h"

#include <string.h>

typedef struct planner {
    const weft_simulated_setup *setup;
    const weft_mesh *mesh;
    const weft_backend *backend;
    weft_rank_kinds *out;
    int pp_axis; /* -1: none */
    int placed;  /* ranks with a known kind, for progress */
    weft_progress progress;
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
    const weft_simulated_setup *s = p->setup;
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

static weft_status add_planned(const weft_step *step, int per_node, int64_t runs, weft_sent *sent)
{
    const int programs = weft_step_programs(step, NULL);
    weft_program **program;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(program, programs + 1, "the messages of a step"));
    weft_step_programs(step, program);
    for (int i = 0; i < programs; i++)
        WEFT_GO(weft_program_add_planned(program[i], per_node, runs, sent));
out:
    weft_free(program);
    return status;
}

weft_status weft_stage_programs_sent(const weft_stage_programs *s, const weft_pp_layout *pp,
                                     int pp_axis, int per_node, weft_sent *inside, weft_sent *sent)
{
    for (int b = 0; b < s->buckets; b++) {
        const weft_pp_step *step = s->bucket[b]->pp_step;
        WEFT_TRY(add_planned(s->bucket[b], per_node, runs_of(s, b), sent));
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

/* Ranks with coordinates from lo[a] to hi[a] on each axis. */
typedef struct box {
    int lo[WEFT_MAX_AXES], hi[WEFT_MAX_AXES];
} box;

static int rank_at(const planner *p, const int *at)
{
    int rank = 0;
    for (int a = 0; a < p->mesh->axis_count; a++)
        rank = rank * p->mesh->axis[a].size + at[a];
    return rank;
}

/* Hash of all programs of a kind. Ranks with equal hashes run the same programs: the graphs differ
 * only in where their shards start. */
static uint64_t hash_of(const weft_stage_programs *s)
{
    uint64_t hash = 0;
    for (int b = 0; b < s->count; b++) {
        const weft_pp_step *step = s->bucket[b]->pp_step;
        if (!step)
            hash = weft_seed_mix(hash, weft_graph_shard_hash(s->bucket[b]->graph));
        for (int i = 0; step && i < step->owns; i++)
            for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
                if (step->own[i].program[k])
                    hash = weft_seed_mix(hash, weft_graph_shard_hash(step->own[i].graph[k]));
    }
    return hash;
}

static bool same_pp_stages(const planner *p, int a, int b)
{
    int at[2][WEFT_MAX_AXES];
    weft_mesh_coordinates(p->mesh, a, at[0]);
    weft_mesh_coordinates(p->mesh, b, at[1]);
    return p->pp_axis < 0 || at[0][p->pp_axis] == at[1][p->pp_axis];
}

/* Estimated seconds to plan one kind. The schedules of collectives have a step for each rank of
 * their axis. */
static double planning_seconds(const planner *p)
{
    enum { RANK = 600 }; /* microseconds: 95 with 2 blocks, up to 730 with 24 */
    int most = 1;
    for (int a = 0; a < p->mesh->axis_count; a++)
        most = p->mesh->axis[a].size > most ? p->mesh->axis[a].size : most;
    return 1e-6 * RANK * most;
}

/* Shows progress. The time left is estimated until the first of `kinds` is planned. */
static void show(planner *p, int done, int kinds, const char *detail)
{
    if (done)
        weft_progress_update(&p->progress, done, detail);
    else
        weft_progress_update_left(&p->progress, done, detail, kinds * planning_seconds(p));
}

/* Plans the programs of the rank `at`, unless its kind is known. *kind: index of the kind. */
static weft_status kind_at(planner *p, const int *at, int *kind)
{
    weft_rank_kinds *out = p->out;
    const int rank = rank_at(p, at);
    int k = out->of[rank];
    if (k < 0) {
        weft_rank_kind *own = &out->kind[out->count];
        own->rank = rank;
        show(p, p->placed, 2, "ranks");
        WEFT_TRY(plan_kind(p, own));
        own->hash = hash_of(&own->steps);
        for (k = 0; k < out->count; k++)
            if (out->kind[k].hash == own->hash && same_pp_stages(p, out->kind[k].rank, rank))
                break;
        if (k == out->count) {
            out->count++;
        } else {
            free_kind(own);
            *own = (weft_rank_kind){0};
        }
        out->of[rank] = k;
    }
    *kind = k;
    return WEFT_OK;
}

/* Sets the kind of all ranks in a box. */
static void fill_box(planner *p, const box *b, int kind)
{
    int at[WEFT_MAX_AXES];
    memcpy(at, b->lo, sizeof at);
    for (int a = 0; a >= 0;) {
        p->out->of[rank_at(p, at)] = kind;
        p->placed++;
        for (a = p->mesh->axis_count - 1; a >= 0 && ++at[a] > b->hi[a]; a--)
            at[a] = b->lo[a];
    }
}

/* Finds the axis on which the box has several kinds, and the last coordinate *cut with the
 * first rank's kind. */
static weft_status find_cut(planner *p, const box *b, int first, int *axis, int *cut)
{
    *axis = -1;
    for (int a = 0; a < p->mesh->axis_count; a++) {
        int at[WEFT_MAX_AXES], kind, low = b->lo[a], high = b->hi[a];
        memcpy(at, b->lo, sizeof at);
        if (low == high)
            continue;
        at[a] = high;
        WEFT_TRY(kind_at(p, at, &kind));
        *axis = a; /* the last axis if no single axis differs */
        *cut = low;
        if (kind == first)
            continue;
        while (high - low > 1) {
            at[a] = low + (high - low) / 2;
            WEFT_TRY(kind_at(p, at, &kind));
            *(kind == first ? &low : &high) = at[a];
        }
        *cut = low;
        return WEFT_OK;
    }
    return WEFT_OK;
}

/* Finds the kinds of the ranks in a box. Shards do not grow with the coordinates
 * (weft_part). So if the first and the last rank of a box have equal programs, all
 * ranks between them do. Otherwise the box is cut in two. */
static weft_status find_in_box(planner *p, box b)
{
    for (;;) {
        int first, last, axis = -1, cut = 0;
        WEFT_TRY(kind_at(p, b.lo, &first));
        WEFT_TRY(kind_at(p, b.hi, &last));
        if (first != last)
            WEFT_TRY(find_cut(p, &b, first, &axis, &cut));
        if (axis < 0) {
            fill_box(p, &b, first);
            return WEFT_OK;
        }
        box low = b;
        low.hi[axis] = cut;
        WEFT_TRY(find_in_box(p, low));
        b.lo[axis] = cut + 1;
    }
}

/* Plans one kind per rank. */
static weft_status plan_separately(planner *p)
{
    for (int r = 0; r < p->out->ranks; r++) {
        p->out->kind[r].rank = r;
        p->out->of[r] = p->out->count++;
        WEFT_TRY(plan_kind(p, &p->out->kind[r]));
    }
    return WEFT_OK;
}

/* Plans one kind per pipeline device. */
static weft_status plan_firsts(planner *p)
{
    weft_rank_kinds *out = p->out;
    const int devices = p->pp_axis >= 0 ? p->mesh->axis[p->pp_axis].size : 1;
    for (; out->count < devices; out->count++) {
        int at[WEFT_MAX_AXES] = {0};
        if (p->pp_axis >= 0)
            at[p->pp_axis] = out->count;
        show(p, out->count, devices, "pipeline devices");
        out->kind[out->count].rank = rank_at(p, at);
        WEFT_TRY(plan_kind(p, &out->kind[out->count]));
    }
    for (int r = 0; r < out->ranks; r++) {
        int at[WEFT_MAX_AXES];
        weft_mesh_coordinates(p->mesh, r, at);
        out->of[r] = p->pp_axis >= 0 ? at[p->pp_axis] : 0;
    }
    return WEFT_OK;
}

/* Plans the kinds of all ranks, pipeline device by pipeline device. */
static weft_status plan_all(planner *p)
{
    const int devices = p->pp_axis >= 0 ? p->mesh->axis[p->pp_axis].size : 1;
    for (int r = 0; r < p->out->ranks; r++)
        p->out->of[r] = -1;
    for (int d = 0; d < devices; d++) {
        box b = {0};
        for (int a = 0; a < p->mesh->axis_count; a++)
            b.hi[a] = p->mesh->axis[a].size - 1;
        if (p->pp_axis >= 0)
            b.lo[p->pp_axis] = b.hi[p->pp_axis] = d;
        WEFT_TRY(find_in_box(p, b));
    }
    return WEFT_OK;
}

/* ---- stores --------------------------------------------------------------------------------- */

/* Kind of the rank that is `device` in the pipeline of `rank`. */
static int pp_peer_kind(const planner *p, int rank, int device)
{
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(p->mesh, rank, at);
    at[p->pp_axis] = device;
    return p->out->of[rank_at(p, at)];
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
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(list && of_devices, "the kinds of ranks"));
    for (int k = 0; k < out->count && p->pp_axis >= 0; k++)
        WEFT_GO(weft_steps_list(out->kind[k].steps.bucket, out->kind[k].steps.count, &list[k]));
    for (int k = 0; k < out->count; k++)
        WEFT_GO(fill_store(p, &out->kind[k], list, of_devices));
out:
    for (int k = 0; k < out->count && list; k++)
        weft_buf_free(&list[k]);
    weft_free(list);
    weft_free(of_devices);
    return status;
}

/* ---- all kinds ------------------------------------------------------------------------------ */

static weft_status plan(planner *p, weft_rank_kinds_which which)
{
    weft_rank_kinds *out = p->out;
    const int firsts = p->pp_axis >= 0 ? p->mesh->axis[p->pp_axis].size : 1;
    out->ranks = weft_mesh_ranks(p->mesh);
    out->of = weft_calloc(out->ranks + 1, sizeof *out->of);
    out->kind = weft_calloc(out->ranks + 1, sizeof *out->kind);
    WEFT_TRY(WEFT_ALLOCATED(out->of && out->kind, "the kinds of ranks"));
    weft_progress_begin_late(&p->progress, "planning",
                             which == WEFT_RANK_KINDS_FIRSTS ? firsts : out->ranks);
    WEFT_TRY(which == WEFT_RANK_KINDS_FIRSTS     ? plan_firsts(p)
             : which == WEFT_RANK_KINDS_SEPARATE ? plan_separately(p)
                                                 : plan_all(p));
    weft_progress_end(&p->progress, which == WEFT_RANK_KINDS_FIRSTS ? firsts : out->ranks,
                      which == WEFT_RANK_KINDS_FIRSTS ? "pipeline devices" : "ranks");
    WEFT_TRY(fill_stores(p));
    for (int k = 0; k < out->count; k++) {
        add_kernels(&out->kind[k], p->backend);
        weft_rank_kind *kind = &out->kind[k];
        WEFT_TRY(weft_stage_programs_sent(&kind->steps, kind->pp, p->pp_axis,
                                          p->setup->links.per_node, &kind->inside, kind->sent));
    }
    return WEFT_OK;
}

weft_status weft_rank_kinds_plan(const weft_simulated_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, weft_rank_kinds_which which,
                                 weft_rank_kinds *kinds)
{
    planner p = {.setup = setup,
                 .mesh = mesh,
                 .backend = backend,
                 .out = kinds,
                 .pp_axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS)};
    *kinds = (weft_rank_kinds){0};
    const weft_status_code status = plan(&p, which);
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
