#include "diffusion/edm.h"

#include "diffusion/per_sample.h"
#include "diffusion/process.h"

static const weft_key edm_keys[] = {
    {"p_mean", WEFT_KEY_F64, offsetof(weft_edm_config, p_mean), "-1.2", "",
     "mean of ln(sigma) in training", .min = -20, .max = 20},
    {"p_std", WEFT_KEY_F64, offsetof(weft_edm_config, p_std), "1.2", "",
     "standard deviation of ln(sigma) in training", .min = 0, .max = 20},
    {"sigma_data", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_data), "0.5", "",
     "standard deviation to which latents are scaled", .min = 1e-3, .max = 1e3},
    {"sigma_min", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_min), "0.002", "",
     "last noise level of sampling above 0", .min = 1e-6, .max = 1e6},
    {"sigma_max", WEFT_KEY_F64, offsetof(weft_edm_config, sigma_max), "80", "",
     "first noise level of sampling", .min = 1e-6, .max = 1e6},
    {"rho", WEFT_KEY_F64, offsetof(weft_edm_config, rho), "7", "",
     "spacing of the noise levels; 1: equal, higher: denser at small levels", .min = 0.1,
     .max = 100},
};
const weft_section weft_edm_section = {"edm", "noise process of the transformer; EDM",
                                       sizeof(weft_edm_config), edm_keys, WEFT_COUNT(edm_keys)};

static weft_noised level(weft_graph *g, const weft_noise_process_config *config, weft_value key_b)
{
    const weft_edm_config *c = &config->edm;
    const int64_t batch = weft_value_ok(key_b) ? weft_value_get(g, key_b)->shape.dim[0] : 1;
    const weft_value normal =
        weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key_b, WEFT_RNG_TIMESTEP, WEFT_SHAPE(batch));
    const weft_value log_sigma = weft_affine(g, normal, c->p_std, c->p_mean);
    weft_noised l = {.alpha = WEFT_NONE, .weight = WEFT_NONE};
    l.sigma = weft_unary(g, WEFT_OP_EXP, log_sigma);
    l.time = weft_affine(g, log_sigma, 0.25, 0);
    return l;
}

/* Returns sqrt(sigma^2 + sigma_data^2) per sample, with the rank of `like`. */
static weft_value deviation(weft_graph *g, const weft_edm_config *c, weft_value sigma_b,
                            weft_value like)
{
    const weft_value square = weft_unary(g, WEFT_OP_SQUARE, sigma_b);
    const weft_value root =
        weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1, c->sigma_data * c->sigma_data));
    return weft_per_sample(g, root, like);
}

static weft_value input(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                        weft_value noise, const weft_noised *l)
{
    const weft_value noisy =
        weft_add(g, data, weft_mul(g, noise, weft_per_sample(g, l->sigma, data)));
    return weft_div(g, noisy, deviation(g, &config->edm, l->sigma, data));
}

static weft_value target(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                         weft_value noise, const weft_noised *l)
{
    const weft_edm_config *c = &config->edm;
    const weft_value sigma =
        weft_affine(g, weft_per_sample(g, l->sigma, data), 1 / c->sigma_data, 0);
    const weft_value sum =
        weft_sub(g, weft_mul(g, data, sigma), weft_affine(g, noise, c->sigma_data, 0));
    return weft_div(g, sum, deviation(g, c, l->sigma, data));
}

static double scale(const weft_noise_process_config *config)
{
    return config->edm.sigma_data;
}

static weft_status check(const weft_noise_process_config *config, const char *where)
{
    const weft_edm_config *c = &config->edm;
    if (!(c->sigma_min < c->sigma_max))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = where, .key = "edm.sigma_min", WEFT_NUMBER(c->sigma_min)),
                          "%g is not below edm.sigma_max: %g", c->sigma_min, c->sigma_max);
    if (config->from > 0 || config->to < 1)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = where, .key = config->from > 0 ? "timestep_min" : "timestep_max"),
            "this key needs process: flow or ddpm. With process: edm, p_mean and p_std set the "
            "noise levels.");
    return WEFT_OK;
}

static const weft_noise_process_scheduler *schedulers(const weft_noise_process_config *config)
{
    static const weft_noise_process_scheduler list[] = {
        {"euler", "EDMEulerScheduler"}, {"dpmpp", "EDMDPMSolverMultistepScheduler"}, {NULL, NULL}};
    (void)config;
    return list;
}

static json_t *write_scheduler(const weft_noise_process_config *config, const char *class_name)
{
    const weft_edm_config *c = &config->edm;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:s, s:s, s:s}", "_class_name", class_name,
                     "sigma_min", c->sigma_min, "sigma_max", c->sigma_max, "sigma_data",
                     c->sigma_data, "rho", c->rho, "sigma_schedule", "karras", "prediction_type",
                     "epsilon", "final_sigmas_type", "zero");
}

const weft_noise_process weft_noise_process_edm = {
    .name = "edm",
    .level = level,
    .input = input,
    .target = target,
    .scale = scale,
    .check = check,
    .schedulers = schedulers,
    .write = write_scheduler,
};
