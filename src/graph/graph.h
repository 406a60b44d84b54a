/* The graph: values, nodes, the builder, verification, autodiff, printing.
 *
 * A graph is allocated in one arena. Values are indices. The builder's error is sticky: after the
 * first bad call the graph is marked, and later calls return WEFT_NONE and do nothing.
 * weft_graph_check() reports that first error with scope, op, operands and shapes ("blocks.3.attn:
 * matmul: ..."). Nodes are stored in the order of building, which is topological. */
#ifndef WEFT_GRAPH_GRAPH_H
#define WEFT_GRAPH_GRAPH_H

#include "base/memory.h"
#include "graph/infer.h"
#include "graph/mesh.h"
#include "graph/op.h"

#include <string.h>

struct weft_node {
    weft_op op;
    int in_count, out_count;
    /* graph arena; WEFT_NONE: absent. Entries from in_count to WEFT_MAX_INPUTS are absent. */
    weft_value *in;
    weft_value out[WEFT_MAX_OUTPUTS];
    const void *attr;  /* graph arena, type by op */
    const char *scope; /* "blocks.3.attn1", "" at the top */
    bool backward;     /* emitted by autodiff */
    bool recompute;    /* outputs are recomputed for the backward, not saved */
    bool offload;      /* outputs are offloaded for the backward */
};

typedef struct weft_value_info {
    weft_dtype dtype;
    weft_shape shape;
    int32_t node;     /* producer */
    int output;       /* index of the output of `node` */
    const char *name; /* full name of inputs, params, states and named outputs; else NULL */
    weft_layout layout[WEFT_MAX_AXES]; /* per mesh axis; all R before sharding */
} weft_value_info;

weft_graph *weft_graph_create(void); /* NULL: out of memory */
void weft_graph_free(weft_graph *graph);
weft_arena *weft_graph_arena(weft_graph *graph);
/* Bytes that the graph holds, with its share of constants that other graphs use, too. */
int64_t weft_graph_bytes(const weft_graph *graph);

/* ---- building ------------------------------------------------------------------------------ */

/* Scopes nest: push("blocks.%d", i) inside "transformer" names "transformer.blocks.0". */
void weft_graph_push(weft_graph *graph, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void weft_graph_pop(weft_graph *graph);

#define WEFT_SHAPE(...)                                                                            \
    weft_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define WEFT_SCALAR ((weft_shape){0})

/* Declares an input or a trainable parameter. `name` is relative to the scope. Declaring a name
 * twice is an error. */
weft_value weft_input(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape);
weft_value weft_param(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* A name with '*' is a stack: files store its items along dim 0 separately, under the name with the
 * item's index in place of '*' ("experts.*.w1.weight"). */
static inline bool weft_name_is_stack(const char *name)
{
    return strchr(name, '*') != NULL;
}
/* A parameter that is never trained, stored in checkpoints like weights. */
weft_value weft_buffer(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                       weft_init init);
/* Declares later f32 parameters of rank 2 and more in `dtype` (BF16, F16). The weights are stored
 * in `dtype` and computed with in f32. For graphs that are not trained. */
void weft_graph_store_weights_as(weft_graph *g, weft_dtype dtype);
weft_value weft_state(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* Declares a source with all attributes and its full name, for passes. */
weft_value weft_source(weft_graph *g, weft_op op, const char *full_name,
                       const weft_attr_source *attr);
/* An f32 state with the shape and split of `like`, a source: optimizer moments, EMA. `dim` >= 0:
 * only this rank's shard along `dim` on `axis`, on which `like` is unsharded. */
weft_value weft_state_like(weft_graph *g, const char *name, weft_value like, int axis, int dim,
                           weft_init init);
/* Copies `data` once; graphs that passes derive share the copy. */
weft_value weft_constant(weft_graph *g, weft_dtype dtype, weft_shape shape, const void *data);
weft_value weft_fill(weft_graph *g, weft_dtype dtype, weft_shape shape, double value);

/* Emits any op. `attr` points to the op's attribute struct and is copied (NULL for
 * weft_attr_none). */
weft_value weft_emit(weft_graph *g, weft_op op, const weft_value *in, int in_count,
                     const void *attr);
/* Like weft_emit, with all outputs; absent entries of out[] are WEFT_NONE. */
void weft_emit_all(weft_graph *g, weft_op op, const weft_value *in, int in_count, const void *attr,
                   weft_value out[WEFT_MAX_OUTPUTS]);

/* Marks a value as an output, readable under `name` (not scoped) after a run. */
void weft_output(weft_graph *g, const char *name, weft_value value);
/* After each run, sets the persistent `source` (param or state) to `value`, of the same shape and
 * dtype. */
void weft_update(weft_graph *g, weft_value source, weft_value value);

/* Records the sticky error; its key is the current scope. Returns WEFT_NONE. */
weft_value weft_graph_fail(weft_graph *g, weft_message_class kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
weft_status weft_graph_check(const weft_graph *g);

/* ---- reading ------------------------------------------------------------------------------- */

int32_t weft_graph_node_count(const weft_graph *g);
const weft_node *weft_graph_node(const weft_graph *g, int32_t index);
int32_t weft_graph_value_count(const weft_graph *g);
/* Maximum number of inputs of a node, at least WEFT_MAX_INPUTS: the capacity for a buffer of
 * inputs. */
int weft_graph_most_inputs(const weft_graph *g);
const weft_value_info *weft_value_get(const weft_graph *g, weft_value v);
typedef struct weft_named {
    const char *name;
    weft_value value;
} weft_named;
typedef struct weft_pair {
    weft_value source, value;
} weft_pair;
const weft_named *weft_graph_outputs(const weft_graph *g, int *count);
const weft_pair *weft_graph_updates(const weft_graph *g, int *count);
weft_value weft_graph_find(const weft_graph *g, const char *name); /* source or output; WEFT_NONE */
const weft_mesh *weft_graph_mesh(const weft_graph *g);
/* The mesh rank that this graph is sharded for (0 before sharding). */
int weft_graph_rank(const weft_graph *g);
void weft_graph_set_mesh(weft_graph *g, const weft_mesh *mesh, int rank);
void weft_graph_set_layout(weft_graph *g, weft_value v, const weft_layout layout[WEFT_MAX_AXES]);
weft_node *weft_graph_node_mut(weft_graph *g, int32_t index); /* for passes: flags and inputs */
void weft_value_set_name(weft_graph *g, weft_value v, const char *name);

/* Returns the type in which a node computes: BF16 if its first operand is of bf16, else F32. */
weft_dtype weft_node_dtype(const weft_graph *g, const weft_node *node);
weft_cost weft_node_cost(const weft_graph *g, int32_t node);
weft_cost weft_graph_cost(const weft_graph *g);
/* Returns bf16 or TF32 if a node multiplies in this type. */
weft_products weft_graph_products(const weft_graph *g);
int64_t weft_graph_param_count(const weft_graph *g); /* elements of the unsharded parameters */

/* ---- whole-graph functions ----------------------------------------------------------------- */

/* All trainable params in the order of building, in the arena. */
const weft_value *weft_graph_params(weft_graph *g, int *count);

/* For passes: emits `node` into `to` with inputs mapped by map[old value id], also for sources.
 * Copies names, layouts and flags. */
void weft_graph_copy_node(weft_graph *to, const weft_graph *from, int32_t node, weft_value *map);
/* Copies the node with another attribute. */
void weft_graph_copy_node_with(weft_graph *to, const weft_graph *from, int32_t node,
                               const void *attr, weft_value *map);

/* A new blob held by `g`; NULL with a sticky error if memory is out. */
void *weft_graph_blob(weft_graph *g, int64_t bytes, weft_blob **blob);
bool weft_layout_same(weft_layout a, weft_layout b);
/* Whether the rule of the node that computes `v` allows `layout`, in addition to the derived one.
 * Operands do not always determine the layout of a reshape or broadcast of shards. */
bool weft_layout_may_be(const weft_graph *g, weft_value v, int axis, weft_layout layout);

#endif
