#include "diffusion/guidance.h"

#include <criterion/criterion.h>
#include <math.h>

/* Two samples of two values, by row and scale. */
static void guide(const char *name, weft_guidance_params g, float out[4])
{
    static const float conditional[4] = {1, -2, 3, 5}, unconditional[4] = {0, 2, 3, 1};
    for (int i = 0; i < 4; i++)
        out[i] = conditional[i];
    g.each = 2;
    weft_guidance_find(name)->combine(&g, out, unconditional, 4);
}

Test(guidance, cfg_and_cosmos_differ_by_one)
{
    float a[4], b[4];
    guide("cfg", (weft_guidance_params){.scale = 3}, a);
    guide("cosmos", (weft_guidance_params){.scale = 2}, b);
    cr_assert(a[0] == 3.0f && a[1] == -10.0f);
    for (int i = 0; i < 4; i++)
        cr_assert_float_eq(a[i], b[i], 1e-6);
}

Test(guidance, a_scale_of_one_needs_one_row)
{
    cr_assert_eq(weft_guidance_of(1), weft_guidance_find("none"));
    cr_assert_eq(weft_guidance_of(1)->rows, 1);
    cr_assert_eq(weft_guidance_of(3)->rows, 2);
    cr_assert(weft_guidance_find("distilled")->takes_scale &&
              weft_guidance_find("distilled")->rows == 1);
    cr_assert_null(weft_guidance_find("cfgg"));
}

/* Two experts: above the boundary one scale, below it the other. */
Test(guidance, two_scales)
{
    float a[4], high[4], low[4];
    weft_guidance_params g = {.scale = 4, .low_scale = 3, .boundary = 0.875, .time = 0.9};
    guide("cfg", g, a);
    guide("cfg", (weft_guidance_params){.scale = 4}, high);
    guide("cfg", (weft_guidance_params){.scale = 3}, low);
    cr_assert(a[0] == high[0] && a[1] == high[1]);
    g.time = 0.8;
    guide("cfg", g, a);
    cr_assert(a[0] == low[0] && a[1] == low[1] && low[0] != high[0]);
    g.time = 0.875; /* the boundary itself is the high one's */
    cr_assert_eq(weft_guidance_scale_at(&g), 4);
}

/* With full rescale, the deviation of each sample is that of the conditional prediction. */
Test(guidance, rescale_restores_the_deviation)
{
    float a[4];
    guide("rescale", (weft_guidance_params){.scale = 7, .rescale = 1}, a);
    cr_assert_float_eq(fabsf(a[0] - a[1]), 3, 1e-5);
    cr_assert_float_eq(fabsf(a[2] - a[3]), 2, 1e-5);
}

/* cfg, but each token of 2x2 latents has the norm of its conditional prediction: the frame has two
 * tokens side by side, of two channels. */
Test(guidance, cfg_norm_keeps_the_norm_of_tokens)
{
    enum { ROWS = 2, COLUMNS = 4, CHANNELS = 2, COUNT = ROWS * COLUMNS * CHANNELS };
    float c[COUNT], u[COUNT], plain[COUNT], before[2] = {0}, after[2] = {0}, ratio[2] = {0};
    for (int i = 0; i < COUNT; i++) {
        c[i] = plain[i] = (float)(i * 7 % 5) - 2;
        u[i] = (float)(i * 3 % 4) - 1;
        before[i / CHANNELS % COLUMNS / 2] += c[i] * c[i];
    }
    const weft_guidance_params g = {.scale = 3, .size = {ROWS, COLUMNS, CHANNELS}, .token = {2, 2}};
    weft_guidance_find("cfg_norm")->combine(&g, c, u, COUNT);
    weft_guidance_find("cfg")->combine(&g, plain, u, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const int token = i / CHANNELS % COLUMNS / 2;
        after[token] += c[i] * c[i];
        ratio[token] = plain[i] != 0 ? c[i] / plain[i] : ratio[token];
    }
    for (int i = 0; i < COUNT; i++)
        cr_expect_float_eq(c[i], ratio[i / CHANNELS % COLUMNS / 2] * plain[i], 1e-5);
    cr_expect_float_eq(after[0], before[0], 1e-4);
    cr_expect_float_eq(after[1], before[1], 1e-4);
    cr_expect(fabsf(ratio[0] - ratio[1]) > 1e-3f, "both tokens have the factor %g",
              (double)ratio[0]);
}

/* CogVideoX's code: 1 + scale (1 - cos(pi ((steps - t) / steps)^5)) / 2, with the model's t. */
Test(guidance, dynamic_cfg_takes_the_timestep)
{
    float a[4], b[4];
    for (double t = 999; t > 0; t -= 199) {
        const double share = (50 - t) / 50,
                     scale = 1 + 6 * (1 - cos(M_PI * share * share * share * share * share)) / 2;
        guide("dynamic_cfg", (weft_guidance_params){.scale = 6, .timestep = t, .steps = 50}, a);
        guide("cfg", (weft_guidance_params){.scale = scale}, b);
        cr_expect_float_eq(a[1], b[1], 1e-4, "%g: %g and %g", t, (double)a[1], (double)b[1]);
    }
    cr_assert_str_eq(weft_guidance_renamed("dynamic"), "rising");
    cr_assert_null(weft_guidance_renamed("dynamic_cfg"));
}

Test(guidance, rising_begins_at_one)
{
    float a[4], b[4];
    guide("rising", (weft_guidance_params){.scale = 6, .time = 1}, a);
    cr_assert(a[0] == 1.0f && a[1] == -2.0f);
    guide("rising", (weft_guidance_params){.scale = 6, .time = 0}, a);
    guide("cfg", (weft_guidance_params){.scale = 7}, b);
    cr_assert_float_eq(a[1], b[1], 1e-5);
}

/* Without the parallel part the step is orthogonal to the conditional answer. */
Test(guidance, apg_is_orthogonal)
{
    float a[4];
    guide("apg", (weft_guidance_params){.scale = 2, .eta = 0}, a);
    cr_assert_float_eq((a[0] - 0) * 1 + (a[1] - 2) * -2, 0, 1e-5);
}

/* The running average of differences continues over calls: the difference plus the momentum (-0.5
 * by default) times the previous average (Sadat et al., 2024). The step is clipped to the norm
 * `most`. */
Test(guidance, apg_averages_differences)
{
    const double c[3][2] = {{1, -2}, {0.5, 1}, {-1, 2}}, u[3][2] = {{0, 2}, {0.25, -1}, {1, 1}},
                 scale = 2, eta = 0.25, momentum = -0.5, most = 3;
    float average[2] = {0};
    double expected[2] = {0};
    for (int step = 0; step < 3; step++) {
        float made[2] = {(float)c[step][0], (float)c[step][1]};
        const float without[2] = {(float)u[step][0], (float)u[step][1]};
        const weft_guidance_params g = {.scale = scale,
                                        .eta = eta,
                                        .momentum = momentum,
                                        .most = most,
                                        .average = average,
                                        .each = 2};
        weft_guidance_find("apg")->combine(&g, made, without, 2);
        double norm = 0, along = 0, own = 0;
        for (int i = 0; i < 2; i++) {
            expected[i] = c[step][i] - u[step][i] + momentum * expected[i];
            norm += expected[i] * expected[i];
            along += expected[i] * c[step][i];
            own += c[step][i] * c[step][i];
        }
        const double cut = fmin(1, most / sqrt(norm));
        for (int i = 0; i < 2; i++) {
            const double parallel = along / own * c[step][i],
                         d = cut * (expected[i] - parallel + eta * parallel);
            cr_expect_float_eq(average[i], expected[i], 1e-6, "average of step %d", step);
            cr_expect_float_eq(made[i], u[step][i] + scale * d, 1e-5, "step %d: %g, not %g", step,
                               (double)made[i], u[step][i] + scale * d);
        }
    }
}

/* The update is added to the conditional prediction, so that its scale is smaller by 1. Momentum and
 * limit are off, and the parallel part is complete. */
Test(guidance, apg_of_the_conditional)
{
    float a[4], b[4];
    guide("apg", (weft_guidance_params){.scale = 2, .eta = 1, .from_conditional = true}, a);
    guide("cfg", (weft_guidance_params){.scale = 3}, b);
    for (int i = 0; i < 2; i++)
        cr_expect_float_eq(a[i], b[i], 1e-5, "%d: %g, not %g", i, (double)a[i], (double)b[i]);
}
