/* Conversions and sums of the device. */
#include "kernel/cuda/kernels/simt.h"

#include "kernel/cuda/kernels/device_args.h"

/* ---- conversions --------------------------------------------------------------------------- */

DEV int is_float(int32_t type)
{
    return type <= TYPE_F8 || type == TYPE_F64;
}

WEFT_KERNEL(weft_convert, convert_args, DEVICE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * DEVICE_THREADS + THREAD(0);
    if (i >= a.count)
        return;
    tensor_ref from, to;
    from.data = (void *)a.from;
    from.type = a.from_type;
    to.data = a.to;
    to.type = a.to_type;
    if (!is_float(a.to_type)) {
        const int64_t n = load_int(from, i);
        if (a.to_type == TYPE_I32)
            ((int32_t *)a.to)[i] = (int32_t)n;
        else if (a.to_type == TYPE_I64)
            ((int64_t *)a.to)[i] = n;
        else
            ((uint8_t *)a.to)[i] = (uint8_t)n;
        return;
    }
    const float x =
        a.from_type == TYPE_F64 ? (float)((const double *)a.from)[i] : load_float(from, i);
    if (a.to_type == TYPE_F64)
        ((double *)a.to)[i] = (double)x;
    else
        store_float(to, i, x);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The tree of kernel/sums.h: the first terms are pairs, then neighbours by distance 1, 2, ... Leaf
 * v completes as many levels as v has ones at its end. */
#define TREE(type, load, store)                                                                    \
    {                                                                                              \
        type level[SUM_LEVELS], x = 0;                                                             \
        for (int v = 0; v < a.power; v++) {                                                        \
            int open = 1;                                                                          \
            x = v < extras ? load(2 * v) + load(2 * v + 1) : load(v + extras);                     \
            UNROLL                                                                                 \
            for (int l = 0; l < SUM_LEVELS; l++) {                                                 \
                if (open && (v >> l & 1))                                                          \
                    x = level[l] + x;                                                              \
                else if (open) {                                                                   \
                    level[l] = x;                                                                  \
                    open = 0;                                                                      \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        store(x);                                                                                  \
    }                                                                                              \
    return

#define LOAD_F32(t) (((const float *)a.term[t])[i])
#define LOAD_F64(t) (((const double *)a.term[t])[i])
#define LOAD_I32(t) (((const uint32_t *)a.term[t])[i])
#define LOAD_I64(t) (((const uint64_t *)a.term[t])[i])
#define LOAD_BF16(t) bf16_value(((const uint16_t *)a.term[t])[i])
#define LOAD_F16(t) f16_value(((const uint16_t *)a.term[t])[i])
#define STORE_F32(x) ((float *)a.out)[i] = x
#define STORE_F64(x) ((double *)a.out)[i] = x
#define STORE_I32(x) ((uint32_t *)a.out)[i] = x
#define STORE_I64(x) ((uint64_t *)a.out)[i] = x
#define STORE_BF16(x) ((uint16_t *)a.out)[i] = (uint16_t)bf16_of(x)
#define STORE_F16(x) ((uint16_t *)a.out)[i] = (uint16_t)f16_of(x)

WEFT_KERNEL(weft_sum, sum_args, DEVICE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * DEVICE_THREADS + THREAD(0);
    const int extras = a.terms - a.power;
    if (i >= a.count)
        return;
    switch (a.type) {
    case TYPE_F32: TREE(float, LOAD_F32, STORE_F32);
    case TYPE_F64: TREE(double, LOAD_F64, STORE_F64);
    case TYPE_I32: TREE(uint32_t, LOAD_I32, STORE_I32);
    case TYPE_I64: TREE(uint64_t, LOAD_I64, STORE_I64);
    case TYPE_BF16: TREE(float, LOAD_BF16, STORE_BF16);
    default: TREE(float, LOAD_F16, STORE_F16);
    }
}
