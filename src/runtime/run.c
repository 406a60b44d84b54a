/* The step loop: instructions in order. Nothing is allocated here. */
#include "runtime/program.h"

#include "base/log.h"
#include "runtime/convert.h"

#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5, CHUNK = 256 };

/* ---- guard mode ---------------------------------------------------------------------------- */

/* The arena buffer that `value` lies in; NULL if it is elsewhere. */
static char *arena_buffer(const weft_program *p, int32_t root)
{
    const weft_place *place = &p->plan.place[root];
    return place->region == WEFT_REGION_ARENA ? p->arena + place->offset : NULL;
}

/* Buffers that begin at this node: not a number everywhere, so that reading what nobody wrote
 * shows; margins with a pattern. */
static void lay_guards(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->graph, code->node);
    for (int o = 0; o < node->out_count; o++) {
        const int32_t root =
            weft_value_ok(node->out[o]) ? weft_memory_plan_root(&p->plan, node->out[o].id) : -1;
        char *at = root >= 0 ? arena_buffer(p, root) : NULL;
        if (!at || p->plan.place[root].first != code->node)
            continue;
        const int64_t bytes = p->plan.place[root].bytes;
        memset(at - GUARD, GUARD_BYTE, GUARD);
        memset(at, 0xff, (size_t)bytes);
        memset(at + bytes, GUARD_BYTE, GUARD);
    }
    if (code->kind == INSTR_KERNEL)
        memset((char *)code->args.workspace + code->workspace_bytes, GUARD_BYTE, GUARD);
}

static bool intact(const char *at)
{
    for (int i = 0; i < GUARD; i++)
        if ((unsigned char)at[i] != GUARD_BYTE)
            return false;
    return true;
}

static weft_status check_guards(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->graph, code->node);
    for (int i = 0; i < node->in_count + node->out_count; i++) {
        const weft_value v = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        if (!weft_value_ok(v))
            continue;
        const int32_t root = weft_memory_plan_root(&p->plan, v.id);
        const char *at = arena_buffer(p, root);
        if (at && (!intact(at - GUARD) || !intact(at + p->plan.place[root].bytes)))
            return weft_fail(WEFT_E_INTERNAL, "bytes beside %%%d were written", (int)v.id);
    }
    if (code->kind == INSTR_KERNEL && !intact((char *)code->args.workspace + code->workspace_bytes))
        return weft_fail(WEFT_E_INTERNAL, "bytes behind the workspace (%lld bytes) were written",
                         (long long)code->workspace_bytes);
    return WEFT_OK;
}

/* ---- ref: between the graph's types and f64 ------------------------------------------------ */

/* Takes over what the store holds, but keeps the f64 value of which it holds the rounding. */
static void refresh_source(double *wide, const char *stored, weft_dtype dtype, int64_t count)
{
    const int64_t e = weft_dtype_bytes(dtype);
    char rounded[CHUNK * 8];
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        weft_convert(rounded, dtype, wide + at, WEFT_F64, n);
        for (int64_t i = 0; i < n; i++)
            if (memcmp(rounded + i * e, stored + (at + i) * e, (size_t)e) != 0)
                weft_convert(wide + at + i, WEFT_F64, stored + (at + i) * e, dtype, 1);
    }
}

static void widen_inputs(weft_program *p)
{
    for (int32_t v = 0; v < p->plan.count; v++) {
        const weft_tensor *tensor = p->stored[v];
        if (tensor && p->source_offset[v] >= 0)
            refresh_source(p->view[v].data, tensor->data, tensor->dtype,
                           weft_shape_count(&tensor->shape));
    }
    for (int i = 0; i < p->input_count; i++) {
        const port *at = &p->input[i];
        if (at->offset >= 0)
            weft_convert(p->view[at->value].data, WEFT_F64, at->tensor[0].data, at->tensor[0].dtype,
                         weft_shape_count(&at->tensor[0].shape));
    }
}

static void narrow_outputs(weft_program *p)
{
    for (int i = 0; i < p->update_count; i++) {
        const update *u = &p->update[i];
        if (p->source_offset[u->source] >= 0)
            weft_convert(u->tensor->data, u->tensor->dtype, p->view[u->source].data, WEFT_F64,
                         weft_shape_count(&u->tensor->shape));
    }
    for (int i = 0; i < p->output_count; i++) {
        const port *at = &p->output[i];
        if (at->offset >= 0)
            weft_convert(at->tensor[0].data, at->tensor[0].dtype, p->view[at->value].data, WEFT_F64,
                         weft_shape_count(&at->tensor[0].shape));
    }
}

/* ---- instructions -------------------------------------------------------------------------- */

static void slice_own(const instruction *code)
{
    const weft_view *in = code->args.in, *out = code->args.out;
    const int dim = ((const weft_attr_comm *)code->args.attr)->dim;
    int64_t outer = 1, inner = weft_dtype_bytes(in->dtype);
    for (int d = 0; d < dim; d++)
        outer *= in->shape.dim[d];
    for (int d = dim + 1; d < in->shape.rank; d++)
        inner *= in->shape.dim[d];
    const int64_t from = in->shape.dim[dim] * inner, to = out->shape.dim[dim] * inner;
    for (int64_t i = 0; i < outer && to; i++)
        memcpy((char *)out->data + i * to,
               (const char *)in->data + i * from + code->slice_start * inner, (size_t)to);
}

static weft_status run_instruction(const instruction *code)
{
    switch (code->kind) {
    case INSTR_KERNEL: return code->kernel->run(&code->args);
    case INSTR_SLICE: slice_own(code); return WEFT_OK;
    case INSTR_START: weft_exchange_start(code->exchange); return WEFT_OK;
    case INSTR_JOIN: return WEFT_OK;
    case INSTR_WAIT: return weft_exchange_wait(code->exchange);
    }
    return WEFT_OK;
}

static weft_status run_code(weft_program *p)
{
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        const double begin = p->seconds ? weft_now() : 0;
        if (p->options.guard && code->kind != INSTR_WAIT)
            lay_guards(p, code);
        weft_status_code status = run_instruction(code);
        if (status == WEFT_OK && p->options.guard && code->kind != INSTR_START &&
            code->kind != INSTR_JOIN)
            status = check_guards(p, code);
        if (p->seconds) {
            p->begin[i] = begin;
            p->end[i] = weft_now();
            p->seconds[code->node] += p->end[i] - begin;
        }
        if (status == WEFT_E_COMM)
            return status;
        if (status != WEFT_OK) {
            const weft_node *node = weft_graph_node(p->graph, code->node);
            return weft_fail_context(
                status, "node %d, %s%s%s", (int)code->node, weft_op_get(node->op)->name,
                node->scope && node->scope[0] ? " of " : "", node->scope ? node->scope : "");
        }
    }
    return WEFT_OK;
}

/* New values of sources that were not made in place. Done after all nodes, so that old values were
 * read. */
static void copy_updates(weft_program *p)
{
    for (int i = 0; i < p->update_count; i++) {
        const update *u = &p->update[i];
        const weft_view *source = &p->view[u->source];
        if (!u->in_place)
            memcpy(source->data, p->view[u->value].data,
                   (size_t)(weft_shape_count(&source->shape) * weft_dtype_bytes(source->dtype)));
    }
}

weft_status weft_program_run(weft_program *p)
{
    if (!p->memory)
        return weft_fail(WEFT_E_ARG, "the program must be bound to a store before it runs");
    if (p->f64)
        widen_inputs(p);
    const weft_status_code status = run_code(p);
    if (status != WEFT_OK) {
        weft_comm_give_up(p->options.comm);
        return status;
    }
    copy_updates(p);
    if (p->f64)
        narrow_outputs(p);
    p->runs++;
    return WEFT_OK;
}
