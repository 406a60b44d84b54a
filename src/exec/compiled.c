#include "exec/compiled.h"

#include "exec/coalesce.h"
#include "graph/graph.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"
#include "transform/memory/lifetime_check.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 };

weft_dtype weft_compiled_storage_type(const weft_compiled *c, weft_dtype dtype)
{
    return weft_compiled_is_wide(c) && weft_dtype_is_float(dtype) ? WEFT_F64 : dtype;
}

static int64_t bytes_in(const weft_compiled *c, int32_t value, weft_dtype dtype)
{
    const weft_value_info *info = weft_value_get(c->graph, (weft_value){value});
    return weft_shape_count(&info->shape) * weft_dtype_bytes(dtype);
}

int64_t weft_compiled_storage_bytes(const weft_compiled *c, int32_t value)
{
    const weft_value_info *info = weft_value_get(c->graph, (weft_value){value});
    return bytes_in(c, value, weft_compiled_storage_type(c, info->dtype));
}

/* ---- memory plan --------------------------------------------------------------------------- */

void weft_compiled_fill_views(const weft_compiled *c, const weft_node *node, weft_view *in,
                              weft_view *out)
{
    const weft_view none = {.shape = {.rank = -1}};
    for (int i = 0; i < node->in_count; i++)
        in[i] = weft_value_ok(node->in[i]) ? c->view[node->in[i].id] : none;
    for (int o = 0; o < node->out_count; o++)
        out[o] = weft_value_ok(node->out[o]) ? c->view[node->out[o].id] : none;
}

static int64_t workspace_of(const weft_compiled *c, const weft_kernel_args *args)
{
    const weft_kernel *kernel = c->backend->kernel[args->op];
    return kernel && kernel->workspace ? kernel->workspace(args) : 0;
}

/* Context of the memory plan's queries. */
typedef struct planning {
    const weft_compiled *c;
    weft_view *in; /* operands of the node in question */
} planning;

static int64_t ask_workspace(void *user, const weft_graph *g, int32_t n)
{
    const planning *p = user;
    const weft_node *node = weft_graph_node(g, n);
    weft_view out[WEFT_MAX_OUTPUTS];
    weft_compiled_fill_views(p->c, node, p->in, out);
    return workspace_of(p->c, &(weft_kernel_args){.op = node->op,
                                                  .in = p->in,
                                                  .in_count = node->in_count,
                                                  .out = out,
                                                  .out_count = node->out_count,
                                                  .attr = node->attr,
                                                  .threads = p->c->threads});
}

static int64_t ask_element_bytes(void *user, weft_dtype dtype)
{
    return weft_dtype_bytes(weft_compiled_storage_type(((const planning *)user)->c, dtype));
}

static bool joins_launches(const weft_compiled *c)
{
    return c->backend->spread_workspace > 0 && !c->options.guard;
}

/* Enlarges the workspace to the sum of all nodes, at most to the bytes of the backend. */
static void spread_workspaces(weft_compiled *c, planning *p)
{
    const int64_t most = joins_launches(c) ? c->backend->spread_workspace : 0;
    int64_t sum = 0;
    for (int32_t n = 0; n < weft_graph_node_count(c->graph) && sum < most; n++)
        sum += weft_aligned(ask_workspace(p, c->graph, n));
    sum = sum < most ? sum : most;
    if (sum > c->plan.workspace_bytes)
        c->plan.workspace_bytes = sum;
}

/* The place of the next workspace: after the last one, or at the start again. */
static int64_t place_workspace(weft_compiled *c, int64_t bytes)
{
    if (!joins_launches(c))
        return 0;
    const int64_t at = c->workspace_used + bytes <= c->plan.workspace_bytes ? c->workspace_used : 0;
    c->workspace_used = at + weft_aligned(bytes);
    return at;
}

/* Small values, and parameters in another type, whose conversions are launched together. */
enum { SMALL = 256 << 10, IDLE = 512, IDLE_CAST = 64 };

static int32_t ask_idle(void *user, const weft_graph *g, int32_t value)
{
    const planning *p = user;
    const weft_node *node = weft_graph_node(g, weft_value_get(g, (weft_value){value})->node);
    if (weft_compiled_storage_bytes(p->c, value) <= SMALL)
        return IDLE;
    if (node->op != WEFT_OP_CAST)
        return 0;
    const weft_value_info *from = weft_value_get(g, node->in[0]);
    return weft_graph_node(g, from->node)->op == WEFT_OP_PARAM ? IDLE_CAST : 0;
}

static weft_status plan_memory(weft_compiled *c)
{
    weft_status_code status = WEFT_OK;
    planning p = {.c = c};
    WEFT_TRY(WEFT_NEW(p.in, weft_graph_most_inputs(c->graph) + 1, "compiling a program"));
    const weft_lifetime_options lifetime = {.user = &p,
                                            .workspace = ask_workspace,
                                            .in_place = true,
                                            .element_bytes = ask_element_bytes,
                                            .idle = joins_launches(c) ? ask_idle : NULL,
                                            .no_views = c->options.no_views,
                                            .guard = c->options.guard ? GUARD : 0};
    WEFT_GO(weft_pass_lifetime(c->graph, &lifetime, &c->plan));
    spread_workspaces(c, &p);
    if (c->options.guard)
        status = weft_memory_plan_check(c->graph, &lifetime, &c->plan);
out:
    weft_free(p.in);
    return status;
}

/* ---- code ---------------------------------------------------------------------------------- */

static weft_status make_tables(weft_compiled *c)
{
    const int64_t values = weft_graph_value_count(c->graph),
                  nodes = weft_graph_node_count(c->graph);
    c->view = weft_arena_calloc(c->meta, values, sizeof *c->view);
    c->source_offset = weft_arena_calloc(c->meta, values, sizeof *c->source_offset);
    c->begins = weft_arena_calloc(c->meta, nodes, sizeof *c->begins);
    c->joined = weft_arena_calloc(c->meta, nodes, sizeof *c->joined);
    c->channel = weft_arena_calloc(c->meta, nodes, sizeof *c->channel);
    c->copy = weft_arena_calloc(c->meta, nodes, sizeof *c->copy);
    c->code = weft_arena_calloc(c->meta, 2 * nodes, sizeof *c->code);
    WEFT_TRY(WEFT_ALLOCATED(c->view && c->source_offset && c->begins && c->joined && c->channel &&
                                c->copy && c->code,
                            "compiling a program"));
    for (int32_t v = 0; v < values; v++) {
        const weft_value_info *info = weft_value_get(c->graph, (weft_value){v});
        c->view[v] =
            (weft_view){.dtype = weft_compiled_storage_type(c, info->dtype), .shape = info->shape};
    }
    return WEFT_OK;
}

/* Computes the first element of this rank's shard along the dim, and checks the output's size. */
static weft_status slice_start(const weft_compiled *c, const weft_node *node, int64_t *start)
{
    const weft_attr_comm *attr = node->attr;
    int coordinate[WEFT_MAX_AXES];
    int64_t len;
    if (attr->axis >= c->mesh.axis_count)
        return weft_error(
            WEFT_MSG_MESH_INVALID, WEFT_AT(.key = "slice_own", WEFT_NUMBER(attr->axis)),
            "axis %d does not exist; the mesh has %d axes", attr->axis, c->mesh.axis_count);
    weft_mesh_coordinates(&c->mesh, c->rank, coordinate);
    weft_part(c->view[node->in[0].id].shape.dim[attr->dim], c->mesh.axis[attr->axis].size,
              coordinate[attr->axis], start, &len);
    if (c->view[node->out[0].id].shape.dim[attr->dim] != len)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = "slice_own"),
                          "the graph is for another rank");
    return WEFT_OK;
}

static weft_status compile_collective(weft_compiled *c, int32_t n)
{
    const instruction_kind kind = c->begins[n] == n ? INSTR_START : INSTR_JOIN;
    c->code[c->code_count++] = (instruction){.kind = kind, .node = n};
    return WEFT_OK;
}

static weft_status compile_node(weft_compiled *c, int32_t n)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    if (weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS))
        return WEFT_OK;
    if (weft_op_is_collective(node->op))
        return compile_collective(c, n);
    if (weft_op_has(node->op, WEFT_TRAIT_MOVES)) {
        c->copy[n] = weft_arena_alloc(c->meta, sizeof *c->copy[n]);
        c->code[c->code_count++] = (instruction){.kind = INSTR_COPY, .node = n, .copy = c->copy[n]};
        return WEFT_ALLOCATED(c->copy[n], "compiling a program");
    }
    instruction *code = &c->code[c->code_count++];
    weft_view *view;
    WEFT_TRY(
        WEFT_ARENA_NEW(c->meta, view, node->in_count + node->out_count, "compiling a program"));
    *code = (instruction){.kind = INSTR_KERNEL, .node = n, .kernel = c->backend->kernel[node->op]};
    code->args = (weft_kernel_args){.op = node->op,
                                    .cost = weft_node_cost(c->graph, n),
                                    .threads = c->threads,
                                    .products = c->products,
                                    .in = view,
                                    .in_count = node->in_count,
                                    .out = view + node->in_count,
                                    .out_count = node->out_count,
                                    .attr = node->attr};
    weft_compiled_fill_views(c, node, view,
                             code->args.out); /* shapes only; the data is added at bind */
    code->workspace_bytes = workspace_of(c, &code->args);
    code->workspace_at = place_workspace(c, code->workspace_bytes);
    if (node->op == WEFT_OP_SLICE_OWN) {
        code->kind = INSTR_SLICE;
        return slice_start(c, node, &code->slice_start);
    }
    if (!code->kernel)
        return weft_error(WEFT_MSG_KERNEL_MISSING,
                          WEFT_AT(.key = node->scope, .value = weft_op_get(node->op)->name),
                          "backend \"%s\" has no kernel for %s", c->backend->name,
                          weft_op_get(node->op)->name);
    return WEFT_OK;
}

static weft_status compile_code(weft_compiled *c)
{
    const int32_t nodes = weft_graph_node_count(c->graph);
    WEFT_TRY(weft_compiled_choose_channels(c));
    weft_compiled_coalesce(c);
    /* Lists per node the collectives and copies whose wait precedes the node. */
    int32_t *next = weft_calloc((int64_t)nodes, sizeof *next);
    int32_t *first = weft_calloc((int64_t)(nodes + 1), sizeof *first);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(next && first, "compiling a program"));
    memset(first, 0xff, (size_t)(nodes + 1) * sizeof *first);
    /* reversed, so that each list is in starting order */
    for (int32_t n = nodes - 1; n >= 0; n--) {
        if (c->plan.wait[n] < 0)
            continue;
        const int32_t at = c->options.no_overlap ? n + 1 : c->plan.wait[n];
        next[n] = first[at];
        first[at] = n;
    }
    for (int32_t n = 0; n <= nodes; n++) {
        for (int32_t m = first[n]; m >= 0; m = next[m])
            c->code[c->code_count++] =
                c->copy[m] ? (instruction){.kind = INSTR_COPY_WAIT, .node = m, .copy = c->copy[m]}
                           : (instruction){.kind = INSTR_WAIT, .node = m};
        if (n < nodes)
            WEFT_GO(compile_node(c, n));
    }
out:
    weft_free(next);
    weft_free(first);
    return status;
}

/* ---- ports, updates, constants ---------------------------------------------------------- */

/* Creates inputs and outputs. The caller's bytes are separate from the storage where its type
 * differs (ref, unless `wide`) or where the host cannot access it. */
static weft_status make_ports(weft_compiled *c)
{
    int count;
    const weft_named *named = weft_graph_outputs(c->graph, &count);
    const int32_t nodes = weft_graph_node_count(c->graph);
    for (int32_t n = 0; n < nodes; n++)
        c->ports.inputs += weft_graph_node(c->graph, n)->op == WEFT_OP_INPUT;
    c->ports.input = weft_arena_calloc(c->meta, c->ports.inputs + 1, sizeof *c->ports.input);
    c->ports.output = weft_arena_calloc(c->meta, count + 1, sizeof *c->ports.output);
    WEFT_TRY(WEFT_ALLOCATED(c->ports.input && c->ports.output, "compiling a program"));
    c->ports.outputs = count;
    for (int32_t i = 0, n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(c->graph, n);
        if (node->op == WEFT_OP_INPUT)
            c->ports.input[i++] = (port){.value = node->out[0].id,
                                         .tensor[0] = weft_tensor_of(c->graph, node->out[0])};
    }
    for (int i = 0; i < count; i++) {
        c->ports.output[i] = (port){.value = named[i].value.id,
                                    .tensor[0] = weft_tensor_of(c->graph, named[i].value)};
        c->ports.output[i].tensor[0].name = named[i].name;
    }
    for (int i = 0; i < c->ports.inputs + c->ports.outputs; i++) {
        port *at = i < c->ports.inputs ? &c->ports.input[i] : &c->ports.output[i - c->ports.inputs];
        const weft_value_info *info = weft_value_get(c->graph, (weft_value){at->value});
        const weft_dtype storage = weft_compiled_storage_type(c, info->dtype);
        const bool apart = (storage != info->dtype && !c->options.wide) ||
                           weft_device_is_apart(c->backend->device);
        at->tensor[0].dtype = apart ? info->dtype : storage;
        at->tensor[1] = at->tensor[0];
        at->offset = at->offset2 = -1;
        if (apart) {
            at->offset = c->areas.ports_bytes;
            c->areas.ports_bytes += weft_aligned(bytes_in(c, at->value, info->dtype));
        }
        if (apart && i < c->ports.inputs && c->options.double_inputs) {
            at->offset2 = c->areas.ports_bytes;
            c->areas.ports_bytes += weft_aligned(bytes_in(c, at->value, info->dtype));
        }
    }
    return WEFT_OK;
}

static weft_status make_updates(weft_compiled *c)
{
    int count;
    const weft_pair *pairs = weft_graph_updates(c->graph, &count);
    WEFT_TRY(WEFT_ARENA_NEW(c->meta, c->update, count + 1, "compiling a program"));
    c->update_count = count;
    for (int i = 0; i < count; i++)
        c->update[i] = (update){.source = pairs[i].source.id,
                                .value = pairs[i].value.id,
                                .in_place = weft_memory_plan_root(&c->plan, pairs[i].value.id) ==
                                            pairs[i].source.id};
    return WEFT_OK;
}

const weft_attr_constant *weft_compiled_constant(const weft_compiled *c, int32_t value)
{
    const weft_value_info *info = weft_value_get(c->graph, (weft_value){value});
    const weft_node *node = weft_graph_node(c->graph, info->node);
    const bool apart = weft_device_is_apart(c->backend->device) ||
                       weft_compiled_storage_type(c, info->dtype) != info->dtype;
    return node->op == WEFT_OP_CONSTANT && apart ? node->attr : NULL;
}

static int by_data(const void *a, const void *b, void *user)
{
    const weft_compiled *c = user;
    const int32_t v[2] = {*(const int32_t *)a, *(const int32_t *)b};
    const char *data[2];
    for (int i = 0; i < 2; i++)
        data[i] = weft_compiled_constant(c, v[i])->data;
    if (data[0] != data[1])
        return data[0] < data[1] ? -1 : 1;
    return v[0] < v[1] ? -1 : v[0] > v[1];
}

/* Lists each constant kept in f64 once, by its first value. */
static weft_status list_constants(weft_compiled *c)
{
    int32_t count = 0;
    for (int32_t v = 0; v < c->plan.count; v++)
        count += weft_compiled_constant(c, v) != NULL;
    WEFT_TRY(WEFT_ARENA_NEW(c->meta, c->constants.value, count + 1, "compiling a program"));
    for (int32_t v = 0, i = 0; v < c->plan.count; v++)
        if (weft_compiled_constant(c, v))
            c->constants.value[i++] = v;
    qsort_r(c->constants.value, (size_t)count, sizeof *c->constants.value, by_data, c);
    const void *last = NULL;
    for (int32_t i = 0; i < count; i++) {
        const void *data = weft_compiled_constant(c, c->constants.value[i])->data;
        if (data != last)
            c->constants.value[c->constants.count++] = c->constants.value[i];
        last = data;
    }
    return WEFT_OK;
}

bool weft_compiled_has_constant(const weft_compiled *c, const void *data)
{
    int32_t low = 0, high = c->constants.count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const char *at = weft_compiled_constant(c, c->constants.value[middle])->data;
        if (at == data)
            return true;
        if (at < (const char *)data)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

void weft_compiled_lay_out(weft_compiled *c)
{
    int64_t sources = 0;
    c->areas.shared_wire_bytes = 0;
    for (int32_t v = 0; v < c->plan.count && weft_compiled_is_wide(c); v++) {
        const weft_allocation *allocation = &c->plan.allocation[v];
        const weft_dtype dtype = weft_value_get(c->graph, (weft_value){v})->dtype;
        c->source_offset[v] = -1;
        if (allocation->region == WEFT_REGION_STORE && allocation->alias_of < 0 &&
            weft_dtype_is_float(dtype)) {
            c->source_offset[v] = sources;
            sources += weft_aligned(weft_compiled_storage_bytes(c, v));
        }
    }
    c->areas.workspace_at = c->plan.arena_bytes;
    c->areas.shared_bytes =
        c->areas.workspace_at + c->plan.workspace_bytes + (c->options.guard ? GUARD : 0);
    for (int i = 0; i < WEFT_MAX_AXES * WEFT_CHANNEL_COUNT; i++) {
        const int axis = i / WEFT_CHANNEL_COUNT, channel = i % WEFT_CHANNEL_COUNT;
        c->areas.scratch_at[axis][channel] = c->areas.shared_bytes;
        c->areas.shared_bytes += c->areas.scratch_bytes[axis][channel];
        c->areas.wire_at[axis][channel] = c->areas.shared_wire_bytes;
        c->areas.shared_wire_bytes += c->areas.wire_bytes[axis][channel];
    }
    c->areas.sources_at = c->plan.input_bytes *
                          (c->options.double_inputs && !weft_compiled_has_staged_ports(c) ? 2 : 1);
    c->areas.ports_at = c->areas.sources_at + sources;
    c->areas.memory_bytes =
        c->areas.ports_at + (weft_device_is_apart(c->backend->device) ? 0 : c->areas.ports_bytes);
}

/* ---- the program --------------------------------------------------------------------------- */

static weft_status check_options(const weft_compiled *c)
{
    WEFT_TRY(weft_graph_check(c->graph));
    if (c->mesh.axis_count && c->rank >= weft_mesh_ranks(&c->mesh))
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(WEFT_RANK(c->rank)),
                          "the graph is for rank %d, and the mesh has %d ranks", c->rank,
                          weft_mesh_ranks(&c->mesh));
    if (weft_compiled_is_wide(c) && c->options.wide && c->options.double_inputs)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_NOWHERE,
                          "a wide program of the reference backend cannot have two sets of inputs");
    return WEFT_OK;
}

weft_status weft_compiled_create(const weft_graph *graph, const weft_program_options *options,
                                 weft_arena *meta, weft_compiled **out)
{
    weft_status_code status = WEFT_OK;
    weft_compiled *c;
    WEFT_TRY(WEFT_ARENA_NEW(meta, c, 1, "compiling a program"));
    *c = (weft_compiled){.meta = meta, .graph = graph, .rank = weft_graph_rank(graph)};
    c->options = options ? *options : (weft_program_options){0};
    const weft_mesh *mesh = c->options.mesh ? c->options.mesh : weft_graph_mesh(graph);
    if (mesh)
        c->mesh = *mesh;
    c->backend = c->options.backend ? c->options.backend : &weft_backend_cpu;
    c->threads = weft_host_threads();
    c->products = weft_graph_products(graph);
    if (c->backend->device->meta) /* a meta device has no memory to guard */
        c->options.guard = false;
    WEFT_GO(check_options(c));
    WEFT_GO(make_tables(c));
    WEFT_GO(plan_memory(c));
    WEFT_GO(compile_code(c));
    WEFT_GO(make_ports(c));
    WEFT_GO(make_updates(c));
    WEFT_GO(list_constants(c));
    *out = c;
    return WEFT_OK;
out:
    weft_compiled_free(c);
    return status;
}

void weft_compiled_free(weft_compiled *c)
{
    if (c)
        weft_memory_plan_free(&c->plan);
}
