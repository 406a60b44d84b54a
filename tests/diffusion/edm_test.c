#include "diffusion/process.h"
#include "diffusion/sampler.h"
#include "format/safetensors.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static weft_process_config config(void)
{
    return weft_process_defaults;
}

/* The coefficients of the paper's table 1: input and target have deviation 1 where data has
 * sigma_data. */
Test(edm, coefficients)
{
    const weft_process_config c = config();
    for (double sigma = 0.01; sigma < 100; sigma *= 3) {
        const weft_precondition p = weft_process_edm.at(&c, sigma);
        cr_assert_float_eq(p.in * p.in * (sigma * sigma + 0.25), 1, 1e-12);
        cr_assert_float_eq(p.skip, 0.25 / (sigma * sigma + 0.25), 1e-12);
        cr_assert_float_eq(p.out, 0.5 * sigma * p.in, 1e-12);
        cr_assert_float_eq(p.time, log(sigma) / 4, 1e-12);
    }
    double sigma[19];
    weft_process_edm.schedule(&c, 18, sigma);
    cr_assert_float_eq(sigma[0], 80, 1e-9);
    cr_assert_float_eq(sigma[17], 0.002, 1e-12);
    cr_assert(sigma[18] == 0);
}

static weft_tensors *golden_of(const char *name)
{
    const char *shared = getenv("WEFT_SHARED");
    char path[600];
    weft_tensors *golden = NULL;
    snprintf(path, sizeof path, "%s/golden/%s", shared ? shared : "/nonexistent", name);
    if (weft_tensors_open(path, &golden) != WEFT_OK)
        cr_skip("no %s", path);
    return golden;
}

static const weft_stored_tensor *need(weft_tensors *golden, const char *name)
{
    const weft_stored_tensor *t = weft_tensors_find(golden, name);
    cr_assert(t, "%s", name);
    return t;
}

typedef struct linear_model {
    weft_process_config config;
    const float *bias, *wanted; /* the trajectory */
    float *x;
    int64_t count;
    double worst;
} linear_model;

/* 0.3 x + 0.1 cos(t) + 0.2 bias, of the scaled input. */
static weft_status_code slope_of(void *user, int64_t step, const float *x, double sigma,
                                 float *slope)
{
    (void)step;
    linear_model *m = user;
    const weft_precondition p = weft_process_edm.at(&m->config, sigma);
    for (int64_t i = 0; i < m->count; i++)
        slope[i] = 0.3f * (float)p.in * x[i] + 0.1f * (float)cos(p.time) + 0.2f * m->bias[i];
    weft_process_slope(p, sigma, x, slope, m->count);
    return WEFT_OK;
}

static weft_status_code compare(void *user, int64_t done, int64_t steps)
{
    (void)steps;
    linear_model *m = user;
    double error = 0, norm = 0;
    for (int64_t i = 0; i < m->count; i++) {
        const double want = (double)m->wanted[done * m->count + i], d = (double)m->x[i] - want;
        error += d * d;
        norm += want * want;
    }
    m->worst = fmax(m->worst, sqrt(error / norm));
    return WEFT_OK;
}

static float *floats(const weft_stored_tensor *t)
{
    float *x = calloc((size_t)t->count, sizeof *x);
    weft_tensor_to_f32(t, x);
    return x;
}

/* Every step of the reference's Euler sampler; close: its numbers are f32. */
Test(edm, trajectory_of_the_reference)
{
    weft_tensors *golden = golden_of("sched_edm_euler_a.safetensors");
    const weft_stored_tensor *bias = need(golden, "in.bias"), *noise = need(golden, "in.noise");
    const weft_stored_tensor *path = need(golden, "run0.trajectory");
    linear_model m = {.config = config(), .count = bias->count};
    float *b = floats(bias), *wanted = floats(path), *x = floats(noise), work[24];
    double sigma[7];
    cr_assert(m.count <= 24 && path->dim[0] == 7);
    m.bias = b;
    m.wanted = wanted;
    m.x = x;
    for (int64_t i = 0; i < m.count; i++)
        x[i] *= (float)weft_process_first(&weft_process_edm, &m.config);
    cr_assert_eq(compare(&m, 0, 6), WEFT_OK);
    weft_process_edm.schedule(&m.config, 6, sigma);
    const weft_sampler_callbacks callbacks = {.slope = slope_of, .progress = compare, .user = &m};
    cr_assert_eq(weft_sampler_run(&weft_sampler_euler, sigma, 6, x, m.count, work, &callbacks),
                 WEFT_OK);
    cr_assert(m.worst <= 1e-5, "%g", m.worst);
    free(b);
    free(wanted);
    free(x);
    weft_tensors_close(golden);
}

/* Against the formulas' file: input scale, skip, out, and the model's time. */
Test(edm, formulas_of_the_reference)
{
    weft_tensors *golden = golden_of("formulas_a.safetensors");
    static const char *const names[] = {"edm.c_in", "edm.c_skip", "edm.c_out", "edm.c_noise"};
    const weft_stored_tensor *sigmas = need(golden, "edm.sigmas");
    const weft_process_config c = config();
    cr_assert_eq(sigmas->dtype, WEFT_F64);
    for (int64_t i = 0; i < sigmas->count; i++) {
        double sigma, want;
        memcpy(&sigma, (const char *)sigmas->data + 8 * i, 8);
        const weft_precondition p = weft_process_edm.at(&c, sigma);
        const double ours[4] = {p.in, p.skip, p.out, p.time};
        for (int k = 0; k < 4; k++) {
            memcpy(&want, (const char *)need(golden, names[k])->data + 8 * i, 8);
            cr_assert(fabs(ours[k] - want) <= 1e-9 * (1 + fabs(want)), "%s at %g: %g, not %g",
                      names[k], sigma, ours[k], want);
        }
    }
    weft_tensors_close(golden);
}
