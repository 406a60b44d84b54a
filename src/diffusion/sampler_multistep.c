/* Multistep samplers: DPM-Solver and DPM-Solver++ (Lu et al. 2022), their stochastic variants, and
 * the sampler of CogVideoX. All are exponential integrators in lambda = ln(alpha / sigma):
 *
 *   of data    x' = (sigma'/sigma) x + alpha' sum_k w_k(h) D_k,    h = lambda' - lambda
 *   of noise   x' = (alpha'/alpha) x + sigma' sum_k w_k(h) D_k
 *
 * D_0 is the newest prediction, D_1 and D_2 are its first and second differences over lambda. */
#include "diffusion/sampler_multistep.h"

#include "diffusion/sampler.h"

#include <math.h>
#include <stddef.h>

static int history_by_order(const weft_solver *o)
{
    return (int)o->order;
}

/* Returns the history slot of the prediction `ago` steps before, in a ring of `slots` slots. */
static float *history_slot(const weft_sampler_state *s, int64_t slots, int64_t ago)
{
    return s->history + (s->step - ago + slots * 2) % slots * s->count;
}

static int64_t order_of(const weft_sampler_state *s)
{
    const weft_solver *o = s->solver;
    const int64_t left = s->steps - s->step;
    const bool few = s->steps < 15 && o->lower_at_end;
    int64_t order = o->order < s->step + 1 ? o->order : s->step + 1;
    if (left == 1 && (o->euler_at_end || few || o->ends_at_zero))
        order = 1;
    if (left == 2 && few && order > 2)
        order = 2;
    /* predictions at pure noise, and steps that end at data, allow no extrapolation */
    while (order > 1 && isinf(weft_noise_level_lambda(&s->solver_step[s->step - order + 1].from)))
        order--;
    const double h = weft_noise_level_lambda(&s->solver_step[s->step].to) -
                     weft_noise_level_lambda(&s->solver_step[s->step].from);
    return isfinite(h) && h != 0 ? order : 1;
}

weft_dpm_weights weft_dpm_weigh(const weft_solver *o, const weft_noise_level *a,
                                const weft_noise_level *b, int64_t order)
{
    const double h = weft_noise_level_lambda(b) - weft_noise_level_lambda(a);
    const double e = exp(-h), h2 = 2 * h;
    const bool heun = o->form == WEFT_SOLVER_HEUN || order > 2;
    if (!o->of_noise && !o->stochastic) {
        const double first = b->alpha * -expm1(-h), second = b->alpha * (expm1(-h) / h + 1);
        return (weft_dpm_weights){
            b->sigma / a->sigma,
            0,
            {first, heun ? second : first / 2, -b->alpha * ((expm1(-h) + h) / (h * h) - 0.5)}};
    }
    if (!o->of_noise) {
        const double first = b->alpha * -expm1(-h2), second = b->alpha * (expm1(-h2) / h2 + 1);
        return (weft_dpm_weights){
            b->sigma / a->sigma * e,
            b->sigma * sqrt(fmax(-expm1(-h2), 0)),
            {first, heun ? second : first / 2, b->alpha * ((-expm1(-h2) - h2) / (h2 * h2) - 0.5)}};
    }
    const double first = -b->sigma * expm1(h), second = -b->sigma * (expm1(h) / h - 1);
    const double twice = o->stochastic ? 2 : 1;
    return (weft_dpm_weights){b->alpha / a->alpha,
                              o->stochastic ? b->sigma * sqrt(fmax(expm1(h2), 0)) : 0,
                              {twice * first, twice * (heun ? second : first / 2),
                               -b->sigma * ((expm1(h) - h) / (h * h) - 0.5)}};
}

/* Computes x' from the newest `order` predictions. */
static weft_status_code advance(weft_sampler_state *s, int64_t order)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const double now = weft_noise_level_lambda(&step->from);
    const double h = weft_noise_level_lambda(&step->to) - now;
    const weft_dpm_weights w = weft_dpm_weigh(s->solver, &step->from, &step->to, order);
    double scale[5] = {w.x, w.d[0]};
    if (order > 1) {
        const double h0 = now - weft_noise_level_lambda(&step[-1].from), r0 = h0 / h;
        double d1 = w.d[1], d2 = 0; /* weights of (m0 - m1) / r0 and of m1 - m2 */
        if (order > 2) {
            const double h1 = now - h0 - weft_noise_level_lambda(&step[-2].from), r1 = h1 / h;
            /* D1 = a + r0 / (r0 + r1) (a - b), D2 = (a - b) / (r0 + r1) */
            const double slant = (w.d[1] * r0 + w.d[2]) / (r0 + r1);
            d1 += slant;
            d2 = -slant / r1;
        }
        d1 /= r0;
        scale[1] += d1;
        scale[2] = d2 - d1;
        scale[3] = -d2;
    }
    const float *from[5] = {s->x};
    for (int64_t k = 0; k < order; k++)
        from[1 + k] = history_slot(s, s->solver->order, k);
    int terms = 1 + (int)order;
    if (s->solver->stochastic) {
        WEFT_TRY(weft_sampler_state_draw(s, s->scratch));
        scale[terms] = w.noise;
        from[terms++] = s->scratch;
    }
    weft_sampler_state_mix(s->count, terms, scale, from, s->x);
    return WEFT_OK;
}

static weft_status_code step_dpmpp(weft_sampler_state *s)
{
    const weft_noise_level *a = &s->solver_step[s->step].from;
    float *newest = history_slot(s, s->solver->order, 0);
    WEFT_TRY(weft_sampler_state_denoise(s, a, newest, NULL));
    if (s->solver->of_noise)
        weft_sampler_state_mix(s->count, 2, (double[]){1 / a->sigma, -a->alpha / a->sigma},
                               (const float *[]){s->x, newest}, newest);
    return advance(s, order_of(s));
}

/* Runs a stochastic step of second order. A last step that reaches data is of first order. The
 * reference draws noise twice in a step of second order and uses the second draw. */
static weft_status_code step_cogvideox(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const double now = weft_noise_level_lambda(&step->from),
                 h = weft_noise_level_lambda(&step->to) - now;
    float *data = history_slot(s, 2, 0), *fresh = s->scratch;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    const bool second = s->step > 0 && !step->last;
    s->draws += second;
    WEFT_TRY(weft_sampler_state_draw(s, fresh));
    const double gain = step->to.alpha * -expm1(-2 * h);
    const double back = second ? h / (now - weft_noise_level_lambda(&step[-1].from)) / 2 : 0;
    weft_sampler_state_mix(s->count, second ? 4 : 3,
                           (double[]){step->to.sigma / step->from.sigma * exp(-h),
                                      step->to.sigma * sqrt(fmax(-expm1(-2 * h), 0)),
                                      gain * (1 + back), -gain * back},
                           (const float *[]){s->x, fresh, data, history_slot(s, 2, 1)}, s->x);
    return WEFT_OK;
}

static int history_two(const weft_solver *o)
{
    (void)o;
    return 2;
}

const weft_sampler weft_sampler_dpmpp = {
    "dpmpp", "DPM-Solver++ 2M, or the variant and order of the model's scheduler", history_by_order,
    1, step_dpmpp};
const weft_sampler weft_sampler_cogvideox_dpm = {
    "cogvideox_dpm", "stochastic DPM of second order (CogVideoX)", history_two, 1, step_cogvideox};
