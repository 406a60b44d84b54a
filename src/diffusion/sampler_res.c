/* Cosmos' exponential integrators of second order over the denoised sample. dt is the step in
 * lambda, m another point at c dt (before the step, or in its middle):
 *
 *   x' = (sigma'/sigma) x + alpha' dt (b1 data + b2 data_m)
 *   b2 = phi2(-dt) / c,  b1 = phi1(-dt) - b2,  phi1(z) = (e^z - 1)/z,  phi2(z) = (phi1(z) - 1)/z */
#include "diffusion/sampler_res.h"

#include "diffusion/sampler.h"

#include <math.h>
#include <string.h>

static double phi1(double z)
{
    return expm1(z) / z;
}

static double phi2(double z)
{
    return (phi1(z) - 1) / z;
}

/* Moves from x to another level with constant data and noise. */
static void jump(const weft_sampler_state *s, const weft_noise_level *a, const weft_noise_level *b,
                 const float *x, const float *data, float *out)
{
    const double ratio = b->sigma / a->sigma;
    weft_sampler_state_mix(s->count, 2, (double[]){ratio, b->alpha - ratio * a->alpha},
                           (const float *[]){x, data}, out);
}

static void second(const weft_sampler_state *s, const weft_solver_step *step,
                   const weft_noise_level *other, const float *x, const float *data,
                   const float *data_m)
{
    const double now = weft_noise_level_lambda(&step->from),
                 dt = weft_noise_level_lambda(&step->to) - now;
    const double b2 = phi2(-dt) * dt / (weft_noise_level_lambda(other) - now), b1 = phi1(-dt) - b2;
    const double gain = step->to.alpha * dt;
    weft_sampler_state_mix(s->count, 3,
                           (double[]){step->to.sigma / step->from.sigma, gain * b1, gain * b2},
                           (const float *[]){x, data, data_m}, s->x);
}

/* Returns true if the step has a zero or infinite length in lambda: the step starts at pure noise,
 * ends at data, or does not move. */
static bool ends(const weft_solver_step *step)
{
    const double dt = weft_noise_level_lambda(&step->to) - weft_noise_level_lambda(&step->from);
    return !isfinite(dt) || dt == 0;
}

static weft_status_code step_2ab(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *data = s->history + s->step % 2 * s->count;
    const float *before = s->history + (s->step + 1) % 2 * s->count;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    if (s->step == 0 || ends(step) || isinf(weft_noise_level_lambda(&step[-1].from)))
        jump(s, &step->from, &step->to, s->x, data, s->x);
    else
        second(s, step, &step[-1].from, s->x, data, before);
    return WEFT_OK;
}

static weft_status_code step_2mid(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    float *data = s->scratch, *middle = data + s->count, *start = middle + s->count;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    if (ends(step)) {
        jump(s, &step->from, &step->to, s->x, data, s->x);
        return WEFT_OK;
    }
    memcpy(start, s->x, (size_t)s->count * sizeof *start);
    jump(s, &step->from, &step->mid, start, data, s->x);
    WEFT_TRY(weft_sampler_state_denoise(s, &step->mid, middle, NULL));
    second(s, step, &step->mid, start, data, middle);
    return WEFT_OK;
}

static int history_two(const weft_solver *o)
{
    (void)o;
    return 2;
}

const weft_sampler weft_sampler_res_2ab = {"res_2ab", "RES multistep of second order (Cosmos)",
                                           history_two, 0, step_2ab};
const weft_sampler weft_sampler_res_2mid = {
    "res_2mid", "RES midpoint of second order (Cosmos); two model calls per step", NULL, 3,
    step_2mid};
