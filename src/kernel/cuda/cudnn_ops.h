/* Graphs of cuDNN for weft's ops: convolutions and their gradients, attention and its gradient. */
#ifndef WEFT_KERNEL_CUDA_CUDNN_OPS_H
#define WEFT_KERNEL_CUDA_CUDNN_OPS_H

#include "kernel/cuda/cudnn_graph.h"
#include "kernel/kernel.h"

enum { CUDNN_OP_TENSORS = 16, CUDNN_WORKSPACE_ALIGNMENT = 256 };

/* Addresses that an execution binds: operand i of the inputs is CUDNN_ID_IN + i, of the outputs
 * CUDNN_ID_OUT + i. CUDNN_ID_SCALE and CUDNN_ID_ONE are floats of the host. CUDNN_ID_SUMS is at the
 * start of the workspace. */
enum {
    CUDNN_ID_IN = 1,
    CUDNN_ID_OUT = 101,
    CUDNN_ID_SCALE = 201,
    CUDNN_ID_ONE,
    CUDNN_ID_SUMS,
    CUDNN_ID_VIRTUAL = 301
};

typedef struct weft_cudnn_op {
    cudnn_descriptor graph;
    int64_t id[CUDNN_OP_TENSORS]; /* of the tensors that have addresses */
    int ids;
    int64_t samples, heads; /* of one execution, of attention in steps; 0: all */
} weft_cudnn_op;

bool weft_cudnn_has(weft_op op);
/* Whether a graph exists for the types, shapes and attributes of an op that weft_cudnn_has(). */
bool weft_cudnn_accepts(const weft_kernel_args *args);
/* Returns the most scratch bytes of plans: for copies of weights in cuDNN's order, and for dq of
 * attention in f32. Engines that need more are not used. */
int64_t weft_cudnn_workspace(const weft_kernel_args *args);
/* Adds the graph. Errors are the builder's. */
void weft_cudnn_add_op(weft_cudnn_builder *builder, const weft_kernel_args *args,
                       weft_cudnn_op *op);
int weft_cudnn_type(weft_dtype dtype);
/* Adds a tensor. If it is not virtual, executions bind its address. */
cudnn_descriptor weft_cudnn_operand(weft_cudnn_builder *builder, weft_cudnn_op *op,
                                    weft_cudnn_tensor tensor);
/* The limits of engines for the op, from configuration `variant` on. */
weft_cudnn_wish weft_cudnn_wish_of(const weft_kernel_args *args, int variant);

#endif
