#include "diffusion/ddpm.h"

#include "diffusion/per_sample.h"
#include "diffusion/process.h"
#include "diffusion/scheduler.h"

#include <math.h>
#include <string.h>

static const char *const predictions[] = {"epsilon", "v_prediction", "sample", NULL};
static const weft_key ddpm_keys[] = {
    {"prediction", WEFT_KEY_ENUM, offsetof(weft_ddpm_config, prediction), "epsilon", "",
     "prediction of the model; noise, alpha noise - sigma data, or data", .choices = predictions},
    {"betas", WEFT_KEY_ENUM, offsetof(weft_ddpm_config, betas), "scaled_linear", "",
     "noise schedule over the timesteps", .choices = weft_betas_names},
    {"beta_start", WEFT_KEY_F64, offsetof(weft_ddpm_config, beta_start), "0.00085", "",
     "first beta (not for squaredcos_cap_v2 and laplace)", .min = 1e-9, .max = 0.999},
    {"beta_end", WEFT_KEY_F64, offsetof(weft_ddpm_config, beta_end), "0.012", "",
     "last beta (not for squaredcos_cap_v2 and laplace)", .min = 1e-9, .max = 0.999},
    {"times", WEFT_KEY_I64, offsetof(weft_ddpm_config, times), "1000", "",
     "number of discrete timesteps", .min = 2, .max = 100000},
    {"zero_snr", WEFT_KEY_BOOL, offsetof(weft_ddpm_config, zero_snr), "false", "",
     "rescale the schedule so that the last timestep has no signal"},
    {"snr_shift", WEFT_KEY_F64, offsetof(weft_ddpm_config, snr_shift), "1", "",
     "divisor of the signal-to-noise ratio; larger videos need more noise", .min = 0.01,
     .max = 100},
    {"min_snr", WEFT_KEY_F64, offsetof(weft_ddpm_config, min_snr), "0", "",
     "upper bound of the signal-to-noise ratio as loss weight, e.g. 5; 0: equal weights", .min = 0,
     .max = 1e6},
};
const weft_section weft_ddpm_section = {
    "ddpm", "noise process of the transformer; DDPM with discrete timesteps",
    sizeof(weft_ddpm_config), ddpm_keys, WEFT_COUNT(ddpm_keys)};

weft_betas_config weft_ddpm_betas(const weft_ddpm_config *c)
{
    return (weft_betas_config){.times = c->times,
                               .start = c->beta_start,
                               .end = c->beta_end,
                               .schedule = c->betas,
                               .zero_snr = c->zero_snr,
                               .direct = c->snr_shift != 1,
                               .snr_scale = c->snr_shift};
}

double weft_ddpm_weight(int prediction, double gamma, double snr)
{
    const double least = fmin(snr, gamma);
    if (prediction == WEFT_DDPM_DATA)
        return least;
    return least / (prediction == WEFT_DDPM_V ? snr + 1 : snr);
}

/* Returns a table (times, 3) of alpha, sigma and loss weight. */
static weft_value table_of(weft_graph *g, const weft_ddpm_config *c)
{
    const weft_betas_config betas = weft_ddpm_betas(c);
    double *bar = weft_arena_calloc(weft_graph_arena(g), c->times, sizeof *bar);
    float *row = weft_arena_calloc(weft_graph_arena(g), c->times * 3, sizeof *row);
    if (!bar || !row)
        return WEFT_NONE;
    weft_betas_table(&betas, bar, NULL);
    for (int64_t t = 0; t < c->times; t++) {
        const double snr = bar[t] / (1 - bar[t]);
        row[3 * t] = (float)sqrt(bar[t]);
        row[3 * t + 1] = (float)sqrt(1 - bar[t]);
        row[3 * t + 2] =
            c->min_snr > 0 ? (float)weft_ddpm_weight(c->prediction, c->min_snr, snr) : 1;
    }
    return weft_constant(g, WEFT_F32, WEFT_SHAPE(c->times, 3), row);
}

static weft_noised level(weft_graph *g, const weft_noise_process_config *config, weft_value key_b)
{
    const weft_ddpm_config *c = &config->ddpm;
    const int64_t batch = weft_value_ok(key_b) ? weft_value_get(g, key_b)->shape.dim[0] : 1;
    const double first = ceil(config->from * (double)c->times),
                 end = ceil(config->to * (double)c->times);
    const weft_value u =
        weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, key_b, WEFT_RNG_TIMESTEP, WEFT_SHAPE(batch));
    weft_value time = weft_clamp(g, weft_affine(g, u, end - first, first), first, end - 0.5);
    time = weft_cast(g, time, WEFT_I32); /* rounds down */
    const weft_value row =
        weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table_of(g, c), time}, 2, NULL);
    weft_value column[3];
    for (int i = 0; i < 3; i++)
        column[i] = weft_reshape(g, weft_slice(g, row, 1, i, 1), WEFT_SHAPE(batch));
    return (weft_noised){.alpha = column[0],
                         .sigma = column[1],
                         .time = weft_cast(g, time, WEFT_F32),
                         .weight = c->min_snr > 0 ? column[2] : WEFT_NONE};
}

static weft_value mix(weft_graph *g, weft_value x, weft_value x_scale_b, weft_value y,
                      weft_value y_scale_b, bool minus)
{
    const weft_value a = weft_mul(g, x, weft_per_sample(g, x_scale_b, x));
    const weft_value b = weft_mul(g, y, weft_per_sample(g, y_scale_b, x));
    return minus ? weft_sub(g, a, b) : weft_add(g, a, b);
}

static weft_value input(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                        weft_value noise, const weft_noised *l)
{
    (void)config;
    return mix(g, data, l->alpha, noise, l->sigma, false);
}

static weft_value target(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                         weft_value noise, const weft_noised *l)
{
    if (config->ddpm.prediction == WEFT_DDPM_V)
        return mix(g, noise, l->alpha, data, l->sigma, true);
    return config->ddpm.prediction == WEFT_DDPM_NOISE ? noise : data;
}

static weft_status check(const weft_noise_process_config *config, const char *where)
{
    const weft_ddpm_config *c = &config->ddpm;
    if (c->zero_snr && c->prediction == WEFT_DDPM_NOISE)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = where, .key = "ddpm.zero_snr"),
                          "the last timestep is pure noise, from which prediction: epsilon cannot "
                          "recover the data. Write prediction: v_prediction.");
    if (ceil(config->from * (double)c->times) >= ceil(config->to * (double)c->times))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = where, .key = "timestep_min", WEFT_NUMBER(config->from)),
                          "no timestep of %" PRId64 " is between %g and timestep_max: %g", c->times,
                          config->from, config->to);
    return WEFT_OK;
}

/* Returns the scheduler classes. Only the classes of CogVideoX support snr_shift. */
static const weft_noise_process_scheduler *schedulers(const weft_noise_process_config *config)
{
    static const weft_noise_process_scheduler plain[] = {{"ddim", "DDIMScheduler"},
                                                         {"ddpm", "DDPMScheduler"},
                                                         {"unipc", "UniPCMultistepScheduler"},
                                                         {"dpmpp", "DPMSolverMultistepScheduler"},
                                                         {NULL, NULL}};
    static const weft_noise_process_scheduler shifted[] = {
        {"ddim", "CogVideoXDDIMScheduler"},
        {"cogvideox_dpm", "CogVideoXDPMScheduler"},
        {NULL, NULL}};
    return config->ddpm.snr_shift != 1 ? shifted : plain;
}

static json_t *write_scheduler(const weft_noise_process_config *config, const char *class_name)
{
    const weft_ddpm_config *c = &config->ddpm;
    json_t *json =
        json_pack("{s:s, s:I, s:f, s:f, s:s, s:s, s:b, s:s}", "_class_name", class_name,
                  "num_train_timesteps", (json_int_t)c->times, "beta_start", c->beta_start,
                  "beta_end", c->beta_end, "beta_schedule", weft_betas_names[c->betas],
                  "prediction_type", predictions[c->prediction], "rescale_betas_zero_snr",
                  c->zero_snr, "timestep_spacing", "trailing");
    if (json && !strstr(class_name, "Multistep"))
        json_object_set_new(json, "clip_sample", json_false());
    if (json && c->snr_shift != 1)
        json_object_set_new(json, "snr_shift_scale", json_real(c->snr_shift));
    return json;
}

const weft_noise_process weft_noise_process_ddpm = {
    .name = "ddpm",
    .level = level,
    .input = input,
    .target = target,
    .check = check,
    .schedulers = schedulers,
    .write = write_scheduler,
};
