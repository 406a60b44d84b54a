#ifndef WEFT_GRAPH_BUILDER_HELPERS_H
#define WEFT_GRAPH_BUILDER_HELPERS_H

#include "base/dtype.h"
#include "graph/op.h"

/* Writes the name of item `i` in files into out[size]. For a name that is not a stack, the name
 * itself. */
void weft_stack_item(const char *name, int64_t i, char *out, size_t size);
/* Inverse: writes `name` with its number `which` (from 0, between dots) as '*', and sets *item to
 * that number. False: `name` has fewer numbers. */
bool weft_stack_of(const char *name, int which, char *out, size_t size, int64_t *item);
/* Whether `name` is a value of the graph, or an item of one of its stacks. */
bool weft_graph_knows(const weft_graph *g, const char *name);
/* Short forms; shapes and meanings are in op.h and op.def. Binary ones align ranks on the right by
 * inserting a reshape. */
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
weft_value weft_sum(weft_graph *g, weft_value x, uint32_t dims);  /* summed dims become 1 */
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
/* Sum of squares of all `value`s (WEFT_NONE is skipped), f32 scalar. Each element counts once, by
 * the layouts. One all_reduce for each axis that splits any value. */
weft_value weft_sum_squares_all(weft_graph *g, const weft_value *value, int count);

#endif
