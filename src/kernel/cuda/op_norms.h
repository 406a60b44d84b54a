#ifndef WEFT_KERNEL_CUDA_OP_NORMS_H
#define WEFT_KERNEL_CUDA_OP_NORMS_H

#include "kernel/cuda/ops.h"

/* layer_norm, rms_norm; layer_norm_grad, rms_norm_grad; softmax */
weft_status_code weft_cuda_norm(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_norm_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_norm_grad_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_softmax(const weft_kernel_args *args, weft_cuda_queue *queue);

#endif
