/* DPM-Solver in groups of steps (Lu et al. 2022): a group begins with a step of first order. Each
 * further step of the group starts again at the group's first x, with one more prediction. */
#include "diffusion/sampler_singlestep.h"

#include "diffusion/sampler.h"
#include "diffusion/sampler_multistep.h"

#include <math.h>
#include <string.h>

enum { MOST = 3 };

/* Returns the number of history arrays: the predictions of a group, and its first x. */
static int history_arrays(const weft_solver *o)
{
    (void)o;
    return MOST + 1;
}

/* Returns the order of a step: 1, 2, ..., repeated. The last steps may be of lower order. */
static int64_t order_of(const weft_sampler_state *s)
{
    const weft_solver *o = s->solver;
    const int64_t order = o->order < MOST ? o->order : MOST, steps = s->steps, at = s->step;
    const bool lower = o->lower_at_end || steps % order || o->ends_at_zero;
    if (at == steps - 1 && o->ends_at_zero)
        return 1;
    if (lower && steps % order == 0 && at >= steps - order) /* 1, 2, ..., 1 in place of 1, 2, 3 */
        return at == steps - 1 ? 1 : at - (steps - order) + 1;
    return at % order + 1;
}

static bool is_finite(const weft_noise_level *l)
{
    return isfinite(weft_noise_level_lambda(l));
}

/* Returns the order that the levels allow: predictions at pure noise, and steps that end at data,
 * are not extrapolated. */
static int64_t usable(const weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const int64_t order = order_of(s);
    for (int64_t k = 0; k < order; k++)
        if (!is_finite(&step[-k].from) || !is_finite(&step->to))
            return 1;
    return order;
}

/* Adds the weights of the differences of the group's predictions m[0], m[1], ... to scale[]. */
static void differ(const weft_sampler_state *s, const weft_dpm_weights *w, int64_t order,
                   double *scale)
{
    const weft_solver_step *first = &s->solver_step[s->step - order + 1];
    const double start = weft_noise_level_lambda(&first->from),
                 h = weft_noise_level_lambda(&s->solver_step[s->step].to) - start;
    const double r1 = (weft_noise_level_lambda(&first[1].from) - start) / h;
    if (order == 2) {
        scale[0] -= w->d[1] / r1;
        scale[1] += w->d[1] / r1;
        return;
    }
    const double r0 = (weft_noise_level_lambda(&first[2].from) - start) / h;
    double of_1 = 0, of_2 = w->d[1]; /* weights of (m1 - m0) / r1 and of (m2 - m0) / r0 */
    if (s->solver->form == WEFT_SOLVER_HEUN) {
        of_1 = (w->d[1] * r0 - 2 * w->d[2]) / (r0 - r1);
        of_2 = (2 * w->d[2] - w->d[1] * r1) / (r0 - r1);
    }
    scale[0] -= of_1 / r1 + of_2 / r0;
    scale[1] += of_1 / r1;
    scale[2] += of_2 / r0;
}

static weft_status_code step_singlestep(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *at = &step->from;
    float *start = s->history + MOST * s->count, *fresh = s->scratch;
    const int64_t order = usable(s);
    float *newest = s->history + (order - 1) * s->count;
    WEFT_TRY(weft_sampler_state_denoise(s, at, newest, NULL));
    if (s->solver->of_noise)
        weft_sampler_state_mix(s->count, 2, (double[]){1 / at->sigma, -at->alpha / at->sigma},
                               (const float *[]){s->x, newest}, newest);
    if (order == 1)
        memcpy(start, s->x, (size_t)s->count * sizeof *start);
    const weft_dpm_weights w = weft_dpm_weigh(s->solver, &step[1 - order].from, &step->to, order);
    double scale[MOST + 2] = {w.x, w.d[0]};
    const float *source[MOST + 2] = {start};
    for (int64_t k = 0; k < order; k++)
        source[k + 1] = s->history + k * s->count;
    if (order > 1)
        differ(s, &w, order, scale + 1);
    int terms = (int)order + 1;
    if (s->solver->stochastic) {
        WEFT_TRY(weft_sampler_state_draw(s, fresh));
        scale[terms] = w.noise;
        source[terms++] = fresh;
    }
    weft_sampler_state_mix(s->count, terms, scale, source, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_dpm_singlestep = {
    "dpm_singlestep", "DPM-Solver++ in groups of steps; two, or the order of the scheduler",
    history_arrays, 1, step_singlestep};
