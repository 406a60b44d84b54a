/* Noise levels of variance-preserving paths with a table of discrete times, and of the multistep
 * classes, which also support straight paths. */
#include "diffusion/scheduler_vp.h"

#include "base/memory.h"
#include "diffusion/sampler_singlestep.h"
#include "diffusion/scheduler_levels.h"
#include "diffusion/scheduler_space.h"
#include "diffusion/scheduler_table.h"

#include <math.h>

enum { PRK_STEPS = 3 }; /* steps of PNDM that begin with Runge-Kutta */

static weft_status refuse_prediction(const weft_scheduler *s, const char *where)
{
    return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                      WEFT_AT(.file = where, .key = "prediction_type",
                              .value = weft_prediction_names[s->prediction]),
                      "%s needs a straight path: \"use_flow_sigmas\": true",
                      weft_prediction_names[s->prediction]);
}

weft_status weft_check_discrete(const weft_scheduler *s, const char *where)
{
    /* classes whose first time is the last one of the table */
    const bool from_noise = s->spacing != WEFT_SPACING_LEADING || s->kind->lay == weft_lay_lcm;
    if (s->prediction == WEFT_PREDICT_FLOW)
        return refuse_prediction(s, where);
    if (s->prediction == WEFT_PREDICT_NOISE && s->betas.zero_snr && from_noise)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "rescale_betas_zero_snr"),
                          "the first timestep is pure noise, from which \"prediction_type\": "
                          "\"epsilon\" cannot recover the data; use v_prediction");
    if (s->lcm_times < 1 || s->lcm_times > s->times)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT(.file = where, .key = "original_inference_steps", WEFT_NUMBER(s->lcm_times)),
            "%" PRId64 " is not from 1 to %" PRId64, s->lcm_times, s->times);
    return WEFT_OK;
}

weft_status weft_check_multistep(const weft_scheduler *s, const char *where)
{
    const bool dpm = weft_scheduler_is_dpm(s);
    if (s->prediction == WEFT_PREDICT_FLOW && !s->flow)
        return refuse_prediction(s, where);
    if (s->prediction == WEFT_PREDICT_FLOW && s->solver.of_noise)
        return weft_error(
            WEFT_MSG_SCHEDULER_UNSUPPORTED,
            WEFT_AT(.file = where, .key = "prediction_type", .value = "flow_prediction"),
            "flow_prediction needs a solver that predicts data: \"predict_x0\": true or "
            "\"algorithm_type\": \"dpmsolver++\"");
    if (s->flow && (s->exponential || s->beta || s->lu || (s->karras && dpm)))
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = s->karras ? "use_karras_sigmas"
                                                        : s->beta ? "use_beta_sigmas"
                                                        : s->lu   ? "use_lu_lambdas"
                                                                  : "use_exponential_sigmas"),
                          "true cannot be combined with \"use_flow_sigmas\"");
    if (s->terminal != 0 && !(s->flow && s->terminal > 0 && s->terminal < 1))
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "shift_terminal", WEFT_NUMBER(s->terminal)),
                          "%g is not between 0 and 1, or \"use_flow_sigmas\" is not true",
                          s->terminal);
    if (dpm && s->solver.order > 3)
        return weft_error(
            WEFT_MSG_SCHEDULER_UNSUPPORTED,
            WEFT_AT(.file = where, .key = "solver_order", WEFT_NUMBER(s->solver.order)),
            "%" PRId64 " is not from 1 to 3", s->solver.order);
    if (dpm && s->solver.of_noise && s->solver.stochastic && s->solver.order > 2)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "algorithm_type", .value = "sde-dpmsolver"),
                          "sde-dpmsolver supports \"solver_order\" up to 2, not %" PRId64,
                          s->solver.order);
    if (s->solver.of_noise && s->solver.ends_at_zero)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "final_sigmas_type", .value = "zero"),
                          "a solver that predicts noise cannot reach zero; write \"sigma_min\"");
    return WEFT_OK;
}

weft_status weft_check_singlestep(const weft_scheduler *s, const char *where)
{
    WEFT_TRY(weft_check_multistep(s, where));
    if (s->by_resolution && s->shift_is_mu)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "time_shift_type", .value = "linear"),
                          "%s only has \"exponential\"", s->kind->name);
    if (s->solver.of_noise && s->solver.clip == WEFT_SAMPLE_CLAMP_QUANTILE)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "thresholding", .value = "true"),
                          "needs a solver that predicts data: \"algorithm_type\": "
                          "\"dpmsolver++\"");
    return WEFT_OK;
}

weft_status weft_check_pndm(const weft_scheduler *s, const char *where)
{
    if (s->prediction != WEFT_PREDICT_NOISE && s->prediction != WEFT_PREDICT_V)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "prediction_type",
                                  .value = weft_prediction_names[s->prediction]),
                          "%s has no prediction \"%s\"; known: epsilon, v_prediction",
                          s->kind->name, weft_prediction_names[s->prediction]);
    return WEFT_OK;
}

static weft_noise_level level_of(const weft_scheduler *s, double bar, double time)
{
    return weft_noise_level_vp(s, sqrt(bar), sqrt(1 - bar), time);
}

static weft_noise_level table_level(const weft_scheduler *s, const double *bar, int64_t time)
{
    return level_of(s, bar[time], (double)time);
}

/* Lays out steps that end a whole number of times lower, independent of the next step's start. */
weft_status weft_lay_discrete(const weft_scheduler *s, const weft_timestep_request *w,
                              weft_solver_step *step)
{
    double *bar;
    WEFT_TRY(weft_noise_table_check(s, w, s->times));
    WEFT_TRY(weft_noise_table_new(s, &bar));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < w->steps; i++) {
        const int64_t from = weft_noise_table_time(s, s->times, w->steps, i, false);
        const int64_t to = from - s->times / w->steps;
        if (from < 0 || from >= s->times)
            WEFT_GO(weft_noise_table_beyond(s, from));
        step[i] = (weft_solver_step){.from = table_level(s, bar, from), .last = to < 0};
        step[i].to =
            to >= 0 ? table_level(s, bar, to) : level_of(s, s->ends_at_one ? 1 : bar[0], 0);
        step[i].mid = weft_noise_table_middle(s, bar, &step[i].from, &step[i].to);
    }
out:
    weft_free(bar);
    return status;
}

/* Sets the levels inside the steps, whose times PNDM computes from the distance of two steps. */
static weft_status add_inner_levels(const weft_scheduler *s, const double *bar, int64_t steps,
                                    weft_solver_step *step)
{
    const int64_t gap = s->times / steps, half = gap / 2;
    for (int64_t i = 0; i + 1 < steps; i++) {
        const int64_t from = (int64_t)step[i].from.time, to = (int64_t)step[i + 1].from.time,
                      jump = from - (s->solver.skips_prk ? gap : half);
        if (to + gap >= s->times)
            return weft_noise_table_beyond(s, to + gap);
        step[i].jump = table_level(s, bar, jump > 0 ? jump : 0);
        step[i].half = table_level(s, bar, to + half);
        step[i].again = table_level(s, bar, to + gap);
        if (i < (s->solver.skips_prk ? 1 : PRK_STEPS))
            step[i].to = step[i + 1].from;
    }
    return WEFT_OK;
}

weft_status weft_lay_pndm(const weft_scheduler *s, const weft_timestep_request *w,
                          weft_solver_step *step)
{
    double *bar;
    if (!s->solver.skips_prk && w->steps <= PRK_STEPS)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(WEFT_NUMBER(w->steps)),
                          "%" PRId64 " steps are too few for the first three steps of %s; use at "
                          "least 4, or \"skip_prk_steps\": true",
                          w->steps, s->kind->name);
    WEFT_TRY(weft_lay_discrete(s, w, step));
    WEFT_TRY(weft_noise_table_new(s, &bar));
    const weft_status_code status = add_inner_levels(s, bar, w->steps, step);
    weft_free(bar);
    return status;
}

static weft_status chained(const weft_scheduler *s, const weft_timestep_request *w,
                           const double *bar, bool stays,
                           int64_t (*at)(const weft_scheduler *, int64_t, int64_t),
                           weft_solver_step *step)
{
    for (int64_t i = 0; i < w->steps; i++) {
        const int64_t from = w->time ? (int64_t)w->time[i] : at(s, w->steps, i);
        if (from < 0 || from >= s->times)
            return weft_noise_table_beyond(s, from);
        step[i] = (weft_solver_step){.from = table_level(s, bar, from), .last = i == w->steps - 1};
        if (i > 0)
            step[i - 1].to = step[i].from;
        step[i].to = stays ? step[i].from : level_of(s, 1, 0);
    }
    for (int64_t i = 0; i < w->steps; i++)
        step[i].mid = weft_noise_table_middle(s, bar, &step[i].from, &step[i].to);
    return WEFT_OK;
}

static int64_t plain_time(const weft_scheduler *s, int64_t steps, int64_t i)
{
    return weft_noise_table_time(s, s->times, steps, i, false);
}

/* Lays out steps that end at the start of the next step, and the last one at data. */
weft_status weft_lay_chained(const weft_scheduler *s, const weft_timestep_request *w,
                             weft_solver_step *step)
{
    double *bar;
    WEFT_TRY(weft_noise_table_check(s, w, s->times));
    WEFT_TRY(weft_noise_table_new(s, &bar));
    const weft_status_code status = chained(s, w, bar, false, plain_time, step);
    weft_free(bar);
    return status;
}

/* Returns the i-th of `steps` times out of the times of the distillation, from the highest. */
static int64_t lcm_time(const weft_scheduler *s, int64_t steps, int64_t i)
{
    const int64_t lcm_index = (int64_t)floor((double)i * ((double)s->lcm_times / (double)steps));
    return (s->lcm_times - lcm_index) * (s->times / s->lcm_times) - 1;
}

weft_status weft_lay_lcm(const weft_scheduler *s, const weft_timestep_request *w,
                         weft_solver_step *step)
{
    double *bar;
    WEFT_TRY(weft_noise_table_check(s, w, s->lcm_times));
    WEFT_TRY(weft_noise_table_new(s, &bar));
    const weft_status_code status = chained(s, w, bar, true, lcm_time, step);
    weft_free(bar);
    return status;
}

/* ---- multistep ------------------------------------------------------------------------------ */

static weft_noise_level multistep_level(const weft_scheduler *s, double sigma, double time)
{
    if (s->flow)
        return weft_noise_level_flow(s, sigma, time);
    const double alpha = 1 / sqrt(sigma * sigma + 1);
    return weft_noise_level_vp(s, alpha, sigma * alpha, time);
}

/* Fills sigma and time[steps] of the straight path. UniPC and DPM-Solver start at slightly
 * different levels. */
static weft_status straight(const weft_scheduler *s, const weft_timestep_request *w, double *sigma,
                            double *time)
{
    const double least = 1 / (double)s->times, fall = least - 1, hair = 1e-6;
    const int64_t n = w->steps;
    const bool dpm = weft_scheduler_is_dpm(s);
    for (int64_t i = 0; i < n; i++) { /* even steps from 1 to exactly the smallest level */
        const int64_t k = dpm ? n - i : i;
        const double even = k == n ? least : (double)k * (fall / (double)n) + 1;
        sigma[i] = weft_scheduler_shift(s, w->mu, w->sigma ? w->sigma[i] : dpm ? 1 - even : even);
    }
    if (s->terminal > 0)
        WEFT_TRY(weft_stretch_sigmas(s, n, sigma));
    if (!dpm && fabs(sigma[0] - 1) < hair)
        sigma[0] -= hair;
    for (int64_t i = 0; i < n; i++)
        time[i] = sigma[i] * (double)s->times;
    return WEFT_OK;
}

/* Returns the number of discrete times whose lambda is at least the scheduler's minimum. */
static int64_t usable_times(const weft_scheduler *s, const double *bar)
{
    int64_t times = s->times;
    while (times > 1 && -log(weft_noise_table_ratio(bar, times - 1)) < s->least_lambda)
        times--;
    return times;
}

static weft_status spaced(const weft_scheduler *s, const weft_timestep_request *w,
                          const double *bar, double *sigma, double *time)
{
    const bool dpm = weft_scheduler_is_dpm(s),
               single = s->kind->sampler == &weft_sampler_dpm_singlestep;
    const int64_t n = w->steps, times = dpm ? usable_times(s, bar) : s->times;
    double high = isnan(s->sigma_max) ? weft_noise_table_ratio(bar, s->times - 1) : s->sigma_max;
    double low = isnan(s->sigma_min) ? weft_noise_table_ratio(bar, 0) : s->sigma_min;
    if (s->lu) { /* even steps of the logarithm, in f32 */
        high = exp(weft_noise_table_log_ratio(bar, s->times - 1));
        low = exp(weft_noise_table_log_ratio(bar, 0));
    }
    const bool rounded =
        dpm && !single ? (s->karras || s->lu) && s->betas.schedule != WEFT_BETAS_COSINE : s->karras;
    if (weft_space(s, high, low, n, sigma)) {
        for (int64_t i = 0; i < n; i++) {
            time[i] = weft_noise_table_time_of(bar, s->times, sigma[i]);
            time[i] = rounded ? rint(time[i]) : time[i];
        }
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = w->time ? (int64_t)w->time[i]
                                   : weft_noise_table_time(s, times, n, i, true),
                      most = s->times - 1;
        time[i] = (double)at;
        if (at < 0)
            return weft_error(WEFT_MSG_SAMPLING_INVALID,
                              WEFT_AT(.key = "lambda_min_clipped", WEFT_NUMBER(s->least_lambda)),
                              "%g leaves %" PRId64 " timesteps, too few for %" PRId64 " steps with "
                              "\"timestep_spacing\": \"trailing\"; write \"linspace\"",
                              s->least_lambda, times, n);
        sigma[i] = weft_noise_table_ratio(bar, at > most ? most : at);
    }
    return WEFT_OK;
}

static weft_status lay(const weft_scheduler *s, const weft_timestep_request *w, const double *bar,
                       double *sigma, double *time, weft_solver_step *step)
{
    const int64_t n = w->steps;
    const bool dpm = weft_scheduler_is_dpm(s);
    if (s->flow && s->karras) {
        const double high =
            isnan(s->sigma_max) ? weft_noise_table_ratio(bar, s->times - 1) : s->sigma_max;
        const double low = isnan(s->sigma_min) ? weft_noise_table_ratio(bar, 0) : s->sigma_min;
        weft_space(s, high, low, n, sigma);
        for (int64_t i = 0; i < n; i++) {
            sigma[i] = sigma[i] / (sigma[i] + 1);
            time[i] = sigma[i] * (double)s->times;
        }
    } else if (s->flow) {
        WEFT_TRY(straight(s, w, sigma, time));
    } else {
        WEFT_TRY(spaced(s, w, bar, sigma, time));
    }
    const bool own = !dpm && (s->flow || s->karras || s->exponential || s->beta);
    sigma[n] = s->solver.ends_at_zero ? 0 : own ? sigma[n - 1] : weft_noise_table_ratio(bar, 0);
    /* the reference rounds levels to f32 and times down to integers */
    for (int64_t i = 0; i <= n; i++)
        sigma[i] = (double)(float)sigma[i];
    for (int64_t i = 0; i < n; i++) {
        const weft_noise_level from = multistep_level(s, sigma[i], trunc(time[i]));
        const weft_noise_level to =
            multistep_level(s, sigma[i + 1], i + 1 < n ? trunc(time[i + 1]) : 0);
        step[i] = (weft_solver_step){
            from, s->flow ? from : weft_noise_table_middle(s, bar, &from, &to), to, i == n - 1};
        if (s->flow) {
            const double ratio = sqrt(from.sigma / from.alpha * (to.sigma / to.alpha));
            const double at = ratio / (1 + ratio);
            step[i].mid = multistep_level(s, at, at * (double)s->times);
        }
    }
    return WEFT_OK;
}

weft_status weft_lay_multistep(const weft_scheduler *s, const weft_timestep_request *w,
                               weft_solver_step *step)
{
    double *bar = NULL, *sigma;
    WEFT_TRY(WEFT_NEW(sigma, 2 * w->steps + 1, "%" PRId64 " noise levels", w->steps));
    weft_status_code status = WEFT_OK;
    if (w->sigma && s->flow && s->karras)
        WEFT_GO(weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "sigmas"),
                           "noise levels cannot be given, because the scheduler's file has "
                           "use_karras_sigmas"));
    if (w->sigma && !s->flow)
        WEFT_GO(weft_noise_table_check(s, w, s->times));
    else
        WEFT_GO(weft_noise_table_new(s, &bar));
    WEFT_GO(lay(s, w, bar, sigma, sigma + w->steps + 1, step));
out:
    weft_free(bar);
    weft_free(sigma);
    return status;
}
