#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>

static const weft_key optimizer_keys[] = {
    {"beta1", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta1), "0.9", "",
     "decay of the first moment", .min = 0, .max = 0.9999},
    {"beta2", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta2), "0.99", "",
     "decay of the second moment", .min = 0, .max = 0.999999},
    {"eps", WEFT_KEY_F64, offsetof(weft_optimizer_config, eps), "1e-8", "",
     "added to the root of the second moment", .min = 0, .max = 1},
    {"weight_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, weight_decay), "0.01", "",
     "decoupled weight decay", .min = 0, .max = 1},
    {"clip_norm", WEFT_KEY_F64, offsetof(weft_optimizer_config, clip_norm), "1", "",
     "largest norm of the whole gradient; 0 switches clipping off", .min = 0, .max = 1e9},
    {"decay_all", WEFT_KEY_BOOL, offsetof(weft_optimizer_config, decay_all), "false", "",
     "decay also biases, norms and other parameters of rank below 2"},
    {"ema_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, ema_decay), "0", "",
     "decay of the moving average of the weights per step; 0 keeps none", .min = 0,
     .max = 0.999999},
};
const weft_section weft_optimizer_section = {
    "optimizer", "AdamW, clipping and the moving average of the weights",
    sizeof(weft_optimizer_config), optimizer_keys, WEFT_COUNT(optimizer_keys)};

static weft_value scalar_input(weft_graph *g, const char *name)
{
    return weft_input(g, name, WEFT_F32, WEFT_SCALAR);
}

static weft_value moment(weft_graph *g, const char *kind, weft_value param)
{
    const weft_value_info *info = weft_value_get(g, param);
    char name[512];
    snprintf(name, sizeof name, "%s.%s", kind, info->name);
    return weft_state_like(g, name, WEFT_F32, param, (weft_init){.kind = WEFT_INIT_ZERO});
}

/* Begins as a copy of the weights, which whoever fills the store makes (weft_optimizer_begin). */
static weft_value average(weft_graph *g, weft_value param)
{
    const weft_value_info *info = weft_value_get(g, param);
    const weft_attr_source *source = weft_graph_node(g, info->node)->attr;
    char name[512];
    snprintf(name, sizeof name, "ema.%s", info->name);
    return weft_state_like(g, name, WEFT_F32, param, source->init);
}

typedef struct scalars {
    weft_value lr, step, scale, ema_decay;
} scalars;

static void update_param(weft_graph *g, weft_value param, weft_value grad,
                         const weft_optimizer_config *c, const scalars *s)
{
    const weft_value_info *info = weft_value_get(g, param);
    const bool decays = c->decay_all || info->shape.rank >= 2;
    const weft_attr_adamw attr = {.beta1 = c->beta1,
                                  .beta2 = c->beta2,
                                  .eps = c->eps,
                                  .weight_decay = decays ? c->weight_decay : 0};
    const weft_value m = moment(g, "adamw.m", param), v = moment(g, "adamw.v", param);
    const weft_value in[7] = {param, grad, m, v, s->lr, s->step, s->scale};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ADAMW, in, 7, &attr, out);
    weft_update(g, param, out[0]);
    weft_update(g, m, out[1]);
    weft_update(g, v, out[2]);
    if (!(c->ema_decay > 0))
        return;
    const weft_value e = average(g, param);
    weft_update(
        g, e,
        weft_emit(g, WEFT_OP_EMA, (weft_value[]){e, out[0], s->ema_decay, s->scale}, 4, NULL));
}

void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *c)
{
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    weft_value *grads =
        params ? weft_arena_alloc(weft_graph_arena(g), (count + 1) * (int64_t)sizeof *grads) : NULL;
    if (!grads) {
        weft_graph_fail(g, WEFT_E_MEMORY, "out of memory for %d gradients", count);
        return;
    }
    weft_autodiff(g, loss, params, count, grads);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    const weft_value squares = weft_sum_squares_all(g, grads, params, count);
    const weft_value limit =
        weft_fill(g, WEFT_F32, WEFT_SCALAR, c->clip_norm > 0 ? c->clip_norm : INFINITY);
    const weft_value clip[5] = {squares, loss, limit, scalar_input(g, "optimizer.loss_limit"),
                                scalar_input(g, "optimizer.norm_limit")};
    weft_value scale[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_CLIP_SCALE, clip, 5, NULL, scale);
    const scalars s = {.lr = scalar_input(g, "optimizer.lr"),
                       .step = scalar_input(g, "optimizer.step"),
                       .scale = scale[0],
                       .ema_decay = c->ema_decay > 0
                                        ? weft_fill(g, WEFT_F32, WEFT_SCALAR, c->ema_decay)
                                        : WEFT_NONE};
    for (int i = 0; i < count; i++)
        if (weft_value_ok(grads[i]) && weft_graph_check(g) == WEFT_OK)
            update_param(g, params[i], grads[i], c, &s);
    weft_output(g, "loss", loss);
    weft_output(g, "grad_norm", scale[1]);
    weft_output(g, "grad_scale", scale[0]);
}
