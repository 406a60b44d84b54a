/* What the files of graph/ share: the graph's inside, and the functions that the op table names. */
#ifndef WEFT_GRAPH_INTERNAL_H
#define WEFT_GRAPH_INTERNAL_H

#include "graph/graph.h"

#include <stdatomic.h>

struct weft_graph {
    weft_arena *arena;
    weft_node **node; /* [node_count], topological; each in the arena, so pointers stay valid */
    int64_t node_count, node_capacity;
    int most_inputs;        /* of a node */
    weft_value_info *value; /* [value_count] */
    int64_t value_count, value_capacity;
    weft_named *output;
    int64_t output_count, output_capacity;
    weft_pair *update;
    int64_t update_count, update_capacity;
    weft_buf scope;      /* "blocks.3.attn1" */
    int64_t *scope_mark; /* lengths of `scope` before each push */
    int64_t scope_depth, scope_capacity;
    const char *scope_name;  /* arena copy of `scope`, NULL: to be made */
    weft_dtype weight_dtype; /* that f32 parameters of rank 2 and more are stored in */
    bool building_backward;  /* nodes made now belong to the backward */
    weft_mesh mesh;
    int rank;
    /* open addressing over names of sources: value id + 1, 0 empty */
    int32_t *name_table;
    int64_t name_slots, name_count;
    weft_blob **blob; /* data of constants that nodes here point into; each holds a count */
    int64_t blob_count, blob_capacity;
    weft_status_code error;
    char *error_text; /* arena */
};

/* The data of constants: never changed, counted, so that graphs share it and passes copy none. */
struct weft_blob {
    atomic_int holders;
    int64_t bytes;
    _Alignas(64) unsigned char data[];
};
/* A new one that `g` holds; NULL with a sticky error when memory is out. */
void *weft_graph_blob(weft_graph *g, int64_t bytes, weft_blob **blob);

bool weft_layout_same(weft_layout a, weft_layout b);
/* Whether the rule of the node that makes `v` allows that layout, beside the one that was derived:
 * what a reshape or a broadcast makes of parts is not always told by its operands. */
bool weft_layout_may_be(const weft_graph *g, weft_value v, int axis, weft_layout layout);
/* Lays a gradient made without operands out as gradients of `of` are. */
void weft_grad_set_layout(weft_graph *g, weft_value grad, weft_value of);

/* Op table cells; the stems are those of op.def. */
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, infer, vjp, layout, local, cost, ...)   \
    weft_print_fn weft_print_##attr;                                                               \
    weft_infer_fn weft_infer_##infer;                                                              \
    weft_vjp_fn weft_vjp_##vjp;                                                                    \
    weft_layout_fn weft_layout_##layout;                                                           \
    weft_local_fn weft_local_##local;                                                              \
    weft_cost_fn weft_cost_##cost;
#include "graph/op.def"

/* Shape of an input; scalar for absent ones. */
static inline const weft_value_info *weft_in_info(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) ? &g->value[v.id] : NULL;
}
/* "f32[2,3]" in text[96]. */
const char *weft_format_value(const weft_graph *g, weft_value v, char text[96]);
const char *weft_format_shape(const weft_shape *shape, char text[96]);

#endif
