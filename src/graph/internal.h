/* Internals shared by the files of graph/: the graph's struct, and the functions named in the op
 * table. */
#ifndef WEFT_GRAPH_INTERNAL_H
#define WEFT_GRAPH_INTERNAL_H

#include "graph/graph.h"

#include <stdatomic.h>

struct weft_graph {
    weft_arena *arena;
    weft_node **node; /* [node_count], topological; each in the arena, so pointers stay valid */
    int64_t node_count, node_capacity;
    int most_inputs;        /* maximum over nodes */
    weft_value_info *value; /* [value_count] */
    int64_t value_count, value_capacity;
    weft_named *output;
    int64_t output_count, output_capacity;
    weft_pair *update;
    int64_t update_count, update_capacity;
    weft_buf scope;      /* "blocks.3.attn1" */
    int64_t *scope_mark; /* lengths of `scope` before each push */
    int64_t scope_depth, scope_capacity;
    const char *scope_name;  /* arena copy of `scope`; NULL: not copied yet */
    weft_dtype weight_dtype; /* storage type of f32 parameters of rank 2 and more */
    bool building_backward;  /* new nodes belong to the backward */
    weft_mesh mesh;
    int rank;
    /* open addressing over names of sources: value id + 1; 0: empty */
    int32_t *name_table;
    int64_t name_slots, name_count;
    weft_blob **blob; /* data of this graph's constants, reference counted */
    int64_t blob_count, blob_capacity;
    weft_status_code error;
    weft_message_class error_class;
    char *error_scope, *error_text; /* arena; scope NULL: none */
};

/* Data of a constant: immutable and reference counted. Graphs share it, so passes do not copy
 * it. */
struct weft_blob {
    atomic_int holders;
    int64_t bytes;
    _Alignas(64) unsigned char data[];
};

/* Declarations of the op table's functions; the stems are those of op.def. */
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, infer, vjp, layout, local, cost, ...)   \
    weft_print_fn weft_print_##attr;                                                               \
    weft_infer_fn weft_infer_##infer;                                                              \
    weft_vjp_fn weft_vjp_##vjp;                                                                    \
    weft_layout_fn weft_layout_##layout;                                                           \
    weft_local_fn weft_local_##local;                                                              \
    weft_cost_fn weft_cost_##cost;
#include "graph/op.def"

/* Info of an input; NULL for absent ones. */
static inline const weft_value_info *weft_in_info(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) ? &g->value[v.id] : NULL;
}

#endif
