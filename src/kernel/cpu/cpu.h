/* The cpu backend: f32 maths, threads by OpenMP, one function per op behind the table in table.c.
 *
 * Kernels here see f32 (and integer ids) only: table.c widens bf16, f16 and f8 storage around them.
 * The exceptions handle narrow storage themselves, because widening a whole operand would cost too
 * much: linear (weights and bias, a panel at a time), embed (only the rows looked up), cast and the
 * data movers. */
#ifndef WEFT_KERNEL_CPU_CPU_H
#define WEFT_KERNEL_CPU_CPU_H

#include "base/memory.h"
#include "kernel/view.h"

#define OWN(op)
#define KERNEL(op, f, ...) weft_status_code cpu_##f(const weft_kernel_args *args);
#include "kernel/cpu/kernels.def"

int64_t cpu_linear_workspace(const weft_kernel_args *args);
int64_t cpu_sum_workspace(const weft_kernel_args *args);
int64_t cpu_sum_squares_workspace(const weft_kernel_args *args);
int64_t cpu_norm_grad_workspace(const weft_kernel_args *args);
int64_t cpu_modulate_grad_workspace(const weft_kernel_args *args);
int64_t cpu_rope_table_workspace(const weft_kernel_args *args);
int64_t cpu_attention_workspace(const weft_kernel_args *args);
int64_t cpu_attention_grad_workspace(const weft_kernel_args *args);
int64_t cpu_conv3d_workspace(const weft_kernel_args *args);
int64_t cpu_conv3d_dx_workspace(const weft_kernel_args *args);
int64_t cpu_conv3d_dw_workspace(const weft_kernel_args *args);
weft_status_code cpu_conv3d_prepare(const weft_kernel_args *args, void **cache);
weft_status_code cpu_conv3d_dx_prepare(const weft_kernel_args *args, void **cache);
weft_status_code cpu_conv3d_dw_prepare(const weft_kernel_args *args, void **cache);
void cpu_conv_release(void *cache);

/* C (M,N) = alpha op(A) op(B) + beta C, row major; op(A) is (M,K), op(B) (K,N). Inside a parallel
 * region it runs on the calling thread. beta 0 does not read C. gemm.c says which library serves
 * what. */
void cpu_gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha,
              const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
              int64_t ldc);

/* Threads that a parallel loop over `elements` f32 is worth: 1 below the cost of waking others. */
int cpu_threads(int64_t elements);

#endif
