/* One or more small instances of every op, shared by the gradient, rule and shard tests. */
#ifndef TESTS_GRAPH_CASES_H
#define TESTS_GRAPH_CASES_H

#include "graph/graph.h"

typedef struct case_input {
    weft_dtype dtype;
    weft_shape shape;    /* rank -1: absent */
    const int64_t *ints; /* values of integer inputs; NULL: index modulo 3 */
    bool fixed;          /* has no gradient by intention */
} case_input;

typedef struct op_case {
    weft_op op;
    int in_count;
    case_input in[WEFT_MAX_INPUTS];
    const void *attr;
    double lo, hi;    /* range of the values of float inputs */
    bool no_gradient; /* itself a backward, or not differentiable by intention */
} op_case;

const op_case *op_cases(int *count);
/* Value of element `index` of a case's input `i`. */
double case_value(const op_case *c, int i, int64_t index);

/* The graph of the case: inputs "in0", ..., outputs "out0", ..., and where the op has a gradient
 * "loss": the sum of its outputs weighted by the inputs "w", "w1", ... Bit i of `pending`: in<i>
 * has three terms along a new first dim, and the op gets their sum. */
weft_graph *case_graph(const op_case *c, unsigned pending);
/* lockstep_fill for such graphs; `user` is the case. */
double case_fill(void *user, const char *name, weft_dtype dtype, int64_t index);

#endif
