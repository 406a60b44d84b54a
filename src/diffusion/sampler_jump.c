/* Samplers that compute the next level directly from the denoised sample: DDIM, DDPM, LCM, and
 * Euler with noise of the ancestors. */
#include "diffusion/sampler_jump.h"

#include "diffusion/sampler.h"

#include <math.h>
#include <stddef.h>

/* Returns the posterior variance of x(to), given x(from) and data, as in a step of DDPM. */
static double posterior(const weft_noise_level *from, const weft_noise_level *to)
{
    const double a = from->alpha * to->sigma, b = to->alpha * from->sigma;
    if (!(b > 0))
        return 0;
    return to->sigma * to->sigma * fmax(1 - a * a / (b * b), 0);
}

/* Song et al. 2021, eq. 12: x' = alpha' data + sqrt(sigma'^2 - s^2) noise + s fresh,
 * s = eta sqrt(posterior). */
static weft_status_code step_ddim(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *a = &step->from, *b = &step->to;
    const weft_solver *o = s->solver;
    float *data = s->scratch, *whole = data + s->count;
    const double fresh = o->eta * sqrt(posterior(a, b));
    const double noise = sqrt(fmax(b->sigma * b->sigma - fresh * fresh, 0)) / a->sigma;
    WEFT_TRY(weft_sampler_state_denoise(s, a, data, whole));
    weft_sampler_state_mix(s->count, 3, (double[]){noise, b->alpha, -noise * a->alpha},
                           (const float *[]){s->x, data, o->noise_of_clipped ? data : whole}, s->x);
    if (!(o->eta > 0))
        return WEFT_OK;
    WEFT_TRY(weft_sampler_state_draw(s, data));
    weft_sampler_state_mix(s->count, 2, (double[]){1, fresh}, (const float *[]){s->x, data}, s->x);
    return WEFT_OK;
}

typedef struct back {
    double x, data;  /* weights of the mean */
    double variance; /* smallest variance of the noise */
    double most;     /* largest variance of the noise: that of data without deviation */
} back;

/* Ho et al. 2020, eq. 7, for any alpha and sigma. */
static back step_back(const weft_noise_level *a, const weft_noise_level *b)
{
    const double ratio = a->alpha / b->alpha, from = a->sigma * a->sigma, to = b->sigma * b->sigma;
    const double most = fmax(from - ratio * ratio * to, 0);
    return (back){ratio * to / from, b->alpha * most / from, most * to / from, most};
}

/* Computes the step for a table in f32, rounded like the reference. Near data, 1 minus the ratio of
 * neighbours has few digits, and the reference's results include this rounding. */
static back step_back_f32(const weft_noise_level *a, const weft_noise_level *b)
{
    const float from = (float)(a->alpha * a->alpha), to = (float)(b->alpha * b->alpha);
    const float ratio = from / to, most = 1 - ratio, rest = 1 - from;
    return (back){(double)(sqrtf(ratio) * (1 - to) / rest), (double)(sqrtf(to) * most / rest),
                  (double)((1 - to) / rest * most), (double)most};
}

static bool preserves_variance(const weft_noise_level *l)
{
    return fabs(l->alpha * l->alpha + l->sigma * l->sigma - 1) < 1e-9;
}

/* A step to time 0 adds no noise. */
static weft_status_code step_ddpm(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *a = &step->from, *b = &step->to;
    const bool in_f32 = preserves_variance(a) && preserves_variance(b);
    const back k = in_f32 ? step_back_f32(a, b) : step_back(a, b);
    const bool large = s->solver->variance == WEFT_VARIANCE_LARGE;
    const double least = 1e-20;
    float *data = s->scratch;
    WEFT_TRY(weft_sampler_state_denoise(s, a, data, NULL));
    weft_sampler_state_mix(s->count, 2, (double[]){k.x, k.data}, (const float *[]){s->x, data},
                           s->x);
    if (!(a->time > 0))
        return WEFT_OK;
    WEFT_TRY(weft_sampler_state_draw(s, data));
    weft_sampler_state_mix(s->count, 2,
                           (double[]){1, sqrt(large ? k.most : fmax(k.variance, least))},
                           (const float *[]){s->x, data}, s->x);
    return WEFT_OK;
}

/* Luo et al. 2023: the consistency function's boundary condition, then fresh noise. */
static weft_status_code step_lcm(weft_sampler_state *s)
{
    const double deviation = 0.5; /* sigma_data of the boundary condition */
    const weft_solver_step *step = &s->solver_step[s->step];
    const double time = step->from.time * s->solver->time_scale;
    const double sum = time * time + deviation * deviation;
    float *data = s->scratch;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, data, NULL));
    weft_sampler_state_mix(s->count, 2, (double[]){deviation * deviation / sum, time / sqrt(sum)},
                           (const float *[]){s->x, data}, s->x);
    if (step->last)
        return WEFT_OK;
    WEFT_TRY(weft_sampler_state_draw(s, data));
    weft_sampler_state_mix(s->count, 2, (double[]){step->to.alpha, step->to.sigma},
                           (const float *[]){s->x, data}, s->x);
    return WEFT_OK;
}

/* Goes to a level below the step's end and adds the noise that is missing there. With s =
 * sigma/alpha:
 *
 *   up^2 = s'^2 (s^2 - s'^2) / s^2,  down^2 = s'^2 - up^2
 *   x' = alpha' (data + down noise + up fresh) */
static weft_status_code step_ancestral(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *a = &step->from, *b = &step->to;
    const double from = a->sigma / a->alpha, to = b->sigma / b->alpha, ratio = to / from;
    const double up = to * sqrt(fmax(1 - ratio * ratio, 0)), down = to * ratio;
    float *data = s->scratch, *fresh = data + s->count;
    WEFT_TRY(weft_sampler_state_denoise(s, a, data, NULL));
    WEFT_TRY(weft_sampler_state_draw(s, fresh));
    const double noise = b->alpha * down / a->sigma;
    weft_sampler_state_mix(s->count, 3,
                           (double[]){noise, b->alpha - noise * a->alpha, b->alpha * up},
                           (const float *[]){s->x, data, fresh}, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_ddim = {"ddim", "DDIM; eta 1 adds the noise of DDPM, 0 none", NULL,
                                        2, step_ddim};
const weft_sampler weft_sampler_ddpm = {"ddpm", "DDPM, with new noise in every step", NULL, 1,
                                        step_ddpm};
const weft_sampler weft_sampler_lcm = {"lcm", "LCM, for models distilled to a few steps", NULL, 1,
                                       step_lcm};
const weft_sampler weft_sampler_euler_ancestral = {
    "euler_ancestral", "Euler to a lower level, with new noise in every step", NULL, 2,
    step_ancestral};
