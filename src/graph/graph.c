/* The builder: nodes and values in an arena, scopes, the sticky error, outputs and updates. */
#include "graph/graph.h"

#include "graph/conversion.h"
#include "graph/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

weft_graph *weft_graph_create(void)
{
    weft_graph *g = weft_alloc(sizeof *g);
    if (!g)
        return NULL;
    g->arena = weft_arena_create();
    if (!g->arena) {
        weft_free(g);
        return NULL;
    }
    return g;
}

static void blob_release(weft_blob *blob)
{
    if (atomic_fetch_sub(&blob->holders, 1) == 1)
        weft_free(blob);
}

void weft_graph_free(weft_graph *g)
{
    if (!g)
        return;
    weft_arena_free(g->arena);
    for (int64_t i = 0; i < g->blob_count; i++)
        blob_release(g->blob[i]);
    weft_free(g->blob);
    weft_free(g->node);
    weft_free(g->value);
    weft_free(g->output);
    weft_free(g->update);
    weft_buf_free(&g->scope);
    weft_free(g->scope_mark);
    weft_free(g->name_table);
    weft_free(g);
}

weft_arena *weft_graph_arena(weft_graph *g)
{
    return g->arena;
}

int64_t weft_graph_bytes(const weft_graph *g)
{
    int64_t bytes = (int64_t)sizeof *g + weft_arena_bytes(g->arena) +
                    g->node_capacity * (int64_t)sizeof *g->node +
                    g->value_capacity * (int64_t)sizeof *g->value +
                    g->output_capacity * (int64_t)sizeof *g->output +
                    g->update_capacity * (int64_t)sizeof *g->update + g->scope.capacity +
                    g->scope_capacity * (int64_t)sizeof *g->scope_mark +
                    g->name_slots * (int64_t)sizeof *g->name_table +
                    g->blob_capacity * (int64_t)sizeof *g->blob;
    for (int64_t i = 0; i < g->blob_count; i++)
        bytes += ((int64_t)sizeof(weft_blob) + g->blob[i]->bytes) / g->blob[i]->holders;
    return bytes;
}

/* ---- errors -------------------------------------------------------------------------------- */

weft_value weft_graph_fail(weft_graph *g, weft_message_class kind, const char *fmt, ...)
{
    if (g->error != WEFT_OK)
        return WEFT_NONE; /* the first error is the one that explains the rest */
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    g->error = (weft_status_code)weft_message_status(kind);
    g->error_class = kind;
    if (g->scope.len > 0)
        g->error_scope = weft_arena_printf(g->arena, "%s", g->scope.data);
    g->error_text = weft_arena_printf(g->arena, "%s", text);
    return WEFT_NONE;
}

static bool out_of_memory(weft_graph *g)
{
    weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory after %" PRId64 " nodes",
                    g->node_count);
    return false;
}

weft_status weft_graph_check(const weft_graph *g)
{
    if (g->error == WEFT_OK)
        return WEFT_OK;
    return weft_error(g->error_class, WEFT_AT(.key = g->error_scope), "%s",
                      g->error_text ? g->error_text : "out of memory");
}

/* ---- scopes -------------------------------------------------------------------------------- */

void weft_graph_push(weft_graph *g, const char *fmt, ...)
{
    if (weft_grow((void **)&g->scope_mark, g->scope_depth, &g->scope_capacity,
                  sizeof *g->scope_mark) != WEFT_OK) {
        out_of_memory(g);
        return;
    }
    g->scope_mark[g->scope_depth++] = g->scope.len;
    if (g->scope.len)
        weft_buf_append(&g->scope, ".", 1);
    va_list args;
    va_start(args, fmt);
    if (!strcmp(fmt, "%s")) { /* every copied node */
        const char *name = va_arg(args, const char *);
        weft_buf_append(&g->scope, name, (int64_t)strlen(name));
    } else {
        weft_buf_vprintf(&g->scope, fmt, args);
    }
    va_end(args);
    if (g->scope.failed)
        out_of_memory(g);
    g->scope_name = NULL;
}

void weft_graph_pop(weft_graph *g)
{
    if (g->error != WEFT_OK && g->scope_depth == 0)
        return;
    assert(g->scope_depth > 0 && "weft_graph_pop without push");
    g->scope.len = g->scope_mark[--g->scope_depth];
    if (g->scope.data)
        g->scope.data[g->scope.len] = '\0';
    g->scope_name = NULL;
}

static const char *scope_name(weft_graph *g)
{
    if (!g->scope_name)
        g->scope_name = g->scope.len ? weft_arena_strdup(g->arena, g->scope.data) : "";
    return g->scope_name;
}

/* ---- names of sources ---------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

/* The slot of `name`: its own, or the empty one for inserting it. */
static int64_t name_slot(const weft_graph *g, const char *name)
{
    int64_t slot = (int64_t)(hash_name(name) & (uint64_t)(g->name_slots - 1));
    while (g->name_table[slot] && strcmp(g->value[g->name_table[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (g->name_slots - 1);
    return slot;
}

static bool grow_name_table(weft_graph *g)
{
    if (g->name_count * 2 < g->name_slots)
        return true;
    const int64_t old_slots = g->name_slots;
    int32_t *old = g->name_table;
    int32_t *larger = weft_calloc(old_slots ? old_slots * 2 : 64, sizeof *larger);
    if (!larger)
        return out_of_memory(g);
    g->name_table = larger;
    g->name_slots = old_slots ? old_slots * 2 : 64;
    for (int64_t i = 0; i < old_slots; i++)
        if (old[i])
            larger[name_slot(g, g->value[old[i] - 1].name)] = old[i];
    weft_free(old);
    return true;
}

/* Adds a source's name; false: the name exists. */
static bool name_add(weft_graph *g, weft_value v)
{
    if (!grow_name_table(g))
        return false;
    const int64_t slot = name_slot(g, g->value[v.id].name);
    if (g->name_table[slot]) {
        weft_graph_fail(g, WEFT_MSG_ARGUMENT_INVALID, "the name \"%s\" is used twice",
                        g->value[v.id].name);
        return false;
    }
    g->name_table[slot] = v.id + 1;
    g->name_count++;
    return true;
}

weft_value weft_graph_find(const weft_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->output_count; i++)
        if (!strcmp(g->output[i].name, name))
            return g->output[i].value;
    const int64_t slot = g->name_slots ? name_slot(g, name) : -1;
    return slot >= 0 && g->name_table[slot] ? (weft_value){g->name_table[slot] - 1} : WEFT_NONE;
}

void weft_value_set_name(weft_graph *g, weft_value v, const char *name)
{
    if (g->error != WEFT_OK || !weft_value_ok(v))
        return;
    g->value[v.id].name = weft_arena_strdup(g->arena, name);
    if (!g->value[v.id].name)
        out_of_memory(g);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static bool check_inputs(weft_graph *g, const weft_op_info *info, const weft_value *in,
                         int in_count)
{
    if (in_count < info->min_inputs || in_count > info->max_inputs) {
        weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR, "%s: %d inputs, not %d to %d", info->name,
                        in_count, info->min_inputs, info->max_inputs);
        return false;
    }
    for (int i = 0; i < in_count; i++)
        if ((!weft_value_ok(in[i]) && i < info->min_inputs) || in[i].id >= g->value_count) {
            weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR, "%s: input %d is not a value of this graph",
                            info->name, i);
            return false;
        }
    return true;
}

/* Takes ownership of one reference to `blob`. */
static bool blob_adopt(weft_graph *g, weft_blob *blob)
{
    if (weft_grow((void **)&g->blob, g->blob_count, &g->blob_capacity, sizeof *g->blob) !=
        WEFT_OK) {
        blob_release(blob);
        return out_of_memory(g);
    }
    g->blob[g->blob_count++] = blob;
    return true;
}

void *weft_graph_blob(weft_graph *g, int64_t bytes, weft_blob **out)
{
    *out = weft_alloc_aligned((int64_t)sizeof(weft_blob) + bytes);
    if (!*out) {
        out_of_memory(g);
        return NULL;
    }
    atomic_init(&(*out)->holders, 1);
    (*out)->bytes = bytes;
    return blob_adopt(g, *out) ? (*out)->data : NULL;
}

/* Copies data of the caller once; shares data of another graph. */
static bool hold_constant(weft_graph *g, weft_attr_constant *a)
{
    if (a->blob) {
        atomic_fetch_add(&a->blob->holders, 1);
        return blob_adopt(g, a->blob);
    }
    const int64_t bytes = weft_shape_count(&a->shape) * weft_dtype_bytes(a->dtype);
    void *copy = weft_graph_blob(g, bytes, &a->blob);
    if (copy && bytes)
        memcpy(copy, a->data, (size_t)bytes);
    a->data = copy;
    return copy != NULL;
}

static weft_node *append_node(weft_graph *g, weft_op op, const weft_value *in, int in_count,
                              const void *attr, const weft_op_out *outs, int out_count)
{
    const int slots = in_count > WEFT_MAX_INPUTS ? in_count : WEFT_MAX_INPUTS;
    weft_node *node = weft_arena_alloc(g->arena, sizeof *node);
    weft_value *own_in = weft_arena_calloc(g->arena, slots, sizeof *own_in);
    const weft_op_info *info = weft_op_get(op);
    void *own_attr = weft_arena_alloc(g->arena, info->attr_bytes);
    const char *scope = scope_name(g);
    if (!node || !own_in || !own_attr || !scope ||
        weft_grow((void **)&g->node, g->node_count, &g->node_capacity, sizeof *g->node) !=
            WEFT_OK) {
        out_of_memory(g);
        return NULL;
    }
    if (attr)
        memcpy(own_attr, attr, (size_t)info->attr_bytes);
    if (op == WEFT_OP_CONSTANT && !hold_constant(g, own_attr))
        return NULL;
    *node = (weft_node){.op = op,
                        .in_count = in_count,
                        .out_count = out_count,
                        .in = own_in,
                        .attr = own_attr,
                        .scope = scope,
                        .backward = g->building_backward};
    for (int i = 0; i < slots; i++)
        node->in[i] = i < in_count ? in[i] : WEFT_NONE;
    for (int i = 0; i < WEFT_MAX_OUTPUTS; i++)
        node->out[i] = WEFT_NONE;
    for (int i = 0; i < out_count; i++) {
        if (weft_grow((void **)&g->value, g->value_count, &g->value_capacity, sizeof *g->value) !=
            WEFT_OK) {
            out_of_memory(g);
            return NULL;
        }
        node->out[i] = (weft_value){(int32_t)g->value_count};
        g->value[g->value_count++] = (weft_value_info){.dtype = outs[i].dtype,
                                                       .shape = outs[i].shape,
                                                       .node = (int32_t)g->node_count,
                                                       .output = i};
    }
    g->node[g->node_count++] = node;
    g->most_inputs = in_count > g->most_inputs ? in_count : g->most_inputs;
    return node;
}

/* ---- layouts of nodes built on a mesh ------------------------------------------------------ */

static bool is_whole(weft_layout l)
{
    return l.kind == WEFT_R || l.kind == WEFT_V;
}

bool weft_layout_same(weft_layout a, weft_layout b)
{
    return a.kind == b.kind && (a.kind != WEFT_S || a.dim == b.dim);
}

/* Whether a row of the op's rule requires the layouts that the inputs have; unsharded operands may
 * be R or V. */
static bool fits_row(const weft_graph *g, const weft_node *n, int axis,
                     const weft_layout_choice *row)
{
    for (int i = 0; i < n->in_count; i++) {
        if (!weft_value_ok(n->in[i]))
            continue;
        const weft_layout is = g->value[n->in[i].id].layout[axis], need = weft_layout_need(row, i);
        if (need.kind == WEFT_R ? !is_whole(is) : !weft_layout_same(is, need))
            return false;
    }
    return true;
}

static bool converts_axis(const weft_node *n, int axis)
{
    return weft_op_has(n->op, WEFT_TRAIT_CONVERTS) &&
           ((const weft_attr_comm *)n->attr)->axis == axis;
}

/* Derives the layouts of the outputs from the inputs; UNKNOWN if no rule determines them. Passes
 * may set the layout afterwards. */
static void derive_layouts(weft_graph *g, const weft_node *n)
{
    for (int a = 0; a < g->mesh.axis_count; a++) {
        bool all_r = true, all_whole = true;
        for (int i = 0; i < n->in_count; i++) {
            const weft_layout l =
                weft_value_ok(n->in[i]) ? g->value[n->in[i].id].layout[a] : (weft_layout){0};
            all_r &= l.kind == WEFT_R;
            all_whole &= is_whole(l);
        }
        const bool converts = converts_axis(n, a);
        if (all_r && !converts)
            continue;
        weft_layout_choice row[WEFT_MAX_CHOICES];
        const int rows = converts || all_whole ? 0 : weft_op_get(n->op)->layout(g, n, 0, row);
        int match = 0;
        while (match < rows && !fits_row(g, n, a, &row[match]))
            match++;
        for (int o = 0; o < n->out_count; o++)
            g->value[n->out[o].id].layout[a] = converts       ? weft_conversion_result(n)
                                               : all_whole    ? (weft_layout){WEFT_V, 0}
                                               : match < rows ? row[match].out[o]
                                                              : (weft_layout){WEFT_UNKNOWN, 0};
    }
}

bool weft_layout_may_be(const weft_graph *g, weft_value v, int axis, weft_layout layout)
{
    const weft_value_info *info = &g->value[v.id];
    const weft_node *n = g->node[info->node];
    const weft_layout is = info->layout[axis];
    if (weft_layout_same(is, layout) || (is.kind == WEFT_R && layout.kind == WEFT_V))
        return true;
    if (converts_axis(n, axis) || is.kind == WEFT_UNKNOWN)
        return false;
    weft_layout_choice row[WEFT_MAX_CHOICES];
    const int rows = weft_op_get(n->op)->layout(g, n, 0, row);
    for (int i = 0; i < rows; i++)
        if (fits_row(g, n, axis, &row[i]) && weft_layout_same(row[i].out[info->output], layout))
            return true;
    return false;
}

void weft_emit_all(weft_graph *g, weft_op op, const weft_value *in, int in_count, const void *attr,
                   weft_value out[WEFT_MAX_OUTPUTS])
{
    for (int i = 0; i < WEFT_MAX_OUTPUTS; i++)
        out[i] = WEFT_NONE;
    if (g->error != WEFT_OK)
        return;
    static const weft_attr_none none = {0};
    const weft_op_info *info = weft_op_get(op);
    weft_op_out outs[WEFT_MAX_OUTPUTS] = {0};
    weft_inference inference = {.graph = g,
                                .op = op,
                                .in = in,
                                .in_count = in_count,
                                .attr = attr ? attr : &none,
                                .out = outs,
                                .count = 1};
    if (!check_inputs(g, info, in, in_count))
        return;
    if (!info->infer(&inference)) {
        weft_graph_fail(g, WEFT_MSG_TENSOR_SHAPE, "%s: inputs do not fit", info->name);
        return;
    }
    weft_node *node = append_node(g, op, in, in_count, attr, outs, inference.count);
    if (node) {
        derive_layouts(g, node);
        memcpy(out, node->out, sizeof node->out);
    }
}

weft_value weft_emit(weft_graph *g, weft_op op, const weft_value *in, int in_count,
                     const void *attr)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, op, in, in_count, attr, out);
    return out[0];
}

/* ---- sources ------------------------------------------------------------------------------- */

weft_value weft_source(weft_graph *g, weft_op op, const char *full_name,
                       const weft_attr_source *attr)
{
    const weft_value v = weft_emit(g, op, NULL, 0, attr);
    if (!weft_value_ok(v))
        return v;
    g->value[v.id].name = weft_arena_strdup(g->arena, full_name);
    if (!g->value[v.id].name) {
        out_of_memory(g);
        return WEFT_NONE;
    }
    return name_add(g, v) ? v : WEFT_NONE;
}

static weft_value source(weft_graph *g, weft_op op, const char *name, weft_attr_source attr)
{
    if (g->error != WEFT_OK)
        return WEFT_NONE;
    const char *scope = scope_name(g);
    const char *full =
        scope ? weft_arena_printf(g->arena, "%s%s%s", scope, *scope ? "." : "", name) : NULL;
    if (!full) {
        out_of_memory(g);
        return WEFT_NONE;
    }
    return weft_source(g, op, full, &attr);
}

weft_value weft_state_like(weft_graph *g, const char *name, weft_value like, int axis, int dim,
                           weft_init init)
{
    if (g->error != WEFT_OK || !weft_value_ok(like))
        return WEFT_NONE;
    const weft_value_info *info = &g->value[like.id];
    weft_layout layout[WEFT_MAX_AXES];
    memcpy(layout, info->layout, sizeof layout);
    weft_attr_source attr = *(const weft_attr_source *)g->node[info->node]->attr;
    attr.dtype = WEFT_F32;
    attr.init = init;
    attr.frozen = attr.offloaded = false;
    if (dim >= 0) {
        int coordinate[WEFT_MAX_AXES];
        int64_t start;
        weft_mesh_coordinates(&g->mesh, g->rank, coordinate);
        weft_part(attr.shape.dim[dim], g->mesh.axis[axis].size, coordinate[axis], &start,
                  &attr.shape.dim[dim]);
        attr.start[dim] += start;
        layout[axis] = (weft_layout){WEFT_S, (int8_t)dim};
    }
    const weft_value v = source(g, WEFT_OP_STATE, name, attr);
    weft_graph_set_layout(g, v, layout);
    return v;
}

weft_value weft_input(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape)
{
    return source(g, WEFT_OP_INPUT, name,
                  (weft_attr_source){.dtype = dtype, .shape = shape, .global = shape});
}

weft_value weft_param(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init)
{
    if (dtype == WEFT_F32 && shape.rank >= 2)
        dtype = g->weight_dtype;
    return source(
        g, WEFT_OP_PARAM, name,
        (weft_attr_source){.dtype = dtype, .shape = shape, .global = shape, .init = init});
}

weft_value weft_buffer(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                       weft_init init)
{
    return source(
        g, WEFT_OP_PARAM, name,
        (weft_attr_source){
            .dtype = dtype, .shape = shape, .global = shape, .init = init, .frozen = true});
}

void weft_graph_store_weights_as(weft_graph *g, weft_dtype dtype)
{
    g->weight_dtype = dtype;
}

weft_value weft_state(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init)
{
    return source(
        g, WEFT_OP_STATE, name,
        (weft_attr_source){.dtype = dtype, .shape = shape, .global = shape, .init = init});
}

weft_value weft_constant(weft_graph *g, weft_dtype dtype, weft_shape shape, const void *data)
{
    if (g->error != WEFT_OK)
        return WEFT_NONE;
    return weft_emit(g, WEFT_OP_CONSTANT, NULL, 0,
                     &(weft_attr_constant){.dtype = dtype, .shape = shape, .data = data});
}

weft_value weft_fill(weft_graph *g, weft_dtype dtype, weft_shape shape, double value)
{
    return weft_emit(g, WEFT_OP_FILL, NULL, 0,
                     &(weft_attr_fill){.value = value, .dtype = dtype, .shape = shape});
}

/* ---- outputs and updates ------------------------------------------------------------------- */

void weft_output(weft_graph *g, const char *name, weft_value value)
{
    if (g->error != WEFT_OK || !weft_value_ok(value))
        return;
    for (int64_t i = 0; i < g->output_count; i++)
        if (!strcmp(g->output[i].name, name)) {
            weft_graph_fail(g, WEFT_MSG_ARGUMENT_INVALID, "the output name \"%s\" is used twice",
                            name);
            return;
        }
    char *copy = weft_arena_strdup(g->arena, name);
    if (!copy || weft_grow((void **)&g->output, g->output_count, &g->output_capacity,
                           sizeof *g->output) != WEFT_OK) {
        out_of_memory(g);
        return;
    }
    g->output[g->output_count++] = (weft_named){copy, value};
}

void weft_update(weft_graph *g, weft_value source_value, weft_value value)
{
    if (g->error != WEFT_OK || !weft_value_ok(source_value) || !weft_value_ok(value))
        return;
    const weft_value_info *to = &g->value[source_value.id], *from = &g->value[value.id];
    if (!weft_op_has(g->node[to->node]->op, WEFT_TRAIT_PERSISTENT)) {
        weft_graph_fail(g, WEFT_MSG_ARGUMENT_INVALID, "update: only params and states persist");
        return;
    }
    if (to->dtype != from->dtype || !weft_shape_equal(&to->shape, &from->shape)) {
        char a[96], b[96];
        weft_graph_fail(g, WEFT_MSG_TENSOR_SHAPE, "update of %s: %s does not fit %s", to->name,
                        weft_format_value(g, value, a), weft_format_value(g, source_value, b));
        return;
    }
    if (weft_grow((void **)&g->update, g->update_count, &g->update_capacity, sizeof *g->update) !=
        WEFT_OK) {
        out_of_memory(g);
        return;
    }
    g->update[g->update_count++] = (weft_pair){source_value, value};
}

/* ---- reading ------------------------------------------------------------------------------- */

int32_t weft_graph_node_count(const weft_graph *g)
{
    return (int32_t)g->node_count;
}

const weft_node *weft_graph_node(const weft_graph *g, int32_t index)
{
    return g->node[index];
}

weft_node *weft_graph_node_mut(weft_graph *g, int32_t index)
{
    return g->node[index];
}

int32_t weft_graph_value_count(const weft_graph *g)
{
    return (int32_t)g->value_count;
}

int weft_graph_most_inputs(const weft_graph *g)
{
    return g->most_inputs > WEFT_MAX_INPUTS ? g->most_inputs : WEFT_MAX_INPUTS;
}

const weft_value_info *weft_value_get(const weft_graph *g, weft_value v)
{
    assert(v.id >= 0 && v.id < g->value_count);
    return &g->value[v.id];
}

const weft_named *weft_graph_outputs(const weft_graph *g, int *count)
{
    *count = (int)g->output_count;
    return g->output;
}

const weft_pair *weft_graph_updates(const weft_graph *g, int *count)
{
    *count = (int)g->update_count;
    return g->update;
}

const weft_mesh *weft_graph_mesh(const weft_graph *g)
{
    return &g->mesh;
}

int weft_graph_rank(const weft_graph *g)
{
    return g->rank;
}

void weft_graph_set_mesh(weft_graph *g, const weft_mesh *mesh, int rank)
{
    g->mesh = *mesh;
    g->rank = rank;
}

void weft_graph_set_layout(weft_graph *g, weft_value v, const weft_layout layout[WEFT_MAX_AXES])
{
    if (g->error == WEFT_OK && weft_value_ok(v))
        memcpy(g->value[v.id].layout, layout, sizeof g->value[v.id].layout);
}

weft_dtype weft_node_dtype(const weft_graph *g, const weft_node *node)
{
    const bool narrow = node->in_count > 0 && weft_value_ok(node->in[0]) &&
                        weft_value_get(g, node->in[0])->dtype == WEFT_BF16;
    return narrow ? WEFT_BF16 : WEFT_F32;
}

weft_cost weft_node_cost(const weft_graph *g, int32_t node)
{
    const weft_op_info *row = weft_op_get(g->node[node]->op);
    weft_cost cost = row->cost(g, g->node[node]);
    const bool narrow =
        row->work != WEFT_WORK_MEMORY && weft_node_dtype(g, g->node[node]) == WEFT_BF16;
    cost.bf16_flops = narrow ? cost.flops : 0;
    return cost;
}

weft_cost weft_graph_cost(const weft_graph *g)
{
    weft_cost total = {0};
    for (int64_t i = 0; i < g->node_count; i++) {
        const weft_cost c = weft_node_cost(g, (int32_t)i);
        total.flops += c.flops;
        total.bytes += c.bytes;
        total.wire_bytes += c.wire_bytes;
        total.bf16_flops += c.bf16_flops;
    }
    return total;
}

weft_products weft_graph_products(const weft_graph *g)
{
    weft_products products = WEFT_PRODUCTS_F32;
    for (int64_t i = 0; i < g->node_count; i++) {
        if (weft_node_cost(g, (int32_t)i).bf16_flops > 0)
            return WEFT_PRODUCTS_BF16;
        if (weft_op_is_tf32(g->node[i]->op, g->node[i]->attr))
            products = WEFT_PRODUCTS_TF32;
    }
    return products;
}

int64_t weft_graph_param_count(const weft_graph *g)
{
    int64_t count = 0;
    for (int64_t i = 0; i < g->node_count; i++)
        if (g->node[i]->op == WEFT_OP_PARAM)
            count += weft_shape_count(&((const weft_attr_source *)g->node[i]->attr)->global);
    return count;
}

const weft_value *weft_graph_params(weft_graph *g, int *count)
{
    *count = 0;
    weft_value *list = weft_arena_calloc(g->arena, g->node_count + 1, sizeof *list);
    if (!list) {
        out_of_memory(g);
        return NULL;
    }
    for (int64_t i = 0; i < g->node_count; i++)
        if (g->node[i]->op == WEFT_OP_PARAM &&
            !((const weft_attr_source *)g->node[i]->attr)->frozen)
            list[(*count)++] = g->node[i]->out[0];
    return list;
}

void weft_graph_copy_node(weft_graph *to, const weft_graph *from, int32_t node, weft_value *map)
{
    weft_graph_copy_node_with(to, from, node, from->node[node]->attr, map);
}

void weft_graph_copy_node_with(weft_graph *to, const weft_graph *from, int32_t index,
                               const void *attr, weft_value *map)
{
    const weft_node *node = from->node[index];
    if (to->error != WEFT_OK)
        return;
    weft_value few[WEFT_MAX_INPUTS], *in = few, out[WEFT_MAX_OUTPUTS];
    if (node->in_count > WEFT_MAX_INPUTS)
        in = weft_calloc(node->in_count, sizeof *in);
    if (!in) {
        out_of_memory(to);
        return;
    }
    for (int i = 0; i < node->in_count; i++)
        in[i] = weft_value_ok(node->in[i]) ? map[node->in[i].id] : WEFT_NONE;
    const bool was_backward = to->building_backward;
    weft_graph_push(to, "%s", node->scope);
    to->building_backward = node->backward;
    weft_emit_all(to, node->op, in, node->in_count, attr, out);
    if (in != few)
        weft_free(in);
    to->building_backward = was_backward;
    weft_graph_pop(to);
    for (int i = 0; i < node->out_count; i++) {
        map[node->out[i].id] = out[i];
        if (!weft_value_ok(out[i]))
            continue;
        memcpy(to->value[out[i].id].layout, from->value[node->out[i].id].layout,
               sizeof to->value[out[i].id].layout);
        const char *name = from->value[node->out[i].id].name;
        if (name) {
            weft_value_set_name(to, out[i], name);
            if (weft_op_has(node->op, WEFT_TRAIT_NAMED) && to->error == WEFT_OK)
                name_add(to, out[i]);
        }
    }
    if (weft_value_ok(out[0])) {
        weft_node *made = to->node[to->value[out[0].id].node];
        made->recompute = node->recompute;
        made->offload = node->offload;
    }
}
