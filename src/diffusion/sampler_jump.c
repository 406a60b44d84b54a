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

typedef struct back {
    double x, data, variance; /* the mean's weights; the noise's variance, least */
    double most;              /* the noise's variance if data had no deviation of its own */
} back;

/* Ho et al. 2020, eq. 7, for any alpha and sigma. */
static back step_back(const weft_level *a, const weft_level *b)
{
    const double ratio = a->alpha / b->alpha, from = a->sigma * a->sigma, to = b->sigma * b->sigma;
    const double most = fmax(from - ratio * ratio * to, 0);
    return (back){ratio * to / from, b->alpha * most / from, most * to / from, most};
}

/* The same of a table that is kept in f32, rounded as the reference rounds it: near data 1 minus
 * the ratio of neighbours has few digits, and models were judged with those. */
static back step_back_narrow(const weft_level *a, const weft_level *b)
{
    const float from = (float)(a->alpha * a->alpha), to = (float)(b->alpha * b->alpha);
    const float ratio = from / to, most = 1 - ratio, rest = 1 - from;
    return (back){(double)(sqrtf(ratio) * (1 - to) / rest), (double)(sqrtf(to) * most / rest),
                  (double)((1 - to) / rest * most), (double)most};
}

static bool preserves_variance(const weft_level *l)
{
    return fabs(l->alpha * l->alpha + l->sigma * l->sigma - 1) < 1e-9;
}

/* A step to time 0 adds no noise. */
static weft_status_code step_ddpm(weft_sampling *s)
{
    const weft_leg *leg = &s->leg[s->step];
    const weft_level *a = &leg->from, *b = &leg->to;
    const bool narrow = preserves_variance(a) && preserves_variance(b);
    const back k = narrow ? step_back_narrow(a, b) : step_back(a, b);
    const bool large = s->solver->variance == WEFT_VARIANCE_LARGE;
    const double least = 1e-20;
    float *data = s->scratch;
    WEFT_TRY(weft_sampling_denoise(s, a, data, NULL));
    weft_sampling_mix(s->count, 2, (double[]){k.x, k.data}, (const float *[]){s->x, data}, s->x);
    if (!(a->time > 0))
        return WEFT_OK;
    WEFT_TRY(weft_sampling_draw(s, data));
    weft_sampling_mix(s->count, 2, (double[]){1, sqrt(large ? k.most : fmax(k.variance, least))},
                      (const float *[]){s->x, data}, s->x);
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
