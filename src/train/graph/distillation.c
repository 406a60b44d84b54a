#include "train/graph/distillation.h"

#include "diffusion/flow.h"
#include "diffusion/per_sample.h"
#include "graph/builder_helpers.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/rollout.h"
#include "train/graph/run_networks.h"
#include "train/graph/student_levels.h"

#include <math.h>

enum { TIMES = 1000 }; /* timestep = 1000 sigma */

bool weft_distillation_guides(const weft_run *run)
{
    return run->distill.method && run->distill.guidance != 1;
}

/* ---- streams -------------------------------------------------------------------------------- */

/* A value of the video (B,T,Y,X,Z), and one of its sound (B,S,C); WEFT_NONE: no sound. */
typedef struct streams {
    weft_value video, sound;
} streams;

typedef weft_value binary(weft_graph *g, weft_value a, weft_value b);

static streams both(weft_graph *g, binary *op, streams a, streams b)
{
    const bool sounds = weft_value_ok(a.sound);
    return (streams){op(g, a.video, b.video), sounds ? op(g, a.sound, b.sound) : WEFT_NONE};
}

static streams scaled(weft_graph *g, streams x, double by)
{
    const bool sounds = weft_value_ok(x.sound);
    return (streams){weft_affine(g, x.video, by, 0),
                     sounds ? weft_affine(g, x.sound, by, 0) : WEFT_NONE};
}

static streams stop(weft_graph *g, streams x)
{
    const bool sounds = weft_value_ok(x.sound);
    return (streams){weft_unary(g, WEFT_OP_STOP, x.video),
                     sounds ? weft_unary(g, WEFT_OP_STOP, x.sound) : WEFT_NONE};
}

/* (1 - sigma) data + sigma noise, for sigma (B) */
static streams mix(weft_graph *g, streams data, streams noise, weft_value sigma_b)
{
    const bool sounds = weft_value_ok(data.sound);
    return (streams){weft_flow_mix(g, data.video, noise.video, sigma_b),
                     sounds ? weft_flow_mix(g, data.sound, noise.sound, sigma_b) : WEFT_NONE};
}

/* x + by v, for `by` (B) */
static streams moved(weft_graph *g, streams x, streams v, weft_value by_b)
{
    const streams by = {weft_per_sample(g, by_b, v.video),
                        weft_value_ok(v.sound) ? weft_per_sample(g, by_b, v.sound) : WEFT_NONE};
    return both(g, weft_add, x, both(g, weft_mul, v, by));
}

static streams data_of(const weft_distillation *d)
{
    return (streams){d->data, d->sound.data};
}

static streams noise_of(const weft_distillation *d)
{
    return (streams){d->noise, d->sound.noise};
}

/* Noise of the size of the data. */
static streams normal(weft_graph *g, const weft_distillation *d, weft_rng_purpose purpose)
{
    streams noise = {.sound = WEFT_NONE};
    noise.video = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, d->key, purpose,
                                   weft_value_get(g, d->data)->shape);
    if (weft_value_ok(d->sound.data))
        noise.sound = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, d->sound.key, purpose,
                                       weft_value_get(g, d->sound.data)->shape);
    return noise;
}

/* Elements that have a loss: no given frame, and sound of samples with sound. */
static streams in_loss(weft_graph *g, const weft_distillation *d, streams x)
{
    if (weft_denoiser_call_gives_frame(d->run, d->models))
        x.video = weft_denoiser_call_rest(g, x.video);
    if (weft_value_ok(x.sound))
        x.sound = weft_sound_stream_masked(g, &d->sound, x.sound);
    return x;
}

typedef weft_value measure(weft_graph *g, const weft_distill_config *c, weft_value error);

/* The loss of the video plus sound.loss_weight times the loss of its sound. `reports`: also as
 * outputs. */
static weft_value total(weft_graph *g, const weft_distillation *d, measure *loss, streams error,
                        bool reports)
{
    const weft_distill_config *c = &d->run->distill;
    const weft_value video = loss(g, c, error.video);
    if (!weft_value_ok(error.sound))
        return video;
    const weft_value sound = loss(g, c, error.sound);
    return reports ? weft_sound_stream_total(g, d->run, &d->sound, video, sound)
                   : weft_add(g, video, weft_affine(g, sound, d->run->sound.loss_weight, 0));
}

/* ---- networks ------------------------------------------------------------------------------- */

/* The velocity of the network in `scope` (NULL: the trained model) at x with level sigma (B), which
 * both streams have, as in generation. */
static streams velocity(weft_graph *g, const weft_distillation *d, const char *scope, streams x,
                        weft_value sigma_b, weft_ports *ports)
{
    const weft_value time = weft_affine(g, sigma_b, TIMES, 0);
    const weft_denoiser_call call = {.run = d->run,
                                     .models = d->models,
                                     .model =
                                         scope ? weft_run_network_model(d->models, scope) : NULL,
                                     .scope = scope,
                                     .data = d->data,
                                     .given = d->given,
                                     .input = x.video,
                                     .time = time};
    const bool sounds = weft_value_ok(x.sound);
    if (sounds)
        weft_sound_stream_give(g, d->models, &d->sound, x.sound, time, time, ports);
    const weft_value video = weft_denoiser_call_build(g, &call, ports);
    return (streams){video, sounds ? ports->at[WEFT_PORT_AUDIO_PREDICTION] : WEFT_NONE};
}

/* The teacher's velocity with guidance. */
static streams teach(weft_graph *g, const weft_distillation *d, streams x, weft_value sigma_b)
{
    weft_ports with = d->text, without = d->empty;
    const streams v = velocity(g, d, WEFT_TEACHER_SCOPE, x, sigma_b, &with);
    if (!weft_distillation_guides(d->run))
        return v;
    const streams u = velocity(g, d, WEFT_UNGUIDED_SCOPE, x, sigma_b, &without);
    return both(g, weft_add, u, scaled(g, both(g, weft_sub, v, u), d->run->distill.guidance));
}

/* The sample at level `end` on the line along velocity v at x with level sigma (B); 0: the clean
 * sample. */
static streams end_of(weft_graph *g, streams x, streams v, weft_value sigma_b, double end)
{
    return moved(g, x, v, weft_affine(g, sigma_b, -1, end));
}

static streams clean_of(weft_graph *g, streams x, streams v, weft_value sigma_b)
{
    return end_of(g, x, v, sigma_b, 0);
}

static weft_value uniform(weft_graph *g, const weft_distillation *d, weft_rng_purpose purpose)
{
    const weft_shape each = WEFT_SHAPE(weft_dim(g, d->data, 0));
    return weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, d->key, purpose, each);
}

/* The levels of the run before the shift: `u` in 0 ... 1 becomes a level in `from` ... `to`, within
 * timestep_min ... timestep_max. */
static weft_value in_range(weft_graph *g, const weft_distillation *d, weft_value u, double from,
                           double to)
{
    const double low = fmax(from, weft_student_lowest(d->run, d->flow)),
                 high = fmin(to, weft_student_highest(d->run, d->flow));
    return weft_affine(g, u, high - low, low);
}

/* ---- consistency ---------------------------------------------------------------------------- */

static weft_value distance(weft_graph *g, const weft_distill_config *c, weft_value error)
{
    const weft_value square = weft_unary(g, WEFT_OP_SQUARE, error);
    if (c->loss == WEFT_DISTILL_L2)
        return weft_mean_all(g, square);
    const weft_value root =
        weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1, c->huber_c * c->huber_c));
    return weft_mean_all(g, weft_affine(g, root, 1, -c->huber_c));
}

/* The level s is shift(u) for a uniform u. The next one is r = shift(u - 1 / solver_steps).
 * Both are at least the lowest level, at which the path ends. */
static weft_value consistency_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_distill_config *c = &d->run->distill;
    const double end = d->run->noise.from, lowest = weft_student_lowest(d->run, d->flow);
    const weft_value u = in_range(g, d, uniform(g, d, WEFT_RNG_TIMESTEP), 0, 1),
                     next = weft_clamp(g, weft_affine(g, u, 1, -1.0 / (double)c->solver_steps),
                                       lowest, 1),
                     s = weft_flow_shifted(g, d->flow->shift, u),
                     r = weft_flow_shifted(g, d->flow->shift, next);
    const streams x = mix(g, data_of(d), noise_of(d), s);
    *called = d->text;
    const streams own = end_of(g, x, velocity(g, d, NULL, x, s, called), s, end),
                  y = stop(g, moved(g, x, teach(g, d, x, s), weft_sub(g, r, s)));
    weft_ports text = d->text;
    const streams target = end_of(g, y, velocity(g, d, WEFT_TARGET_SCOPE, y, r, &text), r, end);
    return total(g, d, distance,
                 both(g, weft_sub, in_loss(g, d, own), stop(g, in_loss(g, d, target))), true);
}

/* ---- distribution matching ------------------------------------------------------------------ */

/* Draws one of the levels at which the finished model's sampler calls the student. */
static weft_value student_level(weft_graph *g, const weft_distillation *d)
{
    const weft_value u = uniform(g, d, WEFT_RNG_TIMESTEP);
    double sigma[WEFT_DISTILL_MOST_STEPS];
    int64_t steps;
    if (!weft_student_levels_build(g, d->run, d->models, d->tokens, sigma, &steps))
        return WEFT_NONE;
    weft_value level = weft_affine(g, u, 0, sigma[0]);
    for (int64_t k = 1; k < steps; k++)
        level = weft_add(
            g, level,
            weft_affine(g, weft_rollout_passed(g, u, k, steps), sigma[k] - sigma[k - 1], 0));
    return level;
}

/* x over the mean |by| of each sample, as far as this is above 0. */
static weft_value over_size(weft_graph *g, weft_value x, weft_value by)
{
    const double least = 1e-8;
    const uint32_t elements = (1u << weft_value_get(g, by)->shape.rank) - 2;
    const weft_value size =
        weft_mean(g, weft_unary(g, WEFT_OP_SQRT, weft_unary(g, WEFT_OP_SQUARE, by)), elements);
    return weft_div(g, x, weft_clamp(g, size, least, 1e30));
}

/* A value of 0 with the gradient of `loss`. */
static weft_value unseen(weft_graph *g, weft_value loss)
{
    return weft_sub(g, loss, weft_unary(g, WEFT_OP_STOP, loss));
}

static weft_value squares(weft_graph *g, const weft_distill_config *c, weft_value error)
{
    (void)c;
    return weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error));
}

/* The loss that trains the fake score on the student's samples y. */
static weft_value fake_loss(weft_graph *g, const weft_distillation *d, streams y)
{
    const weft_value sigma =
        weft_flow_shifted(g, d->flow->shift, in_range(g, d, uniform(g, d, WEFT_RNG_FAKE), 0, 1));
    const streams noise = normal(g, d, WEFT_RNG_FAKE);
    weft_ports text = d->text;
    const streams v = velocity(g, d, WEFT_FAKE_SCOPE, mix(g, y, noise, sigma), sigma, &text),
                  error = both(g, weft_sub, v, both(g, weft_sub, noise, y));
    return total(g, d, squares, in_loss(g, d, error), false);
}

/* The gradient of the student's samples y, from both scores. */
static streams direction(weft_graph *g, const weft_distillation *d, streams y)
{
    const double from = 0.02, to = 0.98;
    const weft_value u = in_range(g, d, uniform(g, d, WEFT_RNG_SCORE), from, to),
                     sigma = weft_flow_shifted(g, d->flow->shift, u);
    const streams x = mix(g, y, normal(g, d, WEFT_RNG_SCORE), sigma);
    weft_ports text = d->text;
    const streams real = in_loss(g, d, clean_of(g, x, teach(g, d, x, sigma), sigma)),
                  v = velocity(g, d, WEFT_FAKE_SCORE_SCOPE, x, sigma, &text),
                  fake = in_loss(g, d, clean_of(g, x, v, sigma)),
                  size = both(g, weft_sub, in_loss(g, d, y), real);
    return stop(g, both(g, over_size, both(g, weft_sub, fake, real), size));
}

/* The student's samples of one step from clips with noise. */
static streams sample_of(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_value s = student_level(g, d);
    const streams x = mix(g, data_of(d), noise_of(d), s);
    *called = d->text;
    return clean_of(g, x, velocity(g, d, NULL, x, s, called), s);
}

static weft_value half_squares(weft_graph *g, const weft_distill_config *c, weft_value error)
{
    return weft_affine(g, squares(g, c, error), 0.5, 0);
}

static weft_value matching_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const streams y = d->run->distill.method == WEFT_DISTILL_DMD2
                          ? sample_of(g, d, called)
                          : (streams){weft_rollout_build(g, d, called), WEFT_NONE},
                  seen = stop(g, y);
    if (!weft_value_ok(y.video)) /* the graph has failed */
        return WEFT_NONE;
    const weft_value fake = fake_loss(g, d, seen);
    const streams wanted = both(g, weft_sub, in_loss(g, d, seen), direction(g, d, seen)),
                  error = both(g, weft_sub, in_loss(g, d, y), wanted);
    weft_output(g, "fake", fake);
    return weft_add(g, total(g, d, half_squares, error, true), unseen(g, fake));
}

weft_value weft_distillation_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    return weft_distill_matches(&d->run->distill) ? matching_loss(g, d, called)
                                                  : consistency_loss(g, d, called);
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Whether a network takes an input in the shape of the student's. */
static bool same_input(const weft_run_models *m, const weft_model *model, weft_port port)
{
    const weft_model_size size = {1, 3, 1, 1, 1, .image = 1, .audio = 1};
    if (!weft_model_takes(model, port))
        return false;
    const weft_shape a = weft_model_shape(model, &size, port),
                     b = weft_model_shape(&m->denoiser, &size, port);
    return weft_shape_equal(&a, &b);
}

/* Whether a network takes the student's latents, captions and control. With a given frame or a
 * control, it must take them as the student does. */
static bool fits(const weft_run *run, const weft_run_models *m, const weft_model *model)
{
    static const weft_port given_ports[] = {WEFT_PORT_AUDIO, WEFT_PORT_CONTROL, WEFT_PORT_FACE,
                                            WEFT_PORT_IMAGE};
    const weft_grid grid = weft_model_grid(model);
    weft_port ports[3 + WEFT_COUNT(given_ports) + WEFT_MAX_CONDITIONING] = {
        WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_GUIDANCE};
    int count = 3;
    for (int i = 0; i < WEFT_COUNT(given_ports); i++) {
        const bool given = given_ports[i] == WEFT_PORT_AUDIO
                               ? weft_run_has_sound(&m->sound)
                               : run->condition == WEFT_CONDITION_CONTROL &&
                                     weft_model_takes(&m->denoiser, given_ports[i]);
        if (given && !same_input(m, model, given_ports[i]))
            return false;
        if (given)
            ports[count++] = given_ports[i];
    }
    if (grid.channels != m->patch.channels || grid.out_channels != m->patch.out_channels ||
        (run->condition && model->family != m->denoiser.family))
        return false;
    for (int i = 0; i < m->text.entries; i++) {
        const weft_port port = m->text.entry[i].port;
        if (!same_input(m, model, port))
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
                              "it must take the latents, captions and control videos of the "
                              "student, and no other input. This %s does not.",
                              weft_model_class(own[i].model));
    return WEFT_OK;
}

/* Checks that an expert of a range of levels has steps of the finished model. */
static weft_status check_levels(const weft_run *run, const weft_run_models *m, const char *path)
{
    for (int64_t i = 0; i < run->train_stages.count && weft_distill_matches(&run->distill); i++) {
        const weft_train_stage *stage = (const weft_train_stage *)run->train_stages.item + i;
        const weft_run own = weft_train_stage_run(run, stage);
        double sigma[WEFT_DISTILL_MOST_STEPS];
        int64_t count;
        for (int b = 0; b < weft_train_stage_bucket_count(stage); b++)
            WEFT_TRY(weft_error_at(
                weft_student_levels(&own, m, weft_run_tokens(m, weft_train_stage_bucket(stage, b)),
                                    sigma, &count),
                WEFT_AT(.file = path)));
    }
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
    WEFT_TRY(check_levels(run, models, path));
    if (run->distill.method == WEFT_DISTILL_SELF_FORCING)
        return weft_rollout_check(run, models, path);
    return WEFT_OK;
}
