#include "diffusion/edm.h"

#include "diffusion/per_sample.h"
#include "diffusion/process.h"

#include <math.h>
#include <string.h>

static const weft_key edm_keys[] = {
    {"p_mean", WEFT_KEY_F64, offsetof(weft_edm_config, p_mean), "-1.2", "",
     "mean of ln(sigma) in training", .min = -20, .max = 20},
    {"p_std", WEFT_KEY_F64, offsetof(weft_edm_config, p_std), "1.2", "", "its standard deviation",
     .min = 0, .max = 20},
    {"sigma_data", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_data), "0.5", "",
     "deviation that the latents are brought to", .min = 1e-3, .max = 1e3},
    {"sigma_min", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_min), "0.002", "",
     "the last noise level of sampling above 0", .min = 1e-6, .max = 1e6},
    {"sigma_max", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_max), "80", "",
     "the first noise level of sampling", .min = 1e-6, .max = 1e6},
    {"rho", WEFT_KEY_F64, offsetof(weft_edm_config, rho), "7", "",
     "spacing of the levels; 1: even, more: closer where they are small", .min = 0.1, .max = 100},
};
const weft_section weft_edm_section = {"edm", "EDM: how noise levels are drawn, and sampled",
                                       sizeof(weft_edm_config), edm_keys, WEFT_COUNT(edm_keys)};

static void level(weft_graph *g, const weft_process_config *config, weft_value key_b,
                  weft_value *sigma_b, weft_value *time_b)
{
    const weft_edm_config *c = &config->edm;
    const int64_t batch = weft_value_ok(key_b) ? weft_value_get(g, key_b)->shape.dim[0] : 1;
    const weft_value normal =
        weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key_b, WEFT_RNG_TIMESTEP, WEFT_SHAPE(batch));
    const weft_value log_sigma = weft_affine(g, normal, c->p_std, c->p_mean);
    *sigma_b = weft_unary(g, WEFT_OP_EXP, log_sigma);
    *time_b = weft_affine(g, log_sigma, 0.25, 0);
}

/* sqrt(sigma^2 + sigma_data^2), per sample of `like`. */
static weft_value deviation(weft_graph *g, const weft_edm_config *c, weft_value sigma_b,
                            weft_value like)
{
    const weft_value square = weft_unary(g, WEFT_OP_SQUARE, sigma_b);
    const weft_value root =
        weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1, c->sigma_data * c->sigma_data));
    return weft_per_sample(g, root, like);
}

static weft_value input(weft_graph *g, const weft_process_config *config, weft_value data,
                        weft_value noise, weft_value sigma_b)
{
    const weft_value noisy =
        weft_add(g, data, weft_mul(g, noise, weft_per_sample(g, sigma_b, data)));
    return weft_div(g, noisy, deviation(g, &config->edm, sigma_b, data));
}

static weft_value target(weft_graph *g, const weft_process_config *config, weft_value data,
                         weft_value noise, weft_value sigma_b)
{
    const weft_edm_config *c = &config->edm;
    const weft_value sigma =
        weft_affine(g, weft_per_sample(g, sigma_b, data), 1 / c->sigma_data, 0);
    const weft_value sum =
        weft_sub(g, weft_mul(g, data, sigma), weft_affine(g, noise, c->sigma_data, 0));
    return weft_div(g, sum, deviation(g, c, sigma_b, data));
}

static void schedule(const weft_process_config *config, int64_t steps, double *levels)
{
    const weft_edm_config *c = &config->edm;
    const double high = pow(c->sigma_max, 1 / c->rho), low = pow(c->sigma_min, 1 / c->rho);
    for (int64_t i = 0; i < steps; i++) {
        const double at = steps > 1 ? (double)i / (double)(steps - 1) : 0;
        levels[i] = pow(high + at * (low - high), c->rho);
    }
    levels[steps] = 0;
}

static weft_precondition at(const weft_process_config *config, double sigma)
{
    const double data = config->edm.sigma_data, sum = sigma * sigma + data * data;
    return (weft_precondition){.in = 1 / sqrt(sum),
                               .time = 0.25 * log(sigma),
                               .skip = data * data / sum,
                               .out = sigma * data / sqrt(sum)};
}

/* Noise, and data of deviation 1 behind it. */
static double first(const weft_process_config *config)
{
    return sqrt(config->edm.sigma_max * config->edm.sigma_max + 1);
}

static double scale(const weft_process_config *config)
{
    return config->edm.sigma_data;
}

/* A field that has only one value here. */
static weft_status require(const json_t *json, const char *where, const char *key, const char *only)
{
    const char *value;
    WEFT_TRY(weft_json_get_string_or(json, key, where, only, &value));
    return strcmp(value, only) ? weft_fail(WEFT_E_UNSUPPORTED,
                                           "%s: \"%s\": \"%s\" is not supported; only \"%s\" is",
                                           where, key, value, only)
                               : WEFT_OK;
}

static weft_status read_scheduler(const json_t *json, const char *where,
                                  weft_process_config *config)
{
    weft_edm_config c = config->edm;
    WEFT_TRY(weft_json_get_f64_or(json, "sigma_min", where, c.sigma_min, &c.sigma_min));
    WEFT_TRY(weft_json_get_f64_or(json, "sigma_max", where, c.sigma_max, &c.sigma_max));
    WEFT_TRY(weft_json_get_f64_or(json, "sigma_data", where, c.sigma_data, &c.sigma_data));
    WEFT_TRY(weft_json_get_f64_or(json, "rho", where, c.rho, &c.rho));
    WEFT_TRY(require(json, where, "sigma_schedule", "karras"));
    WEFT_TRY(require(json, where, "prediction_type", "epsilon"));
    WEFT_TRY(require(json, where, "final_sigmas_type", "zero"));
    if (!(c.sigma_min > 0 && c.sigma_min < c.sigma_max && c.sigma_data > 0 && c.rho > 0))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: sigma_min %g, sigma_max %g, sigma_data %g, rho %g: all are above 0, "
                         "and sigma_min is below sigma_max",
                         where, c.sigma_min, c.sigma_max, c.sigma_data, c.rho);
    config->edm = c;
    return WEFT_OK;
}

static json_t *write_scheduler(const weft_process_config *config)
{
    const weft_edm_config *c = &config->edm;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:s, s:s, s:s}", "_class_name",
                     weft_process_edm.scheduler, "sigma_min", c->sigma_min, "sigma_max",
                     c->sigma_max, "sigma_data", c->sigma_data, "rho", c->rho, "sigma_schedule",
                     "karras", "prediction_type", "epsilon", "final_sigmas_type", "zero");
}

const weft_process weft_process_edm = {
    .name = "edm",
    .scheduler = "EDMEulerScheduler",
    .level = level,
    .input = input,
    .target = target,
    .schedule = schedule,
    .at = at,
    .first = first,
    .scale = scale,
    .read = read_scheduler,
    .write = write_scheduler,
};
