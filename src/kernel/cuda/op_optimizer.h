#ifndef WEFT_KERNEL_CUDA_OP_OPTIMIZER_H
#define WEFT_KERNEL_CUDA_OP_OPTIMIZER_H

#include "kernel/cuda/kernels/kernel_args.h"
#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_clip_scale(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_adamw(const weft_kernel_args *args, weft_cuda_queue *queue);
/* Rows of a launch for many tensors, which has the bits of a launch each. Writes a tensor's row and
 * returns the first block after it. */
int64_t weft_cuda_adamw_row(const weft_kernel_args *args, int64_t first_block, adamw_row *row);
/* Adds the launch. `any`: the args of any of the tensors, which have one attribute, learning rate,
 * step and scale. `rows` are in memory of the GPU; `blocks` is the last row's result. */
weft_status_code weft_cuda_adamw_list(const weft_kernel_args *any, const adamw_row *rows,
                                      int64_t tensors, int64_t blocks, weft_cuda_queue *queue);
weft_status_code weft_cuda_ema(const weft_kernel_args *args, weft_cuda_queue *queue);

#endif
