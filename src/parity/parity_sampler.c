/* weft parity of samplers: every level, model call and step of a walk from noise to data, with a
 * model that the file describes,
 *
 *   model(x, t) = 0.3 x + 0.1 cos(w t) + 0.2 bias
 *
 * Three forms of file: "runs" of a public scheduler class; a Cosmos pipeline (two prompts and its
 * guidance); RES, of which no class exists. */
#include "base/config.h"
#include "cli/parity.h"
#include "diffusion/guidance.h"
#include "diffusion/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CALLS_A_STEP = 2 };

typedef struct walk {
    weft_parity *p;
    const char *run; /* "run0.", "" */
    weft_scheduler scheduler;
    const weft_sampler *sampler;
    weft_walk request;
    weft_leg *leg;
    double w, first, guidance; /* guidance 0: one prompt */
    int64_t count, calls;
    float *bias, *negative, *x, *work, *noise; /* noise [draws][count] */
    int64_t draws;
    float *seen[3];    /* at each call: x, the model's input, its answer; [calls][count] */
    float *after;      /* x after each step, [steps][count] */
    weft_level *level; /* of each call */
    double tolerance, worst;
} walk;

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
    if (!*out)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for \"%s\"", p->file, name);
    weft_tensor_to_f32(t, *out);
    *count = t->count;
    return WEFT_OK;
}

/* ours[count] against the golden tensor of this run, if the file has it; row by row of `each`, so
 * that what is small is not lost beside what is large. */
static weft_status compare(walk *s, const char *name, const float *ours, int64_t count,
                           int64_t each)
{
    char golden[96], told[128];
    float *theirs = NULL;
    int64_t have;
    snprintf(golden, sizeof golden, "%s%s", s->run, name);
    if (!weft_tensors_find(s->p->golden, golden))
        return WEFT_OK;
    WEFT_TRY(floats_of(s->p, golden, &theirs, &have));
    weft_status_code status = WEFT_OK;
    if (have != count)
        status = weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has %lld numbers, the walk makes %lld",
                           s->p->file, golden, (long long)have, (long long)count);
    for (int64_t i = 0; status == WEFT_OK && i < count; i += each) {
        snprintf(told, sizeof told, "%s[%lld]", golden, (long long)(i / each));
        weft_parity_judge(s->p, "walk", told, ours + i, theirs + i, each,
                          weft_parity_norm(theirs + i, each), s->tolerance, &s->worst);
    }
    weft_free(theirs);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------ */

static void model(const walk *s, const float *x, const weft_level *l, const float *bias, float *out)
{
    const float wave = 0.1f * cosf((float)(s->w * l->time));
    for (int64_t i = 0; i < s->count; i++)
        out[i] = 0.3f * ((float)l->in * x[i]) + wave + 0.2f * bias[i];
}

static weft_status_code on_answer(void *user, int64_t step, const float *x, const weft_level *l,
                                  float *answer)
{
    walk *s = user;
    const size_t bytes = (size_t)s->count * 4;
    const int64_t at = s->calls++;
    (void)step;
    if (at >= s->request.steps * CALLS_A_STEP)
        return weft_fail(WEFT_E_INTERNAL, "the sampler calls the model too often");
    model(s, x, l, s->bias, answer);
    s->level[at] = *l;
    memcpy(s->seen[0] + at * s->count, x, bytes);
    for (int64_t i = 0; i < s->count; i++)
        s->seen[1][at * s->count + i] = (float)l->in * x[i];
    memcpy(s->seen[2] + at * s->count, answer, bytes);
    if (s->guidance != 0) {
        float *other = s->after + s->request.steps * s->count;
        model(s, x, l, s->negative, other);
        weft_guidance_find("cosmos")->combine(&(weft_guiding){.scale = s->guidance}, answer, other,
                                              s->count);
        for (int64_t i = 0; i < s->count; i++) /* what a pipeline's file tells: denoised, guided */
            s->seen[2][at * s->count + i] = (float)l->skip * x[i] + (float)l->out * answer[i];
    }
    return WEFT_OK;
}

static weft_status_code on_noise(void *user, int64_t draw, float *noise)
{
    const walk *s = user;
    if (draw >= s->draws &&
        s->draws) /* the last of two draws, or none: the file has what was drawn */
        return weft_fail(WEFT_E_FORMAT, "%s: \"%snoise\" has %lld draws; more are needed",
                         s->p->file, s->run, (long long)s->draws);
    for (int64_t i = 0; i < s->count; i++)
        noise[i] = s->draws ? s->noise[draw * s->count + i] : 0;
    return WEFT_OK;
}

static weft_status_code on_step(void *user, int64_t done, int64_t steps)
{
    walk *s = user;
    (void)steps;
    memcpy(s->after + (done - 1) * s->count, s->x, (size_t)s->count * 4);
    return WEFT_OK;
}

/* ---- a walk --------------------------------------------------------------------------------- */

static void free_walk(walk *s)
{
    float *const all[] = {s->bias,    s->negative, s->x,       s->work, s->noise,
                          s->seen[0], s->seen[1],  s->seen[2], s->after};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    weft_free(s->leg);
    weft_free(s->level);
}

static weft_status take(walk *s)
{
    const int64_t steps = s->request.steps;
    char name[64];
    WEFT_TRY(floats_of(s->p, "in.bias", &s->bias, &s->count));
    int64_t count = 0;
    WEFT_TRY(floats_of(s->p, "in.noise", &s->x, &count));
    if (s->guidance != 0 && count == s->count)
        WEFT_TRY(floats_of(s->p, "in.bias_negative", &s->negative, &count));
    if (count != s->count || count < 1)
        return weft_fail(WEFT_E_SHAPE, "%s: \"in.bias\" and \"in.noise\" differ in size",
                         s->p->file);
    snprintf(name, sizeof name, "%snoise", s->run);
    if (weft_tensors_find(s->p->golden, name))
        WEFT_TRY(floats_of(s->p, name, &s->noise, &s->draws));
    s->draws /= count;
    s->leg = weft_alloc(steps * (int64_t)sizeof *s->leg);
    s->level = weft_alloc(steps * CALLS_A_STEP * (int64_t)sizeof *s->level);
    s->work = weft_alloc(weft_sampler_work(s->sampler, &s->scheduler.solver, count) * 4);
    s->after = weft_alloc((steps + 1) * count * 4);
    bool whole = s->leg && s->level && s->work && s->after;
    for (int i = 0; i < 3; i++)
        whole &= (s->seen[i] = weft_alloc((steps * CALLS_A_STEP + 1) * count * 4)) != NULL;
    return whole ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "%s: out of memory", s->p->file);
}

static weft_status go(walk *s)
{
    const weft_sampler_callbacks callbacks = {
        .answer = on_answer, .noise = on_noise, .progress = on_step, .user = s};
    if (s->request.steps < 1 || s->request.steps > 100000)
        return weft_fail(WEFT_E_FORMAT, "%s: %lld steps", s->p->config_file,
                         (long long)s->request.steps);
    WEFT_TRY(take(s));
    WEFT_TRY(weft_scheduler_lay(&s->scheduler, &s->request, s->leg));
    const float first = (float)s->first;
    for (int64_t i = 0; i < s->count; i++)
        s->x[i] *= first;
    const int64_t batch = 1; /* of these files */
    WEFT_TRY(weft_sampler_run(s->sampler, &s->scheduler.solver, s->leg, s->request.steps, s->x,
                              s->count, s->count / batch, s->work, NULL, &callbacks));
    memcpy(s->seen[0] + s->calls * s->count, s->x, (size_t)s->count * 4);
    return WEFT_OK;
}

/* What the reference's class calls sigma at a level. */
static float sigma_of(const weft_scheduler *s, const weft_level *l)
{
    if (s->inverted)
        return (float)l->alpha;
    return (float)(s->path == WEFT_PATH_VP ? l->sigma / l->alpha : l->sigma);
}

static weft_status compare_levels(walk *s)
{
    const int64_t calls = s->calls;
    float *told = weft_alloc((calls + 1) * 4);
    if (!told)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", s->p->file);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < calls; i++)
        told[i] = (float)s->level[i].time;
    WEFT_GO(compare(s, "timesteps", told, calls, calls)); /* EDM's go through 0 */
    WEFT_GO(compare(s, "current_t", told, calls, 1));
    for (int64_t i = 0; i < calls; i++)
        told[i] = (float)(s->level[i].alpha * s->level[i].alpha);
    WEFT_GO(compare(s, "alphas_cumprod_at_timesteps", told, calls, 1));
    for (int64_t i = 0; i < calls; i++)
        told[i] = sigma_of(&s->scheduler, &s->level[i]);
    told[calls] = sigma_of(&s->scheduler, &s->leg[s->request.steps - 1].to);
    WEFT_GO(compare(s, "sigmas", told, calls + 1, 1));
out:
    weft_free(told);
    return status;
}

static weft_status compare_calls(walk *s)
{
    WEFT_TRY(compare_levels(s));
    WEFT_TRY(compare(s, "model_input", s->seen[1], s->calls * s->count, s->count));
    WEFT_TRY(compare(s, "model_output", s->seen[2], s->calls * s->count, s->count));
    return compare(s, "trajectory", s->seen[0], (s->calls + 1) * s->count, s->count);
}

/* ---- the forms of file ---------------------------------------------------------------------- */

static weft_status read_config(walk *s, const json_t *config)
{
    json_t *whole = json_copy((json_t *)config);
    if (!whole ||
        json_object_set(whole, "_class_name", json_object_get(s->p->json, "_class_name"))) {
        json_decref(whole);
        return weft_fail(WEFT_E_FORMAT, "%s: %sno \"config\"", s->p->config_file, s->run);
    }
    const weft_status_code status = weft_scheduler_read(whole, s->p->config_file, &s->scheduler);
    json_decref(whole);
    s->sampler = status == WEFT_OK ? s->scheduler.kind->sampler : NULL;
    return status;
}

/* What a file asks of a walk beside its class's config. */
static weft_status read_step(const walk *s, const json_t *step, weft_solver *solver)
{
    static const char *const known[] = {"eta", "use_clipped_model_output"};
    const char *where = s->p->config_file;
    if (!step)
        return WEFT_OK;
    WEFT_TRY(weft_json_only(step, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64_or(step, "eta", where, solver->eta, &solver->eta));
    return json_object_get(step, "use_clipped_model_output")
               ? weft_json_get_bool(step, "use_clipped_model_output", where,
                                    &solver->noise_of_clipped)
               : WEFT_OK;
}

static weft_status read_request(walk *s, const json_t *run, double **sigma)
{
    static const char *const known[] = {"sigmas", "mu"};
    const char *where = s->p->config_file;
    const json_t *set = json_object_get(run, "set_timesteps"),
                 *list = json_object_get(set, "sigmas");
    if (set)
        WEFT_TRY(weft_json_only(set, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64_or(set, "mu", where, NAN, &s->request.mu));
    const int64_t given = (int64_t)json_array_size(list);
    WEFT_TRY(weft_json_get_i64_or(run, "num_inference_steps", where, given, &s->request.steps));
    if (!given)
        return WEFT_OK;
    *sigma = weft_alloc(given * (int64_t)sizeof **sigma);
    if (!*sigma || given != s->request.steps)
        return weft_fail(WEFT_E_FORMAT, "%s: %lld sigmas for %lld steps", where, (long long)given,
                         (long long)s->request.steps);
    for (int64_t i = 0; i < given; i++)
        (*sigma)[i] = json_number_value(json_array_get(list, (size_t)i));
    s->request.sigma = *sigma;
    return WEFT_OK;
}

static weft_status run_class(walk *s, const json_t *run)
{
    double *sigma = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_config(s, json_object_get(run, "config")));
    WEFT_GO(read_step(s, json_object_get(run, "step"), &s->scheduler.solver));
    WEFT_GO(read_request(s, run, &sigma));
    WEFT_GO(weft_json_get_f64_or(run, "w", s->p->config_file, 1, &s->w));
    WEFT_GO(weft_json_get_f64_or(run, "init_noise_sigma", s->p->config_file,
                                 weft_scheduler_first(&s->scheduler), &s->first));
    const float first = (float)s->first, ours = (float)weft_scheduler_first(&s->scheduler);
    weft_parity_judge(s->p, "walk", "init_noise_sigma", &ours, &first, 1, s->first, s->tolerance,
                      &s->worst);
    WEFT_GO(go(s));
    WEFT_GO(compare_calls(s));
out:
    weft_free(sigma);
    return status;
}

/* RES goes down EDM's levels, the last of them and the step to data included. */
static weft_status run_res(walk *s, const json_t *run)
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
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: \"solver\": \"%s\": known are 2ab and 2mid",
                         where, solver);
    s->request.steps = (s->sampler == &weft_sampler_res_2mid ? steps / 2 : steps) + 1;
    s->w = 1;
    s->first = s->scheduler.sigma_max;
    WEFT_TRY(go(s));
    /* x at the beginning of each step; the last step's end is the sample */
    const int64_t each = s->count, n = s->request.steps;
    float *begin = s->seen[1];
    memcpy(begin, s->seen[0], (size_t)each * 4);
    memcpy(begin + each, s->after, (size_t)((n - 1) * each) * 4);
    WEFT_TRY(compare(s, "trajectory", begin, n * each, each));
    WEFT_TRY(compare(s, "final", s->after + (n - 1) * each, each, each));
    for (int64_t i = 0; i < n; i++)
        begin[i] = (float)s->leg[i].from.sigma;
    return compare(s, "sigmas", begin, n, 1);
}

/* The pipeline begins with the highest level's noise alone, whatever the class says. */
static weft_status run_pipeline(walk *s, const json_t *json)
{
    const char *where = s->p->config_file;
    double *none = NULL;
    WEFT_TRY(read_config(s, json_object_get(json, "config")));
    WEFT_TRY(read_request(s, json, &none));
    WEFT_TRY(weft_json_get_f64(json, "guidance_scale", where, &s->guidance));
    s->w = 1;
    s->first = s->scheduler.sigma_max;
    WEFT_TRY(go(s));
    WEFT_TRY(compare_levels(s));
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
            snprintf(prefix, sizeof prefix, "run%lld.", (long long)i);
        walk s = {.p = p, .run = prefix, .request.mu = NAN, .tolerance = tolerance};
        const weft_status_code status = is_res(p->json) ? run_res(&s, run)
                                        : runs          ? run_class(&s, run)
                                                        : run_pipeline(&s, run);
        free_walk(&s);
        if (status != WEFT_OK)
            return weft_fail_context(status, "%s: %s", p->file, prefix);
        worst = fmax(worst, s.worst);
    }
    printf("%s: %lld walks, worst relative error %.2e (limit %.0e), %d comparisons\n", p->file,
           (long long)count, worst, tolerance, p->compared);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_sampler = {"sampler", is_sampler, compare_sampler};
