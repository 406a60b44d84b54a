#include "train/pipe_run.h"

#include "base/log.h"
#include "runtime/comm.h"
#include "runtime/mover.h"
#include "runtime/part.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 4096 };

/* Where a slot of a program lies: in the record of a stage of this rank. */
typedef struct place {
    int own;   /* index of the stage */
    bool away; /* in the part that is elsewhere */
    int64_t offset;
} place;

/* A field of a record. */
typedef struct field {
    const char *name; /* the graph's */
    int64_t offset;
} field;

/* An input of a program, and where a microbatch's is kept. */
typedef struct feed {
    weft_tensor *input; /* of the program; set when bound */
    const char *name;
    int64_t offset, bytes; /* in the microbatch's tray */
} feed;

/* A program as the interpreter sees it. */
typedef struct unit {
    weft_program *program; /* borrowed; NULL: there is none */
    weft_tensor *slot;     /* the program's */
    place *place;          /* by slot */
    feed *feed;
    int slots, feeds;
} unit;

/* What goes over a link between ranks, from or to one record. */
typedef struct message {
    weft_exchange *exchange;
    bool under_way, sends;
    int64_t microbatch; /* of what is under way */
} message;

/* A link that crosses ranks, at this rank's end. */
typedef struct border {
    int own;           /* index of the stage at this end, in whose record the gradient lies */
    int value_own;     /* in whose record the value does: handed over on this rank it stays there */
    bool sends;        /* the value; else this end receives it, and sends the gradient */
    message *value;    /* by slot */
    message *gradient; /* by slot */
    int64_t value_at, gradient_at; /* in the record */
    const weft_stage_link *link;
    weft_value_info info; /* of the value */
} border;

typedef struct input {
    weft_tensor tensor; /* no data; then that of the microbatch that is asked for */
    int64_t offset;
} input;

/* A bucket's programs. */
typedef struct bucket {
    const weft_pipe_step *step;
    unit *unit; /* by own stage and kind */
    border *border;
    int borders;
    input *input;
    int inputs;
} bucket;

/* A stage of this rank. */
typedef struct own_stage {
    int stage;
    int slots;
    int64_t record, away; /* bytes of a record, and of its part elsewhere */
    int64_t *last;        /* by microbatch: the task behind which its record is free */
    int64_t opened;       /* microbatches of this step whose receives are posted */
    char *data;
    weft_elsewhere elsewhere;
} own_stage;

struct weft_pipe_run {
    const weft_pipe *pipe;
    weft_arena *arena;
    const weft_device *device;
    weft_device_stream *stream;
    int64_t microbatches;
    weft_task *task; /* of this rank */
    int64_t tasks;
    own_stage *own;
    int owns;
    bucket *bucket;
    int buckets;
    int64_t tray_bytes;
    char *tray;
    const int *bucket_of;
    weft_pipe_times times;
    weft_timeline *timeline; /* borrowed; NULL: nobody looks */
};

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the stages of a pipeline");
}

static int own_index(const weft_pipe_run *r, int stage)
{
    for (int i = 0; i < r->owns; i++)
        if (r->own[i].stage == stage)
            return i;
    return -1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static weft_status take_tasks(weft_pipe_run *r)
{
    weft_schedule table;
    WEFT_TRY(weft_pipe_table(r->pipe, r->microbatches, &table));
    r->task = weft_arena_alloc(r->arena, (table.task_count + 1) * (int64_t)sizeof *r->task);
    for (int64_t i = 0; i < table.task_count && r->task; i++)
        if (table.task[i].device == r->pipe->device)
            r->task[r->tasks++] = table.task[i];
    weft_schedule_free(&table);
    return r->task ? WEFT_OK : no_memory();
}

/* The stage in whose record a slot of `stage` lies: what is handed over on this rank is in that of
 * the stage that it comes from, in both directions. */
static int holder(const weft_stages *s, int stage, const char *name)
{
    char text[WEFT_STAGE_NAME];
    for (int i = 0; i < s->links; i++) {
        const weft_stage_link *link = &s->link[i];
        for (int gradient = 0; gradient < 2 && link->local && link->to == stage; gradient++) {
            weft_stage_name(link, gradient, text);
            if (!strcmp(text, name))
                return holder(s, link->from, name);
        }
    }
    return stage;
}

/* True: stage `to` reads what lies in records of stage `from`. */
static bool reads_in_place(const weft_pipe_run *r, int from, int to)
{
    for (int b = 0; b < r->buckets; b++) {
        const weft_stages *s = &r->bucket[b].step->stages;
        for (int i = 0; i < s->links; i++) {
            char name[WEFT_STAGE_NAME];
            weft_stage_name(&s->link[i], false, name);
            if (s->link[i].local && s->link[i].to == to && holder(s, to, name) == from)
                return true;
        }
    }
    return false;
}

/* A record is in use from the forward to the last task of its stage, and of those that read it. */
static weft_status find_slots(weft_pipe_run *r, own_stage *own)
{
    const int64_t m = r->microbatches;
    int64_t *first = weft_alloc((m + 1) * (int64_t)sizeof *first);
    own->last = weft_arena_alloc(r->arena, (m + 1) * (int64_t)sizeof *own->last);
    if (!first || !own->last) {
        weft_free(first);
        return no_memory();
    }
    for (int64_t i = 0; i < r->tasks; i++) {
        const weft_task *t = &r->task[i];
        if (t->stage == own->stage && t->kind == WEFT_TASK_F)
            first[t->microbatch] = i;
        if (t->stage == own->stage || reads_in_place(r, own->stage, t->stage))
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
    int64_t count, room, bytes;
    int64_t unit; /* what fields are rounded up to: memory elsewhere is dropped in pages */
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
    WEFT_TRY(weft_grow((void **)&l->field, l->count, &l->room, sizeof *l->field));
    l->field[l->count++] = (field){tensor->name, l->bytes};
    const int64_t bytes = weft_shape_count(&tensor->shape) * weft_dtype_bytes(tensor->dtype);
    l->bytes += (bytes + l->unit - 1) / l->unit * l->unit;
    return WEFT_OK;
}

static unit *unit_of(const weft_pipe_run *r, int b, int own, int kind)
{
    return &r->bucket[b].unit[own * WEFT_PIPE_KINDS + kind];
}

static bool is_away(const weft_graph *g, const char *name)
{
    const weft_value_info *info = weft_value_get(g, weft_graph_find(g, name));
    return ((const weft_attr_source *)weft_graph_node(g, info->node)->attr)->away;
}

static weft_status place_slots(weft_pipe_run *r, int b, layout *l)
{
    const weft_pipe_step *step = r->bucket[b].step;
    for (int i = 0; i < r->owns * WEFT_PIPE_KINDS; i++) {
        unit *u = &r->bucket[b].unit[i];
        const weft_pipe_stage *stage = &step->own[i / WEFT_PIPE_KINDS];
        for (int k = 0; k < u->slots; k++) {
            const char *name = u->slot[k].name;
            const int own = own_index(r, holder(&step->stages, stage->stage, name));
            const bool away = is_away(stage->graph[i % WEFT_PIPE_KINDS], name);
            WEFT_TRY(add_field(&l[2 * own + away], &u->slot[k]));
            u->place[k] = (place){own, away, field_at(&l[2 * own + away], name)};
        }
    }
    return WEFT_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* l[2 i]: of stage i's record; l[2 i + 1]: of its part elsewhere. */
static weft_status lay_out_records(weft_pipe_run *r, int b)
{
    layout *l = weft_alloc((2 * r->owns + 1) * (int64_t)sizeof *l);
    if (!l)
        return no_memory();
    for (int i = 0; i < 2 * r->owns; i++)
        l[i].unit = i % 2 ? PAGE : WEFT_ALIGNMENT;
    weft_status_code status = place_slots(r, b, l);
    for (int i = 0; i < r->owns && status == WEFT_OK; i++) {
        r->own[i].record = larger(r->own[i].record, l[2 * i].bytes);
        r->own[i].away = larger(r->own[i].away, l[2 * i + 1].bytes);
    }
    for (int i = 0; i < r->bucket[b].borders && status == WEFT_OK; i++) {
        border *at = &r->bucket[b].border[i];
        char name[WEFT_STAGE_NAME];
        weft_stage_name(at->link, false, name);
        at->value_at = field_at(&l[2 * at->value_own], name);
        weft_stage_name(at->link, true, name);
        at->gradient_at = field_at(&l[2 * at->own], name);
        if (at->value_at < 0 || at->gradient_at < 0)
            status = weft_fail(WEFT_E_INTERNAL, "no program of stage %d has \"%s\"",
                               r->own[at->own].stage, name);
    }
    for (int i = 0; i < 2 * r->owns; i++)
        weft_free(l[i].field);
    weft_free(l);
    return status;
}

/* ---- programs, borders, inputs --------------------------------------------------------------- */

static weft_status add_inputs(weft_pipe_run *r, bucket *b, unit *u, const weft_graph *g)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == WEFT_OP_INPUT;
    u->feed = weft_arena_alloc(r->arena, (count + 1) * (int64_t)sizeof *u->feed);
    input *all = weft_arena_alloc(r->arena, (b->inputs + count + 1) * (int64_t)sizeof *b->input);
    if (!u->feed || !all)
        return no_memory();
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

static weft_status take_programs(weft_pipe_run *r, bucket *b)
{
    const weft_pipe_step *step = b->step;
    b->unit =
        weft_arena_alloc(r->arena, (r->owns * WEFT_PIPE_KINDS + 1) * (int64_t)sizeof *b->unit);
    if (!b->unit)
        return no_memory();
    for (int i = 0; i < r->owns; i++)
        for (int k = 0; k < WEFT_PIPE_KINDS; k++) {
            unit *u = &b->unit[i * WEFT_PIPE_KINDS + k];
            u->program = step->own[i].program[k];
            if (!u->program)
                continue;
            u->slot = weft_program_slots(u->program, &u->slots);
            u->place = weft_arena_alloc(r->arena, (u->slots + 1) * (int64_t)sizeof *u->place);
            if (!u->place)
                return no_memory();
            WEFT_TRY(add_inputs(r, b, u, step->own[i].graph[k]));
        }
    return WEFT_OK;
}

static weft_status take_borders(weft_pipe_run *r, bucket *b)
{
    const weft_stages *s = &b->step->stages;
    b->border = weft_arena_alloc(r->arena, (2 * s->links + 1) * (int64_t)sizeof *b->border);
    if (!b->border)
        return no_memory();
    for (int i = 0; i < s->links; i++)
        for (int end = 0; end < 2; end++) {
            const weft_stage_link *link = &s->link[i];
            const int own = own_index(r, end ? link->to : link->from);
            if (link->local || own < 0)
                continue;
            border *at = &b->border[b->borders++];
            char name[WEFT_STAGE_NAME];
            weft_stage_name(link, false, name);
            *at = (border){.own = own,
                           .value_own = own_index(r, holder(s, r->own[own].stage, name)),
                           .sends = !end,
                           .link = link,
                           .info = *weft_value_get(s->graph, (weft_value){link->value})};
            at->value = weft_arena_alloc(r->arena,
                                         r->own[at->value_own].slots * (int64_t)sizeof *at->value);
            at->gradient =
                weft_arena_alloc(r->arena, r->own[own].slots * (int64_t)sizeof *at->gradient);
            if (!at->value || !at->gradient)
                return no_memory();
        }
    return WEFT_OK;
}

static weft_status plan(weft_pipe_run *r, weft_pipe_step *const *steps)
{
    const weft_pipe_step *first = steps[0];
    WEFT_TRY(take_tasks(r));
    r->own = weft_arena_alloc(r->arena, (first->owns + 1) * (int64_t)sizeof *r->own);
    r->bucket = weft_arena_alloc(r->arena, (r->buckets + 1) * (int64_t)sizeof *r->bucket);
    if (!r->own || !r->bucket)
        return no_memory();
    for (int i = 0; i < first->owns; i++)
        r->own[r->owns++].stage = first->own[i].stage;
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

weft_status weft_pipe_run_plan(const weft_pipe *pipe, weft_pipe_step *const *steps, int buckets,
                               int64_t microbatches, weft_pipe_run **out)
{
    weft_pipe_run *r = weft_alloc(sizeof *r);
    if (!r)
        return no_memory();
    *r = (weft_pipe_run){.pipe = pipe,
                         .arena = weft_arena_create(),
                         .microbatches = microbatches,
                         .buckets = buckets};
    const weft_status_code status = r->arena ? plan(r, steps) : no_memory();
    if (status == WEFT_OK)
        *out = r;
    else
        weft_pipe_run_free(r);
    return status;
}

static void release(const weft_pipe_run *r, const border *at)
{
    for (int i = 0; at->value && i < r->own[at->value_own].slots; i++)
        weft_exchange_free(at->value[i].exchange);
    for (int i = 0; at->gradient && i < r->own[at->own].slots; i++)
        weft_exchange_free(at->gradient[i].exchange);
}

void weft_pipe_run_free(weft_pipe_run *r)
{
    if (!r)
        return;
    for (int b = 0; r->bucket && b < r->buckets; b++)
        for (int i = 0; i < r->bucket[b].borders; i++)
            release(r, &r->bucket[b].border[i]);
    for (int i = 0; i < r->owns && r->device; i++) {
        r->device->free(r->own[i].data);
        weft_elsewhere_release(&r->own[i].elsewhere);
    }
    if (r->device)
        r->device->close(r->stream);
    weft_free(r->tray);
    weft_arena_free(r->arena);
    weft_free(r);
}

int64_t weft_pipe_run_bytes(const weft_pipe_run *r)
{
    int64_t bytes = r->tray_bytes * r->microbatches;
    for (int i = 0; i < r->owns; i++)
        bytes += r->own[i].record * r->own[i].slots;
    return bytes;
}

int64_t weft_pipe_run_away_bytes(const weft_pipe_run *r)
{
    int64_t bytes = 0;
    for (int i = 0; i < r->owns; i++)
        bytes += r->own[i].away * r->own[i].slots;
    return bytes;
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* The exchange of a value or its gradient at this end, for each record. */
static weft_status make_messages(weft_pipe_run *r, const border *at, bool gradient,
                                 weft_group *pair)
{
    const own_stage *own = &r->own[gradient ? at->own : at->value_own];
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
        WEFT_TRY(sends ? weft_exchange_create_send(2, self, !self, count, at->info.dtype, what,
                                                   &m->exchange)
                       : weft_exchange_create_recv(2, self, !self, count, at->info.dtype, what,
                                                   &m->exchange));
        WEFT_TRY(weft_exchange_attach(m->exchange, pair, WEFT_CHANNEL_STAGES));
        weft_exchange_set_device(m->exchange, r->device, r->stream);
        weft_exchange_bind(m->exchange, data, data, NULL);
    }
    return WEFT_OK;
}

/* Each pair of stages that exchange something has a group, and so queues, of its own. */
static weft_status bind_border(weft_pipe_run *r, const border *at, weft_group *axis)
{
    const int32_t *device = r->pipe->device_of;
    const weft_stage_link *link = at->link;
    const int ranks[2] = {weft_group_rank(axis, device[link->from]),
                          weft_group_rank(axis, device[link->to])};
    weft_group *pair;
    WEFT_TRY(weft_comm_group_for(
        weft_group_comm(axis), ranks, 2,
        1 + (uint64_t)link->from * (uint64_t)r->pipe->stages + (uint64_t)link->to, &pair));
    WEFT_TRY(make_messages(r, at, false, pair));
    return make_messages(r, at, true, pair);
}

static weft_status reserve(weft_pipe_run *r)
{
    char text[32];
    r->tray = weft_alloc(r->tray_bytes * r->microbatches + 1);
    for (int i = 0; i < r->owns; i++) {
        own_stage *own = &r->own[i];
        own->data = r->device->alloc(own->record * own->slots + 64);
        if (!own->data || !r->tray)
            return weft_fail(WEFT_E_MEMORY,
                             "the records of stage %d need %s, which this machine does not give",
                             own->stage, weft_format_bytes(own->record * own->slots, text));
        WEFT_TRY(weft_elsewhere_reserve(r->device, r->bucket[0].step->away, own->away * own->slots,
                                        &own->elsewhere));
    }
    return WEFT_OK;
}

weft_status weft_pipe_run_bind(weft_pipe_run *r, weft_group *group, const weft_mesh *mesh)
{
    weft_group *axis;
    const weft_backend *backend = NULL;
    for (int i = 0; i < r->owns && !backend; i++)
        backend = weft_program_backend(r->bucket[0].step->own[i].program[WEFT_STAGE_F]);
    r->device = backend->device;
    WEFT_TRY(r->device->open(backend, &r->stream));
    WEFT_TRY(reserve(r));
    WEFT_TRY(weft_comm_axis_group(group, mesh, weft_group_index(group), r->pipe->axis, &axis));
    for (int b = 0; b < r->buckets; b++) {
        for (int i = 0; i < r->bucket[b].borders; i++)
            WEFT_TRY(bind_border(r, &r->bucket[b].border[i], axis));
        for (int i = 0; i < r->owns * WEFT_PIPE_KINDS; i++) {
            unit *u = &r->bucket[b].unit[i];
            for (int k = 0; k < u->feeds; k++)
                u->feed[k].input = weft_program_input(u->program, u->feed[k].name);
            for (int k = 0; k < u->slots; k++)
                u->slot[k].mapped = u->place[k].away && r->own[u->place[k].own].elsewhere.mapped;
        }
    }
    return WEFT_OK;
}

weft_tensor *weft_pipe_run_input(weft_pipe_run *r, int64_t microbatch, int index, const char *name)
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
    m->under_way = true;
    m->microbatch = microbatch;
    weft_exchange_start(m->exchange);
}

/* A send, and the wait for it or for what was sent. */
static weft_status trace_message(const weft_pipe_run *r, const message *m, double began)
{
    char what[64];
    snprintf(what, sizeof what, "microbatch %lld", (long long)m->microbatch);
    if (m->sends)
        WEFT_TRY(weft_timeline_add_exchange(r->timeline, m->exchange, what));
    snprintf(what, sizeof what, "wait: %s of microbatch %lld", m->sends ? "send" : "receive",
             (long long)m->microbatch);
    return weft_timeline_add(r->timeline, WEFT_STREAM_COMPUTE, what, began, weft_now());
}

static weft_status finish(weft_pipe_run *r, message *m)
{
    double waited;
    if (!m->under_way)
        return WEFT_OK;
    const double began = weft_now();
    m->under_way = false;
    WEFT_TRY(weft_exchange_wait(m->exchange));
    weft_exchange_seconds(m->exchange, &waited);
    r->times.waited += waited;
    r->times.sent += m->sends ? weft_exchange_wire_bytes(m->exchange) : 0;
    return r->timeline ? trace_message(r, m, began) : WEFT_OK;
}

/* Gradients that leave from a record lie in fields that the next backward of the same bucket is the
 * first to write: they may be on their way still when the next microbatch's forward begins.
 *
 *   task    B1   F4      B2   F5                a record each: 1 and 4, 2 and 5
 *   link       [gradient 1 ][gradient 2 ] */
static bool may_go_on(const border *at, int b, int next)
{
    return b == next && !at->sends;
}

/* What still leaves from a record is awaited, of whichever bucket it was, but what may go on beside
 * the next microbatch, of bucket `next` (-1: there is none). */
static weft_status finish_record(weft_pipe_run *r, int own, int slot, int next)
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

/* Before the backward makes others in their place. */
static weft_status finish_gradients(weft_pipe_run *r, int own, int64_t m)
{
    const bucket *b = &r->bucket[r->bucket_of[m]];
    for (int i = 0; i < b->borders; i++)
        if (b->border[i].own == own && !b->border[i].sends)
            WEFT_TRY(finish(r, &b->border[i].gradient[m % r->own[own].slots]));
    return WEFT_OK;
}

static bool has_left(const message *m)
{
    return !m->under_way || weft_exchange_done(m->exchange);
}

static bool record_has_left(const weft_pipe_run *r, int own, int slot, int next)
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

/* The record of microbatch `m` is free: what comes for it may come. */
static weft_status open_record(weft_pipe_run *r, int own, int64_t m)
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

/* Those that are free, and from which nothing is still on its way: the device does not wait for
 * what it sends. `done`: tasks of this step. */
static weft_status open_records(weft_pipe_run *r, int64_t done)
{
    for (int i = 0; i < r->owns; i++) {
        own_stage *own = &r->own[i];
        while (own->opened < r->microbatches &&
               (own->opened < own->slots || own->last[own->opened - own->slots] < done) &&
               record_has_left(r, i, (int)(own->opened % own->slots), r->bucket_of[own->opened]))
            WEFT_TRY(open_record(r, i, own->opened++));
    }
    return WEFT_OK;
}

/* The task that begins with it cannot do without. */
static weft_status need_record(weft_pipe_run *r, int own, int64_t m)
{
    while (r->own[own].opened <= m)
        WEFT_TRY(open_record(r, own, r->own[own].opened++));
    return WEFT_OK;
}

/* Of the values (or gradients) of a microbatch at a stage: waits for those that come before a task,
 * and lets those leave that it made. */
static weft_status exchange(weft_pipe_run *r, int own, int64_t m, bool gradient, bool leave)
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

static weft_status run_program(weft_pipe_run *r, unit *u, int64_t m)
{
    for (int i = 0; i < u->slots; i++) {
        const place *at = &u->place[i];
        const own_stage *own = &r->own[at->own];
        const int64_t record = m % own->slots;
        u->slot[i].data = (at->away ? own->elsewhere.data + record * own->away
                                    : own->data + record * own->record) +
                          at->offset;
    }
    weft_program_point(u->program);
    for (int i = 0; i < u->feeds && !r->device->hollow; i++)
        memcpy(u->feed[i].input->data, r->tray + m * r->tray_bytes + u->feed[i].offset,
               (size_t)u->feed[i].bytes);
    return weft_program_run(u->program);
}

static weft_status trace_task(const weft_pipe_run *r, const weft_task *t, const unit *u,
                              double began)
{
    char what[64];
    snprintf(what, sizeof what, "%c of stage %d, microbatch %lld", "FBW"[t->kind], (int)t -> stage,
             (long long)t -> microbatch);
    WEFT_TRY(weft_timeline_add_program(r->timeline, u->program));
    return weft_timeline_add(r->timeline, WEFT_STREAM_TASK, what, began, weft_now());
}

static weft_status run_task(weft_pipe_run *r, const weft_task *t)
{
    const int own = own_index(r, t->stage);
    const bool gradient = t->kind != WEFT_TASK_F;
    unit *u = unit_of(r, r->bucket_of[t->microbatch], own, (int)t->kind);
    if (t->kind == WEFT_TASK_F)
        WEFT_TRY(need_record(r, own, t->microbatch));
    if (t->kind != WEFT_TASK_W)
        WEFT_TRY(exchange(r, own, t->microbatch, gradient, false));
    if (t->kind == WEFT_TASK_B)
        WEFT_TRY(finish_gradients(r, own, t->microbatch));
    const double began = weft_now();
    WEFT_TRY(run_program(r, u, t->microbatch));
    weft_comm_times_add(&r->times.inside, weft_program_comm_times(u->program));
    weft_away_times_add(&r->times.moved, weft_program_away_times(u->program));
    if (r->timeline)
        WEFT_TRY(trace_task(r, t, u, began));
    return t->kind == WEFT_TASK_W ? WEFT_OK : exchange(r, own, t->microbatch, gradient, true);
}

weft_status weft_pipe_run_step(weft_pipe_run *r, const int *bucket_of)
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

void weft_pipe_run_trace(weft_pipe_run *r, weft_timeline *timeline)
{
    r->timeline = timeline;
}

weft_pipe_times weft_pipe_run_times(const weft_pipe_run *r)
{
    return r->times;
}
