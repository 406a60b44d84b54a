/* The step loop: instructions in order. Nothing is allocated here. */
#include "exec/execute.h"

#include "base/interrupt.h"
#include "comm/comm_request.h"
#include "exec/captured_code.h"
#include "exec/program_internal.h"
#include "graph/graph.h"
#include "kernel/device.h"
#include "kernel/host.h"

#include <stdio.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* ---- guard mode ---------------------------------------------------------------------------- */

/* The arena buffer of `root`; NULL: not in the arena. */
static char *arena_buffer(const weft_program *p, int32_t root)
{
    const weft_allocation *allocation = &p->compiled->plan.allocation[root];
    return allocation->region == WEFT_REGION_ARENA ? p->binding.arena + allocation->offset : NULL;
}

/* Fills buffers that begin at this node with NaN, so that reads of unwritten data show, and their
 * margins with a pattern. */
static void lay_guards(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, code->node);
    for (int o = 0; o < node->out_count; o++) {
        const int32_t root = weft_value_ok(node->out[o])
                                 ? weft_memory_plan_root(&p->compiled->plan, node->out[o].id)
                                 : -1;
        char *at = root >= 0 ? arena_buffer(p, root) : NULL;
        if (!at || p->compiled->plan.allocation[root].first != code->node)
            continue;
        const int64_t bytes = p->compiled->plan.allocation[root].bytes;
        p->device->fill(p->binding.stream, at - GUARD, GUARD_BYTE, GUARD);
        p->device->fill(p->binding.stream, at, 0xff, bytes);
        p->device->fill(p->binding.stream, at + bytes, GUARD_BYTE, GUARD);
    }
    if (code->kind == INSTR_KERNEL)
        p->device->fill(p->binding.stream, (char *)code->args.workspace + code->workspace_bytes,
                        GUARD_BYTE, GUARD);
}

static bool intact(const weft_program *p, const char *at)
{
    unsigned char own[GUARD], *bytes = own;
    if (weft_device_is_apart(p->device)) {
        bytes = (unsigned char *)p->binding.ports + p->compiled->areas.ports_bytes;
        p->device->host_copy(p->binding.stream, bytes, at, GUARD);
    } else {
        p->device->copy(p->binding.stream, bytes, at, (weft_rows){1, GUARD, GUARD, GUARD});
    }
    bool same = p->device->wait(p->binding.stream) == WEFT_OK;
    for (int i = 0; i < GUARD; i++)
        same = same && bytes[i] == GUARD_BYTE;
    return same;
}

static weft_status check_guards(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, code->node);
    for (int i = 0; i < node->in_count + node->out_count; i++) {
        const weft_value v = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        if (!weft_value_ok(v))
            continue;
        const int32_t root = weft_memory_plan_root(&p->compiled->plan, v.id);
        const char *at = arena_buffer(p, root);
        if (at &&
            (!intact(p, at - GUARD) || !intact(p, at + p->compiled->plan.allocation[root].bytes)))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "bytes next to the memory of %%%d were written", (int)v.id);
    }
    if (code->kind == INSTR_KERNEL &&
        !intact(p, (char *)code->args.workspace + code->workspace_bytes))
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "bytes after the workspace of %" PRId64 " bytes were written",
                          code->workspace_bytes);
    return WEFT_OK;
}

/* ---- ports and sources apart from the storage ---------------------------------------------- */

static int64_t port_bytes(const weft_tensor *tensor)
{
    return weft_shape_count(&tensor->shape) * weft_dtype_bytes(tensor->dtype);
}

/* Copies the inputs from pinned memory. */
static void send_inputs(weft_program *p)
{
    for (int i = 0; i < p->compiled->ports.inputs; i++) {
        const port *at = &p->compiled->ports.input[i];
        p->device->host_copy(p->binding.stream, p->compiled->view[at->value].data,
                             at->tensor[0].data, port_bytes(&at->tensor[0]));
    }
}

/* Copies the outputs to pinned memory. */
static void fetch_outputs(weft_program *p)
{
    for (int i = 0; i < p->compiled->ports.outputs; i++) {
        const port *at = &p->compiled->ports.output[i];
        p->device->host_copy(p->binding.stream, at->tensor[0].data,
                             p->compiled->view[at->value].data, port_bytes(&at->tensor[0]));
    }
}

/* ref: between the graph's types and f64. */

static void widen_inputs(weft_program *p)
{
    for (int32_t v = 0; v < p->compiled->plan.count; v++) {
        const weft_tensor *tensor = p->binding.stored[v];
        if (tensor && p->compiled->source_offset[v] >= 0)
            p->backend->refresh(p->compiled->view[v].data, tensor->data, tensor->dtype,
                                weft_shape_count(&tensor->shape));
    }
    for (int i = 0; i < p->compiled->ports.inputs; i++) {
        const port *at = &p->compiled->ports.input[i];
        if (at->offset >= 0)
            p->device->convert(p->binding.stream, p->compiled->view[at->value].data, WEFT_F64,
                               at->tensor[0].data, at->tensor[0].dtype,
                               weft_shape_count(&at->tensor[0].shape));
    }
}

static void narrow(weft_program *p, const weft_tensor *to, int32_t from)
{
    p->device->convert(p->binding.stream, to->data, to->dtype, p->compiled->view[from].data,
                       WEFT_F64, weft_shape_count(&to->shape));
}

static void narrow_outputs(weft_program *p)
{
    for (int i = 0; i < p->compiled->update_count; i++)
        if (p->compiled->source_offset[p->compiled->update[i].source] >= 0)
            narrow(p, p->compiled->update[i].tensor, p->compiled->update[i].source);
    for (int i = 0; i < p->compiled->ports.outputs; i++)
        if (p->compiled->ports.output[i].offset >= 0)
            narrow(p, &p->compiled->ports.output[i].tensor[0], p->compiled->ports.output[i].value);
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
    p->device->copy(p->binding.stream, out->data,
                    (const char *)in->data + code->slice_start * inner, rows);
}

/* A twin's code has no stream, so this sets it. */
static weft_status run_shared(const weft_program *p, const instruction *code)
{
    weft_kernel_args args = code->args;
    args.stream = p->binding.stream;
    return code->kernel->run(&args);
}

/* Names the node of the work that follows, for errors that appear after the call. */
static void mark_node(const weft_program *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, n);
    p->device->mark(p->binding.stream, n, weft_op_get(node->op)->name, node->scope);
}

static weft_status run_instruction(const weft_program *p, const instruction *code)
{
    if (p->device->mark)
        mark_node(p, code->node);
    switch (code->kind) {
    case INSTR_KERNEL: return p->like ? run_shared(p, code) : code->kernel->run(&code->args);
    case INSTR_SLICE: slice_own(p, code); return WEFT_OK;
    case INSTR_START: /* the data to send must be complete */
        return weft_comm_request_start_after(weft_program_exchange(p, code), p->binding.stream);
    case INSTR_JOIN: return WEFT_OK;
    case INSTR_COPY: /* the source must be complete, and the target unused */
        return weft_copy_engine_start(p->binding.shared->copies, code->copy, p->binding.stream);
    case INSTR_COPY_WAIT:
        return weft_copy_engine_wait(p->binding.shared->copies, code->copy, p->binding.stream);
    case INSTR_WAIT:
        return weft_device_is_apart(p->device)
                   ? weft_comm_request_hold(weft_program_exchange(p, code), p->binding.stream)
                   : weft_comm_request_wait(weft_program_exchange(p, code));
    }
    return WEFT_OK;
}

static weft_status run_guarded(const weft_program *p, const instruction *code)
{
    const weft_program_options *o = &p->compiled->options;
    if (o->observe && code->kind == INSTR_KERNEL)
        o->observe(o->observe_user, p->compiled->graph,
                   weft_graph_node(p->compiled->graph, code->node), &code->args);
    if (p->compiled->options.guard && code->kind != INSTR_WAIT && code->kind != INSTR_COPY_WAIT)
        lay_guards(p, code);
    WEFT_TRY(run_instruction(p, code));
    return p->compiled->options.guard && code->kind != INSTR_START && code->kind != INSTR_JOIN &&
                   code->kind != INSTR_COPY
               ? check_guards(p, code)
               : WEFT_OK;
}

/* Calls `written` for updates from *next that no instruction after `at` accesses. */
static weft_status notify_written(const weft_program *p, int32_t at, int *next)
{
    if (*next == p->compiled->update_count || p->compiled->update[p->run.in_order[*next]].last > at)
        return WEFT_OK;
    if (!weft_device_is_apart(p->device)) /* the callback's work follows on the stream */
        WEFT_TRY(p->device->wait(p->binding.stream));
    for (; *next < p->compiled->update_count &&
           p->compiled->update[p->run.in_order[*next]].last <= at;
         (*next)++)
        p->run.written(p->run.written_user, p->compiled->update[p->run.in_order[*next]].tensor);
    return WEFT_OK;
}

/* Work that is not resumed ends before its next instruction. An error of a program with a group
 * aborts the group, which later work needs, so such a program runs to its end. */
static weft_status check_discarded(const weft_program *p)
{
    return weft_interrupt_ends_programs() && !p->binding.base ? weft_interrupt_check() : WEFT_OK;
}

static weft_status run_code(weft_program *p, int *notified)
{
    for (int32_t i = 0, end; i < p->compiled->code_count; i++) {
        const instruction *code = &p->compiled->code[i];
        WEFT_TRY(check_discarded(p));
        WEFT_TRY(weft_captured_run(p, i, run_instruction, &end));
        if (end > i) {
            i = end - 1;
            continue;
        }
        weft_event *moment = p->run.moment ? &p->run.moment[2 * i] : NULL;
        if (moment)
            WEFT_TRY(p->device->record(p->binding.stream, &moment[0]));
        const weft_status_code status = run_guarded(p, code);
        if (status == WEFT_E_COMM)
            return status;
        if (status != WEFT_OK) {
            const weft_node *node = weft_graph_node(p->compiled->graph, code->node);
            char where[256];
            snprintf(where, sizeof where, "node %d, %s%s%s", (int)code->node,
                     weft_op_get(node->op)->name, node->scope && node->scope[0] ? " of " : "",
                     node->scope ? node->scope : "");
            return weft_error_at(status, WEFT_AT(.key = where));
        }
        if (moment)
            WEFT_TRY(p->device->record(p->binding.stream, &moment[1]));
        if (p->run.written)
            WEFT_TRY(notify_written(p, i, notified));
    }
    return WEFT_OK;
}

static weft_status read_profile(weft_program *p)
{
    for (int32_t i = 0; i < p->compiled->code_count && p->run.moment; i++) {
        weft_event *moment = &p->run.moment[2 * i];
        WEFT_TRY(p->device->await(p->binding.stream, &moment[0]));
        WEFT_TRY(p->device->await(p->binding.stream, &moment[1]));
        p->run.begin[i] = moment[0].seconds;
        p->run.end[i] = moment[1].seconds;
        p->run.seconds[p->compiled->code[i].node] += p->run.end[i] - p->run.begin[i];
    }
    return WEFT_OK;
}

static weft_status read_copy_times(const weft_program *p)
{
    for (int32_t i = 0; i < p->compiled->code_count && p->binding.shared->copies; i++)
        if (p->compiled->code[i].kind == INSTR_COPY_WAIT)
            WEFT_TRY(weft_copy_engine_time(p->binding.shared->copies, p->compiled->code[i].copy,
                                           p->binding.stream));
    return WEFT_OK;
}

/* Copies the updates that are not in place. Runs after all nodes, because nodes read the old
 * values. */
static void copy_updates(weft_program *p)
{
    for (int i = 0; i < p->compiled->update_count; i++) {
        const update *u = &p->compiled->update[i];
        const weft_view *source = &p->compiled->view[u->source];
        const int64_t bytes = weft_shape_count(&source->shape) * weft_dtype_bytes(source->dtype);
        if (!u->in_place)
            p->device->copy(p->binding.stream, source->data, p->compiled->view[u->value].data,
                            (weft_rows){1, bytes, bytes, bytes});
    }
}

/* Whether a run may end later than its call. */
static bool may_launch(const weft_program *p)
{
    return weft_device_is_apart(p->device) && !p->run.moment && !p->run.written &&
           !p->binding.shared->copies && !p->compiled->options.guard;
}

/* Waits for the work of a run, and returns its error. A failed collective has opened its
 * gate without the received values, so its error comes before errors of kernels. */
static weft_status await_end(const weft_program *p)
{
    const weft_status_code status = p->device->wait(p->binding.stream);
    for (int32_t i = 0; i < p->compiled->code_count && weft_device_is_apart(p->device); i++) {
        if (p->compiled->code[i].kind != INSTR_START)
            continue;
        weft_comm_request *x = weft_program_exchange(p, &p->compiled->code[i]);
        if (status != WEFT_OK && !weft_comm_request_failed(x))
            continue;
        WEFT_TRY(weft_comm_request_wait(x));
    }
    return status;
}

/* `finish`: waits for the end. */
static weft_status run_all(weft_program *p, bool finish)
{
    int notified = 0;
    weft_shared_arena *shared = p->binding.shared;
    if (!p->binding.compared)
        WEFT_TRY(weft_program_compare(p));
    if (shared->pending)
        p->device->after(p->binding.stream, &shared->done);
    if (weft_compiled_is_wide(p->compiled))
        widen_inputs(p);
    if (weft_device_is_apart(p->device))
        send_inputs(p);
    if (!finish)
        WEFT_TRY(p->device->record(p->binding.stream, &p->run.sent));
    WEFT_TRY(run_code(p, &notified));
    copy_updates(p);
    if (weft_compiled_is_wide(p->compiled))
        narrow_outputs(p);
    if (weft_device_is_apart(p->device))
        fetch_outputs(p);
    p->run.launched = shared->pending = !finish;
    if (!finish)
        return p->device->record(p->binding.stream, &shared->done);
    WEFT_TRY(await_end(p)); /* the outputs are read after this */
    WEFT_TRY(read_copy_times(p));
    if (p->run.written)
        WEFT_TRY(notify_written(p, p->compiled->code_count, &notified));
    return read_profile(p);
}

/* Waits after an error, so that no work accesses memory that is released. */
static void finish_work(const weft_program *p)
{
    weft_error_copy *error = weft_error_save();
    if (weft_device_is_apart(p->device))
        (void)p->device->wait(p->binding.stream);
    if (p->binding.shared->copies)
        weft_copy_engine_finish(p->binding.shared->copies);
    (void)weft_error_restore(error);
    weft_free(error);
}

static void abort_comm(const weft_program *p)
{
    weft_error_copy *error = weft_error_save();
    if (p->binding.base)
        weft_comm_abort(weft_group_comm(p->binding.base));
    (void)weft_error_restore(error);
    weft_free(error);
}

static weft_status fail(weft_program *p, weft_status_code status)
{
    const bool apart = weft_device_is_apart(p->device);
    if (apart) /* the stream may wait for other ranks */
        abort_comm(p);
    finish_work(p);
    if (!apart)
        abort_comm(p);
    return status;
}

static weft_status run(weft_program *p, bool finish)
{
    if (!p->binding.memory)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "the program must be bound to a store before it runs");
    const int before = weft_host_set_threads(p->compiled->threads);
    const weft_status_code status = run_all(p, finish);
    weft_host_set_threads(before);
    if (status != WEFT_OK)
        return fail(p, status);
    p->run.runs++;
    return WEFT_OK;
}

weft_status weft_program_run(weft_program *p)
{
    WEFT_TRY(weft_program_finish(p));
    return run(p, true);
}

weft_status weft_program_launch(weft_program *p)
{
    return run(p, !p->binding.memory || !may_launch(p));
}

void weft_program_settle(weft_program *p)
{
    if (!p->run.launched)
        return;
    p->run.launched = false;
    if (await_end(p) != WEFT_OK)
        p->run.failed = weft_error_save();
}

weft_status weft_program_finish(weft_program *p)
{
    weft_program_settle(p);
    if (!p->run.failed)
        return WEFT_OK;
    const weft_status_code status = weft_error_restore(p->run.failed);
    weft_free(p->run.failed);
    p->run.failed = NULL;
    return fail(p, status);
}

weft_device_stream *weft_program_stream(const weft_program *p)
{
    return p->binding.stream;
}
