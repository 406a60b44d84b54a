/* The cpu backend: f32 maths, threads by OpenMP, one function per op in the table of table.c.
 *
 * Kernels here see f32 and integer ids only. table.c widens bf16, f16 and f8 storage around them.
 * Some kernels read narrow storage directly, because widening a complete operand costs too much:
 * products (a panel at a time, or by units for bf16), embed (only the rows looked up), cast and the
 * data movers. */
#ifndef WEFT_KERNEL_CPU_CPU_H
#define WEFT_KERNEL_CPU_CPU_H

#include "base/memory.h"
#include "kernel/view.h"

/* A kernel of the cpu backend. One place declares all its properties:
 *
 *     CPU_KERNEL_WITH(sum, .workspace = sum_workspace)
 *     {
 *         ... args ...
 *     }
 *
 * This defines cpu_sum, which table.c finds by the stem of the op's row. */
typedef struct cpu_kernel {
    weft_kernel kernel; /* entry points of the runtime; they widen around the functions below */
    weft_status_code (*run)(const weft_kernel_args *args);
    int64_t (*workspace)(const weft_kernel_args *args);                      /* see weft_kernel */
    weft_status_code (*prepare)(const weft_kernel_args *args, void **cache); /* see weft_kernel */
    int narrow; /* bit i: input i may have narrow storage; CPU_ALL: outputs too */
    /* Like `narrow`, for the shapes and types of args. NULL: `narrow` */
    int (*narrow_of)(const weft_kernel_args *args);
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

/* C (M,N) = act(round(op(A) op(B) + bias)), row major. op(A) is (M,K), op(B) (K,N), bias (N) or
 * NULL. Sums are f32. C is rounded once, at the end. */
typedef struct cpu_product {
    bool trans_a, trans_b;
    bool add;           /* adds the product to C, which is f32 */
    bool may_transpose; /* B is weights: f32 B is transposed first where this is faster */
    int64_t M, N, K, lda, ldb, ldc; /* distances of rows in elements */
    const void *A, *B;
    void *C;
    const void *bias;
    weft_dtype a_dtype, b_dtype, c_dtype, bias_dtype; /* default, and without bias: f32 */
    weft_act act;
    weft_dtype round; /* rounds the activation's operand to this dtype */
    int threads;      /* threads that `space` is for; 0: any number, because no space is needed */
    void *space;      /* cpu_gemm_workspace() bytes, 64-byte aligned */
} cpu_product;

#endif
