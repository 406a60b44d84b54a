/* Sums over some dims: sum itself, and the gradients of operands that were broadcast. */
#ifndef WEFT_KERNEL_CUDA_OP_REDUCE_H
#define WEFT_KERNEL_CUDA_OP_REDUCE_H

#include "kernel/cuda/op_launch.h"

/* A sum over the dims of `x` whose bit is set in `dims`. */
typedef struct weft_cuda_sum {
    const weft_shape *x;
    uint32_t dims;
} weft_cuda_sum;

/* Scratch bytes of weft_cuda_reduce. */
int64_t weft_cuda_reduce_bytes(const weft_cuda_sum *sum);
/* Adds the launches. `a` has x, dy, out, statistics and term; `part` is the scratch. */
weft_status_code weft_cuda_reduce(const weft_cuda_sum *sum, reduce_args *a, void *part,
                                  weft_cuda_queue *queue);
/* out[i] = the sum of `parts` arrays of f32 with `items` elements, contiguous. */
weft_status_code weft_cuda_sum_parts(void *part, int64_t parts, int64_t items, tensor_ref out,
                                     weft_cuda_queue *queue);
/* The dims along which `small` is broadcast to `x`. */
uint32_t weft_cuda_broadcast_dims(const weft_shape *small, const weft_shape *x);

weft_status_code weft_cuda_sum_dims(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_sum_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_sum_squares(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_sum_squares_workspace(const weft_kernel_args *args);

#endif
