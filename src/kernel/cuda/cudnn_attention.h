/* Graphs of cuDNN for attention and its gradient. */
#ifndef WEFT_KERNEL_CUDA_CUDNN_ATTENTION_H
#define WEFT_KERNEL_CUDA_CUDNN_ATTENTION_H

#include "kernel/cuda/cudnn_ops.h"

enum { WEFT_CUDNN_GRAD = 92800 }; /* 9.28; 9.19 refuses the gradient as one operation */

void weft_cudnn_add_attention(weft_cudnn_builder *builder, const weft_kernel_args *args,
                              weft_cudnn_op *op);
/* The gradient as one operation. */
void weft_cudnn_add_attention_grad(weft_cudnn_builder *builder, const weft_kernel_args *args,
                                   weft_cudnn_op *op);

/* The gradient as a graph of products and sums, known to earlier versions. Engines keep the
 * gradient of scores in the workspace. Large attention is computed a few heads at a time. */
bool weft_cudnn_in_steps(const weft_kernel_args *args); /* for the loaded version */
/* False: the scores of one head have more than 4 GiB. */
bool weft_cudnn_steps_accepts(const weft_kernel_args *args);
void weft_cudnn_add_attention_steps(weft_cudnn_builder *builder, const weft_kernel_args *args,
                                    weft_cudnn_op *op);
/* Sets the bytes of scores that an execution has room for, for tests. Default: 256 MiB. */
void weft_cudnn_steps_limit(int64_t bytes);
/* Bytes of the workspace, and of the sums at CUDNN_ID_SUMS before the workspace of the plan. The
 * sums have 0 bytes if the gradient is one operation. */
int64_t weft_cudnn_steps_workspace(const weft_kernel_args *args);
int64_t weft_cudnn_sums_bytes(const weft_kernel_args *args);

#endif
