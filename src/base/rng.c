#include "base/rng.h"

#include <math.h>

void weft_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
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

/* 24 bits centred in their cell: (0, 1) open at both ends, exact in f32. */
static float to_unit(uint32_t bits)
{
    return ((float)(bits >> 8) + 0.5f) * 0x1p-24f;
}

float weft_random_uniform(uint64_t seed, weft_rng_purpose purpose, uint64_t index)
{
    uint32_t block[4];
    weft_philox(seed, (uint64_t)purpose, index / 4, block);
    return to_unit(block[index % 4]);
}

float weft_random_normal(uint64_t seed, weft_rng_purpose purpose, uint64_t index)
{
    uint32_t block[4];
    weft_philox(seed, (uint64_t)purpose | (uint64_t)1 << 32, index / 2, block);
    /* f64 inside: libm's f32 functions differ between builds in the last bit. */
    const double radius = sqrt(-2.0 * log(((double)block[0] + 0.5) * 0x1p-32));
    const double angle = 6.283185307179586 * (((double)block[1] + 0.5) * 0x1p-32);
    return (float)(radius * (index % 2 ? sin(angle) : cos(angle)));
}

uint64_t weft_seed_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint32_t weft_rng_u32(weft_rng *rng)
{
    uint32_t block[4];
    const uint64_t n = rng->next++;
    weft_philox(rng->seed, (uint64_t)rng->purpose | (uint64_t)2 << 32, n / 4, block);
    return block[n % 4];
}

static uint64_t rng_u64(weft_rng *rng)
{
    const uint64_t hi = weft_rng_u32(rng);
    return hi << 32 | weft_rng_u32(rng);
}

uint64_t weft_rng_below(weft_rng *rng, uint64_t n)
{
    const uint64_t limit = UINT64_MAX - UINT64_MAX % n; /* reject the uneven tail */
    uint64_t value;
    do
        value = rng_u64(rng);
    while (value >= limit);
    return value % n;
}

double weft_rng_f64(weft_rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

double weft_rng_normal(weft_rng *rng)
{
    const double u = 1.0 - weft_rng_f64(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * weft_rng_f64(rng));
}
