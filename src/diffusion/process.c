#include "diffusion/process.h"

#include "diffusion/per_sample.h"

#include <string.h>

/* A new process needs its file and a line here. */
const weft_noise_process *const weft_processes[] = {
    &weft_noise_process_flow, &weft_noise_process_edm, &weft_noise_process_ddpm, NULL};
const char *const weft_noise_process_names[] = {"flow", "edm", "ddpm", NULL};

const weft_noise_process_config weft_noise_process_defaults = {
    .flow = {.logit_std = 1,
             .mode_scale = 1.29,
             .shift = 1,
             .base_shift = 0.5,
             .max_shift = 1.15,
             .base_tokens = 256,
             .max_tokens = 4096},
    .edm = {.p_mean = -1.2,
            .p_std = 1.2,
            .sigma_data = 0.5,
            .sigma_min = 0.002,
            .sigma_max = 80,
            .rho = 7},
    .ddpm = {.prediction = WEFT_DDPM_NOISE,
             .betas = WEFT_BETAS_SCALED_LINEAR,
             .beta_start = 0.00085,
             .beta_end = 0.012,
             .times = 1000,
             .snr_shift = 1},
    .sampler = "",
    .to = 1,
};

double weft_noise_process_scale(const weft_noise_process *process,
                                const weft_noise_process_config *config)
{
    return process->scale ? process->scale(config) : 1;
}

weft_noise_process_config weft_noise_process_resolve(const weft_noise_process *process,
                                                     const weft_noise_process_config *config,
                                                     int64_t tokens)
{
    weft_noise_process_config c = *config;
    if (process->resolve)
        process->resolve(&c, tokens);
    return c;
}

static const weft_noise_process_scheduler *scheduler_of(const weft_noise_process *process,
                                                        const weft_noise_process_config *c)
{
    const weft_noise_process_scheduler *s = process->schedulers(c);
    if (!c->sampler || !c->sampler[0])
        return s;
    while (s->sampler && strcmp(s->sampler, c->sampler))
        s++;
    return s->sampler ? s : NULL;
}

const char *weft_noise_process_class(const weft_noise_process *process,
                                     const weft_noise_process_config *config)
{
    const weft_noise_process_scheduler *s = scheduler_of(process, config);
    return s ? s->class_name : process->schedulers(config)->class_name;
}

json_t *weft_noise_process_write(const weft_noise_process *process,
                                 const weft_noise_process_config *config)
{
    return process->write(config, weft_noise_process_class(process, config));
}

weft_status weft_noise_process_check(const weft_noise_process *process,
                                     const weft_noise_process_config *c, const char *where)
{
    if (!(c->from < c->to))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = where, .key = "timestep_min", WEFT_NUMBER(c->from)),
                          "%g is not below timestep_max: %g. An expert of low noise has 0 and its "
                          "boundary, an expert of high noise its boundary and 1.",
                          c->from, c->to);
    const weft_noise_process_scheduler *s = process->schedulers(c);
    if (!scheduler_of(process, c)) {
        weft_buf known = {0};
        for (int i = 0; s[i].sampler; i++)
            weft_buf_printf(&known, "%s%s", i ? ", " : "", s[i].sampler);
        const weft_status_code status = weft_error(
            WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = where, .key = "sampler", .value = c->sampler),
            "%s has no scheduler for process: %s and its settings; known: %s. Other samplers "
            "can be chosen in weft generate.",
            c->sampler, process->name, known.data ? known.data : "?");
        weft_buf_free(&known);
        return status;
    }
    return process->check ? process->check(c, where) : WEFT_OK;
}

weft_value weft_noise_process_loss(weft_graph *g, const weft_noise_process *process,
                                   const weft_noise_process_config *config, weft_value prediction,
                                   weft_value data, weft_value noise, const weft_noised *level)
{
    const weft_value target = process->target(g, config, data, noise, level);
    weft_value error = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, prediction, target));
    if (weft_value_ok(level->weight))
        error = weft_mul(g, error, weft_per_sample(g, level->weight, prediction));
    return weft_mean_all(g, error);
}
