/* weft parity of formulas: betas, targets and loss weights of training, EDM coefficients, draws and
 * shifts of flow, guidance. Every tensor of the file belongs to one row or is an input. */
#include "parity/parity_formulas.h"

#include "base/config.h"
#include "diffusion/guidance.h"
#include "diffusion/process.h"
#include "diffusion/scheduler.h"
#include "diffusion/scheduler_space.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "parity/parity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-5;

/* A golden tensor in its layout, in f64. */
typedef struct numbers {
    double *at;
    int64_t count, each; /* each: elements of one sample */
} numbers;

static weft_status numbers_of(const weft_parity *p, const char *name, numbers *out)
{
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, name, &t));
    float *f32 = weft_alloc(t->count * 4);
    out->at = weft_alloc(t->count * 8 + 8);
    if (!f32 || !out->at) {
        weft_free(f32);
        return weft_no_memory("%s: \"%s\"", p->file, name);
    }
    weft_tensor_to_f32(t, f32);
    for (int64_t i = 0; i < t->count; i++)
        out->at[i] = (double)f32[i];
    if (t->dtype == WEFT_F64)
        memcpy(out->at, t->data, (size_t)t->count * 8);
    weft_free(f32);
    out->count = t->count;
    out->each = t->rank > 0 && t->dim[0] > 0 ? t->count / t->dim[0] : t->count;
    return WEFT_OK;
}

/* Settings that the rows read from the JSON. */
typedef struct settings {
    weft_betas_config betas;
    weft_noise_process_config noise_process;
    weft_guidance_params guidance;
} settings;

typedef struct formula {
    const char *name; /* tensor's name, or its prefix if `numbered` */
    bool numbered;    /* the name ends with the argument */
    const char *in;   /* input tensor; the result has its length */
    /* Computes out[in.count]. `number`: from the name; `rest`: the text after the number. */
    weft_status (*make)(const weft_parity *p, const settings *s, const numbers *in, double number,
                        const char *rest, double *out);
} formula;

/* ---- betas ---------------------------------------------------------------------------------- */

enum { BETAS, BAR, BETAS_ZERO, BAR_ZERO, BAR_DIRECT };

static weft_status table(const settings *s, int which, double *out)
{
    weft_betas_config c = s->betas;
    double *other;
    WEFT_TRY(WEFT_NEW(other, c.times, "the comparison"));
    const bool betas = which == BETAS || which == BETAS_ZERO;
    c.zero_snr = which != BETAS && which != BAR;
    c.direct = which == BAR_DIRECT;
    weft_betas_table(&c, betas ? other : out, betas ? out : NULL);
    weft_free(other);
    return WEFT_OK;
}

#define TABLE(function, which)                                                                     \
    static weft_status function(const weft_parity *p, const settings *s, const numbers *in,        \
                                double number, const char *rest, double *out)                      \
    {                                                                                              \
        (void)p, (void)number, (void)rest;                                                         \
        if (in->count != s->betas.times)                                                           \
            return weft_error(                                                                     \
                WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, WEFT_NUMBER(in->count)),           \
                "the file has %" PRId64 " betas, but num_train_timesteps is %" PRId64, in->count,  \
                s->betas.times);                                                                   \
        return table(s, which, out);                                                               \
    }
TABLE(make_betas, BETAS)
TABLE(make_bar, BAR)
TABLE(make_betas_zero, BETAS_ZERO)
TABLE(make_bar_zero, BAR_ZERO)
TABLE(make_bar_direct, BAR_DIRECT)

/* ---- targets -------------------------------------------------------------------------------- */

/* Computes alpha^2 at each of target.timesteps. */
static weft_status bars_of(const weft_parity *p, const settings *s, double **bar, int64_t *count)
{
    numbers times = {0};
    double *all = weft_calloc(s->betas.times, sizeof *all);
    weft_status_code status = WEFT_OK;
    WEFT_GO(numbers_of(p, "target.timesteps", &times));
    if (!all)
        WEFT_GO(weft_no_memory("the comparison"));
    WEFT_GO(table(s, BAR, all));
    for (int64_t i = 0; i < times.count; i++) {
        if (!(times.at[i] >= 0 && times.at[i] < (double)s->betas.times))
            WEFT_GO(weft_error(
                WEFT_MSG_FORMAT_DAMAGED,
                WEFT_AT(.file = p->file, .key = "target.timesteps", WEFT_NUMBER(times.at[i])),
                "%g is not a timestep from 0 to %" PRId64, times.at[i], s->betas.times - 1));
        else
            times.at[i] = all[(int64_t)times.at[i]];
    }
out:
    weft_free(all);
    *bar = times.at;
    *count = times.count;
    return status;
}

static weft_status make_snr(const weft_parity *p, const settings *s, const numbers *in,
                            double number, const char *rest, double *out)
{
    double *bar = NULL;
    int64_t count;
    (void)number, (void)rest;
    weft_status_code status = WEFT_OK;
    WEFT_GO(bars_of(p, s, &bar, &count));
    for (int64_t i = 0; i < count && i < in->count; i++)
        out[i] = bar[i] / (1 - bar[i]);
out:
    weft_free(bar);
    return status;
}

/* min_snr.gamma5.epsilon */
static weft_status make_min_snr(const weft_parity *p, const settings *s, const numbers *in,
                                double gamma, const char *rest, double *out)
{
    static const char *const kinds[] = {"epsilon", "v_prediction", "sample"};
    /* sscanf may have read the point as part of the number */
    const char *kind = rest + (rest[0] == '.');
    WEFT_TRY(make_snr(p, s, in, 0, "", out));
    for (int k = 0; k < WEFT_COUNT(kinds); k++)
        if (!strcmp(kind, kinds[k])) {
            for (int64_t i = 0; i < in->count; i++)
                out[i] = weft_ddpm_weight(k, gamma, out[i]);
            return WEFT_OK;
        }
    return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->file, .value = kind),
                      "weft has no min_snr weight for the prediction '%.80s'", kind);
}

/* Runs the training graph of a noise process: the model's input, or the target. */
static weft_status run_noise_process(const weft_parity *p, const weft_noise_process *noise_process,
                                     const weft_noise_process_config *config, const char *prefix,
                                     const double *alpha, const double *sigma, bool target,
                                     double *out)
{
    char name[64];
    numbers data = {0}, noise = {0};
    weft_graph *g = weft_graph_create();
    weft_program *program = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(g, "the comparison"));
    snprintf(name, sizeof name, "%s.x0", prefix);
    WEFT_GO(numbers_of(p, name, &data));
    snprintf(name, sizeof name, "%s.noise", prefix);
    WEFT_GO(numbers_of(p, name, &noise));
    const int64_t batch = data.count / data.each;
    const weft_shape shape = WEFT_SHAPE(batch, data.each);
    const weft_value x = weft_input(g, "data", WEFT_F32, shape),
                     n = weft_input(g, "noise", WEFT_F32, shape);
    const weft_noised noise_level = {.alpha = weft_input(g, "alpha", WEFT_F32, WEFT_SHAPE(batch)),
                                     .sigma = weft_input(g, "sigma", WEFT_F32, WEFT_SHAPE(batch)),
                                     .weight = WEFT_NONE};
    const weft_value made = target ? noise_process->target(g, config, x, n, &noise_level)
                                   : noise_process->input(g, config, x, n, &noise_level);
    weft_output(g, "made", weft_affine(g, made, 1, 0));
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = p->backend}, &program));
    WEFT_GO(weft_program_bind(program, NULL, NULL));
    for (int64_t i = 0; i < data.count && data.count == noise.count; i++) {
        ((float *)weft_program_input(program, "data")->data)[i] = (float)data.at[i];
        ((float *)weft_program_input(program, "noise")->data)[i] = (float)noise.at[i];
    }
    for (int64_t b = 0; b < batch; b++) {
        ((float *)weft_program_input(program, "alpha")->data)[b] = (float)alpha[b];
        ((float *)weft_program_input(program, "sigma")->data)[b] = (float)sigma[b];
    }
    WEFT_GO(weft_program_run(program));
    for (int64_t i = 0; i < data.count; i++)
        out[i] = (double)((const float *)weft_program_output(program, "made")->data)[i];
out:
    weft_free(data.at);
    weft_free(noise.at);
    weft_program_free(program);
    weft_graph_free(g);
    return status;
}

static weft_status ddpm(const weft_parity *p, const settings *s, int prediction, bool target,
                        double *out)
{
    weft_noise_process_config config = s->noise_process;
    double *bar = NULL, *sigma = NULL;
    int64_t count = 0;
    config.ddpm.prediction = prediction;
    weft_status_code status = WEFT_OK;
    WEFT_GO(bars_of(p, s, &bar, &count));
    if (!(sigma = weft_calloc(count, sizeof *sigma)))
        WEFT_GO(weft_no_memory("the comparison"));
    for (int64_t i = 0; i < count; i++) {
        sigma[i] = sqrt(1 - bar[i]);
        bar[i] = sqrt(bar[i]);
    }
    WEFT_GO(
        run_noise_process(p, &weft_noise_process_ddpm, &config, "target", bar, sigma, target, out));
out:
    weft_free(bar);
    weft_free(sigma);
    return status;
}

static weft_status make_noisy(const weft_parity *p, const settings *s, const numbers *in,
                              double number, const char *rest, double *out)
{
    (void)in, (void)number, (void)rest;
    return ddpm(p, s, WEFT_DDPM_NOISE, false, out);
}

static weft_status make_v(const weft_parity *p, const settings *s, const numbers *in, double number,
                          const char *rest, double *out)
{
    (void)in, (void)number, (void)rest;
    return ddpm(p, s, WEFT_DDPM_V, true, out);
}

/* Computes data, or the noise, from the model's output with the coefficients of the level. */
static weft_status from_prediction(const weft_parity *p, const settings *s, const numbers *in,
                                   int prediction, const char *key, bool noise, double *out)
{
    double *bar = NULL;
    int64_t count = 0;
    numbers predicted = {0}, x = {0};
    const weft_scheduler scheduler = {.path = WEFT_PATH_VP, .prediction = prediction};
    weft_status_code status = WEFT_OK;
    WEFT_GO(bars_of(p, s, &bar, &count));
    WEFT_GO(numbers_of(p, key, &predicted));
    WEFT_GO(numbers_of(p, "target.noisy", &x));
    if (predicted.count != in->count || x.count != in->count || count * in->each != in->count)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE,
                           WEFT_AT(.file = p->file, .key = key, WEFT_NUMBER(predicted.count)),
                           "the tensor has %" PRId64 " elements, \"target.noisy\" has %" PRId64
                           ", and the target %" PRId64,
                           predicted.count, x.count, in->count));
    for (int64_t i = 0; i < in->count; i++) {
        const double b = bar[i / in->each];
        const weft_noise_level l = weft_scheduler_level(&scheduler, sqrt(b), sqrt(1 - b));
        const double data = l.skip * x.at[i] + l.out * predicted.at[i];
        out[i] = noise ? (x.at[i] - l.alpha * data) / l.sigma : data;
    }
out:
    weft_free(bar);
    weft_free(predicted.at);
    weft_free(x.at);
    return status;
}

static weft_status make_x0_from_noise(const weft_parity *p, const settings *s, const numbers *in,
                                      double number, const char *rest, double *out)
{
    (void)number, (void)rest;
    return from_prediction(p, s, in, WEFT_PREDICT_NOISE, "target.noise", false, out);
}

static weft_status make_x0_from_v(const weft_parity *p, const settings *s, const numbers *in,
                                  double number, const char *rest, double *out)
{
    (void)number, (void)rest;
    return from_prediction(p, s, in, WEFT_PREDICT_V, "target.v", false, out);
}

static weft_status make_noise_from_v(const weft_parity *p, const settings *s, const numbers *in,
                                     double number, const char *rest, double *out)
{
    (void)number, (void)rest;
    return from_prediction(p, s, in, WEFT_PREDICT_V, "target.v", true, out);
}

/* ---- EDM and flow --------------------------------------------------------------------------- */

#define EACH(function, expression)                                                                 \
    static weft_status function(const weft_parity *p, const settings *s, const numbers *in,        \
                                double number, const char *rest, double *out)                      \
    {                                                                                              \
        (void)p, (void)s, (void)number, (void)rest;                                                \
        for (int64_t i = 0; i < in->count; i++) {                                                  \
            const double x = in->at[i];                                                            \
            out[i] = (expression);                                                                 \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }

static weft_noise_level edm_noise_level(const settings *s, double sigma)
{
    const weft_scheduler c = {.path = WEFT_PATH_EDM, .sigma_data = s->noise_process.edm.sigma_data};
    return weft_scheduler_level(&c, 1, sigma);
}

/* Weight of the denoised sample's error if the model output's error has weight 1. */
static double edm_weight(const settings *s, double sigma)
{
    const double out = edm_noise_level(s, sigma).out;
    return 1 / (out * out);
}

static double normal_quantile(double u)
{
    double low = -40, high = 40;
    for (int i = 0; i < 200; i++) {
        const double middle = (low + high) / 2;
        *(0.5 * erfc(-middle / sqrt(2)) < u ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

static double flow_draw(const settings *s, int times, double scale, double u)
{
    weft_flow_config c = s->noise_process.flow;
    c.times = times;
    c.mode_scale = scale;
    return weft_flow_draw(&c, u);
}

static double plain_sigmoid(double x)
{
    const weft_flow_config c = {.times = WEFT_FLOW_LOGIT_NORMAL, .logit_std = 1};
    return weft_flow_draw(&c, x);
}

/* Returns `u` shifted by `mu`, as in a scheduler with a resolution-dependent shift. */
static double mu_shift(double mu, double u)
{
    const weft_scheduler c = {.by_resolution = true};
    return weft_scheduler_shift(&c, mu, u);
}

/* clang-format off */
EACH(make_c_in,      edm_noise_level(s, x).in)
EACH(make_c_skip,    edm_noise_level(s, x).skip)
EACH(make_c_out,     edm_noise_level(s, x).out)
EACH(make_c_noise,   edm_noise_level(s, x).time)
EACH(make_edm_weight, edm_weight(s, x))
EACH(make_sigma_of_u,
     exp(s->noise_process.edm.p_mean + s->noise_process.edm.p_std * normal_quantile(x)))
EACH(make_logit,     plain_sigmoid(x))
EACH(make_logit_scaled, flow_draw(s, WEFT_FLOW_LOGIT_NORMAL, 0, x))
EACH(make_mode,      flow_draw(s, WEFT_FLOW_MODE, number, x))
EACH(make_shift,     weft_flow_shift(number, x))
EACH(make_mu,        mu_shift(number / 5, x))
EACH(make_root,      weft_flow_weight(WEFT_FLOW_SIGMA_SQRT, x))
EACH(make_cosmap,    weft_flow_weight(WEFT_FLOW_COSMAP, x))
/* clang-format on */

static weft_status flow(const weft_parity *p, const settings *s, bool target, double *out)
{
    numbers sigma = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(numbers_of(p, "flow.sigma", &sigma));
    WEFT_GO(run_noise_process(p, &weft_noise_process_flow, &s->noise_process, "flow", sigma.at,
                              sigma.at, target, out));
out:
    weft_free(sigma.at);
    return status;
}

static weft_status make_x_t(const weft_parity *p, const settings *s, const numbers *in,
                            double number, const char *rest, double *out)
{
    (void)in, (void)number, (void)rest;
    return flow(p, s, false, out);
}

static weft_status make_flow_target(const weft_parity *p, const settings *s, const numbers *in,
                                    double number, const char *rest, double *out)
{
    (void)in, (void)number, (void)rest;
    return flow(p, s, true, out);
}

/* ---- guidance ------------------------------------------------------------------------------- */

typedef struct guided {
    float *c, *u, *average;
    int64_t count, each;
} guided;

static void free_guided(guided *g)
{
    weft_free(g->c);
    weft_free(g->u);
    weft_free(g->average);
}

static weft_status pair_of(const weft_parity *p, const char *suffix, guided *g)
{
    char name[64];
    numbers c = {0}, u = {0};
    weft_status_code status = WEFT_OK;
    snprintf(name, sizeof name, "guide.cond%s", suffix);
    WEFT_GO(numbers_of(p, name, &c));
    snprintf(name, sizeof name, "guide.uncond%s", suffix);
    WEFT_GO(numbers_of(p, name, &u));
    g->count = c.count;
    g->each = c.each;
    g->c = weft_alloc(c.count * 4);
    g->u = weft_alloc(c.count * 4);
    g->average = g->average ? g->average : weft_alloc(c.count * 4);
    if (!g->c || !g->u || !g->average || c.count != u.count)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = name),
                           "the tensor has %" PRId64
                           " elements, and its counterpart with condition %" PRId64,
                           u.count, c.count));
    for (int64_t i = 0; i < c.count; i++) {
        g->c[i] = (float)c.at[i];
        g->u[i] = (float)u.at[i];
    }
out:
    weft_free(c.at);
    weft_free(u.at);
    return status;
}

/* `twice`: compares the second of two steps, which uses the momentum average of the first. */
static weft_status apply_guidance(const weft_parity *p, const settings *s, const char *row,
                                  bool twice, bool averages, double *out)
{
    guided g = {0};
    weft_guidance_params how = s->guidance;
    weft_status_code status = WEFT_OK;
    WEFT_GO(pair_of(p, "", &g));
    for (int step = 0; step <= twice; step++) {
        if (step) {
            weft_free(g.c);
            weft_free(g.u);
            g.c = g.u = NULL;
            WEFT_GO(pair_of(p, "_2", &g));
        }
        how.each = g.each;
        how.average = averages ? g.average : NULL;
        weft_guidance_find(row)->combine(&how, g.c, g.u, g.count);
    }
    for (int64_t i = 0; i < g.count; i++)
        out[i] = (double)g.c[i];
out:
    free_guided(&g);
    return status;
}

#define GUIDE(function, row, twice, averages)                                                      \
    static weft_status function(const weft_parity *p, const settings *s, const numbers *in,        \
                                double number, const char *rest, double *out)                      \
    {                                                                                              \
        (void)in, (void)number, (void)rest;                                                        \
        return apply_guidance(p, s, row, twice, averages, out);                                    \
    }
GUIDE(make_cfg, "cfg", false, false)
GUIDE(make_rescaled, "rescale", false, false)
GUIDE(make_apg, "apg", false, true)
GUIDE(make_apg_2, "apg", true, true)
GUIDE(make_zero_star, "zero_star", false, false)

/* Computes APG in the form that starts from the conditional output, without momentum. */
static weft_status make_apg_original(const weft_parity *p, const settings *s, const numbers *in,
                                     double number, const char *rest, double *out)
{
    guided g = {0};
    (void)number, (void)rest;
    WEFT_TRY(apply_guidance(p, s, "apg", false, false, out));
    weft_status_code status = WEFT_OK;
    WEFT_GO(pair_of(p, "", &g));
    for (int64_t i = 0; i < in->count; i++)
        out[i] += (double)g.c[i] - (double)g.u[i];
out:
    free_guided(&g);
    return status;
}

/* Computes zero_star's factor of the unconditional output: the result at scale 0 divided by the
 * unconditional output. */
static weft_status make_zero_star_alpha(const weft_parity *p, const settings *s, const numbers *in,
                                        double number, const char *rest, double *out)
{
    guided g = {0};
    weft_guidance_params how = s->guidance;
    (void)number, (void)rest;
    weft_status_code status = WEFT_OK;
    WEFT_GO(pair_of(p, "", &g));
    how.scale = 0;
    how.each = g.each;
    weft_guidance_find("zero_star")->combine(&how, g.c, g.u, g.count);
    for (int64_t b = 0; b < in->count && b < g.count / g.each; b++)
        out[b] = (double)g.c[b * g.each] / (double)g.u[b * g.each];
out:
    free_guided(&g);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
static const formula formulas[] = {
    {"ddpm.betas",                            false, NULL,          make_betas},
    {"ddpm.alphas_cumprod",                   false, NULL,          make_bar},
    {"ddpm.betas_zero_terminal_snr",          false, NULL,          make_betas_zero},
    {"ddpm.alphas_cumprod_zero_terminal_snr", false, NULL,          make_bar_zero},
    {"ddpm.alphas_cumprod_rescaled_directly", false, NULL,          make_bar_direct},
    {"target.snr",                            false, NULL,          make_snr},
    {"target.noisy",                          false, NULL,          make_noisy},
    {"target.v",                              false, NULL,          make_v},
    {"target.x0_from_noise",                  false, NULL,          make_x0_from_noise},
    {"target.x0_from_v",                      false, NULL,          make_x0_from_v},
    {"target.noise_from_v",                   false, NULL,          make_noise_from_v},
    {"min_snr.gamma",                         true,  NULL,          make_min_snr},
    {"edm.c_in",                              false, "edm.sigmas",  make_c_in},
    {"edm.c_skip",                            false, "edm.sigmas",  make_c_skip},
    {"edm.c_out",                             false, "edm.sigmas",  make_c_out},
    {"edm.c_noise",                           false, "edm.sigmas",  make_c_noise},
    {"edm.loss_weight",                       false, "edm.sigmas",  make_edm_weight},
    {"edm.sigma_of_u",                        false, "edm.u",       make_sigma_of_u},
    {"flow.logit_normal",                     false, "flow.normal", make_logit},
    {"flow.logit_normal_scaled",              false, "flow.normal", make_logit_scaled},
    {"flow.mode_",                            true,  "flow.u",      make_mode},
    {"flow.shift_",                           true,  "flow.u",      make_shift},
    {"flow.mu_",                              true,  "flow.u",      make_mu},
    {"flow.weight_sigma_sqrt",                false, "flow.u",      make_root},
    {"flow.weight_cosmap",                    false, "flow.u",      make_cosmap},
    {"flow.x_t",                              false, NULL,          make_x_t},
    {"flow.target",                           false, NULL,          make_flow_target},
    {"guide.cfg",                             false, NULL,          make_cfg},
    {"guide.cfg_rescaled",                    false, NULL,          make_rescaled},
    {"guide.apg",                             false, NULL,          make_apg},
    {"guide.apg_2",                           false, NULL,          make_apg_2},
    {"guide.apg_original",                    false, NULL,          make_apg_original},
    {"guide.zero_star",                       false, NULL,          make_zero_star},
    {"guide.zero_star_alpha",                 false, NULL,          make_zero_star_alpha},
};
/* clang-format on */
static const char *const inputs[] = {
    "target.timesteps", "target.x0",    "target.noise", "edm.sigmas",    "edm.u",
    "flow.u",           "flow.normal",  "flow.sigma",   "flow.x0",       "flow.noise",
    "guide.cond",       "guide.uncond", "guide.cond_2", "guide.uncond_2"};

static const formula *find(const char *name, double *number, const char **rest)
{
    for (int i = 0; i < WEFT_COUNT(formulas); i++) {
        const formula *f = &formulas[i];
        const size_t len = strlen(f->name);
        char *end = NULL;
        if (!f->numbered && !strcmp(f->name, name))
            return f;
        if (!f->numbered || strncmp(f->name, name, len) != 0)
            continue;
        *number = strtod(name + len, &end);
        *rest = end;
        if (end > name + len)
            return f;
    }
    return NULL;
}

static weft_status compare_tensor(weft_parity *p, const settings *s, const char *name,
                                  double *worst)
{
    double number = 0;
    const char *rest = "";
    const formula *f = find(name, &number, &rest);
    numbers expected = {0}, in = {0};
    double *actual = NULL;
    float *f32 = NULL;
    weft_status_code status = WEFT_OK;
    if (!f)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->file, .key = name),
                          "weft parity has no formula for this tensor");
    WEFT_GO(numbers_of(p, name, &expected));
    WEFT_GO(numbers_of(p, f->in ? f->in : name, &in));
    actual = weft_alloc(expected.count * 8 + 8);
    f32 = weft_alloc(expected.count * 8 + 8);
    WEFT_GO(WEFT_ALLOCATED(actual && f32, "the comparison"));
    if (in.count != expected.count)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE,
                           WEFT_AT(.file = p->file, .key = name, WEFT_NUMBER(expected.count)),
                           "the tensor has %" PRId64 " elements, but its input \"%s\" has %" PRId64,
                           expected.count, f->in, in.count));
    WEFT_GO(f->make(p, s, &in, number, rest, actual));
    float *other = f32 + expected.count;
    for (int64_t i = 0; i < expected.count; i++) {
        f32[i] = (float)actual[i];
        other[i] = (float)expected.at[i];
    }
    weft_parity_judge(p, "formula", name, f32, other, expected.count,
                      weft_parity_norm(other, expected.count), tolerance, worst);
out:
    weft_free(actual);
    weft_free(f32);
    weft_free(expected.at);
    weft_free(in.at);
    return status;
}

static weft_status read_settings(const weft_parity *p, settings *s)
{
    const json_t *j = p->json, *apg = json_object_get(j, "apg");
    const char *where = p->config_file, *schedule;
    *s = (settings){.noise_process = weft_noise_process_defaults, .betas = {.snr_scale = 1}};
    weft_guidance_params *g = &s->guidance;
    weft_edm_config *edm = &s->noise_process.edm;
    WEFT_TRY(weft_json_get_string_or(j, "beta_schedule", where, "linear", &schedule));
    while (weft_betas_names[s->betas.schedule] &&
           strcmp(weft_betas_names[s->betas.schedule], schedule))
        s->betas.schedule++;
    if (!weft_betas_names[s->betas.schedule])
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "beta_schedule", .value = schedule),
                          "unknown schedule '%.80s'", schedule);
    WEFT_TRY(weft_json_get_f64_or(j, "beta_start", where, 0.0001, &s->betas.start));
    WEFT_TRY(weft_json_get_f64_or(j, "beta_end", where, 0.02, &s->betas.end));
    WEFT_TRY(weft_json_get_i64_or(j, "num_train_timesteps", where, 1000, &s->betas.times));
    if (s->betas.times < 2 || s->betas.times > 1000000)
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED,
            WEFT_AT(.file = where, .key = "num_train_timesteps", WEFT_NUMBER(s->betas.times)),
            "%" PRId64 " is not from 2 to 1000000", s->betas.times);
    WEFT_TRY(weft_json_get_f64_or(j, "sigma_data", where, edm->sigma_data, &edm->sigma_data));
    WEFT_TRY(weft_json_get_f64_or(j, "p_mean", where, edm->p_mean, &edm->p_mean));
    WEFT_TRY(weft_json_get_f64_or(j, "p_std", where, edm->p_std, &edm->p_std));
    s->noise_process.flow.logit_mean = edm->p_mean;
    s->noise_process.flow.logit_std = edm->p_std;
    WEFT_TRY(weft_json_get_f64_or(j, "guidance_scale", where, 1, &g->scale));
    WEFT_TRY(weft_json_get_f64_or(j, "guidance_rescale", where, 0, &g->rescale));
    WEFT_TRY(weft_json_get_f64_or(apg, "eta", where, 1, &g->eta));
    WEFT_TRY(weft_json_get_f64_or(apg, "norm_threshold", where, 0, &g->most));
    return weft_json_get_f64_or(apg, "momentum", where, 0, &g->momentum);
}

static weft_status compare_formulas(weft_parity *p)
{
    settings s;
    double worst = 0;
    WEFT_TRY(read_settings(p, &s));
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const char *name = weft_tensors_at(p->golden, i)->name;
        bool is_input = false;
        for (int k = 0; k < WEFT_COUNT(inputs); k++)
            is_input |= !strcmp(inputs[k], name);
        if (!is_input)
            WEFT_TRY(compare_tensor(p, &s, name, &worst));
    }
    weft_parity_measured(p, "formulas", worst, tolerance);
    return WEFT_OK;
}

static bool is_formulas(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "formulas");
}

const weft_parity_kind weft_parity_formulas = {"formulas", is_formulas, compare_formulas};
