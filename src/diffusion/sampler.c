#include "diffusion/sampler.h"

#include "diffusion/sampler_jump.h"
#include "diffusion/sampler_lms.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/sampler_pndm.h"
#include "diffusion/sampler_res.h"
#include "diffusion/sampler_singlestep.h"
#include "diffusion/sampler_unipc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const weft_solver weft_solver_defaults = {.order = 2,
                                          .form = WEFT_SOLVER_MIDPOINT,
                                          .lower_at_end = true,
                                          .ends_at_zero = true,
                                          .clip_range = 1,
                                          .quantile = 0.995,
                                          .most = 1,
                                          .time_scale = 10,
                                          .lms_order = 4,
                                          .skips_prk = true,
                                          .churn_max = INFINITY,
                                          .churn_noise = 1};

double weft_noise_level_lambda(const weft_noise_level *l)
{
    return log(l->alpha / l->sigma);
}

void weft_sampler_state_mix(int64_t count, int terms, const double *scale, const float *const *from,
                            float *out)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < terms; k++)
            sum += scale[k] * (double)from[k][i];
        out[i] = (float)sum;
    }
}

weft_status_code weft_sampler_state_draw(weft_sampler_state *s, float *noise)
{
    if (!s->callbacks->noise)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "this sampler draws noise and needs a source of noise");
    return s->callbacks->noise(s->callbacks->user, s->draws++, noise);
}

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the quantile `share` of a sample's magnitudes, with linear interpolation. `sorted` is
 * scratch of `count` floats. */
static float quantile_of(const float *x, int64_t count, double share, float *sorted)
{
    for (int64_t i = 0; i < count; i++)
        sorted[i] = fabsf(x[i]);
    qsort(sorted, (size_t)count, sizeof *sorted, rising);
    const double position = share * (double)(count - 1);
    const int64_t low = (int64_t)position, high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (float)(position - (double)low) * (sorted[high] - sorted[low]);
}

static void clip(const weft_sampler_state *s, float *data)
{
    const weft_solver *o = s->solver;
    float *const sorted = s->sorted;
    if (o->clip == WEFT_SAMPLE_CLAMP_NONE)
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

weft_status_code weft_sampler_state_denoise(weft_sampler_state *s, const weft_noise_level *level,
                                            float *data, float *whole)
{
    WEFT_TRY(s->callbacks->predict(s->callbacks->user, s->step, s->x, level, data));
    weft_sampler_state_mix(s->count, 2, (double[]){level->skip, level->out},
                           (const float *[]){s->x, data}, data);
    if (whole)
        memcpy(whole, data, (size_t)s->count * sizeof *data);
    clip(s, data);
    return WEFT_OK;
}

/* ---- Euler and Heun ------------------------------------------------------------------------- */

/* Sets v to the direction of a solver step from x: x + (to.sigma - from.sigma) v is on the line of
 * constant data and noise. */
static weft_status_code direction(weft_sampler_state *s, const float *x, const weft_noise_level *at,
                                  const weft_solver_step *step, float *v)
{
    WEFT_TRY(s->callbacks->predict(s->callbacks->user, s->step, x, at, v));
    if (at->straight > 0)
        return WEFT_OK;
    if (at->straight < 0) {
        for (int64_t i = 0; i < s->count; i++)
            v[i] = -v[i];
        return WEFT_OK;
    }
    /* data moves by kappa as noise moves by 1 */
    const double fall = step->to.sigma - step->from.sigma;
    const double kappa = fall == 0 ? 0 : (step->to.alpha - step->from.alpha) / fall;
    const double data = kappa * at->sigma - at->alpha;
    const float of_x = (float)((1 + data * at->skip) / at->sigma);
    const float of_prediction = (float)(data * at->out / at->sigma);
    for (int64_t i = 0; i < s->count; i++)
        v[i] = of_x * x[i] + of_prediction * v[i];
    return WEFT_OK;
}

static weft_status_code step_stochastic(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *data = s->scratch, *noise = data + s->count;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    WEFT_TRY(weft_sampler_state_draw(s, noise));
    weft_sampler_state_mix(s->count, 2, (double[]){step->to.alpha, step->to.sigma},
                           (const float *[]){data, noise}, s->x);
    return WEFT_OK;
}

/* Returns the level to which noise is added before a step; the step's own level: none is added.
 * The limit keeps the added variance below the level's (Karras et al. 2022, algorithm 2). */
static double churned(const weft_sampler_state *s)
{
    const weft_solver *o = s->solver;
    const weft_noise_level *from = &s->solver_step[s->step].from;
    if (!(o->churn > 0) || from->alpha != 1 || from->sigma < o->churn_min ||
        from->sigma > o->churn_max)
        return from->sigma;
    return from->sigma * (1 + fmin(o->churn / (double)s->steps, sqrt(2) - 1));
}

/* Runs Euler's step from a level with added noise. As in the reference, the model's input has no
 * added noise, and its prediction is used as one at the higher level. */
static weft_status_code step_churned(weft_sampler_state *s, double high)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *from = &step->from;
    float *prediction = s->scratch, *noise = prediction + s->count;
    WEFT_TRY(s->callbacks->predict(s->callbacks->user, s->step, s->x, from, prediction));
    WEFT_TRY(weft_sampler_state_draw(s, noise));
    const double added = s->solver->churn_noise * sqrt(high * high - from->sigma * from->sigma);
    const double out = from->straight > 0 ? -high : from->out, fall = step->to.sigma / high;
    const double of_x = fall + (1 - fall) * from->skip;
    weft_sampler_state_mix(s->count, 3, (double[]){of_x, of_x * added, (1 - fall) * out},
                           (const float *[]){s->x, noise, prediction}, s->x);
    return WEFT_OK;
}

static weft_status_code step_euler(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *x = s->x, *v = s->scratch;
    if (s->solver->stochastic)
        return step_stochastic(s);
    const double high = churned(s);
    if (high > step->from.sigma)
        return step_churned(s, high);
    WEFT_TRY(direction(s, x, &step->from, step, v));
    const float delta = (float)(step->to.sigma - step->from.sigma);
    for (int64_t i = 0; i < s->count; i++)
        x[i] += delta * v[i];
    return WEFT_OK;
}

/* Runs Heun's step on a curved path. Both directions are computed for x/alpha over sigma/alpha,
 * where the path is straight. */
static weft_status_code heun_curved(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *a = &step->from, *b = &step->to;
    float *data = s->scratch, *next = data + s->count, *start = next + s->count, *x = s->x;
    WEFT_TRY(weft_sampler_state_denoise(s, a, data, NULL));
    memcpy(start, x, (size_t)s->count * sizeof *x);
    const double ratio = b->sigma / a->sigma;
    weft_sampler_state_mix(s->count, 2, (double[]){ratio, b->alpha - a->alpha * ratio},
                           (const float *[]){start, data}, x);
    WEFT_TRY(weft_sampler_state_denoise(s, b, next, NULL));
    /* noise = (x - alpha data) / sigma at both ends; y' = y + (s' - s) times their mean */
    const double half = 0.5 * (b->sigma / b->alpha - a->sigma / a->alpha);
    const double at_a = b->alpha * half / a->sigma, at_b = b->alpha * half / b->sigma;
    weft_sampler_state_mix(
        s->count, 4,
        (double[]){b->alpha / a->alpha + at_a, -at_a * a->alpha, at_b, -at_b * b->alpha},
        (const float *[]){start, data, x, next}, x);
    return WEFT_OK;
}

static weft_status_code step_heun(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const bool unit = step->from.alpha == 1 && step->to.alpha == 1;
    if (!(step->to.sigma > 0) || !(step->from.alpha > 0 || step->from.straight))
        return step_euler(s);
    if (!step->from.straight && !unit)
        return heun_curved(s);
    float *x = s->x, *v0 = s->scratch, *v1 = v0 + s->count, *x1 = v1 + s->count;
    WEFT_TRY(direction(s, x, &step->from, step, v0));
    const float delta = (float)(step->to.sigma - step->from.sigma);
    for (int64_t i = 0; i < s->count; i++)
        x1[i] = x[i] + delta * v0[i];
    WEFT_TRY(direction(s, x1, &step->to, step, v1));
    for (int64_t i = 0; i < s->count; i++)
        x[i] += 0.5f * delta * (v0[i] + v1[i]);
    return WEFT_OK;
}

/* clang-format off */
const weft_sampler weft_sampler_euler = {"euler", "Euler, one call per step", NULL, 2, step_euler};
const weft_sampler weft_sampler_heun  = {"heun",  "Heun, two calls per step", NULL, 3, step_heun};
/* clang-format on */
const weft_sampler weft_sampler_consistency = {
    "consistency", "denoises and adds new noise, for consistency models", NULL, 2, step_stochastic};

/* Keeps the sample of the first step. */
static int one_array(const weft_solver *o)
{
    (void)o;
    return 1;
}

/* The sample of the first step takes the place of new noise. On paths with alpha 1 it is divided by
 * its deviation. */
static weft_status_code step_dmd(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *first = s->history, *data = s->scratch;
    if (s->step == 0)
        memcpy(first, s->x, (size_t)s->count * sizeof *first);
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    const double deviation = s->solver_step->from.alpha == 1 ? s->solver_step->from.sigma : 1;
    weft_sampler_state_mix(s->count, 2, (double[]){step->to.alpha, step->to.sigma / deviation},
                           (const float *[]){data, first}, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_dmd = {
    "dmd", "denoises and adds the first noise again, for distilled Helios", one_array, 1, step_dmd};

/* ---- running -------------------------------------------------------------------------------- */

const weft_sampler *const weft_samplers[] = {&weft_sampler_euler,
                                             &weft_sampler_heun,
                                             &weft_sampler_unipc,
                                             &weft_sampler_dpmpp,
                                             &weft_sampler_dpm_singlestep,
                                             &weft_sampler_euler_ancestral,
                                             &weft_sampler_lms,
                                             &weft_sampler_pndm,
                                             &weft_sampler_ddim,
                                             &weft_sampler_ddpm,
                                             &weft_sampler_lcm,
                                             &weft_sampler_consistency,
                                             &weft_sampler_dmd,
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

/* Returns the number of arrays for sorted magnitudes: 1 if data is clipped at a quantile. */
static int sorts(const weft_solver *solver)
{
    return solver->clip == WEFT_SAMPLE_CLAMP_QUANTILE;
}

int64_t weft_sampler_history_floats(const weft_sampler *sampler, const weft_solver *solver,
                                    int64_t count)
{
    return history_of(sampler, solver) * count;
}

int64_t weft_sampler_workspace_floats(const weft_sampler *sampler, const weft_solver *solver,
                                      int64_t count)
{
    return (history_of(sampler, solver) + sampler->scratch + sorts(solver)) * count;
}

static weft_status check_finite(const float *x, int64_t count, int64_t step)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return weft_error(WEFT_MSG_VALUE_NOT_FINITE, WEFT_AT(WEFT_NUMBER(x[i])),
                              "step %" PRId64 " of the sampler: element %" PRId64
                              " is not finite. Check the "
                              "weights, or lower the guidance scale.",
                              step, i);
    return WEFT_OK;
}

weft_status weft_sampler_run(const weft_sampler *sampler, const weft_solver *solver,
                             const weft_solver_step *step, int64_t steps, float *x, int64_t count,
                             int64_t each, float *work, weft_sampler_cursor *cursor,
                             const weft_sampler_callbacks *cb)
{
    const weft_sampler_cursor from = cursor ? *cursor : (weft_sampler_cursor){0};
    weft_sampler_state s = {.solver = solver,
                            .solver_step = step,
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
    for (; s.step < (from.end ? from.end : steps); s.step++) {
        WEFT_TRY(sampler->step(&s));
        WEFT_TRY(check_finite(x, count, s.step + 1));
        if (cursor)
            *cursor = (weft_sampler_cursor){s.step + 1, s.draws, s.order, from.end};
        if (cb->progress)
            WEFT_TRY(cb->progress(cb->user, s.step + 1, steps));
    }
    return WEFT_OK;
}
