#include "diffusion/scheduler_stages.h"

#include "base/memory.h"
#include "diffusion/scheduler_flow.h"
#include "diffusion/scheduler_space.h"

#include <math.h>

/* The first level of each stage. */
static const double first_level = 0.999;

weft_status weft_check_stages(const weft_scheduler *s, const char *where)
{
    const int least = s->kind->sampler == &weft_sampler_dmd ? 2 : 1;
    if (s->stages < least || s->stages > WEFT_MAX_STAGES)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "stages", WEFT_NUMBER(s->stages)),
                          "the number of sizes of latents is %" PRId64 ", and %s supports %d to %d",
                          s->stages, s->kind->name, least, WEFT_MAX_STAGES);
    if (s->by_resolution && s->shift != 1)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "shift", WEFT_NUMBER(s->shift)),
                          "%g cannot be combined with \"use_dynamic_shifting\": true; use 1",
                          s->shift);
    if (!(s->gamma > 0 && s->gamma <= 1. / 3))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "gamma", WEFT_NUMBER(s->gamma)),
                          "%g is not above 0 and at most 1/3, so a block of four values has no "
                          "such covariance",
                          s->gamma);
    return WEFT_OK;
}

/* Item `i` of `count` even values from `first` to `last`, as NumPy's linspace rounds it. */
static double even(double first, double last, int64_t count, int64_t i)
{
    if (count < 2)
        return first;
    return i == count - 1 ? last : (double)i * ((last - first) / (double)(count - 1)) + first;
}

/* Level `i` of the training schedule, from the noisiest; level s->times is data. */
static double level_of(const weft_scheduler *s, int64_t i)
{
    if (i >= s->times)
        return 0;
    const double sigma = 1 - even(1, 1 / (double)s->times, s->times + 1, s->times - i);
    return s->shift * sigma / (1 + (s->shift - 1) * sigma);
}

/* The level at which stage `at` begins by its share of the times. */
static double range_level(const weft_scheduler *s, int64_t at)
{
    return level_of(s, (int64_t)(s->stage_range[at] * (double)s->times));
}

/* Share of the latents in the sum of doubled latents of this level and the noise that cancels their
 * correlation. */
static double keep_of(const weft_scheduler *s, double level)
{
    return 1 / (sqrt(1 + 1 / s->gamma) * level + (1 - level));
}

/* Length of stage `at` on the path. Except of the first one, stages begin above the level of their
 * share, by the added noise. */
static double length_of(const weft_scheduler *s, int64_t at)
{
    const double level = range_level(s, at),
                 start = at ? 1 - keep_of(s, level) * (1 - level) : level;
    return start - range_level(s, at + 1);
}

weft_stage weft_scheduler_stage(const weft_scheduler *s, int64_t at)
{
    const double level = range_level(s, at), n = (double)s->times;
    double before = 0, all = 0;
    for (int64_t i = 0; i < s->stages; i++) {
        before = i == at ? all : before;
        all += length_of(s, i);
    }
    const double end = at == s->stages - 1 ? 0.9999999999999999 /* as in the reference */
                                           : (before + length_of(s, at)) / all;
    const int64_t first = (int64_t)(before / all * n), last = (int64_t)(end * n);
    const double high = fmin(level_of(s, first) * n, 999),
                 low = level_of(s, last < s->times ? last : s->times - 1) * n,
                 keep = keep_of(s, level);
    return (weft_stage){.keep = keep,
                        .noise = keep * level / sqrt(s->gamma),
                        .high = high,
                        .low = even(high, low, s->times + 1, s->times - 1)};
}

/* Levels and times of a stage before they are steps. */
typedef struct levels {
    double *sigma, *time; /* [steps + 1]; the last level is 0 */
    int64_t steps;
} levels;

static void fill_levels(const weft_scheduler *s, const weft_timestep_request *w, levels *l)
{
    const weft_stage stage = weft_scheduler_stage(s, w->stage);
    const double last = even(first_level, 0, s->times + 1, s->times - 1);
    /* distilled models omit the last but one of the levels */
    const int64_t points = l->steps + (s->kind->sampler == &weft_sampler_dmd);
    for (int64_t i = 0; i < l->steps; i++) {
        l->sigma[i] = even(first_level, last, points, i);
        l->time[i] = even(stage.high, stage.low, points, i);
        if (s->by_resolution) {
            l->sigma[i] = weft_scheduler_shift(s, w->mu, l->sigma[i]);
            l->time[i] = stage.low + l->sigma[i] * (stage.high - stage.low);
        }
    }
    l->sigma[l->steps] = l->time[l->steps] = 0;
}

/* The level that the distilled reference finds for step `i`: of the time nearest to the whole part
 * of the step's time. */
static double nearest_level(const levels *l, int64_t i)
{
    int64_t best = 0;
    for (int64_t k = 1; k < l->steps; k++)
        if (fabs(l->time[k] - trunc(l->time[i])) < fabs(l->time[best] - trunc(l->time[i])))
            best = k;
    return i < l->steps ? l->sigma[best] : 0;
}

weft_status weft_lay_stage(const weft_scheduler *s, const weft_timestep_request *w,
                           weft_solver_step *step)
{
    levels l = {.steps = w->steps};
    weft_status_code status = WEFT_OK;
    if (w->sigma || w->time)
        return weft_error(
            WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = w->sigma ? "sigmas" : "timesteps"),
            "%s computes its noise levels by stages, so none can be given", s->kind->name);
    WEFT_GO(WEFT_NEW(l.sigma, w->steps + 1, "%" PRId64 " noise levels", w->steps));
    WEFT_GO(WEFT_NEW(l.time, w->steps + 1, "%" PRId64 " times", w->steps));
    fill_levels(s, w, &l);
    weft_chain_flow(s, w->steps, l.sigma, step);
    for (int64_t i = 0; i < w->steps; i++) {
        weft_solver_step *at = &step[i];
        if (s->kind->sampler == &weft_sampler_dmd) {
            at->from = weft_noise_level_flow(s, nearest_level(&l, i), 0);
            at->to = weft_noise_level_flow(s, nearest_level(&l, i + 1), 0);
        }
        at->from.time = trunc(l.time[i]); /* times of the model are whole */
        at->to.time = trunc(l.time[i + 1]);
        at->mid.time = trunc((l.time[i] + l.time[i + 1]) / 2);
    }
out:
    weft_free(l.sigma);
    weft_free(l.time);
    return status;
}
