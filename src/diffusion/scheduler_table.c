/* The table of discrete times that variance-preserving models are trained on. */
#include "diffusion/scheduler_table.h"

#include "base/memory.h"
#include "diffusion/scheduler_levels.h"
#include "diffusion/scheduler_space.h"

#include <math.h>

weft_status weft_noise_table_new(const weft_scheduler *s, double **bar)
{
    WEFT_TRY(WEFT_NEW(*bar, s->times, "%" PRId64 " noise levels", s->times));
    weft_betas_table(&s->betas, *bar, NULL);
    return WEFT_OK;
}

int64_t weft_noise_table_time(const weft_scheduler *s, int64_t times, int64_t steps, int64_t i,
                              bool more)
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

double weft_noise_table_ratio(const double *bar, int64_t time)
{
    const float b = (float)bar[time];
    return (double)sqrtf((1 - b) / b);
}

double weft_noise_table_log_ratio(const double *bar, int64_t time)
{
    const float b = (float)bar[time];
    return (double)(float)log((double)sqrtf((1 - b) / b));
}

double weft_noise_table_time_of(const double *bar, int64_t times, double ratio)
{
    const double at = log(fmax(ratio, 1e-10));
    int64_t low = times - 1; /* last lower level; higher ones may precede a floor */
    while (low > 0 && at < weft_noise_table_log_ratio(bar, low))
        low--;
    low = low < times - 2 ? low : times - 2;
    const double a = weft_noise_table_log_ratio(bar, low),
                 b = weft_noise_table_log_ratio(bar, low + 1);
    const double w = fmin(fmax((a - at) / (a - b), 0), 1);
    return (1 - w) * (double)low + w * (double)(low + 1);
}

weft_noise_level weft_noise_table_middle(const weft_scheduler *s, const double *bar,
                                         const weft_noise_level *a, const weft_noise_level *b)
{
    const double ratio = sqrt(a->sigma / a->alpha * (b->sigma / b->alpha));
    if (!isfinite(ratio) || !(ratio > 0))
        return *b;
    const double alpha = 1 / sqrt(1 + ratio * ratio);
    return weft_noise_level_vp(s, alpha, ratio * alpha,
                               weft_noise_table_time_of(bar, s->times, ratio));
}

weft_status weft_noise_table_check(const weft_scheduler *s, const weft_timestep_request *w,
                                   int64_t times)
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

weft_status weft_noise_table_beyond(const weft_scheduler *s, int64_t time)
{
    return weft_error(
        WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "steps_offset", WEFT_NUMBER(s->offset)),
        "%" PRId64 " leads to timestep %" PRId64 "; the model has timesteps up to %" PRId64,
        s->offset, time, s->times - 1);
}
