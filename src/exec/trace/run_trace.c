/* Records the events of a run as a trace. */
#include "exec/trace/run_trace.h"

#include "base/log.h"
#include "comm/comm_internal.h"
#include "comm/comm_world.h"
#include "exec/program_internal.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>

static weft_trace_kind kind_of(weft_op op)
{
    switch (op) {
    case WEFT_OP_ALL_REDUCE: return WEFT_TRACE_ALL_REDUCE;
    case WEFT_OP_ALL_GATHER: return WEFT_TRACE_ALL_GATHER;
    case WEFT_OP_REDUCE_SCATTER: return WEFT_TRACE_REDUCE_SCATTER;
    case WEFT_OP_ALL_TO_ALL: return WEFT_TRACE_ALL_TO_ALL;
    case WEFT_OP_RELAY:
    case WEFT_OP_RING_SHIFT: return WEFT_TRACE_RING_SHIFT;
    case WEFT_OP_OFFLOAD: return WEFT_TRACE_OFFLOAD;
    case WEFT_OP_FETCH: return WEFT_TRACE_FETCH;
    default: return WEFT_TRACE_COMPUTE;
    }
}

weft_timeline weft_timeline_open(int rank, int ranks)
{
    return (weft_timeline){
        .trace = {.devices = ranks}, .origin = weft_now(), .rank = rank, .last = -1};
}

void weft_timeline_free(weft_timeline *t)
{
    weft_trace_free(&t->trace);
    weft_free(t->note);
    weft_free(t->start);
    weft_free(t->end);
    *t = (weft_timeline){0};
}

/* The name, devices and time of a step, and the steps that it waits for. */
typedef struct traced {
    const char *name;
    const int32_t *member;
    int members;
    double begin, end;
    const int32_t *after;
    int64_t after_count;
} traced;

static weft_status add_step(weft_timeline *t, weft_trace_step step, const traced *of, int32_t *out)
{
    const int64_t count = t->trace.step_count;
    WEFT_TRY(weft_grow((void **)&t->start, count, &t->start_capacity, sizeof *t->start));
    WEFT_TRY(weft_grow((void **)&t->end, count, &t->end_capacity, sizeof *t->end));
    WEFT_TRY(weft_grow((void **)&t->note, count, &t->note_capacity, sizeof *t->note));
    WEFT_TRY(weft_trace_add_name(&t->trace, of->name, &step.name));
    WEFT_TRY(weft_trace_add_group(&t->trace, of->member, of->members, &step.group));
    step.owner = -1;
    step.repeat = 1;
    step.seconds = of->end > of->begin ? of->end - of->begin : 0;
    WEFT_TRY(weft_trace_add_step(&t->trace, step, of->after, of->after_count, out));
    t->start[count] = of->begin - t->origin;
    t->end[count] = of->end - t->origin;
    t->note[count] = (weft_timeline_note){.group = -1};
    return WEFT_OK;
}

weft_status weft_timeline_add(weft_timeline *t, weft_trace_stream stream, const char *name,
                              double begin, double end)
{
    const weft_trace_step step = {.kind = WEFT_TRACE_COMPUTE, .stream = (uint8_t)stream};
    const bool computes = stream == WEFT_STREAM_COMPUTE;
    const int32_t rank = t->rank, last = t->last;
    const traced of = {name, &rank, 1, begin, end, &last, computes && last >= 0};
    return add_step(t, step, &of, computes ? &t->last : NULL);
}

weft_status weft_timeline_add_exchange(weft_timeline *t, const weft_comm_request *x,
                                       const char *what)
{
    const bool sends = x->spec.op == WEFT_COMM_SEND;
    const int peer = weft_group_rank(x->group, x->spec.argument);
    const int32_t pair[2] = {sends ? t->rank : peer, sends ? peer : t->rank};
    const weft_trace_step step = {.kind = WEFT_TRACE_SEND,
                                  .stream = WEFT_STREAM_HOST,
                                  .bytes = (double)(x->spec.count * x->spec.element)};
    char name[256];
    snprintf(name, sizeof name, "%s, %s", x->what, what);
    const traced of = {name, pair, 2, x->run.started, x->run.finished, NULL, 0};
    return add_step(t, step, &of, NULL);
}

typedef struct recorder {
    weft_timeline *to;
    const weft_program *program;
    int32_t *collective; /* step of each node's collective or copy; -1: none */
} recorder;

/* Adds a step of this rank for an instruction; `of->name` is the text before the name of its op. */
static weft_status add(recorder *r, const instruction *code, weft_trace_step step, traced of,
                       int32_t *out)
{
    const weft_node *node = weft_graph_node(r->program->compiled->graph, code->node);
    const int32_t rank = r->to->rank;
    char name[200];
    snprintf(name, sizeof name, "%s%s%s%s%s", of.name, weft_op_get(node->op)->name,
             node->scope && node->scope[0] ? " of " : "", node->scope ? node->scope : "",
             node->backward ? " (backward)" : "");
    of.name = name;
    of.member = &rank;
    of.members = 1;
    return add_step(r->to, step, &of, out);
}

/* Records the ranks, channel and handling seconds of a request for its step. */
static weft_status record_request(recorder *r, const weft_comm_request *x, int32_t step)
{
    int32_t *member = weft_calloc(x->spec.ranks, sizeof *member);
    /* one of several segments is copied while another is in flight */
    weft_timeline_note note = {.channel = (int32_t)x->channel,
                               .handling =
                                   x->run.handled / (double)(x->plan->steps ? x->plan->steps : 1)};
    WEFT_TRY(WEFT_ALLOCATED(member, "a trace"));
    for (int i = 0; i < x->spec.ranks; i++)
        member[i] = weft_group_rank(x->group, i);
    const weft_status_code status =
        weft_trace_add_group(&r->to->trace, member, x->spec.ranks, &note.group);
    weft_free(member);
    r->to->note[step] = note;
    return status;
}

/* `of` has the start of the instruction, and the steps that the request waits for. */
static weft_status add_request(recorder *r, const instruction *code, weft_trace_step step,
                               traced of)
{
    const weft_comm_request *x = weft_program_exchange(r->program, code);
    const bool simulated = x->simulated.clock.now != NULL;
    const double started = simulated ? x->simulated.begin : x->run.started,
                 finished = simulated ? x->simulated.end : x->run.finished;
    int32_t *out = &r->collective[code->node];
    step.stream = WEFT_STREAM_COMM;
    step.bytes = (double)x->spec.bytes;
    step.together = true; /* segments do not wait for segments of other ranks */
    of.end = fmax(finished, of.begin);
    of.begin = fmax(started, of.begin);
    WEFT_TRY(add(r, code, step, of, out));
    return x->spec.ranks > 1 ? record_request(r, x, *out) : WEFT_OK;
}

/* Adds an instruction. A start becomes a step on the communication stream from start to completion.
 * A wait becomes a step on the compute stream. */
static weft_status add_instruction(recorder *r, int32_t i)
{
    const instruction *code = &r->program->compiled->code[i];
    weft_trace_step step = {.kind = WEFT_TRACE_COMPUTE, .stream = WEFT_STREAM_COMPUTE};
    int32_t after[2];
    traced of = {.name = "",
                 .begin = r->program->run.begin[i],
                 .end = r->program->run.end[i],
                 .after = after};
    if (code->kind == INSTR_JOIN)
        return WEFT_OK;
    if (r->to->last >= 0)
        after[of.after_count++] = r->to->last;
    if (code->kind == INSTR_START || code->kind == INSTR_COPY)
        step.kind = (uint8_t)kind_of(weft_graph_node(r->program->compiled->graph, code->node)->op);
    if (code->kind == INSTR_START)
        return add_request(r, code, step, of);
    if (code->kind == INSTR_COPY) {
        const weft_copy_request *m = code->copy;
        step.stream = WEFT_STREAM_HOST;
        step.bytes = (double)m->bytes;
        of.end = fmax(m->finished, of.begin);
        of.begin = fmax(m->started, of.begin);
        return add(r, code, step, of, &r->collective[code->node]);
    }
    const bool waits = code->kind == INSTR_WAIT || code->kind == INSTR_COPY_WAIT;
    if (waits) {
        of.name = "wait: ";
        after[of.after_count++] =
            r->collective[code->kind == INSTR_WAIT ? r->program->compiled->begins[code->node]
                                                   : code->node];
    }
    WEFT_TRY(add(r, code, step, of, &r->to->last));
    r->to->note[r->to->last].waits = waits;
    return WEFT_OK;
}

weft_status weft_timeline_add_program(weft_timeline *timeline, const weft_program *p)
{
    if (!p->run.begin || p->run.runs == 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a trace needs a program that was compiled with `profile` and has run");
    const int64_t nodes = weft_graph_node_count(p->compiled->graph);
    recorder r = {.to = timeline, .program = p};
    WEFT_TRY(WEFT_NEW(r.collective, nodes + 1, "a trace"));
    for (int64_t n = 0; n < nodes; n++)
        r.collective[n] = -1;
    weft_status_code status = WEFT_OK;
    for (int32_t i = 0; i < p->compiled->code_count; i++)
        WEFT_GO(add_instruction(&r, i));
out:
    weft_free(r.collective);
    return status;
}

weft_status weft_timeline_open_together(weft_comm *comm, const weft_own_clock *own,
                                        weft_timeline *timeline)
{
    weft_common_clock clock = {.own = own ? *own : (weft_own_clock){0}};
    weft_timeline t = weft_timeline_open(weft_comm_rank(comm), weft_comm_ranks(comm));
    WEFT_TRY(weft_common_clock_measure(comm, &clock));
    double origin = weft_common_now(&clock);
    WEFT_TRY(weft_comm_broadcast(comm, &origin, sizeof origin, 0));
    t.origin = origin - clock.offset;
    *timeline = t;
    return WEFT_OK;
}
