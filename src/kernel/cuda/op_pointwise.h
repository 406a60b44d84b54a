#ifndef WEFT_KERNEL_CUDA_OP_POINTWISE_H
#define WEFT_KERNEL_CUDA_OP_POINTWISE_H

#include "kernel/cuda/ops.h"

/* stop ... clamp_grad */
weft_status_code weft_cuda_unary(const weft_kernel_args *args, weft_cuda_queue *queue);
/* add, sub, mul, div */
weft_status_code weft_cuda_binary(const weft_kernel_args *args, weft_cuda_queue *queue);
/* pointwise: the kernels of its ops, in sequence */
weft_status_code weft_cuda_pointwise(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_pointwise_workspace(const weft_kernel_args *args);
/* out = f(operand[0], operand[1]), broadcast to out, by a kernel of two inputs. */
weft_status_code weft_cuda_pointwise_two(const char *kernel, const weft_view *const operand[2],
                                         const weft_view *out, weft_cuda_queue *queue);

#endif
