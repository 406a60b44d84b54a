/* Linear multistep: the noise as a polynomial of s = sigma/alpha through the newest predictions,
 * integrated over the step:
 *
 *   x'/alpha' = x/alpha + sum_k c_k noise_k,   c_k = integral of the k-th Lagrange polynomial */
#include "diffusion/sampler_lms.h"

#include "diffusion/sampler.h"

#include <math.h>
#include <stddef.h>

static int history_arrays(const weft_solver *o)
{
    return (int)o->lms_order;
}

static float *history_slot(const weft_sampler_state *s, int64_t ago)
{
    const int64_t slots = s->solver->lms_order;
    return s->history + (s->step - ago + slots) % slots * s->count;
}

static double ratio_of(const weft_noise_level *l)
{
    return l->sigma / l->alpha;
}

/* Returns the integral of the Lagrange polynomial that is 1 at node[k], by Gauss' rule of three
 * points: exact up to degree 5. */
static double integral(const double *node, int64_t nodes, int64_t k, double from, double to)
{
    static const double at[3] = {-0.77459666924148337704, 0, 0.77459666924148337704};
    static const double weight[3] = {5. / 9, 8. / 9, 5. / 9};
    const double middle = (from + to) / 2, half = (to - from) / 2;
    double sum = 0;
    for (int p = 0; p < 3; p++) {
        double value = 1;
        for (int64_t j = 0; j < nodes; j++)
            if (j != k)
                value *= (middle + half * at[p] - node[j]) / (node[k] - node[j]);
        sum += weight[p] * value;
    }
    return half * sum;
}

static weft_status_code step_lms(weft_sampler_state *s)
{
    const weft_solver_step *step = &s->solver_step[s->step];
    const weft_noise_level *a = &step->from, *b = &step->to;
    double node[WEFT_SOLVER_ORDER], scale[WEFT_SOLVER_ORDER + 1];
    const float *source[WEFT_SOLVER_ORDER + 1] = {s->x};
    float *newest = history_slot(s, 0), *data = s->scratch;
    WEFT_TRY(weft_sampler_state_denoise(s, a, data, NULL));
    weft_sampler_state_mix(s->count, 2, (double[]){1 / a->sigma, -a->alpha / a->sigma},
                           (const float *[]){s->x, data}, newest);
    if (!(a->alpha > 0)) { /* pure noise: s is infinite */
        weft_sampler_state_mix(s->count, 2, (double[]){b->alpha, b->sigma},
                               (const float *[]){data, newest}, s->x);
        return WEFT_OK;
    }
    int64_t order = s->solver->lms_order < s->step + 1 ? s->solver->lms_order : s->step + 1;
    while (order > 1 && !(step[1 - order].from.alpha > 0))
        order--;
    for (int64_t k = 0; k < order; k++)
        node[k] = ratio_of(&step[-k].from);
    scale[0] = b->alpha / a->alpha;
    for (int64_t k = 0; k < order; k++) {
        scale[k + 1] = b->alpha * integral(node, order, k, node[0], ratio_of(b));
        source[k + 1] = history_slot(s, k);
    }
    weft_sampler_state_mix(s->count, (int)order + 1, scale, source, s->x);
    return WEFT_OK;
}

const weft_sampler weft_sampler_lms = {"lms", "linear multistep of fourth order", history_arrays, 1,
                                       step_lms};
