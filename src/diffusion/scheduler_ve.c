/* Noise levels of the classes that add noise to unscaled data (alpha = 1), for models that are
 * trained on a table of discrete times. Times between two entries have interpolated levels.
 */
#include "diffusion/scheduler_ve.h"

#include "base/memory.h"
#include "diffusion/sampler_jump.h"
#include "diffusion/scheduler_levels.h"
#include "diffusion/scheduler_space.h"
#include "diffusion/scheduler_table.h"

#include <math.h>

weft_status weft_check_ve(const weft_scheduler *s, const char *where)
{
    const bool ancestral = s->kind->sampler == &weft_sampler_euler_ancestral;
    if (s->prediction == WEFT_PREDICT_FLOW || (ancestral && s->prediction == WEFT_PREDICT_DATA))
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "prediction_type",
                                  .value = weft_prediction_names[s->prediction]),
                          "%s has no prediction \"%s\"; known: epsilon, v_prediction%s",
                          s->kind->name, weft_prediction_names[s->prediction],
                          ancestral ? "" : ", sample");
    if (!isnan(s->sigma_min) && !(s->sigma_min > 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "sigma_min", WEFT_NUMBER(s->sigma_min)),
                          "%g is not above 0", s->sigma_min);
    if (!isnan(s->sigma_max) && !(s->sigma_max > (isnan(s->sigma_min) ? 0 : s->sigma_min)))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "sigma_max", WEFT_NUMBER(s->sigma_max)),
                          "%g is not above 0 and \"sigma_min\"", s->sigma_max);
    return WEFT_OK;
}

/* Returns the i-th of `steps` times. With the spacing linspace, it is between discrete times. */
static double time_at(const weft_scheduler *s, int64_t steps, int64_t i)
{
    if (s->spacing != WEFT_SPACING_LINSPACE)
        return (double)weft_noise_table_time(s, s->times, steps, i, false);
    const double gap = steps > 1 ? (double)(s->times - 1) / (double)(steps - 1) : 0;
    return (double)(float)((double)(steps - 1 - i) * gap);
}

/* Returns sigma/alpha at a time, linear between discrete times. */
static double ratio_at(const double *bar, double time)
{
    const int64_t low = (int64_t)floor(time);
    const double part = time - (double)low, a = weft_noise_table_ratio(bar, low);
    return part > 0 ? a + part * (weft_noise_table_ratio(bar, low + 1) - a) : a;
}

/* Fills levels at the times of the spacing or of the request. */
static weft_status timed(const weft_scheduler *s, const weft_timestep_request *w, const double *bar,
                         double *sigma, double *time)
{
    const double last = (double)(s->times - 1);
    for (int64_t i = 0; i < w->steps; i++) {
        time[i] = w->time ? w->time[i] : time_at(s, w->steps, i);
        if (time[i] < 0 || time[i] > last)
            return weft_noise_table_beyond(s, (int64_t)time[i]);
        sigma[i] = ratio_at(bar, time[i]);
    }
    if (s->log_linear) { /* the reference divides into one more step */
        const double high = weft_noise_table_log_ratio(bar, s->times - 1),
                     low = weft_noise_table_log_ratio(bar, 0);
        for (int64_t i = 0; i <= w->steps; i++)
            sigma[i] = exp(high + (double)i / (double)w->steps * (low - high));
    }
    return WEFT_OK;
}

static weft_status levels(const weft_scheduler *s, const weft_timestep_request *w,
                          const double *bar, double *sigma, double *time)
{
    const int64_t n = w->steps;
    const double end = s->solver.ends_at_zero ? 0 : weft_noise_table_ratio(bar, 0);
    sigma[n] = end;
    if (w->sigma) {
        for (int64_t i = 0; i < n; i++)
            sigma[i] = (double)(float)w->sigma[i];
        sigma[n] = isnan(w->end) ? end : (double)(float)w->end;
    } else {
        WEFT_TRY(timed(s, w, bar, sigma, time));
        const double high = isnan(s->sigma_max) ? sigma[0] : s->sigma_max,
                     low = isnan(s->sigma_min) ? sigma[s->log_linear ? n : n - 1] : s->sigma_min;
        if (!weft_space(s, high, low, n, sigma))
            return WEFT_OK;
        sigma[n] = end;
    }
    for (int64_t i = 0; i < n; i++)
        time[i] = weft_noise_table_time_of(bar, s->times, sigma[i]);
    return WEFT_OK;
}

static weft_noise_level level_of(const weft_scheduler *s, double sigma, double time)
{
    const double at = s->continuous ? 0.25 * log(sigma) : time;
    return weft_noise_level_ve(s, sigma, (double)(float)at);
}

static void chain(const weft_scheduler *s, const double *bar, int64_t steps, const double *sigma,
                  const double *time, weft_solver_step *step)
{
    const weft_noise_level end = weft_noise_level_ve(s, (double)(float)sigma[steps], 0);
    for (int64_t i = steps - 1; i >= 0; i--) {
        const weft_noise_level from = level_of(s, (double)(float)sigma[i], time[i]),
                               to = i < steps - 1 ? step[i + 1].from : end;
        const double middle = sqrt(from.sigma * to.sigma);
        step[i] = (weft_solver_step){from, to, to, i == steps - 1};
        if (middle > 0)
            step[i].mid = level_of(s, middle, weft_noise_table_time_of(bar, s->times, middle));
    }
}

weft_status weft_lay_ve(const weft_scheduler *s, const weft_timestep_request *w,
                        weft_solver_step *step)
{
    double *bar = NULL, *sigma;
    if (s->kind->given == WEFT_GIVEN_NONE)
        WEFT_TRY(weft_noise_table_check(s, w, INT64_MAX));
    WEFT_TRY(WEFT_NEW(sigma, 2 * w->steps + 2, "%" PRId64 " noise levels", w->steps));
    double *time = sigma + w->steps + 2;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_noise_table_new(s, &bar));
    WEFT_GO(levels(s, w, bar, sigma, time));
    chain(s, bar, w->steps, sigma, time, step);
out:
    weft_free(bar);
    weft_free(sigma);
    return status;
}
