#include "diffusion/flow.h"
#include "diffusion/guidance.h"
#include "diffusion/process.h"
#include "diffusion/sampler.h"

#include <criterion/criterion.h>
#include <math.h>

/* The noise levels of diffusers' FlowMatchEulerDiscreteScheduler with shift 3 and 10 steps. */
Test(flow, schedule_of_the_reference)
{
    static const double expected[11] = {1.0,    0.9601, 0.9133, 0.8577, 0.7904, 0.7073,
                                        0.6022, 0.4649, 0.2780, 0.0089, 0};
    double sigma[11];
    weft_flow_schedule(10, 3, sigma);
    for (int i = 0; i <= 10; i++)
        cr_assert(fabs(sigma[i] - expected[i]) <= 5e-5, "step %d: %.5f, reference %.4f", i,
                  sigma[i], expected[i]);
}

Test(flow, schedule_falls_to_zero_for_any_count)
{
    double sigma[101];
    for (int64_t steps = 1; steps <= 100; steps++) {
        weft_flow_schedule(steps, 5, sigma);
        cr_assert(sigma[0] == 1.0);
        cr_assert(sigma[steps] == 0.0);
        for (int64_t i = 0; i < steps; i++)
            cr_assert(sigma[i + 1] < sigma[i], "%lld steps, step %lld", (long long)steps,
                      (long long)i);
    }
}

/* dx/dsigma = x has the solution x(0) = x(1) / e: Euler is first order, Heun second. */
static weft_status_code linear_slope(void *user, int64_t step, const float *x, double sigma,
                                     float *slope)
{
    (void)sigma, (void)step;
    ++*(int *)user;
    slope[0] = x[0];
    return WEFT_OK;
}

static double error_of(const weft_sampler *kind, int64_t steps, int *calls)
{
    double sigma[129];
    for (int64_t i = 0; i <= steps; i++)
        sigma[i] = 1 - (double)i / (double)steps;
    float x = 1, work[3];
    *calls = 0;
    const weft_sampler_callbacks callbacks = {.slope = linear_slope, .user = calls};
    cr_assert_eq(weft_sampler_run(kind, sigma, steps, &x, 1, work, &callbacks), WEFT_OK);
    return fabs((double)x - exp(-1));
}

Test(sampler, orders_of_convergence)
{
    int calls;
    const double euler = error_of(&weft_sampler_euler, 32, &calls);
    cr_assert_eq(calls, 32);
    cr_assert_float_eq(euler / error_of(&weft_sampler_euler, 64, &calls), 2, 0.1);
    const double heun = error_of(&weft_sampler_heun, 32, &calls);
    cr_assert_eq(calls, 63); /* the last step is an Euler step */
    cr_assert(heun < euler / 10, "Heun %g, Euler %g", heun, euler);
}

static weft_status_code bad_slope(void *user, int64_t step, const float *x, double sigma,
                                  float *slope)
{
    (void)user, (void)step, (void)x, (void)sigma;
    slope[0] = NAN;
    return WEFT_OK;
}

Test(sampler, stops_at_nan)
{
    const double sigma[3] = {1, 0.5, 0};
    float x = 1, work[1];
    const weft_sampler_callbacks callbacks = {.slope = bad_slope};
    cr_assert_eq(weft_sampler_run(&weft_sampler_euler, sigma, 2, &x, 1, work, &callbacks),
                 WEFT_E_NUMERIC);
}

Test(sampler, guidance)
{
    float conditional[2] = {1, -2};
    const float unconditional[2] = {0, 2};
    cr_assert_eq(weft_guidance_of(1), &weft_guidance_none);
    cr_assert_eq(weft_guidance_of(3)->rows, 2);
    weft_guidance_of(3)->combine(conditional, unconditional, 3, 2);
    cr_assert(conditional[0] == 3.0f && conditional[1] == -10.0f);
}

static weft_status_code note_step(void *user, int64_t step, const float *x, double sigma,
                                  float *slope)
{
    (void)x, (void)sigma;
    int64_t *seen = user;
    seen[step]++;
    slope[0] = 0;
    return WEFT_OK;
}

/* Caches key what they keep by the step. */
Test(sampler, tells_the_step)
{
    const double sigma[4] = {1, 0.7, 0.3, 0};
    float x = 1, work[3];
    int64_t seen[3] = {0};
    const weft_sampler_callbacks callbacks = {.slope = note_step, .user = seen};
    cr_assert_eq(weft_sampler_run(&weft_sampler_heun, sigma, 3, &x, 1, work, &callbacks), WEFT_OK);
    cr_assert(seen[0] == 2 && seen[1] == 2 && seen[2] == 1);
}
