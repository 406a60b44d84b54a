#ifndef WEFT_KERNEL_CUDA_OP_BLOCKS_H
#define WEFT_KERNEL_CUDA_OP_BLOCKS_H

#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_top_p(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_top_share(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_top_workspace(const weft_kernel_args *args);

#endif
