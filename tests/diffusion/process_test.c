/* Random draws of training, as the graphs of the noise processes compute them. */
#include "diffusion/process.h"
#include "diffusion/scheduler.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "kernel/registry/backend.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 4096 };
/* Value that the Kolmogorov-Smirnov statistic of DRAWS draws exceeds once in a million. Seeds are
 * fixed. */
static const double most_apart = 0.042;

typedef struct drawn {
    float sigma[DRAWS], alpha[DRAWS], time[DRAWS], weight[DRAWS];
} drawn;

static drawn *draw(const weft_noise_process *process, const weft_noise_process_config *config)
{
    drawn *d = calloc(1, sizeof *d);
    weft_graph *g = weft_graph_create();
    weft_program *program;
    const weft_value key = weft_input(g, "key", WEFT_I64, WEFT_SHAPE(DRAWS));
    const weft_noised l = process->level(g, config, key);
    const struct {
        const char *name;
        weft_value value;
        float *to;
    } outs[] = {{"sigma", l.sigma, d->sigma},
                {"alpha", l.alpha, d->alpha},
                {"time", l.time, d->time},
                {"weight", l.weight, d->weight}};
    for (int i = 0; i < 4; i++)
        if (weft_value_ok(outs[i].value))
            weft_output(g, outs[i].name, outs[i].value);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_compile(
                     g, &(weft_program_options){.backend = weft_backend_find("cpu")}, &program),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(program, NULL, NULL), WEFT_OK);
    for (int64_t i = 0; i < DRAWS; i++)
        ((int64_t *)weft_program_input(program, "key")->data)[i] = i * 7919 + 13;
    cr_assert_eq(weft_program_run(program), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 4; i++)
        if (weft_value_ok(outs[i].value))
            memcpy(outs[i].to, weft_program_output(program, outs[i].name)->data, sizeof d->sigma);
    weft_program_free(program);
    weft_graph_free(g);
    return d;
}

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Largest distance of the draws' distribution from `share`(x). */
static double apart(const float *x, double (*share)(const weft_noise_process_config *, double),
                    const weft_noise_process_config *c)
{
    float sorted[DRAWS];
    double worst = 0;
    memcpy(sorted, x, sizeof sorted);
    qsort(sorted, DRAWS, sizeof *sorted, rising);
    for (int i = 0; i < DRAWS; i++)
        worst = fmax(worst, fabs(share(c, (double)sorted[i]) - (i + 0.5) / DRAWS));
    return worst;
}

static double logit_normal(const weft_noise_process_config *c, double sigma)
{
    const double before = weft_flow_shift(1 / c->flow.shift, sigma);
    const double z = (log(before / (1 - before)) - c->flow.logit_mean) / c->flow.logit_std;
    return 0.5 * erfc(-z / sqrt(2));
}

static double part_of_logit_normal(const weft_noise_process_config *c, double sigma)
{
    const double low = c->from > 0 ? logit_normal(c, c->from) : 0,
                 high = c->to < 1 ? logit_normal(c, c->to) : 1;
    return fmin(fmax((logit_normal(c, fmin(fmax(sigma, 1e-6), 1 - 1e-6)) - low) / (high - low), 0),
                1);
}

static double uniform(const weft_noise_process_config *c, double sigma)
{
    const double back = 1 / c->flow.shift, low = weft_flow_shift(back, c->from);
    return (weft_flow_shift(back, sigma) - low) / (weft_flow_shift(back, c->to) - low);
}

/* The share of u above which 1 - u - m (cos^2(pi u / 2) - 1 + u) is less than sigma. */
static double mode(const weft_noise_process_config *c, double sigma)
{
    double low = 0, high = 1;
    for (int i = 0; i < 60; i++) {
        const double u = (low + high) / 2;
        *(weft_flow_draw(&c->flow, u) > sigma ? &low : &high) = u;
    }
    return 1 - low;
}

Test(process, flow_draws)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    c.flow.shift = 3;
    drawn *d = draw(&weft_noise_process_flow, &c);
    cr_expect(apart(d->sigma, logit_normal, &c) < most_apart);
    cr_assert_float_eq(d->time[5], 1000 * d->sigma[5], 1e-3);
    free(d);
    c.flow.times = WEFT_FLOW_UNIFORM;
    d = draw(&weft_noise_process_flow, &c);
    cr_expect(apart(d->sigma, uniform, &c) < most_apart);
    free(d);
    c.flow.times = WEFT_FLOW_MODE;
    c.flow.shift = 1;
    d = draw(&weft_noise_process_flow, &c);
    cr_expect(apart(d->sigma, mode, &c) < most_apart);
    free(d);
}

/* Two experts share the timesteps: each draws from its part of the distribution only. */
Test(process, an_expert_draws_its_part)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    c.flow.shift = 5;
    for (int high = 0; high < 2; high++) {
        c.from = high ? 0.875 : 0;
        c.to = high ? 1 : 0.875;
        for (int times = 0; times < 2; times++) {
            c.flow.times = times ? WEFT_FLOW_UNIFORM : WEFT_FLOW_LOGIT_NORMAL;
            drawn *d = draw(&weft_noise_process_flow, &c);
            for (int i = 0; i < DRAWS; i++)
                cr_assert((double)d->sigma[i] >= c.from && (double)d->sigma[i] <= c.to);
            const double off = apart(d->sigma, times ? uniform : part_of_logit_normal, &c);
            cr_expect(off < most_apart, "%d %d: %g", high, times, off);
            free(d);
        }
        drawn *d = draw(&weft_noise_process_ddpm, &c);
        for (int i = 0; i < DRAWS; i++)
            cr_assert(d->time[i] >= (high ? 875 : 0) && d->time[i] <= (high ? 999 : 874));
        free(d);
    }
}

/* Timesteps are uniform; alpha and sigma are those of the table, the weight is that of min-SNR. */
Test(process, ddpm_draws)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    double bar[1000], sum = 0;
    bool first = false, last = false;
    c.ddpm.zero_snr = true;
    c.ddpm.prediction = WEFT_DDPM_V;
    c.ddpm.min_snr = 5;
    const weft_betas_config betas = weft_ddpm_betas(&c.ddpm);
    weft_betas_table(&betas, bar, NULL);
    drawn *d = draw(&weft_noise_process_ddpm, &c);
    for (int i = 0; i < DRAWS; i++) {
        const int t = (int)d->time[i];
        cr_assert(t >= 0 && t <= 999 && d->time[i] == (float)t);
        const double snr = bar[t] / (1 - bar[t]);
        cr_assert_float_eq(d->alpha[i], sqrt(bar[t]), 1e-6);
        cr_assert_float_eq(d->sigma[i], sqrt(1 - bar[t]), 1e-6);
        cr_assert_float_eq(d->weight[i], fmin(snr, 5) / (snr + 1), 1e-5);
        first |= t < 5;
        last |= t > 994;
        sum += t;
    }
    cr_expect(first && last && fabs(sum / DRAWS - 499.5) < 25);
    free(d);
}

Test(process, weighting_of_flow)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    for (c.flow.weighting = WEFT_FLOW_SIGMA_SQRT; c.flow.weighting <= WEFT_FLOW_COSMAP;
         c.flow.weighting++) {
        drawn *d = draw(&weft_noise_process_flow, &c);
        for (int i = 0; i < DRAWS; i += 64)
            cr_assert_float_eq((double)d->weight[i] /
                                   weft_flow_weight(c.flow.weighting, (double)d->sigma[i]),
                               1, 1e-4);
        free(d);
    }
}

Test(process, refusals_say_what_would_do)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    c.ddpm.zero_snr = true;
    cr_assert_eq(weft_noise_process_check(&weft_noise_process_ddpm, &c, "a.yaml"), WEFT_E_CONFIG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_CONFIG_CONFLICT);
    cr_assert_str_eq(weft_error_fields()->key, "ddpm.zero_snr");
    cr_assert(strstr(weft_error_text(), "v_prediction"));
    c.from = 0.9;
    c.to = 0.8;
    cr_assert_eq(weft_noise_process_check(&weft_noise_process_flow, &c, "a.yaml"), WEFT_E_CONFIG);
    cr_assert_str_eq(weft_error_fields()->key, "timestep_min");
    cr_assert_eq(weft_error_fields()->number, 0.9);
    c.to = 1;
    cr_assert_eq(weft_noise_process_check(&weft_noise_process_flow, &c, "a.yaml"), WEFT_OK);
    cr_assert_eq(weft_noise_process_check(&weft_noise_process_edm, &c, "a.yaml"), WEFT_E_CONFIG);
    cr_assert_str_eq(weft_error_fields()->key, "timestep_min");
    cr_assert(strstr(weft_error_text(), "p_mean"));
}

/* The scheduler config that a row writes with a model is read back as the trained process. */
Test(process, writes_its_scheduler)
{
    weft_noise_process_config c = weft_noise_process_defaults;
    c.ddpm.prediction = WEFT_DDPM_V;
    c.ddpm.snr_shift = 3;
    c.flow.shift = 4;
    for (int i = 0; weft_processes[i]; i++) {
        weft_scheduler s;
        json_t *json = weft_noise_process_write(weft_processes[i], &c);
        cr_assert_eq(weft_scheduler_read(json, "", &s), WEFT_OK, "%s", weft_error_message());
        cr_assert_str_eq(s.kind->name, weft_noise_process_class(weft_processes[i], &c));
        cr_assert(i != 0 || s.shift == 4);
        cr_assert(i != 2 || (s.betas.snr_scale == 3 && s.prediction == WEFT_PREDICT_V));
        json_decref(json);
    }
}
