#include "diffusion/per_sample.h"
#include "diffusion/process.h"

static const weft_key flow_keys[] = {
    {"logit_mean", WEFT_KEY_F64, offsetof(weft_flow_config, logit_mean), "0", "",
     "mean of the normal whose sigmoid is sigma", .min = -10, .max = 10},
    {"logit_std", WEFT_KEY_F64, offsetof(weft_flow_config, logit_std), "1", "",
     "its standard deviation", .min = 0, .max = 10},
    {"shift", WEFT_KEY_F64, offsetof(weft_flow_config, shift), "1", "",
     "moves sigma towards noise: s sigma / (1 + (s - 1) sigma); 3 to 5 suits large videos",
     .min = 0.01, .max = 100},
};
const weft_section weft_flow_section = {"flow", "flow matching: how noise levels are drawn",
                                        sizeof(weft_flow_config), flow_keys, WEFT_COUNT(flow_keys)};

double weft_flow_shift(double shift, double sigma)
{
    return shift * sigma / (1 + (shift - 1) * sigma);
}

weft_value weft_flow_sigma(weft_graph *g, const weft_flow_config *config, weft_value key_b)
{
    const int64_t batch = weft_value_ok(key_b) ? weft_value_get(g, key_b)->shape.dim[0] : 1;
    weft_value sigma =
        weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key_b, WEFT_RNG_TIMESTEP, WEFT_SHAPE(batch));
    sigma = weft_unary(g, WEFT_OP_SIGMOID,
                       weft_affine(g, sigma, config->logit_std, config->logit_mean));
    if (config->shift == 1)
        return sigma;
    return weft_div(g, weft_affine(g, sigma, config->shift, 0),
                    weft_affine(g, sigma, config->shift - 1, 1));
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

static void level(weft_graph *g, const weft_process_config *config, weft_value key_b,
                  weft_value *sigma_b, weft_value *time_b)
{
    *sigma_b = weft_flow_sigma(g, &config->flow, key_b);
    *time_b = weft_affine(g, *sigma_b, TIMES, 0);
}

static weft_value input(weft_graph *g, const weft_process_config *config, weft_value data,
                        weft_value noise, weft_value sigma_b)
{
    (void)config;
    return weft_flow_mix(g, data, noise, sigma_b);
}

static weft_value target(weft_graph *g, const weft_process_config *config, weft_value data,
                         weft_value noise, weft_value sigma_b)
{
    (void)config, (void)sigma_b;
    return weft_sub(g, noise, data);
}

static void schedule(const weft_process_config *config, int64_t steps, double *levels)
{
    weft_flow_schedule(steps, config->flow.shift, levels);
}

/* denoised = x - sigma velocity */
static weft_precondition at(const weft_process_config *config, double sigma)
{
    (void)config;
    return (weft_precondition){.in = 1, .time = TIMES * sigma, .skip = 1, .out = -sigma};
}

static double *shift(weft_process_config *config)
{
    return &config->flow.shift;
}

static weft_status read_scheduler(const json_t *json, const char *where,
                                  weft_process_config *config)
{
    return weft_json_get_f64_or(json, "shift", where, config->flow.shift, &config->flow.shift);
}

static json_t *write_scheduler(const weft_process_config *config)
{
    return json_pack("{s:s, s:i, s:f}", "_class_name", weft_process_flow.scheduler,
                     "num_train_timesteps", TIMES, "shift", config->flow.shift);
}

const weft_process weft_process_flow = {
    .name = "flow",
    .scheduler = "FlowMatchEulerDiscreteScheduler",
    .level = level,
    .input = input,
    .target = target,
    .schedule = schedule,
    .at = at,
    .shift = shift,
    .read = read_scheduler,
    .write = write_scheduler,
};
