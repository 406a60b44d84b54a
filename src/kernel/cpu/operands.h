/* Operands of any float type for functions on cells (simd.h). If all large operands of a kernel are
 * bf16, or all are f32, the functions read and write them directly. Otherwise the functions compute
 * in f32. Operands of other types then pass through a buffer of the caller, a piece at a time. The
 * pieces stay in the first-level cache. */
#ifndef WEFT_KERNEL_CPU_OPERANDS_H
#define WEFT_KERNEL_CPU_OPERANDS_H

#include "kernel/cpu/simd.h"
#include "kernel/view.h"

typedef struct cpu_operands {
    const cpu_isa *isa;
    const cpu_cells *run; /* functions on the cells of the large operands */
    bool direct;          /* no large operand needs a buffer */
} cpu_operands;

/* Selects cells for the operands in the mask `large`: bit i for input i, CPU_OUTPUT for output 0.
 * `f32`: always f32. */
enum { CPU_OUTPUT = 1 << WEFT_MAX_INPUTS };
cpu_operands cpu_operands_of(const weft_kernel_args *args, uint32_t large, bool f32);
/* Returns whether functions on cells of `dtype` use the view in place. Integers are not
 * converted. */
static inline bool cpu_is_cells(const weft_view *v, weft_dtype dtype)
{
    return v->dtype == dtype || dtype_is_int(v->dtype);
}

static inline void *cpu_element(const weft_view *v, int64_t at)
{
    return (char *)v->data + at * weft_dtype_bytes(v->dtype);
}

/* Returns elements [at, at + n) as f32: in place, or converted into space[n]. */
const float *cpu_read_f32(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n,
                          float *space);

/* Returns elements [at, at + n) as cells: in place, or converted into space[n]. */
static inline const void *cpu_read(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n,
                                   float *space)
{
    return cpu_is_cells(v, o->run->dtype) ? cpu_element(v, at) : cpu_read_f32(o, v, at, n, space);
}

/* Returns where to write cells of elements from `at`: in place, or space. cpu_written() then rounds
 * n cells of space into place. */
static inline void *cpu_write(const cpu_operands *o, const weft_view *v, int64_t at, float *space)
{
    return cpu_is_cells(v, o->run->dtype) ? cpu_element(v, at) : space;
}
void cpu_written(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n,
                 const float *space);
/* Returns the sum of n elements from `at`, or of their squares, in the order of cpu_cells.total.
 * The view is a large operand. */
double cpu_total(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n, bool squares);

#endif
