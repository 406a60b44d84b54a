/* Cosmos' exponential integrators of second order over what is denoised. With dt the step in lambda
 * and m another point at c dt (before the step, or in its middle):
 *
 *   x' = (sigma'/sigma) x + alpha' dt (b1 data + b2 data_m)
 *   b2 = phi2(-dt) / c,  b1 = phi1(-dt) - b2,  phi1(z) = (e^z - 1)/z,  phi2(z) = (phi1(z) - 1)/z */
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

/* The line of constant data and noise from x. */
static void jump(const weft_sampling *s, const weft_level *a, const weft_level *b, const float *x,
                 const float *data, float *out)
{
    const double keep = b->sigma / a->sigma;
    weft_sampling_mix(s->count, 2, (double[]){keep, b->alpha - keep * a->alpha},
                      (const float *[]){x, data}, out);
}

static void second(const weft_sampling *s, const weft_leg *leg, const weft_level *other,
                   const float *x, const float *data, const float *data_m)
{
    const double now = weft_level_lambda(&leg->from), dt = weft_level_lambda(&leg->to) - now;
    const double b2 = phi2(-dt) * dt / (weft_level_lambda(other) - now), b1 = phi1(-dt) - b2;
    const double gain = leg->to.alpha * dt;
    weft_sampling_mix(s->count, 3,
                      (double[]){leg->to.sigma / leg->from.sigma, gain * b1, gain * b2},
                      (const float *[]){x, data, data_m}, s->x);
}

/* Nothing to integrate over: from pure noise, to data, or nowhere. */
static bool ends(const weft_leg *leg)
{
    const double dt = weft_level_lambda(&leg->to) - weft_level_lambda(&leg->from);
    return !isfinite(dt) || dt == 0;
}

static weft_status_code step_2ab(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    float *data = s->history + s->step % 2 * s->count;
    const float *before = s->history + (s->step + 1) % 2 * s->count;
    WEFT_TRY(weft_sampling_denoise(s, &leg->from, data, NULL));
    if (s->step == 0 || ends(leg) || isinf(weft_level_lambda(&leg[-1].from)))
        jump(s, &leg->from, &leg->to, s->x, data, s->x);
    else
        second(s, leg, &leg[-1].from, s->x, data, before);
    return WEFT_OK;
}

static weft_status_code step_2mid(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    float *data = s->scratch, *middle = data + s->count, *start = middle + s->count;
    WEFT_TRY(weft_sampling_denoise(s, &leg->from, data, NULL));
    if (ends(leg)) {
        jump(s, &leg->from, &leg->to, s->x, data, s->x);
        return WEFT_OK;
    }
    memcpy(start, s->x, (size_t)s->count * sizeof *start);
    jump(s, &leg->from, &leg->mid, start, data, s->x);
    WEFT_TRY(weft_sampling_denoise(s, &leg->mid, middle, NULL));
    second(s, leg, &leg->mid, start, data, middle);
    return WEFT_OK;
}

static int keep_two(const weft_solver *o)
{
    (void)o;
    return 2;
}

const weft_sampler weft_sampler_res_2ab = {"res_2ab", "Cosmos' multistep of second order", keep_two,
                                           0, step_2ab};
const weft_sampler weft_sampler_res_2mid = {"res_2mid", "Cosmos' midpoint: two model calls a step",
                                            NULL, 3, step_2mid};
