/* The clock of the schedules against the event simulator, which knows links and contention. */
#include "base/rng.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/simulate/simulator.h"

#include <criterion/criterion.h>
#include <math.h>

Test(simulate, agrees_with_the_schedule_clock)
{
    weft_rng rng = weft_rng_make(12, WEFT_RNG_TEST);
    double worst = 0;
    for (int round = 0; round < 40; round++) {
        weft_pipe_op op[40];
        weft_skip skip[20];
        const int64_t n = 16 + (int64_t)weft_rng_below(&rng, 24),
                      devices = 2 + (int64_t)weft_rng_below(&rng, 4);
        const bool with_skips = round % 3;
        weft_pipe_costs c = {
            .op = op, .op_count = n, .skip = skip, .lambda = 1, .bandwidth = 1e9, .latency = 1e-4};
        for (int64_t i = 0; i < n; i++)
            op[i] = (weft_pipe_op){.forward = 0.01 + 0.02 * weft_rng_f64(&rng),
                                   .backward = 0.02 + 0.04 * weft_rng_f64(&rng),
                                   .output_bytes = 2e6 * weft_rng_f64(&rng),
                                   .parameter_bytes = 1e6,
                                   .activation_bytes = 1e6 * weft_rng_f64(&rng)};
        for (int64_t i = 0; i < n / 2 && with_skips; i++)
            skip[c.skip_count++] =
                (weft_skip){(int32_t)i, (int32_t)(n - 1 - i), op[i].output_bytes};
        const weft_pipeline_options o = {.stages = with_skips ? 2 * devices : devices,
                                         .devices = devices,
                                         .microbatches = 1 + (int64_t)weft_rng_below(&rng, 12),
                                         .schedule = -1};
        weft_pipeline_plan plan;
        cr_assert_eq(weft_pipeline_plan_make(&c, &o, &plan), WEFT_OK, "%s", weft_error_message());
        /* a message passes two links of half the latency each */
        weft_cluster cluster = {.name = "test",
                                .nodes = 1,
                                .devices = devices,
                                .device = {.type = "device",
                                           .memory = INT64_MAX,
                                           .flops = 1,
                                           .memory_bandwidth = 1,
                                           .gemm = 1,
                                           .attention = 1,
                                           .conv = 1,
                                           .memory_fraction = 1},
                                .link = {c.bandwidth, c.latency / 2},
                                .host = {1e9, 1e-6}};
        cr_assert_eq(weft_cluster_resolve(&cluster, "test"), WEFT_OK, "%s", weft_error_message());
        weft_trace trace;
        weft_simulation run;
        cr_assert_eq(weft_pipeline_trace(&plan, 1, 1, &trace), WEFT_OK);
        cr_assert_eq(weft_trace_check(&trace), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_simulate(&trace, &cluster, &run), WEFT_OK, "%s", weft_error_message());
        const double difference = fabs(run.seconds / plan.timing.seconds - 1);
        worst = fmax(worst, difference);
        cr_assert(difference < 0.03, "round %d: clock %.6f, simulator %.6f", round,
                  plan.timing.seconds, run.seconds);
        double sent = 0;
        for (int64_t l = 0; l < run.links; l++)
            sent += run.link_bytes[l];
        /* out and in, forward and backward */
        cr_assert_float_eq(sent, 4 * plan.bytes_per_microbatch * (double)o.microbatches,
                           1 + 1e-9 * sent);
        for (int64_t d = 0; d < devices; d++)
            cr_assert_float_eq(run.peak[d], plan.parameter_bytes[d] + plan.activation_peak[d], 1,
                               "device %lld: %g, plan %g", (long long)d, run.peak[d],
                               plan.parameter_bytes[d] + plan.activation_peak[d]);
        weft_simulation_free(&run);
        weft_trace_free(&trace);
        weft_pipeline_plan_free(&plan);
    }
    cr_log_info("largest difference %.3f %%", 100 * worst);
}
