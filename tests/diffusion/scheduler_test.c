#include "diffusion/scheduler.h"

#include "base/config.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/scheduler_space.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static weft_status_code read(const char *text, weft_scheduler *s)
{
    json_t *json;
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "a.json", &json), WEFT_OK, "%s",
                 weft_error_message());
    const weft_status_code status = weft_scheduler_read(json, "a.json", s);
    json_decref(json);
    return status;
}

static weft_solver_step *lay(const weft_scheduler *s, int64_t steps, double mu)
{
    weft_solver_step *leg = calloc((size_t)steps, sizeof *leg);
    cr_assert_eq(weft_scheduler_set_timesteps(s, &(weft_timestep_request){steps, NULL, mu}, leg),
                 WEFT_OK, "%s", weft_error_message());
    return leg;
}

/* Each error names the file, the field and what would do. */
Test(scheduler, refuses_by_name)
{
    static const struct {
        const char *json;
        weft_message_class kind;
        const char *key, *remedy;
    } cases[] = {
        {"{\"_class_name\": \"PNDMScheduler\"}", WEFT_MSG_SCHEDULER_UNSUPPORTED, "_class_name",
         "DDIMScheduler"},
        {"{}", WEFT_MSG_JSON_MISSING_KEY, "_class_name", ""},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"flow_shft\": 3}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "flow_shft", "flow_shift"},
        {"{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"flow_shift\": 3}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "flow_shift", "\"shift"},
        {"{\"_class_name\": \"DDIMScheduler\", \"beta_schedule\": \"cosine\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "beta_schedule", "squaredcos_cap_v2"},
        {"{\"_class_name\": \"DDIMScheduler\", \"trained_betas\": [0.1]}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "trained_betas", "null"},
        {"{\"_class_name\": \"DDPMScheduler\", \"variance_type\": \"learned_range\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "variance_type", "fixed_large"},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"solver_p\": {}}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "solver_p", "null"},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"solver_order\": 9}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "solver_order", "1 to"},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"prediction_type\": \"flow_prediction\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "prediction_type", "use_flow_sigmas"},
        {"{\"_class_name\": \"DPMSolverMultistepScheduler\", \"algorithm_type\": \"dpmsolver\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "final_sigmas_type", "sigma_min"},
        {"{\"_class_name\": \"DPMSolverMultistepScheduler\", \"use_karras_sigmas\": true, "
         "\"use_beta_sigmas\": true}",
         WEFT_MSG_SCHEDULER_CONFIG, NULL, "use_beta_sigmas"},
        {"{\"_class_name\": \"EDMEulerScheduler\", \"prediction_type\": \"sample\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "prediction_type", "v_prediction"},
        {"{\"_class_name\": \"DDIMScheduler\", \"rescale_betas_zero_snr\": true, "
         "\"timestep_spacing\": "
         "\"trailing\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "rescale_betas_zero_snr", "v_prediction"},
        {"{\"_class_name\": \"DDIMScheduler\", \"clip_sample\": 1}", WEFT_MSG_JSON_TYPE,
         "clip_sample", ""},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        weft_scheduler s;
        cr_expect_neq(read(cases[i].json, &s), WEFT_OK, "%s", cases[i].json);
        const weft_message_fields *at = weft_error_fields();
        cr_expect_eq(weft_error_class(), cases[i].kind, "%s", weft_error_message());
        cr_expect(at->file && !strcmp(at->file, "a.json"), "%s", weft_error_message());
        cr_expect(cases[i].key ? at->key && !strcmp(at->key, cases[i].key) : !at->key, "%s",
                  weft_error_message());
        cr_expect(strstr(weft_error_text(), cases[i].remedy), "%s", weft_error_message());
    }
}

/* Fields that files carry over from another class do nothing. */
Test(scheduler, carried_fields)
{
    weft_scheduler s;
    cr_assert_eq(
        read("{\"_class_name\": \"DPMSolverMultistepScheduler\", \"_diffusers_version\": \"1\", "
             "\"skip_prk_steps\": true, \"clip_sample\": false, \"set_alpha_to_one\": false, "
             "\"solver_type\": \"bh2\", \"invert_sigmas\": false, \"shift_terminal\": null}",
             &s),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(s.solver.form, WEFT_SOLVER_MIDPOINT);
    cr_assert_eq(s.kind->sampler, &weft_sampler_dpmpp);
}

Test(scheduler, karras_and_exponential)
{
    weft_scheduler s;
    cr_assert_eq(weft_scheduler_of("EDMEulerScheduler", "", &s), WEFT_OK);
    weft_solver_step *leg = lay(&s, 18, NAN);
    for (int i = 0; i < 18; i++) {
        const double want =
            pow(pow(80, 1 / 7.) + i / 17. * (pow(0.002, 1 / 7.) - pow(80, 1 / 7.)), 7);
        cr_assert_float_eq(leg[i].from.sigma / want, 1, 1e-12);
        cr_assert_float_eq(leg[i].from.time, 0.25 * log(want), 1e-12);
        cr_assert_float_eq(leg[i].from.in * leg[i].from.in * (want * want + 0.25), 1, 1e-12);
    }
    cr_assert(leg[17].to.sigma == 0 && leg[17].last && !leg[16].last);
    free(leg);
    s.karras = false;
    leg = lay(&s, 5, NAN);
    for (int i = 1; i < 4; i++)
        cr_assert_float_eq(leg[i].from.sigma / leg[i - 1].from.sigma,
                           leg[i + 1].from.sigma / leg[i].from.sigma, 1e-12);
    free(leg);
}

/* The quantiles of Beta(0.6, 0.6) are symmetrical; 0.2063 is its lower quartile. */
Test(scheduler, beta_spacing)
{
    weft_scheduler s;
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &s), WEFT_OK);
    s.beta = true;
    weft_solver_step *leg = lay(&s, 5, NAN);
    const double low = leg[4].from.sigma, high = leg[0].from.sigma, range = high - low;
    cr_assert_float_eq(leg[2].from.sigma, (low + high) / 2, 1e-9);
    cr_assert_float_eq(leg[1].from.sigma + leg[3].from.sigma, low + high, 1e-9);
    /* the share below x is the integral of t^-0.4 (1 - t)^-0.4; with t = y^(1/0.6) its end is
     * smooth */
    const double x = (leg[3].from.sigma - low) / range, end = pow(x, 0.6);
    double sum = 0;
    for (int i = 0; i < 20000; i++)
        sum += pow(1 - pow((i + 0.5) / 20000 * end, 1 / 0.6), -0.4) * end / 20000 / 0.6;
    cr_assert_float_eq(sum * tgamma(1.2) / (tgamma(0.6) * tgamma(0.6)), 0.25, 1e-6);
    free(leg);
}

/* Nothing of the data is left at the last time: exactly 0, and the way down is whole. */
Test(scheduler, zero_snr_is_zero)
{
    static const char *const classes[] = {"DDIMScheduler", "CogVideoXDDIMScheduler",
                                          "CogVideoXDPMScheduler", "DDPMScheduler"};
    for (int c = 0; c < WEFT_COUNT(classes); c++) {
        weft_scheduler s;
        cr_assert_eq(weft_scheduler_of(classes[c], "", &s), WEFT_OK);
        s.betas.zero_snr = true;
        s.prediction = WEFT_PREDICT_V;
        s.spacing = WEFT_SPACING_TRAILING;
        weft_solver_step *leg = lay(&s, 8, NAN);
        cr_expect(leg[0].from.alpha == 0 && leg[0].from.sigma == 1, "%s", classes[c]);
        cr_expect(leg[0].from.time == 999 && leg[7].to.alpha == 1 && leg[7].to.sigma == 0);
        for (int i = 1; i < 8; i++)
            cr_expect(leg[i].from.alpha > leg[i - 1].from.alpha);
        free(leg);
    }
}

/* alpha_bar over cos^2: the product of ratios is the ratio of its ends, where no beta is cut. */
Test(scheduler, cosine_betas)
{
    double bar[1000];
    const weft_betas_config c = {1000, 0, 0, WEFT_BETAS_COSINE, false, false, 1, 0};
    weft_betas_table(&c, bar, NULL);
    for (int t = 0; t < 990; t += 30) {
        const double at = cos(((t + 1) / 1000. + 0.008) / 1.008 * M_PI / 2),
                     begin = cos(0.008 / 1.008 * M_PI / 2);
        cr_assert_float_eq(bar[t] * begin * begin / (at * at), 1, 2e-5);
    }
}

/* SNR is divided by the scale: alpha_bar' / (1 - alpha_bar') = alpha_bar / (1 - alpha_bar) /
 * scale. */
Test(scheduler, snr_shift)
{
    double plain[1000], shifted[1000];
    weft_betas_config c = {1000, 0.00085, 0.012, WEFT_BETAS_SCALED_LINEAR, false, true, 1, 0};
    weft_betas_table(&c, plain, NULL);
    c.snr_scale = 3;
    weft_betas_table(&c, shifted, NULL);
    for (int t = 0; t < 1000; t += 37)
        cr_assert_float_eq(shifted[t] / (1 - shifted[t]) * 3 / (plain[t] / (1 - plain[t])), 1,
                           1e-9);
}

Test(scheduler, spacing_of_times)
{
    static const int64_t expected[3][4] = {
        {999, 666, 333, 0}, {751, 501, 251, 1}, {999, 749, 499, 249}};
    for (int spacing = 0; spacing < 3; spacing++) {
        weft_scheduler s;
        cr_assert_eq(weft_scheduler_of("DDIMScheduler", "", &s), WEFT_OK);
        s.spacing = spacing;
        s.offset = 1;
        weft_solver_step *leg = lay(&s, 4, NAN);
        for (int i = 0; i < 4; i++)
            cr_expect_eq((int64_t)leg[i].from.time, expected[spacing][i], "%d %d: %g", spacing, i,
                         leg[i].from.time);
        free(leg);
    }
}

/* Multistep classes tell the model whole times, cut: 999 for the first level however it rounds. */
Test(scheduler, times_of_flow_levels_are_cut)
{
    static const char *const classes[] = {"UniPCMultistepScheduler", "DPMSolverMultistepScheduler"};
    for (int c = 0; c < 2; c++)
        for (int64_t steps = 1; steps <= 60; steps++) {
            weft_scheduler s;
            cr_assert_eq(weft_scheduler_of(classes[c], "", &s), WEFT_OK);
            s.path = WEFT_PATH_FLOW;
            s.prediction = WEFT_PREDICT_FLOW;
            s.flow = true;
            weft_solver_step *leg = lay(&s, steps, NAN);
            cr_expect_eq(leg[0].from.time, 999, "%s, %" PRId64 " steps: %g", classes[c], steps,
                         leg[0].from.time);
            for (int64_t i = 0; i < steps; i++)
                cr_expect(leg[i].from.time == floor(leg[i].from.time) &&
                          leg[i].from.alpha + leg[i].from.sigma == 1);
            free(leg);
        }
}

/* A shift that goes by resolution: mu at both ends of its line, and e^mu as the shift. */
Test(scheduler, shift_by_resolution)
{
    weft_scheduler s, fixed;
    weft_solver_step leg[4];
    cr_assert_eq(
        read("{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"use_dynamic_shifting\": "
             "true, \"base_shift\": 0.95, \"max_shift\": 2.05, \"base_image_seq_len\": 1024}",
             &s),
        WEFT_OK);
    cr_assert_float_eq(weft_scheduler_mu(&s, 1024), 0.95, 1e-12);
    cr_assert_float_eq(weft_scheduler_mu(&s, 4096), 2.05, 1e-12);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){4, NULL, NAN}, leg),
                 WEFT_E_ARG);
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &fixed), WEFT_OK);
    cr_assert(isnan(weft_scheduler_mu(&fixed, 1024)));
    fixed.shift = exp(1.5);
    for (double sigma = 0.05; sigma < 1; sigma += 0.1)
        cr_assert_float_eq(weft_scheduler_shift(&s, 1.5, sigma),
                           weft_scheduler_shift(&fixed, 0, sigma), 1e-12);
}

/* What is stretched ends at the terminal level; what is inverted is told the data's share. */
Test(scheduler, terminal_and_inverted)
{
    weft_scheduler s;
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &s), WEFT_OK);
    s.terminal = 0.1;
    weft_solver_step *leg = lay(&s, 6, NAN);
    cr_assert_float_eq(leg[5].from.sigma, 0.1, 1e-12);
    cr_assert(leg[0].from.sigma == 1 && leg[5].to.sigma == 0);
    free(leg);
    s.terminal = 0;
    s.inverted = true;
    leg = lay(&s, 6, NAN);
    cr_assert(leg[0].from.time == 0 && leg[5].to.time == 1000 && leg[0].from.straight == -1);
    free(leg);
}

Test(scheduler, more_steps_than_times)
{
    weft_scheduler s;
    weft_solver_step leg[60];
    cr_assert_eq(weft_scheduler_of("LCMScheduler", "", &s), WEFT_OK);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){60, NULL, NAN}, leg),
                 WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SAMPLING_INVALID);
    cr_assert_eq(weft_error_fields()->number, 60);
    cr_assert(strstr(weft_error_text(), " 50 "));
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){0, NULL, NAN}, leg),
                 WEFT_E_ARG);
}
