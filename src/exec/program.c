/* Compiling a graph into a program, and binding it to memory and to a store. */
#include "runtime/program.h"

#include "runtime/part.h"

#include <stdio.h>
#include <string.h>

enum { GUARD = 64 };

weft_dtype weft_program_storage_type(const weft_program *p, weft_dtype dtype)
{
    return p->wide && weft_dtype_is_float(dtype) ? WEFT_F64 : dtype;
}

static int64_t value_bytes(const weft_program *p, int32_t value, bool storage)
{
    const weft_value_info *info = weft_value_get(p->graph, (weft_value){value});
    const weft_dtype dtype = storage ? weft_program_storage_type(p, info->dtype) : info->dtype;
    return weft_shape_count(&info->shape) * weft_dtype_bytes(dtype);
}

/* ---- what the lifetime pass asks ----------------------------------------------------------- */

static void fill_views(const weft_program *p, const weft_node *node, weft_view *in, weft_view *out)
{
    const weft_view none = {.shape = {.rank = -1}};
    for (int i = 0; i < node->in_count; i++)
        in[i] = weft_value_ok(node->in[i]) ? p->view[node->in[i].id] : none;
    for (int o = 0; o < node->out_count; o++)
        out[o] = weft_value_ok(node->out[o]) ? p->view[node->out[o].id] : none;
}

static int64_t ask_workspace(void *user, const weft_graph *g, int32_t n)
{
    const weft_program *p = user;
    const weft_node *node = weft_graph_node(g, n);
    const weft_kernel *kernel = p->backend->kernel[node->op];
    weft_view out[WEFT_MAX_OUTPUTS];
    if (!kernel || !kernel->workspace)
        return 0;
    fill_views(p, node, p->asked, out);
    return kernel->workspace(&(weft_kernel_args){.op = node->op,
                                                 .in = p->asked,
                                                 .in_count = node->in_count,
                                                 .out = out,
                                                 .out_count = node->out_count,
                                                 .attr = node->attr,
                                                 .threads = p->threads});
}

static int64_t ask_element_bytes(void *user, weft_dtype dtype)
{
    return weft_dtype_bytes(weft_program_storage_type(user, dtype));
}

static weft_lifetime_options lifetime_options(const weft_program *p)
{
    return (weft_lifetime_options){.user = (void *)(uintptr_t)p,
                                   .workspace = ask_workspace,
                                   .in_place = true,
                                   .element_bytes = ask_element_bytes,
                                   .no_views = p->options.no_views,
                                   .guard = p->options.guard ? GUARD : 0};
}

/* ---- compile ------------------------------------------------------------------------------- */

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory to compile a program");
}

static weft_status make_tables(weft_program *p)
{
    const int64_t values = weft_graph_value_count(p->graph),
                  nodes = weft_graph_node_count(p->graph);
    p->view = weft_arena_alloc(p->meta, values * (int64_t)sizeof *p->view);
    p->asked =
        weft_arena_alloc(p->meta, weft_graph_most_inputs(p->graph) * (int64_t)sizeof *p->asked);
    p->source_offset = weft_arena_alloc(p->meta, values * (int64_t)sizeof *p->source_offset);
    p->stored = weft_arena_alloc(p->meta, values * (int64_t)sizeof *p->stored);
    p->constant = weft_arena_alloc(p->meta, values * (int64_t)sizeof *p->constant);
    p->exchange = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->exchange);
    p->begins = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->begins);
    p->joined = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->joined);
    p->channel = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->channel);
    p->move = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->move);
    p->cache = weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->cache);
    p->code = weft_arena_alloc(p->meta, 2 * nodes * (int64_t)sizeof *p->code);
    p->seconds =
        p->options.profile ? weft_arena_alloc(p->meta, nodes * (int64_t)sizeof *p->seconds) : NULL;
    p->begin = p->options.profile ? weft_arena_alloc(p->meta, 4 * nodes * (int64_t)sizeof *p->begin)
                                  : NULL;
    p->end = p->begin ? p->begin + 2 * nodes : NULL;
    p->moment = p->options.profile
                    ? weft_arena_alloc(p->meta, 4 * nodes * (int64_t)sizeof *p->moment)
                    : NULL;
    if (!p->view || !p->asked || !p->source_offset || !p->stored || !p->constant || !p->exchange ||
        !p->begins || !p->joined || !p->channel || !p->move || !p->cache || !p->code ||
        (p->options.profile && (!p->seconds || !p->begin || !p->moment)))
        return no_memory();
    for (int32_t v = 0; v < values; v++) {
        const weft_value_info *info = weft_value_get(p->graph, (weft_value){v});
        p->view[v] =
            (weft_view){.dtype = weft_program_storage_type(p, info->dtype), .shape = info->shape};
    }
    return WEFT_OK;
}

/* Elements of the dim before this rank's part, and a check that the output is that part. */
static weft_status slice_start(const weft_program *p, const weft_node *node, int64_t *start)
{
    const weft_attr_comm *attr = node->attr;
    int coordinate[WEFT_MAX_AXES];
    int64_t len;
    if (attr->axis >= p->mesh.axis_count)
        return weft_fail(WEFT_E_ARG, "slice_own on axis %d, but the mesh has %d", attr->axis,
                         p->mesh.axis_count);
    weft_mesh_coordinates(&p->mesh, p->rank, coordinate);
    weft_part(p->view[node->in[0].id].shape.dim[attr->dim], p->mesh.axis[attr->axis].size,
              coordinate[attr->axis], start, &len);
    if (p->view[node->out[0].id].shape.dim[attr->dim] != len)
        return weft_fail(WEFT_E_SHAPE, "slice_own: the graph was made for another rank");
    return WEFT_OK;
}

static weft_status create_bundle(weft_program *p, int32_t last, const char *what)
{
    const weft_node *node = weft_graph_node(p->graph, last);
    const weft_dtype dtype = p->view[node->in[0].id].dtype;
    int64_t count[WEFT_COMM_BUNDLE_PIECES];
    int pieces = 0;
    for (int32_t n = last; n >= 0; n = p->joined[n])
        count[pieces++] = weft_shape_count(&p->view[weft_graph_node(p->graph, n)->in[0].id].shape);
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(&p->mesh, p->rank, at);
    char text[128];
    snprintf(text, sizeof text, "%s and %d more", what, pieces - 1);
    return weft_exchange_create_bundle(p->mesh.axis[axis].size, at[axis], dtype, count, pieces,
                                       text, &p->exchange[last]);
}

static weft_status create_exchange(weft_program *p, int32_t n, const char *what)
{
    const weft_node *node = weft_graph_node(p->graph, n);
    const weft_attr_comm *attr = node->attr;
    const weft_view *in = &p->view[node->in[0].id], *out = &p->view[node->out[0].id];
    int at[WEFT_MAX_AXES];
    if (attr->axis < 0 || attr->axis >= p->mesh.axis_count)
        return weft_fail(WEFT_E_ARG, "%s: axis %d of a mesh with %d", what, attr->axis,
                         p->mesh.axis_count);
    weft_mesh_coordinates(&p->mesh, p->rank, at);
    return weft_exchange_create(p->mesh.axis[attr->axis].size, at[attr->axis], node->op, attr,
                                &in->shape, &out->shape, in->dtype, what, &p->exchange[n]);
}

weft_status weft_program_create_exchange(weft_program *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->graph, n);
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    char what[128];
    snprintf(what, sizeof what, "%%%d%s%.64s on axis %s", (int)node->out[0].id,
             node->scope[0] ? " of " : "", node->scope,
             axis >= 0 && axis < p->mesh.axis_count ? p->mesh.axis[axis].name : "?");
    if (p->joined[n] >= 0)
        WEFT_TRY(create_bundle(p, n, what));
    else
        WEFT_TRY(create_exchange(p, n, what));
    return p->device->hollow ? weft_exchange_cut(p->exchange[n], WEFT_COMM_WIDE) : WEFT_OK;
}

static weft_status compile_collective(weft_program *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->graph, n);
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    if (p->begins[n] != n) {
        p->code[p->code_count++] = (instruction){.kind = INSTR_JOIN, .node = n};
        return WEFT_OK;
    }
    WEFT_TRY(weft_program_create_exchange(p, n));
    const int64_t scratch = weft_aligned(weft_exchange_scratch(p->exchange[n]));
    int64_t *most = &p->scratch_bytes[axis][p->channel[n]];
    *most = scratch > *most ? scratch : *most;
    p->code[p->code_count++] = (instruction){.kind = INSTR_START, .node = n};
    return WEFT_OK;
}

static weft_status compile_node(weft_program *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->graph, n);
    if (weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS))
        return WEFT_OK;
    if (weft_op_is_collective(node->op))
        return compile_collective(p, n);
    if (weft_op_has(node->op, WEFT_TRAIT_MOVES)) {
        p->move[n] = weft_arena_alloc(p->meta, sizeof *p->move[n]);
        p->code[p->code_count++] = (instruction){.kind = INSTR_MOVE, .node = n, .move = p->move[n]};
        return p->move[n] ? WEFT_OK : no_memory();
    }
    instruction *code = &p->code[p->code_count++];
    weft_view *view =
        weft_arena_alloc(p->meta, (node->in_count + node->out_count) * (int64_t)sizeof *view);
    if (!view)
        return no_memory();
    *code = (instruction){.kind = INSTR_KERNEL, .node = n, .kernel = p->backend->kernel[node->op]};
    code->args = (weft_kernel_args){.op = node->op,
                                    .cost = weft_node_cost(p->graph, n),
                                    .threads = p->threads,
                                    .in = view,
                                    .in_count = node->in_count,
                                    .out = view + node->in_count,
                                    .out_count = node->out_count,
                                    .attr = node->attr};
    fill_views(p, node, view, code->args.out); /* shapes; data when it is bound */
    code->workspace_bytes = ask_workspace(p, p->graph, n);
    if (node->op == WEFT_OP_SLICE_OWN) {
        code->kind = INSTR_SLICE;
        return slice_start(p, node, &code->slice_start);
    }
    if (!code->kernel)
        return weft_fail(WEFT_E_UNSUPPORTED, "backend \"%s\" has no kernel for %s (at %s)",
                         p->backend->name, weft_op_get(node->op)->name,
                         node->scope ? node->scope : "");
    return WEFT_OK;
}

static weft_status compile_code(weft_program *p)
{
    const int32_t nodes = weft_graph_node_count(p->graph);
    WEFT_TRY(weft_program_choose_channels(p));
    weft_program_bundle(p);
    /* Collectives by the node before which they are waited for: a list per node. */
    int32_t *next = weft_alloc((int64_t)nodes * (int64_t)sizeof *next);
    int32_t *first = weft_alloc((int64_t)(nodes + 1) * (int64_t)sizeof *first);
    weft_status_code status = WEFT_OK;
    if (!next || !first) {
        status = no_memory();
        goto out;
    }
    memset(first, 0xff, (size_t)(nodes + 1) * sizeof *first);
    for (int32_t n = nodes - 1; n >= 0; n--) { /* so that lists are in the order of starting */
        if (p->plan.wait[n] < 0)
            continue;
        const int32_t at = p->options.no_overlap ? n + 1 : p->plan.wait[n];
        next[n] = first[at];
        first[at] = n;
    }
    for (int32_t n = 0; n <= nodes; n++) {
        for (int32_t c = first[n]; c >= 0; c = next[c])
            p->code[p->code_count++] =
                p->move[c] ? (instruction){.kind = INSTR_MOVED, .node = c, .move = p->move[c]}
                           : (instruction){.kind = INSTR_WAIT, .node = c};
        if (n < nodes)
            WEFT_GO(compile_node(p, n));
    }
out:
    weft_free(next);
    weft_free(first);
    return status;
}

/* Inputs and outputs. In ref the caller's bytes are apart from the storage, unless `wide`. */
static weft_status make_ports(weft_program *p, int64_t *ports_bytes)
{
    int count;
    const weft_named *named = weft_graph_outputs(p->graph, &count);
    const int32_t nodes = weft_graph_node_count(p->graph);
    for (int32_t n = 0; n < nodes; n++)
        p->input_count += weft_graph_node(p->graph, n)->op == WEFT_OP_INPUT;
    p->input = weft_arena_alloc(p->meta, (p->input_count + 1) * (int64_t)sizeof *p->input);
    p->output = weft_arena_alloc(p->meta, (count + 1) * (int64_t)sizeof *p->output);
    if (!p->input || !p->output)
        return no_memory();
    p->output_count = count;
    for (int32_t i = 0, n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        if (node->op == WEFT_OP_INPUT)
            p->input[i++] = (port){.value = node->out[0].id,
                                   .tensor[0] = weft_tensor_of(p->graph, node->out[0])};
    }
    for (int i = 0; i < count; i++) {
        p->output[i] = (port){.value = named[i].value.id,
                              .tensor[0] = weft_tensor_of(p->graph, named[i].value)};
        p->output[i].tensor[0].name = named[i].name;
    }
    for (int i = 0; i < p->input_count + p->output_count; i++) {
        port *at = i < p->input_count ? &p->input[i] : &p->output[i - p->input_count];
        const weft_value_info *info = weft_value_get(p->graph, (weft_value){at->value});
        const weft_dtype storage = weft_program_storage_type(p, info->dtype);
        const bool apart = storage != info->dtype && !p->options.wide;
        at->tensor[0].dtype = apart ? info->dtype : storage;
        at->tensor[1] = at->tensor[0];
        at->offset = at->offset2 = -1;
        if (apart) {
            at->offset = *ports_bytes;
            *ports_bytes += weft_aligned(value_bytes(p, at->value, false));
        }
        if (apart && i < p->input_count && p->options.double_inputs) {
            at->offset2 = *ports_bytes;
            *ports_bytes += weft_aligned(value_bytes(p, at->value, false));
        }
    }
    return WEFT_OK;
}

static weft_status make_updates(weft_program *p)
{
    int count;
    const weft_pair *pairs = weft_graph_updates(p->graph, &count);
    p->update = weft_arena_alloc(p->meta, (count + 1) * (int64_t)sizeof *p->update);
    if (!p->update)
        return no_memory();
    p->update_count = count;
    for (int i = 0; i < count; i++)
        p->update[i] = (update){.source = pairs[i].source.id,
                                .value = pairs[i].value.id,
                                .in_place = weft_memory_plan_root(&p->plan, pairs[i].value.id) ==
                                            pairs[i].source.id};
    return WEFT_OK;
}

/* ---- who is told of updates ------------------------------------------------------------------ */

static void touch(int32_t *last, const weft_memory_plan *plan, weft_value v, int32_t at)
{
    if (weft_value_ok(v))
        last[weft_memory_plan_root(plan, v.id)] = at;
}

/* last[] by root of a buffer. */
static void find_last(const weft_program *p, int32_t *last)
{
    for (int32_t i = 0; i < p->code_count; i++) {
        const weft_node *node = weft_graph_node(p->graph, p->code[i].node);
        for (int k = 0; k < node->in_count; k++)
            touch(last, &p->plan, node->in[k], i);
        for (int k = 0; k < node->out_count; k++)
            touch(last, &p->plan, node->out[k], i);
    }
}

/* By counting, stable. */
static void sort_updates(weft_program *p, int32_t *before)
{
    for (int i = 0; i < p->update_count; i++)
        before[p->update[i].last + 1]++;
    for (int32_t i = 0; i <= p->code_count; i++)
        before[i + 1] += before[i];
    for (int i = 0; i < p->update_count; i++)
        p->in_order[before[p->update[i].last]++] = i;
}

static weft_status order_updates(weft_program *p)
{
    const int64_t i32 = (int64_t)sizeof(int32_t);
    int32_t *last = weft_alloc((p->plan.count + 1) * i32),
            *before = weft_alloc((p->code_count + 2) * i32);
    int32_t *in_order = weft_arena_alloc(p->meta, (p->update_count + 1) * i32);
    if (last && before && in_order) {
        find_last(p, last);
        for (int i = 0; i < p->update_count; i++) {
            update *u = &p->update[i];
            u->last = u->in_place && !p->wide ? last[u->source] : p->code_count;
        }
        p->in_order = in_order;
        sort_updates(p, before);
    }
    weft_free(last);
    weft_free(before);
    return p->in_order ? WEFT_OK : no_memory();
}

weft_status weft_program_watch(weft_program *p, weft_program_written written, void *user)
{
    if (written && !p->in_order)
        WEFT_TRY(order_updates(p));
    p->written = written;
    p->written_user = user;
    return WEFT_OK;
}

const weft_tensor *weft_program_update(const weft_program *p, int i)
{
    return i < p->update_count ? p->update[i].tensor : NULL;
}

static bool is_slot(const weft_node *node)
{
    return weft_op_has(node->op, WEFT_TRAIT_PERSISTENT) &&
           ((const weft_attr_source *)node->attr)->slot;
}

static weft_status make_slots(weft_program *p)
{
    const int32_t nodes = weft_graph_node_count(p->graph);
    int count = 0;
    for (int32_t n = 0; n < nodes; n++)
        count += is_slot(weft_graph_node(p->graph, n));
    p->slot = weft_arena_alloc(p->meta, (count + 1) * (int64_t)sizeof *p->slot);
    if (!p->slot)
        return no_memory();
    for (int32_t n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        if (!is_slot(node))
            continue;
        p->slot[p->slot_count] = weft_tensor_of(p->graph, node->out[0]);
        p->stored[node->out[0].id] = &p->slot[p->slot_count++];
    }
    return WEFT_OK;
}

static void lay_out(weft_program *p, int64_t ports_bytes)
{
    int64_t sources = 0;
    for (int32_t v = 0; v < p->plan.count && p->wide; v++) {
        const weft_place *place = &p->plan.place[v];
        const weft_dtype dtype = weft_value_get(p->graph, (weft_value){v})->dtype;
        p->source_offset[v] = -1;
        if (place->region == WEFT_REGION_STORE && place->alias_of < 0 &&
            weft_dtype_is_float(dtype)) {
            p->source_offset[v] = sources;
            sources += weft_aligned(value_bytes(p, v, true));
        }
    }
    p->workspace_at = p->plan.arena_bytes;
    p->passing_bytes = p->workspace_at + p->plan.workspace_bytes + (p->options.guard ? GUARD : 0);
    for (int i = 0; i < WEFT_MAX_AXES * WEFT_CHANNEL_COUNT; i++) {
        const int axis = i / WEFT_CHANNEL_COUNT, channel = i % WEFT_CHANNEL_COUNT;
        p->scratch_at[axis][channel] = p->passing_bytes;
        p->passing_bytes += p->scratch_bytes[axis][channel];
    }
    p->sources_at = p->plan.input_bytes * (p->options.double_inputs && !p->wide ? 2 : 1);
    p->ports_at = p->sources_at + sources;
    p->memory_bytes = p->ports_at + ports_bytes;
}

static weft_status compile(const weft_graph *graph, const weft_program_options *options,
                           weft_program **out)
{
    weft_status_code status = WEFT_OK;
    weft_program *p = weft_alloc(sizeof *p);
    int64_t ports_bytes = 0;
    if (!p)
        return no_memory();
    p->graph = graph;
    p->options = options ? *options : (weft_program_options){0};
    const weft_mesh *mesh = p->options.mesh ? p->options.mesh : weft_graph_mesh(graph);
    if (mesh)
        p->mesh = *mesh;
    p->rank = weft_graph_rank(graph);
    p->backend = p->options.backend ? p->options.backend : &weft_backend_cpu;
    p->device = p->backend->device;
    p->wide = p->backend->refresh != NULL;
    p->threads = weft_host_threads();
    if (p->device->hollow) /* nothing is there to be guarded */
        p->options.guard = false;
    p->meta = weft_arena_create();
    if (!p->meta) {
        status = no_memory();
        goto out;
    }
    WEFT_GO(weft_graph_check(graph));
    if (p->mesh.axis_count && p->rank >= weft_mesh_ranks(&p->mesh))
        WEFT_GO(weft_fail(WEFT_E_ARG, "the graph is for rank %d of a mesh of %d", p->rank,
                          weft_mesh_ranks(&p->mesh)));
    if (p->wide && p->options.wide && p->options.double_inputs) {
        status = weft_fail(WEFT_E_UNSUPPORTED,
                           "two sets of inputs are not there for wide reference programs");
        goto out;
    }
    WEFT_GO(make_tables(p));
    const weft_lifetime_options lifetime = lifetime_options(p);
    WEFT_GO(weft_pass_lifetime(graph, &lifetime, &p->plan));
    if (p->options.guard)
        WEFT_GO(weft_memory_plan_check(graph, &lifetime, &p->plan));
    WEFT_GO(compile_code(p));
    WEFT_GO(make_ports(p, &ports_bytes));
    WEFT_GO(make_updates(p));
    WEFT_GO(make_slots(p));
    lay_out(p, ports_bytes);
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

static void leave_passing(weft_passing *passing)
{
    if (passing && --passing->users == 0) {
        weft_passing_release(passing);
        passing->device->free(passing->data);
        weft_free(passing);
    }
}

/* Kernels' caches and constants: a twin has none of its own. */
static void drop_prepared(weft_program *p)
{
    for (int32_t i = 0; i < p->code_count; i++) {
        void **cache = &p->cache[p->code[i].node];
        if (*cache)
            p->code[i].kernel->release(*cache);
        *cache = p->code[i].args.cache = NULL;
    }
    for (int32_t v = 0; p->constant && v < p->plan.count; v++) {
        weft_constant_release(p->constant[v]);
        p->constant[v] = NULL;
    }
}

void weft_program_unbind(weft_program *p)
{
    if (!p->like)
        drop_prepared(p);
    p->device->free(p->memory);
    p->memory = p->arena = NULL;
    if (p->bound)
        p->device->close(p->stream);
    p->stream = NULL;
    for (int axis = 0; axis < WEFT_MAX_AXES; axis++) {
        p->device->close(p->exchange_stream[axis]);
        p->exchange_stream[axis] = NULL;
    }
    p->bound = p->compared = false;
    p->base = NULL;
    leave_passing(p->passing);
    p->passing = NULL;
}

void weft_program_free(weft_program *p)
{
    if (!p)
        return;
    for (int32_t n = 0; p->exchange && n < weft_graph_node_count(p->graph); n++)
        weft_exchange_free(p->exchange[n]);
    weft_program_unbind(p);
    if (!p->like)
        weft_memory_plan_free(&p->plan);
    weft_arena_free(p->meta);
    weft_free(p);
}

int64_t weft_program_own_bytes(const weft_program *p)
{
    const weft_memory_plan *plan = &p->plan;
    int64_t bytes = (int64_t)sizeof *p + weft_arena_bytes(p->meta) +
                    plan->count * (int64_t)sizeof *plan->place +
                    plan->node_count * (int64_t)(sizeof *plan->wait + sizeof *plan->view);
    for (int32_t n = 0; n < plan->node_count; n++)
        bytes += p->exchange[n] ? weft_exchange_own_bytes(p->exchange[n]) : 0;
    return bytes;
}

const weft_backend *weft_program_backend(const weft_program *p)
{
    return p->backend;
}

const weft_memory_plan *weft_program_plan(const weft_program *p)
{
    return &p->plan;
}

/* The area that all of them pass through: that of the largest. */
static int64_t passing_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes = programs[i]->passing_bytes > bytes ? programs[i]->passing_bytes : bytes;
    return bytes;
}

/* A constant that is kept in another type than the graph's; NULL: none. */
static const weft_attr_constant *constant_of(const weft_program *p, int32_t value)
{
    const weft_value_info *info = weft_value_get(p->graph, (weft_value){value});
    const weft_node *node = weft_graph_node(p->graph, info->node);
    return node->op == WEFT_OP_CONSTANT && weft_program_storage_type(p, info->dtype) != info->dtype
               ? node->attr
               : NULL;
}

/* True: an earlier value of program i, or a program before it, has these bytes as a constant. */
static bool met_before(weft_program *const *programs, int i, int32_t value)
{
    const void *data = constant_of(programs[i], value)->data;
    for (int k = 0; k <= i; k++)
        for (int32_t v = 0; v < (k < i ? programs[k]->plan.count : value); v++) {
            const weft_attr_constant *other = constant_of(programs[k], v);
            if (other && other->data == data)
                return true;
        }
    return false;
}

/* Of constants that are kept in f64, each once. */
static int64_t constant_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        for (int32_t v = 0; v < programs[i]->plan.count; v++)
            if (constant_of(programs[i], v) && !met_before(programs, i, v))
                bytes += weft_aligned(value_bytes(programs[i], v, true));
    return bytes;
}

int64_t weft_programs_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = passing_bytes(programs, count) + constant_bytes(programs, count);
    for (int i = 0; i < count; i++)
        bytes += programs[i]->memory_bytes;
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
    const weft_place *place = &p->plan.place[root];
    const weft_value_info *info = weft_value_get(p->graph, (weft_value){root});
    const weft_attr_constant *constant;
    switch (place->region) {
    case WEFT_REGION_ARENA: return p->arena + place->offset;
    case WEFT_REGION_INPUT:
        return p->memory + place->offset + (p->wide ? 0 : p->input_set * p->plan.input_bytes);
    case WEFT_REGION_STORE:
        return p->wide && p->source_offset[root] >= 0
                   ? (p->memory + p->sources_at + p->source_offset[root])
                   : p->stored[root]->data;
    case WEFT_REGION_AWAY: return p->passing->away.data + place->offset;
    case WEFT_REGION_CONSTANT:
        constant = weft_graph_node(p->graph, info->node)->attr;
        return p->constant[root] ? weft_constant_data(p->constant[root])
                                 : (char *)(uintptr_t)constant->data;
    }
    return NULL;
}

void *weft_program_locate(const weft_program *p, int32_t value)
{
    return locate_root(p, weft_memory_plan_root(&p->plan, value)) +
           weft_memory_plan_shift(&p->plan, value);
}

static void point_ports(weft_program *p)
{
    for (int i = 0; i < p->input_count; i++) {
        port *at = &p->input[i];
        char *own = weft_program_locate(p, at->value);
        const int64_t other = p->options.double_inputs && !p->wide
                                  ? (p->input_set ? -p->plan.input_bytes : p->plan.input_bytes)
                                  : 0;
        char *const staged[2] = {p->memory + p->ports_at + at->offset,
                                 p->memory + p->ports_at + at->offset2};
        at->tensor[0].data = at->offset < 0 ? own : staged[p->input_set];
        at->tensor[1].data = at->offset2 < 0 ? own + other : staged[!p->input_set];
    }
    for (int i = 0; i < p->output_count; i++) {
        port *at = &p->output[i];
        at->tensor[0].data = at->offset < 0 ? weft_program_locate(p, at->value)
                                            : p->memory + p->ports_at + at->offset;
    }
}

static bool same_place(const weft_program *p, int32_t a, int32_t b)
{
    const int32_t root[] = {weft_memory_plan_root(&p->plan, a), weft_memory_plan_root(&p->plan, b)};
    const weft_place *place[] = {&p->plan.place[root[0]], &p->plan.place[root[1]]};
    const int64_t shift = weft_memory_plan_shift(&p->plan, a) - weft_memory_plan_shift(&p->plan, b);
    if (place[0]->region == WEFT_REGION_STORE || place[0]->region == WEFT_REGION_CONSTANT)
        return root[0] == root[1] && shift == 0;
    return place[0]->region == place[1]->region && place[0]->offset + shift == place[1]->offset;
}

static void point_exchange(weft_program *p, const instruction *code)
{
    const weft_attr_comm *attr = weft_graph_node(p->graph, code->node)->attr;
    char *scratch = p->arena + p->scratch_at[attr->axis][p->channel[code->node]];
    const bool bundle = p->joined[code->node] >= 0;
    int piece = 0;
    weft_exchange_set_device(weft_program_exchange(p, code), p->device,
                             p->exchange_stream[attr->axis]);
    if (bundle)
        weft_exchange_bind_bundle(weft_program_exchange(p, code), scratch);
    for (int32_t n = code->node; n >= 0; n = p->joined[n]) {
        const weft_node *node = weft_graph_node(p->graph, n);
        void *in = p->view[node->in[0].id].data, *out = p->view[node->out[0].id].data;
        if (p->like) { /* nothing is read or written, but an exchange in place copies less */
            in = p->arena;
            out = p->arena + (same_place(p, node->in[0].id, node->out[0].id) ? 0 : GUARD);
        }
        if (bundle)
            weft_exchange_bind_piece(weft_program_exchange(p, code), piece++, in, out);
        else
            weft_exchange_bind(weft_program_exchange(p, code), in, out, scratch);
    }
}

/* A twin's views are those of the program that it is like, and point nowhere. */
static void point_twin(weft_program *p)
{
    for (int32_t i = 0; i < p->code_count; i++)
        if (p->code[i].kind == INSTR_START)
            point_exchange(p, &p->code[i]);
}

void weft_program_point_views(weft_program *p)
{
    if (p->like) {
        point_twin(p);
        return;
    }
    for (int32_t v = 0; v < p->plan.count; v++)
        p->view[v].data = weft_program_locate(p, v);
    for (int32_t i = 0; i < p->code_count; i++) {
        instruction *code = &p->code[i];
        const weft_node *node = weft_graph_node(p->graph, code->node);
        if (code->kind == INSTR_KERNEL || code->kind == INSTR_SLICE) {
            fill_views(p, node, (weft_view *)(uintptr_t)code->args.in, code->args.out);
            code->args.workspace = p->arena + p->workspace_at;
            code->args.stream = p->stream;
        } else if (code->kind == INSTR_START) {
            point_exchange(p, code);
        } else if (code->kind == INSTR_MOVE) {
            weft_program_point_move(p, code);
        }
    }
    point_ports(p);
}

weft_tensor *weft_program_slots(weft_program *p, int *count)
{
    *count = p->slot_count;
    return p->slot;
}

void weft_program_point(weft_program *p)
{
    if (!p->like) /* whose views point nowhere */
        weft_program_point_views(p);
}

static weft_status connect(weft_program *p, weft_store *store)
{
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        if (!weft_op_has(node->op, WEFT_TRAIT_PERSISTENT) || is_slot(node))
            continue;
        const weft_value_info *info = weft_value_get(p->graph, node->out[0]);
        weft_tensor *tensor = store ? weft_store_find(store, info->name) : NULL;
        if (!tensor)
            return weft_fail(WEFT_E_NOT_FOUND,
                             "the program needs \"%s\", which is not in the store", info->name);
        const weft_tensor needed = weft_tensor_of(p->graph, node->out[0]);
        if (!weft_tensor_matches(tensor, &needed))
            return weft_fail(
                WEFT_E_SHAPE,
                "\"%s\" in the store has another shape, part or type than the program needs",
                info->name);
        p->stored[node->out[0].id] = tensor;
    }
    for (int i = 0; i < p->update_count; i++)
        p->update[i].tensor = p->stored[p->update[i].source];
    return WEFT_OK;
}

/* ref: its f64 constants, */
static weft_status hold_constants(weft_program *p)
{
    for (int32_t v = 0; v < p->plan.count; v++) {
        const weft_attr_constant *attr = constant_of(p, v);
        if (attr)
            WEFT_TRY(weft_constant_hold(p->device, attr->data, attr->dtype, p->view[v].dtype,
                                        weft_shape_count(&attr->shape), &p->constant[v]));
    }
    return WEFT_OK;
}

/* and its f64 copies of sources. */
static void widen(weft_program *p)
{
    for (int32_t v = 0; v < p->plan.count; v++) {
        const weft_value_info *info = weft_value_get(p->graph, (weft_value){v});
        if (p->stored[v] && p->source_offset[v] >= 0 &&
            !is_slot(weft_graph_node(p->graph, info->node)))
            p->device->convert(p->stream, p->view[v].data, WEFT_F64, p->stored[v]->data,
                               info->dtype, weft_shape_count(&info->shape));
    }
}

static weft_status prepare_kernels(weft_program *p)
{
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        if (code->kind == INSTR_KERNEL && code->kernel->prepare) {
            const weft_status_code status =
                code->kernel->prepare(&code->args, &p->cache[code->node]);
            if (status != WEFT_OK)
                return weft_fail_context(status, "node %d", (int)code->node);
        }
        p->code[i].args.cache = p->cache[code->node];
    }
    return WEFT_OK;
}

/* The mesh is laid over the group: rank i of the mesh is member i. */
static weft_status attach_exchanges(weft_program *p, weft_group *base)
{
    for (int axis = 0; axis < p->mesh.axis_count; axis++)
        WEFT_TRY(weft_comm_axis_group(base, &p->mesh, p->rank, axis, &p->group[axis]));
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        if (code->kind != INSTR_START)
            continue;
        const weft_attr_comm *attr = weft_graph_node(p->graph, code->node)->attr;
        WEFT_TRY(weft_exchange_attach(weft_program_exchange(p, code), p->group[attr->axis],
                                      (weft_channel)p->channel[code->node]));
    }
    p->compared = false;
    return WEFT_OK;
}

weft_status weft_program_compare(weft_program *p)
{
    int count = 0, groups = 0;
    weft_exchange **all = weft_alloc((p->code_count + 1) * (int64_t)sizeof *all);
    weft_group *group[WEFT_MAX_AXES];
    weft_status_code status = WEFT_OK;
    if (!all)
        return no_memory();
    for (int32_t i = 0; i < p->code_count; i++)
        if (p->code[i].kind == INSTR_START)
            all[count++] = weft_program_exchange(p, &p->code[i]);
    const int apart = p->options.apart ? weft_mesh_axis(&p->mesh, p->options.apart) : -1;
    for (int axis = 0; axis < p->mesh.axis_count; axis++)
        if (axis != apart)
            group[groups++] = p->group[axis];
    if (count && p->base) /* then every rank of these groups has some */
        status = weft_exchanges_check(all, count, group, groups);
    weft_free(all);
    p->compared = status == WEFT_OK;
    return status;
}

static weft_status join_group(weft_program *p, weft_group *group)
{
    const int ranks = p->mesh.axis_count ? weft_mesh_ranks(&p->mesh) : 1, index = p->rank;
    if (ranks > 1 && !group)
        return weft_fail(WEFT_E_ARG, "a program for %d ranks needs a group of as many to run",
                         ranks);
    if (p->mesh.axis_count == 0 || !group)
        return WEFT_OK;
    if (weft_group_count(group) != ranks)
        return weft_fail(WEFT_E_ARG, "the program is for a mesh of %d ranks, the group has %d",
                         ranks, weft_group_count(group));
    if (ranks > 1 && weft_group_index(group) != index)
        return weft_fail(WEFT_E_ARG,
                         "the program is for rank %d of the mesh, this is number %d of the group",
                         index, weft_group_index(group));
    p->base = group;
    return attach_exchanges(p, group);
}

static weft_status bind_one(weft_program *p, weft_store *store, weft_group *group,
                            weft_passing *passing)
{
    if (!p->like)
        WEFT_TRY(connect(p, store));
    WEFT_TRY(join_group(p, group));
    p->passing = passing;
    passing->users++;
    p->arena = passing->data;
    for (int i = 0; i < p->slot_count; i++)
        p->slot[i].data = p->arena; /* somewhere, until the caller says where */
    WEFT_TRY(p->device->open(p->backend, &p->stream));
    p->bound = true;
    for (int axis = 0; axis < p->mesh.axis_count; axis++)
        WEFT_TRY(p->device->open(p->backend, &p->exchange_stream[axis]));
    p->memory = p->device->alloc(p->memory_bytes);
    if (!p->memory) {
        char text[32];
        return weft_fail(WEFT_E_MEMORY, "a program needs %s, which this machine does not give",
                         weft_format_bytes(p->memory_bytes, text));
    }
    p->device->fill(p->stream, p->memory, 0, p->sources_at); /* the inputs */
    if (!p->like)
        WEFT_TRY(hold_constants(p));
    weft_program_point_views(p);
    if (p->wide)
        widen(p);
    p->device->fill(p->stream, p->memory + p->ports_at, 0, p->memory_bytes - p->ports_at);
    if (p->like)
        return WEFT_OK; /* its kernels keep nothing */
    const int before = weft_host_set_threads(p->threads);
    const weft_status_code status = prepare_kernels(p);
    weft_host_set_threads(before);
    return status;
}

static weft_status may_bind(const weft_program *p, const weft_device *device,
                            const weft_store *store)
{
    if (p->memory)
        return weft_fail(WEFT_E_ARG, "the program is bound already");
    if (p->device != device)
        return weft_fail(WEFT_E_ARG, "programs of \"%s\" and \"%s\" share no memory", device->name,
                         p->device->name);
    if (store && weft_store_device(store) != device)
        return weft_fail(WEFT_E_ARG,
                         "the store is in memory of \"%s\", the program in that of "
                         "\"%s\": weft_store_create_on",
                         weft_store_device(store)->name, device->name);
    return WEFT_OK;
}

weft_status weft_programs_bind(weft_program *const *programs, int count, weft_store *store,
                               weft_group *group)
{
    const int64_t bytes = passing_bytes(programs, count);
    const weft_device *device = count ? programs[0]->device : &weft_device_host;
    for (int i = 0; i < count; i++)
        WEFT_TRY(may_bind(programs[i], device, store));
    if (!device->hollow)
        WEFT_TRY(weft_memory_check(bytes + (store ? weft_store_bytes(store) : 0),
                                   "a program and its weights"));
    weft_passing *passing = weft_alloc(sizeof *passing);
    if (passing)
        *passing = (weft_passing){.users = 1, /* until the end of this function */
                                  .device = device,
                                  .data = device->alloc(bytes),
                                  .bytes = bytes};
    if (!passing || !passing->data) {
        char text[32];
        weft_free(passing);
        return weft_fail(WEFT_E_MEMORY, "a program needs %s, which this machine does not give",
                         weft_format_bytes(bytes, text));
    }
    weft_status_code status = weft_passing_reserve(passing, programs, count);
    for (int i = 0; i < count && status == WEFT_OK; i++)
        status = bind_one(programs[i], store, group, passing);
    for (int i = 0; i < count && status != WEFT_OK; i++)
        weft_program_unbind(programs[i]);
    leave_passing(passing);
    return status;
}

bool weft_program_fits(const weft_program *p, const weft_program *other)
{
    weft_program *own = (weft_program *)p; /* is only read */
    bool moves = false;
    for (int32_t i = 0; i < p->code_count; i++)
        moves = moves || p->code[i].kind == INSTR_MOVE;
    return p->passing_bytes <= other->passing->bytes && (!moves || other->passing->mover) &&
           weft_programs_away_bytes(&own, 1) <= other->passing->away.bytes;
}

weft_status weft_program_bind_beside(weft_program *p, weft_store *store, weft_group *group,
                                     const weft_program *other)
{
    WEFT_TRY(may_bind(p, other->device, store));
    if (!weft_program_fits(p, other)) {
        char text[2][32];
        return weft_fail(WEFT_E_ARG, "a program of %s does not fit beside one that has %s",
                         weft_format_bytes(p->passing_bytes, text[0]),
                         weft_format_bytes(other->passing->bytes, text[1]));
    }
    const weft_status_code status = bind_one(p, store, group, other->passing);
    if (status != WEFT_OK)
        weft_program_unbind(p);
    return status;
}

weft_status weft_program_move(weft_program *p, weft_group *group)
{
    if (!p->memory)
        return weft_fail(WEFT_E_ARG, "a program that is bound nowhere cannot move");
    p->compared = false;
    if (group == p->base)
        return WEFT_OK;
    WEFT_TRY(join_group(p, group));
    weft_program_point_views(p); /* another group may exchange by another algorithm */
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
    return find_port(p->input, p->input_count, name, 0);
}

weft_tensor *weft_program_next_input(weft_program *p, const char *name)
{
    return p->options.double_inputs ? find_port(p->input, p->input_count, name, 1) : NULL;
}

void weft_program_swap_inputs(weft_program *p)
{
    if (!p->options.double_inputs)
        return;
    p->input_set = !p->input_set;
    weft_program_point_views(p);
}

const weft_tensor *weft_program_output(weft_program *p, const char *name)
{
    return find_port(p->output, p->output_count, name, 0);
}

const double *weft_program_seconds(const weft_program *p, int64_t *runs)
{
    *runs = p->runs;
    return p->seconds;
}

weft_comm_times weft_program_comm_times(const weft_program *p)
{
    weft_comm_times times = {0};
    for (int32_t i = 0; i < p->code_count; i++) {
        if (p->code[i].kind != INSTR_START)
            continue;
        double waited;
        times.busy += weft_exchange_seconds(weft_program_exchange(p, &p->code[i]), &waited);
        times.exposed += waited;
        times.wire_bytes += weft_exchange_wire_bytes(weft_program_exchange(p, &p->code[i]));
        times.exchanges++;
    }
    return times;
}
