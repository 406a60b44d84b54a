/* modulate, gated_add, rope. */
#include "kernel/cuda/kernels/pointwise_ops.h"

#define TERNARY(name)                                                                              \
    WEFT_KERNEL(weft_##name, ternary_args, POINTWISE_THREADS)                                      \
    {                                                                                              \
        const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);                       \
        if (i >= a.items)                                                                          \
            return;                                                                                \
        float x[8], y[8], z[8];                                                                    \
        load_item(x, a.x, loop_offset(&a.shape, a.x_stride, (uint32_t)i), a.x_same || !a.vector);  \
        load_item(y, a.y, loop_offset(&a.shape, a.y_stride, (uint32_t)i), a.y_same || !a.vector);  \
        load_item(z, a.z, loop_offset(&a.shape, a.z_stride, (uint32_t)i), a.z_same || !a.vector);  \
        UNROLL                                                                                     \
        for (int k = 0; k < 8; k++)                                                                \
            x[k] = name##_of(x[k], y[k], z[k]);                                                    \
        if (a.vector)                                                                              \
            store_eight(a.out, 8 * i, x);                                                          \
        else                                                                                       \
            store_float(a.out, i, x[0]);                                                           \
    }

TERNARY(modulate)
TERNARY(gated_add)

/* Rotates pairs of neighbours, or of elements that are half a head apart. */
WEFT_KERNEL_LISTED(weft_rope, rope_args, POINTWISE_THREADS)
{
    const int64_t i = block.x * POINTWISE_THREADS + THREAD(0);
    if (i >= a.items)
        return;
    const int64_t at = loop_offset(&a.shape, a.x_stride, (uint32_t)i),
                  angle = loop_offset(&a.shape, a.angle_stride, (uint32_t)i);
    float x[8], y[8];
    if (a.pairs == 1) {
        const int64_t other = a.rotate_half ? at + a.half : at + 1;
        const float c = load_float(a.cosine, angle), s = a.sign * load_float(a.sine, angle);
        x[0] = load_float(a.x, at);
        y[0] = load_float(a.x, other);
        store_float(a.out, at, f_fma(x[0], c, -(y[0] * s)));
        store_float(a.out, other, f_fma(x[0], s, y[0] * c));
        return;
    }
    load_eight(x, a.x, at);
    if (!a.rotate_half) {
        UNROLL
        for (int k = 0; k < 4; k++) {
            const float c = load_float(a.cosine, angle + k),
                        s = a.sign * load_float(a.sine, angle + k);
            const float first = x[2 * k], second = x[2 * k + 1];
            x[2 * k] = f_fma(first, c, -(second * s));
            x[2 * k + 1] = f_fma(first, s, second * c);
        }
        store_eight(a.out, at, x);
        return;
    }
    load_eight(y, a.x, at + a.half);
    UNROLL
    for (int k = 0; k < 8; k++) {
        const float c = load_float(a.cosine, angle + k), s = a.sign * load_float(a.sine, angle + k);
        const float first = x[k], second = y[k];
        x[k] = f_fma(first, c, -(second * s));
        y[k] = f_fma(first, s, second * c);
    }
    store_eight(a.out, at, x);
    store_eight(a.out, at + a.half, y);
}

/* One thread an angle. Angles in f64: positions times frequencies have many turns. */
WEFT_KERNEL(weft_rope_table, rope_table_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0),
                  width = a.pairs[0] + a.pairs[1] + a.pairs[2];
    if (i >= a.len * width)
        return;
    const int64_t token = a.start + i / width - a.before, pair = i % width;
    const int d = pair < a.pairs[0] ? 0 : pair < a.pairs[0] + a.pairs[1] ? 1 : 2;
    double cosine = 1, sine = 0;
    if (token >= 0 && token < a.tokens) {
        const int64_t position = d == 0   ? token / (a.grid[1] * a.grid[2])
                                 : d == 1 ? token / a.grid[2] % a.grid[1]
                                          : token % a.grid[2];
        const double origin = d == 0   ? a.origin[0]
                              : d == 1 ? a.origin[1]
                                       : a.origin[2],
                     step = d == 0   ? a.step[0]
                            : d == 1 ? a.step[1]
                                     : a.step[2];
        d_rotate((origin + (double)position * step) * a.frequency[pair], &cosine, &sine);
    }
    store_float(a.cosine, i, (float)cosine);
    store_float(a.sine, i, (float)sine);
}
