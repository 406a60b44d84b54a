#include "train/cascade/cascade_executor.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/program_cache.h"
#include "train/cascade/cascade_late.h"
#include "transform/sharding/input_footprint.h"

#include <string.h>

static const int64_t usual_cache = (int64_t)1 << 30;

/* Cached program of a cascade or of the update. */
typedef struct entry {
    weft_step step;
    weft_cascade_run *run;
    struct entry *next; /* next bound program */
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

/* Compiled programs. */
typedef struct programs {
    weft_program_cache *cache;
    entry *bound, *update;
    entry *forward;   /* latest program of weft_cascade_run_forward, held */
    entry **alone;    /* [buckets] one-rank programs, held; NULL: not planned yet */
    double compiling; /* seconds of compilation so far */
} programs;

/* Clock of all times. */
typedef struct run_time {
    weft_device_stream *stream; /* device stream of transfers */
    double *simulated_time;     /* clock of a simulated device; NULL: use `clock` */
    weft_common_clock clock;
} run_time;

/* Late dispatch. */
typedef struct dispatch {
    int per_node;                          /* ranks per node */
    const double *slow;                    /* slowdown factors, on rank 0 */
    const weft_dispatch_hand *transfer;    /* [cascades] seconds, on rank 0; NULL: none */
    const weft_dispatch_replan *replan;    /* searches, on rank 0; NULL: none */
    weft_placed_iteration decided;         /* plan of late dispatch */
    const weft_placed_iteration *executed; /* plan of the last iteration */
} dispatch;

/* State of the running iteration. The arrays grow with the largest plan. */
typedef struct iteration {
    int32_t last;                 /* this rank's last DiT cascade of the plan; -1: none */
    weft_rank_cover cover;        /* representatives of the plan */
    int64_t reduced;              /* bytes that this rank sent to reduce gradients */
    double running, taking;       /* CPU seconds, as in weft_iteration_done */
    int32_t *order;               /* execution order of the plan */
    weft_cascade_row *row;        /* rows by sample and module */
    const weft_item_range **read; /* units that each member of the DiT's group reads; NULL: all */
    double exposed;               /* communication wait of the running encoder cascade, seconds */
    bool first;                   /* one of its programs ran for the first time */
    int64_t capacity;
} iteration;

struct weft_cascade_run {
    weft_cascade_setup setup;
    weft_exec_config exec; /* exec config of DiT cascades; mesh and rank are set for each */
    weft_group *world;
    weft_latent_transfer_setup transfer_setup;
    weft_grad_reduce *reduce;    /* overlapped all-reduce; NULL: none */
    const weft_program *writing; /* the program that marks states for `reduce` */
    unit_reads *reads;           /* unit reads computed so far */
    programs programs;
    run_time time;
    weft_kept_rows kept; /* encoded rows of the next step's samples */
    dispatch dispatch;
    iteration iteration;
};

/* Program keys, added to the number of buckets. */
enum { KEY_UPDATE, KEY_SUM, KEY_GIVE };

/* ---- programs -------------------------------------------------------------------------------- */

static void unbind(entry *e)
{
    entry **at = &e->run->programs.bound;
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

/* Plans a program and puts it into the cache, held once. Takes ownership of `whole`. */
static weft_status plan_entry(weft_cascade_run *r, const weft_program_key *key, weft_graph *whole,
                              const weft_optimizer_config *optimizer, const weft_exec_config *exec,
                              entry **out)
{
    const double began = weft_now();
    entry *e = weft_alloc(sizeof *e);
    if (!e) {
        weft_graph_free(whole);
        return weft_no_memory("a program");
    }
    e->run = r;
    const weft_status_code status = weft_step_plan(whole, optimizer, exec, &e->step);
    if (status != WEFT_OK) {
        weft_free(e);
        return status;
    }
    r->programs.compiling += weft_now() - began;
    WEFT_TRY(weft_program_cache_put(r->programs.cache, key, e, bytes_of(e)));
    *out = e;
    return WEFT_OK;
}

/* Finds or plans the program of a DiT cascade on `mesh`, for its rank `index`. The entry is held
 * until weft_program_cache_drop. */
static weft_status take_entry(weft_cascade_run *r, int bucket, const weft_mesh *mesh, int index,
                              entry **out)
{
    weft_exec_config exec = r->exec;
    weft_graph *whole;
    exec.mesh = *mesh;
    exec.rank = index;
    const weft_program_key key = {.graph = (uint64_t)bucket, .mesh = exec.mesh, .index = index};
    *out = weft_program_cache_take(r->programs.cache, &key);
    if (*out)
        return WEFT_OK;
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, bucket, &whole));
    return plan_entry(r, &key, whole, r->setup.optimizer, &exec, out);
}

/* Binds a program. All bound programs share the memory of the first, which is the largest. A larger
 * program replaces them; the others are bound again when they run. */
static weft_status bind(weft_cascade_run *r, entry *e, weft_store *store, weft_group *group)
{
    if (e->bound)
        return group ? weft_program_rebind(e->step.program, group) : WEFT_OK;
    while (r->programs.bound &&
           !weft_program_fits(e->step.program, r->programs.bound->step.program))
        unbind(r->programs.bound);
    WEFT_TRY(r->programs.bound ? weft_program_bind_with(e->step.program, store, group,
                                                        r->programs.bound->step.program)
                               : weft_program_bind(e->step.program, store, group));
    e->bound = true;
    e->next = r->programs.bound;
    r->programs.bound = e;
    return WEFT_OK;
}

weft_status weft_cascade_run_alone(weft_cascade_run *r, int bucket, const weft_step **step)
{
    entry *e;
    if (!r->programs.alone[bucket]) {
        WEFT_TRY(take_entry(r, bucket, &(weft_mesh){0}, 0, &e));
        r->programs.alone[bucket] = e;
    }
    *step = &r->programs.alone[bucket]->step;
    return WEFT_OK;
}

weft_status weft_cascade_run_forward(weft_cascade_run *r, const weft_cascade_forward *f,
                                     const weft_step **step)
{
    weft_exec_config exec = r->exec;
    weft_graph *whole;
    exec.activations = NULL; /* no saved activations */
    exec.recompute_count = 0;
    weft_encoder_part_setup(&exec, f->part, f->parts > 1 ? f->parts : 1);
    const weft_program_key key = {
        .graph = f->key, .options = 1, .mesh = exec.mesh, .index = exec.rank};
    if (r->programs.forward)
        weft_program_cache_drop(r->programs.cache, r->programs.forward);
    r->programs.forward = weft_program_cache_take(r->programs.cache, &key);
    if (!r->programs.forward) {
        WEFT_TRY(f->make(f->user, &whole));
        WEFT_TRY(plan_entry(r, &key, whole, NULL, &exec, &r->programs.forward));
        WEFT_TRY(weft_store_init(f->store, r->programs.forward->step.graph, 0));
    }
    WEFT_TRY(bind(r, r->programs.forward, f->store, f->group));
    r->iteration.first = r->iteration.first || !r->programs.forward->ran;
    r->programs.forward->ran = true;
    *step = &r->programs.forward->step;
    return WEFT_OK;
}

weft_status weft_cascade_run_encoder(weft_cascade_run *r, const weft_step *step)
{
    WEFT_TRY(weft_program_run(step->program));
    r->iteration.exposed += weft_program_comm_times(step->program).exposed;
    return WEFT_OK;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* Returns the optimizer config for adding gradients to unsharded states. */
static weft_optimizer_config adding(const weft_cascade_run *r)
{
    weft_optimizer_config own = weft_step_optimizer(r->setup.optimizer, &r->exec);
    own.zero = (weft_zero){0};
    return own;
}

/* Rejects states other than "grad.*". Cascades change such a state, differently on each rank. */
static weft_status check_states(const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = weft_value_get(g, node->out[0])->name;
        if (node->op == WEFT_OP_STATE && strncmp(name, "grad.", 5))
            return weft_error(WEFT_MSG_PASS_UNSUPPORTED,
                              WEFT_AT(.key = "parallel.cascades", .value = name),
                              "each step changes \"%s\" of the model by values of all ranks, and "
                              "cascades of different groups would change it differently",
                              name);
    }
    return WEFT_OK;
}

/* Creates a bucket's unsharded graph that adds to the gradients. Only its sources are used. */
static weft_status adds(weft_cascade_run *r, int bucket, weft_graph **out)
{
    const weft_optimizer_config own = adding(r);
    weft_graph *g;
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, bucket, &g));
    const weft_value objective = weft_graph_find(g, "objective");
    weft_optimizer_accumulate(g, objective, NULL, &own);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(check_states(g));
    *out = g;
    return WEFT_OK;
out:
    weft_graph_free(g);
    return status;
}

/* True: the all-reduce overlaps with cascades. With zero the update reduce-scatters instead, and
 * representatives reduce after the cascades. */
static bool overlaps_reduce(const weft_cascade_setup *s)
{
    return !s->representative && !s->exec->zero && weft_comm_ranks(s->comm) > 1;
}

static weft_status make_update(weft_cascade_run *r, const weft_exec_config *exec, weft_graph **out)
{
    const weft_cascade_setup *s = &r->setup;
    weft_optimizer_config optimizer = weft_step_optimizer(s->optimizer, exec);
    weft_graph **add;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(add, s->buckets + 1, "%d graphs", s->buckets));
    for (int b = 0; b < s->buckets; b++)
        WEFT_GO(adds(r, b, &add[b]));
    optimizer.own = !s->representative && !overlaps_reduce(s);
    *out = weft_optimizer_update_own((const weft_graph *const *)add, s->buckets, &exec->mesh,
                                     weft_allocation_rank(exec), &optimizer);
    WEFT_GO(WEFT_ALLOCATED(*out, "a graph"));
out:
    for (int b = 0; b < s->buckets; b++)
        weft_graph_free(add[b]);
    weft_free(add);
    return status;
}

static weft_status plan_update(weft_cascade_run *r)
{
    const weft_cascade_setup *s = &r->setup;
    const weft_program_key key = {.graph = (uint64_t)s->buckets + KEY_UPDATE};
    weft_exec_config exec = *s->exec;
    weft_graph *whole = NULL;
    exec.kind = WEFT_STEP_UPDATE;
    exec.reduced_axes = 0;
    WEFT_TRY(make_update(r, &exec, &whole));
    WEFT_TRY(plan_entry(r, &key, whole, s->optimizer, &exec, &r->programs.update));
    const weft_graph *update = r->programs.update->step.graph;
    WEFT_TRY(weft_store_init(s->store, update, s->seed));
    return overlaps_reduce(s)
               ? weft_grad_reduce_create(r->world, s->exec->backend, s->store, update, &r->reduce)
               : WEFT_OK;
}

weft_step *weft_cascade_run_update(weft_cascade_run *r)
{
    return &r->programs.update->step;
}

weft_status weft_cascade_run_bind_update(weft_cascade_run *r, weft_step **update)
{
    WEFT_TRY(bind(r, r->programs.update, r->setup.store, r->world));
    *update = &r->programs.update->step;
    return WEFT_OK;
}

/* ---- reduction by representatives ----------------------------------------------------------- */

/* Reduces the gradient states over `list`. This rank keeps the sum if `retain`, else resets its
 * states. */
static weft_status sum_over(weft_cascade_run *r, const int *list, int count, bool retain)
{
    weft_exec_config exec = r->exec;
    weft_group *group;
    entry *e;
    WEFT_TRY(weft_comm_group(r->setup.comm, list, count, &group));
    exec.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", count}}};
    exec.rank = weft_group_index(group);
    exec.kind = WEFT_STEP_SHARE;
    const weft_program_key key = {.graph =
                                      (uint64_t)r->setup.buckets + (retain ? KEY_SUM : KEY_GIVE),
                                  .mesh = exec.mesh,
                                  .index = exec.rank};
    e = weft_program_cache_take(r->programs.cache, &key);
    if (!e)
        WEFT_TRY(plan_entry(
            r, &key,
            weft_optimizer_sum(r->programs.update->step.graph, &exec.mesh, exec.rank, retain),
            r->setup.optimizer, &exec, &e));
    weft_status_code status = WEFT_OK;
    WEFT_GO(bind(r, e, r->setup.store, group));
    WEFT_GO(weft_program_run(e->step.program));
    r->iteration.reduced += weft_program_comm_times(e->step.program).wire_bytes;
out:
    weft_program_cache_drop(r->programs.cache, e);
    return status;
}

/* Sends the gradients of cascade `index` from other ranks of its group to the representative. */
static weft_status send_contributions(weft_cascade_run *r, const weft_placed_iteration *plan,
                                      int32_t index)
{
    const int own = weft_comm_rank(r->setup.comm);
    int *list;
    WEFT_TRY(WEFT_NEW(list, plan->cascade[index].at.degree, "a group"));
    const int count = weft_rank_cover_group(&r->iteration.cover, plan, index, list);
    weft_status_code status = WEFT_OK;
    if (count > 1 && (list[0] == own || !r->iteration.cover.representative[own]))
        status = sum_over(r, list, count, list[0] == own);
    weft_free(list);
    return status;
}

/* Broadcasts the reduced gradients from the representative list[0] to the other ranks of `list`. */
static weft_status broadcast(weft_cascade_run *r, const int *list, int count)
{
    weft_group *group;
    WEFT_TRY(weft_comm_group(r->setup.comm, list, count, &group));
    for (int64_t i = 0; i < weft_store_count(r->setup.store); i++) {
        const weft_tensor *t = weft_store_at(r->setup.store, i);
        if (strncmp(t->name, "grad.", 5))
            continue;
        const int64_t bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        WEFT_TRY(weft_grad_reduce_broadcast(group, t, bytes));
        r->iteration.reduced +=
            weft_group_index(group) < count - 1 ? bytes : 0; /* a line or a tree */
    }
    return WEFT_OK;
}

/* Reduces among the representatives, and broadcasts from each to the ranks that have it as peer. */
static weft_status finish_reduce(weft_cascade_run *r)
{
    const weft_rank_cover *c = &r->iteration.cover;
    const int own = weft_comm_rank(r->setup.comm), peer = c->peer[own];
    int *list, count = 0;
    WEFT_TRY(WEFT_NEW(list, c->ranks, "%d ranks", c->ranks));
    weft_status_code status = WEFT_OK;
    for (int k = 0; k < c->ranks; k++)
        if (c->representative[k])
            list[count++] = k;
    if (c->representative[own] && count > 1)
        WEFT_GO(sum_over(r, list, count, true));
    count = 0;
    list[count++] = peer;
    for (int k = 0; k < c->ranks; k++)
        if (c->peer[k] == peer && k != peer)
            list[count++] = k;
    if (count > 1)
        WEFT_GO(broadcast(r, list, count));
out:
    weft_free(list);
    return status;
}

/* ---- units that a cascade reads -------------------------------------------------------------- */

/* Returns the range of units in which elements of any clip are read. The range has at least one
 * unit, which identifies the sample. */
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

/* Computes the units that each member reads, by the forward graph of the group's first rank. The
 * index of a member in the mesh determines its local part. */
static weft_status find_reads(weft_cascade_run *r, const weft_cascade_row *row, int64_t clips,
                              unit_reads *to)
{
    const double began = weft_now();
    weft_exec_config exec = r->exec;
    weft_graph *g;
    bool *read = NULL;
    exec.rank = 0;
    exec.mesh = weft_cascade_mesh(to->method, r->setup.context, clips, (int)to->degree);
    WEFT_TRY(r->setup.calls.graph(r->setup.calls.user, to->bucket, &g));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_step_forward(&exec, &g));
    const weft_value input = weft_graph_find(g, row->input);
    if (!weft_value_ok(input))
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = row->input),
                           "the program of a cascade has no such input"));
    const weft_shape shape = weft_value_get(g, input)->shape;
    read = weft_alloc(weft_shape_count(&shape) + 1);
    WEFT_GO(WEFT_ALLOCATED(read, "the inputs of a cascade"));
    for (int k = 0; k < to->degree; k++) {
        memset(read, 0, (size_t)weft_shape_count(&shape));
        WEFT_GO(weft_input_footprint(g, input, k, read));
        to->member[k] = units_read(read, &shape, row->units);
    }
out:
    weft_free(read);
    weft_graph_free(g);
    r->programs.compiling += weft_now() - began;
    return status;
}

/* Sets *out to the units that each member of DiT cascade `c` reads of the rows of `module`. NULL:
 * all units of its clips. */
static weft_status reads_of(weft_cascade_run *r, const weft_placed_iteration *plan,
                            const weft_placed_cascade *c, weft_cascade_module module,
                            const weft_item_range **out)
{
    const weft_placed_sample *s = &plan->sample[c->sample];
    const weft_cascade_row *row = &r->iteration.row[c->sample * WEFT_CASCADE_MODULES + (int)module];
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
    WEFT_TRY(WEFT_ALLOCATED(u, "the inputs of a cascade"));
    *u = (unit_reads){r->reads, s->bucket, module, c->method, c->at.degree};
    r->reads = u;
    *out = u->member;
    return find_reads(r, row, s->clips, u);
}

static weft_status find_rows(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    for (int64_t s = 0; s < plan->samples; s++)
        for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
            r->iteration.read[s * WEFT_CASCADE_MODULES + m] = NULL;
            if (m != WEFT_CASCADE_DIT)
                r->iteration.row[s * WEFT_CASCADE_MODULES + m] = r->setup.calls.row(
                    r->setup.calls.user, plan->sample[s].bucket, (weft_cascade_module)m);
        }
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[i];
        for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++) {
            const weft_placed_cascade *from = &plan->cascade[c->at.after[a]];
            WEFT_TRY(
                reads_of(r, plan, c, from->module,
                         &r->iteration.read[c->sample * WEFT_CASCADE_MODULES + (int)from->module]));
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

/* Creates the group of `count` members of the cascade, from member `first`. */
static weft_status group_of(weft_cascade_run *r, const weft_placed_cascade *c, int64_t first,
                            int64_t count, weft_group **group)
{
    int *ranks;
    WEFT_TRY(WEFT_NEW(ranks, count, "a group"));
    for (int64_t i = 0; i < count; i++)
        ranks[i] = c->at.device[first + i];
    const weft_status_code status = weft_comm_group(r->setup.comm, ranks, (int)count, group);
    weft_free(ranks);
    return status;
}

static double now(const weft_cascade_run *r)
{
    return r->time.simulated_time ? *r->time.simulated_time : weft_common_now(&r->time.clock);
}

const weft_grad_reduce *weft_cascade_run_reduce(const weft_cascade_run *r)
{
    return r->reduce;
}

double weft_cascade_run_now(const weft_cascade_run *r)
{
    return now(r);
}

weft_status weft_cascade_run_measure_clock(weft_cascade_run *r)
{
    return r->time.simulated_time ? WEFT_OK
                                  : weft_common_clock_measure(r->setup.comm, &r->time.clock);
}

const weft_common_clock *weft_cascade_run_clock(const weft_cascade_run *r)
{
    return r->time.simulated_time ? NULL : &r->time.clock;
}

/* ---- all-reduce during the cascades ---------------------------------------------------------- */

static void written(void *user, const weft_tensor *tensor)
{
    weft_cascade_run *r = user;
    weft_grad_reduce_mark_ready(r->reduce, tensor, weft_program_stream(r->writing));
}

/* Runs a cascade's program. In this rank's last cascade, the all-reduce starts during the run. */
static weft_status run_program(weft_cascade_run *r, int32_t index, weft_program *program)
{
    if (!r->reduce || r->setup.late_reduce || index != r->iteration.last)
        return weft_program_run(program);
    r->writing = program;
    WEFT_TRY(weft_program_on_write(program, written, r));
    weft_grad_reduce_mark_others(r->reduce, program);
    const weft_status_code status = weft_program_run(program);
    return weft_status_first(status, weft_program_on_write(program, NULL, NULL));
}

/* Waits for the all-reduce after all cascades of this rank. */
static weft_status wait_reduce(weft_cascade_run *r, weft_iteration_done *done)
{
    if (!r->reduce)
        return WEFT_OK;
    weft_grad_reduce_mark_others(r->reduce, NULL);
    WEFT_TRY(weft_grad_reduce_wait(r->reduce));
    r->iteration.reduced += weft_grad_reduce_bytes(r->reduce);
    done->summed = now(r) - done->begin;
    return WEFT_OK;
}

static weft_status denoise(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                           int member, weft_latent_transfer *transfer, weft_cascade_timing *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_placed_sample *s = &plan->sample[c->sample];
    weft_received_latents received[WEFT_CASCADE_MODULES];
    weft_group *group;
    entry *e;
    const double asked = now(r), took = weft_thread_seconds(), compiled = r->programs.compiling;
    WEFT_TRY(group_of(r, c, 0, c->at.degree, &group));
    const weft_mesh mesh =
        weft_cascade_mesh(c->method, r->setup.context, s->clips, (int)c->at.degree);
    WEFT_TRY(take_entry(r, s->bucket, &mesh, member, &e));
    weft_status_code status = WEFT_OK;
    WEFT_GO(bind(r, e, r->setup.store, group));
    done->compiled = r->programs.compiling - compiled;
    done->first = !e->ran;
    e->ran = true;
    const double waits = now(r);
    r->iteration.taking += weft_thread_seconds() - took;
    WEFT_GO(weft_latent_transfer_receive(transfer, index, received, done));
    WEFT_GO(r->setup.calls.fill(r->setup.calls.user, plan, index, &e->step, received));
    done->start = now(r);
    done->waited = done->start - waits;
    *(float *)weft_program_input(e->step.program, "optimizer.weight")->data = (float)s->weight;
    done->peak = (double)weft_program_bytes(e->step.program);
    const double began = weft_thread_seconds();
    WEFT_GO(run_program(r, index, e->step.program));
    r->iteration.running += weft_thread_seconds() - began;
    done->end = now(r);
    done->busy = done->end - done->start - weft_program_comm_times(e->step.program).exposed;
    done->took_part = true;
    done->bound = waits - asked - done->compiled;
out:
    weft_latent_transfer_release(transfer, index);
    weft_program_cache_drop(r->programs.cache, e);
    return status;
}

static weft_cascade_share share_of(const weft_cascade_run *r, const weft_placed_iteration *plan,
                                   int32_t index, int member)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    return weft_cascade_share_of(
        &r->iteration.row[c->sample * WEFT_CASCADE_MODULES + (int)c->module],
        plan->sample[c->sample].clips, c->at.degree, member);
}

/* Returns the clips of one member of a cascade. */
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

/* Runs an encoder's cascade. Members without clips return at once. */
static weft_status encode(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                          int member, weft_latent_transfer *transfer, weft_cascade_timing *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_cascade_share share = share_of(r, plan, index, member);
    weft_group *group = NULL;
    weft_latent_rows rows;
    if (!share.clips.count)
        return WEFT_OK;
    const double compiled = r->programs.compiling;
    r->iteration.exposed = 0;
    r->iteration.first = false;
    if (share.parts > 1)
        WEFT_TRY(group_of(r, c, member / share.parts * share.parts, share.parts, &group));
    done->start = now(r);
    WEFT_TRY(weft_latent_transfer_buffer(transfer, index, &rows));
    const double began = weft_thread_seconds();
    WEFT_TRY(r->setup.calls.encode(r->setup.calls.user, plan, index, &share, group, &rows));
    r->iteration.running += weft_thread_seconds() - began;
    done->end = now(r);
    done->took_part = true;
    done->compiled = r->programs.compiling - compiled;
    done->first = r->iteration.first;
    done->busy = done->end - done->start - r->iteration.exposed;
    return weft_latent_transfer_send(transfer, index, done);
}

/* Converts the times to seconds since the iteration began. */
static void from_begin(const weft_iteration_done *all, weft_cascade_timing *done)
{
    if (!done->took_part)
        return;
    done->start -= all->begin;
    done->end -= all->begin;
}

/* Sets *next to this rank's first cascade from position `from` of the order, and prefetches its
 * clips. The plan's count: no cascade is left. */
static weft_status prefetch_next(const weft_cascade_run *r, const weft_placed_iteration *plan,
                                 const weft_latent_transfer *transfer, int64_t from, int64_t *next)
{
    const int own = weft_comm_rank(r->setup.comm);
    int64_t i = from;
    while (i < plan->cascades && member_of(&plan->cascade[r->iteration.order[i]], own) < 0)
        i++;
    *next = i;
    if (i == plan->cascades || !r->setup.calls.prefetch ||
        weft_latent_transfer_is_kept(transfer, r->iteration.order[i]))
        return WEFT_OK;
    const int32_t index = r->iteration.order[i];
    const int member = member_of(&plan->cascade[index], own);
    return r->setup.calls.prefetch(r->setup.calls.user, plan, index,
                                   clips_of(r, plan, index, member));
}

static weft_status take_one(weft_cascade_run *r, const weft_placed_iteration *plan, int32_t index,
                            weft_latent_transfer *transfer, weft_iteration_done *done)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const int member = member_of(c, weft_comm_rank(r->setup.comm));
    weft_cascade_timing *d = &done->cascade[index];
    if (weft_latent_transfer_is_kept(transfer, index))
        return weft_latent_transfer_send(transfer, index, d);
    const weft_status_code status = c->module == WEFT_CASCADE_DIT
                                        ? denoise(r, plan, index, member, transfer, d)
                                        : encode(r, plan, index, member, transfer, d);
    WEFT_TRY(weft_error_at(status, WEFT_AT(.key = c->at.id)));
    from_begin(done, d);
    return WEFT_OK;
}

static weft_status take_all(weft_cascade_run *r, const weft_placed_iteration *plan,
                            weft_latent_transfer *transfer, weft_iteration_done *done)
{
    int64_t i, next;
    WEFT_TRY(prefetch_next(r, plan, transfer, 0, &i));
    for (; i < plan->cascades; i = next) {
        const int32_t index = r->iteration.order[i];
        const weft_placed_cascade *c = &plan->cascade[index];
        WEFT_TRY(prefetch_next(r, plan, transfer, i + 1, &next));
        WEFT_TRY(take_one(r, plan, index, transfer, done));
        if (r->setup.representative && c->module == WEFT_CASCADE_DIT)
            WEFT_TRY(send_contributions(r, plan, index));
    }
    return WEFT_OK;
}

/* Runs cascades as rank 0 dispatches them. A rank that gets no further gradients starts its
 * all-reduce. */
static weft_status take_dispatched(weft_cascade_run *r, weft_late *late,
                                   weft_latent_transfer *transfer, weft_iteration_done *done)
{
    const weft_placed_iteration *plan = &r->dispatch.decided;
    const int own = weft_comm_rank(r->setup.comm);
    weft_late_task task = {0};
    while (!task.over) {
        WEFT_TRY(weft_late_next(late, &task));
        const bool trains = task.index >= 0 && plan->cascade[task.index].module == WEFT_CASCADE_DIT;
        if (r->reduce && task.last && !trains && !r->setup.late_reduce)
            weft_grad_reduce_mark_others(r->reduce, NULL); /* before an encoder, not after it */
        if (task.index < 0)
            continue;
        const int member = member_of(&plan->cascade[task.index], own);
        r->iteration.last = task.last && trains ? task.index : -1;
        if (r->setup.calls.prefetch)
            WEFT_TRY(r->setup.calls.prefetch(r->setup.calls.user, plan, task.index,
                                             clips_of(r, plan, task.index, member)));
        WEFT_TRY(take_one(r, plan, task.index, transfer, done));
        WEFT_TRY(weft_late_ended(late, task.index));
    }
    return WEFT_OK;
}

/* Runs an iteration with late dispatch. All ranks end together: an error aborts the communicator,
 * so no rank waits for a decision. */
static weft_status run_dispatched(weft_cascade_run *r, weft_latent_transfer *transfer,
                                  weft_iteration_done *done)
{
    const weft_late_setup setup = {.comm = r->setup.comm,
                                   .simulated_time = r->time.simulated_time,
                                   .common = &r->time.clock,
                                   .per_node = r->dispatch.per_node,
                                   .slow = r->dispatch.slow,
                                   .retire = r->reduce != NULL,
                                   .transfer = r->dispatch.transfer,
                                   .replan = r->dispatch.replan};
    weft_late *late = NULL;
    WEFT_TRY(
        weft_late_open(&setup, &r->dispatch.decided, transfer, done->begin, done->cascade, &late));
    const weft_status_code status = take_dispatched(r, late, transfer, done);
    weft_error_copy *first = NULL;
    if (status != WEFT_OK) {
        first = weft_error_save();
        weft_comm_abort(r->setup.comm);
    }
    const weft_status_code closed = weft_late_close(late, &done->searches);
    if (status != WEFT_OK)
        weft_error_restore(first); /* the first error, not its consequences */
    weft_free(first);
    return weft_status_first(status, closed);
}

static weft_status grow_buffers(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    if (plan->cascades <= r->iteration.capacity && plan->samples <= r->iteration.capacity)
        return WEFT_OK;
    weft_free(r->iteration.order);
    weft_free(r->iteration.row);
    weft_free((void *)r->iteration.read);
    r->iteration.capacity = 2 * (plan->cascades + plan->samples);
    r->iteration.order = weft_calloc(r->iteration.capacity, sizeof *r->iteration.order);
    r->iteration.row =
        weft_calloc(r->iteration.capacity * WEFT_CASCADE_MODULES, sizeof *r->iteration.row);
    r->iteration.read =
        weft_calloc(r->iteration.capacity * WEFT_CASCADE_MODULES, sizeof *r->iteration.read);
    if (r->iteration.order && r->iteration.row && r->iteration.read)
        return WEFT_OK;
    r->iteration.capacity = 0;
    return weft_no_memory("%" PRId64 " cascades", plan->cascades);
}

/* Sets the plan to execute: a copy that receives decisions, or `plan`. */
static weft_status choose_plan(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    r->dispatch.executed = plan;
    if (!r->setup.late_dispatch || !plan->late || weft_comm_ranks(r->setup.comm) == 1)
        return WEFT_OK;
    weft_late_plan_free(&r->dispatch.decided);
    WEFT_TRY(weft_late_plan(plan, weft_comm_ranks(r->setup.comm), &r->dispatch.decided));
    r->dispatch.executed = &r->dispatch.decided;
    return WEFT_OK;
}

void weft_cascade_run_nodes(weft_cascade_run *r, int per_node, const double *slow)
{
    r->dispatch.per_node = per_node;
    r->dispatch.slow = slow;
}

void weft_cascade_run_predict(weft_cascade_run *r, const weft_dispatch_hand *transfer,
                              const weft_dispatch_replan *replan)
{
    r->dispatch.transfer = transfer;
    r->dispatch.replan = replan;
}

const weft_placed_iteration *weft_cascade_run_executed(const weft_cascade_run *r)
{
    return r->dispatch.executed;
}

static void find_last(weft_cascade_run *r, const weft_placed_iteration *plan)
{
    const int own = weft_comm_rank(r->setup.comm);
    r->iteration.last = -1;
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[r->iteration.order[i]];
        if (c->module == WEFT_CASCADE_DIT && member_of(c, own) >= 0)
            r->iteration.last = r->iteration.order[i];
    }
}

weft_status weft_cascade_run_iteration(weft_cascade_run *r, const weft_placed_iteration *plan,
                                       weft_iteration_done *done)
{
    weft_latent_transfer *transfer = NULL;
    const double began = weft_thread_seconds();
    if (!r->time.clock.measured)
        WEFT_TRY(weft_cascade_run_measure_clock(r));
    done->begin = now(r);
    done->clock_age = r->time.simulated_time ? 0 : weft_common_clock_age(&r->time.clock);
    done->summed = r->iteration.running = r->iteration.taking = 0;
    done->searches = 0;
    memset(done->cascade, 0, (size_t)plan->cascades * sizeof *done->cascade);
    WEFT_TRY(grow_buffers(r, plan));
    WEFT_TRY(weft_placed_order(plan, r->iteration.order));
    WEFT_TRY(find_rows(r, plan));
    r->iteration.reduced = 0;
    find_last(r, plan);
    if (r->reduce)
        weft_grad_reduce_begin(r->reduce);
    WEFT_TRY(choose_plan(r, plan));
    const bool late = r->dispatch.executed == &r->dispatch.decided;
    if (r->reduce && r->iteration.last < 0 && !r->setup.late_reduce && !late)
        weft_grad_reduce_mark_others(r->reduce, NULL);
    weft_rank_cover_free(&r->iteration.cover);
    if (r->setup.representative)
        WEFT_TRY(weft_rank_cover_find(plan, weft_comm_ranks(r->setup.comm), &r->iteration.cover));
    WEFT_TRY(weft_latent_transfer_open(&r->transfer_setup, r->dispatch.executed,
                                       late ? NULL : r->iteration.order, r->iteration.row,
                                       r->iteration.read, &transfer));
    weft_status_code status = WEFT_OK;
    WEFT_GO(late ? run_dispatched(r, transfer, done) : take_all(r, plan, transfer, done));
    if (r->setup.representative)
        WEFT_GO(finish_reduce(r));
    WEFT_GO(wait_reduce(r, done));
    WEFT_GO(weft_latent_transfer_keep(transfer));
out:
    done->reduced_bytes =
        r->iteration.reduced + weft_program_comm_times(r->programs.update->step.program).wire_bytes;
    if (status != WEFT_OK)
        weft_comm_abort(r->setup.comm); /* other ranks can wait for rows of this rank */
    weft_latent_transfer_close(transfer);
    done->running = r->iteration.running;
    done->taking = r->iteration.taking;
    done->own = weft_thread_seconds() - began;
    return status;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Uses the clock of a simulated device, which messages advance, for all times. */
static weft_status find_clock(weft_cascade_run *r)
{
    const weft_backend *backend = r->exec.backend;
    const weft_device *device = backend->device;
    weft_device_clock clock;
    r->transfer_setup.comm = r->setup.comm;
    r->transfer_setup.kept = &r->kept;
    if (!device->clock)
        return WEFT_OK;
    WEFT_TRY(device->open(device, backend, &r->time.stream));
    if (!device->clock(r->time.stream, &clock))
        return WEFT_OK;
    r->time.simulated_time = clock.now;
    r->transfer_setup.device = device;
    r->transfer_setup.stream = r->time.stream;
    return WEFT_OK;
}

weft_status weft_cascade_run_create(const weft_cascade_setup *setup, weft_cascade_run **out)
{
    if (setup->representative && setup->exec->zero)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.key = "parallel.zero", WEFT_NUMBER(setup->exec->zero)),
            "%d divides the sums that gradient_reduction: representative sends to every "
            "rank; use gradient_reduction: own with zero",
            setup->exec->zero);
    if (setup->representative && setup->late_dispatch)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "parallel.cascades.dispatch"),
            "late dispatch cannot be combined with gradient_reduction: representative, which needs "
            "all groups in advance. Use gradient_reduction: own");
    weft_cascade_run *r;
    WEFT_TRY(WEFT_NEW(r, 1, "cascades"));
    *r = (weft_cascade_run){.setup = *setup, .exec = *setup->exec};
    r->time.clock.own = setup->clock;
    r->exec.comm = NULL; /* the group is bound later, at each launch */
    r->exec.kind = WEFT_STEP_GRADIENTS;
    r->exec.own = true;
    r->exec.mesh = (weft_mesh){0};
    r->exec.zero = 0;
    r->exec.telemetry_floats = 0;
    r->programs.alone = weft_calloc(setup->buckets + 1, sizeof *r->programs.alone);
    r->programs.cache =
        weft_program_cache_create(setup->cache_bytes ? setup->cache_bytes : usual_cache, release);
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(r->programs.cache && r->programs.alone, "cascades"));
    WEFT_GO(weft_comm_world(setup->comm, &r->world));
    WEFT_GO(find_clock(r));
    WEFT_GO(plan_update(r));
    *out = r;
    return WEFT_OK;
out:
    weft_cascade_run_free(r);
    return status;
}

void weft_cascade_run_free(weft_cascade_run *r)
{
    if (!r)
        return;
    weft_kept_rows_clear(&r->kept);
    weft_grad_reduce_free(r->reduce);
    weft_program_cache_free(r->programs.cache);
    weft_rank_cover_free(&r->iteration.cover);
    weft_late_plan_free(&r->dispatch.decided);
    weft_free(r->programs.alone);
    if (r->time.stream)
        r->exec.backend->device->close(r->time.stream);
    weft_free(r->iteration.order);
    weft_free(r->iteration.row);
    weft_free((void *)r->iteration.read);
    for (unit_reads *next, *u = r->reads; u; u = next) {
        next = u->next;
        weft_free(u);
    }
    weft_free(r);
}

weft_cascade_counts weft_cascade_run_counts(const weft_cascade_run *r)
{
    const weft_program_cache_counts c = weft_program_cache_count(r->programs.cache);
    weft_cascade_counts counts = {.made = c.added,
                                  .found = c.found,
                                  .evicted = c.evicted,
                                  .bytes = c.bytes,
                                  .compiling = r->programs.compiling};
    for (const entry *e = r->programs.bound; e; e = e->next)
        counts.bound++;
    return counts;
}
