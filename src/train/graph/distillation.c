#include "train/graph/distillation.h"

#include "diffusion/flow.h"
#include "diffusion/per_sample.h"
#include "graph/builder_helpers.h"
#include "train/graph/denoiser_call.h"

/* Networks in addition to the trained model. */
#define TEACHER  "teacher"
#define UNGUIDED "teacher_empty" /* the teacher's call with the empty caption */

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
                                     .scope = scope,
                                     .data = d->data,
                                     .input = x,
                                     .time = weft_affine(g, sigma_b, TIMES, 0)};
    return weft_denoiser_call_build(g, &call, ports);
}

/* The teacher's velocity with guidance. */
static weft_value teach(weft_graph *g, const weft_distillation *d, weft_value x, weft_value sigma_b)
{
    weft_ports with = d->text, without = d->empty;
    const weft_value v = velocity(g, d, TEACHER, x, sigma_b, &with);
    if (!weft_distillation_guides(d->run))
        return v;
    const weft_value u = velocity(g, d, UNGUIDED, x, sigma_b, &without);
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

weft_value weft_distillation_loss(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    return consistency_loss(g, d, called);
}

/* ---- parameters ----------------------------------------------------------------------------- */

static bool has_target(const weft_run *run)
{
    return run->distill.method == WEFT_DISTILL_LCM && run->optimizer.target_decay > 0;
}

int weft_distillation_networks(const weft_run *run, const char *scope[WEFT_DISTILLATION_NETWORKS])
{
    int count = 0;
    if (run->distill.method && !run->transformer.lora.rank)
        scope[count++] = TEACHER;
    if (has_target(run))
        scope[count++] = WEFT_TARGET_SCOPE;
    return count;
}

int weft_distillation_changed(const weft_run *run, const char *scope[WEFT_DISTILLATION_NETWORKS])
{
    int count = 0;
    if (has_target(run))
        scope[count++] = WEFT_TARGET_SCOPE;
    return count;
}

static weft_status apply(weft_graph **g, const weft_network *network, int count)
{
    weft_graph *shared = NULL;
    const weft_status_code status = weft_pass_networks(*g, network, count, &shared);
    weft_graph_free(*g);
    *g = shared;
    return status;
}

weft_status weft_distillation_share_trained(const weft_run *run, const weft_run_models *models,
                                            weft_graph **g)
{
    if (run->distill.method != WEFT_DISTILL_LCM)
        return WEFT_OK;
    return apply(
        g,
        &(weft_network){WEFT_TARGET_SCOPE, has_target(run) ? NULL : models->denoiser.family->scope},
        1);
}

weft_status weft_distillation_share_frozen(const weft_run *run, const weft_run_models *models,
                                           weft_graph **g)
{
    if (!run->distill.method)
        return WEFT_OK;
    const char *trained = models->denoiser.family->scope,
               *teacher = run->transformer.lora.rank ? trained : NULL;
    const weft_network network[] = {{TEACHER, teacher}, {UNGUIDED, teacher ? teacher : TEACHER}};
    return apply(g, network, WEFT_COUNT(network));
}

/* ---- checks --------------------------------------------------------------------------------- */

weft_status weft_distillation_check(const weft_run *run, const weft_run_models *models,
                                    const char *path)
{
    if (!run->distill.method)
        return WEFT_OK;
    if (!models->text_precomputed)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "text_encoders"),
                          "distillation needs cached text embeddings. Give each text encoder "
                          "weights: FOLDER, without train: true and data.text_embeddings: step.");
    return WEFT_OK;
}
