/* Elementwise ops. Every thread computes eight elements: two loads of 16 bytes of f32, or one of
 * bf16, which is enough traffic in flight to reach the memory's bandwidth. */
#include "kernel/cuda/kernels/pointwise_ops.h"

/* First element of the thread's eight; a grid covers all elements once. */
DEV int64_t own_first(int64_t block)
{
    return (block * POINTWISE_THREADS + THREAD(0)) * POINTWISE_PER_THREAD;
}

/* Without vectors, a thread's elements are apart by the number of threads, so that the accesses of
 * a warp are to neighbours. */
DEV int64_t own_apart(int64_t block, int k)
{
    return block * POINTWISE_THREADS * POINTWISE_PER_THREAD + THREAD(0) +
           k * POINTWISE_THREADS;
}

#define UNARY_BLOCK(name, block)                                                                   \
    {                                                                                              \
        const int64_t first = own_first(block);                                                    \
        if (a.vector && first + POINTWISE_PER_THREAD <= a.count) {                                 \
            float x[8], dy[8] = {0, 0, 0, 0, 0, 0, 0, 0};                                          \
            load_eight(x, a.x, first);                                                             \
            if (a.dy.data)                                                                         \
                load_eight(dy, a.dy, first);                                                       \
            UNROLL                                                                                 \
            for (int k = 0; k < 8; k++)                                                            \
                x[k] = name##_of(x[k], dy[k], a.a, a.b);                                           \
            store_eight(a.out, first, x);                                                          \
            return;                                                                                \
        }                                                                                          \
        for (int k = 0; k < POINTWISE_PER_THREAD; k++) {                                           \
            const int64_t i = a.vector ? first + k : own_apart(block, k);                          \
            if (i < a.count)                                                                       \
                store_float(a.out, i,                                                              \
                            name##_of(load_float(a.x, i), a.dy.data ? load_float(a.dy, i) : 0.0f,  \
                                      a.a, a.b));                                                  \
        }                                                                                          \
    }
#define UNARY(name)                                                                                \
    WEFT_KERNEL(weft_##name, unary_args, POINTWISE_THREADS)                                        \
    UNARY_BLOCK(name, BLOCK(0))

UNARY(stop)
UNARY(neg)
UNARY(affine)
WEFT_KERNEL_LISTED(weft_cast, unary_args, POINTWISE_THREADS)
UNARY_BLOCK(cast, block.x)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(square)
UNARY(sin)
UNARY(cos)
UNARY(tanh)
UNARY(sigmoid)
UNARY(silu)
UNARY(silu_grad)
UNARY(gelu)
UNARY(gelu_exact)
UNARY(gelu_grad)
UNARY(gelu_exact_grad)
UNARY(clamp)
UNARY(clamp_grad)

/* Integers to integers keep all bits, which f32 would not. */
WEFT_KERNEL(weft_cast_integer, unary_args, POINTWISE_THREADS)
{
    for (int k = 0; k < POINTWISE_PER_THREAD; k++) {
        const int64_t i = own_apart(BLOCK(0), k);
        if (i >= a.count)
            continue;
        const int64_t x = load_int(a.x, i);
        if (a.out.type == TYPE_I64)
            ((int64_t *)a.out.data)[i] = x;
        else if (a.out.type == TYPE_I32)
            ((int32_t *)a.out.data)[i] = (int32_t)x;
        else
            ((uint8_t *)a.out.data)[i] = (uint8_t)x;
    }
}

#define BINARY_BLOCK(name, block)                                                                  \
    {                                                                                              \
        if (a.vector) {                                                                            \
            const int64_t i = (block) * POINTWISE_THREADS + THREAD(0);                             \
            if (i >= a.items)                                                                      \
                return;                                                                            \
            float x[8], y[8];                                                                      \
            load_item(x, a.x, loop_offset(&a.shape, a.x_stride, (uint32_t)i), a.x_same);           \
            load_item(y, a.y, loop_offset(&a.shape, a.y_stride, (uint32_t)i), a.y_same);           \
            UNROLL                                                                                 \
            for (int k = 0; k < 8; k++)                                                            \
                x[k] = name##_of(x[k], y[k]);                                                      \
            store_eight(a.out, 8 * i, x);                                                          \
            return;                                                                                \
        }                                                                                          \
        for (int k = 0; k < POINTWISE_PER_THREAD; k++) {                                           \
            const int64_t i = own_apart(block, k);                                                 \
            if (i < a.items)                                                                       \
                store_float(                                                                       \
                    a.out, i,                                                                      \
                    name##_of(load_float(a.x, loop_offset(&a.shape, a.x_stride, (uint32_t)i)),     \
                              load_float(a.y, loop_offset(&a.shape, a.y_stride, (uint32_t)i))));   \
        }                                                                                          \
    }
#define BINARY(name)                                                                               \
    WEFT_KERNEL(weft_##name, binary_args, POINTWISE_THREADS)                                       \
    BINARY_BLOCK(name, (int64_t)BLOCK(0))

WEFT_KERNEL_LISTED(weft_add, binary_args, POINTWISE_THREADS)
BINARY_BLOCK(add, block.x)

/* Launches of one block each, in their order: a row may read what a row before has written. */
WEFT_KERNEL(weft_add_serial, binary_args_list, POINTWISE_THREADS)
{
    const block_at at = {0, 0};
    for (int32_t row = 0; row < a.count; row++) {
        weft_add_block(a.row[row], at);
        block_barrier();
    }
}
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(scale_more)
