/* Spacing of the noise levels, and the levels of each path. */
#include "diffusion/scheduler_space.h"

#include "diffusion/sampler_multistep.h"
#include "diffusion/sampler_singlestep.h"
#include "diffusion/scheduler_levels.h"

#include <math.h>

static double part(int64_t i, int64_t count)
{
    return count > 1 ? (double)i / (double)(count - 1) : 0;
}

void weft_space_karras(double high, double low, double rho, int64_t count, double *sigma)
{
    const double from = pow(high, 1 / rho), to = pow(low, 1 / rho);
    for (int64_t i = 0; i < count; i++)
        sigma[i] = pow(from + part(i, count) * (to - from), rho);
}

void weft_space_exponential(double high, double low, int64_t count, double *sigma)
{
    for (int64_t i = 0; i < count; i++)
        sigma[i] = exp(log(high) + part(i, count) * (log(low) - log(high)));
}

/* Returns the continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), f = d;
    for (int m = 1; m < 300; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        f *= d * c;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-15)
            break;
    }
    return f;
}

/* Returns the cumulative distribution of Beta(a, b) at x. */
static double beta_share(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x > 0;
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

static double beta_quantile(double a, double b, double share)
{
    double low = 0, high = 1;
    for (int i = 0; i < 200 && high - low > 1e-16 * high; i++) {
        const double middle = (low + high) / 2;
        *(beta_share(a, b, middle) < share ? &low : &high) = middle;
    }
    return share >= 1 ? 1 : (low + high) / 2;
}

void weft_space_beta(double high, double low, int64_t count, double *sigma)
{
    for (int64_t i = 0; i < count; i++)
        sigma[i] = low + beta_quantile(0.6, 0.6, 1 - part(i, count)) * (high - low);
}

bool weft_space(const weft_scheduler *s, double high, double low, int64_t count, double *sigma)
{
    const double rho = 7;
    if (s->karras)
        weft_space_karras(high, low, rho, count, sigma);
    if (s->exponential || s->lu)
        weft_space_exponential(high, low, count, sigma);
    if (s->beta)
        weft_space_beta(high, low, count, sigma);
    return s->karras || s->exponential || s->lu || s->beta;
}

bool weft_scheduler_is_dpm(const weft_scheduler *s)
{
    return s->kind && (s->kind->sampler == &weft_sampler_dpmpp ||
                       s->kind->sampler == &weft_sampler_dpm_singlestep);
}

double weft_scheduler_shift(const weft_scheduler *s, double mu, double sigma)
{
    const double shift = !s->by_resolution ? s->shift : s->shift_is_mu ? mu : exp(mu);
    if (!s->by_resolution ||
        weft_scheduler_is_dpm(s)) /* equal functions with the rounding of each class */
        return shift * sigma / (1 + (shift - 1) * sigma);
    return shift / (shift + (1 / sigma - 1));
}

weft_status weft_stretch_sigmas(const weft_scheduler *s, int64_t count, double *sigma)
{
    if (!(sigma[count - 1] < 1))
        return weft_error(WEFT_MSG_SAMPLING_INVALID,
                          WEFT_AT(.key = "shift_terminal", WEFT_NUMBER(count)),
                          "the last noise level of %" PRId64
                          " is %g, and only levels below 1 can be stretched to end at %g. Use at "
                          "least 2 steps.",
                          count, sigma[count - 1], s->terminal);
    const double scale = (1 - sigma[count - 1]) / (1 - s->terminal);
    for (int64_t i = 0; i < count; i++)
        sigma[i] = 1 - (1 - sigma[i]) / scale;
    return WEFT_OK;
}

/* ---- levels --------------------------------------------------------------------------------- */

static void predict(const weft_scheduler *s, weft_noise_level *l)
{
    switch (s->prediction) {
    case WEFT_PREDICT_NOISE:
        l->skip = 1 / l->alpha;
        l->out = -l->sigma / l->alpha;
        break;
    case WEFT_PREDICT_V:
        l->skip = l->alpha;
        l->out = -l->sigma;
        break;
    case WEFT_PREDICT_DATA:
        l->skip = 0;
        l->out = 1;
        break;
    default:
        l->skip = 1;
        l->out = -l->sigma;
        l->straight = 1;
    }
}

weft_noise_level weft_noise_level_vp(const weft_scheduler *s, double alpha, double sigma,
                                     double time)
{
    weft_noise_level l = {.alpha = alpha, .sigma = sigma, .in = 1, .time = time};
    predict(s, &l);
    return l;
}

weft_noise_level weft_noise_level_flow(const weft_scheduler *s, double sigma, double time)
{
    if (s->path == WEFT_PATH_FLOW_EDM) { /* x is (1 + sigma) times the straight path's */
        const double t = sigma / (sigma + 1);
        return (weft_noise_level){
            .alpha = 1, .sigma = sigma, .in = 1 - t, .time = t, .skip = 1 - t, .out = -t};
    }
    if (s->inverted) /* the model's time and prediction grow towards data */
        return (weft_noise_level){.alpha = 1 - sigma,
                                  .sigma = sigma,
                                  .in = 1,
                                  .time = time,
                                  .skip = 1,
                                  .out = sigma,
                                  .straight = -1};
    weft_noise_level l = {.alpha = 1 - sigma, .sigma = sigma, .in = 1, .time = time};
    predict(s, &l);
    return l;
}

weft_noise_level weft_noise_level_ve(const weft_scheduler *s, double sigma, double time)
{
    const double scale = 1 / sqrt(sigma * sigma + 1);
    weft_noise_level l = {.alpha = 1, .sigma = sigma, .in = scale, .time = time};
    predict(s, &l);
    if (s->prediction == WEFT_PREDICT_NOISE)
        l.straight = 1;
    if (s->prediction == WEFT_PREDICT_V) { /* v of the scaled input */
        l.skip = scale * scale;
        l.out = -sigma * scale;
    }
    return l;
}

weft_noise_level weft_noise_level_edm(const weft_scheduler *s, double sigma)
{
    const double data = s->sigma_data, sum = sigma * sigma + data * data;
    const double sign = s->prediction == WEFT_PREDICT_V ? -1 : 1;
    return (weft_noise_level){.alpha = 1,
                              .sigma = sigma,
                              .in = 1 / sqrt(sum),
                              .time = 0.25 * log(sigma),
                              .skip = data * data / sum,
                              .out = sign * sigma * data / sqrt(sum)};
}

weft_noise_level weft_scheduler_level(const weft_scheduler *s, double alpha, double sigma)
{
    if (s->path == WEFT_PATH_EDM)
        return weft_noise_level_edm(s, sigma);
    if (s->path == WEFT_PATH_VE)
        return weft_noise_level_ve(s, sigma, 0);
    return s->path == WEFT_PATH_VP ? weft_noise_level_vp(s, alpha, sigma, 0)
                                   : weft_noise_level_flow(s, sigma, 0);
}
