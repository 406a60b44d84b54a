#include "train/cascade_run.h"

#include "base/log.h"
#include "runtime/program_cache.h"
#include "train/cascade_late.h"
#include "train/cascade_sums.h"

#include <string.h>

static const int64_t usual_cache = (int64_t)1 << 30;

/* A program of a cascade, or the update, as the cache keeps it. */
typedef struct entry {
    weft_step step;
    weft_cascade_run *run;
    struct entry *next; /* of those that are bound */
    bool bound, ran;
} entry;

/* Units of a row that each member of a DiT cascade reads. */
typedef struct unit_reads {
    struct unit_reads *next;
    int bucket;
    weft_cascade_module of;
    weft_sp_method method;
    int64_t degree;
    weft_item_range member[];
} unit_reads;

struct weft_cascade_run {
    weft_cascade_setup setup;
    weft_place_of_run place; /* of contributions; mesh and rank are set for each */
    weft_program_cache *cache;
    entry *bound, *update;
    entry *forward; /* that was asked for last, held */
    entry **alone;  /* [buckets] on one rank, held; NULL: not yet */
    weft_group *world;
    weft_hands_place hands;
    weft_device_stream *stream; /* of what is handed on */
    double *modelled;           /* seconds of a modelled device; NULL: `clock` counts */
    weft_common_clock clock;
    double compiling;
    weft_sums *sums;  /* beside the cascades; NULL: otherwise */
    int32_t last;     /* of the plan that runs: this rank's last DiT cascade; -1: it has none */
    weft_cover cover; /* of the plan that runs; with representatives */
    int64_t reduced;  /* bytes that this rank sent for sums in it, */
    double running, taking;       /* and as weft_iteration_done has them */
    int32_t *order;               /* of the plan that runs: its cascades, */
    weft_cascade_row *row;        /* and what each sample and module hands on of a clip, */
    const weft_item_range **read; /* of which members of the DiT's group read so much; NULL: all */
    unit_reads *reads;            /* that were asked for so far */
    double exposed;               /* of the encoders' programs of the cascade that runs: waits, */
    bool first;                   /* and one of them had not run before */
    int64_t room;
    int per_node;                          /* for late dispatch */
    const double *slow;                    /* for it, on rank 0 */
    weft_placed_iteration decided;         /* by late dispatch */
    const weft_placed_iteration *executed; /* of the last iteration */
};

/* Keys of programs behind those of the buckets. */
enum { KEY_UPDATE, KEY_SUM, KEY_GIVE };

/* ---- programs -------------------------------------------------------------------------------- */

static void unbind(entry *e)
{
    entry **at = &e->run->bound;
    while (*at && *at != e)
        at = &(*at)->next;
    if (*at)
        *at = e->next;
    if (e->bound)
        weft_program_unbind(e->step.program);
    e->bound = false;
}

static void release(void *value)
{
    entry *e = value;
    unbind(e);
    weft_step_free(&e->step);
    weft_free(e);
}

static int64_t bytes_of(const entry *e)
{
    int64_t bytes = weft_graph_bytes(e->step.whole) + weft_program_own_bytes(e->step.program);
    if (e->step.graph != e->step.whole)
        bytes += weft_graph_bytes(e->step.graph);
    return bytes;
}

weft_mesh weft_cascade_mesh(weft_sp_method method, weft_sp_method context, int64_t clips,
                            int degree)
{
    const int shares = weft_cascade_shares(method, clips, degree), rest = degree / shares;
    const weft_sp_method by = method == WEFT_SP_NONE ? context : method;
    weft_mesh mesh = {0};
    if (shares > 1) {
        strcpy(mesh.axis[mesh.axis_count].name, "dp");
        mesh.axis[mesh.axis_count++].size = shares;
    }
    if (rest > 1) {
        strcpy(mesh.axis[mesh.axis_count].name, by == WEFT_SP_RING ? "ring" : "cp");
        mesh.axis[mesh.axis_count++].size = rest;
    }
    return mesh;
}

/* What is planned and in the cache from now on, held once; takes `whole`. */
static weft_status plan_entry(weft_cascade_run *r, const weft_program_key *key, weft_graph *whole,
                              const weft_optimizer_config *optimizer,
                              const weft_place_of_run *place, entry **out)
{
    const double began = weft_now();
    entry *e = weft_alloc(sizeof *e);
    if (!e) {
        weft_graph_free(whole);
        return weft_fail(WEFT_E_MEMORY, "out of memory for a program");
    }
    e->run = r;
    const weft_status_code status = weft_step_plan(whole, optimizer, place, &e->step);
    if (status != WEFT_OK) {
        weft_free(e);
        return status;
    }
    r->compiling += weft_now() - began;
    WEFT_TRY(weft_program_cache_put(r->cache, key, e, bytes_of(e)));
    *out = e;
    return WEFT_OK;
}

/* Of a DiT cascade: held until it is dropped. */
static weft_status take_entry(weft_cascade_run *r, int bucket, weft_sp_method method, int64_t clips,
                              int degree, int index, entry **out)
{
    weft_place_of_run place = r->place;
    weft_graph *whole;
    place.mesh = weft_cascade_mesh(method, r->setup.context, clips, degree);
    place.rank = index;
    const weft_program_key key = {.graph = (uint64_t)bucket, .mesh = place.mesh, .index = index};
    *out = weft_program_cache_take(r->cache, &key);
    if (*out)
        return WEFT_OK;
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, bucket, &whole));
    return plan_entry(r, &key, whole, r->setup.optimizer, &place, out);
}

/* All pass through the memory of the first that was bound, which is the largest: a larger one takes
 * its place, and the others come back to it when they run again. */
static weft_status bind(weft_cascade_run *r, entry *e, weft_store *store, weft_group *group)
{
    if (e->bound)
        return group ? weft_program_move(e->step.program, group) : WEFT_OK;
    while (r->bound && !weft_program_fits(e->step.program, r->bound->step.program))
        unbind(r->bound);
    WEFT_TRY(r->bound
                 ? weft_program_bind_beside(e->step.program, store, group, r->bound->step.program)
                 : weft_program_bind(e->step.program, store, group));
    e->bound = true;
    e->next = r->bound;
    r->bound = e;
    return WEFT_OK;
}

weft_status weft_cascade_run_alone(weft_cascade_run *r, int bucket, const weft_step **step)
{
    entry *e;
    if (!r->alone[bucket]) {
        WEFT_TRY(take_entry(r, bucket, WEFT_SP_NONE, r->setup.clips[bucket], 1, 0, &e));
        r->alone[bucket] = e;
    }
    *step = &r->alone[bucket]->step;
    return WEFT_OK;
}

weft_status weft_cascade_run_forward(weft_cascade_run *r, const weft_cascade_forward *f,
                                     const weft_step **step)
{
    weft_place_of_run place = r->place;
    weft_graph *whole;
    place.fates = NULL; /* nothing is kept for a backward */
    place.recompute_count = 0;
    weft_encoder_part_place(&place, f->part, f->parts > 1 ? f->parts : 1);
    const weft_program_key key = {
        .graph = f->key, .options = 1, .mesh = place.mesh, .index = place.rank};
    if (r->forward)
        weft_program_cache_drop(r->cache, r->forward);
    r->forward = weft_program_cache_take(r->cache, &key);
    if (!r->forward) {
        WEFT_TRY(f->make(f->user, &whole));
        WEFT_TRY(plan_entry(r, &key, whole, NULL, &place, &r->forward));
        WEFT_TRY(weft_store_init(f->store, r->forward->step.graph, 0));
    }
    WEFT_TRY(bind(r, r->forward, f->store, f->group));
    r->first = r->first || !r->forward->ran;
    r->forward->ran = true;
    *step = &r->forward->step;
    return WEFT_OK;
}

weft_status weft_cascade_run_encoder(weft_cascade_run *r, const weft_step *step)
{
    WEFT_TRY(weft_program_run(step->program));
    r->exposed += weft_program_comm_times(step->program).exposed;
    return WEFT_OK;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* The optimizer as contributions add to its states: nothing is shared out yet. */
static weft_optimizer_config adding(const weft_cascade_run *r)
{
    weft_optimizer_config own = weft_step_optimizer(r->setup.optimizer, &r->place);
    own.zero = (weft_zero){0};
    return own;
}

/* A state beside sums of gradients is one that contributions themselves change, each rank its own
 * way. */
static weft_status check_states(const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = weft_value_get(g, node->out[0])->name;
        if (node->op == WEFT_OP_STATE && strncmp(name, "grad.", 5))
            return weft_fail(
                WEFT_E_UNSUPPORTED,
                "parallel.cascades: the model changes \"%s\" in every step by what all "
                "ranks saw of it, and cascades of different groups would each change "
                "it their way",
                name);
    }
    return WEFT_OK;
}

/* What every bucket adds to, over whole shapes: only its sources count. */
static weft_status adds(weft_cascade_run *r, int bucket, weft_graph **out)
{
    const weft_optimizer_config own = adding(r);
    weft_graph *g;
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, bucket, &g));
    const weft_value objective = weft_graph_find(g, "objective");
    weft_optimizer_accumulate(g, objective, &own);
    weft_status_code status = weft_graph_check(g);
    if (status == WEFT_OK)
        status = check_states(g);
    if (status == WEFT_OK)
        *out = g;
    else
        weft_graph_free(g);
    return status;
}

/* Zero's are scattered by the update, and representatives have a way of their own. */
static bool sums_beside(const weft_cascade_setup *s)
{
    return !s->representative && !s->place->zero && weft_comm_ranks(s->comm) > 1;
}

static weft_status plan_update(weft_cascade_run *r)
{
    const weft_cascade_setup *s = &r->setup;
    weft_place_of_run place = *s->place;
    weft_graph **add = weft_alloc((s->buckets + 1) * (int64_t)sizeof *add), *whole = NULL;
    weft_status_code status =
        add ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for %d graphs", s->buckets);
    for (int b = 0; b < s->buckets && status == WEFT_OK; b++)
        status = adds(r, b, &add[b]);
    place.kind = WEFT_STEP_UPDATE;
    place.told = 0;
    weft_optimizer_config optimizer = weft_step_optimizer(s->optimizer, &place);
    optimizer.own = !s->representative && !sums_beside(s);
    const weft_program_key key = {.graph = (uint64_t)s->buckets + KEY_UPDATE};
    if (status == WEFT_OK)
        whole = weft_optimizer_update_own((const weft_graph *const *)add, s->buckets, &place.mesh,
                                          weft_place_rank(&place), &optimizer);
    for (int b = 0; add && b < s->buckets; b++)
        weft_graph_free(add[b]);
    weft_free(add);
    if (status == WEFT_OK && !whole)
        status = weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    if (status == WEFT_OK)
        status = plan_entry(r, &key, whole, s->optimizer, &place, &r->update);
    if (status == WEFT_OK)
        status = weft_store_init(s->store, r->update->step.graph, s->seed);
    return status == WEFT_OK && sums_beside(s)
               ? weft_sums_create(r->world, s->place->backend, s->store, r->update->step.graph,
                                  &r->sums)
               : status;
}

weft_step *weft_cascade_run_update(weft_cascade_run *r)
{
    return &r->update->step;
}

weft_status weft_cascade_run_bind_update(weft_cascade_run *r, weft_step **update)
{
    WEFT_TRY(bind(r, r->update, r->setup.store, r->world));
    *update = &r->update->step;
    return WEFT_OK;
}

/* ---- sums by representatives ---------------------------------------------------------------- */

/* Gradient states are summed over `list`; this rank keeps the sum, or begins anew. */
static weft_status sum_over(weft_cascade_run *r, const int *list, int count, bool keeps)
{
    weft_place_of_run place = r->place;
    weft_group *group;
    entry *e;
    WEFT_TRY(weft_comm_group(r->setup.comm, list, count, &group));
    place.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", count}}};
    place.rank = weft_group_index(group);
    place.kind = WEFT_STEP_SHARE;
    const weft_program_key key = {.graph =
                                      (uint64_t)r->setup.buckets + (keeps ? KEY_SUM : KEY_GIVE),
                                  .mesh = place.mesh,
                                  .index = place.rank};
    e = weft_program_cache_take(r->cache, &key);
    if (!e)
        WEFT_TRY(plan_entry(
            r, &key, weft_optimizer_sum(r->update->step.graph, &place.mesh, place.rank, keeps),
            r->setup.optimizer, &place, &e));
    weft_status_code status = bind(r, e, r->setup.store, group);
    if (status == WEFT_OK)
        status = weft_program_run(e->step.program);
    if (status == WEFT_OK)
        r->reduced += weft_program_comm_times(e->step.program).wire_bytes;
    weft_program_cache_drop(r->cache, e);
    return status;
}

/* What ranks that were not chosen have added of a cascade goes to one that was. */
static weft_status hand_terms(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index)
{
    const int own = weft_comm_rank(r->setup.comm);
    int *list = weft_alloc(plan->cascade[index].at.degree * (int64_t)sizeof *list);
    if (!list)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a group");
    const int count = weft_cover_group(&r->cover, plan, index, list);
    weft_status_code status = WEFT_OK;
    if (count > 1 && (list[0] == own || !r->cover.chosen[own]))
        status = sum_over(r, list, count, list[0] == own);
    weft_free(list);
    return status;
}

/* The whole sums from a chosen rank, list[0], to the others. */
static weft_status broadcast(weft_cascade_run *r, const int *list, int count)
{
    weft_group *group;
    WEFT_TRY(weft_comm_group(r->setup.comm, list, count, &group));
    for (int64_t i = 0; i < weft_store_count(r->setup.store); i++) {
        const weft_tensor *t = weft_store_at(r->setup.store, i);
        if (strncmp(t->name, "grad.", 5))
            continue;
        const int64_t bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        WEFT_TRY(weft_group_broadcast(group, t->data, bytes, 0));
        r->reduced += weft_group_index(group) < count - 1 ? bytes : 0; /* down a line, or a tree */
    }
    return WEFT_OK;
}

/* Among the chosen ones, and from each to those whose peer it is. */
static weft_status finish_sums(weft_cascade_run *r)
{
    const weft_cover *c = &r->cover;
    const int own = weft_comm_rank(r->setup.comm), peer = c->peer[own];
    int *list = weft_alloc(c->ranks * (int64_t)sizeof *list), count = 0;
    if (!list)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d ranks", c->ranks);
    weft_status_code status = WEFT_OK;
    for (int k = 0; k < c->ranks; k++)
        if (c->chosen[k])
            list[count++] = k;
    if (c->chosen[own] && count > 1)
        status = sum_over(r, list, count, true);
    count = 0;
    list[count++] = peer;
    for (int k = 0; k < c->ranks; k++)
        if (c->peer[k] == peer && k != peer)
            list[count++] = k;
    if (status == WEFT_OK && count > 1)
        status = broadcast(r, list, count);
    weft_free(list);
    return status;
}

/* ---- what is read of what is handed on ------------------------------------------------------- */

/* The units in which elements of some clip are read: from the first to the last of them. At least
 * one: it tells whose they are. */
static weft_item_range units_read(const bool *read, const weft_shape *shape, int64_t units)
{
    const int64_t clip = weft_shape_count(shape) / (shape->dim[0] ? shape->dim[0] : 1),
                  unit = clip / units;
    int64_t first = units, end = 0;
    for (int64_t i = 0; i < weft_shape_count(shape); i++) {
        const int64_t u = i % clip / unit;
        first = read[i] && u < first ? u : first;
        end = read[i] && u >= end ? u + 1 : end;
    }
    return end ? (weft_item_range){first, end - first} : (weft_item_range){0, 1};
}

/* By the forward of the group's first rank, whose parts are told by their place in the mesh. */
static weft_status find_reads(weft_cascade_run *r, const weft_cascade_row *row, int64_t clips,
                              unit_reads *to)
{
    const double began = weft_now();
    weft_place_of_run place = r->place;
    weft_graph *g;
    bool *read = NULL;
    place.rank = 0;
    place.mesh = weft_cascade_mesh(to->method, r->setup.context, clips, (int)to->degree);
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, to->bucket, &g));
    weft_status_code status = weft_step_forward(&place, &g);
    const weft_value input = status == WEFT_OK ? weft_graph_find(g, row->input) : WEFT_NONE;
    const weft_shape shape = weft_value_ok(input) ? weft_value_get(g, input)->shape : WEFT_SCALAR;
    if (status == WEFT_OK)
        read = weft_alloc(weft_shape_count(&shape) + 1);
    if (status == WEFT_OK && (!read || !weft_value_ok(input)))
        status = read ? weft_fail(WEFT_E_INTERNAL, "a cascade's program has no \"%s\"", row->input)
                      : weft_fail(WEFT_E_MEMORY, "out of memory for what a cascade reads");
    for (int k = 0; k < to->degree && status == WEFT_OK; k++) {
        memset(read, 0, (size_t)weft_shape_count(&shape));
        status = weft_graph_reads(g, input, k, read);
        to->member[k] = units_read(read, &shape, row->units);
    }
    weft_free(read);
    weft_graph_free(g);
    r->compiling += weft_now() - began;
    return status;
}

/* What members of the DiT cascade `c` read of rows of `module`; NULL: all of their clips'. */
static weft_status reads_of(weft_cascade_run *r, const weft_placed_iteration *plan,
                            const weft_placed_cascade *c, weft_cascade_module module,
                            const weft_item_range **out)
{
    const weft_placed_sample *s = &plan->sample[c->sample];
    const weft_cascade_row *row = &r->row[c->sample * WEFT_CASCADE_MODULES + (int)module];
    *out = NULL;
    if (!row->input || row->units < 2 ||
        weft_cascade_shares(c->method, s->clips, c->at.degree) == c->at.degree)
        return WEFT_OK;
    for (unit_reads *u = r->reads; u; u = u->next)
        if (u->bucket == s->bucket && u->of == module && u->method == c->method &&
            u->degree == c->at.degree) {
            *out = u->member;
            return WEFT_OK;
        }
    unit_reads *u = weft_alloc((int64_t)sizeof *u + c->at.degree * (int64_t)sizeof *u->member);
    if (!u)
        return weft_fail(WEFT_E_MEMORY, "out of memory for what a cascade reads");
    *u = (unit_reads){r->reads, s->bucket, module, c->method, c->at.degree};
    r->reads = u;
    *out = u->member;
    return find_reads(r, row, s->clips, u);
}

static weft_status find_rows(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    for (int64_t s = 0; s < plan->samples; s++)
        for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
            r->read[s * WEFT_CASCADE_MODULES + m] = NULL;
            if (m != WEFT_CASCADE_DIT)
                r->row[s * WEFT_CASCADE_MODULES + m] = r->setup.calls.row(
                    r->setup.calls.user, plan->sample[s].bucket, (weft_cascade_module)m);
        }
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[i];
        for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++) {
            const weft_placed_cascade *from = &plan->cascade[c->at.after[a]];
            WEFT_TRY(reads_of(r, plan, c, from->module,
                              &r->read[c->sample * WEFT_CASCADE_MODULES + (int)from->module]));
        }
    }
    return WEFT_OK;
}

/* ---- an iteration ---------------------------------------------------------------------------- */

static int member_of(const weft_placed_cascade *c, int rank)
{
    for (int64_t i = 0; i < c->at.degree; i++)
        if (c->at.device[i] == rank)
            return (int)i;
    return -1;
}

/* `count` of its members from `first` on. */
static weft_status group_of(weft_cascade_run *r, const weft_placed_cascade *c, int64_t first,
                            int64_t count, weft_group **group)
{
    int *ranks = weft_alloc(count * (int64_t)sizeof *ranks);
    if (!ranks)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a group");
    for (int64_t i = 0; i < count; i++)
        ranks[i] = c->at.device[first + i];
    const weft_status_code status = weft_comm_group(r->setup.comm, ranks, (int)count, group);
    weft_free(ranks);
    return status;
}

static double now(const weft_cascade_run *r)
{
    return r->modelled ? *r->modelled : weft_common_now(&r->clock);
}

double weft_cascade_run_now(const weft_cascade_run *r)
{
    return now(r);
}

weft_status weft_cascade_run_measure_clock(weft_cascade_run *r)
{
    return r->modelled ? WEFT_OK : weft_common_clock_measure(r->setup.comm, &r->clock);
}

const weft_common_clock *weft_cascade_run_clock(const weft_cascade_run *r)
{
    return r->modelled ? NULL : &r->clock;
}

/* ---- sums beside the cascades ---------------------------------------------------------------- */

static void written(void *user, const weft_tensor *tensor)
{
    weft_cascade_run *r = user;
    weft_sums_final(r->sums, tensor);
}

/* A cascade's program, from which on sums start if it is this rank's last. */
static weft_status run_program(weft_cascade_run *r, int32_t index, weft_program *program)
{
    if (!r->sums || r->setup.late_sums || index != r->last)
        return weft_program_run(program);
    WEFT_TRY(weft_program_watch(program, written, r));
    weft_sums_rest(r->sums, program);
    const weft_status_code status = weft_program_run(program),
                           ended = weft_program_watch(program, NULL, NULL);
    return status == WEFT_OK ? ended : status;
}

/* After all that this rank does in the iteration. */
static weft_status wait_sums(weft_cascade_run *r, weft_iteration_done *done)
{
    if (!r->sums)
        return WEFT_OK;
    weft_sums_rest(r->sums, NULL);
    WEFT_TRY(weft_sums_wait(r->sums));
    r->reduced += weft_sums_bytes(r->sums);
    done->summed = now(r) - done->begin;
    return WEFT_OK;
}

static weft_status denoise(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                           int member, weft_hands *hands, weft_cascade_done *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_placed_sample *s = &plan->sample[c->sample];
    weft_handed handed[WEFT_CASCADE_MODULES];
    weft_group *group;
    entry *e;
    const double asked = now(r), took = weft_thread_seconds(), compiled = r->compiling;
    WEFT_TRY(group_of(r, c, 0, c->at.degree, &group));
    WEFT_TRY(take_entry(r, s->bucket, c->method, s->clips, (int)c->at.degree, member, &e));
    weft_status_code status = bind(r, e, r->setup.store, group);
    done->compiled = r->compiling - compiled;
    done->first = !e->ran;
    e->ran = true;
    const double waits = now(r);
    r->taking += weft_thread_seconds() - took;
    if (status == WEFT_OK)
        status = weft_hands_take(hands, index, handed, done);
    if (status == WEFT_OK)
        status = r->setup.calls.fill(r->setup.calls.user, plan, index, &e->step, handed);
    done->start = now(r);
    done->waited = done->start - waits;
    if (status == WEFT_OK) {
        *(float *)weft_program_input(e->step.program, "optimizer.weight")->data = (float)s->weight;
        done->peak = (double)weft_program_bytes(e->step.program);
        const double began = weft_thread_seconds();
        status = run_program(r, index, e->step.program);
        r->running += weft_thread_seconds() - began;
    }
    done->end = now(r);
    done->busy = done->end - done->start - weft_program_comm_times(e->step.program).exposed;
    done->took_part = true;
    done->bound = waits - asked - done->compiled;
    weft_hands_drop(hands, index);
    weft_program_cache_drop(r->cache, e);
    return status;
}

static weft_cascade_share share_of(const weft_cascade_run *r, const weft_placed_iteration *plan,
                                   int32_t index, int member)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    return weft_cascade_share_of(&r->row[c->sample * WEFT_CASCADE_MODULES + (int)c->module],
                                 plan->sample[c->sample].clips, c->at.degree, member);
}

/* Clips of a cascade that are its member's. */
static weft_item_range clips_of(const weft_cascade_run *r, const weft_placed_iteration *plan,
                                int32_t index, int member)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const int64_t clips = plan->sample[c->sample].clips;
    int at[WEFT_MAX_AXES];
    weft_item_range own = {0, clips};
    if (c->module != WEFT_CASCADE_DIT)
        return share_of(r, plan, index, member).clips;
    const weft_mesh mesh = weft_cascade_mesh(c->method, r->setup.context, clips, (int)c->at.degree);
    const int dp = weft_mesh_axis(&mesh, "dp");
    weft_mesh_coordinates(&mesh, member, at);
    if (dp >= 0)
        weft_part(clips, mesh.axis[dp].size, at[dp], &own.first, &own.count);
    return own;
}

/* Members to whom no clip falls go on at once. */
static weft_status encode(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                          int member, weft_hands *hands, weft_cascade_done *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_cascade_share share = share_of(r, plan, index, member);
    weft_group *group = NULL;
    float *rows;
    if (!share.clips.count)
        return WEFT_OK;
    const double compiled = r->compiling;
    r->exposed = 0;
    r->first = false;
    if (share.parts > 1)
        WEFT_TRY(group_of(r, c, member / share.parts * share.parts, share.parts, &group));
    done->start = now(r);
    WEFT_TRY(weft_hands_make(hands, index, &rows));
    const double began = weft_thread_seconds();
    WEFT_TRY(r->setup.calls.encode(r->setup.calls.user, plan, index, &share, group, rows));
    r->running += weft_thread_seconds() - began;
    done->end = now(r);
    done->took_part = true;
    done->compiled = r->compiling - compiled;
    done->first = r->first;
    done->busy = done->end - done->start - r->exposed;
    return weft_hands_give(hands, index, done);
}

/* Seconds since the iteration began. */
static void from_begin(const weft_iteration_done *all, weft_cascade_done *done)
{
    if (!done->took_part)
        return;
    done->start -= all->begin;
    done->end -= all->begin;
}

/* The first cascade of this rank from `from` on, in order; the plan's count: none is left. Told to
 * whoever reads clips, before the one in front of it runs. */
static weft_status look_ahead(const weft_cascade_run *r, const weft_placed_iteration *plan,
                              int64_t from, int64_t *next)
{
    const int own = weft_comm_rank(r->setup.comm);
    int64_t i = from;
    while (i < plan->cascades && member_of(&plan->cascade[r->order[i]], own) < 0)
        i++;
    *next = i;
    if (i == plan->cascades || !r->setup.calls.ahead)
        return WEFT_OK;
    const int32_t index = r->order[i];
    const int member = member_of(&plan->cascade[index], own);
    return r->setup.calls.ahead(r->setup.calls.user, plan, index, clips_of(r, plan, index, member));
}

static weft_status take_one(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                            weft_hands *hands, weft_iteration_done *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const int member = member_of(c, weft_comm_rank(r->setup.comm));
    weft_cascade_done *d = &done->cascade[index];
    const weft_status_code status = c->module == WEFT_CASCADE_DIT
                                        ? denoise(r, plan, index, member, hands, d)
                                        : encode(r, plan, index, member, hands, d);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", c->at.id);
    from_begin(done, d);
    return WEFT_OK;
}

static weft_status take_all(weft_cascade_run *r, const weft_placed_iteration *plan,
                            weft_hands *hands, weft_iteration_done *done)
{
    int64_t i, next;
    WEFT_TRY(look_ahead(r, plan, 0, &i));
    for (; i < plan->cascades; i = next) {
        const int32_t index = r->order[i];
        const weft_placed_cascade *c = &plan->cascade[index];
        WEFT_TRY(look_ahead(r, plan, i + 1, &next));
        WEFT_TRY(take_one(r, plan, index, hands, done));
        if (r->setup.representative && c->module == WEFT_CASCADE_DIT)
            WEFT_TRY(hand_terms(r, plan, index));
    }
    return WEFT_OK;
}

/* As rank 0 dispatches them. A rank that gets no further gradients starts its sums. */
static weft_status take_dispatched(weft_cascade_run *r, weft_late *late, weft_hands *hands,
                                   weft_iteration_done *done)
{
    const weft_placed_iteration *plan = &r->decided;
    const int own = weft_comm_rank(r->setup.comm);
    weft_late_task task = {0};
    while (!task.over) {
        WEFT_TRY(weft_late_next(late, &task));
        if (task.index < 0) {
            if (r->sums && task.last && !r->setup.late_sums)
                weft_sums_rest(r->sums, NULL);
            continue;
        }
        const int member = member_of(&plan->cascade[task.index], own);
        r->last = task.last ? task.index : -1;
        if (r->setup.calls.ahead)
            WEFT_TRY(r->setup.calls.ahead(r->setup.calls.user, plan, task.index,
                                          clips_of(r, plan, task.index, member)));
        WEFT_TRY(take_one(r, plan, task.index, hands, done));
        WEFT_TRY(weft_late_ended(late, task.index));
    }
    return WEFT_OK;
}

/* All ranks end together: after an error none waits for a decision. */
static weft_status run_dispatched(weft_cascade_run *r, weft_hands *hands, weft_iteration_done *done)
{
    const weft_late_setup setup = {.comm = r->setup.comm,
                                   .modelled = r->modelled,
                                   .common = &r->clock,
                                   .per_node = r->per_node,
                                   .slow = r->slow,
                                   .retire = r->sums != NULL};
    weft_late *late = NULL;
    WEFT_TRY(weft_late_open(&setup, &r->decided, hands, done->begin, done->cascade, &late));
    const weft_status_code status = take_dispatched(r, late, hands, done);
    char first[1024] = "";
    if (status != WEFT_OK) {
        snprintf(first, sizeof first, "%s", weft_error_message());
        weft_comm_give_up(r->setup.comm);
    }
    const weft_status_code closed = weft_late_close(late);
    return status == WEFT_OK ? closed : weft_fail(status, "%s", first); /* not what followed */
}

static weft_status make_room(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    if (plan->cascades <= r->room && plan->samples <= r->room)
        return WEFT_OK;
    weft_free(r->order);
    weft_free(r->row);
    weft_free((void *)r->read);
    r->room = 2 * (plan->cascades + plan->samples);
    r->order = weft_alloc(r->room * (int64_t)sizeof *r->order);
    r->row = weft_alloc(r->room * WEFT_CASCADE_MODULES * (int64_t)sizeof *r->row);
    r->read = weft_alloc(r->room * WEFT_CASCADE_MODULES * (int64_t)sizeof *r->read);
    if (r->order && r->row && r->read)
        return WEFT_OK;
    r->room = 0;
    return weft_fail(WEFT_E_MEMORY, "out of memory for %lld cascades", (long long)plan->cascades);
}

/* The plan that is executed: a copy that receives decisions, or `plan` itself. */
static weft_status choose_plan(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    r->executed = plan;
    if (!r->setup.late_dispatch || !plan->late || weft_comm_ranks(r->setup.comm) == 1)
        return WEFT_OK;
    weft_late_plan_free(&r->decided);
    WEFT_TRY(weft_late_plan(plan, weft_comm_ranks(r->setup.comm), &r->decided));
    r->executed = &r->decided;
    return WEFT_OK;
}

void weft_cascade_run_nodes(weft_cascade_run *r, int per_node, const double *slow)
{
    r->per_node = per_node;
    r->slow = slow;
}

const weft_placed_iteration *weft_cascade_run_executed(const weft_cascade_run *r)
{
    return r->executed;
}

static void find_last(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    const int own = weft_comm_rank(r->setup.comm);
    r->last = -1;
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[r->order[i]];
        if (c->module == WEFT_CASCADE_DIT && member_of(c, own) >= 0)
            r->last = r->order[i];
    }
}

weft_status weft_cascade_run_iteration(weft_cascade_run *r, const weft_placed_iteration *plan,
                                       weft_iteration_done *done)
{
    weft_hands *hands = NULL;
    const double began = weft_thread_seconds();
    if (!r->clock.measured)
        WEFT_TRY(weft_cascade_run_measure_clock(r));
    done->begin = now(r);
    done->clock_age = r->modelled ? 0 : weft_common_clock_age(&r->clock);
    done->summed = r->running = r->taking = 0;
    memset(done->cascade, 0, (size_t)plan->cascades * sizeof *done->cascade);
    WEFT_TRY(make_room(r, plan));
    WEFT_TRY(weft_placed_order(plan, r->order));
    WEFT_TRY(find_rows(r, plan));
    r->reduced = 0;
    find_last(r, plan);
    if (r->sums)
        weft_sums_begin(r->sums);
    WEFT_TRY(choose_plan(r, plan));
    const bool late = r->executed == &r->decided;
    if (r->sums && r->last < 0 && !r->setup.late_sums && !late)
        weft_sums_rest(r->sums, NULL);
    weft_cover_free(&r->cover);
    if (r->setup.representative)
        WEFT_TRY(weft_cover_find(plan, weft_comm_ranks(r->setup.comm), &r->cover));
    WEFT_TRY(
        weft_hands_open(&r->hands, r->executed, late ? NULL : r->order, r->row, r->read, &hands));
    weft_status_code status =
        late ? run_dispatched(r, hands, done) : take_all(r, plan, hands, done);
    if (status == WEFT_OK && r->setup.representative)
        status = finish_sums(r);
    if (status == WEFT_OK)
        status = wait_sums(r, done);
    done->reduced_bytes = r->reduced + weft_program_comm_times(r->update->step.program).wire_bytes;
    if (status != WEFT_OK)
        weft_comm_give_up(r->setup.comm); /* others may wait for what this rank hands on */
    weft_hands_close(hands);
    done->running = r->running;
    done->taking = r->taking;
    done->own = weft_thread_seconds() - began;
    return status;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* On a device with a clock that is what all times are of, and messages move it. */
static weft_status find_clock(weft_cascade_run *r)
{
    const weft_backend *backend = r->place.backend;
    const weft_device *device = backend->device;
    weft_device_clock clock;
    r->hands.comm = r->setup.comm;
    if (!device->clock)
        return WEFT_OK;
    WEFT_TRY(device->open(backend, &r->stream));
    if (!device->clock(r->stream, &clock))
        return WEFT_OK;
    r->modelled = clock.now;
    r->hands.device = device;
    r->hands.stream = r->stream;
    return WEFT_OK;
}

weft_status weft_cascade_run_create(const weft_cascade_setup *setup, weft_cascade_run **out)
{
    if (setup->representative && setup->place->zero)
        return weft_fail(WEFT_E_CONFIG,
                         "parallel.zero: %d shares out the sums that accumulation: representative "
                         "hands to every rank; zero goes with accumulation: own",
                         setup->place->zero);
    if (setup->representative && setup->late_dispatch)
        return weft_fail(
            WEFT_E_CONFIG,
            "parallel.cascades.dispatch: late cannot be combined with accumulation: "
            "representative, which needs all groups in advance. Use accumulation: own.");
    weft_cascade_run *r = weft_alloc(sizeof *r);
    if (!r)
        return weft_fail(WEFT_E_MEMORY, "out of memory for cascades");
    *r = (weft_cascade_run){.setup = *setup, .place = *setup->place};
    r->clock.own = setup->clock;
    r->place.comm = NULL; /* a member of a group that is named when it is launched */
    r->place.kind = WEFT_STEP_GRADIENTS;
    r->place.own = true;
    r->place.mesh = (weft_mesh){0};
    r->place.zero = 0;
    r->place.bulletin = 0;
    r->alone = weft_alloc((setup->buckets + 1) * (int64_t)sizeof *r->alone);
    r->cache =
        weft_program_cache_create(setup->cache_bytes ? setup->cache_bytes : usual_cache, release);
    weft_status_code status =
        r->cache && r->alone ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for cascades");
    if (status == WEFT_OK)
        status = weft_comm_world(setup->comm, &r->world);
    if (status == WEFT_OK)
        status = find_clock(r);
    if (status == WEFT_OK)
        status = plan_update(r);
    if (status == WEFT_OK)
        *out = r;
    else
        weft_cascade_run_free(r);
    return status;
}

void weft_cascade_run_free(weft_cascade_run *r)
{
    if (!r)
        return;
    weft_sums_free(r->sums);
    weft_program_cache_free(r->cache);
    weft_cover_free(&r->cover);
    weft_late_plan_free(&r->decided);
    weft_free(r->alone);
    if (r->stream)
        r->place.backend->device->close(r->stream);
    weft_free(r->order);
    weft_free(r->row);
    weft_free((void *)r->read);
    for (unit_reads *next, *u = r->reads; u; u = next) {
        next = u->next;
        weft_free(u);
    }
    weft_free(r);
}

weft_cascade_counts weft_cascade_run_counts(const weft_cascade_run *r)
{
    const weft_program_cache_counts c = weft_program_cache_count(r->cache);
    weft_cascade_counts counts = {.made = c.added,
                                  .found = c.found,
                                  .evicted = c.evicted,
                                  .bytes = c.bytes,
                                  .compiling = r->compiling};
    for (const entry *e = r->bound; e; e = e->next)
        counts.bound++;
    return counts;
}
