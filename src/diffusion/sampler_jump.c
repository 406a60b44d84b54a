/* Samplers that go from what is denoised straight to the next level: DDIM, DDPM, LCM. */
#include "diffusion/sampler.h"

#include <math.h>
#include <stddef.h>

/* Variance of x(to) where x(from) and data are known: of DDPM's step back. */
static double posterior(const weft_level *from, const weft_level *to)
{
    const double a = from->alpha * to->sigma, b = to->alpha * from->sigma;
    if (!(b > 0))
        return 0;
    return to->sigma * to->sigma * fmax(1 - a * a / (b * b), 0);
}

/* Song et al. 2021, eq. 12: x' = alpha' data + sqrt(sigma'^2 - s^2) noise + s fresh,
 * s = eta sqrt(posterior). */
static weft_status_code step_ddim(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    const weft_level *a = &leg->from, *b = &leg->to;
    const weft_solver *o = s->solver;
    float *data = s->scratch, *whole = data + s->count;
    const double fresh = o->eta * sqrt(posterior(a, b));
    const double noise = sqrt(fmax(b->sigma * b->sigma - fresh * fresh, 0)) / a->sigma;
    WEFT_TRY(weft_sampling_denoise(s, a, data, whole));
    weft_sampling_mix(s->count, 3, (double[]){noise, b->alpha, -noise * a->alpha},
                      (const float *[]){s->x, data, o->noise_of_clipped ? data : whole}, s->x);
    if (!(o->eta > 0))
        return WEFT_OK;
    WEFT_TRY(weft_sampling_draw(s, data));
    weft_sampling_mix(s->count, 2, (double[]){1, fresh}, (const float *[]){s->x, data}, s->x);
    return WEFT_OK;
}

/* Ho et al. 2020, eq. 7, for any alpha and sigma. A step to time 0 adds no noise. */
static weft_status_code step_ddpm(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    const weft_level *a = &leg->from, *b = &leg->to;
    const double least = 1e-20, ratio = a->alpha / b->alpha, from = a->sigma * a->sigma;
    const double step = fmax(from - ratio * ratio * b->sigma * b->sigma, 0); /* of one step ahead */
    float *data = s->scratch;
    double variance = fmax(step * b->sigma * b->sigma / from, least);
    if (s->solver->variance == WEFT_VARIANCE_LARGE)
        variance = step;
    WEFT_TRY(weft_sampling_denoise(s, a, data, NULL));
    weft_sampling_mix(s->count, 2,
                      (double[]){ratio * b->sigma * b->sigma / from, b->alpha * step / from},
                      (const float *[]){s->x, data}, s->x);
    if (!(a->time > 0))
        return WEFT_OK;
    WEFT_TRY(weft_sampling_draw(s, data));
    weft_sampling_mix(s->count, 2, (double[]){1, sqrt(variance)}, (const float *[]){s->x, data},
                      s->x);
    return WEFT_OK;
}

/* Luo et al. 2023: the consistency function's boundary condition, then noise anew. */
static weft_status_code step_lcm(weft_sampling *s)
{
    const double deviation = 0.5; /* sigma_data of the boundary condition */
    const weft_leg *leg = &s->leg[s->step];
    const double time = leg->from.time * s->solver->time_scale;
    const double sum = time * time + deviation * deviation;
    float *data = s->scratch;
    WEFT_TRY(weft_sampling_denoise(s, &leg->from, data, NULL));
    weft_sampling_mix(s->count, 2, (double[]){deviation * deviation / sum, time / sqrt(sum)},
                      (const float *[]){s->x, data}, s->x);
    if (leg->last)
        return WEFT_OK;
    WEFT_TRY(weft_sampling_draw(s, data));
    weft_sampling_mix(s->count, 2, (double[]){leg->to.alpha, leg->to.sigma},
                      (const float *[]){s->x, data}, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_ddim = {"ddim", "straight to the next level; eta adds noise", NULL,
                                        2, step_ddim};
const weft_sampler weft_sampler_ddpm = {"ddpm", "the noising backwards, with noise in every step",
                                        NULL, 1, step_ddpm};
const weft_sampler weft_sampler_lcm = {"lcm", "for models distilled to a few steps", NULL, 1,
                                       step_lcm};
