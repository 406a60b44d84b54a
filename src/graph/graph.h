/* The graph: values, nodes, the builder, verification, autodiff, printing.
 *
 * A graph lives in one arena. Values are indices. The builder's error is sticky: after the first
 * bad call the graph is marked, later calls return WEFT_NONE and do nothing, and weft_graph_check()
 * reports that first error with scope, op, operands and shapes ("blocks.3.attn: matmul: ...").
 * Nodes are stored in a topological order: the order of building. */
#ifndef WEFT_GRAPH_GRAPH_H
#define WEFT_GRAPH_GRAPH_H

#include "base/memory.h"
#include "graph/mesh.h"
#include "graph/op.h"

#include <string.h>

struct weft_node {
    weft_op op;
    int in_count, out_count;
    /* graph arena; WEFT_NONE: absent, as all up to WEFT_MAX_INPUTS that are not given */
    weft_value *in;
    weft_value out[WEFT_MAX_OUTPUTS];
    const void *attr;  /* graph arena, type by op */
    const char *scope; /* "blocks.3.attn1", "" at the top */
    bool backward;     /* made by autodiff */
    bool recompute;    /* marked by pass/recompute: outputs are not kept for the backward, */
    bool away;         /* or kept outside of the arena (pass/offload) */
};

typedef struct weft_value_info {
    weft_dtype dtype;
    weft_shape shape;
    int32_t node;     /* producer */
    int output;       /* which of its outputs */
    const char *name; /* inputs, params, states and named outputs: the full name; else NULL */
    weft_layout layout[WEFT_MAX_AXES]; /* per axis of the mesh; all R before sharding */
} weft_value_info;

weft_graph *weft_graph_create(void); /* NULL: out of memory */
void weft_graph_free(weft_graph *graph);
weft_arena *weft_graph_arena(weft_graph *graph);
/* That it keeps; of constants that other graphs have too, its share. */
int64_t weft_graph_bytes(const weft_graph *graph);

/* ---- building ------------------------------------------------------------------------------ */

/* Scopes nest: push("blocks.%d", i) inside "transformer" names "transformer.blocks.0". */
void weft_graph_push(weft_graph *graph, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void weft_graph_pop(weft_graph *graph);

weft_shape weft_shape_of(int rank, const int64_t *dims);
#define WEFT_SHAPE(...)                                                                            \
    weft_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define WEFT_SCALAR ((weft_shape){0})
int64_t weft_shape_count(const weft_shape *shape); /* elements */
bool weft_shape_equal(const weft_shape *a, const weft_shape *b);

/* `name` is relative to the scope. Building the same parameter name twice is an error. */
weft_value weft_input(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape);
weft_value weft_param(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* A name with '*' is that of a stack: files hold its items along dim 0 one by one, under the name
 * with the item's number in the place of '*' ("experts.*.w1.weight"). */
static inline bool weft_name_is_stack(const char *name)
{
    return strchr(name, '*') != NULL;
}
/* Item `i` in files, into out[size]; of what is no stack the name itself. */
void weft_stack_item(const char *name, int64_t i, char *out, size_t size);
/* The other way: `name` with its number `which` (from 0, between dots) as '*', and that number;
 * false: it has no more. */
bool weft_stack_of(const char *name, int which, char *out, size_t size, int64_t *item);
/* `name` is a value of the graph, or an item of a stack that it has. */
bool weft_graph_knows(const weft_graph *g, const char *name);
/* The same, never trained: what checkpoints hold beside weights. */
weft_value weft_buffer(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                       weft_init init);
/* From here on, f32 parameters of rank 2 and more are declared in `dtype` (BF16, F16): weights that
 * are stored narrow and computed with in f32. For graphs that are not trained. */
void weft_graph_store_weights_as(weft_graph *g, weft_dtype dtype);
weft_value weft_state(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* A source with every attribute given, under its full name (passes). */
weft_value weft_source(weft_graph *g, weft_op op, const char *full_name,
                       const weft_attr_source *attr);
/* A state f32 of the shape and the split of `like`, a source: optimizer moments, averages. `dim` of
 * at least 0: of this rank's part along it on `axis`, on which `like` is whole. */
weft_value weft_state_like(weft_graph *g, const char *name, weft_value like, int axis, int dim,
                           weft_init init);
/* `data` is copied, once: graphs that passes make share it. */
weft_value weft_constant(weft_graph *g, weft_dtype dtype, weft_shape shape, const void *data);
weft_value weft_fill(weft_graph *g, weft_dtype dtype, weft_shape shape, double value);

/* Any op; `attr` points to the op's attribute struct and is copied (NULL for weft_attr_none). */
weft_value weft_emit(weft_graph *g, weft_op op, const weft_value *in, int in_count,
                     const void *attr);
/* The same, all outputs; out[] is filled with WEFT_NONE for absent ones. */
void weft_emit_all(weft_graph *g, weft_op op, const weft_value *in, int in_count, const void *attr,
                   weft_value out[WEFT_MAX_OUTPUTS]);

/* Short forms; shapes and meanings in op.h and op.def. Ranks are aligned on the right for the
 * binary ones by inserting a reshape. */
weft_value weft_add(weft_graph *g, weft_value a, weft_value b);
weft_value weft_sub(weft_graph *g, weft_value a, weft_value b);
weft_value weft_mul(weft_graph *g, weft_value a, weft_value b);
weft_value weft_div(weft_graph *g, weft_value a, weft_value b);
weft_value weft_affine(weft_graph *g, weft_value x, double scale, double offset);
/* exp, silu, ...: ops without attributes */
weft_value weft_unary(weft_graph *g, weft_op op, weft_value x);
weft_value weft_gelu_tanh(weft_graph *g, weft_value x);
weft_value weft_clamp(weft_graph *g, weft_value x, double lo, double hi);
weft_value weft_cast(weft_graph *g, weft_value x, weft_dtype dtype);
weft_value weft_sum(weft_graph *g, weft_value x, uint32_t dims);  /* kept as 1 */
weft_value weft_mean(weft_graph *g, weft_value x, uint32_t dims); /* over the *global* shape */
weft_value weft_sum_all(weft_graph *g, weft_value x);             /* scalar */
weft_value weft_mean_all(weft_graph *g, weft_value x);            /* scalar */
weft_value weft_reshape(weft_graph *g, weft_value x, weft_shape shape); /* one dim may be -1 */
weft_value weft_broadcast(weft_graph *g, weft_value x, weft_shape shape);
weft_value weft_permute(weft_graph *g, weft_value x, const int *perm);
weft_value weft_slice(weft_graph *g, weft_value x, int dim, int64_t start, int64_t len);
weft_value weft_pad(weft_graph *g, weft_value x, int dim, int64_t before, int64_t after);
weft_value weft_concat(weft_graph *g, const weft_value *in, int count, int dim);
weft_value weft_matmul(weft_graph *g, weft_value a, weft_value b, bool trans_a, bool trans_b);
weft_value weft_random_like(weft_graph *g, weft_op op, weft_value key, weft_rng_purpose purpose,
                            weft_shape shape);

/* Sum of squares of all `value`s (WEFT_NONE are skipped), f32 scalar. Parts count once, by the
 * layouts. One all_reduce for each axis that splits any. */
weft_value weft_sum_squares_all(weft_graph *g, const weft_value *value, int count);

/* Marks a value as an output that a run leaves readable under `name` (not scoped). */
void weft_output(weft_graph *g, const char *name, weft_value value);
/* After each run the persistent `source` (param or state) holds `value`; same shape and dtype. */
void weft_update(weft_graph *g, weft_value source, weft_value value);

/* Records the sticky error; fmt describes what is wrong, scope is added. Returns WEFT_NONE. */
weft_value weft_graph_fail(weft_graph *g, weft_status_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
weft_status weft_graph_check(const weft_graph *g);

/* ---- reading ------------------------------------------------------------------------------- */

int32_t weft_graph_node_count(const weft_graph *g);
const weft_node *weft_graph_node(const weft_graph *g, int32_t index);
int32_t weft_graph_value_count(const weft_graph *g);
/* The most inputs of a node, WEFT_MAX_INPUTS at least: room for those of each in turn. */
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
/* Sharding: which rank of the mesh this graph is for (0 before sharding). */
int weft_graph_rank(const weft_graph *g);
void weft_graph_set_mesh(weft_graph *g, const weft_mesh *mesh, int rank);
void weft_graph_set_layout(weft_graph *g, weft_value v, const weft_layout layout[WEFT_MAX_AXES]);
weft_node *weft_graph_node_mut(weft_graph *g, int32_t index); /* passes: flags and inputs */
void weft_value_set_name(weft_graph *g, weft_value v, const char *name);

weft_cost weft_node_cost(const weft_graph *g, int32_t node);
weft_cost weft_graph_cost(const weft_graph *g);
int64_t weft_graph_param_count(const weft_graph *g); /* elements, global shapes */

/* ---- whole-graph functions ----------------------------------------------------------------- */

/* Gradients of the scalar `loss` with respect to `wrt[count]` (WEFT_NONE where it does not depend
 * on it). Frozen parameters and what only they need cost nothing. */
void weft_autodiff(weft_graph *g, weft_value loss, const weft_value *wrt, int count,
                   weft_value *grad);
/* The same from several values, given the gradient of each (of its shape and type; it is laid out
 * as the dual of its value). A value may stand there twice: its gradients are added. */
void weft_autodiff_from(weft_graph *g, const weft_value *from, const weft_value *seed, int seeds,
                        const weft_value *wrt, int count, weft_value *grad);
/* All trainable params of the graph in order of building, arena array. */
const weft_value *weft_graph_params(weft_graph *g, int *count);

/* What a legal graph is: order, arity, shapes re-inferred, layouts legal, names unique, updates
 * typed. The message names the node. */
weft_status weft_graph_verify(const weft_graph *g);
/* One node a line, diffable: "%12 f32[2,64,128] = linear(%10, %11) {act=none} @blocks.0.ffn". */
void weft_graph_print(const weft_graph *g, weft_buf *out);
/* Its parts: the line of one node; outputs and updates. */
void weft_graph_print_node(const weft_graph *g, int32_t node, weft_buf *out);
void weft_graph_print_ends(const weft_graph *g, weft_buf *out);
uint64_t weft_graph_hash(const weft_graph *g); /* of the printed form and constants */

/* Copying for passes: emits `node` into `to` with inputs mapped by map[old value id] (sources too);
 * names, layouts and flags are kept. */
void weft_graph_copy_node(weft_graph *to, const weft_graph *from, int32_t node, weft_value *map);

#endif
