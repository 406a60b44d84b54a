#ifndef WEFT_KERNEL_CUDA_OP_MOVES_H
#define WEFT_KERNEL_CUDA_OP_MOVES_H

#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_fill(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_broadcast(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_permute(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_slice(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_pad(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_concat(const weft_kernel_args *args, weft_cuda_queue *queue);
/* Writes a pattern of 8 bytes to a view. */
weft_status_code weft_cuda_set_bytes(const weft_view *view, uint64_t pattern,
                                     weft_cuda_queue *queue);

#endif
