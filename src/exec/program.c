/* Creating a program, and binding it to memory and to a store. */
#include "exec/program.h"

#include "exec/program_internal.h"

#include "comm/comm_check.h"
#include "comm/comm_link.h"
#include "comm/comm_request.h"
#include "exec/captured_code.h"
#include "exec/execute.h"
#include "exec/offload_memory.h"
#include "exec/store/tensor_shard.h"
#include "graph/graph.h"
#include "kernel/device.h"
#include "kernel/host.h"

#include <stdio.h>
#include <string.h>

enum { GUARD = 64 };

/* ---- create -------------------------------------------------------------------------------- */

static weft_status create_coalesced(weft_program *p, int32_t last, const char *what)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, last);
    const weft_dtype dtype = p->compiled->view[node->in[0].id].dtype;
    int64_t count[WEFT_COMM_BUNDLE_PIECES];
    int pieces = 0;
    for (int32_t n = last; n >= 0; n = p->compiled->joined[n])
        count[pieces++] = weft_shape_count(
            &p->compiled->view[weft_graph_node(p->compiled->graph, n)->in[0].id].shape);
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(&p->compiled->mesh, p->rank, at);
    char text[128];
    snprintf(text, sizeof text, "%s and %d more", what, pieces - 1);
    return weft_comm_request_create_bundle(p->compiled->mesh.axis[axis].size, at[axis], dtype,
                                           count, pieces, text, &p->binding.request[last]);
}

static weft_status create_request(weft_program *p, int32_t n, const char *what)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, n);
    const weft_attr_comm *attr = node->attr;
    const weft_view *in = &p->compiled->view[node->in[0].id],
                    *out = &p->compiled->view[node->out[0].id];
    int at[WEFT_MAX_AXES];
    if (attr->axis < 0 || attr->axis >= p->compiled->mesh.axis_count)
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(.key = what, WEFT_NUMBER(attr->axis)),
                          "axis %d does not exist; the mesh has %d axes", attr->axis,
                          p->compiled->mesh.axis_count);
    weft_mesh_coordinates(&p->compiled->mesh, p->rank, at);
    return weft_comm_request_create(p->compiled->mesh.axis[attr->axis].size, at[attr->axis],
                                    node->op, attr, &in->shape, &out->shape, in->dtype, what,
                                    &p->binding.request[n]);
}

static weft_status create_exchange(weft_program *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, n);
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    char what[128];
    snprintf(what, sizeof what, "%%%d%s%.64s on axis %s", (int)node->out[0].id,
             node->scope[0] ? " of " : "", node->scope,
             axis >= 0 && axis < p->compiled->mesh.axis_count ? p->compiled->mesh.axis[axis].name
                                                              : "?");
    if (p->compiled->joined[n] >= 0)
        WEFT_TRY(create_coalesced(p, n, what));
    else
        WEFT_TRY(create_request(p, n, what));
    return p->device->meta ? weft_comm_request_cut(p->binding.request[n], WEFT_COMM_WIDE) : WEFT_OK;
}

static void raise_to(int64_t *most, int64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

/* Creates the requests, and adds their scratch and pinned memory to the areas. */
static weft_status create_requests(weft_program *p, weft_program_areas *areas)
{
    const weft_compiled *c = p->compiled;
    const bool apart = weft_device_is_apart(p->device);
    int32_t gates = 0;
    for (int32_t i = 0; i < c->code_count; i++) {
        const int32_t n = c->code[i].node;
        if (c->code[i].kind != INSTR_START)
            continue;
        WEFT_TRY(create_exchange(p, n));
        const int axis = ((const weft_attr_comm *)weft_graph_node(c->graph, n)->attr)->axis;
        raise_to(&areas->scratch_bytes[axis][c->channel[n]],
                 weft_aligned(weft_comm_request_scratch(p->binding.request[n])));
        if (apart)
            raise_to(&areas->wire_bytes[axis][c->channel[n]],
                     weft_aligned(weft_comm_request_pinned(p->binding.request[n])));
        c->code[i].gate = gates++;
    }
    areas->gate_bytes = apart ? weft_aligned(gates * (int64_t)sizeof(uint32_t)) : 0;
    return WEFT_OK;
}

static bool is_slot(const weft_node *node)
{
    return weft_op_has(node->op, WEFT_TRAIT_PERSISTENT) &&
           ((const weft_attr_source *)node->attr)->slot;
}

static weft_status make_slots(weft_program *p)
{
    const int32_t nodes = weft_graph_node_count(p->compiled->graph);
    int count = 0;
    for (int32_t n = 0; n < nodes; n++)
        count += is_slot(weft_graph_node(p->compiled->graph, n));
    WEFT_TRY(WEFT_ARENA_NEW(p->meta, p->binding.slot, count + 1, "compiling a program"));
    for (int32_t n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(p->compiled->graph, n);
        if (!is_slot(node))
            continue;
        p->binding.slot[p->binding.slot_count] = weft_tensor_of(p->compiled->graph, node->out[0]);
        p->binding.stored[node->out[0].id] = &p->binding.slot[p->binding.slot_count++];
    }
    return WEFT_OK;
}

static weft_status make_tables(weft_program *p)
{
    const weft_graph *g = p->compiled->graph;
    const bool profile = p->compiled->options.profile;
    const int64_t values = weft_graph_value_count(g), nodes = weft_graph_node_count(g);
    weft_binding *b = &p->binding;
    weft_run_state *r = &p->run;
    b->stored = weft_arena_calloc(p->meta, values, sizeof *b->stored);
    b->constant = weft_arena_calloc(p->meta, values, sizeof *b->constant);
    b->request = weft_arena_calloc(p->meta, nodes, sizeof *b->request);
    b->cache = weft_arena_calloc(p->meta, nodes, sizeof *b->cache);
    if (profile) {
        r->seconds = weft_arena_calloc(p->meta, nodes, sizeof *r->seconds);
        r->begin = weft_arena_calloc(p->meta, 4 * nodes, sizeof *r->begin);
        r->end = r->begin ? r->begin + 2 * nodes : NULL;
        r->moment = weft_arena_calloc(p->meta, 4 * nodes, sizeof *r->moment);
    }
    return WEFT_ALLOCATED(b->stored && b->constant && b->request && b->cache &&
                              (!profile || (r->seconds && r->begin && r->moment)),
                          "compiling a program");
}

static weft_status compile(const weft_graph *graph, const weft_program_options *options,
                           weft_program **out)
{
    weft_status_code status = WEFT_OK;
    weft_compiled *c;
    weft_program *p;
    WEFT_TRY(WEFT_NEW(p, 1, "compiling a program"));
    p->meta = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(p->meta, "compiling a program"));
    WEFT_GO(weft_compiled_create(graph, options, p->meta, &c));
    p->compiled = c;
    p->rank = c->rank;
    p->backend = c->backend;
    p->device = c->backend->device;
    WEFT_GO(make_tables(p));
    WEFT_GO(make_slots(p));
    WEFT_GO(create_requests(p, &c->areas));
    weft_compiled_lay_out(c);
    *out = p;
    return WEFT_OK;
out:
    weft_program_free(p);
    return status;
}

weft_status weft_program_compile(const weft_graph *graph, const weft_program_options *options,
                                 weft_program **out)
{
    const int before = weft_host_set_threads(options ? options->threads : 0);
    const weft_status_code status = compile(graph, options, out);
    weft_host_set_threads(before);
    return status;
}

/* ---- callbacks of updates ------------------------------------------------------------------ */

static void touch(int32_t *last, const weft_memory_plan *plan, weft_value v, int32_t at)
{
    if (weft_value_ok(v))
        last[weft_memory_plan_root(plan, v.id)] = at;
}

/* Sets last[], by root of a buffer, to the last instruction that accesses the buffer. */
static void find_last(const weft_program *p, int32_t *last)
{
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        const weft_node *node = weft_graph_node(p->compiled->graph, p->compiled->code[i].node);
        for (int k = 0; k < node->in_count; k++)
            touch(last, &p->compiled->plan, node->in[k], i);
        for (int k = 0; k < node->out_count; k++)
            touch(last, &p->compiled->plan, node->out[k], i);
    }
}

/* Counting sort by `last`, stable. */
static void sort_updates(weft_program *p, int32_t *before)
{
    for (int i = 0; i < p->compiled->update_count; i++)
        before[p->compiled->update[i].last + 1]++;
    for (int32_t i = 0; i <= p->compiled->code_count; i++)
        before[i + 1] += before[i];
    for (int i = 0; i < p->compiled->update_count; i++)
        p->run.in_order[before[p->compiled->update[i].last]++] = i;
}

static weft_status order_updates(weft_program *p)
{
    const int64_t i32 = (int64_t)sizeof(int32_t);
    int32_t *last = weft_alloc((p->compiled->plan.count + 1) * i32),
            *before = weft_alloc((p->compiled->code_count + 2) * i32);
    int32_t *in_order = weft_arena_alloc(p->meta, (p->compiled->update_count + 1) * i32);
    if (last && before && in_order) {
        find_last(p, last);
        for (int i = 0; i < p->compiled->update_count; i++) {
            update *u = &p->compiled->update[i];
            u->last = u->in_place && !weft_compiled_is_wide(p->compiled) ? last[u->source]
                                                                         : p->compiled->code_count;
        }
        p->run.in_order = in_order;
        sort_updates(p, before);
    }
    weft_free(last);
    weft_free(before);
    return WEFT_ALLOCATED(p->run.in_order, "compiling a program");
}

weft_status weft_program_on_write(weft_program *p, weft_program_written written, void *user)
{
    if (written && !p->run.in_order)
        WEFT_TRY(order_updates(p));
    p->run.written = written;
    p->run.written_user = user;
    return WEFT_OK;
}

const weft_tensor *weft_program_update(const weft_program *p, int i)
{
    return i < p->compiled->update_count ? p->compiled->update[i].tensor : NULL;
}

/* ---- free ---------------------------------------------------------------------------------- */

static void leave_shared(weft_shared_arena *shared)
{
    if (shared && --shared->users == 0) {
        weft_shared_arena_release(shared);
        shared->device->forget(shared->device, &shared->done);
        shared->device->free(shared->device, shared->data);
        if (shared->wire)
            weft_device_free_host(shared->device, shared->wire);
        weft_free(shared);
    }
}

/* Releases kernel caches and constants. Not for twins, which own none. */
static void drop_prepared(weft_program *p)
{
    for (int32_t i = 0; p->binding.cache && i < p->compiled->code_count; i++) {
        void **cache = &p->binding.cache[p->compiled->code[i].node];
        if (*cache)
            p->compiled->code[i].kernel->release(*cache);
        *cache = p->compiled->code[i].args.cache = NULL;
    }
    for (int32_t v = 0; p->binding.constant && v < p->compiled->plan.count; v++) {
        weft_constant_release(p->binding.constant[v]);
        p->binding.constant[v] = NULL;
    }
}

static void forget_events(weft_program *p)
{
    p->device->forget(p->device, &p->run.sent);
    p->run.launched = false;
    weft_free(p->run.failed);
    p->run.failed = NULL;
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        if (p->run.moment) {
            p->device->forget(p->device, &p->run.moment[2 * i]);
            p->device->forget(p->device, &p->run.moment[2 * i + 1]);
        }
        if (p->compiled->code[i].kind == INSTR_COPY)
            weft_copy_request_forget(p->compiled->code[i].copy, p->device);
    }
}

void weft_program_unbind(weft_program *p)
{
    if (!p->like)
        drop_prepared(p);
    if (p->binding.bound)
        p->device->close(p->binding.stream);
    p->binding.stream = NULL;
    weft_captured_drop(p);
    for (int i = 0; i < WEFT_MAX_AXES * WEFT_CHANNEL_COUNT; i++) {
        weft_device_stream **stream =
            &p->binding.comm_stream[i / WEFT_CHANNEL_COUNT][i % WEFT_CHANNEL_COUNT];
        p->device->close(*stream);
        *stream = NULL;
    }
    forget_events(p);
    if (weft_device_is_apart(p->device))
        weft_device_free_host(p->device, p->binding.ports);
    p->device->free(p->device, p->binding.memory);
    p->binding.memory = p->binding.arena = p->binding.ports = NULL;
    p->binding.bound = p->binding.compared = false;
    p->binding.base = NULL;
    leave_shared(p->binding.shared);
    p->binding.shared = NULL;
}

void weft_program_free(weft_program *p)
{
    if (!p)
        return;
    if (p->compiled) {
        const int32_t nodes = weft_graph_node_count(p->compiled->graph);
        for (int32_t n = 0; p->binding.request && n < nodes; n++)
            weft_comm_request_free(p->binding.request[n]);
        weft_program_unbind(p);
        if (!p->like)
            weft_compiled_free((weft_compiled *)(uintptr_t)p->compiled);
    }
    weft_arena_free(p->meta);
    weft_free(p);
}

static bool same_views(const weft_view *a, const weft_view *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].dtype != b[i].dtype || !weft_shape_equal(&a[i].shape, &b[i].shape))
            return false;
    return true;
}

/* True if kernels of both instructions are prepared alike, so that the library shares the code. */
static bool prepares_alike(const instruction *a, const instruction *b)
{
    return a->kind == b->kind && a->args.op == b->args.op && a->args.in_count == b->args.in_count &&
           same_views(a->args.in, b->args.in, a->args.in_count) &&
           same_views(a->args.out, b->args.out, a->args.out_count) &&
           !memcmp(a->args.attr, b->args.attr, (size_t)weft_op_get(a->args.op)->attr_bytes);
}

/* Bytes of the prepared kernels; kernels of equal shapes count once. */
static int64_t prepared_bytes(const weft_compiled *c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->code_count; i++) {
        const instruction *code = &c->code[i];
        bool first = code->kind == INSTR_KERNEL && code->kernel->prepared;
        for (int32_t k = 0; k < i && first; k++)
            first = !prepares_alike(&c->code[k], code);
        bytes += first ? code->kernel->prepared(&code->args) : 0;
    }
    return bytes;
}

int64_t weft_program_own_bytes(const weft_program *p)
{
    const weft_memory_plan *plan = &p->compiled->plan;
    int64_t bytes = (int64_t)sizeof *p + weft_arena_bytes(p->meta) +
                    plan->count * (int64_t)sizeof *plan->allocation +
                    plan->node_count * (int64_t)(sizeof *plan->wait + sizeof *plan->view);
    bytes += prepared_bytes(p->compiled);
    for (int32_t n = 0; n < plan->node_count; n++)
        bytes += p->binding.request[n] ? weft_comm_request_own_bytes(p->binding.request[n]) : 0;
    return bytes;
}

const weft_backend *weft_program_backend(const weft_program *p)
{
    return p->backend;
}

const weft_memory_plan *weft_program_plan(const weft_program *p)
{
    return &p->compiled->plan;
}

/* Returns the size of the shared area, which fits the largest program. */
static int64_t max_shared_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        raise_to(&bytes, programs[i]->compiled->areas.shared_bytes);
    return bytes;
}

/* Returns the size of the shared pinned memory, which fits the messages of every program. */
static int64_t max_wire_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        raise_to(&bytes, programs[i]->compiled->areas.shared_wire_bytes);
    return bytes;
}

/* Bytes of the constants kept in f64; shared ones count once. */
static int64_t constant_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const weft_compiled *c = programs[i]->compiled;
        for (int32_t k = 0; k < c->constants.count; k++) {
            const int32_t value = c->constants.value[k];
            const void *data = weft_compiled_constant(c, value)->data;
            bool counted = false;
            for (int other = 0; other < i && !counted; other++)
                counted = weft_compiled_has_constant(programs[other]->compiled, data);
            bytes += counted ? 0 : weft_aligned(weft_compiled_storage_bytes(c, value));
        }
    }
    return bytes;
}

/* Offset of the gates in the pinned memory. */
static int64_t gates_at(const weft_program *p)
{
    return p->compiled->areas.ports_bytes + (p->compiled->options.guard ? GUARD : 0);
}

/* Bytes of the pinned inputs, outputs and gates; 0: they are in the program's memory. */
static int64_t pinned_bytes(const weft_program *p)
{
    return weft_device_is_apart(p->device) ? gates_at(p) + p->compiled->areas.gate_bytes : 0;
}

int64_t weft_programs_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = max_shared_bytes(programs, count) + max_wire_bytes(programs, count) +
                    constant_bytes(programs, count);
    for (int i = 0; i < count; i++)
        bytes += programs[i]->compiled->areas.memory_bytes + pinned_bytes(programs[i]);
    return bytes;
}

int64_t weft_program_bytes(const weft_program *p)
{
    weft_program *one = (weft_program *)(uintptr_t)p;
    return weft_programs_bytes(&one, 1);
}

/* ---- bind ---------------------------------------------------------------------------------- */

static char *locate_root(const weft_program *p, int32_t root)
{
    const weft_allocation *allocation = &p->compiled->plan.allocation[root];
    const weft_value_info *info = weft_value_get(p->compiled->graph, (weft_value){root});
    const weft_attr_constant *constant;
    switch (allocation->region) {
    case WEFT_REGION_ARENA: return p->binding.arena + allocation->offset;
    case WEFT_REGION_INPUT:
        return p->binding.memory + allocation->offset +
               (weft_compiled_has_staged_ports(p->compiled)
                    ? 0
                    : p->run.input_set * p->compiled->plan.input_bytes);
    case WEFT_REGION_STORE:
        return weft_compiled_is_wide(p->compiled) && p->compiled->source_offset[root] >= 0
                   ? (p->binding.memory + p->compiled->areas.sources_at +
                      p->compiled->source_offset[root])
                   : p->binding.stored[root]->data;
    case WEFT_REGION_OFFLOAD: return p->binding.shared->offload.data + allocation->offset;
    case WEFT_REGION_CONSTANT:
        constant = weft_graph_node(p->compiled->graph, info->node)->attr;
        return p->binding.constant[root] ? weft_constant_data(p->binding.constant[root])
                                         : (char *)(uintptr_t)constant->data;
    }
    return NULL;
}

void *weft_program_locate(const weft_program *p, int32_t value)
{
    return locate_root(p, weft_memory_plan_root(&p->compiled->plan, value)) +
           weft_memory_plan_shift(&p->compiled->plan, value);
}

static void point_ports(weft_program *p)
{
    for (int i = 0; i < p->compiled->ports.inputs; i++) {
        port *at = &p->compiled->ports.input[i];
        char *own = weft_program_locate(p, at->value);
        const int64_t other =
            p->compiled->options.double_inputs && !weft_compiled_has_staged_ports(p->compiled)
                ? (p->run.input_set ? -p->compiled->plan.input_bytes
                                    : p->compiled->plan.input_bytes)
                : 0;
        char *const staged[2] = {p->binding.ports + at->offset, p->binding.ports + at->offset2};
        at->tensor[0].data = at->offset < 0 ? own : staged[p->run.input_set];
        at->tensor[1].data = at->offset2 < 0 ? own + other : staged[!p->run.input_set];
    }
    for (int i = 0; i < p->compiled->ports.outputs; i++) {
        port *at = &p->compiled->ports.output[i];
        at->tensor[0].data = at->offset < 0 ? weft_program_locate(p, at->value)
                                            : (void *)(p->binding.ports + at->offset);
    }
}

static bool same_address(const weft_program *p, int32_t a, int32_t b)
{
    const int32_t root[] = {weft_memory_plan_root(&p->compiled->plan, a),
                            weft_memory_plan_root(&p->compiled->plan, b)};
    const weft_allocation *allocation[] = {&p->compiled->plan.allocation[root[0]],
                                           &p->compiled->plan.allocation[root[1]]};
    const int64_t shift = weft_memory_plan_shift(&p->compiled->plan, a) -
                          weft_memory_plan_shift(&p->compiled->plan, b);
    if (allocation[0]->region == WEFT_REGION_STORE || allocation[0]->region == WEFT_REGION_CONSTANT)
        return root[0] == root[1] && shift == 0;
    return allocation[0]->region == allocation[1]->region &&
           allocation[0]->offset + shift == allocation[1]->offset;
}

/* Gives a request its part of the pinned memory. */
static void bind_pinned(weft_program *p, const instruction *code, int axis)
{
    uint32_t *gates = (uint32_t *)(void *)(p->binding.ports + gates_at(p));
    weft_comm_request_set_pinned(
        weft_program_exchange(p, code),
        p->binding.shared->wire +
            p->compiled->areas.wire_at[axis][p->compiled->channel[code->node]],
        gates + code->gate);
}

static void bind_request(weft_program *p, const instruction *code)
{
    const weft_attr_comm *attr = weft_graph_node(p->compiled->graph, code->node)->attr;
    char *scratch = p->binding.arena +
                    p->compiled->areas.scratch_at[attr->axis][p->compiled->channel[code->node]];
    if (weft_device_is_apart(p->device))
        bind_pinned(p, code, attr->axis);
    const bool coalesced = p->compiled->joined[code->node] >= 0;
    const int stream = p->like ? p->compiled->channel[code->node] : 0;
    int piece = 0;
    weft_comm_request_set_device(weft_program_exchange(p, code), p->device,
                                 p->binding.comm_stream[attr->axis][stream]);
    if (coalesced)
        weft_comm_request_bind_bundle(weft_program_exchange(p, code), scratch);
    for (int32_t n = code->node; n >= 0; n = p->compiled->joined[n]) {
        const weft_node *node = weft_graph_node(p->compiled->graph, n);
        void *in = p->compiled->view[node->in[0].id].data,
             *out = p->compiled->view[node->out[0].id].data;
        if (p->like) { /* no data is accessed, but equal addresses save a copy */
            in = p->binding.arena;
            out = p->binding.arena + (same_address(p, node->in[0].id, node->out[0].id) ? 0 : GUARD);
        }
        if (coalesced)
            weft_comm_request_bind_piece(weft_program_exchange(p, code), piece++, in, out);
        else
            weft_comm_request_bind(weft_program_exchange(p, code), in, out, scratch);
    }
}

/* Binds the requests of a twin. Its views belong to `like` and have no addresses. */
static void point_twin(weft_program *p)
{
    for (int32_t i = 0; i < p->compiled->code_count; i++)
        if (p->compiled->code[i].kind == INSTR_START)
            bind_request(p, &p->compiled->code[i]);
}

void weft_program_set_views(weft_program *p)
{
    weft_captured_drop(p);
    p->run.moved = p->run.runs;
    if (p->like) {
        point_twin(p);
        return;
    }
    for (int32_t v = 0; v < p->compiled->plan.count; v++)
        p->compiled->view[v].data = weft_program_locate(p, v);
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        instruction *code = &p->compiled->code[i];
        const weft_node *node = weft_graph_node(p->compiled->graph, code->node);
        if (code->kind == INSTR_KERNEL || code->kind == INSTR_SLICE) {
            weft_compiled_fill_views(p->compiled, node, (weft_view *)(uintptr_t)code->args.in,
                                     code->args.out);
            code->args.workspace =
                p->binding.arena + p->compiled->areas.workspace_at + code->workspace_at;
            code->args.stream = p->binding.stream;
        } else if (code->kind == INSTR_START) {
            bind_request(p, code);
        } else if (code->kind == INSTR_COPY) {
            weft_program_rebind_slots(p, code);
        }
    }
    point_ports(p);
}

weft_tensor *weft_program_slots(weft_program *p, int *count)
{
    *count = p->binding.slot_count;
    return p->binding.slot;
}

void weft_program_set_slots(weft_program *p)
{
    weft_program_settle(p); /* collectives under way use the views */
    if (!p->like)           /* a twin's views have no addresses */
        weft_program_set_views(p);
}

static weft_status connect(weft_program *p, weft_store *store)
{
    for (int32_t n = 0; n < weft_graph_node_count(p->compiled->graph); n++) {
        const weft_node *node = weft_graph_node(p->compiled->graph, n);
        if (!weft_op_has(node->op, WEFT_TRAIT_PERSISTENT) || is_slot(node))
            continue;
        const weft_value_info *info = weft_value_get(p->compiled->graph, node->out[0]);
        weft_tensor *tensor = store ? weft_store_find(store, info->name) : NULL;
        if (!tensor)
            return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.key = info->name),
                              "the program needs this tensor, and the store does not have it");
        const weft_tensor needed = weft_tensor_of(p->compiled->graph, node->out[0]);
        if (!weft_tensor_matches(tensor, &needed))
            return weft_error(
                WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = info->name),
                "the tensor in the store has another shape, part or type than the program needs");
        p->binding.stored[node->out[0].id] = tensor;
    }
    for (int i = 0; i < p->compiled->update_count; i++)
        p->compiled->update[i].tensor = p->binding.stored[p->compiled->update[i].source];
    return WEFT_OK;
}

/* Holds the copies of constants that the storage cannot take from the graph. */
static weft_status hold_constants(weft_program *p)
{
    for (int32_t v = 0; v < p->compiled->plan.count; v++) {
        const weft_attr_constant *attr = weft_compiled_constant(p->compiled, v);
        if (attr)
            WEFT_TRY(weft_constant_hold(p->device, attr->data, attr->dtype,
                                        p->compiled->view[v].dtype, weft_shape_count(&attr->shape),
                                        &p->binding.constant[v]));
    }
    return WEFT_OK;
}

/* ref: converts sources to their f64 copies. */
static void widen(weft_program *p)
{
    for (int32_t v = 0; v < p->compiled->plan.count; v++) {
        const weft_value_info *info = weft_value_get(p->compiled->graph, (weft_value){v});
        if (p->binding.stored[v] && p->compiled->source_offset[v] >= 0 &&
            !is_slot(weft_graph_node(p->compiled->graph, info->node)))
            p->device->convert(p->binding.stream, p->compiled->view[v].data, WEFT_F64,
                               p->binding.stored[v]->data, info->dtype,
                               weft_shape_count(&info->shape));
    }
}

static weft_status prepare_kernels(weft_program *p)
{
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        const instruction *code = &p->compiled->code[i];
        if (code->kind == INSTR_KERNEL && code->kernel->prepare) {
            const weft_status_code status =
                code->kernel->prepare(&code->args, &p->binding.cache[code->node]);
            if (status != WEFT_OK) {
                char where[32];
                snprintf(where, sizeof where, "node %d", (int)code->node);
                return weft_error_at(status, WEFT_AT(.key = where));
            }
        }
        p->compiled->code[i].args.cache = p->binding.cache[code->node];
    }
    return WEFT_OK;
}

/* Attaches every request to the group of its mesh axis. Mesh rank i is member i of `base`. */
static weft_status attach_requests(weft_program *p, weft_group *base)
{
    for (int axis = 0; axis < p->compiled->mesh.axis_count; axis++)
        WEFT_TRY(
            weft_comm_axis_group(base, &p->compiled->mesh, p->rank, axis, &p->binding.group[axis]));
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        const instruction *code = &p->compiled->code[i];
        if (code->kind != INSTR_START)
            continue;
        const weft_attr_comm *attr = weft_graph_node(p->compiled->graph, code->node)->attr;
        WEFT_TRY(weft_comm_request_attach(weft_program_exchange(p, code),
                                          p->binding.group[attr->axis],
                                          (weft_channel)p->compiled->channel[code->node]));
    }
    p->binding.compared = false;
    return WEFT_OK;
}

weft_status weft_program_compare(weft_program *p)
{
    int count = 0, groups = 0;
    weft_comm_request **all = weft_calloc(p->compiled->code_count + 1, sizeof *all);
    weft_group *group[WEFT_MAX_AXES];
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(all, "compiling a program"));
    for (int32_t i = 0; i < p->compiled->code_count; i++)
        if (p->compiled->code[i].kind == INSTR_START)
            all[count++] = weft_program_exchange(p, &p->compiled->code[i]);
    const int apart = p->compiled->options.apart
                          ? weft_mesh_axis(&p->compiled->mesh, p->compiled->options.apart)
                          : -1;
    for (int axis = 0; axis < p->compiled->mesh.axis_count; axis++)
        if (axis != apart)
            group[groups++] = p->binding.group[axis];
    for (int i = 0; i < groups && p->binding.base; i++)
        WEFT_GO(weft_group_connect(group[i], p->device));
    if (count && p->binding.base) /* then every rank of the groups has at least one */
        WEFT_GO(weft_comm_requests_check(all, count, group, groups));
    p->binding.compared = true;
out:
    weft_free(all);
    return status;
}

static weft_status join_group(weft_program *p, weft_group *group)
{
    const int ranks = p->compiled->mesh.axis_count ? weft_mesh_ranks(&p->compiled->mesh) : 1,
              index = p->rank;
    if (ranks > 1 && !group)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a program for %d ranks needs a group of %d ranks to run", ranks, ranks);
    if (p->compiled->mesh.axis_count == 0 || !group)
        return WEFT_OK;
    if (weft_group_count(group) != ranks)
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(WEFT_NUMBER(weft_group_count(group))),
                          "the program is for a mesh of %d ranks, and the group has %d", ranks,
                          weft_group_count(group));
    if (ranks > 1 && weft_group_index(group) != index)
        return weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(index)),
            "the program is for rank %d of the mesh, and this is member %d of the group", index,
            weft_group_index(group));
    p->binding.base = group;
    return attach_requests(p, group);
}

/* Reserves the memory of this program alone, with inputs of zeros. */
static weft_status reserve_memory(weft_program *p)
{
    const weft_program_areas *areas = &p->compiled->areas;
    const int64_t pinned = pinned_bytes(p);
    const bool apart = weft_device_is_apart(p->device);
    p->binding.memory = p->device->alloc(p->device, areas->memory_bytes);
    p->binding.ports = apart               ? weft_device_alloc_host(p->device, pinned)
                       : p->binding.memory ? p->binding.memory + areas->ports_at
                                           : NULL;
    if (!p->binding.memory)
        return weft_device_no_memory(p->device, areas->memory_bytes,
                                     "inputs and constants of a program");
    WEFT_TRY(WEFT_ALLOCATED(p->binding.ports, "%" PRId64 " bytes of pinned memory", pinned));
    p->device->fill(p->binding.stream, p->binding.memory, 0, areas->sources_at); /* the inputs */
    if (apart)
        memset(p->binding.ports, 0, (size_t)pinned);
    return WEFT_OK;
}

static weft_status bind_one(weft_program *p, weft_store *store, weft_group *group,
                            weft_shared_arena *shared)
{
    if (!p->like)
        WEFT_TRY(connect(p, store));
    WEFT_TRY(join_group(p, group));
    p->binding.shared = shared;
    shared->users++;
    p->binding.arena = shared->data;
    for (int i = 0; i < p->binding.slot_count; i++)
        p->binding.slot[i].data =
            p->binding.arena; /* placeholder until the caller sets the slots */
    WEFT_TRY(p->device->open(p->device, p->backend, &p->binding.stream));
    p->binding.bound = true;
    for (int axis = 0; axis < p->compiled->mesh.axis_count; axis++)
        for (int c = 0; c < (p->like ? WEFT_CHANNEL_COUNT : 1); c++)
            WEFT_TRY(p->device->open(p->device, p->backend, &p->binding.comm_stream[axis][c]));
    WEFT_TRY(reserve_memory(p));
    if (!p->like)
        WEFT_TRY(hold_constants(p));
    weft_program_set_views(p);
    if (weft_compiled_is_wide(p->compiled))
        widen(p);
    if (!weft_device_is_apart(p->device))
        p->device->fill(p->binding.stream, p->binding.ports, 0, p->compiled->areas.ports_bytes);
    WEFT_TRY(p->device->wait(p->binding.stream)); /* so that no later time includes the fills */
    if (p->like)
        return WEFT_OK; /* its kernels have no caches */
    const int before = weft_host_set_threads(p->compiled->threads);
    const weft_status_code status = prepare_kernels(p);
    weft_host_set_threads(before);
    return status;
}

static weft_status may_bind(const weft_program *p, const weft_device *device,
                            const weft_store *store)
{
    if (p->binding.memory)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE, "the program is bound already");
    if (p->device != device)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "programs of the devices \"%s\" and \"%s\" cannot share memory",
                          device->name, p->device->name);
    if (store && weft_store_device(store) != device)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "the store is in memory of \"%s\", and the program in memory of \"%s\"; "
                          "create the store with weft_store_create_on",
                          weft_store_device(store)->name, device->name);
    return WEFT_OK;
}

/* The caller is its first user. */
static weft_status reserve_shared(const weft_device *device, int64_t bytes, int64_t wire_bytes,
                                  weft_shared_arena **out)
{
    weft_shared_arena *shared;
    WEFT_TRY(WEFT_NEW(shared, 1, "a program"));
    *shared = (weft_shared_arena){.users = 1,
                                  .device = device,
                                  .data = device->alloc(device, bytes),
                                  .bytes = bytes,
                                  .wire_bytes = wire_bytes};
    if (shared->data && wire_bytes)
        shared->wire = weft_device_alloc_host(device, wire_bytes);
    weft_status_code status = WEFT_OK;
    if (!shared->data)
        WEFT_GO(weft_device_no_memory(device, bytes, "values of a program"));
    if (wire_bytes)
        WEFT_GO(WEFT_ALLOCATED(shared->wire, "%" PRId64 " bytes of pinned memory", wire_bytes));
    *out = shared;
    return WEFT_OK;
out:
    leave_shared(shared);
    return status;
}

weft_status weft_programs_bind(weft_program *const *programs, int count, weft_store *store,
                               weft_group *group)
{
    const int64_t bytes = max_shared_bytes(programs, count);
    const weft_device *device = count ? programs[0]->device : &weft_device_host;
    for (int i = 0; i < count; i++)
        WEFT_TRY(may_bind(programs[i], device, store));
    const bool apart = weft_device_is_apart(device); /* the store's bytes are used ones already */
    WEFT_TRY(weft_device_check_memory(device,
                                      bytes + (store && !apart ? weft_store_bytes(store) : 0),
                                      apart ? "values of a program" : "a program and its weights"));
    weft_shared_arena *shared = NULL;
    WEFT_TRY(reserve_shared(device, bytes, max_wire_bytes(programs, count), &shared));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_shared_arena_reserve(shared, programs, count));
    for (int i = 0; i < count; i++)
        WEFT_GO(bind_one(programs[i], store, group, shared));
out:
    for (int i = 0; i < count && status != WEFT_OK; i++)
        weft_program_unbind(programs[i]);
    leave_shared(shared);
    return status;
}

bool weft_program_fits(const weft_program *p, const weft_program *other)
{
    weft_program *own = (weft_program *)p; /* read only */
    bool has_copies = false;
    for (int32_t i = 0; i < p->compiled->code_count; i++)
        has_copies = has_copies || p->compiled->code[i].kind == INSTR_COPY;
    return p->compiled->areas.shared_bytes <= other->binding.shared->bytes &&
           p->compiled->areas.shared_wire_bytes <= other->binding.shared->wire_bytes &&
           (!has_copies || other->binding.shared->copies) &&
           weft_programs_offloaded_bytes(&own, 1) <= other->binding.shared->offload.bytes;
}

weft_status weft_program_bind_with(weft_program *p, weft_store *store, weft_group *group,
                                   const weft_program *other)
{
    WEFT_TRY(may_bind(p, other->device, store));
    if (!weft_program_fits(p, other)) {
        char text[2][32];
        return weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
            "a program of %s does not fit into the %s of the programs that it shares memory with",
            weft_format_bytes(p->compiled->areas.shared_bytes, text[0]),
            weft_format_bytes(other->binding.shared->bytes, text[1]));
    }
    const weft_status_code status = bind_one(p, store, group, other->binding.shared);
    if (status != WEFT_OK)
        weft_program_unbind(p);
    return status;
}

weft_status weft_program_rebind(weft_program *p, weft_group *group)
{
    if (!p->binding.memory)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "the program is not bound, so it cannot move to another group");
    p->binding.compared = false;
    if (group == p->binding.base)
        return WEFT_OK;
    weft_program_settle(p); /* collectives under way use the group */
    WEFT_TRY(join_group(p, group));
    weft_program_set_views(p); /* another group may use another algorithm */
    return WEFT_OK;
}

weft_status weft_program_bind(weft_program *p, weft_store *store, weft_group *group)
{
    return weft_programs_bind(&p, 1, store, group);
}

static weft_tensor *find_port(port *ports, int count, const char *name, int set)
{
    for (int i = 0; i < count; i++)
        if (strcmp(ports[i].tensor[0].name, name) == 0)
            return &ports[i].tensor[set];
    return NULL;
}

weft_tensor *weft_program_input(weft_program *p, const char *name)
{
    if (p->run.launched && p->device->await(p->binding.stream, &p->run.sent) != WEFT_OK &&
        !p->run.failed)
        p->run.failed = weft_error_save();
    return find_port(p->compiled->ports.input, p->compiled->ports.inputs, name, 0);
}

weft_tensor *weft_program_next_input(weft_program *p, const char *name)
{
    return p->compiled->options.double_inputs
               ? find_port(p->compiled->ports.input, p->compiled->ports.inputs, name, 1)
               : NULL;
}

void weft_program_swap_inputs(weft_program *p)
{
    if (!p->compiled->options.double_inputs)
        return;
    p->run.input_set = !p->run.input_set;
    if (weft_compiled_has_staged_ports(p->compiled)) /* the storage has one set of inputs */
        point_ports(p);
    else
        weft_program_set_views(p);
}

const weft_tensor *weft_program_output(weft_program *p, const char *name)
{
    const weft_tensor *found =
        find_port(p->compiled->ports.output, p->compiled->ports.outputs, name, 0);
    if (found)
        weft_program_settle((weft_program *)(uintptr_t)p);
    return found;
}

const double *weft_program_seconds(const weft_program *p, int64_t *runs)
{
    *runs = p->run.runs;
    return p->run.seconds;
}

weft_comm_times weft_program_comm_times(const weft_program *p)
{
    weft_comm_times times = {0};
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        if (p->compiled->code[i].kind != INSTR_START)
            continue;
        double waited;
        times.busy +=
            weft_comm_request_seconds(weft_program_exchange(p, &p->compiled->code[i]), &waited);
        times.exposed += waited;
        times.wire_bytes +=
            weft_comm_request_wire_bytes(weft_program_exchange(p, &p->compiled->code[i]));
        times.requests++;
    }
    return times;
}
