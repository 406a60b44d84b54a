#include "transform/sharding/input_footprint.h"

#include "graph/graph.h"

#include <string.h>

typedef struct reads {
    const weft_graph *g;
    int coordinate[WEFT_MAX_AXES];
    bool *live;  /* per node: an output or update depends on it */
    bool **read; /* per value and element; NULL: not a view of the input */
} reads;

static const weft_shape *shape_of(const weft_graph *g, weft_value v)
{
    return &weft_value_get(g, v)->shape;
}

static bool is_view(weft_op op)
{
    const weft_op_origin origin = weft_op_get(op)->origin;
    return origin == WEFT_ORIGIN_same || origin == WEFT_ORIGIN_cast || origin == WEFT_ORIGIN_part;
}

static void find_live(const reads *r)
{
    const weft_graph *g = r->g;
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        r->live[weft_value_get(g, output[i].value)->node] = true;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        r->live[weft_value_get(g, update[i].value)->node] = true;
    for (int32_t i = weft_graph_node_count(g) - 1; i >= 0; i--) {
        const weft_node *n = weft_graph_node(g, i);
        for (int k = 0; r->live[i] && k < n->in_count; k++)
            if (weft_value_ok(n->in[k]))
                r->live[weft_value_get(g, n->in[k])->node] = true;
    }
}

/* Marks the input elements inside `box`, which begins at start[] of the input. `out`: which
 * elements of the box are read (NULL: all). `perm`: input dim of each dim of the box. */
static void read_box(const weft_shape *in, const weft_shape *box, const int64_t *start,
                     const int *perm, const bool *out, bool *read)
{
    int64_t stride[WEFT_MAX_RANK], at[WEFT_MAX_RANK] = {0}, step = 1;
    for (int d = in->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= in->dim[d];
    }
    const int64_t count = weft_shape_count(box);
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0;
        for (int d = 0; d < box->rank; d++) {
            const int from = perm ? perm[d] : d;
            offset += (at[d] + start[from]) * stride[from];
        }
        if (!out || out[i])
            read[offset] = true;
        for (int d = box->rank - 1; d >= 0 && ++at[d] == box->dim[d]; d--)
            at[d] = 0;
    }
}

/* Marks the elements of its operand, a view of the input, that node `n` reads. */
static void read_by(const reads *r, const weft_node *n, const weft_shape *in, bool *read)
{
    int64_t start[WEFT_MAX_RANK] = {0};
    weft_shape box = *in;
    const int64_t count = weft_shape_count(in);
    const bool *out = r->read[n->out[0].id];
    if (n->op == WEFT_OP_PERMUTE) {
        read_box(in, shape_of(r->g, n->out[0]), start, ((const weft_attr_permute *)n->attr)->perm,
                 out, read);
    } else if (n->op == WEFT_OP_SLICE) {
        const weft_attr_slice *a = n->attr;
        start[a->dim] = a->start;
        read_box(in, shape_of(r->g, n->out[0]), start, NULL, out, read);
    } else if (n->op == WEFT_OP_SLICE_OWN) {
        const weft_attr_comm *a = n->attr;
        weft_part(in->dim[a->dim], weft_graph_mesh(r->g)->axis[a->axis].size,
                  r->coordinate[a->axis], &start[a->dim], &box.dim[a->dim]);
        read_box(in, &box, start, NULL, NULL, read);
    } else if (is_view(n->op)) {
        for (int64_t i = 0; i < count; i++)
            read[i] = read[i] || out[i];
    } else {
        memset(read, true, (size_t)count);
    }
}

static weft_status follow(reads *r, weft_value input)
{
    const weft_graph *g = r->g;
    const int32_t nodes = weft_graph_node_count(g);
    for (int32_t i = 0; i < nodes; i++) {
        const weft_node *n = weft_graph_node(g, i);
        const bool is_input = i == weft_value_get(g, input)->node;
        if (!is_input && !(is_view(n->op) && r->live[i] && r->read[n->in[0].id]))
            continue;
        bool **read = &r->read[n->out[0].id];
        *read = weft_alloc(weft_shape_count(shape_of(g, n->out[0])) + 1);
        WEFT_TRY(WEFT_ALLOCATED(*read, "the inputs of a graph"));
    }
    for (int32_t i = nodes - 1; i >= 0; i--) {
        const weft_node *n = weft_graph_node(g, i);
        for (int k = 0; r->live[i] && k < n->in_count; k++)
            if (weft_value_ok(n->in[k]) && r->read[n->in[k].id])
                read_by(r, n, shape_of(g, n->in[k]), r->read[n->in[k].id]);
    }
    return WEFT_OK;
}

weft_status weft_input_footprint(const weft_graph *g, weft_value input, int rank, bool *read)
{
    const int32_t values = weft_graph_value_count(g);
    reads r = {.g = g,
               .live = weft_alloc(weft_graph_node_count(g) + 1),
               .read = weft_calloc(values + 1, sizeof *r.read)};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(r.live && r.read, "the inputs of a graph"));
    weft_mesh_coordinates(weft_graph_mesh(g), rank, r.coordinate);
    find_live(&r);
    WEFT_GO(follow(&r, input));
    memcpy(read, r.read[input.id], (size_t)weft_shape_count(shape_of(g, input)));
out:
    for (int32_t v = 0; r.read && v < values; v++)
        weft_free(r.read[v]);
    weft_free(r.live);
    weft_free((void *)r.read);
    return status;
}
