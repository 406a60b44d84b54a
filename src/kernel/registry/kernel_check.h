/* Compares the kernels of a backend with the kernels of `ref`, for every node of a graph. Inputs of
 * a node are results of `ref`, rounded to their types, so that an error stays at its node. */
#ifndef WEFT_KERNEL_REGISTRY_KERNEL_CHECK_H
#define WEFT_KERNEL_REGISTRY_KERNEL_CHECK_H

#include "graph/graph.h"
#include "kernel/kernel.h"

typedef struct weft_op_check {
    int64_t nodes, failed;   /* compared; above the tolerance and twice the error of cpu */
    int64_t missing;         /* nodes without a kernel */
    double error, tolerance; /* of the worst output: norm-wise, relative to ref */
    char worst_output[160];  /* node of the worst output: "blocks.0.attn1, output 1" */
} weft_op_check;

/* Adds the nodes of a graph of one rank to `op`, by op. Sources have values by `seed`. Fails if
 * memory is out, or if the device does. */
weft_status weft_kernels_check(const weft_graph *graph, const weft_backend *backend, uint64_t seed,
                               weft_op_check op[WEFT_OP_COUNT]);

#endif
