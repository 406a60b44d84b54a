#include "diffusion/betas.h"

#include <math.h>
#include <stddef.h>

const char *const weft_betas_names[] = {"linear",  "scaled_linear", "squaredcos_cap_v2",
                                        "sigmoid", "laplace",       NULL};

static double cosine(double t)
{
    const double c = cos((t + 0.008) / 1.008 * M_PI / 2);
    return c * c;
}

static double laplace(double t)
{
    const double half = 0.5 - t;
    const double log_snr = -0.5 * copysign(1, half) * log(1 - 2 * fabs(half) + 1e-6);
    return sqrt(exp(log_snr) / (1 + exp(log_snr)));
}

/* Returns step i of `count` even steps from a to b, computed from the nearer end, rounded once. */
static float between(double a, double b, int64_t i, int64_t count)
{
    const float from = (float)a, to = (float)b;
    const float step = count > 1 ? (to - from) / (float)(count - 1) : 0;
    return i < count / 2 ? fmaf(step, (float)i, from) : fmaf(-step, (float)(count - 1 - i), to);
}

static double between_f64(double a, double b, int64_t i, int64_t count)
{
    const double step = count > 1 ? (b - a) / (double)(count - 1) : 0;
    return i < count / 2 ? fma(step, (double)i, a) : fma(-step, (double)(count - 1 - i), b);
}

static double beta_at(const weft_betas_config *c, int64_t i)
{
    double (*const bar)(double) = c->schedule == WEFT_BETAS_COSINE ? cosine : laplace;
    const double n = (double)c->times;
    if (c->listed)
        return (double)c->trained[i];
    switch (c->schedule) {
    case WEFT_BETAS_LINEAR: return (double)between(c->start, c->end, i, c->times);
    case WEFT_BETAS_SCALED_LINEAR: {
        if (c->direct) {
            const double root = between_f64(sqrt(c->start), sqrt(c->end), i, c->times);
            return root * root;
        }
        const float root = between(sqrt(c->start), sqrt(c->end), i, c->times);
        return (double)(root * root);
    }
    case WEFT_BETAS_SIGMOID: {
        const float s = 1 / (1 + expf(-between(-6, 6, i, c->times)));
        return (double)(s * (float)(c->end - c->start) + (float)c->start);
    }
    default: return (double)(float)fmin(1 - bar((double)(i + 1) / n) / bar((double)i / n), 0.999);
    }
}

/* Returns true if the table is computed in f64: the square roots of CogVideoX only. */
static bool is_wide(const weft_betas_config *c)
{
    return c->direct && !c->listed && c->schedule == WEFT_BETAS_SCALED_LINEAR;
}

static void shift_snr(const weft_betas_config *c, double *bar)
{
    const float scale = (float)c->snr_scale, rest = 1 - scale;
    for (int64_t i = 0; i < c->times && c->snr_scale != 1; i++) {
        const float b = (float)bar[i];
        bar[i] = is_wide(c) ? bar[i] / (c->snr_scale + (1 - c->snr_scale) * bar[i])
                            : (double)(b / (scale + rest * b));
    }
}

/* Shifts sqrt(alpha_bar) so that its last value is 0, and scales it so that its first value is
 * unchanged (Lin et al. 2023, algorithm 1). */
static void to_zero_snr(const weft_betas_config *c, double *bar)
{
    const int64_t last = c->times - 1;
    const double first = sqrt(bar[0]), end = sqrt(bar[last]), stretch = first / (first - end);
    const float first_f = sqrtf((float)bar[0]), end_f = sqrtf((float)bar[last]);
    const float stretch_f = first_f / (first_f - end_f);
    for (int64_t i = 0; i <= last; i++) {
        const double root = (sqrt(bar[i]) - end) * stretch;
        const float root_f = (sqrtf((float)bar[i]) - end_f) * stretch_f;
        bar[i] = is_wide(c) ? root * root : (double)(root_f * root_f);
    }
}

/* Computes the running product of 1 - beta in f64 and rounds the stored values to f32. */
static void accumulate(const weft_betas_config *c, const double *beta, double *bar)
{
    double product = 1;
    for (int64_t i = 0; i < c->times; i++) {
        product *= is_wide(c) ? 1 - beta[i] : (double)(1 - (float)beta[i]);
        bar[i] = is_wide(c) ? product : (double)(float)product;
    }
}

void weft_betas_table(const weft_betas_config *c, double *bar, double *beta)
{
    const int64_t n = c->times;
    double *b = beta ? beta : bar;
    for (int64_t i = 0; i < n; i++)
        b[i] = beta_at(c, i);
    accumulate(c, b, bar);
    shift_snr(c, bar);
    if (!c->zero_snr)
        return;
    to_zero_snr(c, bar);
    if (c->direct)
        return;
    float before = 1; /* repeats the conversion to betas and their product, for its rounding */
    for (int64_t i = 0; i < n; i++) {
        const float now = (float)bar[i];
        b[i] = (double)(1 - now / before);
        before = now;
    }
    accumulate(c, b, bar);
    if (c->floor > 0)
        bar[n - 1] = c->floor;
}
