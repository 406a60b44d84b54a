/* Parts of a product, shared by the three ways to compute a product: f32 (gemm.c), bf16 by the
 * processor's units (gemm_bf16.c), and panels of f32 (gemm_panels.c). */
#ifndef WEFT_KERNEL_CPU_GEMM_PARTS_H
#define WEFT_KERNEL_CPU_GEMM_PARTS_H

#include "kernel/cpu/gemm.h"

/* Number of parts along the rows and the columns of C. One of both is 1. */
typedef struct gemm_parts {
    int64_t rows, columns;
} gemm_parts;

/* Rows [m0, m1) and columns [n0, n1) of C. */
typedef struct gemm_box {
    int64_t m0, m1, n0, n1;
} gemm_box;

/* Computes a part of product `p`. `thread` is below the number of threads of gemm_run(). */
typedef dnnl_status_t (*gemm_part)(const cpu_product *p, const gemm_box *box, const void *user,
                                   int thread);

/* Returns the parts of a product of this shape. `rate`: multiplications per time, relative to
 * f32. */
gemm_parts gemm_cut(int64_t M, int64_t N, int64_t K, int64_t rate);
/* Returns the parts that threads can compute at a time. */
int gemm_threads(const cpu_product *p, gemm_parts parts);
/* Returns the most rows or columns that a part of n has. Monotonic in n. */
int64_t gemm_part_size(int64_t n, int64_t parts);
/* Computes all parts. Returns the first failure in the order of dnnl_status_t. */
dnnl_status_t gemm_run(const cpu_product *p, gemm_parts parts, gemm_part part, const void *user);
/* Returns the product of a part: operands, C and bias of the box. */
cpu_product gemm_box_of(const cpu_product *p, const gemm_box *box);
/* Computes a product of f32 on this thread. */
void gemm_f32(const cpu_product *p);
/* Adds the bias to each row, rounds and applies the activation. y: f32 (M, ldy). */
void gemm_finish(const cpu_product *p, const float *bias, float *y, int64_t ldy);
/* Rounds rows of f32 to the type of C. from: (M, from_stride). */
void gemm_narrow(const cpu_product *p, const float *from, int64_t from_stride);
/* Writes C = act(round(y + bias)) in its type. y: f32 (M, ldy), is changed. bias: NULL: none. */
void gemm_write(const cpu_product *p, const float *bias, float *y, int64_t ldy);
/* Returns true if C is bf16, and the rounding to bf16 is before the activation. */
bool gemm_rounds_first(const cpu_product *p);
/* Applies the activation to C of bf16, as the op of the activation does. */
void gemm_act_bf16(const cpu_product *p);

/* Element `i` of an array of this type. */
static inline const void *gemm_at(const void *data, weft_dtype dtype, int64_t i)
{
    return (const char *)data + i * weft_dtype_bytes(dtype);
}

#endif
