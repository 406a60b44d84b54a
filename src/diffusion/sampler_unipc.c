/* UniPC (Zhao et al. 2023): a multistep predictor, and a corrector that uses the answer at the
 * point that was predicted, so that it costs no call of the model.
 *
 *   x' = a x + b m0 + c sum_k rho_k (m_k - m0) / r_k      r_k = (lambda_k - lambda_0) / h
 *
 * m_k are answers of k steps before; the corrector adds that of the new level, r = 1. */
#include "diffusion/sampler.h"

#include <math.h>
#include <string.h>

enum { MOST = WEFT_SOLVER_ORDER };

/* `order` answers and the corrected x of the step before. */
static int keep(const weft_solver *o)
{
    return (int)o->order + 1;
}

static float *kept(const weft_sampling *s, int64_t step)
{
    return s->history + step % s->solver->order * s->count;
}

/* a rho = b, with pivots; [n][n] in rows of MOST. */
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

/* The weights rho of `order` differences at r[]: they make the step exact for polynomials. */
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

/* From x (at leg `at`'s start) to its end, with the answers of its step and `order` - 1 before, and
 * `ahead`: that at its end (corrector; NULL: predictor), into out. */
static void update(const weft_sampling *s, int64_t at, int order, const float *ahead,
                   const float *x, const weft_level *to, float *out)
{
    const weft_solver *o = s->solver;
    const weft_level *from = &s->leg[at].from;
    const double now = weft_level_lambda(from), h = weft_level_lambda(to) - now;
    const double hh = o->of_noise ? h : -h, e = expm1(hh);
    const double base = o->form == WEFT_FORM_BH1 ? hh : e;
    const double scale = o->of_noise ? to->sigma : to->alpha;
    const double keep_x = o->of_noise ? to->alpha / from->alpha : to->sigma / from->sigma;
    double r[MOST] = {0}, rho[MOST] = {0}, term[MOST + 2] = {keep_x, -scale * e};
    const float *source[MOST + 2] = {x, kept(s, at)};
    const int past = order - 1, all = ahead ? order : past;
    int terms = 2;
    for (int k = 0; k < past; k++)
        r[k] = (weft_level_lambda(&s->leg[at - k - 1].from) - now) / h;
    r[past] = 1;
    if (all == 1) /* of second order; the reference takes a half there for both */
        rho[0] = 0.5;
    else if (all > 1)
        weigh(all, r, hh, base, rho);
    for (int k = 0; k < all; k++) {
        const double w = -scale * base * rho[k] / r[k];
        term[1] -= w;
        term[terms] = w;
        source[terms++] = k < past ? kept(s, at - k - 1) : ahead;
    }
    weft_sampling_mix(s->count, terms, term, source, out);
}

/* The answers at pure noise have no lambda: nothing is extrapolated from them. */
static int usable(const weft_sampling *s, int64_t at, int64_t order)
{
    while (order > 1 && isinf(weft_level_lambda(&s->leg[at - order + 1].from)))
        order--;
    return (int)order;
}

static weft_status_code step(weft_sampling *s)
{
    const weft_solver *o = s->solver;
    const weft_leg *leg = &s->leg[s->step];
    float *start = s->history + o->order * s->count, *answer = s->scratch;
    WEFT_TRY(weft_sampling_denoise(s, &leg->from, answer, NULL));
    if (o->of_noise)
        weft_sampling_mix(s->count, 2,
                          (double[]){1 / leg->from.sigma, -leg->from.alpha / leg->from.sigma},
                          (const float *[]){s->x, answer}, answer);
    const int64_t before = s->step - 1;
    const bool corrects =
        before >= 0 && !(before < WEFT_SOLVER_UNCORRECTED && o->uncorrected >> before & 1);
    if (corrects)
        update(s, before, (int)s->order, answer, start, &leg->from, s->x);
    memcpy(kept(s, s->step), answer, (size_t)s->count * sizeof *answer);
    memcpy(start, s->x, (size_t)s->count * sizeof *start);
    int64_t order = o->order;
    if (o->lower_at_end && s->steps - s->step < order)
        order = s->steps - s->step;
    order = order < s->step + 1 ? order : s->step + 1;
    const double h = weft_level_lambda(&leg->to) - weft_level_lambda(&leg->from);
    s->order = isfinite(h) && h != 0 ? usable(s, s->step, order) : 1;
    update(s, s->step, (int)s->order, NULL, start, &leg->to, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_unipc = {
    "unipc", "UniPC of second order, or as the model's scheduler says", keep, 1, step};
