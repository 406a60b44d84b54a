/* The implementation of matmul and linear by cuBLASLt.
 *
 *   linear  out (rows, N) = x (rows, K) w (N, K)^T + bias       matrices of weft are in row order,
 *           D   (N, rows) = W^T (N, K) X (K, rows) + bias       of cuBLASLt in column order
 *
 * The activation of linear is a launch of weft's own kernel, so that results with and without the
 * pass `fuse` are bitwise identical. */
#ifndef WEFT_KERNEL_CUDA_CUBLASLT_IMPL_H
#define WEFT_KERNEL_CUDA_CUBLASLT_IMPL_H

#include "kernel/cuda/cuda_impl.h"

/* The functions of weft_cuda_impl (cuda_impl.h). */
int64_t weft_cublaslt_version(void);
bool weft_cublaslt_has(weft_op op);
bool weft_cublaslt_accepts(const weft_kernel_args *args);
int64_t weft_cublaslt_workspace(const weft_kernel_args *args);
weft_status_code weft_cublaslt_prepare(const weft_kernel_args *args, int first, int most,
                                       weft_cuda_plan *plan, int *count);
void weft_cublaslt_release(void *plan); /* accepts NULL */
weft_status_code weft_cublaslt_launch(const weft_kernel_args *args, void *plan);

#endif
