#include "train/graph/distillation.h"

#include "diffusion/flow.h"
#include "diffusion/per_sample.h"
#include "graph/builder_helpers.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/rollout.h"
#include "train/graph/run_networks.h"
#include "train/graph/student_levels.h"

enum { TIMES = 1000 }; /* timestep = 1000 sigma */

bool weft_distillation_guides(const weft_run *run)
{
    return run->distill.method && run->distill.guidance != 1;
}

/* ---- networks ------------------------------------------------------------------------------- */

/* The velocity of the network in `scope` (NULL: the trained model) at x with level sigma (B). */
static weft_value velocity(weft_graph *g, const weft_distillation *d, const char *scope,
                           weft_value x, weft_value sigma_b, weft_ports *ports)
{
    const weft_denoiser_call call = {.run = d->run,
                                     .models = d->models,
                                     .model =
                                         scope ? weft_run_network_model(d->models, scope) : NULL,
                                     .scope = scope,
                                     .data = d->data,
                                     .given = d->given,
                                     .input = x,
                                     .time = weft_affine(g, sigma_b, TIMES, 0)};
    return weft_denoiser_call_build(g, &call, ports);
}

/* The teacher's velocity with guidance. */
static weft_value teach(weft_graph *g, const weft_distillation *d, weft_value x, weft_value sigma_b)
{
    weft_ports with = d->text, without = d->empty;
    const weft_value v = velocity(g, d, WEFT_TEACHER_SCOPE, x, sigma_b, &with);
    if (!weft_distillation_guides(d->run))
        return v;
    const weft_value u = velocity(g, d, WEFT_UNGUIDED_SCOPE, x, sigma_b, &without);
    return weft_add(g, u, weft_affine(g, weft_sub(g, v, u), d->run->distill.guidance, 0));
}

/* The clean sample of velocity v at x. */
static weft_value clean_of(weft_graph *g, weft_value x, weft_value v, weft_value sigma_b)
{
    return weft_sub(g, x, weft_mul(g, v, weft_per_sample(g, sigma_b, x)));
}

static weft_value stop(weft_graph *g, weft_value x)
{
    return weft_unary(g, WEFT_OP_STOP, x);
}

/* ---- consistency ---------------------------------------------------------------------------- */

static weft_value distance(weft_graph *g, const weft_distill_config *c, weft_value a, weft_value b)
{
    const weft_value square = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, a, b));
    if (c->loss == WEFT_DISTILL_L2)
        return weft_mean_all(g, square);
    const weft_value root =
        weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1, c->huber_c * c->huber_c));
    return weft_mean_all(g, weft_affine(g, root, 1, -c->huber_c));
}

/* The level s is shift(u) for a uniform u, and r = shift(u - 1 / solver_steps), at least 0. */
static weft_value consistency_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_distill_config *c = &d->run->distill;
    const weft_shape each = WEFT_SHAPE(weft_dim(g, d->data, 0));
    const weft_value u =
        weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, d->key, WEFT_RNG_TIMESTEP, each);
    const weft_value next =
                         weft_clamp(g, weft_affine(g, u, 1, -1.0 / (double)c->solver_steps), 0, 1),
                     s = weft_flow_shifted(g, d->flow->shift, u),
                     r = weft_flow_shifted(g, d->flow->shift, next),
                     x = weft_flow_mix(g, d->data, d->noise, s);
    *called = d->text;
    weft_value own = clean_of(g, x, velocity(g, d, NULL, x, s, called), s);
    const weft_value step = weft_per_sample(g, weft_sub(g, r, s), x),
                     y = stop(g, weft_add(g, x, weft_mul(g, teach(g, d, x, s), step)));
    weft_ports text = d->text;
    weft_value target = clean_of(g, y, velocity(g, d, WEFT_TARGET_SCOPE, y, r, &text), r);
    if (weft_denoiser_call_gives_frame(d->run, d->models)) {
        own = weft_denoiser_call_rest(g, own);
        target = weft_denoiser_call_rest(g, target);
    }
    return distance(g, c, own, stop(g, target));
}

/* ---- distribution matching ------------------------------------------------------------------ */

static weft_value uniform(weft_graph *g, const weft_distillation *d, weft_rng_purpose purpose)
{
    const weft_shape each = WEFT_SHAPE(weft_dim(g, d->data, 0));
    return weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, d->key, purpose, each);
}

static weft_value normal(weft_graph *g, const weft_distillation *d, weft_rng_purpose purpose)
{
    return weft_random_like(g, WEFT_OP_RANDOM_NORMAL, d->key, purpose,
                            weft_value_get(g, d->data)->shape);
}

/* Draws one of the levels at which the finished model's sampler calls the student. */
static weft_value student_level(weft_graph *g, const weft_distillation *d)
{
    const int64_t steps = d->run->distill.student_steps;
    const weft_value u = uniform(g, d, WEFT_RNG_TIMESTEP);
    double sigma[WEFT_DISTILL_MOST_STEPS];
    if (!weft_student_levels_build(g, d->run, d->models, d->tokens, sigma))
        return WEFT_NONE;
    weft_value level = weft_affine(g, u, 0, sigma[0]);
    for (int64_t k = 1; k < steps; k++)
        level = weft_add(
            g, level,
            weft_affine(g, weft_rollout_passed(g, u, k, steps), sigma[k] - sigma[k - 1], 0));
    return level;
}

/* The mean |x| of each sample, (B,1,1,1,1). */
static weft_value size_of(weft_graph *g, weft_value x)
{
    const weft_value size = weft_unary(g, WEFT_OP_SQRT, weft_unary(g, WEFT_OP_SQUARE, x));
    return weft_mean(g, size, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
}

/* A value of 0 with the gradient of `loss`. */
static weft_value unseen(weft_graph *g, weft_value loss)
{
    return weft_sub(g, loss, stop(g, loss));
}

/* Frames of x that have a loss. */
static weft_value in_loss(weft_graph *g, const weft_distillation *d, weft_value x)
{
    return weft_denoiser_call_gives_frame(d->run, d->models) ? weft_denoiser_call_rest(g, x) : x;
}

/* The loss that trains the fake score on the student's samples y. */
static weft_value fake_loss(weft_graph *g, const weft_distillation *d, weft_value y)
{
    const weft_value sigma = weft_flow_shifted(g, d->flow->shift, uniform(g, d, WEFT_RNG_FAKE)),
                     noise = normal(g, d, WEFT_RNG_FAKE);
    weft_ports text = d->text;
    const weft_value v =
        velocity(g, d, WEFT_FAKE_SCOPE, weft_flow_mix(g, y, noise, sigma), sigma, &text);
    const weft_value error = weft_sub(g, v, weft_sub(g, noise, y));
    return weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, in_loss(g, d, error)));
}

/* The gradient of the student's samples y, from both scores. */
static weft_value direction(weft_graph *g, const weft_distillation *d, weft_value y)
{
    const double from = 0.02, to = 0.98, least = 1e-8;
    const weft_value u = weft_affine(g, uniform(g, d, WEFT_RNG_SCORE), to - from, from),
                     sigma = weft_flow_shifted(g, d->flow->shift, u),
                     x = weft_flow_mix(g, y, normal(g, d, WEFT_RNG_SCORE), sigma);
    weft_ports text = d->text;
    const weft_value real = in_loss(g, d, clean_of(g, x, teach(g, d, x, sigma), sigma)),
                     v = velocity(g, d, WEFT_FAKE_SCORE_SCOPE, x, sigma, &text),
                     fake = in_loss(g, d, clean_of(g, x, v, sigma)),
                     size = size_of(g, weft_sub(g, in_loss(g, d, y), real));
    return stop(g, weft_div(g, weft_sub(g, fake, real), weft_clamp(g, size, least, 1e30)));
}

/* The student's samples of one step from clips with noise. */
static weft_value sample_of(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_value s = student_level(g, d), x = weft_flow_mix(g, d->data, d->noise, s);
    *called = d->text;
    return clean_of(g, x, velocity(g, d, NULL, x, s, called), s);
}

static weft_value matching_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_value y = d->run->distill.method == WEFT_DISTILL_DMD2
                             ? sample_of(g, d, called)
                             : weft_rollout_build(g, d, called),
                     seen = stop(g, y), fake = fake_loss(g, d, seen), own = in_loss(g, d, y),
                     wanted = weft_sub(g, in_loss(g, d, seen), direction(g, d, seen)),
                     square = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, own, wanted));
    weft_output(g, "fake", fake);
    return weft_add(g, weft_affine(g, weft_mean_all(g, square), 0.5, 0), unseen(g, fake));
}

weft_value weft_distillation_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    return weft_distill_matches(&d->run->distill) ? matching_loss(g, d, called)
                                                  : consistency_loss(g, d, called);
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Whether a network takes the student's latents and captions. With a given frame, it must take the
 * frame as the student does. */
static bool fits(const weft_run *run, const weft_run_models *m, const weft_model *model)
{
    const weft_grid grid = weft_model_grid(model);
    const weft_model_size size = {1, 1, 1, 1, 1};
    weft_port ports[3 + WEFT_MAX_CONDITIONING] = {WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP,
                                                  WEFT_PORT_GUIDANCE};
    int count = 3;
    if (grid.channels != m->patch.channels || grid.out_channels != m->patch.out_channels ||
        (run->condition && model->family != m->denoiser.family))
        return false;
    for (int i = 0; i < m->text.entries; i++) {
        const weft_port port = m->text.entry[i].port;
        if (!weft_model_takes(model, port))
            return false;
        const weft_shape a = weft_model_shape(model, &size, port),
                         b = weft_model_shape(&m->denoiser, &size, port);
        if (!weft_shape_equal(&a, &b))
            return false;
        ports[count++] = port;
    }
    return weft_model_accepts(model, ports, count, "train") == WEFT_OK;
}

/* Checks the networks that have files of their own. */
static weft_status check_networks(const weft_run *run, const weft_run_models *m)
{
    const struct {
        const weft_model *model;
        const char *folder, *key;
    } own[] = {{&m->teacher, run->distill.teacher, "distill.teacher"},
               {&m->fake, run->distill.fake_weights, "distill.fake_weights"}};
    for (int i = 0; i < WEFT_COUNT(own); i++)
        if (own[i].model->family && !fits(run, m, own[i].model))
            return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                              WEFT_AT(.file = own[i].folder, .key = own[i].key),
                              "it must take the latents and captions of the student, and no image "
                              "or other input. This %s does not.",
                              weft_model_class(own[i].model));
    return WEFT_OK;
}

weft_status weft_distillation_check(const weft_run *run, const weft_run_models *models,
                                    const char *path)
{
    if (!run->distill.method)
        return WEFT_OK;
    if (!models->text_precomputed)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "text_encoders"),
                          "distillation needs cached text embeddings. Give each text encoder "
                          "weights: FOLDER, without train: true and data.text_embeddings: step.");
    WEFT_TRY(check_networks(run, models));
    if (run->distill.method == WEFT_DISTILL_SELF_FORCING)
        return weft_rollout_check(run, models, path);
    return WEFT_OK;
}
