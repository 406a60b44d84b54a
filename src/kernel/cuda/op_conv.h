#ifndef WEFT_KERNEL_CUDA_OP_CONV_H
#define WEFT_KERNEL_CUDA_OP_CONV_H

#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_conv3d(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_conv3d_dx(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_conv3d_dw(const weft_kernel_args *args, weft_cuda_queue *queue);
/* All three: the weights with channels last, and the parts of dw. */
int64_t weft_cuda_conv3d_workspace(const weft_kernel_args *args);

#endif
