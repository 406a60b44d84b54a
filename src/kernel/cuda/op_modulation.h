#ifndef WEFT_KERNEL_CUDA_OP_MODULATION_H
#define WEFT_KERNEL_CUDA_OP_MODULATION_H

#include "kernel/cuda/ops.h"

/* modulate, gated_add, and their gradients */
weft_status_code weft_cuda_modulate(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_modulate_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_modulate_grad_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_gated_add_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_gated_add_grad_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_rope(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_rope_table(const weft_kernel_args *args, weft_cuda_queue *queue);

#endif
