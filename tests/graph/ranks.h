/* The graphs of all ranks of a mesh as programs on communicators of one process. This is the real
 * execution; lockstep.h has the definition. Graphs have inputs and no store. */
#ifndef TESTS_GRAPH_RANKS_H
#define TESTS_GRAPH_RANKS_H

#include "lockstep.h"

enum { RANKS_MAX = 8, RANKS_OUTPUTS = 12 };

typedef struct ranks_output {
    char name[64];
    weft_shape shape;
    double *data; /* owned */
} ranks_output;
typedef struct ranks_result {
    int count;
    ranks_output output[RANKS_OUTPUTS];
    int64_t views; /* nodes that run nothing */
    char error[300];
} ranks_result;

/* Floats as the backend computes them. Fails the test when a rank does. */
void ranks_run(int ranks, weft_graph *const *graph, const weft_backend *backend,
               lockstep_fill *fill, void *user, ranks_result *result);
void ranks_free(int ranks, ranks_result *result);
/* Offset in the complete tensor of element i of this rank's shard. */
int64_t ranks_place(const weft_attr_source *a, int64_t i);
const ranks_output *ranks_find(const ranks_result *result, const char *name);

#endif
