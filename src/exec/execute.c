/* The step loop: instructions in order. Nothing is allocated here. */
#include "runtime/program.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

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
        p->device->fill(p->stream, at - GUARD, GUARD_BYTE, GUARD);
        p->device->fill(p->stream, at, 0xff, bytes);
        p->device->fill(p->stream, at + bytes, GUARD_BYTE, GUARD);
    }
    if (code->kind == INSTR_KERNEL)
        p->device->fill(p->stream, (char *)code->args.workspace + code->workspace_bytes, GUARD_BYTE,
                        GUARD);
}

static bool intact(const weft_program *p, const char *at)
{
    unsigned char bytes[GUARD];
    p->device->copy(p->stream, bytes, at, (weft_rows){1, GUARD, GUARD, GUARD});
    bool same = p->device->wait(p->stream) == WEFT_OK;
    for (int i = 0; i < GUARD; i++)
        same = same && bytes[i] == GUARD_BYTE;
    return same;
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
        if (at && (!intact(p, at - GUARD) || !intact(p, at + p->plan.place[root].bytes)))
            return weft_fail(WEFT_E_INTERNAL, "bytes beside %%%d were written", (int)v.id);
    }
    if (code->kind == INSTR_KERNEL &&
        !intact(p, (char *)code->args.workspace + code->workspace_bytes))
        return weft_fail(WEFT_E_INTERNAL, "bytes behind the workspace (%lld bytes) were written",
                         (long long)code->workspace_bytes);
    return WEFT_OK;
}

/* ---- ref: between the graph's types and f64 ------------------------------------------------ */

static void widen_inputs(weft_program *p)
{
    for (int32_t v = 0; v < p->plan.count; v++) {
        const weft_tensor *tensor = p->stored[v];
        if (tensor && p->source_offset[v] >= 0)
            p->backend->refresh(p->view[v].data, tensor->data, tensor->dtype,
                                weft_shape_count(&tensor->shape));
    }
    for (int i = 0; i < p->input_count; i++) {
        const port *at = &p->input[i];
        if (at->offset >= 0)
            p->device->convert(p->stream, p->view[at->value].data, WEFT_F64, at->tensor[0].data,
                               at->tensor[0].dtype, weft_shape_count(&at->tensor[0].shape));
    }
}

static void narrow(weft_program *p, const weft_tensor *to, int32_t from)
{
    p->device->convert(p->stream, to->data, to->dtype, p->view[from].data, WEFT_F64,
                       weft_shape_count(&to->shape));
}

static void narrow_outputs(weft_program *p)
{
    for (int i = 0; i < p->update_count; i++)
        if (p->source_offset[p->update[i].source] >= 0)
            narrow(p, p->update[i].tensor, p->update[i].source);
    for (int i = 0; i < p->output_count; i++)
        if (p->output[i].offset >= 0)
            narrow(p, &p->output[i].tensor[0], p->output[i].value);
}

/* ---- instructions -------------------------------------------------------------------------- */

static void slice_own(const weft_program *p, const instruction *code)
{
    const weft_view *in = code->args.in, *out = code->args.out;
    const int dim = ((const weft_attr_comm *)code->args.attr)->dim;
    weft_rows rows = {.rows = 1};
    int64_t inner = weft_dtype_bytes(in->dtype);
    for (int d = 0; d < dim; d++)
        rows.rows *= in->shape.dim[d];
    for (int d = dim + 1; d < in->shape.rank; d++)
        inner *= in->shape.dim[d];
    rows.from = in->shape.dim[dim] * inner;
    rows.to = rows.row = out->shape.dim[dim] * inner;
    p->device->copy(p->stream, out->data, (const char *)in->data + code->slice_start * inner, rows);
}

/* A twin's code names no stream. */
static weft_status run_shared(const weft_program *p, const instruction *code)
{
    weft_kernel_args args = code->args;
    args.stream = p->stream;
    return code->kernel->run(&args);
}

static weft_status run_instruction(const weft_program *p, const instruction *code)
{
    switch (code->kind) {
    case INSTR_KERNEL: return p->like ? run_shared(p, code) : code->kernel->run(&code->args);
    case INSTR_SLICE: slice_own(p, code); return WEFT_OK;
    case INSTR_START: /* what it sends must be there */
        WEFT_TRY(p->device->wait(p->stream));
        weft_exchange_start(weft_program_exchange(p, code));
        return WEFT_OK;
    case INSTR_JOIN: return WEFT_OK;
    case INSTR_MOVE: /* likewise, and where it goes nobody is at work any more */
        WEFT_TRY(p->device->wait(p->stream));
        weft_mover_start(p->passing->mover, code->move);
        return WEFT_OK;
    case INSTR_MOVED: return weft_mover_wait(p->passing->mover, code->move);
    case INSTR_WAIT: return weft_exchange_wait(weft_program_exchange(p, code));
    }
    return WEFT_OK;
}

static weft_status run_guarded(const weft_program *p, const instruction *code)
{
    if (p->options.guard && code->kind != INSTR_WAIT && code->kind != INSTR_MOVED)
        lay_guards(p, code);
    WEFT_TRY(run_instruction(p, code));
    return p->options.guard && code->kind != INSTR_START && code->kind != INSTR_JOIN &&
                   code->kind != INSTR_MOVE
               ? check_guards(p, code)
               : WEFT_OK;
}

/* Updates from *next on that nothing behind instruction `at` touches. */
static weft_status tell_written(const weft_program *p, int32_t at, int *next)
{
    if (*next == p->update_count || p->update[p->in_order[*next]].last > at)
        return WEFT_OK;
    WEFT_TRY(p->device->wait(p->stream));
    for (; *next < p->update_count && p->update[p->in_order[*next]].last <= at; (*next)++)
        p->written(p->written_user, p->update[p->in_order[*next]].tensor);
    return WEFT_OK;
}

static weft_status run_code(weft_program *p, int *told)
{
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        weft_event *moment = p->moment ? &p->moment[2 * i] : NULL;
        if (moment)
            WEFT_TRY(p->device->record(p->stream, &moment[0]));
        const weft_status_code status = run_guarded(p, code);
        if (status == WEFT_E_COMM)
            return status;
        if (status != WEFT_OK) {
            const weft_node *node = weft_graph_node(p->graph, code->node);
            return weft_fail_context(
                status, "node %d, %s%s%s", (int)code->node, weft_op_get(node->op)->name,
                node->scope && node->scope[0] ? " of " : "", node->scope ? node->scope : "");
        }
        if (moment)
            WEFT_TRY(p->device->record(p->stream, &moment[1]));
        if (p->written)
            WEFT_TRY(tell_written(p, i, told));
    }
    return WEFT_OK;
}

static weft_status read_profile(weft_program *p)
{
    for (int32_t i = 0; i < p->code_count && p->moment; i++) {
        weft_event *moment = &p->moment[2 * i];
        WEFT_TRY(p->device->await(p->stream, &moment[0]));
        WEFT_TRY(p->device->await(p->stream, &moment[1]));
        p->begin[i] = moment[0].seconds;
        p->end[i] = moment[1].seconds;
        p->seconds[p->code[i].node] += p->end[i] - p->begin[i];
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
        const int64_t bytes = weft_shape_count(&source->shape) * weft_dtype_bytes(source->dtype);
        if (!u->in_place)
            p->device->copy(p->stream, source->data, p->view[u->value].data,
                            (weft_rows){1, bytes, bytes, bytes});
    }
}

static weft_status run_all(weft_program *p)
{
    int told = 0;
    if (p->wide)
        widen_inputs(p);
    WEFT_TRY(run_code(p, &told));
    copy_updates(p);
    if (p->wide)
        narrow_outputs(p);
    WEFT_TRY(p->device->wait(p->stream));
    if (p->written)
        WEFT_TRY(tell_written(p, p->code_count, &told));
    return read_profile(p);
}

weft_status weft_program_run(weft_program *p)
{
    if (!p->memory)
        return weft_fail(WEFT_E_ARG, "the program must be bound to a store before it runs");
    const int before = weft_host_set_threads(p->threads);
    weft_status_code status = p->compared ? WEFT_OK : weft_program_compare(p);
    if (status == WEFT_OK)
        status = run_all(p);
    weft_host_set_threads(before);
    if (status != WEFT_OK && p->passing->mover) /* nobody writes here when the memory goes */
        weft_mover_finish(p->passing->mover);
    if (status != WEFT_OK) {
        if (p->base)
            weft_comm_give_up(weft_group_comm(p->base));
        return status;
    }
    p->runs++;
    return WEFT_OK;
}
