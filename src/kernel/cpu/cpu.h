/* The cpu backend: f32 maths, threads by OpenMP, one function per op behind the table in table.c.
 *
 * Kernels here see f32 (and integer ids) only: table.c widens bf16, f16 and f8 storage around them.
 * The exceptions handle narrow storage themselves, because widening a whole operand would cost too
 * much: linear (weights, a panel at a time), embed (only the rows looked up), cast and the data
 * movers. */
#ifndef WEFT_KERNEL_CPU_CPU_H
#define WEFT_KERNEL_CPU_CPU_H

#include "base/memory.h"
#include "kernel/view.h"

#define CPU_KERNELS(X)                                                                             \
    X(fill)                                                                                        \
    X(random_normal)                                                                               \
    X(random_uniform)                                                                              \
    X(neg) X(affine) X(cast) X(exp) X(log) X(sqrt) X(rsqrt) X(square) X(sin) X(cos) X(tanh)        \
        X(sigmoid) X(silu) X(silu_grad) X(gelu) X(gelu_grad) X(clamp) X(clamp_grad) X(add) X(sub)  \
            X(mul) X(div) X(sum) X(broadcast) X(permute) X(slice) X(pad) X(concat) X(matmul)       \
                X(linear) X(conv3d) X(conv3d_dx) X(conv3d_dw) X(attention) X(attention_grad)       \
                    X(attention_merge) X(attention_merge_grad) X(layer_norm) X(layer_norm_grad)    \
                        X(rms_norm) X(rms_norm_grad) X(modulate) X(modulate_grad) X(gated_add)     \
                            X(gated_add_grad) X(rope) X(embed) X(embed_grad) X(sum_squares)        \
                                X(clip_scale) X(adamw) X(ema)

#define X(name) weft_status_code cpu_##name(const weft_kernel_args *args);
CPU_KERNELS(X)
#undef X

int64_t cpu_linear_workspace(const weft_kernel_args *args);
int64_t cpu_sum_workspace(const weft_kernel_args *args);
int64_t cpu_sum_squares_workspace(const weft_kernel_args *args);
int64_t cpu_norm_grad_workspace(const weft_kernel_args *args);
int64_t cpu_modulate_grad_workspace(const weft_kernel_args *args);
int64_t cpu_attention_workspace(const weft_kernel_args *args);
int64_t cpu_attention_grad_workspace(const weft_kernel_args *args);
weft_status_code cpu_attention_prepare(const weft_kernel_args *args, void **cache);
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
