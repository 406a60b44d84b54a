/* The host code of every op: grid, arguments and workspace of its launches. */
#ifndef WEFT_KERNEL_CUDA_OPS_H
#define WEFT_KERNEL_CUDA_OPS_H

#include "kernel/cuda/launch.h"
#include "kernel/kernel.h"

typedef struct weft_cuda_op {
    /* Adds the launches of the op to `queue`. NULL: the op has no kernel yet. */
    weft_status_code (*launch)(const weft_kernel_args *args, weft_cuda_queue *queue);
    /* Returns the scratch bytes for the shapes of args, whose data pointers are NULL. NULL: none */
    int64_t (*workspace)(const weft_kernel_args *args);
} weft_cuda_op;

extern const weft_cuda_op weft_cuda_ops[WEFT_OP_COUNT];

#endif
