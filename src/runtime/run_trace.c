/* A run that took place, as a trace. */
#include "runtime/comm_internal.h"
#include "runtime/program.h"

#include <math.h>
#include <stdio.h>

static weft_trace_kind kind_of(weft_op op)
{
    switch (op) {
    case WEFT_OP_ALL_REDUCE: return WEFT_TRACE_ALL_REDUCE;
    case WEFT_OP_ALL_GATHER: return WEFT_TRACE_ALL_GATHER;
    case WEFT_OP_REDUCE_SCATTER: return WEFT_TRACE_REDUCE_SCATTER;
    case WEFT_OP_ALL_TO_ALL: return WEFT_TRACE_ALL_TO_ALL;
    case WEFT_OP_RING_SHIFT: return WEFT_TRACE_RING_SHIFT;
    case WEFT_OP_OFFLOAD: return WEFT_TRACE_OFFLOAD;
    case WEFT_OP_FETCH: return WEFT_TRACE_FETCH;
    default: return WEFT_TRACE_COMPUTE;
    }
}

typedef struct recorder {
    const weft_program *program;
    weft_trace *trace;
    double *start, *end, origin;
    int32_t group;
    int32_t *collective; /* by node: step of what was started there, copies too; -1: none */
    int32_t last;        /* compute step before this one; -1: none */
} recorder;

static weft_status add(recorder *r, const instruction *code, weft_trace_step step,
                       const char *before, double start, double end, const int32_t *after,
                       int64_t after_count, int32_t *out)
{
    const weft_node *node = weft_graph_node(r->program->graph, code->node);
    char name[200];
    snprintf(name, sizeof name, "%s%s%s%s%s", before, weft_op_get(node->op)->name,
             node->scope && node->scope[0] ? " of " : "", node->scope ? node->scope : "",
             node->backward ? " (backward)" : "");
    WEFT_TRY(weft_trace_add_name(r->trace, name, &step.name));
    step.group = r->group;
    step.owner = -1;
    step.repeat = 1;
    step.seconds = end - start;
    WEFT_TRY(weft_trace_add_step(r->trace, step, after, after_count, out));
    r->start[*out] = start - r->origin;
    r->end[*out] = end - r->origin;
    return WEFT_OK;
}

/* Start and wait become one step on the communication stream, and on the compute stream one for the
 * time waited. */
static weft_status add_instruction(recorder *r, int32_t i)
{
    const instruction *code = &r->program->code[i];
    const double begin = r->program->begin[i], end = r->program->end[i];
    const weft_trace_step compute = {.kind = WEFT_TRACE_COMPUTE, .stream = WEFT_STREAM_COMPUTE};
    int32_t after[2];
    int64_t count = 0;
    if (code->kind == INSTR_JOIN)
        return WEFT_OK;
    if (r->last >= 0)
        after[count++] = r->last;
    if (code->kind == INSTR_START) {
        const weft_exchange *x = code->exchange;
        const weft_trace_step comm = {
            .kind = (uint8_t)kind_of(weft_graph_node(r->program->graph, code->node)->op),
            .stream = WEFT_STREAM_COMM,
            .bytes = (double)weft_exchange_wire_bytes(x)};
        return add(r, code, comm, "", fmax(x->started, begin), fmax(x->finished, begin), after,
                   count, &r->collective[code->node]);
    }
    if (code->kind == INSTR_MOVE) {
        const weft_carry *m = code->move;
        const weft_trace_step copy = {
            .kind = (uint8_t)kind_of(weft_graph_node(r->program->graph, code->node)->op),
            .stream = WEFT_STREAM_HOST,
            .bytes = (double)m->bytes};
        return add(r, code, copy, "", fmax(m->started, begin), fmax(m->finished, begin), after,
                   count, &r->collective[code->node]);
    }
    const bool waits = code->kind == INSTR_WAIT || code->kind == INSTR_MOVED;
    if (waits)
        after[count++] =
            r->collective[code->kind == INSTR_WAIT ? r->program->begins[code->node] : code->node];
    return add(r, code, compute, waits ? "wait: " : "", begin, end, after, count, &r->last);
}

weft_status weft_program_trace(const weft_program *p, int rank, int ranks, weft_trace *trace,
                               double **start, double **end)
{
    if (!p->begin || p->runs == 0)
        return weft_fail(WEFT_E_ARG,
                         "a trace needs a program that was compiled with `profile` and has run");
    const int64_t nodes = weft_graph_node_count(p->graph);
    recorder r = {
        .program = p, .trace = trace, .origin = p->code_count ? p->begin[0] : 0, .last = -1};
    r.start = weft_alloc((p->code_count + 1) * (int64_t)sizeof *r.start);
    r.end = weft_alloc((p->code_count + 1) * (int64_t)sizeof *r.end);
    r.collective = weft_alloc((nodes + 1) * (int64_t)sizeof *r.collective);
    weft_status_code status = WEFT_OK;
    trace->devices = ranks;
    if (!r.start || !r.end || !r.collective)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for a trace"));
    for (int64_t n = 0; n < nodes; n++)
        r.collective[n] = -1;
    WEFT_GO(weft_trace_add_group(trace, &(int32_t){rank}, 1, &r.group));
    for (int32_t i = 0; i < p->code_count; i++)
        WEFT_GO(add_instruction(&r, i));
    *start = r.start;
    *end = r.end;
    r.start = r.end = NULL;
out:
    weft_free(r.start);
    weft_free(r.end);
    weft_free(r.collective);
    return status;
}
