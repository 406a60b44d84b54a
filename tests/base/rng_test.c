#include "base/rng.h"

#include <criterion/criterion.h>
#include <math.h>

/* Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors). */
Test(rng, philox_known_answers)
{
    uint32_t out[4];
    weft_philox(0, 0, 0, out);
    cr_assert_eq(out[0], 0x6627e8d5u);
    cr_assert_eq(out[1], 0xe169c58du);
    cr_assert_eq(out[2], 0xbc57ac4cu);
    cr_assert_eq(out[3], 0x9b00dbd8u);
    weft_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    cr_assert_eq(out[0], 0x408f276du);
    cr_assert_eq(out[1], 0x41c83b0eu);
    cr_assert_eq(out[2], 0xa20bc7c6u);
    cr_assert_eq(out[3], 0x6d5451fdu);
}

/* Pairs of the Box-Muller transform: the cosine at even indices, the sine at odd ones. Resumed and
 * compared runs depend on these values, so they must never change. */
Test(rng, normals_are_those_of_the_transform)
{
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t block[4];
        weft_philox(11, (uint64_t)WEFT_RNG_NOISE | (uint64_t)1 << 32, i / 2, block);
        const double radius = sqrt(-2 * log((block[0] + 0.5) / 4294967296.0)),
                     angle = 2 * 3.14159265358979323846 * (block[1] + 0.5) / 4294967296.0;
        cr_expect_float_eq(weft_random_normal(11, WEFT_RNG_NOISE, i),
                           radius * (i % 2 ? sin(angle) : cos(angle)), 1e-6, "normal %d", (int)i);
    }
}

Test(rng, moments)
{
    double sum = 0, square = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        const double x = (double)weft_random_normal(7, WEFT_RNG_NOISE, (uint64_t)i);
        cr_assert(isfinite(x));
        sum += x;
        square += x * x;
    }
    cr_assert_float_eq(sum / n, 0, 0.01);
    cr_assert_float_eq(square / n, 1, 0.015);
}

Test(rng, streams_differ)
{
    cr_assert_neq(weft_random_normal(7, WEFT_RNG_NOISE, 5),
                  weft_random_normal(7, WEFT_RNG_INIT, 5));
    cr_assert_neq(weft_random_normal(7, WEFT_RNG_NOISE, 5),
                  weft_random_normal(8, WEFT_RNG_NOISE, 5));
}
