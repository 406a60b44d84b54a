#include "diffusion/guidance.h"

#include <math.h>
#include <string.h>

double weft_guidance_scale_at(const weft_guidance_params *g)
{
    return g->boundary > 0 && g->time < g->boundary ? g->low_scale : g->scale;
}

/* `unconditional` NULL: by the weakened predictions alone. */
static void combine_cfg(const weft_guidance_params *g, float *conditional,
                        const float *unconditional, int64_t count)
{
    const float s = (float)weft_guidance_scale_at(g);
    for (int64_t i = 0; i < count; i++) {
        const float c = conditional[i];
        if (unconditional)
            conditional[i] = unconditional[i] + s * (c - unconditional[i]);
        for (int k = 0; k < WEFT_GUIDANCE_PASSES; k++)
            if (g->pass[k].prediction)
                conditional[i] += (float)g->pass[k].weight * (c - g->pass[k].prediction[i]);
    }
}

/* Combines by cfg with a scale that is larger by 1. */
static void combine_cosmos(const weft_guidance_params *g, float *conditional,
                           const float *unconditional, int64_t count)
{
    const float s = (float)weft_guidance_scale_at(g);
    for (int64_t i = 0; i < count; i++)
        conditional[i] += s * (conditional[i] - unconditional[i]);
}

/* Combines by cfg with the scale 1 + scale (1 - cos(pi done^5)) / 2. */
static void combine_at(const weft_guidance_params *g, double done, float *conditional,
                       const float *unconditional, int64_t count)
{
    const double rise = (1 - cos(M_PI * pow(done, 5))) / 2;
    const float s = (float)(1 + weft_guidance_scale_at(g) * rise);
    for (int64_t i = 0; i < count; i++)
        conditional[i] = unconditional[i] + s * (conditional[i] - unconditional[i]);
}

/* The scale rises from 1 at noise to 1 + scale at data, mostly near the end. */
static void combine_rising(const weft_guidance_params *g, float *conditional,
                           const float *unconditional, int64_t count)
{
    combine_at(g, 1 - g->time, conditional, unconditional, count);
}

/* CogVideoX's use_dynamic_cfg: its code takes the model's timestep for the step, so that the share
 * leaves 0 to 1, and the scale jumps from step to step. */
static void combine_dynamic_cfg(const weft_guidance_params *g, float *conditional,
                                const float *unconditional, int64_t count)
{
    const double steps = (double)(g->steps > 0 ? g->steps : 1);
    combine_at(g, (steps - g->timestep) / steps, conditional, unconditional, count);
}

static int64_t each_of(const weft_guidance_params *g, int64_t count)
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

/* Lin et al. 2023, eq. 15: scales a share of the guided prediction to the deviation of the
 * conditional prediction. */
static void combine_rescale(const weft_guidance_params *g, float *conditional,
                            const float *unconditional, int64_t count)
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

/* Sum of squares of the token at row y and column x of a frame. */
static double token_square(const weft_guidance_params *g, const float *frame, int64_t y, int64_t x)
{
    const int64_t width = g->size[1] * g->size[2], run = g->token[1] * g->size[2];
    double sum = 0;
    for (int64_t i = 0; i < g->token[0]; i++) {
        const float *at = frame + (y * g->token[0] + i) * width + x * run;
        sum += dot(at, at, run);
    }
    return sum;
}

static void scale_token(const weft_guidance_params *g, float *frame, int64_t y, int64_t x,
                        double factor)
{
    const int64_t width = g->size[1] * g->size[2], run = g->token[1] * g->size[2];
    for (int64_t i = 0; i < g->token[0]; i++) {
        float *at = frame + (y * g->token[0] + i) * width + x * run;
        for (int64_t k = 0; k < run; k++)
            at[k] = (float)((double)at[k] * factor);
    }
}

/* Qwen-Image: cfg, then each token has the norm of its conditional prediction. */
static void combine_cfg_norm(const weft_guidance_params *given, float *conditional,
                             const float *unconditional, int64_t count)
{
    weft_guidance_params g = *given;
    if (!g.size[0]) {
        g.size[0] = g.size[1] = g.token[0] = g.token[1] = 1;
        g.size[2] = each_of(&g, count);
    }
    const int64_t frame = g.size[0] * g.size[1] * g.size[2], rows = g.size[0] / g.token[0],
                  columns = g.size[1] / g.token[1];
    const float s = (float)weft_guidance_scale_at(&g);
    float *c = conditional;
    for (const float *u = unconditional; u < unconditional + count; u += frame, c += frame)
        for (int64_t t = 0; t < rows * columns; t++) {
            const int64_t y = t / columns, x = t % columns, run = g.token[1] * g.size[2];
            const double before = token_square(&g, c, y, x);
            for (int64_t i = 0; i < g.token[0]; i++) {
                const int64_t at = (y * g.token[0] + i) * g.size[1] * g.size[2] + x * run;
                for (int64_t k = at; k < at + run; k++)
                    c[k] = u[k] + s * (c[k] - u[k]);
            }
            const double after = token_square(&g, c, y, x);
            scale_token(&g, c, y, x, after > 0 ? sqrt(before / after) : 1);
        }
}

/* Fan et al. 2025: scales the unconditional prediction to its projection of the conditional one. */
static void combine_zero_star(const weft_guidance_params *g, float *conditional,
                              const float *unconditional, int64_t count)
{
    const int64_t each = each_of(g, count);
    const double s = weft_guidance_scale_at(g);
    for (int64_t at = 0; at < count; at += each) {
        const float *u = unconditional + at;
        float *c = conditional + at;
        const double alpha = dot(c, u, each) / (dot(u, u, each) + 1e-8);
        for (int64_t i = 0; i < each; i++)
            c[i] = (float)((g->from_conditional ? (double)c[i] : alpha * (double)u[i]) +
                           s * ((double)c[i] - alpha * (double)u[i]));
    }
}

/* Sadat et al. 2024: averages the difference with momentum and limits its norm. The part parallel
 * to the conditional prediction has the weight eta. */
static void combine_apg(const weft_guidance_params *g, float *conditional,
                        const float *unconditional, int64_t count)
{
    const int64_t each = each_of(g, count);
    const double s = weft_guidance_scale_at(g);
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
            const float base = g->from_conditional ? c[i] : u[i];
            c[i] = (float)((double)base + s * cut * (d + parallel * (double)c[i]));
        }
    }
}

/* clang-format off */
#define ROW(name, rows, takes_scale, combine, help) \
    static const weft_guidance name = {#name, help, rows, takes_scale, combine};
ROW(none,      1, false, NULL,              "conditional prediction only")
ROW(cfg,       2, false, combine_cfg,       "unconditional + scale (conditional - unconditional)")
ROW(rescale,   2, false, combine_rescale,   "cfg with the deviation of the conditional prediction")
ROW(cfg_norm,  2, false, combine_cfg_norm,  "cfg; each token has the conditional prediction's norm")
ROW(cosmos,    2, false, combine_cosmos,    "conditional + scale (conditional - unconditional)")
ROW(distilled, 1, true,  NULL,              "embedded guidance; the scale is an input of the model")
ROW(true_cfg,  2, true,  combine_cfg,       "embedded guidance, and cfg with --true-cfg-scale")
ROW(rising,    2, false, combine_rising,    "cfg; scale rises from 1 at noise to 1 + scale at data")
ROW(dynamic_cfg, 2, false, combine_dynamic_cfg, "cfg with the scale of CogVideoX's use_dynamic_cfg")
ROW(zero_star, 2, false, combine_zero_star, "CFG-Zero*: cfg with a scaled unconditional prediction")
ROW(apg,       2, false, combine_apg,       "cfg with the part orthogonal to the conditional")
/* clang-format on */

const weft_guidance *const weft_guidances[] = {&none,        &cfg,       &rescale,  &cfg_norm,
                                               &cosmos,      &distilled, &true_cfg, &rising,
                                               &dynamic_cfg, &zero_star, &apg,      NULL};

const char *weft_guidance_renamed(const char *name)
{
    return strcmp(name, "dynamic") ? NULL : "rising";
}

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
