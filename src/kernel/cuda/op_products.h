#ifndef WEFT_KERNEL_CUDA_OP_PRODUCTS_H
#define WEFT_KERNEL_CUDA_OP_PRODUCTS_H

#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_matmul(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_matmul_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_linear(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_linear_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_expert_matmul(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_expert_matmul_dw(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_expert_matmul_workspace(const weft_kernel_args *args);

#endif
