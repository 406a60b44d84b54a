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

/* What is known of a kernel stands at its head and nowhere else:
 *
 *     CPU_KERNEL_WITH(sum, .workspace = sum_workspace)
 *     {
 *         ... args ...
 *     }
 *
 * defines cpu_sum, which table.c finds by the stem of the op's row. */
typedef struct cpu_kernel {
    weft_kernel kernel; /* what the runtime calls: widens around the functions below */
    weft_status_code (*run)(const weft_kernel_args *args);
    int64_t (*workspace)(const weft_kernel_args *args);                      /* as in weft_kernel */
    weft_status_code (*prepare)(const weft_kernel_args *args, void **cache); /* as in weft_kernel */
    int narrow; /* bit i: takes input i in narrow storage itself; CPU_ALL: outputs too */
} cpu_kernel;
enum { CPU_ALL = -1 };

/* clang-format off */
#define CPU_KERNEL(stem) CPU_KERNEL_WITH(stem, .narrow = 0)
#define CPU_KERNEL_WITH(stem, ...)                                                                 \
    static weft_status_code stem##_kernel(const weft_kernel_args *args);                           \
    const cpu_kernel cpu_##stem = {                                                                \
        .kernel.run = cpu_widened_run,                                                             \
        .kernel.workspace = cpu_widened_workspace,                                                 \
        .kernel.prepare = cpu_widened_prepare,                                                     \
        .run = stem##_kernel,                                                                      \
        __VA_ARGS__};                                                                              \
    static weft_status_code stem##_kernel(const weft_kernel_args *args)

#define WEFT_OWN(...)
#define WEFT_OP(ENUM, stem, ...) extern const cpu_kernel cpu_##stem;
#include "graph/op.def"
/* clang-format on */

weft_status_code cpu_widened_run(const weft_kernel_args *args);
int64_t cpu_widened_workspace(const weft_kernel_args *args);
weft_status_code cpu_widened_prepare(const weft_kernel_args *args, void **cache);

/* C (M,N) = act(round(op(A) op(B) + bias)), row major; op(A) is (M,K), op(B) (K,N), bias (N) or
 * NULL. */
typedef struct cpu_product {
    bool trans_a, trans_b;
    int64_t M, N, K, lda, ldb, ldc;
    const float *A, *B;
    float *C;
    const float *bias;
    weft_act act;
    weft_dtype round; /* of the activation's operand */
} cpu_product;

/* The same bits on any number of threads; inside a parallel region on the calling thread. gemm.c
 * says which library serves what. */
void cpu_gemm(const cpu_product *product);

/* Threads that a parallel loop over `elements` f32 is worth: 1 below the cost of waking others. */
int cpu_threads(int64_t elements);

#endif
