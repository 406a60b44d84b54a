#include "lockstep.h"
#include "kernel/ref/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(lockstep *l, const weft_node *n, const char *why)
{
    if (!l->error[0])
        snprintf(l->error, sizeof l->error, "%s: %s", n ? weft_op_get(n->op)->name : "graphs", why);
}

static weft_view make_view(weft_dtype dtype, const weft_shape *shape)
{
    weft_view v = {.dtype = weft_dtype_is_float(dtype) ? WEFT_F64 : dtype, .shape = *shape};
    v.data = calloc((size_t)(weft_shape_count(shape) + 1), 8);
    return v;
}

/* Offset in the complete tensor of element `i` of the shard. */
static int64_t whole_index(const weft_shape *part, const weft_shape *whole, const int64_t *start,
                           int64_t i)
{
    int64_t index = 0, step = 1;
    for (int d = part->rank - 1; d >= 0; d--) {
        index += (i % part->dim[d] + start[d]) * step;
        i /= part->dim[d];
        step *= whole->dim[d];
    }
    return index;
}

static void fill_source(const weft_graph *g, const weft_node *n, weft_view *out,
                        lockstep_fill *fill, void *user)
{
    const weft_attr_source *a = n->attr;
    const char *name = weft_value_get(g, n->out[0])->name;
    for (int64_t i = 0, count = view_count(out); i < count; i++)
        view_set(out, i,
                 fill(user, name, a->dtype, whole_index(&a->shape, &a->global, a->start, i)));
}

static void run_kernel(lockstep *l, const weft_node *n, weft_view *values)
{
    weft_view in[256], out[WEFT_MAX_OUTPUTS];
    if (n->in_count > (int)(sizeof in / sizeof *in)) {
        fail(l, n, "more inputs than lockstep has room for");
        return;
    }
    for (int i = 0; i < n->in_count; i++)
        in[i] = weft_value_ok(n->in[i]) ? values[n->in[i].id] : (weft_view){.shape = {.rank = -1}};
    for (int o = 0; o < n->out_count; o++)
        out[o] = values[n->out[o].id];
    weft_kernel_args args = {.op = n->op,
                             .in = in,
                             .in_count = n->in_count,
                             .out = out,
                             .out_count = n->out_count,
                             .attr = n->attr};
    const weft_kernel *k = weft_backend_ref.kernel[n->op];
    if (!k) {
        fail(l, n, "no reference kernel");
        return;
    }
    void *workspace = k->workspace ? calloc(1, (size_t)k->workspace(&args) + 64) : NULL;
    args.workspace = workspace;
    if (k->run(&args) != WEFT_OK)
        fail(l, n, weft_error_message());
    free(workspace);
}

/* ---- conversions --------------------------------------------------------------------------- */

/* Copies box [at, at + size) of `from` to position `to_at` of `to`; `add` adds. */
static void copy_box(const weft_view *from, const int64_t *at, const weft_shape *size,
                     weft_view *to, const int64_t *to_at, bool add)
{
    const int64_t zero[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = weft_shape_count(size); i < n; i++) {
        const int64_t f = whole_index(size, &from->shape, at ? at : zero, i);
        const int64_t t = whole_index(size, &to->shape, to_at ? to_at : zero, i);
        if (from->dtype == WEFT_F64)
            view_set(to, t, view_get(from, f) + (add ? view_get(to, t) : 0));
        else
            view_set(to, t,
                     (double)view_get_int(from, f) + (add ? (double)view_get_int(to, t) : 0));
    }
}

/* Ranks that differ from `rank` on `axis` only, in the order of their coordinate. */
static int group_of(const weft_mesh *mesh, int rank, int axis, int *member)
{
    int own[WEFT_MAX_AXES], other[WEFT_MAX_AXES];
    weft_mesh_coordinates(mesh, rank, own);
    for (int r = 0; r < weft_mesh_ranks(mesh); r++) {
        weft_mesh_coordinates(mesh, r, other);
        bool same = true;
        for (int a = 0; a < mesh->axis_count; a++)
            same &= a == axis || own[a] == other[a];
        if (same)
            member[other[axis]] = r;
    }
    return own[axis];
}

static void run_comm(lockstep *l, int rank, int32_t node)
{
    const weft_graph *g = l->graph[rank];
    const weft_node *n = weft_graph_node(g, node);
    const weft_attr_comm *a = n->attr;
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int k = mesh->axis[a->axis].size;
    int member[64];
    const int own = group_of(mesh, rank, a->axis, member);
    weft_view *out = &l->value[rank][n->out[0].id];
    for (int m = 0; m < k; m++) {
        const weft_node *theirs = weft_graph_node(l->graph[member[m]], node);
        const weft_view *in = &l->value[member[m]][theirs->in[0].id];
        int64_t at[WEFT_MAX_RANK] = {0}, to[WEFT_MAX_RANK] = {0}, start, len;
        weft_shape size = in->shape;
        switch (n->op) {
        case WEFT_OP_VARY:
            if (m == own)
                copy_box(in, NULL, &size, out, NULL, false);
            break;
        case WEFT_OP_ALL_REDUCE: copy_box(in, NULL, &size, out, NULL, true); break;
        case WEFT_OP_ALL_GATHER:
            weft_part(a->global, k, m, &to[a->dim], &len);
            if (len != size.dim[a->dim])
                fail(l, n, "a part has another size");
            copy_box(in, NULL, &size, out, to, false);
            break;
        case WEFT_OP_REDUCE_SCATTER:
        case WEFT_OP_SLICE_OWN:
            weft_part(a->global, k, own, &at[a->dim], &size.dim[a->dim]);
            if (n->op == WEFT_OP_REDUCE_SCATTER || m == own)
                copy_box(in, at, &size, out, NULL, true);
            break;
        case WEFT_OP_ALL_TO_ALL:
            weft_part(a->global2, k, own, &at[a->dim2], &size.dim[a->dim2]);
            weft_part(a->global, k, m, &start, &len);
            to[a->dim] = start;
            if (len != size.dim[a->dim])
                fail(l, n, "a part has another size");
            copy_box(in, at, &size, out, to, false);
            break;
        case WEFT_OP_RING_SHIFT:
            if (m == ((own - a->shift) % k + k) % k)
                copy_box(in, NULL, &size, out, NULL, false);
            break;
        default: fail(l, n, "no conversion");
        }
    }
}

static void run_local(lockstep *l, const weft_graph *g, const weft_node *n, weft_view *values,
                      lockstep_fill *fill, void *user)
{
    weft_view *out = &values[n->out[0].id];
    if (weft_op_has(n->op, WEFT_TRAIT_NAMED)) {
        fill_source(g, n, out, fill, user);
    } else if (n->op == WEFT_OP_CONSTANT) {
        const weft_attr_constant *a = n->attr;
        const weft_view data = {
            .data = (void *)(uintptr_t)a->data, .dtype = a->dtype, .shape = a->shape};
        copy_box(&(weft_view){.data = data.data, .dtype = data.dtype, .shape = data.shape}, NULL,
                 &a->shape, out, NULL, false);
        for (int64_t i = 0; weft_dtype_is_float(a->dtype) && i < view_count(out); i++)
            view_set(out, i, view_get(&data, i));
    } else if (n->op == WEFT_OP_RESHAPE) {
        memcpy(out->data, values[n->in[0].id].data,
               (size_t)(view_count(out) * weft_dtype_bytes(out->dtype)));
    } else {
        run_kernel(l, n, values);
    }
}

/* All ranks must have the same nodes, or their collectives would not meet. */
static void check_alike(lockstep *l, int32_t node)
{
    const weft_node *first = weft_graph_node(l->graph[0], node);
    for (int r = 1; r < l->ranks; r++)
        if (weft_graph_node(l->graph[r], node)->op != first->op)
            fail(l, first, "ranks have different nodes here");
}

lockstep *lockstep_run(int ranks, weft_graph *const *graph, lockstep_fill *fill, void *user)
{
    lockstep *l = calloc(1, sizeof *l);
    l->ranks = ranks;
    l->graph = graph;
    l->value = calloc((size_t)ranks, sizeof *l->value);
    const int32_t nodes = weft_graph_node_count(graph[0]);
    for (int r = 0; r < ranks; r++) {
        l->value[r] = calloc((size_t)weft_graph_value_count(graph[r]) + 1, sizeof **l->value);
        if (weft_graph_node_count(graph[r]) != nodes)
            fail(l, NULL, "ranks have different numbers of nodes");
    }
    for (int32_t i = 0; i < nodes && !l->error[0]; i++) {
        check_alike(l, i);
        for (int r = 0; r < ranks; r++) {
            const weft_node *n = weft_graph_node(graph[r], i);
            for (int o = 0; o < n->out_count; o++) {
                const weft_value_info *info = weft_value_get(graph[r], n->out[o]);
                l->value[r][n->out[o].id] = make_view(info->dtype, &info->shape);
            }
        }
        for (int r = 0; r < ranks && !l->error[0]; r++) {
            const weft_node *n = weft_graph_node(graph[r], i);
            if (weft_op_has(n->op, WEFT_TRAIT_CONVERTS))
                run_comm(l, r, i);
            else
                run_local(l, graph[r], n, l->value[r], fill, user);
        }
    }
    return l;
}

void lockstep_free(lockstep *l)
{
    for (int r = 0; r < l->ranks; r++) {
        for (int32_t v = 0; v < weft_graph_value_count(l->graph[r]); v++)
            free(l->value[r][v].data);
        free(l->value[r]);
    }
    free(l->value);
    free(l);
}
