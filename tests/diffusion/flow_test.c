#include "diffusion/flow.h"

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
            cr_assert(sigma[i + 1] < sigma[i], "%" PRId64 " steps, step %" PRId64, steps, i);
    }
}
