/* Noise levels of variance-preserving paths with a table of discrete times, and of the multistep
 * classes, which also support straight paths. */
#include "diffusion/scheduler_vp.h"

#include "base/memory.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/scheduler_space.h"
#include "diffusion/scheduler_walk.h"

#include <math.h>

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
            WEFT_MSG_SCHEDULER_CONFIG,
            WEFT_AT(.file = where, .key = "original_inference_steps", WEFT_NUMBER(s->lcm_times)),
            "%" PRId64 " is not from 1 to %" PRId64, s->lcm_times, s->times);
    return WEFT_OK;
}

weft_status weft_check_multistep(const weft_scheduler *s, const char *where)
{
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
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

static weft_status table_of(const weft_scheduler *s, double **bar)
{
    WEFT_TRY(WEFT_NEW(*bar, s->times, "%" PRId64 " noise levels", s->times));
    weft_betas_table(&s->betas, *bar, NULL);
    return WEFT_OK;
}

/* Returns the i-th of `steps` times out of `times` discrete times, from the highest. The spacing is
 * even between both ends, or in whole steps from the lowest or from the highest time. `more`: the
 * multistep classes divide into one more step and drop the last. */
static int64_t time_at(const weft_scheduler *s, int64_t times, int64_t steps, int64_t i, bool more)
{
    const int64_t parts = steps + more;
    if (s->spacing == WEFT_SPACING_LINSPACE)
        return parts > 1 ? (int64_t)rint((double)(times - 1) *
                                         ((double)(parts - 1 - i) / (double)(parts - 1)))
                         : 0;
    if (s->spacing == WEFT_SPACING_LEADING)
        return (parts - 1 - i) * (times / parts) + s->offset;
    return (int64_t)rint((double)times - (double)i * ((double)s->times / (double)steps)) - 1;
}

static weft_noise_level level_of(const weft_scheduler *s, double bar, double time)
{
    return weft_noise_level_vp(s, sqrt(bar), sqrt(1 - bar), time);
}

static weft_noise_level table_level(const weft_scheduler *s, const double *bar, int64_t time)
{
    return level_of(s, bar[time], (double)time);
}

/* Returns ln(sigma/alpha) of a discrete time. */
static double log_ratio(const double *bar, int64_t time)
{
    const float b = (float)bar[time];
    return (double)(float)log((double)sqrtf((1 - b) / b));
}

/* Returns the time, between discrete times, with the given sigma/alpha. */
static double time_of(const double *bar, int64_t times, double ratio)
{
    const double at = log(fmax(ratio, 1e-10));
    int64_t low = times - 1; /* last lower level; higher ones may precede a floor */
    while (low > 0 && at < log_ratio(bar, low))
        low--;
    low = low < times - 2 ? low : times - 2;
    const double a = log_ratio(bar, low), b = log_ratio(bar, low + 1);
    const double w = fmin(fmax((a - at) / (a - b), 0), 1);
    return (1 - w) * (double)low + w * (double)(low + 1);
}

static weft_noise_level middle(const weft_scheduler *s, const double *bar,
                               const weft_noise_level *a, const weft_noise_level *b)
{
    const double ratio = sqrt(a->sigma / a->alpha * (b->sigma / b->alpha));
    if (!isfinite(ratio) || !(ratio > 0))
        return *b;
    const double alpha = 1 / sqrt(1 + ratio * ratio);
    return weft_noise_level_vp(s, alpha, ratio * alpha, time_of(bar, s->times, ratio));
}

static weft_status too_many(const weft_scheduler *s, const weft_timestep_request *w, int64_t times)
{
    if (w->sigma)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_NOWHERE,
                          "%s takes its noise levels from its table, so none can be given",
                          s->kind->name);
    return w->steps <= times
               ? WEFT_OK
               : weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(WEFT_NUMBER(w->steps)),
                            "%" PRId64 " steps are more than the %" PRId64 " timesteps of %s",
                            w->steps, times, s->kind->name);
}

static weft_status beyond(const weft_scheduler *s, int64_t time)
{
    return weft_error(
        WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "steps_offset", WEFT_NUMBER(s->offset)),
        "%" PRId64 " leads to timestep %" PRId64 "; the model has timesteps up to %lld", s->offset,
        time, (long long)s->times - 1);
}

/* Lays out steps that end a whole number of times lower, independent of the next step's start. */
weft_status weft_lay_discrete(const weft_scheduler *s, const weft_timestep_request *w,
                              weft_solver_step *step)
{
    double *bar;
    WEFT_TRY(too_many(s, w, s->times));
    WEFT_TRY(table_of(s, &bar));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < w->steps && status == WEFT_OK; i++) {
        const int64_t from = time_at(s, s->times, w->steps, i, false);
        const int64_t to = from - s->times / w->steps;
        if (from < 0 || from >= s->times) {
            status = beyond(s, from);
            break;
        }
        step[i].from = table_level(s, bar, from);
        step[i].last = to < 0;
        step[i].to =
            to >= 0 ? table_level(s, bar, to) : level_of(s, s->ends_at_one ? 1 : bar[0], 0);
        step[i].mid = middle(s, bar, &step[i].from, &step[i].to);
    }
    weft_free(bar);
    return status;
}

static weft_status chained(const weft_scheduler *s, const weft_timestep_request *w,
                           const double *bar, bool stays,
                           int64_t (*at)(const weft_scheduler *, int64_t, int64_t),
                           weft_solver_step *step)
{
    for (int64_t i = 0; i < w->steps; i++) {
        const int64_t from = at(s, w->steps, i);
        if (from < 0 || from >= s->times)
            return beyond(s, from);
        step[i].from = table_level(s, bar, from);
        step[i].last = i == w->steps - 1;
        if (i > 0)
            step[i - 1].to = step[i].from;
        step[i].to = stays ? step[i].from : level_of(s, 1, 0);
    }
    for (int64_t i = 0; i < w->steps; i++)
        step[i].mid = middle(s, bar, &step[i].from, &step[i].to);
    return WEFT_OK;
}

static int64_t plain_time(const weft_scheduler *s, int64_t steps, int64_t i)
{
    return time_at(s, s->times, steps, i, false);
}

/* Lays out steps that end at the start of the next step, and the last one at data. */
weft_status weft_lay_chained(const weft_scheduler *s, const weft_timestep_request *w,
                             weft_solver_step *step)
{
    double *bar;
    WEFT_TRY(too_many(s, w, s->times));
    WEFT_TRY(table_of(s, &bar));
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
    WEFT_TRY(too_many(s, w, s->lcm_times));
    WEFT_TRY(table_of(s, &bar));
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
static void straight(const weft_scheduler *s, const weft_timestep_request *w, double *sigma,
                     double *time)
{
    const double least = 1 / (double)s->times, fall = least - 1, hair = 1e-6;
    const int64_t n = w->steps;
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    for (int64_t i = 0; i < n; i++) { /* even steps from 1 to exactly the smallest level */
        const int64_t k = dpm ? n - i : i;
        const double even = k == n ? least : (double)k * (fall / (double)n) + 1;
        sigma[i] = weft_scheduler_shift(s, w->mu, w->sigma ? w->sigma[i] : dpm ? 1 - even : even);
    }
    if (s->terminal > 0)
        weft_stretch_sigmas(s, n, sigma);
    if (!dpm && fabs(sigma[0] - 1) < hair)
        sigma[0] -= hair;
    for (int64_t i = 0; i < n; i++)
        time[i] = sigma[i] * (double)s->times;
}

static double ratio_of(const double *bar, int64_t time)
{
    const float b = (float)bar[time];
    return (double)sqrtf((1 - b) / b);
}

/* Returns the number of discrete times whose lambda is at least the scheduler's minimum. */
static int64_t usable_times(const weft_scheduler *s, const double *bar)
{
    int64_t times = s->times;
    while (times > 1 && -log(ratio_of(bar, times - 1)) < s->least_lambda)
        times--;
    return times;
}

static weft_status spaced(const weft_scheduler *s, const weft_timestep_request *w,
                          const double *bar, double *sigma, double *time)
{
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    const int64_t n = w->steps, times = dpm ? usable_times(s, bar) : s->times;
    double high = isnan(s->sigma_max) ? ratio_of(bar, s->times - 1) : s->sigma_max;
    double low = isnan(s->sigma_min) ? ratio_of(bar, 0) : s->sigma_min;
    if (s->lu) { /* even steps of the logarithm, in f32 */
        high = exp(log_ratio(bar, s->times - 1));
        low = exp(log_ratio(bar, 0));
    }
    const bool rounded =
        dpm ? (s->karras || s->lu) && s->betas.schedule != WEFT_BETAS_COSINE : s->karras;
    if (weft_space(s, high, low, n, sigma)) {
        for (int64_t i = 0; i < n; i++) {
            time[i] = time_of(bar, s->times, sigma[i]);
            time[i] = rounded ? rint(time[i]) : time[i];
        }
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = time_at(s, times, n, i, true), most = s->times - 1;
        time[i] = (double)at;
        if (at < 0)
            return weft_error(WEFT_MSG_SAMPLING_INVALID,
                              WEFT_AT(.key = "lambda_min_clipped", WEFT_NUMBER(s->least_lambda)),
                              "%g leaves %" PRId64 " timesteps, too few for %" PRId64 " steps with "
                              "\"timestep_spacing\": \"trailing\"; write \"linspace\"",
                              s->least_lambda, times, n);
        sigma[i] = ratio_of(bar, at > most ? most : at);
    }
    return WEFT_OK;
}

static weft_status lay(const weft_scheduler *s, const weft_timestep_request *w, const double *bar,
                       double *sigma, double *time, weft_solver_step *step)
{
    const int64_t n = w->steps;
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    if (s->flow && s->karras) {
        const double high = isnan(s->sigma_max) ? ratio_of(bar, s->times - 1) : s->sigma_max;
        const double low = isnan(s->sigma_min) ? ratio_of(bar, 0) : s->sigma_min;
        weft_space(s, high, low, n, sigma);
        for (int64_t i = 0; i < n; i++) {
            sigma[i] = sigma[i] / (sigma[i] + 1);
            time[i] = sigma[i] * (double)s->times;
        }
    } else if (s->flow) {
        straight(s, w, sigma, time);
    } else {
        WEFT_TRY(spaced(s, w, bar, sigma, time));
    }
    const bool own = !dpm && (s->flow || s->karras || s->exponential || s->beta);
    sigma[n] = s->solver.ends_at_zero ? 0 : own ? sigma[n - 1] : ratio_of(bar, 0);
    /* the reference rounds levels to f32 and times down to integers */
    for (int64_t i = 0; i <= n; i++)
        sigma[i] = (double)(float)sigma[i];
    for (int64_t i = 0; i < n; i++) {
        const weft_noise_level from = multistep_level(s, sigma[i], trunc(time[i]));
        const weft_noise_level to =
            multistep_level(s, sigma[i + 1], i + 1 < n ? trunc(time[i + 1]) : 0);
        step[i] =
            (weft_solver_step){from, s->flow ? from : middle(s, bar, &from, &to), to, i == n - 1};
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
    if (w->sigma && !s->flow)
        status = too_many(s, w, s->times);
    else
        status = table_of(s, &bar);
    if (status == WEFT_OK) {
        status = lay(s, w, bar, sigma, sigma + w->steps + 1, step);
        weft_free(bar);
    }
    weft_free(sigma);
    return status;
}
