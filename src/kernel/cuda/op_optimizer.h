#ifndef WEFT_KERNEL_CUDA_OP_OPTIMIZER_H
#define WEFT_KERNEL_CUDA_OP_OPTIMIZER_H

#include "kernel/cuda/kernels/kernel_args.h"
#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_clip_scale(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_adamw(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_ema(const weft_kernel_args *args, weft_cuda_queue *queue);

#endif
