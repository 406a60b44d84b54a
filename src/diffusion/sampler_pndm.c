/* PNDM (Liu et al. 2022): DDIM's jump between two levels with a combination of the newest
 * predictions (Adams-Bashforth). Three Runge-Kutta steps, or one repeated step, come first. */
#include "diffusion/sampler_pndm.h"

#include "diffusion/sampler.h"

#include <stddef.h>

enum { PAST = 4, WARM_UP = 3 };

static int history_arrays(const weft_solver *o)
{
    (void)o;
    return PAST;
}

static float *history_slot(const weft_sampler_state *s, int64_t ago)
{
    return s->history + (s->step - ago + PAST) % PAST * s->count;
}

static weft_status_code predict(weft_sampler_state *s, const float *x,
                                const weft_noise_level *level, float *prediction)
{
    return s->callbacks->predict(s->callbacks->user, s->step, x, level, prediction);
}

/* Moves from x to another level with constant data and noise, as `prediction` has them. */
static void jump(const weft_sampler_state *s, const weft_noise_level *from,
                 const weft_noise_level *to, const float *prediction, float *out)
{
    const double noise = to->sigma / from->sigma, data = to->alpha - noise * from->alpha;
    weft_sampler_state_mix(s->count, 2, (double[]){noise + data * from->skip, data * from->out},
                           (const float *[]){s->x, prediction}, out);
}

static const weft_noise_level *either(const weft_noise_level *own, const weft_noise_level *other)
{
    return own->in > 0 ? own : other;
}

/* Runs a step of the classic Runge-Kutta method. It keeps the first of its predictions. */
static weft_status_code runge_kutta(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *from = &step->from, *half = either(&step->half, &step->mid);
    float *first = history_slot(s, 0), *x = s->scratch, *next = x + s->count,
          *sum = next + s->count;
    WEFT_TRY(predict(s, s->x, from, first));
    jump(s, from, either(&step->jump, half), first, x);
    WEFT_TRY(predict(s, x, half, next));
    weft_sampler_state_mix(s->count, 2, (double[]){1. / 6, 1. / 3}, (const float *[]){first, next},
                           sum);
    jump(s, from, half, next, x);
    WEFT_TRY(predict(s, x, half, next));
    weft_sampler_state_mix(s->count, 2, (double[]){1, 1. / 3}, (const float *[]){sum, next}, sum);
    jump(s, from, &step->to, next, x);
    WEFT_TRY(predict(s, x, &step->to, next));
    weft_sampler_state_mix(s->count, 2, (double[]){1, 1. / 6}, (const float *[]){sum, next}, sum);
    jump(s, from, &step->to, sum, s->x);
    return WEFT_OK;
}

/* Runs the first step twice, the second time with the mean of the predictions at both ends. */
static weft_status_code repeat(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *first = history_slot(s, 0), *x = s->scratch, *next = x + s->count;
    WEFT_TRY(predict(s, s->x, &step->from, first));
    if (s->steps == 1) {
        jump(s, &step->from, &step->to, first, s->x);
        return WEFT_OK;
    }
    jump(s, &step->from, either(&step->jump, &step->to), first, x);
    WEFT_TRY(predict(s, x, &step->to, next));
    weft_sampler_state_mix(s->count, 2, (double[]){0.5, 0.5}, (const float *[]){first, next}, next);
    jump(s, either(&step->again, &step->from), &step->to, next, s->x);
    return WEFT_OK;
}

static weft_status_code step_pndm(weft_sampler_state *s)
{
    static const double weights[PAST][PAST] = {{1},
                                               {3. / 2, -1. / 2},
                                               {23. / 12, -16. / 12, 5. / 12},
                                               {55. / 24, -59. / 24, 37. / 24, -9. / 24}};
    const weft_solver_step *step = &s->solver_step[s->step];
    if (!s->solver->skips_prk && s->step < WARM_UP)
        return runge_kutta(s);
    if (s->step == 0)
        return repeat(s);
    const float *past[PAST];
    const int order = s->step + 1 < PAST ? (int)s->step + 1 : PAST;
    WEFT_TRY(predict(s, s->x, &step->from, history_slot(s, 0)));
    for (int k = 0; k < order; k++)
        past[k] = history_slot(s, k);
    weft_sampler_state_mix(s->count, order, weights[order - 1], past, s->scratch);
    jump(s, &step->from, &step->to, s->scratch, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_pndm = {
    "pndm", "PNDM: DDIM with a combination of the last four predictions", history_arrays, 3,
    step_pndm};
