/* Samplers on data with a known exact denoiser: normally distributed scalars.
 *
 *   denoised(x) = m + alpha s^2 / (alpha^2 s^2 + sigma^2) (x - alpha m)
 *   probability flow: (x - alpha m) / sqrt(alpha^2 s^2 + sigma^2) is constant */
#include "base/config.h"
#include "base/rng.h"
#include "diffusion/sampler.h"
#include "diffusion/sampler_jump.h"
#include "diffusion/sampler_lms.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/sampler_pndm.h"
#include "diffusion/sampler_res.h"
#include "diffusion/sampler_singlestep.h"
#include "diffusion/sampler_unipc.h"
#include "diffusion/scheduler.h"
#include "diffusion/scheduler_space.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double mean = 0.7, deviation = 0.4;

static weft_status_code exact(void *user, int64_t step, const float *x, const weft_noise_level *l,
                              float *answer)
{
    const int64_t count = *(const int64_t *)user;
    const double variance = l->alpha * l->alpha * deviation * deviation + l->sigma * l->sigma;
    const double slope = l->alpha * deviation * deviation / variance;
    (void)step;
    for (int64_t i = 0; i < count; i++) {
        const double data = mean + slope * ((double)x[i] - l->alpha * mean);
        answer[i] = (float)((data - l->skip * (double)x[i]) / l->out);
    }
    return WEFT_OK;
}

static weft_status_code draw(void *user, int64_t number, float *noise)
{
    const int64_t count = *(const int64_t *)user;
    for (int64_t i = 0; i < count; i++)
        noise[i] = weft_random_normal(7, WEFT_RNG_TEST, (uint64_t)(number * count + i));
    return WEFT_OK;
}

static weft_noise_level level_at(const weft_scheduler *s, double lambda)
{
    const double ratio = exp(-lambda); /* sigma / alpha */
    double alpha = 1;
    if (s->path == WEFT_PATH_VP)
        alpha = 1 / sqrt(1 + ratio * ratio);
    else if (s->path == WEFT_PATH_FLOW)
        alpha = 1 / (1 + ratio);
    return weft_scheduler_level(s, alpha, s->path == WEFT_PATH_FLOW ? 1 - alpha : alpha * ratio);
}

/* Largest error at lambda 2.5 of a trajectory of `steps` steps from lambda -2. */
static double error_of(const weft_scheduler *s, const weft_sampler *sampler, const weft_solver *o,
                       int64_t steps)
{
    enum { COUNT = 8, MOST = 256 };
    const double first = -2, last = 2.5;
    weft_solver_step leg[MOST];
    float x[COUNT], work[COUNT * 16];
    int64_t count = COUNT;
    cr_assert(steps <= MOST &&
              weft_sampler_workspace_floats(sampler, o, COUNT) <= WEFT_COUNT(work));
    for (int64_t i = 0; i < steps; i++) {
        const double step = (last - first) / (double)steps, at = first + step * (double)i;
        leg[i] = (weft_solver_step){level_at(s, at), level_at(s, at + step / 2),
                                    level_at(s, at + step), false};
    }
    const weft_noise_level a = leg[0].from, b = leg[steps - 1].to;
    const double from = sqrt(pow(a.alpha * deviation, 2) + a.sigma * a.sigma),
                 to = sqrt(pow(b.alpha * deviation, 2) + b.sigma * b.sigma);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(a.alpha * mean + from * (i - 3.5) / 2);
    const weft_sampler_callbacks callbacks = {.predict = exact, .noise = draw, .user = &count};
    cr_assert_eq(weft_sampler_run(sampler, o, leg, steps, x, COUNT, COUNT, work, NULL, &callbacks),
                 WEFT_OK);
    double worst = 0;
    for (int i = 0; i < COUNT; i++)
        worst = fmax(worst, fabs((double)x[i] - (b.alpha * mean + to * (i - 3.5) / 2)));
    return worst;
}

static const weft_scheduler paths[] = {
    {.path = WEFT_PATH_FLOW, .prediction = WEFT_PREDICT_FLOW, .times = 1000},
    {.path = WEFT_PATH_VP, .prediction = WEFT_PREDICT_NOISE, .times = 1000},
    {.path = WEFT_PATH_VP, .prediction = WEFT_PREDICT_V, .times = 1000},
    {.path = WEFT_PATH_VP, .prediction = WEFT_PREDICT_DATA, .times = 1000},
    {.path = WEFT_PATH_EDM, .times = 1000, .sigma_data = 0.5},
    {.path = WEFT_PATH_VE, .prediction = WEFT_PREDICT_NOISE, .times = 1000},
    {.path = WEFT_PATH_VE, .prediction = WEFT_PREDICT_V, .times = 1000},
};

/* Close: the order that halving the steps shows, on every path. */
Test(sampler, converges_at_its_order)
{
    static const struct {
        const weft_sampler *sampler;
        double order;
        weft_solver solver;
    } rows[] = {
        {&weft_sampler_euler, 1, {.order = 1}},
        {&weft_sampler_ddim, 1, {.order = 1}},
        {&weft_sampler_heun, 2, {.order = 1}},
        {&weft_sampler_dpmpp, 1, {.order = 1}},
        {&weft_sampler_dpmpp, 2, {.order = 2, .form = WEFT_SOLVER_MIDPOINT}},
        {&weft_sampler_dpmpp, 2, {.order = 2, .form = WEFT_SOLVER_HEUN}},
        {&weft_sampler_dpmpp, 2, {.order = 3}}, /* its first step is of first order */
        {&weft_sampler_dpmpp, 2, {.order = 2, .of_noise = true}},
        {&weft_sampler_dpmpp, 2, {.order = 3, .of_noise = true}},
        {&weft_sampler_unipc, 2, {.order = 1, .form = WEFT_SOLVER_BH2}},
        {&weft_sampler_unipc, 3, {.order = 2, .form = WEFT_SOLVER_BH2}},
        {&weft_sampler_unipc, 3, {.order = 2, .form = WEFT_SOLVER_BH1}},
        {&weft_sampler_unipc, 2, {.order = 2, .form = WEFT_SOLVER_BH2, .uncorrected = UINT64_MAX}},
        {&weft_sampler_unipc, 3, {.order = 2, .form = WEFT_SOLVER_BH2, .of_noise = true}},
        {&weft_sampler_lms, 1, {.lms_order = 1}},
        {&weft_sampler_lms, 2, {.lms_order = 2}},
        {&weft_sampler_lms, 2, {.lms_order = 4}}, /* its first step is of first order */
        /* combinations of v at several levels: first order, as in the reference */
        {&weft_sampler_pndm, 1, {.skips_prk = true}},
        {&weft_sampler_pndm, 1, {.skips_prk = false}},
        {&weft_sampler_dpm_singlestep, 1, {.order = 1}},
        {&weft_sampler_dpm_singlestep, 2, {.order = 2, .form = WEFT_SOLVER_MIDPOINT}},
        {&weft_sampler_dpm_singlestep, 2, {.order = 2, .form = WEFT_SOLVER_HEUN}},
        {&weft_sampler_dpm_singlestep, 3, {.order = 3, .form = WEFT_SOLVER_HEUN}},
        {&weft_sampler_dpm_singlestep, 2, {.order = 2, .of_noise = true}},
        {&weft_sampler_res_2ab, 2, {.order = 1}},
        {&weft_sampler_res_2mid, 2, {.order = 1}},
    };
    for (int k = 0; k < WEFT_COUNT(rows); k++)
        for (int p = 0; p < WEFT_COUNT(paths); p++) {
            const weft_solver *o = &rows[k].solver;
            const double coarse = error_of(&paths[p], rows[k].sampler, o, 12);
            const double fine = error_of(&paths[p], rows[k].sampler, o, 24);
            const double order = log2(coarse / fine);
            cr_expect(order > rows[k].order - 0.45 || fine < 2e-6,
                      "%s of order %" PRId64
                      " on path %d: errors %.2e and %.2e, order %.2f and not %g",
                      rows[k].sampler->name, o->order, p, coarse, fine, order, rows[k].order);
            cr_expect(fine < 0.1);
        }
}

/* Samplers that draw noise end with the data's mean and deviation. 20,000 samples: 0.7 % of noise;
 * DDPM's variance is that of data without deviation, which is too little by 4 % here. */
Test(sampler, stochastic_ones_keep_the_distribution)
{
    enum { COUNT = 20000, STEPS = 200 };
    static const struct {
        const weft_sampler *sampler;
        weft_solver solver;
    } rows[] = {
        {&weft_sampler_ddpm, {.order = 1}},
        {&weft_sampler_ddim, {.order = 1, .eta = 1}},
        {&weft_sampler_dpmpp, {.order = 2, .stochastic = true, .ends_at_zero = true}},
        {&weft_sampler_cogvideox_dpm, {.order = 2}},
        {&weft_sampler_euler_ancestral, {.order = 1}},
        /* steps of second order draw other noise than the step that they repeat: too little */
        {&weft_sampler_dpm_singlestep, {.order = 1, .stochastic = true, .ends_at_zero = true}},
    };
    weft_scheduler s;
    weft_solver_step leg[STEPS];
    int64_t count = COUNT;
    float *x = malloc(sizeof *x * COUNT), *work = malloc(sizeof *work * COUNT * 8);
    cr_assert_eq(weft_scheduler_of("DDIMScheduler", "", &s), WEFT_OK);
    s.betas.zero_snr = true;
    s.prediction = WEFT_PREDICT_V;
    s.spacing = WEFT_SPACING_TRAILING;
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){STEPS, NULL, NAN}, leg),
                 WEFT_OK);
    for (int k = 0; k < WEFT_COUNT(rows); k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < COUNT; i++)
            x[i] = weft_random_normal(3, WEFT_RNG_TEST, (uint64_t)i);
        const weft_sampler_callbacks callbacks = {.predict = exact, .noise = draw, .user = &count};
        cr_assert_eq(weft_sampler_run(rows[k].sampler, &rows[k].solver, leg, STEPS, x, COUNT, COUNT,
                                      work, NULL, &callbacks),
                     WEFT_OK);
        for (int i = 0; i < COUNT; i++) {
            sum += (double)x[i];
            squares += pow((double)x[i] - mean, 2);
        }
        cr_expect(fabs(sum / COUNT - mean) < 0.015, "%s: mean %g", rows[k].sampler->name,
                  sum / COUNT);
        cr_expect(fabs(sqrt(squares / COUNT) / deviation - 1) < 0.05, "%s: deviation %g",
                  rows[k].sampler->name, sqrt(squares / COUNT));
    }
    free(x);
    free(work);
}

/* Euler with added noise in every step ends with the data's mean and deviation, too. The model does
 * not see the added noise, so that much of it is not removed: with a churn of 40, 6 % remain. */
Test(sampler, churn_keeps_the_distribution)
{
    enum { COUNT = 20000, STEPS = 200 };
    weft_scheduler s;
    weft_solver_step leg[STEPS];
    int64_t count = COUNT;
    float *x = malloc(sizeof *x * COUNT), *work = malloc(sizeof *work * COUNT * 2);
    cr_assert_eq(weft_scheduler_of("EulerDiscreteScheduler", "", &s), WEFT_OK);
    s.karras = true;
    s.solver.churn = 10;
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){STEPS, NULL, NAN}, leg),
                 WEFT_OK);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)weft_scheduler_first(&s, leg) *
               weft_random_normal(3, WEFT_RNG_TEST, (uint64_t)i);
    const weft_sampler_callbacks callbacks = {.predict = exact, .noise = draw, .user = &count};
    cr_assert_eq(weft_sampler_run(&weft_sampler_euler, &s.solver, leg, STEPS, x, COUNT, COUNT, work,
                                  NULL, &callbacks),
                 WEFT_OK);
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += (double)x[i];
        squares += pow((double)x[i] - mean, 2);
    }
    cr_expect(fabs(sum / COUNT - mean) < 0.015, "mean %g", sum / COUNT);
    cr_expect(fabs(sqrt(squares / COUNT) / deviation - 1) < 0.05, "deviation %g",
              sqrt(squares / COUNT));
    free(x);
    free(work);
}

static weft_status_code nothing(void *user, int64_t step, const float *x, const weft_noise_level *l,
                                float *answer)
{
    (void)x, (void)l;
    int64_t *seen = user;
    seen[step]++;
    answer[0] = seen[3] ? NAN : 0;
    return WEFT_OK;
}

static void three_legs(weft_solver_step *leg)
{
    weft_scheduler s;
    cr_assert_eq(weft_scheduler_of("FlowMatchEulerDiscreteScheduler", "", &s), WEFT_OK);
    cr_assert_eq(weft_scheduler_set_timesteps(&s, &(weft_timestep_request){3, NULL, NAN}, leg),
                 WEFT_OK);
}

/* Caches store their residuals by step. Heun's last step, to data, is an Euler step. */
Test(sampler, tells_the_step)
{
    weft_solver_step leg[3];
    float x = 1, work[3];
    int64_t seen[4] = {0};
    three_legs(leg);
    const weft_sampler_callbacks callbacks = {.predict = nothing, .user = seen};
    cr_assert_eq(weft_sampler_run(&weft_sampler_heun, &weft_solver_defaults, leg, 3, &x, 1, 1, work,
                                  NULL, &callbacks),
                 WEFT_OK);
    cr_assert(seen[0] == 2 && seen[1] == 2 && seen[2] == 1);
}

Test(sampler, stops_at_nan)
{
    weft_solver_step leg[3];
    float x = 1, work[2];
    int64_t seen[4] = {0, 0, 0, 1};
    three_legs(leg);
    const weft_sampler_callbacks callbacks = {.predict = nothing, .user = seen};
    cr_assert_eq(weft_sampler_run(&weft_sampler_euler, &weft_solver_defaults, leg, 3, &x, 1, 1,
                                  work, NULL, &callbacks),
                 WEFT_E_NUMERIC);
    cr_assert(seen[0] == 1 && seen[1] == 0);
}

/* Every row goes down every class's levels from pure noise to data, and finds normal data. Close:
 * few steps, and the first is of first order. */
Test(sampler, every_row_on_every_class)
{
    enum { COUNT = 8, STEPS = 40 };
    for (int c = 0; weft_scheduler_classes[c].name; c++)
        for (int k = 0; weft_samplers[k]; k++) {
            weft_scheduler s;
            weft_solver_step leg[STEPS];
            int64_t count = COUNT;
            float x[COUNT], work[COUNT * 16];
            cr_assert_eq(weft_scheduler_of(weft_scheduler_classes[c].name, "", &s), WEFT_OK);
            s.solver.clip = WEFT_SAMPLE_CLAMP_NONE;
            cr_assert_eq(
                weft_scheduler_set_timesteps(&s, &(weft_timestep_request){STEPS, NULL, NAN}, leg),
                WEFT_OK);
            for (int i = 0; i < COUNT; i++)
                x[i] = (float)(weft_scheduler_first(&s, leg) * (i - 3.5) / 2);
            const weft_sampler_callbacks callbacks = {
                .predict = exact, .noise = draw, .user = &count};
            cr_assert_eq(weft_sampler_run(weft_samplers[k], &s.solver, leg, STEPS, x, COUNT, COUNT,
                                          work, NULL, &callbacks),
                         WEFT_OK, "%s on %s: %s", weft_samplers[k]->name, s.kind->name,
                         weft_error_message());
            for (int i = 0; i < COUNT; i++)
                cr_expect(fabs((double)x[i] - mean) < 5 * deviation, "%s on %s: %g",
                          weft_samplers[k]->name, s.kind->name, (double)x[i]);
        }
}

typedef struct stopping {
    int64_t count, at;
} stopping;

static weft_status_code stop(void *user, int64_t done, int64_t steps)
{
    (void)steps;
    return done == ((stopping *)user)->at ? WEFT_E_CANCELLED : WEFT_OK;
}

/* A trajectory that is interrupted after any step resumes bitwise from the state of
 * weft_sampler_cursor alone. For every sampler, also those with history and fresh noise. */
Test(sampler, goes_on_from_its_place)
{
    enum { COUNT = 8, STEPS = 9 };
    static const char *const classes[] = {"FlowMatchEulerDiscreteScheduler",
                                          "DPMSolverMultistepScheduler", "DDPMScheduler"};
    for (int c = 0; c < WEFT_COUNT(classes); c++)
        for (int k = 0; weft_samplers[k]; k++) {
            weft_scheduler s;
            weft_solver_step leg[STEPS];
            float whole[COUNT], work[COUNT * 16];
            cr_assert_eq(weft_scheduler_of(classes[c], "", &s), WEFT_OK);
            cr_assert_eq(
                weft_scheduler_set_timesteps(&s, &(weft_timestep_request){STEPS, NULL, NAN}, leg),
                WEFT_OK);
            s.solver.stochastic = k % 2 == 1;
            s.solver.eta = 0.5;
            for (int64_t at = 0; at < STEPS; at++) {
                weft_sampler_cursor place = {0};
                stopping user = {COUNT, at};
                float x[COUNT], kept[COUNT * 16];
                const weft_sampler_callbacks callbacks = {
                    .predict = exact, .noise = draw, .progress = stop, .user = &user};
                const int64_t keeps =
                    weft_sampler_history_floats(weft_samplers[k], &s.solver, COUNT);
                for (int i = 0; i < COUNT; i++)
                    x[i] = (float)(weft_scheduler_first(&s, leg) * (i - 3.5) / 2);
                const weft_status_code first =
                    weft_sampler_run(weft_samplers[k], &s.solver, leg, STEPS, x, COUNT, COUNT, work,
                                     &place, &callbacks);
                cr_assert_eq(first, at ? WEFT_E_CANCELLED : WEFT_OK);
                if (!at) {
                    memcpy(whole, x, sizeof whole);
                    continue;
                }
                cr_assert_eq(place.step, at);
                memset(kept, 0xff, sizeof kept);
                memcpy(kept, work, (size_t)keeps * sizeof *kept);
                user.at = 0;
                cr_assert_eq(weft_sampler_run(weft_samplers[k], &s.solver, leg, STEPS, x, COUNT,
                                              COUNT, kept, &place, &callbacks),
                             WEFT_OK);
                cr_expect_arr_eq(x, whole, sizeof whole, "%s on %s, left after step %" PRId64,
                                 weft_samplers[k]->name, s.kind->name, at);
            }
        }
}
