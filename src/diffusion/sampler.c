#include "diffusion/sampler.h"

#include <math.h>

const char *const weft_sampler_names[] = {"euler", "heun", NULL};

int64_t weft_sampler_work(weft_sampler_kind kind, int64_t count)
{
    return kind == WEFT_SAMPLER_HEUN ? 3 * count : count;
}

static weft_status step_euler(const weft_sampler_callbacks *cb, double from, double to, float *x,
                              int64_t count, float *v)
{
    WEFT_TRY(cb->velocity(cb->user, x, from, v));
    const float delta = (float)(to - from);
    for (int64_t i = 0; i < count; i++)
        x[i] += delta * v[i];
    return WEFT_OK;
}

static weft_status step_heun(const weft_sampler_callbacks *cb, double from, double to, float *x,
                             int64_t count, float *work)
{
    float *v0 = work, *v1 = work + count, *ahead = work + 2 * count;
    WEFT_TRY(cb->velocity(cb->user, x, from, v0));
    const float delta = (float)(to - from);
    for (int64_t i = 0; i < count; i++)
        ahead[i] = x[i] + delta * v0[i];
    WEFT_TRY(cb->velocity(cb->user, ahead, to, v1));
    for (int64_t i = 0; i < count; i++)
        x[i] += 0.5f * delta * (v0[i] + v1[i]);
    return WEFT_OK;
}

static weft_status check_finite(const float *x, int64_t count, int64_t step)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return weft_fail(
                WEFT_E_NUMERIC,
                "sampler step %lld: element %lld is not finite; the weights or the guidance scale "
                "are out of range",
                (long long)step, (long long)i);
    return WEFT_OK;
}

weft_status weft_sampler_run(weft_sampler_kind kind, const double *sigma, int64_t steps, float *x,
                             int64_t count, float *work, const weft_sampler_callbacks *cb)
{
    for (int64_t s = 0; s < steps; s++) {
        if (kind == WEFT_SAMPLER_HEUN && sigma[s + 1] > 0)
            WEFT_TRY(step_heun(cb, sigma[s], sigma[s + 1], x, count, work));
        else
            WEFT_TRY(step_euler(cb, sigma[s], sigma[s + 1], x, count, work));
        WEFT_TRY(check_finite(x, count, s + 1));
        if (cb->progress)
            WEFT_TRY(cb->progress(cb->user, s + 1, steps));
    }
    return WEFT_OK;
}

void weft_guidance(float *conditional, const float *unconditional, double scale, int64_t count)
{
    const float s = (float)scale;
    for (int64_t i = 0; i < count; i++)
        conditional[i] = unconditional[i] + s * (conditional[i] - unconditional[i]);
}
