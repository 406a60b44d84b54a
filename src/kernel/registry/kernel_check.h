/* Compares the kernels of a backend with the kernels of `ref`, for every node of a graph. Inputs of
 * a node are results of `ref`, rounded to their types, so that an error stays at its node. */
#ifndef WEFT_KERNEL_REGISTRY_KERNEL_CHECK_H
#define WEFT_KERNEL_REGISTRY_KERNEL_CHECK_H

#include "graph/graph.h"
#include "kernel/kernel.h"

typedef struct weft_op_check {
    int64_t nodes, failed;   /* compared; above the tolerance and twice the error of cpu */
    int64_t missing;         /* nodes without a kernel */
    int64_t unsupported;     /* nodes whose sizes or types a library rejects */
    double error, tolerance; /* of the worst output: norm-wise, relative to ref */
    char worst_output[160];  /* node of the worst output: "blocks.0.attn1, output 1" */
} weft_op_check;

/* Adds the nodes of a graph of one rank to `op`, by op. Sources have values by `seed`. Fails if
 * memory is out, or if the device does. */
weft_status weft_kernels_check(const weft_graph *graph, const weft_backend *backend, uint64_t seed,
                               weft_op_check op[WEFT_OP_COUNT]);

/* Implementations of a backend, which are compared one at a time for each node. */
typedef struct weft_check_rounds {
    int count;
    void *user;
    /* Lets the backend use an implementation for the kernel that is prepared next. False: it has no
     * kernel for the op, and the node is skipped. NULL: the backend has one implementation. */
    bool (*select)(void *user, int round, weft_op op);
    /* Called before and after the work of a node. NULL: not called. */
    weft_status_code (*begin)(void *user, int round, weft_op op);
    weft_status_code (*end)(void *user, int round, weft_op op);
} weft_check_rounds;
/* Does the same for each implementation. Adds to op[round * WEFT_OP_COUNT + op]. */
weft_status weft_kernels_check_rounds(const weft_graph *graph, const weft_backend *backend,
                                      uint64_t seed, const weft_check_rounds *rounds,
                                      weft_op_check *op);

#endif
