/* The random numbers of base/rng.h: Philox 4x32-10, Box-Muller in f64. */
#include "kernel/cuda/kernels/simt.h"

DEV void philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    UNROLL
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

WEFT_KERNEL(weft_random, random_args, POINTWISE_THREADS)
{
    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);
    if (i >= a.count)
        return;
    const uint64_t key =
        (uint64_t)load_int(a.key, loop_offset(&a.shape, a.key_stride, (uint32_t)i));
    const uint64_t index =
        (uint64_t)(a.whole_start + loop_offset(&a.shape, a.whole_stride, (uint32_t)i));
    uint32_t block[4];
    if (!a.normal) {
        philox(key, a.stream, index / 4, block);
        const uint32_t lo = index & 1 ? block[1] : block[0], hi = index & 1 ? block[3] : block[2];
        const uint32_t bits = index & 2 ? hi : lo;
        store_float(a.out, i, ((float)(bits >> 8) + 0.5f) * 5.9604644775390625e-8f);
        return;
    }
    philox(key, a.stream | (uint64_t)1 << 32, index / 2, block);
    const double unit = 2.3283064365386962890625e-10; /* 2^-32 */
    const double radius = d_sqrt(-2.0 * d_log(((double)block[0] + 0.5) * unit));
    double cosine, sine;
    d_turn(4.0 * (((double)block[1] + 0.5) * unit), &cosine, &sine);
    store_float(a.out, i, (float)(radius * (index & 1 ? sine : cosine)));
}
