/* The fits recover what made the numbers, and say so when they cannot. */
#include "base/rng.h"
#include "plan/cost/fit.h"

#include <criterion/criterion.h>
#include <math.h>

Test(fit, eq9_is_recovered)
{
    weft_rng rng = weft_rng_make(8, WEFT_RNG_TEST);
    weft_dit_sample s[40];
    for (int i = 0; i < 40; i++) {
        s[i] = (weft_dit_sample){1 + (double)weft_rng_below(&rng, 4),
                                 1000 + 30000 * weft_rng_f64(&rng),
                                 1 + (double)weft_rng_below(&rng, 8), 0.1 * weft_rng_f64(&rng), 0};
        s[i].seconds =
            (3e-5 * s[i].batch * s[i].tokens + 4e-9 * s[i].batch * s[i].tokens * s[i].tokens) /
                s[i].degree +
            s[i].comm;
    }
    weft_dit_fit f;
    cr_assert_eq(weft_fit_dit(s, 40, &f), WEFT_OK, "%s", weft_error_message());
    cr_assert_float_eq(f.linear, 3e-5, 1e-10);
    cr_assert_float_eq(f.quadratic, 4e-9, 1e-14);
    cr_assert_lt(f.worst, 1e-6);
    for (int i = 0; i < 40; i++)
        s[i].seconds *= 1 + 0.1 * (weft_rng_f64(&rng) - 0.5);
    cr_assert_eq(weft_fit_dit(s, 40, &f), WEFT_OK);
    cr_assert(f.error > 0.01 && f.error < 0.06, "%g", f.error);
    cr_assert_eq(weft_fit_dit(s, 1, &f), WEFT_E_ARG);
    s[3].seconds = NAN;
    cr_assert_eq(weft_fit_dit(s, 40, &f), WEFT_E_ARG);
}

/* Times with a step by shape that no line over the volume can follow. */
Test(fit, boosting_learns_the_shapes)
{
    static const double sides[][2] = {{128, 128}, {192, 192}, {256, 256}, {256, 192}, {320, 256}};
    weft_tile_sample s[100];
    int n = 0;
    for (int k = 0; k < 5; k++)
        for (int f = 0; f < 20; f++) {
            const double frames = 4 + 3 * f;
            s[n++] = (weft_tile_sample){frames, sides[k][0], sides[k][1],
                                        0.01 + 2e-9 * frames * sides[k][0] * sides[k][1] *
                                                   (k == 2   ? 0.7
                                                    : k == 3 ? 1.4
                                                             : 1)};
        }
    weft_tile_fit *fit;
    double line, corrected;
    cr_assert_eq(weft_fit_tiles(s, n, 7, &fit), WEFT_OK, "%s", weft_error_message());
    weft_tile_fit_errors(fit, &line, &corrected);
    cr_assert(corrected < 0.5 * line && corrected < 0.08, "line %g, corrected %g", line, corrected);
    weft_tile_fit_free(fit);
    cr_assert_eq(weft_fit_tiles(s, 3, 0, &fit), WEFT_E_ARG);
}
