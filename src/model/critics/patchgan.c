#include "model/critics/patchgan.h"

#include "graph/builder_helpers.h"

#include <math.h>
#include <stdio.h>

const char *const weft_gan_loss_names[] = {"hinge", "vanilla", NULL};

static int convs_of(const weft_patchgan *c)
{
    return (int)c->layers + 2;
}

/* Returns true unless i is the first or the last convolution, which have no norm. */
static bool has_norm(const weft_patchgan *c, int i)
{
    return i > 0 && i < convs_of(c) - 1;
}

static int64_t channels_of(const weft_patchgan *c, int i)
{
    return i == convs_of(c) - 1 ? 1 : c->channels * (i < 3 ? 1 << i : 8);
}

/* Modules are numbered convolution, ReLU, then convolution, norm, ReLU. */
void weft_patchgan_name(int i, bool norm, char name[32])
{
    snprintf(name, 32, "main.%d", (i ? 3 * i - 1 : 0) + norm);
}

static weft_conv_shape shape_of(const weft_patchgan *c, int i)
{
    const bool strided = i < convs_of(c) - 2;
    weft_conv_shape s = {0};
    for (int d = 0; d < 3; d++) {
        s.kernel[d] = c->video ? 3 : d ? 4 : 1;
        s.stride[d] = strided && (d || (c->video && i < 2)) ? 2 : 1;
        s.before[d] = s.after[d] = c->video || d;
    }
    return s;
}

void weft_patchgan_least(const weft_patchgan *c, int64_t least[3])
{
    for (int d = 0; d < 3; d++) {
        least[d] = 1;
        for (int i = convs_of(c) - 1; i >= 0; i--) {
            const weft_conv_shape s = shape_of(c, i);
            const int64_t n = (least[d] - 1) * s.stride[d] + s.kernel[d] - 2 * s.before[d];
            least[d] = n > 1 ? n : 1;
        }
    }
}

/* Initial values as published: N(0, 0.02). */
void weft_patchgan_declare(weft_graph *g, const weft_patchgan *c, weft_patchgan_net *net)
{
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02},
                    zero = {.kind = WEFT_INIT_ZERO}, one = {.kind = WEFT_INIT_FILL, .value = 1};
    *net = (weft_patchgan_net){.convs = convs_of(c)};
    for (int i = 0; i < net->convs; i++) {
        const int64_t in = i ? channels_of(c, i - 1) : c->in, out = channels_of(c, i);
        const weft_conv_shape s = shape_of(c, i);
        const weft_shape deep = WEFT_SHAPE(out, in, s.kernel[0], s.kernel[1], s.kernel[2]),
                         flat = WEFT_SHAPE(out, in, s.kernel[1], s.kernel[2]);
        char name[32];
        weft_patchgan_name(i, false, name);
        weft_graph_push(g, "%s", name);
        net->conv[i] = (weft_nn_layer){
            .weight = weft_reshape(
                g, weft_param(g, "weight", WEFT_F32, c->video ? deep : flat, small), deep),
            .bias = has_norm(c, i) ? WEFT_NONE
                                   : weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), zero)};
        weft_graph_pop(g);
        net->mean[i] = net->variance[i] = WEFT_NONE;
        if (!has_norm(c, i))
            continue;
        weft_patchgan_name(i, true, name);
        net->norm[i] = weft_nn_norm_of(g, name, out, true);
        if (!c->running)
            continue;
        weft_graph_push(g, "%s", name);
        net->mean[i] = weft_buffer(g, "running_mean", WEFT_F32, WEFT_SHAPE(out), zero);
        net->variance[i] = weft_buffer(g, "running_var", WEFT_F32, WEFT_SHAPE(out), one);
        weft_graph_pop(g);
    }
}

static weft_value leaky(weft_graph *g, weft_value x)
{
    const double slope = 0.2;
    return weft_sub(g, x, weft_affine(g, weft_clamp(g, x, -INFINITY, 0), 1 - slope, 0));
}

static weft_value normalise(weft_graph *g, const weft_nn_layer *layer, weft_value centred,
                            weft_value variance)
{
    const double eps = 1e-5;
    const weft_value scale = weft_unary(g, WEFT_OP_RSQRT, weft_affine(g, variance, 1, eps));
    return weft_nn_scale_channels(g, layer, weft_mul(g, centred, scale));
}

static weft_value batch_norm(weft_graph *g, const weft_nn_layer *layer, weft_value x,
                             weft_value *mean, weft_value *variance)
{
    const uint32_t axes = 0xf; /* all dims but the channels */
    *mean = weft_mean(g, x, axes);
    const weft_value centred = weft_sub(g, x, *mean);
    *variance = weft_mean(g, weft_unary(g, WEFT_OP_SQUARE, centred), axes);
    return normalise(g, layer, centred, *variance);
}

/* `statistics` NULL: uses the running statistics. */
static weft_value run(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                      weft_value x, weft_patchgan_statistics *statistics)
{
    for (int i = 0; i < net->convs; i++) {
        const weft_conv_shape s = shape_of(c, i);
        char name[32];
        weft_patchgan_name(i, false, name);
        weft_graph_push(g, "%s", name);
        x = weft_nn_conv_by(g, &net->conv[i], x, &s);
        weft_graph_pop(g);
        weft_patchgan_name(i, true, name);
        weft_graph_push(g, "%s", name);
        if (statistics)
            statistics->mean[i] = statistics->variance[i] = WEFT_NONE;
        if (has_norm(c, i) && statistics) {
            statistics->count[i] =
                weft_dim(g, x, 0) * weft_dim(g, x, 1) * weft_dim(g, x, 2) * weft_dim(g, x, 3);
            x = batch_norm(g, &net->norm[i], x, &statistics->mean[i], &statistics->variance[i]);
        } else if (has_norm(c, i)) {
            x = normalise(g, &net->norm[i], weft_sub(g, x, net->mean[i]), net->variance[i]);
        }
        if (i < net->convs - 1)
            x = leaky(g, x);
        weft_graph_pop(g);
    }
    return x;
}

weft_value weft_patchgan_call(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                              weft_value x, weft_patchgan_statistics *statistics)
{
    weft_patchgan_statistics own;
    return run(g, c, net, x, statistics ? statistics : &own);
}

weft_value weft_patchgan_judge(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                               weft_value x)
{
    return run(g, c, net, x, NULL);
}

/* ---- losses --------------------------------------------------------------------------------- */

static weft_value relu(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, 0, INFINITY);
}

/* log(1 + e^x), without e^x of a large x: max(x, 0) + log(1 + e^-|x|) */
static weft_value softplus(weft_graph *g, weft_value x)
{
    const weft_value top = relu(g, x), size = weft_sub(g, weft_affine(g, top, 2, 0), x);
    const weft_value e = weft_unary(g, WEFT_OP_EXP, weft_affine(g, size, -1, 0));
    return weft_add(g, top, weft_unary(g, WEFT_OP_LOG, weft_affine(g, e, 1, 1)));
}

/* Penalty that is large where `sign` x logit is small, that is, where the judgement is wrong. */
static weft_value wrong(weft_graph *g, weft_gan_loss kind, weft_value logits, double sign)
{
    return weft_mean_all(g, kind == WEFT_GAN_HINGE ? relu(g, weft_affine(g, logits, -sign, 1))
                                                   : softplus(g, weft_affine(g, logits, -sign, 0)));
}

weft_value weft_gan_discriminator_loss(weft_graph *g, weft_gan_loss kind, weft_value real,
                                       weft_value made)
{
    return weft_affine(g, weft_add(g, wrong(g, kind, real, 1), wrong(g, kind, made, -1)), 0.5, 0);
}

weft_value weft_gan_generator_loss(weft_graph *g, weft_value made)
{
    return weft_affine(g, weft_mean_all(g, made), -1, 0);
}
