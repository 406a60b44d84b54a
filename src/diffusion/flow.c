#include "diffusion/flow.h"

#include "diffusion/per_sample.h"
#include "diffusion/process.h"

#include <math.h>
#include <string.h>

static const char *const times_names[] = {"logit_normal", "uniform", "mode", NULL};
static const char *const weighting_names[] = {"none", "sigma_sqrt", "cosmap", NULL};
static const weft_key flow_keys[] = {
    {"timestep_sampling", WEFT_KEY_ENUM, offsetof(weft_flow_config, times), "logit_normal", "",
     "distribution of sigma, before the shift", .choices = times_names, .earlier = "times"},
    {"logit_mean", WEFT_KEY_F64, offsetof(weft_flow_config, logit_mean), "0", "",
     "mean of the normal distribution whose sigmoid is sigma", .min = -10, .max = 10},
    {"logit_std", WEFT_KEY_F64, offsetof(weft_flow_config, logit_std), "1", "",
     "standard deviation of that distribution", .min = 0, .max = 10},
    {"mode_scale", WEFT_KEY_F64, offsetof(weft_flow_config, mode_scale), "1.29", "",
     "parameter of timestep_sampling: mode; 0: uniform, higher: more samples in the middle",
     .min = -1, .max = 1.75},
    {"shift", WEFT_KEY_F64, offsetof(weft_flow_config, shift), "1", "",
     "shift of sigma towards noise, s sigma / (1 + (s - 1) sigma); 3 to 5 for large videos",
     .min = 0.01, .max = 100},
    {"shift_by_resolution", WEFT_KEY_BOOL, offsetof(weft_flow_config, by_resolution), "false", "",
     "use the shift e^mu, where mu is linear in the tokens of a video"},
    {"base_shift", WEFT_KEY_F64, offsetof(weft_flow_config, base_shift), "0.5", "",
     "mu at base_tokens", .min = -10, .max = 10},
    {"max_shift", WEFT_KEY_F64, offsetof(weft_flow_config, max_shift), "1.15", "",
     "mu at max_tokens", .min = -10, .max = 10},
    {"base_tokens", WEFT_KEY_I64, offsetof(weft_flow_config, base_tokens), "256", "",
     "tokens of a video at which mu is base_shift", .min = 1, .max = 1e9},
    {"max_tokens", WEFT_KEY_I64, offsetof(weft_flow_config, max_tokens), "4096", "",
     "tokens of a video at which mu is max_shift", .min = 1, .max = 1e9},
    {"weighting", WEFT_KEY_ENUM, offsetof(weft_flow_config, weighting), "none", "",
     "weight of the loss over sigma; none, 1/sigma^2, or 2/(pi (1 - 2 sigma + 2 sigma^2))",
     .choices = weighting_names},
};
const weft_section weft_flow_section = {"flow", "noise process of the transformer; flow matching",
                                        sizeof(weft_flow_config), flow_keys, WEFT_COUNT(flow_keys)};

double weft_flow_shift(double shift, double sigma)
{
    return shift * sigma / (1 + (shift - 1) * sigma);
}

double weft_flow_draw(const weft_flow_config *c, double u)
{
    const double cosine = cos(M_PI * u / 2);
    if (c->times == WEFT_FLOW_LOGIT_NORMAL)
        return 1 / (1 + exp(-(c->logit_mean + c->logit_std * u)));
    return c->times == WEFT_FLOW_MODE ? 1 - u - c->mode_scale * (cosine * cosine - 1 + u) : u;
}

double weft_flow_weight(int weighting, double sigma)
{
    if (weighting == WEFT_FLOW_SIGMA_SQRT)
        return 1 / (sigma * sigma);
    return weighting == WEFT_FLOW_COSMAP ? 2 / (M_PI * (1 - 2 * sigma + 2 * sigma * sigma)) : 1;
}

weft_value weft_flow_shifted(weft_graph *g, double shift, weft_value sigma)
{
    if (shift == 1)
        return sigma;
    return weft_div(g, weft_affine(g, sigma, shift, 0), weft_affine(g, sigma, shift - 1, 1));
}

static weft_value random_of(weft_graph *g, weft_op op, weft_value key_b)
{
    const int64_t batch = weft_value_ok(key_b) ? weft_value_get(g, key_b)->shape.dim[0] : 1;
    return weft_random_like(g, op, key_b, WEFT_RNG_TIMESTEP, WEFT_SHAPE(batch));
}

weft_value weft_flow_sigma(weft_graph *g, const weft_flow_config *config, weft_value key_b)
{
    weft_value sigma = random_of(g, WEFT_OP_RANDOM_NORMAL, key_b);
    sigma = weft_unary(g, WEFT_OP_SIGMOID,
                       weft_affine(g, sigma, config->logit_std, config->logit_mean));
    return weft_flow_shifted(g, config->shift, sigma);
}

/* Returns the quantile u of a normal distribution, to 0.4 % (Winitzki's inverse of erf). Only the
 * draw depends on the error. */
static weft_value normal_quantile(weft_graph *g, weft_value u)
{
    const double a = 0.147, tiny = 1e-30;
    const weft_value x = weft_affine(g, u, 2, -1); /* the result is sqrt(2) erfinv(x) */
    const weft_value rest = weft_mul(g, weft_affine(g, u, 4, 0), weft_affine(g, u, -1, 1));
    const weft_value log = weft_unary(g, WEFT_OP_LOG, weft_clamp(g, rest, tiny, 1));
    const weft_value half = weft_affine(g, log, 0.5, 2 / (M_PI * a));
    const weft_value inner =
        weft_sub(g, weft_unary(g, WEFT_OP_SQUARE, half), weft_affine(g, log, 1 / a, 0));
    const weft_value root = weft_sub(g, weft_unary(g, WEFT_OP_SQRT, inner), half);
    const weft_value size = weft_unary(g, WEFT_OP_SQRT, weft_clamp(g, root, 0, 1e30));
    const weft_value sign = weft_div(
        g, x,
        weft_unary(g, WEFT_OP_SQRT, weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, x), 1, tiny)));
    return weft_affine(g, weft_mul(g, sign, size), sqrt(2), 0);
}

/* Returns the share of draws below sigma (before the shift). For MODE, which falls with u, returns
 * the share above. */
static double share_below(const weft_flow_config *c, double sigma)
{
    if (c->times == WEFT_FLOW_UNIFORM || sigma <= 0 || sigma >= 1)
        return c->times == WEFT_FLOW_MODE ? 1 - sigma : sigma;
    if (c->times == WEFT_FLOW_LOGIT_NORMAL) {
        const double z = (log(sigma / (1 - sigma)) - c->logit_mean) / fmax(c->logit_std, 1e-9);
        return 0.5 * erfc(-z / sqrt(2));
    }
    double low = 0, high = 1;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        *(weft_flow_draw(c, middle) > sigma ? &low : &high) = middle;
    }
    return low;
}

/* Draws from a part of the levels, or from a distribution that is not logit normal: maps a uniform
 * draw through the inverse of the distribution. */
static weft_value sigma_of_share(weft_graph *g, const weft_noise_process_config *config,
                                 weft_value key_b)
{
    const weft_flow_config *c = &config->flow;
    const double back = 1 / c->shift; /* inverse of the shift */
    const double a = share_below(c, weft_flow_shift(back, config->from));
    const double b = share_below(c, weft_flow_shift(back, config->to));
    const weft_value u = weft_affine(g, random_of(g, WEFT_OP_RANDOM_UNIFORM, key_b), b - a, a);
    weft_value sigma = u;
    if (c->times == WEFT_FLOW_LOGIT_NORMAL)
        sigma = weft_unary(g, WEFT_OP_SIGMOID,
                           weft_affine(g, normal_quantile(g, u), c->logit_std, c->logit_mean));
    if (c->times == WEFT_FLOW_MODE) { /* 1 - u - m (cos^2(pi u / 2) - 1 + u) */
        const weft_value cosine = weft_unary(
            g, WEFT_OP_SQUARE, weft_unary(g, WEFT_OP_COS, weft_affine(g, u, M_PI / 2, 0)));
        sigma = weft_sub(g, weft_affine(g, u, -1 - c->mode_scale, 1 + c->mode_scale),
                         weft_affine(g, cosine, c->mode_scale, 0));
    }
    return weft_clamp(g, weft_flow_shifted(g, c->shift, sigma), config->from, config->to);
}

weft_value weft_flow_mix(weft_graph *g, weft_value data, weft_value noise, weft_value sigma_b)
{
    const weft_value sigma = weft_per_sample(g, sigma_b, data);
    const weft_value clean = weft_mul(g, data, weft_affine(g, sigma, -1, 1));
    return weft_add(g, clean, weft_mul(g, noise, sigma));
}

void weft_flow_schedule(int64_t steps, double shift, double *sigma)
{
    const double last = weft_flow_shift(shift, 0.001);
    for (int64_t i = 0; i < steps; i++) {
        const double even = steps > 1 ? 1 + (last - 1) * (double)i / (double)(steps - 1) : 1;
        sigma[i] = weft_flow_shift(shift, even);
    }
    sigma[steps] = 0;
}

/* ---- the process ---------------------------------------------------------------------------- */

enum { TIMES = 1000 }; /* timestep = 1000 sigma */

static weft_noised level(weft_graph *g, const weft_noise_process_config *config, weft_value key_b)
{
    const weft_flow_config *c = &config->flow;
    const bool whole = config->from <= 0 && config->to >= 1;
    weft_noised l = {.alpha = WEFT_NONE, .weight = WEFT_NONE};
    l.sigma = whole && c->times == WEFT_FLOW_LOGIT_NORMAL ? weft_flow_sigma(g, c, key_b)
                                                          : sigma_of_share(g, config, key_b);
    l.time = weft_affine(g, l.sigma, TIMES, 0);
    const weft_value square = c->weighting ? weft_unary(g, WEFT_OP_SQUARE, l.sigma) : WEFT_NONE;
    if (c->weighting == WEFT_FLOW_SIGMA_SQRT)
        l.weight = weft_div(g, weft_affine(g, square, 0, 1), weft_clamp(g, square, 1e-12, 1));
    if (c->weighting == WEFT_FLOW_COSMAP)
        l.weight = weft_div(g, weft_affine(g, square, 0, 2 / M_PI),
                            weft_affine(g, weft_sub(g, square, l.sigma), 2, 1));
    return l;
}

static weft_value input(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                        weft_value noise, const weft_noised *l)
{
    (void)config;
    return weft_flow_mix(g, data, noise, l->sigma);
}

static weft_value target(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                         weft_value noise, const weft_noised *l)
{
    (void)config, (void)l;
    return weft_sub(g, noise, data);
}

static void resolve(weft_noise_process_config *config, int64_t tokens)
{
    weft_flow_config *c = &config->flow;
    if (!c->by_resolution)
        return;
    const double slope = (c->max_shift - c->base_shift) / (double)(c->max_tokens - c->base_tokens);
    c->shift = exp(c->base_shift + slope * (double)(tokens - c->base_tokens));
}

static weft_status check(const weft_noise_process_config *config, const char *where)
{
    const weft_flow_config *c = &config->flow;
    if (c->by_resolution && c->base_tokens == c->max_tokens)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = where, .key = "flow.base_tokens", WEFT_NUMBER(c->base_tokens)),
            "%" PRId64 " is also flow.max_tokens; the two must differ", c->base_tokens);
    if (c->by_resolution && c->shift != 1)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = where, .key = "flow.shift", WEFT_NUMBER(c->shift)),
            "%g cannot be combined with shift_by_resolution: true; write base_shift: %.3g",
            c->shift, log(c->shift));
    return WEFT_OK;
}

/* Returns the scheduler classes. Only the classes of flow matching support shift_by_resolution. */
static const weft_noise_process_scheduler *schedulers(const weft_noise_process_config *config)
{
    static const weft_noise_process_scheduler fixed[] = {
        {"euler", "FlowMatchEulerDiscreteScheduler"}, {"heun", "FlowMatchHeunDiscreteScheduler"},
        {"unipc", "UniPCMultistepScheduler"},         {"dpmpp", "DPMSolverMultistepScheduler"},
        {"consistency", "FlowMatchLCMScheduler"},     {NULL, NULL}};
    static const weft_noise_process_scheduler moving[] = {
        {"euler", "FlowMatchEulerDiscreteScheduler"},
        {"consistency", "FlowMatchLCMScheduler"},
        {NULL, NULL}};
    return config->flow.by_resolution ? moving : fixed;
}

static json_t *write_scheduler(const weft_noise_process_config *config, const char *class_name)
{
    const weft_flow_config *c = &config->flow;
    if (strstr(class_name, "Multistep"))
        return json_pack("{s:s, s:i, s:s, s:b, s:f}", "_class_name", class_name,
                         "num_train_timesteps", TIMES, "prediction_type", "flow_prediction",
                         "use_flow_sigmas", 1, "flow_shift", c->shift);
    if (!c->by_resolution)
        return json_pack("{s:s, s:i, s:f}", "_class_name", class_name, "num_train_timesteps", TIMES,
                         "shift", c->shift);
    return json_pack("{s:s, s:i, s:b, s:f, s:f, s:I, s:I}", "_class_name", class_name,
                     "num_train_timesteps", TIMES, "use_dynamic_shifting", 1, "base_shift",
                     c->base_shift, "max_shift", c->max_shift, "base_image_seq_len",
                     (json_int_t)c->base_tokens, "max_image_seq_len", (json_int_t)c->max_tokens);
}

const weft_noise_process weft_noise_process_flow = {
    .name = "flow",
    .level = level,
    .input = input,
    .target = target,
    .resolve = resolve,
    .check = check,
    .schedulers = schedulers,
    .write = write_scheduler,
};
