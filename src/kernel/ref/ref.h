/* The reference backend: f64, one loop nest per op, no optimisation. Other backends are tested
 * against it. So it reads like the definition and shares only the views with other backends. */
#ifndef WEFT_KERNEL_REF_REF_H
#define WEFT_KERNEL_REF_REF_H

#include "kernel/view.h"

/* Rounds to 10 bits, to the nearest number, ties away from zero, as TF32. */
static inline double ref_tf32(double x)
{
    float y = (float)x;
    uint32_t bits;
    memcpy(&bits, &y, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return x;
    bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&y, &bits, 4);
    return (double)y;
}

/* Returns an element of an operand of products; `tf32`: rounded. */
static inline double ref_operand(const weft_view *v, int64_t i, bool tf32)
{
    const double x = view_get(v, i);
    return tf32 ? ref_tf32(x) : x;
}

/* REF_KERNEL(exp) { ... args ... } defines ref_exp, which table.c finds by the stem of the op's
 * row. REF_KERNEL_WITH sets other members of weft_kernel. */
/* clang-format off */
#define REF_KERNEL(stem) REF_KERNEL_WITH(stem, .workspace = NULL)
#define REF_KERNEL_WITH(stem, ...)                                                                 \
    static weft_status_code stem##_kernel(const weft_kernel_args *args);                           \
    const weft_kernel ref_##stem = {.run = stem##_kernel, __VA_ARGS__};                            \
    static weft_status_code stem##_kernel(const weft_kernel_args *args)

#define WEFT_OWN(...)
#define WEFT_OP(ENUM, stem, ...) extern const weft_kernel ref_##stem;
#include "graph/op.def"
/* clang-format on */

#endif
