/* Stages of HeliosScheduler and HeliosDMDScheduler: numbers of diffusers 0.42.1. */
#include "diffusion/scheduler_stages.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static weft_scheduler scheduler_of(const char *fields)
{
    weft_scheduler s;
    json_t *json;
    cr_assert_eq(weft_json_parse(fields, (int64_t)strlen(fields), "test", &json), WEFT_OK);
    cr_assert_eq(weft_scheduler_read(json, "test", &s), WEFT_OK, "%s", weft_error_message());
    json_decref(json);
    return s;
}

static void expect_close(double own, double expected, const char *what)
{
    cr_expect(fabs(own - expected) <= 1e-12 * (1 + fabs(expected)), "%s: %.15g, not %.15g", what,
              own, expected);
}

static void expect_stage(const weft_scheduler *s, int64_t at, weft_stage expected)
{
    const weft_stage own = weft_scheduler_stage(s, at);
    expect_close(own.keep, expected.keep, "keep");
    expect_close(own.noise, expected.noise, "noise");
    expect_close(own.high, expected.high, "high");
    expect_close(own.low, expected.low, "low");
}

Test(scheduler_stages, weights_and_times)
{
    const weft_scheduler s = scheduler_of("{\"_class_name\": \"HeliosScheduler\"}");
    expect_stage(&s, 1, (weft_stage){0.600120144052839, 0.692612227423806, 743.256, 385.971642});
    expect_stage(&s, 2, (weft_stage){0.749812921676042, 0.43333673105431, 385.614, 1.383615});
    cr_expect_eq(weft_scheduler_stage(&s, 0).high, 999);
    expect_close(weft_scheduler_stage(&s, 0).low, 743.511744, "low");
    const weft_scheduler t =
        scheduler_of("{\"_class_name\": \"HeliosScheduler\", \"shift\": 2.0, \"stages\": 2, "
                     "\"stage_range\": [0, 0.4, 1], \"gamma\": 0.25}");
    expect_stage(
        &t, 1,
        (weft_stage){0.519083761811188, 0.778138819131239, 874.015255967297, 2.86802523999313});
}

/* The distilled class omits the last but one of the levels, and all times are whole. */
Test(scheduler_stages, levels)
{
    const weft_scheduler d = scheduler_of("{\"_class_name\": \"HeliosDMDScheduler\"}"),
                         h = scheduler_of("{\"_class_name\": \"HeliosScheduler\", "
                                          "\"use_dynamic_shifting\": true, "
                                          "\"time_shift_type\": \"linear\"}");
    const double times[2][4] = {{743, 653, 564, 475}, {385, 159, 1}};
    const double levels[2][5] = {
        {0.999, 0.74949975, 0.49999949999999993, 0.25049924999999995, 0},
        {0.9985720405540481, 0.41176422145337255, 0.0006995096430399217, 0}};
    for (int k = 0; k < 2; k++) {
        const weft_timestep_request request = {
            .steps = 4 - k, .mu = k ? 0.7 : NAN, .end = NAN, .stage = 1 + k};
        weft_solver_step step[4];
        cr_assert_eq(weft_scheduler_set_timesteps(k ? &h : &d, &request, step), WEFT_OK);
        for (int64_t i = 0; i < request.steps; i++) {
            cr_expect_eq(step[i].from.time, times[k][i]);
            expect_close(step[i].from.sigma, levels[k][i], "from");
            expect_close(step[i].to.sigma, levels[k][i + 1], "to");
        }
    }
}

/* With few times, a step has the level of the nearest whole time. */
Test(scheduler_stages, nearest_time)
{
    const weft_scheduler s = scheduler_of(
        "{\"_class_name\": \"HeliosDMDScheduler\", \"num_train_timesteps\": 4, \"stages\": 2, "
        "\"stage_range\": [0, 0.5, 1]}");
    weft_solver_step step[5];
    const weft_timestep_request request = {.steps = 5, .mu = NAN, .end = NAN, .stage = 0};
    const weft_stage stage = weft_scheduler_stage(&s, 0);
    cr_assert_lt(stage.high - stage.low, 4, "times are near enough");
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &request, step), WEFT_OK);
    for (int i = 0; i < 5; i++) { /* of the times before they are whole */
        int best = 0;
        for (int k = 1; k < 5; k++) {
            const double fall = (stage.low - stage.high) / 5, whole = floor(stage.high + i * fall);
            if (fabs(stage.high + k * fall - whole) < fabs(stage.high + best * fall - whole))
                best = k;
        }
        const double last = 0.999 / 4;
        expect_close(step[i].from.sigma, 0.999 + best * (last - 0.999) / 5, "level");
    }
    cr_expect_eq(step[4].to.sigma, 0);
}
