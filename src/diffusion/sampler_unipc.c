/* UniPC (Zhao et al. 2023): a multistep predictor, and a corrector that uses the prediction at the
 * predicted point, so that it needs no further call of the model.
 *
 *   x' = a x + b m0 + c sum_k rho_k (m_k - m0) / r_k      r_k = (lambda_k - lambda_0) / h
 *
 * m_k is the model's output k steps before. The corrector adds the output at the new level, with
 * r = 1. */
#include "diffusion/sampler_unipc.h"

#include "diffusion/sampler.h"

#include <math.h>
#include <string.h>

enum { MOST = WEFT_SOLVER_ORDER };

/* Returns the number of history arrays: `order` predictions, and the corrected x of the previous
 * step. */
static int history_arrays(const weft_solver *o)
{
    return (int)o->order + 1;
}

static float *history_slot(const weft_sampler_state *s, int64_t step)
{
    return s->history + step % s->solver->order * s->count;
}

/* Solves a rho = b with pivoting. `a` has [n][n] elements in rows of MOST. */
static void solve(int n, double a[MOST][MOST], double *b, double *rho)
{
    for (int k = 0; k < n; k++) {
        int best = k;
        for (int i = k + 1; i < n; i++)
            best = fabs(a[i][k]) > fabs(a[best][k]) ? i : best;
        for (int j = 0; j < n; j++) {
            const double t = a[k][j];
            a[k][j] = a[best][j];
            a[best][j] = t;
        }
        const double t = b[k];
        b[k] = b[best];
        b[best] = t;
        for (int i = k + 1; i < n; i++) {
            const double f = a[i][k] / a[k][k];
            for (int j = k; j < n; j++)
                a[i][j] -= f * a[k][j];
            b[i] -= f * b[k];
        }
    }
    for (int k = n - 1; k >= 0; k--) {
        rho[k] = b[k];
        for (int j = k + 1; j < n; j++)
            rho[k] -= a[k][j] * rho[j];
        rho[k] /= a[k][k];
    }
}

/* Computes the weights rho of `order` differences at r[], which make the step exact for
 * polynomials. */
static void weigh(int order, const double *r, double hh, double base, double *rho)
{
    double a[MOST][MOST] = {{0}}, b[MOST], factorial = 1, phi = expm1(hh) / hh - 1;
    for (int i = 0; i < order; i++) {
        for (int k = 0; k < order; k++)
            a[i][k] = pow(r[k], i);
        b[i] = phi * factorial / base;
        factorial *= i + 2;
        phi = phi / hh - 1 / factorial;
    }
    solve(order, a, b, rho);
}

/* Integrates solver step `at` from x to `out`, with the outputs of this step and the `order` - 1
 * steps before. `next`: the output at the end of the step (corrector); NULL: predictor. */
static void update(const weft_sampler_state *s, int64_t at, int order, const float *next,
                   const float *x, const weft_noise_level *to, float *out)
{
    const weft_solver *o = s->solver;
    const weft_noise_level *from = &s->solver_step[at].from;
    const double now = weft_noise_level_lambda(from), h = weft_noise_level_lambda(to) - now;
    const double hh = o->of_noise ? h : -h, e = expm1(hh);
    const double base = o->form == WEFT_SOLVER_BH1 ? hh : e;
    const double scale = o->of_noise ? to->sigma : to->alpha;
    const double x_scale = o->of_noise ? to->alpha / from->alpha : to->sigma / from->sigma;
    double r[MOST] = {0}, rho[MOST] = {0}, term[MOST + 2] = {x_scale, -scale * e};
    const float *source[MOST + 2] = {x, history_slot(s, at)};
    const int past = order - 1, all = next ? order : past;
    int terms = 2;
    for (int k = 0; k < past; k++)
        r[k] = (weft_noise_level_lambda(&s->solver_step[at - k - 1].from) - now) / h;
    r[past] = 1;
    if (all == 1) /* second order; the reference uses 1/2 for predictor and corrector */
        rho[0] = 0.5;
    else if (all > 1)
        weigh(all, r, hh, base, rho);
    for (int k = 0; k < all; k++) {
        const double w = -scale * base * rho[k] / r[k];
        term[1] -= w;
        term[terms] = w;
        source[terms++] = k < past ? history_slot(s, at - k - 1) : next;
    }
    weft_sampler_state_mix(s->count, terms, term, source, out);
}

/* Returns the usable order. A prediction at pure noise has no lambda, so it is not extrapolated. */
static int usable(const weft_sampler_state *s, int64_t at, int64_t order)
{
    while (order > 1 && isinf(weft_noise_level_lambda(&s->solver_step[at - order + 1].from)))
        order--;
    return (int)order;
}

static weft_status_code step_unipc(weft_sampler_state *s)
{
    const weft_solver *o = s->solver;
    const weft_solver_step *step = &s->solver_step[s->step];
    float *start = s->history + o->order * s->count, *prediction = s->scratch;
    WEFT_TRY(weft_sampler_state_denoise(s, &step->from, prediction, NULL));
    if (o->of_noise)
        weft_sampler_state_mix(
            s->count, 2, (double[]){1 / step->from.sigma, -step->from.alpha / step->from.sigma},
            (const float *[]){s->x, prediction}, prediction);
    const int64_t before = s->step - 1;
    const bool corrects =
        before >= 0 && !(before < WEFT_SOLVER_UNCORRECTED && o->uncorrected >> before & 1);
    if (corrects)
        update(s, before, (int)s->order, prediction, start, &step->from, s->x);
    memcpy(history_slot(s, s->step), prediction, (size_t)s->count * sizeof *prediction);
    memcpy(start, s->x, (size_t)s->count * sizeof *start);
    int64_t order = o->order;
    if (o->lower_at_end && s->steps - s->step < order)
        order = s->steps - s->step;
    order = order < s->step + 1 ? order : s->step + 1;
    const double h = weft_noise_level_lambda(&step->to) - weft_noise_level_lambda(&step->from);
    s->order = isfinite(h) && h != 0 ? usable(s, s->step, order) : 1;
    update(s, s->step, (int)s->order, NULL, start, &step->to, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_unipc = {
    "unipc", "UniPC; second order, or the order of the model's scheduler", history_arrays, 1,
    step_unipc};
