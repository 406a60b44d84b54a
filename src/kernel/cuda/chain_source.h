/* The source of the kernel of a pointwise node: one function call per step. The kernels of
 * single ops call the same functions (kernels/pointwise_ops.h). Each result is
 * rounded to the step's type, so that the ops have bitwise the same results.
 *
 *     WEFT_KERNEL(weft_chain_1f..., chain_args, POINTWISE_THREADS)
 *     {
 *         ...
 *             const float s0 = add_of(x0[k], x1[k]);
 *             const float s1 = bf16_value(bf16_of(silu_of(s0, 0.0f, a.a[1], a.b[1])));
 *
 * The source depends on ops, types and operands, not on shapes. */
#ifndef WEFT_KERNEL_CUDA_CHAIN_SOURCE_H
#define WEFT_KERNEL_CUDA_CHAIN_SOURCE_H

#include "kernel/kernel.h"

#include <stdbool.h>

enum { WEFT_CHAIN_NAME = 40 };

/* Whether a kernel can be generated for the types and shapes. */
bool weft_chain_accepts(const weft_kernel_args *args);
/* Sets the name, which is a hash of the source, and appends the source. */
weft_status weft_chain_source(const weft_kernel_args *args, char name[WEFT_CHAIN_NAME],
                              weft_buf *source);

#endif
