#ifndef WEFT_KERNEL_CUDA_OP_ATTENTION_H
#define WEFT_KERNEL_CUDA_OP_ATTENTION_H

#include "kernel/cuda/ops.h"

weft_status_code weft_cuda_attention(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_attention_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_attention_grad_workspace(const weft_kernel_args *args);
weft_status_code weft_cuda_block_attention(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_block_attention_grad(const weft_kernel_args *args,
                                                weft_cuda_queue *queue);
weft_status_code weft_cuda_attention_merge(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_attention_merge_grad(const weft_kernel_args *args,
                                                weft_cuda_queue *queue);

#endif
