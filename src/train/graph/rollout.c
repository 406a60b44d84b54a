#include "train/graph/rollout.h"

#include "diffusion/per_sample.h"
#include "graph/builder_helpers.h"
#include "graph/infer.h"
#include "model/frame_cache.h"
#include "model/model.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/run_networks.h"
#include "train/graph/student_levels.h"

enum { TIMES = 1000, FRAMES = 1 }; /* timestep = 1000 sigma; dimension of frames */

typedef struct rollout {
    weft_graph *g;
    const weft_distillation *d;
    weft_frame_cache cache;
    int calls;
    int64_t steps, frames; /* frames: latent frames of a block */
    double sigma[WEFT_DISTILL_MOST_STEPS];
    weft_value last[WEFT_DISTILL_MOST_STEPS]; /* (B): 1 if this is the sample's last step, else 0 */
    weft_value level;                         /* (B): sigma of the last step */
    weft_value fresh; /* (B,N T,Y,X,Z): noise after each step; WEFT_NONE: one step */
} rollout;

weft_value weft_rollout_passed(weft_graph *g, weft_value u, int64_t k, int64_t steps)
{
    const double from = (double)k / (double)steps, sharp = 1e9;
    return weft_clamp(g, weft_affine(g, u, sharp, -from * sharp), 0, 1);
}

/* The clean sample of block x at level sigma (B). */
static weft_value denoise(rollout *r, weft_value x, weft_value sigma_b, weft_ports *ports)
{
    weft_graph *g = r->g;
    const weft_denoiser_call call = {
        .run = r->d->run,
        .models = r->d->models,
        .model = &r->d->models->denoiser,
        .scope = r->calls
                     ? weft_arena_printf(weft_graph_arena(g), WEFT_ROLLOUT_SCOPE "%d", r->calls)
                     : NULL,
        .input = x,
        .time = weft_affine(g, sigma_b, TIMES, 0)};
    r->calls++;
    *ports = r->d->text;
    ports->cache = &r->cache;
    const weft_value v = weft_denoiser_call_build(g, &call, ports);
    ports->cache = NULL;
    return weft_sub(g, x, weft_mul(g, v, weft_per_sample(g, sigma_b, x)));
}

/* A level of all samples, (B). */
static weft_value every(rollout *r, double sigma)
{
    return weft_affine(r->g, r->level, 0, sigma);
}

/* (1 - sigma) x + sigma n, with n the noise after step `step`. */
static weft_value renoise(rollout *r, weft_value x, int64_t step, double sigma)
{
    const int64_t all = weft_dim(r->g, r->d->noise, FRAMES),
                  first = step * all + r->cache.at * r->frames;
    const weft_value n = weft_slice(r->g, r->fresh, FRAMES, first, r->frames);
    return weft_add(r->g, weft_affine(r->g, x, 1 - sigma, 0), weft_affine(r->g, n, sigma, 0));
}

/* The input of the last step of each sample. */
static weft_value input_of(rollout *r)
{
    weft_graph *g = r->g;
    weft_value x = weft_slice(g, r->d->noise, FRAMES, r->cache.at * r->frames, r->frames),
               input = weft_mul(g, x, weft_per_sample(g, r->last[0], x));
    for (int64_t k = 0; k + 1 < r->steps; k++) {
        weft_ports ports;
        const weft_value clean = denoise(r, x, every(r, r->sigma[k]), &ports);
        x = renoise(r, weft_unary(g, WEFT_OP_STOP, clean), k, r->sigma[k + 1]);
        input = weft_add(g, input, weft_mul(g, x, weft_per_sample(g, r->last[k + 1], x)));
    }
    return input;
}

/* Adds the keys and values of a finished block. */
static void finish(rollout *r, weft_value block)
{
    const double sigma = r->d->run->distill.context_noise / TIMES;
    weft_ports ports;
    block = weft_unary(r->g, WEFT_OP_STOP, block);
    if (sigma > 0)
        block = renoise(r, block, r->steps - 1, sigma);
    r->cache.adds = true;
    denoise(r, block, every(r, sigma), &ports);
    r->cache.adds = false;
}

/* Draws the last step of each sample, and the noise. */
static void draw(rollout *r)
{
    weft_graph *g = r->g;
    const weft_distillation *d = r->d;
    const weft_shape each = WEFT_SHAPE(weft_dim(g, d->data, 0));
    const weft_value u =
        weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, d->key, WEFT_RNG_TIMESTEP, each);
    weft_value passed = weft_affine(g, u, 0, 1);
    for (int64_t k = 0; k < r->steps; k++) {
        const weft_value next = k + 1 < r->steps ? weft_rollout_passed(g, u, k + 1, r->steps)
                                                 : weft_affine(g, u, 0, 0),
                         sigma =
                             weft_affine(g, r->last[k] = weft_sub(g, passed, next), r->sigma[k], 0);
        r->level = k ? weft_add(g, r->level, sigma) : sigma;
        passed = next;
    }
    weft_shape fresh = weft_value_get(g, d->data)->shape;
    const int64_t times = d->run->distill.context_noise > 0 ? r->steps : r->steps - 1;
    fresh.dim[FRAMES] *= times;
    if (times)
        r->fresh = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, d->key, WEFT_RNG_ROLLOUT, fresh);
}

weft_value weft_rollout_build(weft_graph *g, const weft_distillation *d, weft_ports *called)
{
    const weft_model *model = &d->models->denoiser;
    const weft_grid grid = weft_model_grid(model);
    const int64_t all = weft_dim(g, d->data, FRAMES), block = grid.block > 1 ? grid.block : 1,
                  blocks = all / grid.factor[0] / block;
    rollout r = {.g = g, .d = d, .steps = d->run->distill.student_steps, .fresh = WEFT_NONE};
    weft_value *part = weft_arena_calloc(weft_graph_arena(g), blocks + 1, sizeof *part);
    r.frames = block * grid.factor[0];
    r.cache.size = weft_frame_cache_of(&grid, all / grid.factor[0]);
    r.cache.past =
        weft_arena_calloc(weft_graph_arena(g), 2 * WEFT_FRAME_CACHE_LAYERS, sizeof *part);
    if (!part || !r.cache.past || weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    if (!weft_student_levels_build(g, d->run, d->models, d->tokens, r.sigma, &r.steps))
        return WEFT_NONE;
    draw(&r);
    for (r.cache.at = 0; r.cache.at < blocks; r.cache.at++) {
        weft_ports ports;
        part[r.cache.at] = denoise(&r, input_of(&r), r.level, &ports);
        if (!r.cache.at)
            *called = ports;
        if (r.cache.at + 1 < blocks)
            finish(&r, part[r.cache.at]);
    }
    return weft_concat(g, part, (int)blocks, FRAMES);
}

weft_status weft_rollout_check(const weft_run *run, const weft_run_models *m, const char *path)
{
    if (!weft_model_grid(&m->denoiser).caches)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "distill.method", .value = "self_forcing"),
                          "%s does not generate a video block by block. "
                          "CausalWanTransformer3DModel does; dmd2 distills other transformers.",
                          weft_model_class(&m->denoiser));
    const bool taught = weft_model_grid(&m->teacher).caches;
    if (taught || (m->fake.family && weft_model_grid(&m->fake).caches))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = taught ? run->distill.teacher : run->distill.fake_weights,
                                  .key = taught ? "distill.teacher" : "distill.fake_weights"),
                          "it must see all frames at once. This %s does not.",
                          weft_model_class(taught ? &m->teacher : &m->fake));
    return WEFT_OK;
}
