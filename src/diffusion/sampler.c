#include "diffusion/sampler.h"

#include <math.h>
#include <string.h>

static weft_status_code step_euler(weft_sampling *s)
{
    const double from = s->sigma[s->step], to = s->sigma[s->step + 1];
    float *x = s->x, *v = s->scratch;
    WEFT_TRY(s->callbacks->slope(s->callbacks->user, s->step, x, from, v));
    const float delta = (float)(to - from);
    for (int64_t i = 0; i < s->count; i++)
        x[i] += delta * v[i];
    return WEFT_OK;
}

static weft_status_code step_heun(weft_sampling *s)
{
    const double from = s->sigma[s->step], to = s->sigma[s->step + 1];
    if (!(to > 0))
        return step_euler(s);
    float *x = s->x, *v0 = s->scratch, *v1 = v0 + s->count, *ahead = v1 + s->count;
    WEFT_TRY(s->callbacks->slope(s->callbacks->user, s->step, x, from, v0));
    const float delta = (float)(to - from);
    for (int64_t i = 0; i < s->count; i++)
        ahead[i] = x[i] + delta * v0[i];
    WEFT_TRY(s->callbacks->slope(s->callbacks->user, s->step, ahead, to, v1));
    for (int64_t i = 0; i < s->count; i++)
        x[i] += 0.5f * delta * (v0[i] + v1[i]);
    return WEFT_OK;
}

/* clang-format off */
const weft_sampler weft_sampler_euler = {"euler", "one model call a step",  0, 1, step_euler};
const weft_sampler weft_sampler_heun  = {"heun",  "two model calls a step", 0, 3, step_heun};
/* clang-format on */

const weft_sampler *const weft_samplers[] = {&weft_sampler_euler, &weft_sampler_heun, NULL};

const weft_sampler *weft_sampler_find(const char *name)
{
    for (int i = 0; weft_samplers[i]; i++)
        if (!strcmp(weft_samplers[i]->name, name))
            return weft_samplers[i];
    return NULL;
}

int64_t weft_sampler_work(const weft_sampler *sampler, int64_t count)
{
    return (sampler->history + sampler->scratch) * count;
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

weft_status weft_sampler_run(const weft_sampler *sampler, const double *sigma, int64_t steps,
                             float *x, int64_t count, float *work, const weft_sampler_callbacks *cb)
{
    weft_sampling s = {.sigma = sigma,
                       .steps = steps,
                       .x = x,
                       .count = count,
                       .history = work,
                       .scratch = work + sampler->history * count,
                       .callbacks = cb};
    for (; s.step < steps; s.step++) {
        WEFT_TRY(sampler->step(&s));
        WEFT_TRY(check_finite(x, count, s.step + 1));
        if (cb->progress)
            WEFT_TRY(cb->progress(cb->user, s.step + 1, steps));
    }
    return WEFT_OK;
}
