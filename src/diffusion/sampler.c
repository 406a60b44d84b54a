#include "diffusion/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const weft_solver weft_solver_defaults = {.order = 2,
                                          .form = WEFT_FORM_MIDPOINT,
                                          .lower_at_end = true,
                                          .ends_at_zero = true,
                                          .clip_range = 1,
                                          .quantile = 0.995,
                                          .most = 1,
                                          .time_scale = 10};

double weft_level_lambda(const weft_level *l)
{
    return log(l->alpha / l->sigma);
}

void weft_sampling_mix(int64_t count, int terms, const double *scale, const float *const *from,
                       float *out)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < terms; k++)
            sum += scale[k] * (double)from[k][i];
        out[i] = (float)sum;
    }
}

weft_status_code weft_sampling_draw(weft_sampling *s, float *noise)
{
    if (!s->callbacks->noise)
        return weft_fail(WEFT_E_ARG, "this sampler draws noise, and is given none");
    return s->callbacks->noise(s->callbacks->user, s->draws++, noise);
}

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The value below which a share of a sample's magnitudes lies, between neighbours linearly.
 * `sorted` has room for them. */
static float quantile_of(const float *x, int64_t count, double share, float *sorted)
{
    for (int64_t i = 0; i < count; i++)
        sorted[i] = fabsf(x[i]);
    qsort(sorted, (size_t)count, sizeof *sorted, rising);
    const double place = share * (double)(count - 1);
    const int64_t low = (int64_t)place, high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (float)(place - (double)low) * (sorted[high] - sorted[low]);
}

static void clip(const weft_sampling *s, float *data)
{
    const weft_solver *o = s->solver;
    float *const sorted = s->sorted;
    if (o->clip == WEFT_CLIP_NONE)
        return;
    for (int64_t at = 0; at < s->count; at += s->each) {
        float most = (float)o->clip_range;
        if (sorted)
            most = fminf(fmaxf(quantile_of(data + at, s->each, o->quantile, sorted), 1),
                         (float)o->most);
        for (int64_t i = at; i < at + s->each; i++) {
            data[i] = fminf(fmaxf(data[i], -most), most);
            data[i] = sorted ? data[i] / most : data[i];
        }
    }
}

weft_status_code weft_sampling_denoise(weft_sampling *s, const weft_level *level, float *data,
                                       float *whole)
{
    WEFT_TRY(s->callbacks->answer(s->callbacks->user, s->step, s->x, level, data));
    weft_sampling_mix(s->count, 2, (double[]){level->skip, level->out},
                      (const float *[]){s->x, data}, data);
    if (whole)
        memcpy(whole, data, (size_t)s->count * sizeof *data);
    clip(s, data);
    return WEFT_OK;
}

/* ---- Euler and Heun ------------------------------------------------------------------------- */

/* The way from x along which a leg goes, into v: x + (to.sigma - from.sigma) v lies on the line of
 * constant data and noise. */
static weft_status_code direction(weft_sampling *s, const float *x, const weft_level *at,
                                  const weft_leg *leg, float *v)
{
    WEFT_TRY(s->callbacks->answer(s->callbacks->user, s->step, x, at, v));
    if (at->straight > 0)
        return WEFT_OK;
    if (at->straight < 0) {
        for (int64_t i = 0; i < s->count; i++)
            v[i] = -v[i];
        return WEFT_OK;
    }
    /* data moves by kappa as noise moves by 1 */
    const double fall = leg->to.sigma - leg->from.sigma;
    const double kappa = fall == 0 ? 0 : (leg->to.alpha - leg->from.alpha) / fall;
    const double data = kappa * at->sigma - at->alpha;
    const float of_x = (float)((1 + data * at->skip) / at->sigma);
    const float of_answer = (float)(data * at->out / at->sigma);
    for (int64_t i = 0; i < s->count; i++)
        v[i] = of_x * x[i] + of_answer * v[i];
    return WEFT_OK;
}

static weft_status_code step_stochastic(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    float *data = s->scratch, *noise = data + s->count;
    WEFT_TRY(weft_sampling_denoise(s, &leg->from, data, NULL));
    WEFT_TRY(weft_sampling_draw(s, noise));
    weft_sampling_mix(s->count, 2, (double[]){leg->to.alpha, leg->to.sigma},
                      (const float *[]){data, noise}, s->x);
    return WEFT_OK;
}

static weft_status_code step_euler(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    float *x = s->x, *v = s->scratch;
    if (s->solver->stochastic)
        return step_stochastic(s);
    WEFT_TRY(direction(s, x, &leg->from, leg, v));
    const float delta = (float)(leg->to.sigma - leg->from.sigma);
    for (int64_t i = 0; i < s->count; i++)
        x[i] += delta * v[i];
    return WEFT_OK;
}

/* On a curved path the two directions are those of x/alpha over sigma/alpha, where the path is
 * straight. */
static weft_status_code heun_curved(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    const weft_level *a = &leg->from, *b = &leg->to;
    float *data = s->scratch, *next = data + s->count, *start = next + s->count, *x = s->x;
    WEFT_TRY(weft_sampling_denoise(s, a, data, NULL));
    memcpy(start, x, (size_t)s->count * sizeof *x);
    const double keep = b->sigma / a->sigma;
    weft_sampling_mix(s->count, 2, (double[]){keep, b->alpha - a->alpha * keep},
                      (const float *[]){start, data}, x);
    WEFT_TRY(weft_sampling_denoise(s, b, next, NULL));
    /* noise = (x - alpha data) / sigma at both ends; y' = y + (s' - s) times their mean */
    const double half = 0.5 * (b->sigma / b->alpha - a->sigma / a->alpha);
    const double at_a = b->alpha * half / a->sigma, at_b = b->alpha * half / b->sigma;
    weft_sampling_mix(
        s->count, 4,
        (double[]){b->alpha / a->alpha + at_a, -at_a * a->alpha, at_b, -at_b * b->alpha},
        (const float *[]){start, data, x, next}, x);
    return WEFT_OK;
}

static weft_status_code step_heun(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    const bool unit = leg->from.alpha == 1 && leg->to.alpha == 1;
    if (!(leg->to.sigma > 0) || !(leg->from.alpha > 0 || leg->from.straight))
        return step_euler(s);
    if (!leg->from.straight && !unit)
        return heun_curved(s);
    float *x = s->x, *v0 = s->scratch, *v1 = v0 + s->count, *ahead = v1 + s->count;
    WEFT_TRY(direction(s, x, &leg->from, leg, v0));
    const float delta = (float)(leg->to.sigma - leg->from.sigma);
    for (int64_t i = 0; i < s->count; i++)
        ahead[i] = x[i] + delta * v0[i];
    WEFT_TRY(direction(s, ahead, &leg->to, leg, v1));
    for (int64_t i = 0; i < s->count; i++)
        x[i] += 0.5f * delta * (v0[i] + v1[i]);
    return WEFT_OK;
}

/* clang-format off */
const weft_sampler weft_sampler_euler = {"euler", "one model call a step",  NULL, 2, step_euler};
const weft_sampler weft_sampler_heun  = {"heun",  "two model calls a step", NULL, 3, step_heun};
/* clang-format on */

/* ---- running -------------------------------------------------------------------------------- */

const weft_sampler *const weft_samplers[] = {&weft_sampler_euler,
                                             &weft_sampler_heun,
                                             &weft_sampler_unipc,
                                             &weft_sampler_dpmpp,
                                             &weft_sampler_ddim,
                                             &weft_sampler_ddpm,
                                             &weft_sampler_lcm,
                                             &weft_sampler_res_2ab,
                                             &weft_sampler_res_2mid,
                                             &weft_sampler_cogvideox_dpm,
                                             NULL};

const weft_sampler *weft_sampler_find(const char *name)
{
    for (int i = 0; weft_samplers[i]; i++)
        if (!strcmp(weft_samplers[i]->name, name))
            return weft_samplers[i];
    return NULL;
}

static int64_t history_of(const weft_sampler *sampler, const weft_solver *solver)
{
    return sampler->history ? sampler->history(solver) : 0;
}

/* Arrays in which magnitudes are sorted. */
static int sorts(const weft_solver *solver)
{
    return solver->clip == WEFT_CLIP_QUANTILE;
}

int64_t weft_sampler_kept(const weft_sampler *sampler, const weft_solver *solver, int64_t count)
{
    return history_of(sampler, solver) * count;
}

int64_t weft_sampler_work(const weft_sampler *sampler, const weft_solver *solver, int64_t count)
{
    return (history_of(sampler, solver) + sampler->scratch + sorts(solver)) * count;
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

weft_status weft_sampler_run(const weft_sampler *sampler, const weft_solver *solver,
                             const weft_leg *leg, int64_t steps, float *x, int64_t count,
                             int64_t each, float *work, weft_sampler_place *place,
                             const weft_sampler_callbacks *cb)
{
    const weft_sampler_place from = place ? *place : (weft_sampler_place){0};
    weft_sampling s = {.solver = solver,
                       .leg = leg,
                       .step = from.step,
                       .steps = steps,
                       .draws = from.draws,
                       .order = from.order,
                       .x = x,
                       .count = count,
                       .each = each,
                       .history = work,
                       .scratch = work + history_of(sampler, solver) * count,
                       .callbacks = cb};
    s.sorted = sorts(solver) ? s.scratch + sampler->scratch * count : NULL;
    for (; s.step < steps; s.step++) {
        WEFT_TRY(sampler->step(&s));
        WEFT_TRY(check_finite(x, count, s.step + 1));
        if (place)
            *place = (weft_sampler_place){s.step + 1, s.draws, s.order};
        if (cb->progress)
            WEFT_TRY(cb->progress(cb->user, s.step + 1, steps));
    }
    return WEFT_OK;
}
