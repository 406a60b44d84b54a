/* weft parity of samplers: compares every level, model call and step from noise to data. The
 * model is defined in the file:
 *
 *   model(x, t) = 0.3 x + 0.1 cos(w t) + 0.2 bias
 *
 * Three forms of file: "runs" of a public scheduler class; a Cosmos pipeline (two prompts and its
 * guidance); RES, for which no class exists. */
#include "parity/parity_sampler.h"

#include "base/config.h"
#include "diffusion/guidance.h"
#include "diffusion/sampler_res.h"
#include "diffusion/scheduler.h"
#include "parity/parity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CALLS_A_STEP = 4 };

typedef struct trajectory {
    weft_parity *p;
    const char *run; /* "run0.", "" */
    weft_scheduler scheduler;
    const weft_sampler *sampler;
    weft_timestep_request request;
    weft_solver_step *step;
    double w, guidance; /* guidance 0: one prompt */
    double first;       /* deviation of the initial noise; NAN: the scheduler's */
    int64_t count, calls;
    float *bias, *negative, *x, *work, *noise; /* noise [draws][count] */
    int64_t draws;
    float *seen[3];                /* per call: x, model input, model output; [calls][count] */
    float *after;                  /* x after each step, [steps][count] */
    weft_noise_level *noise_level; /* level of a call */
    double tolerance, worst;
} trajectory;

static double tolerance_of(const json_t *json)
{
    const json_t *golden = json_object_get(json, "golden");
    const json_t *t = json_object_get(golden ? golden : json, "suggested_tolerance");
    t = json_is_object(t) ? json_object_get(t, "out") : t;
    return json_is_number(t) ? json_number_value(t) : 1e-5;
}

static weft_status floats_of(const weft_parity *p, const char *name, float **out, int64_t *count)
{
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, name, &t));
    *out = weft_alloc(t->count * 4);
    WEFT_TRY(WEFT_ALLOCATED(*out, "%s: \"%s\"", p->file, name));
    weft_tensor_to_f32(t, *out);
    *count = t->count;
    return WEFT_OK;
}

/* Compares actual[count] with the golden tensor of this run, if present. Rows of `each` are
 * compared separately, so that errors of small rows are visible. */
static weft_status compare(trajectory *s, const char *name, const float *actual, int64_t count,
                           int64_t each)
{
    char golden[96], label[128];
    float *expected = NULL;
    int64_t have;
    snprintf(golden, sizeof golden, "%s%s", s->run, name);
    if (!weft_tensors_find(s->p->golden, golden))
        return WEFT_OK;
    WEFT_TRY(floats_of(s->p, golden, &expected, &have));
    weft_status_code status = WEFT_OK;
    if (have != count)
        WEFT_GO(weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = s->p->file, .key = golden, WEFT_NUMBER(have)),
            "the tensor has %" PRId64 " elements, but the sampler produces %" PRId64, have, count));
    for (int64_t i = 0; i < count; i += each) {
        snprintf(label, sizeof label, "%s[%" PRId64 "]", golden, i / each);
        weft_parity_judge(s->p, "trajectory", label, actual + i, expected + i, each,
                          weft_parity_norm(expected + i, each), s->tolerance, &s->worst);
    }
out:
    weft_free(expected);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------ */

static void model(const trajectory *s, const float *x, const weft_noise_level *l, const float *bias,
                  float *out)
{
    const float wave = 0.1f * cosf((float)(s->w * l->time));
    for (int64_t i = 0; i < s->count; i++)
        out[i] = 0.3f * ((float)l->in * x[i]) + wave + 0.2f * bias[i];
}

static weft_status_code on_predict(void *user, int64_t step, const float *x,
                                   const weft_noise_level *l, float *prediction)
{
    trajectory *s = user;
    const size_t bytes = (size_t)s->count * 4;
    const int64_t at = s->calls++;
    (void)step;
    if (at >= s->request.steps * CALLS_A_STEP)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "the sampler calls the model more than %" PRId64 " times",
                          s->request.steps * CALLS_A_STEP);
    model(s, x, l, s->bias, prediction);
    s->noise_level[at] = *l;
    memcpy(s->seen[0] + at * s->count, x, bytes);
    for (int64_t i = 0; i < s->count; i++)
        s->seen[1][at * s->count + i] = (float)l->in * x[i];
    memcpy(s->seen[2] + at * s->count, prediction, bytes);
    if (s->guidance != 0) {
        float *other = s->after + s->request.steps * s->count;
        model(s, x, l, s->negative, other);
        weft_guidance_find("cosmos")->combine(&(weft_guidance_params){.scale = s->guidance},
                                              prediction, other, s->count);
        for (int64_t i = 0; i < s->count; i++) /* denoised, guided output */
            s->seen[2][at * s->count + i] = (float)l->skip * x[i] + (float)l->out * prediction[i];
    }
    return WEFT_OK;
}

static weft_status_code on_noise(void *user, int64_t draw, float *noise)
{
    const trajectory *s = user;
    if (draw >= s->draws && s->draws) /* without draws in the file, noise is 0 */
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = s->p->file, WEFT_NUMBER(s->draws)),
            "\"%snoise\" has %" PRId64 " draws, and the sampler needs more", s->run, s->draws);
    for (int64_t i = 0; i < s->count; i++)
        noise[i] = s->draws ? s->noise[draw * s->count + i] : 0;
    return WEFT_OK;
}

static weft_status_code on_step(void *user, int64_t done, int64_t steps)
{
    trajectory *s = user;
    (void)steps;
    memcpy(s->after + (done - 1) * s->count, s->x, (size_t)s->count * 4);
    return WEFT_OK;
}

/* ---- a trajectory -------------------------------------------------------------------------- */

static void free_trajectory(trajectory *s)
{
    float *const all[] = {s->bias,    s->negative, s->x,       s->work, s->noise,
                          s->seen[0], s->seen[1],  s->seen[2], s->after};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    weft_free(s->step);
    weft_free(s->noise_level);
}

static weft_status take(trajectory *s)
{
    const int64_t steps = s->request.steps;
    char name[64];
    WEFT_TRY(floats_of(s->p, "in.bias", &s->bias, &s->count));
    int64_t count = 0;
    WEFT_TRY(floats_of(s->p, "in.noise", &s->x, &count));
    if (s->guidance != 0 && count == s->count)
        WEFT_TRY(floats_of(s->p, "in.bias_negative", &s->negative, &count));
    if (count != s->count || count < 1)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = s->p->file, .key = "in.bias", WEFT_NUMBER(s->count)),
                          "the tensor has %" PRId64
                          " elements, but \"in.noise\" or \"in.bias_negative\" has %" PRId64,
                          s->count, count);
    snprintf(name, sizeof name, "%snoise", s->run);
    if (weft_tensors_find(s->p->golden, name))
        WEFT_TRY(floats_of(s->p, name, &s->noise, &s->draws));
    s->draws /= count;
    s->step = weft_calloc(steps, sizeof *s->step);
    s->noise_level = weft_calloc(steps * CALLS_A_STEP, sizeof *s->noise_level);
    s->work =
        weft_alloc(weft_sampler_workspace_floats(s->sampler, &s->scheduler.solver, count) * 4);
    s->after = weft_alloc((steps + 1) * count * 4);
    bool whole = s->step && s->noise_level && s->work && s->after;
    for (int i = 0; i < 3; i++)
        whole &= (s->seen[i] = weft_alloc((steps * CALLS_A_STEP + 1) * count * 4)) != NULL;
    return WEFT_ALLOCATED(whole, "%s", s->p->file);
}

static weft_status go(trajectory *s)
{
    const weft_sampler_callbacks callbacks = {
        .predict = on_predict, .noise = on_noise, .progress = on_step, .user = s};
    if (s->request.steps < 1 || s->request.steps > 100000)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = s->p->config_file, WEFT_NUMBER(s->request.steps)),
                          "%" PRId64 " steps are not from 1 to 100000", s->request.steps);
    WEFT_TRY(take(s));
    WEFT_TRY(weft_scheduler_set_timesteps(&s->scheduler, &s->request, s->step));
    if (isnan(s->first))
        s->first = weft_scheduler_first(&s->scheduler, s->step);
    const float first = (float)s->first;
    for (int64_t i = 0; i < s->count; i++)
        s->x[i] *= first;
    const int64_t batch = 1; /* batch of the files */
    WEFT_TRY(weft_sampler_run(s->sampler, &s->scheduler.solver, s->step, s->request.steps, s->x,
                              s->count, s->count / batch, s->work, NULL, &callbacks));
    memcpy(s->seen[0] + s->calls * s->count, s->x, (size_t)s->count * 4);
    return WEFT_OK;
}

/* Returns the sigma of the reference's class at a level. */
static float sigma_of(const weft_scheduler *s, const weft_noise_level *l)
{
    if (s->inverted)
        return (float)l->alpha;
    return (float)(s->path == WEFT_PATH_VP ? l->sigma / l->alpha : l->sigma);
}

/* Log-linear levels have one step more than Euler's class runs. Its end is in the list, too. */
static bool has_unused_end(const trajectory *s)
{
    const weft_scheduler *c = &s->scheduler;
    return c->log_linear && !c->karras && !c->exponential && !c->beta && !s->request.sigma;
}

static weft_status compare_noise_levels(trajectory *s)
{
    const int64_t calls = s->calls;
    float *values;
    WEFT_TRY(WEFT_NEW(values, calls + 2, "%s", s->p->file));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < calls; i++)
        values[i] = (float)s->noise_level[i].time;
    WEFT_GO(compare(s, "timesteps", values, calls, calls)); /* EDM's go through 0 */
    WEFT_GO(compare(s, "current_t", values, calls, 1));
    for (int64_t i = 0; i < calls; i++)
        values[i] = (float)(s->noise_level[i].alpha * s->noise_level[i].alpha);
    WEFT_GO(compare(s, "alphas_cumprod_at_timesteps", values, calls, 1));
    for (int64_t i = 0; i < calls; i++)
        values[i] = sigma_of(&s->scheduler, &s->noise_level[i]);
    values[calls] = sigma_of(&s->scheduler, &s->step[s->request.steps - 1].to);
    values[calls + 1] = s->scheduler.solver.ends_at_zero ? 0 : values[calls];
    WEFT_GO(compare(s, "sigmas", values, calls + 1 + has_unused_end(s), 1));
out:
    weft_free(values);
    return status;
}

static weft_status compare_calls(trajectory *s)
{
    WEFT_TRY(compare_noise_levels(s));
    WEFT_TRY(compare(s, "model_input", s->seen[1], s->calls * s->count, s->count));
    WEFT_TRY(compare(s, "model_output", s->seen[2], s->calls * s->count, s->count));
    return compare(s, "trajectory", s->seen[0], (s->calls + 1) * s->count, s->count);
}

/* ---- the forms of file ---------------------------------------------------------------------- */

static weft_status read_config(trajectory *s, const json_t *config)
{
    json_t *whole = json_copy((json_t *)config);
    if (!whole ||
        json_object_set(whole, "_class_name", json_object_get(s->p->json, "_class_name"))) {
        json_decref(whole);
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = s->p->config_file, .key = "config"),
                          "the member is missing%s%s", s->run[0] ? " in " : "", s->run);
    }
    const weft_status_code status = weft_scheduler_read(whole, s->p->config_file, &s->scheduler);
    json_decref(whole);
    WEFT_TRY(status);
    s->sampler = weft_scheduler_sampler(&s->scheduler);
    return WEFT_OK;
}

/* Reads the sampling settings of a file that are not in its class's config. */
static weft_status read_step(const trajectory *s, const json_t *step, weft_solver *solver)
{
    static const char *const known[] = {
        "eta", "use_clipped_model_output", "order", "s_churn", "s_tmin", "s_tmax", "s_noise"};
    const char *where = s->p->config_file;
    int64_t order = solver->lms_order;
    if (!step)
        return WEFT_OK;
    WEFT_TRY(weft_json_only(step, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64_or(step, "eta", where, solver->eta, &solver->eta));
    WEFT_TRY(weft_json_get_i64_or(step, "order", where, order, &order));
    if (order < 1 || order > WEFT_SOLVER_ORDER)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "order", WEFT_NUMBER(order)),
                          "%" PRId64 " is not from 1 to %d", order, WEFT_SOLVER_ORDER);
    solver->lms_order = order;
    WEFT_TRY(weft_json_get_f64_or(step, "s_churn", where, solver->churn, &solver->churn));
    WEFT_TRY(weft_json_get_f64_or(step, "s_tmin", where, solver->churn_min, &solver->churn_min));
    WEFT_TRY(weft_json_get_f64_or(step, "s_tmax", where, solver->churn_max, &solver->churn_max));
    WEFT_TRY(
        weft_json_get_f64_or(step, "s_noise", where, solver->churn_noise, &solver->churn_noise));
    return json_object_get(step, "use_clipped_model_output")
               ? weft_json_get_bool(step, "use_clipped_model_output", where,
                                    &solver->noise_of_clipped)
               : WEFT_OK;
}

/* Reads a list of numbers into a new array; NULL: no such list. */
static weft_status read_numbers(const trajectory *s, const json_t *set, const char *key,
                                double **out, int64_t *count)
{
    const json_t *list = json_object_get(set, key);
    *count = (int64_t)json_array_size(list);
    *out = NULL;
    if (!*count)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(*out, *count, "%s", s->p->config_file));
    for (int64_t i = 0; i < *count; i++)
        (*out)[i] = json_number_value(json_array_get(list, (size_t)i));
    return WEFT_OK;
}

/* A list of Euler's levels also has the end of the last step. */
static weft_status read_request(trajectory *s, const json_t *run, double *given[2])
{
    static const char *const known[] = {"sigmas", "mu", "timesteps", "num_inference_steps",
                                        "pixels"};
    const char *where = s->p->config_file;
    const json_t *set = json_object_get(run, "set_timesteps");
    const bool ends = s->scheduler.path == WEFT_PATH_VE;
    int64_t sigmas, times;
    if (set)
        WEFT_TRY(weft_json_only(set, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64_or(set, "mu", where, NAN, &s->request.mu));
    const json_t *pixels = json_object_get(set, "pixels");
    for (size_t i = 0; i < 3 && pixels; i++)
        s->request.pixels[i] = json_integer_value(json_array_get(pixels, i));
    if (pixels)
        s->request.mu = weft_scheduler_mu(&s->scheduler, 0, s->request.pixels);
    WEFT_TRY(read_numbers(s, set, "sigmas", &given[0], &sigmas));
    WEFT_TRY(read_numbers(s, set, "timesteps", &given[1], &times));
    if (ends && sigmas)
        s->request.end = given[0][--sigmas];
    const int64_t count = sigmas ? sigmas : times;
    WEFT_TRY(weft_json_get_i64_or(run, "num_inference_steps", where, count, &s->request.steps));
    if (count && count != s->request.steps)
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED,
            WEFT_AT(.file = where, .key = "num_inference_steps", WEFT_NUMBER(s->request.steps)),
            "%" PRId64 " steps do not match %" PRId64 " sigmas or timesteps", s->request.steps,
            count);
    s->request.sigma = given[0];
    s->request.time = given[1];
    return WEFT_OK;
}

static weft_status run_class(trajectory *s, const json_t *run)
{
    double *given[2] = {NULL, NULL};
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_config(s, json_object_get(run, "config")));
    WEFT_GO(read_step(s, json_object_get(run, "step"), &s->scheduler.solver));
    WEFT_GO(read_request(s, run, given));
    WEFT_GO(weft_json_get_f64_or(run, "w", s->p->config_file, 1, &s->w));
    WEFT_GO(weft_json_get_f64_or(run, "init_noise_sigma", s->p->config_file, NAN, &s->first));
    WEFT_GO(go(s));
    const float first = (float)s->first,
                actual = (float)weft_scheduler_first(&s->scheduler, s->step);
    weft_parity_judge(s->p, "trajectory", "init_noise_sigma", &actual, &first, 1, s->first,
                      s->tolerance, &s->worst);
    WEFT_GO(compare_calls(s));
out:
    weft_free(given[0]);
    weft_free(given[1]);
    return status;
}

/* RES uses all EDM levels, including the last one and the step to data. */
static weft_status run_res(trajectory *s, const json_t *run)
{
    const char *where = s->p->config_file, *solver;
    char name[32];
    int64_t steps;
    WEFT_TRY(weft_scheduler_of("EDMEulerScheduler", where, &s->scheduler));
    WEFT_TRY(weft_json_get_string(run, "solver", where, &solver));
    WEFT_TRY(weft_json_get_i64(run, "num_steps", where, &steps));
    WEFT_TRY(weft_json_get_f64(run, "sigma_min", where, &s->scheduler.sigma_min));
    WEFT_TRY(weft_json_get_f64(run, "sigma_max", where, &s->scheduler.sigma_max));
    WEFT_TRY(weft_json_get_f64(run, "sigma_data", where, &s->scheduler.sigma_data));
    WEFT_TRY(weft_json_get_f64(run, "rho", where, &s->scheduler.rho));
    snprintf(name, sizeof name, "res_%s", solver);
    s->sampler = weft_sampler_find(name);
    if (!s->sampler)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "solver", .value = solver),
                          "unknown solver '%.80s'; use 2ab or 2mid", solver);
    s->request.steps = (s->sampler == &weft_sampler_res_2mid ? steps / 2 : steps) + 1;
    s->w = 1;
    s->first = s->scheduler.sigma_max;
    WEFT_TRY(go(s));
    /* x at the start of each step; the end of the last step is the sample */
    const int64_t each = s->count, n = s->request.steps;
    float *begin = s->seen[1];
    memcpy(begin, s->seen[0], (size_t)each * 4);
    memcpy(begin + each, s->after, (size_t)((n - 1) * each) * 4);
    WEFT_TRY(compare(s, "trajectory", begin, n * each, each));
    WEFT_TRY(compare(s, "final", s->after + (n - 1) * each, each, each));
    for (int64_t i = 0; i < n; i++)
        begin[i] = (float)s->step[i].from.sigma;
    return compare(s, "sigmas", begin, n, 1);
}

/* The pipeline starts with the noise of the highest level, whatever the class's config. */
static weft_status run_pipeline(trajectory *s, const json_t *json)
{
    const char *where = s->p->config_file;
    double *none[2] = {NULL, NULL};
    WEFT_TRY(read_config(s, json_object_get(json, "config")));
    WEFT_TRY(read_request(s, json, none));
    WEFT_TRY(weft_json_get_f64(json, "guidance_scale", where, &s->guidance));
    s->w = 1;
    s->first = s->scheduler.sigma_max;
    WEFT_TRY(go(s));
    WEFT_TRY(compare_noise_levels(s));
    WEFT_TRY(compare(s, "x0", s->seen[2], s->calls * s->count, s->count));
    return compare(s, "trajectory", s->seen[0], (s->calls + 1) * s->count, s->count);
}

static bool is_res(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strncmp(name, "RES", 3);
}

static bool is_sampler(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    const char *kind = name ? strstr(name, "Scheduler") : NULL;
    return is_res(json) || (kind && !strcmp(kind, "Scheduler"));
}

static weft_status compare_sampler(weft_parity *p)
{
    const json_t *runs = json_object_get(p->json, "runs");
    const int64_t count = json_is_array(runs) ? (int64_t)json_array_size(runs) : 1;
    double worst = 0;
    const double tolerance = tolerance_of(p->json);
    for (int64_t i = 0; i < count; i++) {
        char prefix[32] = "";
        const json_t *run = runs ? json_array_get(runs, (size_t)i) : p->json;
        if (runs)
            snprintf(prefix, sizeof prefix, "run%" PRId64 ".", i);
        trajectory s = {
            .p = p, .run = prefix, .request.mu = NAN, .request.end = NAN, .tolerance = tolerance};
        const weft_status_code status = is_res(p->json) ? run_res(&s, run)
                                        : runs          ? run_class(&s, run)
                                                        : run_pipeline(&s, run);
        free_trajectory(&s);
        if (status != WEFT_OK)
            return weft_error_at(status, WEFT_AT(.file = p->file, .key = prefix));
        if (weft_parity_is_larger(s.worst, worst))
            worst = s.worst;
    }
    weft_parity_measured(p, "trajectories", worst, tolerance);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_sampler = {"sampler", is_sampler, compare_sampler};
