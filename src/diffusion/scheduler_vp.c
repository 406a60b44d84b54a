/* Variance-preserving paths, whose levels are those of a table of discrete times; and the multistep
 * classes, which go down straight paths too. */
#include "base/memory.h"
#include "diffusion/scheduler_walk.h"

#include <math.h>

static weft_status refuse_prediction(const weft_scheduler *s, const char *where)
{
    return weft_fail(WEFT_E_UNSUPPORTED, "%s: \"prediction_type\": \"%s\" needs %s", where,
                     weft_prediction_names[s->prediction],
                     "a straight path: \"use_flow_sigmas\": true");
}

weft_status weft_check_discrete(const weft_scheduler *s, const char *where)
{
    /* those whose first time is the last of the table */
    const bool from_noise = s->spacing != WEFT_SPACING_LEADING || s->kind->lay == weft_lay_lcm;
    if (s->prediction == WEFT_PREDICT_FLOW)
        return refuse_prediction(s, where);
    if (s->prediction == WEFT_PREDICT_NOISE && s->betas.zero_snr && from_noise)
        return weft_fail(
            WEFT_E_UNSUPPORTED,
            "%s: with \"rescale_betas_zero_snr\" a walk begins at noise alone, of which "
            "\"prediction_type\": \"epsilon\" says nothing; v_prediction does",
            where);
    if (s->lcm_times < 1 || s->lcm_times > s->times)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"original_inference_steps\": %lld is not from 1 to %lld", where,
                         (long long)s->lcm_times, (long long)s->times);
    return WEFT_OK;
}

weft_status weft_check_multistep(const weft_scheduler *s, const char *where)
{
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    if (s->prediction == WEFT_PREDICT_FLOW && !s->flow)
        return refuse_prediction(s, where);
    if (s->prediction == WEFT_PREDICT_FLOW && s->solver.of_noise)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"prediction_type\": \"flow_prediction\" goes with solvers of data: "
                         "\"predict_x0\": true, \"algorithm_type\": \"dpmsolver++\"",
                         where);
    if (s->flow && (s->exponential || s->beta || s->lu || (s->karras && dpm)))
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: %s and \"use_flow_sigmas\" do not go together",
                         where,
                         s->karras ? "\"use_karras_sigmas\""
                         : s->beta ? "\"use_beta_sigmas\""
                         : s->lu   ? "\"use_lu_lambdas\""
                                   : "\"use_exponential_sigmas\"");
    if (s->terminal != 0 && !(s->flow && s->terminal > 0 && s->terminal < 1))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"shift_terminal\": %g: it is from 0 to 1, and goes with "
                         "\"use_flow_sigmas\"",
                         where, s->terminal);
    if (dpm && s->solver.order > 3)
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: \"solver_order\": %lld: known are 1 to 3", where,
                         (long long)s->solver.order);
    if (dpm && s->solver.of_noise && s->solver.stochastic && s->solver.order > 2)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"algorithm_type\": \"sde-dpmsolver\" goes up to \"solver_order\" 2",
                         where);
    if (s->solver.of_noise && s->solver.ends_at_zero)
        return weft_fail(
            WEFT_E_UNSUPPORTED,
            "%s: a solver of noise cannot reach \"final_sigmas_type\": \"zero\"; write "
            "\"sigma_min\"",
            where);
    return WEFT_OK;
}

static weft_status table_of(const weft_scheduler *s, double **bar)
{
    *bar = weft_alloc(s->times * (int64_t)sizeof **bar);
    if (!*bar)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld noise levels", (long long)s->times);
    weft_betas_table(&s->betas, *bar, NULL);
    return WEFT_OK;
}

/* Of so many discrete times, the i-th of `steps`, from the highest: evenly between the ends, whole
 * steps from the lowest, or whole steps from the highest. `more`: the multistep classes divide into
 * one more and leave the last out. */
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

static weft_level level_of(const weft_scheduler *s, double bar, double time)
{
    return weft_level_vp(s, sqrt(bar), sqrt(1 - bar), time);
}

static weft_level table_level(const weft_scheduler *s, const double *bar, int64_t time)
{
    return level_of(s, bar[time], (double)time);
}

/* ln(sigma/alpha) of a discrete time. */
static double log_ratio(const double *bar, int64_t time)
{
    const float b = (float)bar[time];
    return (double)(float)log((double)sqrtf((1 - b) / b));
}

/* The time between discrete ones at which sigma/alpha is so. */
static double time_of(const double *bar, int64_t times, double ratio)
{
    const double at = log(fmax(ratio, 1e-10));
    int64_t low = times - 1; /* the last level below; a floor may stand behind higher ones */
    while (low > 0 && at < log_ratio(bar, low))
        low--;
    low = low < times - 2 ? low : times - 2;
    const double a = log_ratio(bar, low), b = log_ratio(bar, low + 1);
    const double w = fmin(fmax((a - at) / (a - b), 0), 1);
    return (1 - w) * (double)low + w * (double)(low + 1);
}

static weft_level middle(const weft_scheduler *s, const double *bar, const weft_level *a,
                         const weft_level *b)
{
    const double ratio = sqrt(a->sigma / a->alpha * (b->sigma / b->alpha));
    if (!isfinite(ratio) || !(ratio > 0))
        return *b;
    const double alpha = 1 / sqrt(1 + ratio * ratio);
    return weft_level_vp(s, alpha, ratio * alpha, time_of(bar, s->times, ratio));
}

static weft_status too_many(const weft_scheduler *s, const weft_walk *w, int64_t times)
{
    if (w->sigma)
        return weft_fail(WEFT_E_ARG,
                         "%s takes no levels of a pipeline: they are those of its table",
                         s->kind->name);
    return w->steps <= times ? WEFT_OK
                             : weft_fail(WEFT_E_ARG, "%lld steps: %s has %lld times",
                                         (long long)w->steps, s->kind->name, (long long)times);
}

static weft_status beyond(const weft_scheduler *s, int64_t time)
{
    return weft_fail(WEFT_E_ARG,
                     "\"steps_offset\" %lld reaches time %lld; the model has times up to %lld",
                     (long long)s->offset, (long long)time, (long long)s->times - 1);
}

/* Each step ends a whole number of times lower, whatever the next one begins with. */
weft_status weft_lay_discrete(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
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
        leg[i].from = table_level(s, bar, from);
        leg[i].last = to < 0;
        leg[i].to = to >= 0 ? table_level(s, bar, to) : level_of(s, s->ends_at_one ? 1 : bar[0], 0);
        leg[i].mid = middle(s, bar, &leg[i].from, &leg[i].to);
    }
    weft_free(bar);
    return status;
}

static weft_status chained(const weft_scheduler *s, const weft_walk *w, const double *bar,
                           bool stays, int64_t (*at)(const weft_scheduler *, int64_t, int64_t),
                           weft_leg *leg)
{
    for (int64_t i = 0; i < w->steps; i++) {
        const int64_t from = at(s, w->steps, i);
        if (from < 0 || from >= s->times)
            return beyond(s, from);
        leg[i].from = table_level(s, bar, from);
        leg[i].last = i == w->steps - 1;
        if (i > 0)
            leg[i - 1].to = leg[i].from;
        leg[i].to = stays ? leg[i].from : level_of(s, 1, 0);
    }
    for (int64_t i = 0; i < w->steps; i++)
        leg[i].mid = middle(s, bar, &leg[i].from, &leg[i].to);
    return WEFT_OK;
}

static int64_t plain_time(const weft_scheduler *s, int64_t steps, int64_t i)
{
    return time_at(s, s->times, steps, i, false);
}

/* Each step ends where the next one begins, the last at data. */
weft_status weft_lay_chained(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
{
    double *bar;
    WEFT_TRY(too_many(s, w, s->times));
    WEFT_TRY(table_of(s, &bar));
    const weft_status_code status = chained(s, w, bar, false, plain_time, leg);
    weft_free(bar);
    return status;
}

/* Of the times that the model was distilled for, every so many-th from the highest. */
static int64_t lcm_time(const weft_scheduler *s, int64_t steps, int64_t i)
{
    const int64_t place = (int64_t)floor((double)i * ((double)s->lcm_times / (double)steps));
    return (s->lcm_times - place) * (s->times / s->lcm_times) - 1;
}

weft_status weft_lay_lcm(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
{
    double *bar;
    WEFT_TRY(too_many(s, w, s->lcm_times));
    WEFT_TRY(table_of(s, &bar));
    const weft_status_code status = chained(s, w, bar, true, lcm_time, leg);
    weft_free(bar);
    return status;
}

/* ---- multistep ------------------------------------------------------------------------------ */

static weft_level multistep_level(const weft_scheduler *s, double sigma, double time)
{
    if (s->flow)
        return weft_level_flow(s, sigma, time);
    const double alpha = 1 / sqrt(sigma * sigma + 1);
    return weft_level_vp(s, alpha, sigma * alpha, time);
}

/* sigma and time[steps] of the straight path: UniPC and DPM-Solver begin a hair apart. */
static void straight(const weft_scheduler *s, const weft_walk *w, double *sigma, double *time)
{
    const double least = 1 / (double)s->times, fall = least - 1, hair = 1e-6;
    const int64_t n = w->steps;
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    for (int64_t i = 0; i < n; i++) { /* evenly from 1 to the least, which is met exactly */
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

/* Times below which lambda is less than the scheduler's least. */
static int64_t usable_times(const weft_scheduler *s, const double *bar)
{
    int64_t times = s->times;
    while (times > 1 && -log(ratio_of(bar, times - 1)) < s->least_lambda)
        times--;
    return times;
}

static weft_status spaced(const weft_scheduler *s, const weft_walk *w, const double *bar,
                          double *sigma, double *time)
{
    const bool dpm = s->kind->sampler == &weft_sampler_dpmpp;
    const int64_t n = w->steps, times = dpm ? usable_times(s, bar) : s->times;
    double high = isnan(s->sigma_max) ? ratio_of(bar, s->times - 1) : s->sigma_max;
    double low = isnan(s->sigma_min) ? ratio_of(bar, 0) : s->sigma_min;
    if (s->lu) { /* as even steps of logarithms that are kept in f32 */
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
            return weft_fail(WEFT_E_ARG,
                             "%lld steps: \"lambda_min_clipped\" %g leaves %lld times, of which "
                             "\"timestep_spacing\": \"trailing\" makes fewer; write \"linspace\"",
                             (long long)n, s->least_lambda, (long long)times);
        sigma[i] = ratio_of(bar, at > most ? most : at);
    }
    return WEFT_OK;
}

static weft_status lay(const weft_scheduler *s, const weft_walk *w, const double *bar,
                       double *sigma, double *time, weft_leg *leg)
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
    for (int64_t i = 0; i <= n;
         i++) /* the reference keeps them narrow; times are cut to integers */
        sigma[i] = (double)(float)sigma[i];
    for (int64_t i = 0; i < n; i++) {
        const weft_level from = multistep_level(s, sigma[i], trunc(time[i]));
        const weft_level to = multistep_level(s, sigma[i + 1], i + 1 < n ? trunc(time[i + 1]) : 0);
        leg[i] = (weft_leg){from, s->flow ? from : middle(s, bar, &from, &to), to, i == n - 1};
        if (s->flow) {
            const double ratio = sqrt(from.sigma / from.alpha * (to.sigma / to.alpha));
            const double at = ratio / (1 + ratio);
            leg[i].mid = multistep_level(s, at, at * (double)s->times);
        }
    }
    return WEFT_OK;
}

weft_status weft_lay_multistep(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
{
    double *bar, *sigma = weft_alloc((2 * w->steps + 1) * (int64_t)sizeof *sigma);
    if (!sigma)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld noise levels", (long long)w->steps);
    weft_status_code status = WEFT_OK;
    if (w->sigma && !s->flow)
        status = too_many(s, w, s->times);
    else
        status = table_of(s, &bar);
    if (status == WEFT_OK) {
        status = lay(s, w, bar, sigma, sigma + w->steps + 1, leg);
        weft_free(bar);
    }
    weft_free(sigma);
    return status;
}
