/* Launches of the kernels of products, for products themselves and for convolutions. */
#ifndef WEFT_KERNEL_CUDA_OP_GEMM_H
#define WEFT_KERNEL_CUDA_OP_GEMM_H

#include "kernel/cuda/op_launch.h"

/* An operand (rows, depth) with the given strides; one stride is 1. `contiguous`: length of that
 * dim, which must be a multiple of 8 for accesses of 16 bytes, as must the other stride. */
gemm_operand weft_cuda_operand(const weft_view *view, int64_t row_stride, int64_t depth_stride,
                               int64_t contiguous);
/* Whether tensor cores multiply: operands of bf16, or of f32 with a->tf32, in accesses of 16 bytes.
 */
bool weft_cuda_gemm_is_tensor(const gemm_args *a);
/* Parts of the depth that the product is cut into, so that the GPU has enough blocks. */
int32_t weft_cuda_gemm_splits(int64_t rows, int64_t columns, int64_t depth, int64_t batch);
/* Scratch bytes of a product with splits; 0 without. */
int64_t weft_cuda_gemm_bytes(int64_t rows, int64_t columns, int64_t depth, int64_t batch);
/* Adds the launches. Sets the splits if `part` is given, which has weft_cuda_gemm_bytes(). */
weft_status_code weft_cuda_gemm(gemm_args *a, int64_t batch, void *part, weft_cuda_queue *queue);

#endif
