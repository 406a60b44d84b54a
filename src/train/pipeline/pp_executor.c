#include "train/pipeline/pp_executor.h"

#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_request.h"
#include "exec/copy_engine.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 4096 };

/* Location of a program's slot in a record of one of this rank's pipeline stages. */
typedef struct slot_location {
    int own;        /* index into own[] */
    bool offloaded; /* part of the offload buffer */
    int64_t offset;
} slot_location;

/* A named field of a record. */
typedef struct field {
    const char *name; /* owned by the graph */
    int64_t offset;
} field;

/* An input of a program, and the location of its value for each microbatch. */
typedef struct feed {
    weft_tensor *input; /* input of the program; set when bound */
    const char *name;
    int64_t offset, bytes; /* bytes from the start of a microbatch's input tray */
} feed;

/* A program of the executor. */
typedef struct unit {
    weft_program *program;   /* borrowed; NULL: none */
    weft_tensor *slot;       /* owned by the program */
    slot_location *location; /* [slots] */
    feed *feed;
    int slots, feeds;
} unit;

/* A send or receive over a link between ranks, for one record. */
typedef struct message {
    weft_comm_request *request;
    bool in_flight, sends;
    int64_t microbatch; /* microbatch in flight */
} message;

/* This rank's end of a link between ranks. */
typedef struct border {
    int own; /* index of this end's pipeline stage, whose record has the gradient */
    /* index of the stage whose record has the value; an earlier stage of this rank if the value was
     * passed on */
    int value_own;
    bool sends;        /* true: sends the value; false: receives it and sends the gradient */
    message *value;    /* [slots of the stage `value_own`] */
    message *gradient; /* [slots of the stage `own`] */
    int64_t value_at, gradient_at; /* offsets in the record */
    const weft_pp_edge *link;
    weft_value_info info; /* type and shape of the value */
} border;

typedef struct input {
    weft_tensor tensor; /* data: set by weft_pp_executor_input to the microbatch's */
    int64_t offset;
} input;

/* The programs of a bucket. */
typedef struct bucket {
    const weft_pp_step *step;
    unit *unit; /* [own stages x task kinds] */
    border *border;
    int borders;
    input *input;
    int inputs;
} bucket;

/* A pipeline stage of this rank. */
typedef struct own_pp_stage {
    int pp_stage;
    int slots;
    int64_t record, offload_bytes; /* bytes of a record, and of its offloaded part */
    int64_t *last;                 /* [microbatches] task after which the record is free */
    int64_t opened;                /* microbatches of this step with posted receives */
    char *data;
    weft_offload_buffer offload_buffer;
} own_pp_stage;

struct weft_pp_executor {
    const weft_pp_layout *pp;
    weft_arena *arena;
    const weft_device *device;
    weft_device_stream *stream;
    int64_t microbatches;
    weft_task *task; /* tasks of this rank */
    int64_t tasks;
    own_pp_stage *own;
    int owns;
    bucket *bucket;
    int buckets;
    int64_t tray_bytes;
    char *tray;
    const int *bucket_of;
    weft_pp_task_times times;
    weft_timeline *timeline; /* borrowed; NULL: no trace */
};

static weft_status no_memory(void)
{
    return weft_no_memory("the stages of a pipeline");
}

static int own_index(const weft_pp_executor *r, int pp_stage)
{
    for (int i = 0; i < r->owns; i++)
        if (r->own[i].pp_stage == pp_stage)
            return i;
    return -1;
}

/* ---- schedule -------------------------------------------------------------------------------- */

static weft_status take_tasks(weft_pp_executor *r)
{
    weft_pp_schedule table;
    WEFT_TRY(weft_pp_schedule_csv(r->pp, r->microbatches, &table));
    r->task = weft_arena_calloc(r->arena, table.task_count + 1, sizeof *r->task);
    for (int64_t i = 0; i < table.task_count && r->task; i++)
        if (table.task[i].device == r->pp->device)
            r->task[r->tasks++] = table.task[i];
    weft_pp_schedule_free(&table);
    return WEFT_ALLOCATED(r->task, "the stages of a pipeline");
}

/* The pipeline stage whose record has a slot of `pp_stage`. Values passed on within this rank are
 * in the record of the stage that sends them, in both directions. */
static int holder(const weft_pp_stages *s, int pp_stage, const char *name)
{
    char text[WEFT_TRAIN_STAGE_NAME];
    for (int i = 0; i < s->links; i++) {
        const weft_pp_edge *link = &s->link[i];
        for (int gradient = 0; gradient < 2 && link->local && link->to == pp_stage; gradient++) {
            weft_train_stage_name(link, gradient, text);
            if (!strcmp(text, name))
                return holder(s, link->from, name);
        }
    }
    return pp_stage;
}

/* True if stage `to` reads values in records of stage `from`. */
static bool reads_in_place(const weft_pp_executor *r, int from, int to)
{
    for (int b = 0; b < r->buckets; b++) {
        const weft_pp_stages *s = &r->bucket[b].step->pp_stages;
        for (int i = 0; i < s->links; i++) {
            char name[WEFT_TRAIN_STAGE_NAME];
            weft_train_stage_name(&s->link[i], false, name);
            if (s->link[i].local && s->link[i].to == to && holder(s, to, name) == from)
                return true;
        }
    }
    return false;
}

/* Counts the records of a pipeline stage. A record is in use from the forward to the last task of
 * its stage and of stages that read it. */
static weft_status find_slots(weft_pp_executor *r, own_pp_stage *own)
{
    const int64_t m = r->microbatches;
    int64_t *first = weft_calloc(m + 1, sizeof *first);
    own->last = weft_arena_calloc(r->arena, m + 1, sizeof *own->last);
    if (!first || !own->last) {
        weft_free(first);
        return no_memory();
    }
    for (int64_t i = 0; i < r->tasks; i++) {
        const weft_task *t = &r->task[i];
        if (t->pp_stage == own->pp_stage && t->kind == WEFT_TASK_F)
            first[t->microbatch] = i;
        if (t->pp_stage == own->pp_stage || reads_in_place(r, own->pp_stage, t->pp_stage))
            own->last[t->microbatch] = i;
    }
    own->slots = 1;
    for (int64_t i = 0; i < m; i++)
        while (i >= own->slots && own->last[i - own->slots] >= first[i])
            own->slots++;
    weft_free(first);
    return WEFT_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

typedef struct layout {
    field *field;
    int64_t count, capacity, bytes;
    int64_t unit; /* alignment of fields; offloaded memory is evicted in pages */
} layout;

static int64_t field_at(const layout *l, const char *name)
{
    for (int64_t i = 0; i < l->count; i++)
        if (!strcmp(l->field[i].name, name))
            return l->field[i].offset;
    return -1;
}

static weft_status add_field(layout *l, const weft_tensor *tensor)
{
    if (field_at(l, tensor->name) >= 0)
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&l->field, l->count, &l->capacity, sizeof *l->field));
    l->field[l->count++] = (field){tensor->name, l->bytes};
    const int64_t bytes = weft_shape_count(&tensor->shape) * weft_dtype_bytes(tensor->dtype);
    l->bytes += (bytes + l->unit - 1) / l->unit * l->unit;
    return WEFT_OK;
}

static unit *unit_of(const weft_pp_executor *r, int b, int own, int kind)
{
    return &r->bucket[b].unit[own * WEFT_PP_TASK_KINDS + kind];
}

static bool is_offloaded(const weft_graph *g, const char *name)
{
    const weft_value_info *info = weft_value_get(g, weft_graph_find(g, name));
    return ((const weft_attr_source *)weft_graph_node(g, info->node)->attr)->offloaded;
}

static weft_status locate_slots(weft_pp_executor *r, int b, layout *l)
{
    const weft_pp_step *step = r->bucket[b].step;
    for (int i = 0; i < r->owns * WEFT_PP_TASK_KINDS; i++) {
        unit *u = &r->bucket[b].unit[i];
        const weft_pp_local_stage *pp_stage = &step->own[i / WEFT_PP_TASK_KINDS];
        for (int k = 0; k < u->slots; k++) {
            const char *name = u->slot[k].name;
            const int own = own_index(r, holder(&step->pp_stages, pp_stage->pp_stage, name));
            const bool offloaded = is_offloaded(pp_stage->graph[i % WEFT_PP_TASK_KINDS], name);
            WEFT_TRY(add_field(&l[2 * own + offloaded], &u->slot[k]));
            u->location[k] =
                (slot_location){own, offloaded, field_at(&l[2 * own + offloaded], name)};
        }
    }
    return WEFT_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Computes the layout of records: l[2 i] of stage i's record, l[2 i + 1] of its offloaded part. */
static weft_status lay_out_records(weft_pp_executor *r, int b)
{
    layout *l;
    WEFT_TRY(WEFT_NEW(l, 2 * r->owns + 1, "the stages of a pipeline"));
    for (int i = 0; i < 2 * r->owns; i++)
        l[i].unit = i % 2 ? PAGE : WEFT_ALIGNMENT;
    weft_status_code status = WEFT_OK;
    WEFT_GO(locate_slots(r, b, l));
    for (int i = 0; i < r->owns; i++) {
        r->own[i].record = larger(r->own[i].record, l[2 * i].bytes);
        r->own[i].offload_bytes = larger(r->own[i].offload_bytes, l[2 * i + 1].bytes);
    }
    for (int i = 0; i < r->bucket[b].borders; i++) {
        border *at = &r->bucket[b].border[i];
        char name[WEFT_TRAIN_STAGE_NAME];
        weft_train_stage_name(at->link, false, name);
        at->value_at = field_at(&l[2 * at->value_own], name);
        weft_train_stage_name(at->link, true, name);
        at->gradient_at = field_at(&l[2 * at->own], name);
        if (at->value_at < 0 || at->gradient_at < 0)
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                               "no program of stage %d has this tensor", r->own[at->own].pp_stage));
    }
out:
    for (int i = 0; i < 2 * r->owns; i++)
        weft_free(l[i].field);
    weft_free(l);
    return status;
}

/* ---- programs, borders, inputs --------------------------------------------------------------- */

static weft_status add_inputs(weft_pp_executor *r, bucket *b, unit *u, const weft_graph *g)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == WEFT_OP_INPUT;
    u->feed = weft_arena_calloc(r->arena, count + 1, sizeof *u->feed);
    input *all = weft_arena_calloc(r->arena, b->inputs + count + 1, sizeof *b->input);
    WEFT_TRY(WEFT_ALLOCATED(u->feed && all, "the stages of a pipeline"));
    if (b->inputs)
        memcpy(all, b->input, (size_t)b->inputs * sizeof *all);
    b->input = all;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        const weft_tensor t = weft_tensor_of(g, node->out[0]);
        int i = 0;
        while (i < b->inputs && strcmp(b->input[i].tensor.name, t.name) != 0)
            i++;
        const int64_t bytes = weft_shape_count(&t.shape) * weft_dtype_bytes(t.dtype);
        if (i == b->inputs) {
            const input *before = i ? &b->input[i - 1] : NULL;
            const int64_t at =
                before ? before->offset + weft_aligned(weft_shape_count(&before->tensor.shape) *
                                                       weft_dtype_bytes(before->tensor.dtype))
                       : 0;
            b->input[b->inputs++] = (input){t, at};
            r->tray_bytes =
                at + weft_aligned(bytes) > r->tray_bytes ? at + weft_aligned(bytes) : r->tray_bytes;
        }
        u->feed[u->feeds++] = (feed){.name = t.name, .offset = b->input[i].offset, .bytes = bytes};
    }
    return WEFT_OK;
}

static weft_status take_programs(weft_pp_executor *r, bucket *b)
{
    const weft_pp_step *step = b->step;
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, b->unit, r->owns * WEFT_PP_TASK_KINDS + 1,
                            "the stages of a pipeline"));
    for (int i = 0; i < r->owns; i++)
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
            unit *u = &b->unit[i * WEFT_PP_TASK_KINDS + k];
            u->program = step->own[i].program[k];
            if (!u->program)
                continue;
            u->slot = weft_program_slots(u->program, &u->slots);
            WEFT_TRY(
                WEFT_ARENA_NEW(r->arena, u->location, u->slots + 1, "the stages of a pipeline"));
            WEFT_TRY(add_inputs(r, b, u, step->own[i].graph[k]));
        }
    return WEFT_OK;
}

static weft_status take_borders(weft_pp_executor *r, bucket *b)
{
    const weft_pp_stages *s = &b->step->pp_stages;
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, b->border, 2 * s->links + 1, "the stages of a pipeline"));
    for (int i = 0; i < s->links; i++)
        for (int end = 0; end < 2; end++) {
            const weft_pp_edge *link = &s->link[i];
            const int own = own_index(r, end ? link->to : link->from);
            if (link->local || own < 0)
                continue;
            border *at = &b->border[b->borders++];
            char name[WEFT_TRAIN_STAGE_NAME];
            weft_train_stage_name(link, false, name);
            *at = (border){.own = own,
                           .value_own = own_index(r, holder(s, r->own[own].pp_stage, name)),
                           .sends = !end,
                           .link = link,
                           .info = *weft_value_get(s->graph, (weft_value){link->value})};
            at->value = weft_arena_calloc(r->arena, r->own[at->value_own].slots, sizeof *at->value);
            at->gradient = weft_arena_calloc(r->arena, r->own[own].slots, sizeof *at->gradient);
            WEFT_TRY(WEFT_ALLOCATED(at->value && at->gradient, "the stages of a pipeline"));
        }
    return WEFT_OK;
}

static weft_status plan(weft_pp_executor *r, weft_pp_step *const *steps)
{
    const weft_pp_step *first = steps[0];
    WEFT_TRY(take_tasks(r));
    r->own = weft_arena_calloc(r->arena, first->owns + 1, sizeof *r->own);
    r->bucket = weft_arena_calloc(r->arena, r->buckets + 1, sizeof *r->bucket);
    WEFT_TRY(WEFT_ALLOCATED(r->own && r->bucket, "the stages of a pipeline"));
    for (int i = 0; i < first->owns; i++)
        r->own[r->owns++].pp_stage = first->own[i].pp_stage;
    for (int b = 0; b < r->buckets; b++)
        r->bucket[b].step = steps[b];
    for (int i = 0; i < r->owns; i++)
        WEFT_TRY(find_slots(r, &r->own[i]));
    for (int b = 0; b < r->buckets; b++) {
        WEFT_TRY(take_programs(r, &r->bucket[b]));
        WEFT_TRY(take_borders(r, &r->bucket[b]));
        WEFT_TRY(lay_out_records(r, b));
    }
    return WEFT_OK;
}

weft_status weft_pp_executor_plan(const weft_pp_layout *pp, weft_pp_step *const *steps, int buckets,
                                  int64_t microbatches, weft_pp_executor **out)
{
    weft_pp_executor *r;
    WEFT_TRY(WEFT_NEW(r, 1, "the stages of a pipeline"));
    *r = (weft_pp_executor){
        .pp = pp, .arena = weft_arena_create(), .microbatches = microbatches, .buckets = buckets};
    weft_status_code status = WEFT_OK;
    WEFT_GO(r->arena ? plan(r, steps) : no_memory());
    *out = r;
    return WEFT_OK;
out:
    weft_pp_executor_free(r);
    return status;
}

static void release(const weft_pp_executor *r, const border *at)
{
    for (int i = 0; at->value && i < r->own[at->value_own].slots; i++)
        weft_comm_request_free(at->value[i].request);
    for (int i = 0; at->gradient && i < r->own[at->own].slots; i++)
        weft_comm_request_free(at->gradient[i].request);
}

void weft_pp_executor_free(weft_pp_executor *r)
{
    if (!r)
        return;
    for (int b = 0; r->bucket && b < r->buckets; b++)
        for (int i = 0; i < r->bucket[b].borders; i++)
            release(r, &r->bucket[b].border[i]);
    for (int i = 0; i < r->owns && r->device; i++) {
        r->device->free(r->device, r->own[i].data);
        weft_offload_buffer_release(&r->own[i].offload_buffer);
    }
    if (r->device)
        r->device->close(r->stream);
    weft_free(r->tray);
    weft_arena_free(r->arena);
    weft_free(r);
}

int64_t weft_pp_executor_bytes(const weft_pp_executor *r)
{
    int64_t bytes = r->tray_bytes * r->microbatches;
    for (int i = 0; i < r->owns; i++)
        bytes += r->own[i].record * r->own[i].slots;
    return bytes;
}

int64_t weft_pp_executor_offloaded_bytes(const weft_pp_executor *r)
{
    int64_t bytes = 0;
    for (int i = 0; i < r->owns; i++)
        bytes += r->own[i].offload_bytes * r->own[i].slots;
    return bytes;
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* Creates the request of a value or its gradient at this end, one for each record. */
static weft_status make_messages(weft_pp_executor *r, const border *at, bool gradient,
                                 weft_group *pair)
{
    const own_pp_stage *own = &r->own[gradient ? at->own : at->value_own];
    const bool sends = at->sends != gradient;
    const int64_t count = weft_shape_count(&at->info.shape);
    char what[96];
    snprintf(what, sizeof what, "%s %d from stage %d to %d",
             gradient ? "the gradient of value" : "value", (int)at->link->value, at->link->from,
             at->link->to);
    for (int i = 0; i < own->slots; i++) {
        message *m = gradient ? &at->gradient[i] : &at->value[i];
        char *data = own->data + i * own->record + (gradient ? at->gradient_at : at->value_at);
        const int self = weft_group_index(pair);
        m->sends = sends;
        WEFT_TRY(sends ? weft_comm_request_create_send(2, self, !self, count, at->info.dtype, what,
                                                       &m->request)
                       : weft_comm_request_create_recv(2, self, !self, count, at->info.dtype, what,
                                                       &m->request));
        WEFT_TRY(weft_comm_request_attach(m->request, pair, WEFT_CHANNEL_STAGES));
        weft_comm_request_set_device(m->request, r->device, r->stream);
        weft_comm_request_bind(m->request, data, data, NULL);
    }
    return WEFT_OK;
}

/* Each pair of stages that exchange values has its own group, and therefore its own queues. */
static weft_status bind_border(weft_pp_executor *r, const border *at, weft_group *axis)
{
    const int32_t *device = r->pp->device_of;
    const weft_pp_edge *link = at->link;
    const int ranks[2] = {weft_group_rank(axis, device[link->from]),
                          weft_group_rank(axis, device[link->to])};
    weft_group *pair;
    WEFT_TRY(weft_comm_group_for(
        weft_group_comm(axis), ranks, 2,
        1 + (uint64_t)link->from * (uint64_t)r->pp->pp_stages + (uint64_t)link->to, &pair));
    WEFT_TRY(make_messages(r, at, false, pair));
    return make_messages(r, at, true, pair);
}

static weft_status reserve(weft_pp_executor *r)
{
    char text[32];
    r->tray = weft_alloc(r->tray_bytes * r->microbatches + 1);
    for (int i = 0; i < r->owns; i++) {
        own_pp_stage *own = &r->own[i];
        own->data = r->device->alloc(r->device, own->record * own->slots + 64);
        if (!own->data || !r->tray)
            return weft_error(WEFT_MSG_OUT_OF_MEMORY, WEFT_NOWHERE,
                              "the records of stage %d need %s, which this machine does not give",
                              own->pp_stage, weft_format_bytes(own->record * own->slots, text));
        WEFT_TRY(weft_offload_buffer_reserve(r->device, r->bucket[0].step->offload_dir,
                                             own->offload_bytes * own->slots,
                                             &own->offload_buffer));
    }
    return WEFT_OK;
}

weft_status weft_pp_executor_bind(weft_pp_executor *r, weft_group *group, const weft_mesh *mesh)
{
    weft_group *axis;
    const weft_backend *backend = NULL;
    for (int i = 0; i < r->owns && !backend; i++)
        backend = weft_program_backend(r->bucket[0].step->own[i].program[WEFT_PP_TASK_F]);
    r->device = backend->device;
    WEFT_TRY(r->device->open(r->device, backend, &r->stream));
    WEFT_TRY(reserve(r));
    WEFT_TRY(weft_comm_axis_group(group, mesh, weft_group_index(group), r->pp->axis, &axis));
    for (int b = 0; b < r->buckets; b++) {
        for (int i = 0; i < r->bucket[b].borders; i++)
            WEFT_TRY(bind_border(r, &r->bucket[b].border[i], axis));
        for (int i = 0; i < r->owns * WEFT_PP_TASK_KINDS; i++) {
            unit *u = &r->bucket[b].unit[i];
            for (int k = 0; k < u->feeds; k++)
                u->feed[k].input = weft_program_input(u->program, u->feed[k].name);
            for (int k = 0; k < u->slots; k++)
                u->slot[k].mapped =
                    u->location[k].offloaded && r->own[u->location[k].own].offload_buffer.mapped;
        }
    }
    return WEFT_OK;
}

weft_tensor *weft_pp_executor_input(weft_pp_executor *r, int64_t microbatch, int index,
                                    const char *name)
{
    bucket *b = &r->bucket[index];
    for (int i = 0; i < b->inputs; i++)
        if (!strcmp(b->input[i].tensor.name, name)) {
            b->input[i].tensor.data = r->tray + microbatch * r->tray_bytes + b->input[i].offset;
            return &b->input[i].tensor;
        }
    return NULL;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void start(message *m, int64_t microbatch)
{
    m->in_flight = true;
    m->microbatch = microbatch;
    weft_comm_request_start(m->request);
}

/* Adds a send, and the wait for a send or receive, to the timeline. */
static weft_status trace_message(const weft_pp_executor *r, const message *m, double began)
{
    char what[64];
    snprintf(what, sizeof what, "microbatch %" PRId64, m->microbatch);
    if (m->sends)
        WEFT_TRY(weft_timeline_add_exchange(r->timeline, m->request, what));
    snprintf(what, sizeof what, "wait: %s of microbatch %" PRId64, m->sends ? "send" : "receive",
             m->microbatch);
    return weft_timeline_add(r->timeline, WEFT_STREAM_COMPUTE, what, began, weft_now());
}

static weft_status finish(weft_pp_executor *r, message *m)
{
    double waited;
    if (!m->in_flight)
        return WEFT_OK;
    const double began = weft_now();
    m->in_flight = false;
    WEFT_TRY(weft_comm_request_wait(m->request));
    weft_comm_request_seconds(m->request, &waited);
    r->times.waited += waited;
    r->times.sent += m->sends ? weft_comm_request_wire_bytes(m->request) : 0;
    return r->timeline ? trace_message(r, m, began) : WEFT_OK;
}

/* Whether a message may still be in flight when the next microbatch, of bucket `next`, uses its
 * record. Gradients are sent from fields that only the next backward of the same bucket writes.
 *
 *   task    B1   F4      B2   F5                records: 1 and 4 share one, 2 and 5 share one
 *   link       [gradient 1 ][gradient 2 ] */
static bool may_go_on(const border *at, int b, int next)
{
    return b == next && !at->sends;
}

/* Waits for messages of all buckets from a record, except messages that may stay in flight during
 * the next microbatch. `next`: its bucket; -1: none. */
static weft_status finish_record(weft_pp_executor *r, int own, int slot, int next)
{
    for (int b = 0; b < r->buckets; b++)
        for (int i = 0; i < r->bucket[b].borders; i++) {
            const border *at = &r->bucket[b].border[i];
            if (at->value_own == own)
                WEFT_TRY(finish(r, &at->value[slot]));
            if (at->own == own && !may_go_on(at, b, next))
                WEFT_TRY(finish(r, &at->gradient[slot]));
        }
    return WEFT_OK;
}

/* Waits for gradient sends before the backward overwrites the gradients. */
static weft_status finish_gradients(weft_pp_executor *r, int own, int64_t m)
{
    const bucket *b = &r->bucket[r->bucket_of[m]];
    for (int i = 0; i < b->borders; i++)
        if (b->border[i].own == own && !b->border[i].sends)
            WEFT_TRY(finish(r, &b->border[i].gradient[m % r->own[own].slots]));
    return WEFT_OK;
}

static bool has_left(const message *m)
{
    return !m->in_flight || weft_comm_request_done(m->request);
}

static bool record_has_left(const weft_pp_executor *r, int own, int slot, int next)
{
    for (int b = 0; b < r->buckets; b++)
        for (int i = 0; i < r->bucket[b].borders; i++) {
            const border *at = &r->bucket[b].border[i];
            if ((at->value_own == own && !has_left(&at->value[slot])) ||
                (at->own == own && !may_go_on(at, b, next) && !has_left(&at->gradient[slot])))
                return false;
        }
    return true;
}

/* Posts the receives of microbatch `m`, whose record is free. */
static weft_status open_record(weft_pp_executor *r, int own, int64_t m)
{
    const bucket *b = &r->bucket[r->bucket_of[m]];
    const int slot = (int)(m % r->own[own].slots);
    WEFT_TRY(finish_record(r, own, slot, r->bucket_of[m]));
    for (int i = 0; i < b->borders; i++) {
        const border *at = &b->border[i];
        if (at->own == own)
            start(at->sends ? &at->gradient[slot] : &at->value[slot], m);
    }
    return WEFT_OK;
}

/* Opens all records that are free and have no messages in flight, so that the device does not wait
 * for sends. `done`: finished tasks of this step. */
static weft_status open_records(weft_pp_executor *r, int64_t done)
{
    for (int i = 0; i < r->owns; i++) {
        own_pp_stage *own = &r->own[i];
        while (own->opened < r->microbatches &&
               (own->opened < own->slots || own->last[own->opened - own->slots] < done) &&
               record_has_left(r, i, (int)(own->opened % own->slots), r->bucket_of[own->opened]))
            WEFT_TRY(open_record(r, i, own->opened++));
    }
    return WEFT_OK;
}

/* Opens the record of microbatch `m`, which the next task needs, and waits if necessary. */
static weft_status need_record(weft_pp_executor *r, int own, int64_t m)
{
    while (r->own[own].opened <= m)
        WEFT_TRY(open_record(r, own, r->own[own].opened++));
    return WEFT_OK;
}

/* Transfers the values (or gradients) of a microbatch at a stage. `leave` false: waits for the
 * task's inputs. True: starts the sends of its outputs. */
static weft_status transfer_values(weft_pp_executor *r, int own, int64_t m, bool gradient,
                                   bool leave)
{
    const bucket *b = &r->bucket[r->bucket_of[m]];
    for (int i = 0; i < b->borders; i++) {
        const border *at = &b->border[i];
        const int64_t slots = r->own[gradient ? at->own : at->value_own].slots;
        message *one = (gradient ? at->gradient : at->value) + m % slots;
        const bool sends = at->sends != gradient;
        if (at->own != own || sends != leave)
            continue;
        if (leave)
            start(one, m);
        else
            WEFT_TRY(finish(r, one));
    }
    return WEFT_OK;
}

static weft_status run_program(weft_pp_executor *r, unit *u, int64_t m)
{
    for (int i = 0; i < u->slots; i++) {
        const slot_location *at = &u->location[i];
        const own_pp_stage *own = &r->own[at->own];
        const int64_t record = m % own->slots;
        u->slot[i].data = (at->offloaded ? own->offload_buffer.data + record * own->offload_bytes
                                         : own->data + record * own->record) +
                          at->offset;
    }
    weft_program_set_slots(u->program);
    for (int i = 0; i < u->feeds && !r->device->meta; i++)
        memcpy(u->feed[i].input->data, r->tray + m * r->tray_bytes + u->feed[i].offset,
               (size_t)u->feed[i].bytes);
    return weft_program_run(u->program);
}

static weft_status trace_task(const weft_pp_executor *r, const weft_task *t, const unit *u,
                              double began)
{
    char what[64];
    snprintf(what, sizeof what, "%c of stage %d, microbatch %d", weft_task_letter(t->kind),
             t->pp_stage, t->microbatch);
    WEFT_TRY(weft_timeline_add_program(r->timeline, u->program));
    return weft_timeline_add(r->timeline, WEFT_STREAM_TASK, what, began, weft_now());
}

static weft_status run_task(weft_pp_executor *r, const weft_task *t)
{
    const int own = own_index(r, t->pp_stage);
    const bool gradient = t->kind != WEFT_TASK_F;
    unit *u = unit_of(r, r->bucket_of[t->microbatch], own, (int)t->kind);
    if (t->kind == WEFT_TASK_F)
        WEFT_TRY(need_record(r, own, t->microbatch));
    if (t->kind != WEFT_TASK_W)
        WEFT_TRY(transfer_values(r, own, t->microbatch, gradient, false));
    if (t->kind == WEFT_TASK_B)
        WEFT_TRY(finish_gradients(r, own, t->microbatch));
    const double began = weft_now();
    WEFT_TRY(run_program(r, u, t->microbatch));
    weft_comm_times_add(&r->times.inside, weft_program_comm_times(u->program));
    weft_offload_times_add(&r->times.offload_times, weft_program_offload_times(u->program));
    if (r->timeline)
        WEFT_TRY(trace_task(r, t, u, began));
    return t->kind == WEFT_TASK_W ? WEFT_OK
                                  : transfer_values(r, own, t->microbatch, gradient, true);
}

weft_status weft_pp_executor_step(weft_pp_executor *r, const int *bucket_of)
{
    r->bucket_of = bucket_of;
    for (int i = 0; i < r->owns; i++)
        r->own[i].opened = 0;
    WEFT_TRY(open_records(r, 0));
    for (int64_t i = 0; i < r->tasks; i++) {
        WEFT_TRY(run_task(r, &r->task[i]));
        WEFT_TRY(open_records(r, i + 1));
    }
    for (int i = 0; i < r->owns; i++)
        for (int slot = 0; slot < r->own[i].slots; slot++)
            WEFT_TRY(finish_record(r, i, slot, -1));
    return WEFT_OK;
}

void weft_pp_executor_trace(weft_pp_executor *r, weft_timeline *timeline)
{
    r->timeline = timeline;
}

weft_pp_task_times weft_pp_executor_times(const weft_pp_executor *r)
{
    return r->times;
}
