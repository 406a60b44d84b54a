#include "diffusion/scheduler.h"

#include "base/config.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/scheduler_space.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_status_code read_text(const char *text, weft_scheduler *s)
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

/* Each error names the file, the field and a valid value. */
Test(scheduler, refuses_by_name)
{
    static const struct {
        const char *json;
        weft_message_class kind;
        const char *key, *remedy;
    } cases[] = {
        {"{\"_class_name\": \"KDPM2DiscreteScheduler\"}", WEFT_MSG_SCHEDULER_UNSUPPORTED,
         "_class_name", "DDIMScheduler"},
        {"{\"_class_name\": \"PNDMScheduler\", \"prediction_type\": \"sample\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "prediction_type", "v_prediction"},
        {"{\"_class_name\": \"PNDMScheduler\", \"skip_prk_step\": true}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "skip_prk_step", "skip_prk_steps"},
        {"{\"_class_name\": \"PNDMScheduler\", \"rescale_betas_zero_snr\": true}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "rescale_betas_zero_snr", ""},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"timestep_type\": \"even\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "timestep_type", "continuous"},
        {"{\"_class_name\": \"EulerDiscreteScheduler\", \"sigma_min\": 2, \"sigma_max\": 1}",
         WEFT_MSG_MODEL_CONFIG, "sigma_max", "sigma_min"},
        {"{\"_class_name\": \"EulerAncestralDiscreteScheduler\", \"prediction_type\": \"sample\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "prediction_type", "epsilon"},
        {"{\"_class_name\": \"EulerAncestralDiscreteScheduler\", \"use_karras_sigmas\": true}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "use_karras_sigmas", ""},
        {"{\"_class_name\": \"LMSDiscreteScheduler\", \"use_karras_sigmas\": true, "
         "\"use_beta_sigmas\": true}",
         WEFT_MSG_MODEL_CONFIG, NULL, "use_beta_sigmas"},
        {"{\"_class_name\": \"DPMSolverSinglestepScheduler\", \"timestep_spacing\": \"trailing\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "timestep_spacing", ""},
        {"{\"_class_name\": \"DPMSolverSinglestepScheduler\", \"algorithm_type\": "
         "\"sde-dpmsolver\", \"final_sigmas_type\": \"sigma_min\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "algorithm_type", "DPMSolverSinglestepScheduler"},
        {"{\"_class_name\": \"DPMSolverSinglestepScheduler\", \"solver_order\": 4}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "solver_order", "1 to 3"},
        {"{\"_class_name\": \"DPMSolverSinglestepScheduler\", \"use_dynamic_shifting\": true, "
         "\"time_shift_type\": \"linear\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "time_shift_type", "exponential"},
        {"{\"_class_name\": \"FlowMatchLCMScheduler\", \"scale_factors\": [0.5]}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "scale_factors", "null"},
        {"{\"_class_name\": \"FlowMatchLCMScheduler\", \"invert_sigmas\": true}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "invert_sigmas", "FlowMatchLCMScheduler"},
        {"{}", WEFT_MSG_JSON_VALUE, "_class_name", ""},
        {"{\"_class_name\": \"UniPCMultistepScheduler\", \"flow_shft\": 3}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "flow_shft", "flow_shift"},
        {"{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"flow_shift\": 3}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "flow_shift", "\"shift"},
        {"{\"_class_name\": \"DDIMScheduler\", \"beta_schedule\": \"cosine\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "beta_schedule", "squaredcos_cap_v2"},
        {"{\"_class_name\": \"DDIMScheduler\", \"trained_betas\": [0.1]}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "trained_betas", "num_train_timesteps"},
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
         WEFT_MSG_MODEL_CONFIG, NULL, "use_beta_sigmas"},
        {"{\"_class_name\": \"EDMEulerScheduler\", \"prediction_type\": \"sample\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "prediction_type", "v_prediction"},
        {"{\"_class_name\": \"DDIMScheduler\", \"rescale_betas_zero_snr\": true, "
         "\"timestep_spacing\": "
         "\"trailing\"}",
         WEFT_MSG_SCHEDULER_UNSUPPORTED, "rescale_betas_zero_snr", "v_prediction"},
        {"{\"_class_name\": \"DDIMScheduler\", \"clip_sample\": 1}", WEFT_MSG_JSON_VALUE,
         "clip_sample", ""},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        weft_scheduler s;
        cr_expect_neq(read_text(cases[i].json, &s), WEFT_OK, "%s", cases[i].json);
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
        read_text(
            "{\"_class_name\": \"DPMSolverMultistepScheduler\", \"_diffusers_version\": \"1\", "
            "\"skip_prk_steps\": true, \"clip_sample\": false, \"set_alpha_to_one\": false, "
            "\"solver_type\": \"bh2\", \"invert_sigmas\": false, \"shift_terminal\": null}",
            &s),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(s.solver.form, WEFT_SOLVER_MIDPOINT);
    cr_assert_eq(s.kind->sampler, &weft_sampler_dpmpp);
}

/* Files keep the fields of the class that a user changed from. With that class's default they do
 * nothing; another value would, so it is refused. */
Test(scheduler, defaults_of_other_classes)
{
    weft_scheduler s;
    cr_assert_eq(
        read_text(
            "{\"_class_name\": \"EulerDiscreteScheduler\", \"sample_max_value\": 1.0, "
            "\"clip_sample\": false, \"interpolation_type\": \"linear\", \"solver_order\": 2, "
            "\"solver_type\": \"midpoint\", \"algorithm_type\": \"dpmsolver++\", "
            "\"lower_order_final\": true, \"predict_x0\": true, \"skip_prk_steps\": true, "
            "\"set_alpha_to_one\": false, \"timestep_scaling\": 10, \"sigma_data\": 0.5}",
            &s),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_neq(
        read_text("{\"_class_name\": \"EulerDiscreteScheduler\", \"solver_order\": 3}", &s),
        WEFT_OK);
    cr_assert_str_eq(weft_error_fields()->key, "solver_order");
}

/* A class that weft does not have is read as the class of the sampler, on the same path. */
Test(scheduler, loads_an_unknown_class_for_a_sampler)
{
    static const struct {
        const char *json, *sampler, *class_name;
    } cases[] = {
        {"{\"_class_name\": \"KDPM2DiscreteScheduler\", \"beta_end\": 0.012, \"odd\": 3}", "unipc",
         "UniPCMultistepScheduler"},
        {"{\"_class_name\": \"KDPM2DiscreteScheduler\", \"beta_end\": 0.012}", "res_2ab",
         "DDIMScheduler"},
        {"{\"_class_name\": \"FlowMatchXScheduler\", \"shift\": 3}", "unipc",
         "FlowMatchEulerDiscreteScheduler"},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        weft_scheduler s;
        char path[] = "/tmp/weft-scheduler-XXXXXX";
        const int fd = mkstemp(path);
        cr_assert(fd >= 0 && write(fd, cases[i].json, strlen(cases[i].json)) > 0);
        close(fd);
        cr_expect_neq(weft_scheduler_load(path, &s), WEFT_OK);
        cr_assert_eq(weft_scheduler_load_for(path, weft_sampler_find(cases[i].sampler), &s),
                     WEFT_OK, "%s", weft_error_message());
        cr_expect_str_eq(s.kind->name, cases[i].class_name);
        cr_expect(strstr(cases[i].json, "shift") ? s.shift == 3 : s.betas.end == 0.012);
        unlink(path);
    }
}

/* Given times and levels: in order, in range, and only where the reference takes them. */
Test(scheduler, refuses_given_schedules)
{
    static const struct {
        const char *class_name, *key;
        double value[3];
    } cases[] = {
        {"DDPMScheduler", "timesteps", {1000, 500, 0}},
        {"DDPMScheduler", "timesteps", {999, 500.5, 0}},
        {"DDPMScheduler", "timesteps", {500, 500, 0}},
        {"EulerDiscreteScheduler", "timesteps", {999.5, 500, 0}},
        {"FlowMatchEulerDiscreteScheduler", "timesteps", {1000, 500, 0}},
        {"DDIMScheduler", "timesteps", {999, 500, 0}},
        {"LMSDiscreteScheduler", "timesteps", {999, 500, 0}},
        {"FlowMatchEulerDiscreteScheduler", "sigmas", {1, 0.5, 0}},
        {"FlowMatchEulerDiscreteScheduler", "sigmas", {1, 0.5, 0.7}},
        {"EulerDiscreteScheduler", "sigmas", {14, 20, 1}},
        {"LMSDiscreteScheduler", NULL, {14, 5, 1}},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        weft_scheduler s;
        weft_solver_step leg[3];
        const bool sigmas = !cases[i].key || !strcmp(cases[i].key, "sigmas");
        const weft_timestep_request request = {.steps = 3,
                                               .mu = NAN,
                                               .end = NAN,
                                               .sigma = sigmas ? cases[i].value : NULL,
                                               .time = sigmas ? NULL : cases[i].value};
        cr_assert_eq(weft_scheduler_of(cases[i].class_name, "", &s), WEFT_OK);
        cr_expect_eq(weft_scheduler_set_timesteps(&s, &request, leg), WEFT_E_ARG, "case %d", i);
        cr_expect_eq(weft_error_class(), WEFT_MSG_SAMPLING_INVALID);
        const char *key = weft_error_fields()->key;
        cr_expect(cases[i].key ? key && !strcmp(key, cases[i].key) : !key, "case %d: %s", i,
                  weft_error_message());
    }
}

/* A file that spaces its levels itself cannot take times; levels replace the spacing. */
Test(scheduler, given_times_and_spacing)
{
    static const double times[] = {999, 500, 3}, sigmas[] = {12, 3, 1};
    weft_scheduler s;
    weft_solver_step leg[3];
    cr_assert_eq(weft_scheduler_of("EulerDiscreteScheduler", "", &s), WEFT_OK);
    s.karras = true;
    const weft_timestep_request timed = {.steps = 3, .mu = NAN, .end = NAN, .time = times},
                                leveled = {.steps = 3, .mu = NAN, .end = 0.5, .sigma = sigmas};
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &timed, leg), WEFT_E_ARG);
    cr_assert(strstr(weft_error_text(), "use_karras_sigmas"));
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &leveled, leg), WEFT_OK);
    cr_assert(leg[0].from.sigma == 12 && leg[1].to.sigma == 1 && leg[2].to.sigma == 0.5);
}

/* Runge-Kutta steps need a fourth step to begin Adams-Bashforth's; a repeated step does not. */
Test(scheduler, steps_of_pndm)
{
    weft_scheduler s;
    weft_solver_step leg[3];
    cr_assert_eq(weft_scheduler_of("PNDMScheduler", "", &s), WEFT_OK);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){3, NULL, NAN}, leg),
                 WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SAMPLING_INVALID);
    cr_assert(strstr(weft_error_text(), "skip_prk_steps"));
    s.solver.skips_prk = true;
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){3, NULL, NAN}, leg),
                 WEFT_OK);
    cr_assert_eq(leg[0].again.time, leg[1].from.time + 333);
}

/* The initial noise has the deviation of the first level, or of a level with data below it. */
Test(scheduler, first_noise_of_unscaled_data)
{
    weft_scheduler s;
    weft_solver_step leg[5];
    for (int spacing = 0; spacing < 3; spacing++) {
        cr_assert_eq(weft_scheduler_of("EulerDiscreteScheduler", "", &s), WEFT_OK);
        s.spacing = spacing;
        cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){5, NULL, NAN}, leg),
                     WEFT_OK);
        const double sigma = leg[0].from.sigma;
        cr_expect_eq(weft_scheduler_first(&s, leg),
                     spacing == WEFT_SPACING_LEADING ? sqrt(sigma * sigma + 1) : sigma);
        cr_expect_float_eq(leg[0].from.in * sqrt(sigma * sigma + 1), 1, 1e-12);
    }
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

/* The share of the data at the last timestep is exactly 0, and the trajectory is complete. */
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

/* Multistep classes give the model integer timesteps, truncated: 999 for the first noise level. */
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
    static const int64_t none[3] = {0};
    weft_scheduler s, fixed;
    weft_solver_step leg[4];
    cr_assert_eq(
        read_text(
            "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"use_dynamic_shifting\": "
            "true, \"base_shift\": 0.95, \"max_shift\": 2.05, \"base_image_seq_len\": 1024}",
            &s),
        WEFT_OK);
    cr_assert_float_eq(weft_scheduler_mu(&s, 1024, none), 0.95, 1e-12);
    cr_assert_float_eq(weft_scheduler_mu(&s, 4096, none), 2.05, 1e-12);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){4, NULL, NAN}, leg),
                 WEFT_E_ARG);
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &fixed), WEFT_OK);
    cr_assert(isnan(weft_scheduler_mu(&fixed, 1024, none)));
    fixed.shift = exp(1.5);
    for (double sigma = 0.05; sigma < 1; sigma += 0.1)
        cr_assert_float_eq(weft_scheduler_shift(&s, 1.5, sigma),
                           weft_scheduler_shift(&fixed, 0, sigma), 1e-12);
}

/* A stretched schedule ends at the terminal noise level. With an inverted schedule, the model takes
 * the share of the data as timestep. */
Test(scheduler, terminal_and_inverted)
{
    weft_scheduler s;
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &s), WEFT_OK);
    s.terminal = 0.1;
    weft_solver_step *leg = lay(&s, 6, NAN);
    cr_assert_float_eq(leg[5].from.sigma, 0.1, 1e-12);
    cr_assert(leg[0].from.sigma == 1 && leg[5].to.sigma == 0);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){1, NULL, NAN}, leg),
                 WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SAMPLING_INVALID);
    cr_assert_str_eq(weft_error_fields()->key, "shift_terminal");
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
