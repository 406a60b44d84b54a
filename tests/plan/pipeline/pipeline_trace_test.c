/* The clock of the schedules against the event simulator, which knows links and contention. */
#include "base/rng.h"
#include "plan/cluster/fabric.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pipeline_trace.h"
#include "plan/simulate/simulator.h"

#include <criterion/criterion.h>
#include <math.h>

Test(simulate, agrees_with_the_schedule_clock)
{
    weft_rng rng = weft_rng_make(12, WEFT_RNG_TEST);
    double worst = 0;
    for (int round = 0; round < 40; round++) {
        weft_pp_op op[40];
        weft_skip skip[20];
        const int64_t n = 16 + (int64_t)weft_rng_below(&rng, 24),
                      devices = 2 + (int64_t)weft_rng_below(&rng, 4);
        const bool with_skips = round % 3;
        weft_pp_costs c = {
            .op = op, .op_count = n, .skip = skip, .lambda = 1, .bandwidth = 1e9, .latency = 1e-4};
        for (int64_t i = 0; i < n; i++)
            op[i] = (weft_pp_op){.forward = 0.01 + 0.02 * weft_rng_f64(&rng),
                                 .backward = 0.02 + 0.04 * weft_rng_f64(&rng),
                                 .output_bytes = 2e6 * weft_rng_f64(&rng),
                                 .parameter_bytes = 1e6,
                                 .activation_bytes = 1e6 * weft_rng_f64(&rng)};
        for (int64_t i = 0; i < n / 2 && with_skips; i++)
            skip[c.skip_count++] =
                (weft_skip){(int32_t)i, (int32_t)(n - 1 - i), op[i].output_bytes};
        const weft_pipeline_options o = {.pp_stages = with_skips ? 2 * devices : devices,
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
                               "device %" PRId64 ": %g, plan %g", d, run.peak[d],
                               plan.parameter_bytes[d] + plan.activation_peak[d]);
        weft_simulation_free(&run);
        weft_trace_free(&trace);
        weft_pipeline_plan_free(&plan);
    }
    cr_log_info("largest difference %.3f %%", 100 * worst);
}

/* The closed form of a ring against the event simulator: all groups of `together` neighbours on
 * each of `nodes` nodes gather at once. */
static double gather_ratio(const char *spec, int64_t nodes, int64_t together)
{
    weft_arena *arena = weft_arena_create();
    weft_cluster cluster;
    cr_assert_eq(weft_cluster_load(arena, spec, &cluster), WEFT_OK, "%s", weft_error_message());
    const weft_fabric fabric = weft_fabric_from_cluster(&cluster);
    weft_trace trace = {.devices = weft_cluster_devices(&cluster)};
    weft_trace_step step = {.kind = WEFT_TRACE_ALL_GATHER,
                            .stream = WEFT_STREAM_COMM,
                            .owner = -1,
                            .repeat = 1,
                            .bytes = 4e10};
    cr_assert_eq(weft_trace_add_name(&trace, "gather", &step.name), WEFT_OK);
    for (int64_t first = 0; first < cluster.devices; first += together) {
        int32_t member[256];
        for (int64_t i = 0; i < nodes * together; i++)
            member[i] = (int32_t)(i / together * cluster.devices + first + i % together);
        cr_assert_eq(weft_trace_add_group(&trace, member, nodes * together, &step.group), WEFT_OK);
        cr_assert_eq(weft_trace_add_step(&trace, step, NULL, 0, NULL), WEFT_OK);
    }
    weft_simulation run;
    cr_assert_eq(weft_simulate(&trace, &cluster, &run), WEFT_OK, "%s", weft_error_message());
    const double formula = weft_fabric_gather(&fabric, nodes * together, together, step.bytes);
    const double ratio = formula / run.seconds;
    cr_log_info("%s, %" PRId64 " nodes of %" PRId64 " ranks: %.4f s, simulated %.4f s", spec, nodes,
                together, formula, run.seconds);
    weft_simulation_free(&run);
    weft_trace_free(&trace);
    weft_arena_free(arena);
    return ratio;
}

Test(simulate, agrees_with_the_formula_of_a_ring)
{
    static const struct {
        const char *cluster;
        int64_t nodes, together;
    } rings[] = {{"v100:2", 2, 8},       {"v100:2", 1, 8},       {"v100:2", 2, 2}, {"v100:4", 4, 4},
                 {"ascend910a:8", 8, 8}, {"ascend910a:8", 4, 2}, {"h100:4", 4, 8}, {"h100:2", 2, 2},
                 {"h200:2", 2, 8},       {"a100:4", 4, 8}};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        const double ratio = gather_ratio(rings[i].cluster, rings[i].nodes, rings[i].together);
        cr_expect(fabs(ratio - 1) < 0.005,
                  "%s, %" PRId64 " nodes of %" PRId64 " ranks: formula / simulated %.4f",
                  rings[i].cluster, rings[i].nodes, rings[i].together, ratio);
    }
}
