/* Runs the graphs of all ranks of a mesh in one process, node by node, with the reference kernels
 * in f64. Layout conversions are written as their definitions. Slow, simple, and independent of the
 * runtime. */
#ifndef TESTS_GRAPH_LOCKSTEP_H
#define TESTS_GRAPH_LOCKSTEP_H

#include "graph/graph.h"
#include "kernel/view.h"

/* Element `index` of the complete tensor `name`. */
typedef double lockstep_fill(void *user, const char *name, weft_dtype dtype, int64_t index);

typedef struct lockstep {
    int ranks;
    weft_graph *const *graph;
    weft_view **value; /* [rank][value id]: floats as f64; owned */
    char error[256];   /* "" or the error */
} lockstep;

/* Always returns one; look at ->error. */
lockstep *lockstep_run(int ranks, weft_graph *const *graph, lockstep_fill *fill, void *user);
void lockstep_free(lockstep *l);

#endif
