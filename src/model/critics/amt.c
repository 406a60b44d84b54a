/* Shape letters: Y/X rows and columns, C channels. */
#include "model/critics/amt.h"

#include "base/config.h"
#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { SIDE = 20, HIDDEN = 76, FLOW = 20, FROM_CORR = 64, JOINED = 68 };
const int64_t weft_amt_channels[4] = {20, 32, 44, 56};

/* ---- layers --------------------------------------------------------------------------------- */

static weft_value input(weft_graph *g, const char *name, int64_t y, int64_t x, int64_t c)
{
    return weft_input(g, name, WEFT_F32, WEFT_SHAPE(1, 1, y, x, c));
}

/* Convolution of odd size `k` that keeps the size, or halves an even one. */
static weft_value conv(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k,
                       int64_t stride)
{
    const int64_t pad = k / 2, after = stride == 1 || k == 1 ? pad : pad - 1;
    const weft_conv_shape shape = {.kernel = {1, k, k},
                                   .stride = {1, stride, stride},
                                   .before = {0, pad, pad},
                                   .after = {0, after, after}};
    if (k == 1 && stride == 2) { /* the positions that a stride of 2 reads */
        const int64_t y = weft_dim(g, x, 2), w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
        x = weft_reshape(g, x, WEFT_SHAPE(y / 2, 2, w / 2, 2, c));
        x = weft_slice(g, weft_slice(g, x, 1, 0, 1), 3, 0, 1);
        x = weft_reshape(g, x, WEFT_SHAPE(1, 1, y / 2, w / 2, c));
        return conv(g, name, x, out, 1, 1);
    }
    return weft_nn_conv(g, name, x, out, shape, true);
}

static weft_value relu(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, 0, INFINITY);
}

/* The factor 0.1 of values below zero. */
static weft_value leaky(weft_graph *g, weft_value x)
{
    return weft_add(g, relu(g, x), weft_affine(g, weft_clamp(g, x, -INFINITY, 0), 0.1, 0));
}

/* A trained factor of values below zero for each channel. */
static weft_value prelu(weft_graph *g, const char *name, weft_value x)
{
    weft_graph_push(g, "%s", name);
    const weft_value factor = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(weft_dim(g, x, 4)),
                                         (weft_init){.kind = WEFT_INIT_ZERO});
    weft_graph_pop(g);
    return weft_add(g, relu(g, x), weft_mul(g, weft_clamp(g, x, -INFINITY, 0), factor));
}

/* "NAME.0" a convolution, "NAME.1" its activation. */
static weft_value conv_prelu(weft_graph *g, const char *name, weft_value x, int64_t out,
                             int64_t stride)
{
    weft_graph_push(g, "%s", name);
    x = prelu(g, "1", conv(g, "0", x, out, 3, stride));
    weft_graph_pop(g);
    return x;
}

/* Transposed convolution 4x4 with stride 2: zeros between the positions, then a convolution. */
static weft_value grow(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    const int64_t y = weft_dim(g, x, 2), w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    const weft_init zero = {.kind = WEFT_INIT_ZERO};
    const weft_conv_shape shape = {
        .kernel = {1, 4, 4}, .stride = {1, 1, 1}, .before = {0, 2, 2}, .after = {0, 1, 1}};
    weft_graph_push(g, "%s", name);
    weft_value weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(c, out, 4, 4), zero);
    const weft_value bias = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), zero);
    weft_graph_pop(g);
    weight = weft_permute(g, weight, (int[]){1, 0, 2, 3});
    const weft_nn_layer layer = {.weight = weft_reshape(g, weight, WEFT_SHAPE(out, c, 1, 4, 4)),
                                 .bias = bias};
    x = weft_reshape(g, x, WEFT_SHAPE(y, 1, w, 1, c));
    x = weft_pad(g, weft_pad(g, x, 1, 0, 1), 3, 0, 1);
    x = weft_reshape(g, x, WEFT_SHAPE(1, 1, 2 * y, 2 * w, c));
    return weft_nn_conv_by(g, &layer, x, &shape);
}

/* ---- encoders ------------------------------------------------------------------------------- */

/* Norm over the positions, for each channel. */
static weft_value norm(weft_graph *g, weft_value x)
{
    return weft_nn_group_plain(g, x, weft_dim(g, x, 4), 1e-5, true);
}

static weft_value bottleneck(weft_graph *g, const char *name, weft_value x, int64_t out,
                             int64_t stride)
{
    weft_graph_push(g, "%s", name);
    weft_value y = relu(g, norm(g, conv(g, "conv1", x, out / 4, 1, 1)));
    y = relu(g, norm(g, conv(g, "conv2", y, out / 4, 3, stride)));
    y = relu(g, norm(g, conv(g, "conv3", y, out, 1, 1)));
    if (stride != 1)
        x = norm(g, conv(g, "downsample.0", x, out, 1, stride));
    weft_graph_pop(g);
    return relu(g, weft_add(g, x, y));
}

static void build_features(weft_graph *g, int64_t height, int64_t width)
{
    static const int64_t layers[] = {32, 64, 96};
    weft_value x = input(g, "x", height, width, 3);
    weft_graph_push(g, "feat_encoder");
    x = relu(g, norm(g, conv(g, "conv1", x, layers[0], 7, 2)));
    for (int i = 0; i < WEFT_COUNT(layers); i++) {
        weft_graph_push(g, "layer%d", i + 1);
        x = bottleneck(g, "0", x, layers[i], i ? 2 : 1);
        x = bottleneck(g, "1", x, layers[i], 1);
        weft_graph_pop(g);
    }
    x = conv(g, "conv2", x, WEFT_AMT_WIDTH, 1, 1);
    weft_graph_pop(g);
    weft_output(g, "y", x);
}

static void build_pyramid(weft_graph *g, int64_t height, int64_t width)
{
    weft_value x = input(g, "x", height, width, 3);
    for (int i = 0; i < WEFT_COUNT(weft_amt_channels); i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i + 1);
        weft_graph_push(g, "encoder.pyramid%d", i + 1);
        x = conv_prelu(g, "0", x, weft_amt_channels[i], 2);
        x = conv_prelu(g, "1", x, weft_amt_channels[i], 1);
        weft_graph_pop(g);
        weft_output(g, name, x);
    }
}

/* ---- decoders ------------------------------------------------------------------------------- */

/* The last SIDE channels pass through a convolution of their own. */
static weft_value side(weft_graph *g, const char *name, weft_value x)
{
    const int64_t rest = weft_dim(g, x, 4) - SIDE;
    const weft_value parts[2] = {weft_slice(g, x, 4, 0, rest),
                                 conv_prelu(g, name, weft_slice(g, x, 4, rest, SIDE), SIDE, 1)};
    return weft_concat(g, parts, 2, 4);
}

static weft_value residual(weft_graph *g, const char *name, weft_value x)
{
    const int64_t c = weft_dim(g, x, 4);
    weft_graph_push(g, "%s", name);
    weft_value y = side(g, "conv2", conv_prelu(g, "conv1", x, c, 1));
    y = side(g, "conv4", conv_prelu(g, "conv3", y, c, 1));
    y = prelu(g, "prelu", weft_add(g, x, conv(g, "conv5", y, c, 3, 1)));
    weft_graph_pop(g);
    return y;
}

/* Decoder `level` doubles the size: `in` channels, of which `wide` remain inside. */
static void build_decoder(weft_graph *g, int level, int64_t height, int64_t width)
{
    const int64_t each = weft_amt_channels[level - 1], by = 1 << level,
                  wide = level == 4 ? 2 * each : 3 * each, in = wide + (level == 4 ? 1 : 4),
                  out = level == 1 ? 8 * WEFT_AMT_FLOWS : weft_amt_channels[level - 2] + 4;
    weft_value x = input(g, "x", height / by, width / by, in);
    weft_graph_push(g, "decoder%d.convblock", level);
    x = residual(g, "1", conv_prelu(g, "0", x, wide, 1));
    x = grow(g, "2", x, out);
    weft_graph_pop(g);
    weft_output(g, "y", x);
}

/* Two convolutions with an activation between these. */
static weft_value two_convs(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    weft_graph_push(g, "%s", name);
    x = conv(g, "2", leaky(g, conv(g, "0", x, HIDDEN, 3, 1)), out, 3, 1);
    weft_graph_pop(g);
    return x;
}

static void build_update(weft_graph *g, int level, int64_t height, int64_t width)
{
    const int64_t y = height / 8, w = width / 8, c = weft_amt_channels[level - 2];
    const weft_value state = input(g, "state", y, w, c), flow = input(g, "flow", y, w, 4),
                     corr = input(g, "corr", y, w, WEFT_AMT_CORR);
    weft_graph_push(g, "update%d", level);
    const weft_value seen = leaky(g, conv(g, "convc1", corr, FROM_CORR, 1, 1));
    weft_value moved = leaky(g, conv(g, "convf1", flow, 2 * FLOW, 7, 1));
    moved = leaky(g, conv(g, "convf2", moved, FLOW, 3, 1));
    weft_value x = weft_concat(g, (weft_value[]){seen, moved}, 2, 4);
    x = leaky(g, conv(g, "conv", x, JOINED, 3, 1));
    x = weft_concat(g, (weft_value[]){x, flow, state}, 3, 4);
    x = two_convs(g, "gru", x, HIDDEN);
    const weft_value more = two_convs(g, "feat_head", x, c),
                     shift = two_convs(g, "flow_head", x, 4);
    weft_graph_pop(g);
    weft_output(g, "state", more);
    weft_output(g, "flow", shift);
}

static void build_combine(weft_graph *g, int64_t height, int64_t width)
{
    weft_value x = input(g, "x", height, width, 3 * WEFT_AMT_FLOWS);
    weft_graph_push(g, "comb_block");
    x = prelu(g, "1", conv(g, "0", x, 6 * WEFT_AMT_FLOWS, 3, 1));
    x = conv(g, "2", x, 3, 3, 1);
    weft_graph_pop(g);
    weft_output(g, "y", x);
}

void weft_amt_build(weft_graph *g, weft_amt_part part, int64_t height, int64_t width)
{
    switch (part) {
    case WEFT_AMT_FEATURES: build_features(g, height, width); break;
    case WEFT_AMT_PYRAMID: build_pyramid(g, height, width); break;
    case WEFT_AMT_COMBINE: build_combine(g, height, width); break;
    case WEFT_AMT_UPDATE4:
    case WEFT_AMT_UPDATE3:
    case WEFT_AMT_UPDATE2:
        build_update(g, 4 - (int)(part - WEFT_AMT_UPDATE4), height, width);
        break;
    default: build_decoder(g, 4 - (int)(part - WEFT_AMT_DECODE4), height, width); break;
    }
}
