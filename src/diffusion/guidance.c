#include "diffusion/guidance.h"

#include <math.h>
#include <string.h>

double weft_guiding_scale(const weft_guiding *g)
{
    return g->boundary > 0 && g->time < g->boundary ? g->low_scale : g->scale;
}

static void combine_cfg(const weft_guiding *g, float *conditional, const float *unconditional,
                        int64_t count)
{
    const float s = (float)weft_guiding_scale(g);
    for (int64_t i = 0; i < count; i++)
        conditional[i] = unconditional[i] + s * (conditional[i] - unconditional[i]);
}

/* One more than cfg's scale. */
static void combine_cosmos(const weft_guiding *g, float *conditional, const float *unconditional,
                           int64_t count)
{
    const float s = (float)weft_guiding_scale(g);
    for (int64_t i = 0; i < count; i++)
        conditional[i] += s * (conditional[i] - unconditional[i]);
}

/* From 1 at noise to 1 + scale at data, late. CogVideoX's code puts the training time where its
 * formula means the step; that is left out. */
static void combine_dynamic(const weft_guiding *g, float *conditional, const float *unconditional,
                            int64_t count)
{
    const double done = 1 - g->time, rise = (1 - cos(M_PI * pow(done, 5))) / 2;
    const float s = (float)(1 + weft_guiding_scale(g) * rise);
    for (int64_t i = 0; i < count; i++)
        conditional[i] = unconditional[i] + s * (conditional[i] - unconditional[i]);
}

static int64_t each_of(const weft_guiding *g, int64_t count)
{
    return g->each > 0 ? g->each : count;
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double deviation(const float *x, int64_t count)
{
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < count; i++)
        mean += (double)x[i];
    mean /= (double)count;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sqrt(sum / (double)(count > 1 ? count - 1 : 1));
}

/* Lin et al. 2023, eq. 15: a share of the answer with the deviation that it has unguided. */
static void combine_rescale(const weft_guiding *g, float *conditional, const float *unconditional,
                            int64_t count)
{
    const int64_t each = each_of(g, count);
    for (int64_t at = 0; at < count; at += each) {
        const double before = deviation(conditional + at, each);
        combine_cfg(g, conditional + at, unconditional + at, each);
        const double after = deviation(conditional + at, each);
        const double f = after > 0 ? g->rescale * before / after + 1 - g->rescale : 1;
        for (int64_t i = at; i < at + each; i++)
            conditional[i] *= (float)f;
    }
}

/* Fan et al. 2025: the unconditional answer as long as it explains the conditional one. */
static void combine_zero_star(const weft_guiding *g, float *conditional, const float *unconditional,
                              int64_t count)
{
    const int64_t each = each_of(g, count);
    const double s = weft_guiding_scale(g);
    for (int64_t at = 0; at < count; at += each) {
        const float *u = unconditional + at;
        float *c = conditional + at;
        const double alpha = dot(c, u, each) / (dot(u, u, each) + 1e-8);
        for (int64_t i = 0; i < each; i++)
            c[i] = (float)((1 - s) * alpha * (double)u[i] + s * (double)c[i]);
    }
}

/* Sadat et al. 2024: the difference is averaged with momentum, cut, and mostly what is orthogonal
 * to the conditional answer is used. */
static void combine_apg(const weft_guiding *g, float *conditional, const float *unconditional,
                        int64_t count)
{
    const int64_t each = each_of(g, count);
    const double s = weft_guiding_scale(g);
    for (int64_t at = 0; at < count; at += each) {
        const float *u = unconditional + at;
        float *c = conditional + at, *average = g->average ? g->average + at : NULL;
        double norm = 0, along = 0, own = dot(c, c, each);
        for (int64_t i = 0; i < each; i++) {
            double d = (double)c[i] - (double)u[i];
            if (average)
                d = (double)(average[i] = (float)(d + g->momentum * (double)average[i]));
            norm += d * d;
            along += d * (double)c[i];
        }
        const double cut = g->most > 0 ? fmin(1, g->most / sqrt(norm)) : 1;
        const double parallel = own > 0 ? (g->eta - 1) * along / own : 0;
        for (int64_t i = 0; i < each; i++) {
            const double d = average ? (double)average[i] : (double)c[i] - (double)u[i];
            c[i] = (float)((double)u[i] + s * cut * (d + parallel * (double)c[i]));
        }
    }
}

/* clang-format off */
#define ROW(name, help, rows, told, combine) \
    static const weft_guidance name = {#name, help, rows, told, combine};
ROW(none,      "the conditional answer alone", 1, false, NULL)
ROW(cfg,       "unconditional + scale (conditional - unconditional)", 2, false, combine_cfg)
ROW(rescale,   "cfg, brought back to the conditional answer's deviation", 2, false, combine_rescale)
ROW(cosmos,    "conditional + scale (conditional - unconditional)", 2, false, combine_cosmos)
ROW(distilled, "the model is told the scale; one call", 1, true,  NULL)
ROW(dynamic,   "cfg whose scale rises from 1 to 1 + scale towards data", 2, false, combine_dynamic)
ROW(zero_star, "cfg with the unconditional answer fitted to the other", 2, false, combine_zero_star)
ROW(apg,       "cfg by what is orthogonal to the conditional answer", 2, false, combine_apg)
/* clang-format on */

const weft_guidance *const weft_guidances[] = {&none,    &cfg,       &rescale, &cosmos, &distilled,
                                               &dynamic, &zero_star, &apg,     NULL};

const weft_guidance *weft_guidance_find(const char *name)
{
    for (int i = 0; weft_guidances[i]; i++)
        if (!strcmp(weft_guidances[i]->name, name))
            return weft_guidances[i];
    return NULL;
}

const weft_guidance *weft_guidance_of(double scale)
{
    return scale == 1 ? &none : &cfg;
}
