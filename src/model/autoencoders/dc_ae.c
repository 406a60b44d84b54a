/* DC-AE, an image autoencoder that compresses deeply (diffusers' AutoencoderDC). The frames of a
 * video are separate images. Latents have no variance.
 *
 *   encoder: conv_in -> levels x (blocks, halve) -> conv_out + means of groups of channels
 *   decoder: conv_in + repeated channels -> levels x (double, blocks) -> norm, ReLU, conv_out
 *   residual block: conv, SiLU, conv, norm, add
 *   EfficientViT block: linear attention of a frame, norm, add; then a 1x1 convolution to twice the
 *     inner channels, 3x3 in each channel, gate, 1x1 convolution, norm, add
 *
 * Halving puts 2x2 pixels into channels; doubling is the inverse. Both add the channels themselves,
 * as means of groups or repeated. Channels of [q k v] are cut in this order into groups of q, k, v
 * of one head. Channels of a further scale are cut as well. A first level without blocks has no
 * channels of its own: conv_in and conv_out change the size.
 *
 * Shape letters: B batch, T frames, Y/X rows, columns, N = Y X, C channels, Z latent channels, I
 * width of q, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <math.h>

enum { MAX_LEVELS = 8, MAX_Z = WEFT_MAX_CHANNELS, EXPAND = 4, GATE_SIDE = 3 };
enum { BLOCK_RESIDUAL, BLOCK_VIT };
static const double norm_eps = 1e-5, denominator_eps = 1e-15, largest = 3e38;
/* Kernel sides of the further scale: "qkv_multiscales". */
static const char *const scale_words[] = {"[]", "[5]", "[3]", NULL};
static const int64_t scale_side[] = {0, 5, 3};

typedef struct dc_ae_half {
    int64_t levels, width[MAX_LEVELS], layers[MAX_LEVELS], block[MAX_LEVELS], scale[MAX_LEVELS];
} dc_ae_half;

typedef struct dc_ae {
    int64_t in_channels, z, head_dim;
    dc_ae_half encoder, decoder;
    int64_t upsample, downsample; /* 1: an interpolation, a convolution with stride 2 */
    bool encoder_shortcut, decoder_shortcut;
    weft_statistics latents;
} dc_ae;
_Static_assert(sizeof(dc_ae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value positive(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, 0, largest);
}

static weft_value silu(weft_graph *g, weft_value x)
{
    return weft_unary(g, WEFT_OP_SILU, x);
}

/* RMS norm over the channels, with "weight" and "bias". */
static weft_value norm(weft_graph *g, const char *name, weft_value x)
{
    const weft_nn_layer layer = weft_nn_norm_of(g, name, weft_dim(g, x, 4), true);
    weft_graph_push(g, "%s", name);
    x = weft_nn_scale_channels(g, &layer, weft_nn_plain_rms_norm(g, x, norm_eps));
    weft_graph_pop(g);
    return x;
}

/* "weight" of a convolution of `side`, stored as (out,in,side,side) */
static weft_value weight_of(weft_graph *g, int64_t out, int64_t in, int64_t side)
{
    const double reach = sqrt(3.0 / (double)(in * side * side));
    return weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, side, side),
                      (weft_init){.kind = WEFT_INIT_UNIFORM, .value = reach});
}

/* Convolution of 3x3 without bias. */
static weft_value conv_plain(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    const weft_conv_shape same = {
        .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    const int64_t in = weft_dim(g, x, 4);
    weft_graph_push(g, "%s", name);
    const weft_nn_layer layer = {
        name, weft_reshape(g, weight_of(g, out, in, 3), WEFT_SHAPE(out, in, 1, 3, 3)), WEFT_NONE};
    x = weft_nn_conv_by(g, &layer, x, &same);
    weft_graph_pop(g);
    return x;
}

/* ---- channels of shortcuts ------------------------------------------------------------------ */

/* Means of neighbouring channels: (B,T,Y,X,C) -> (B,T,Y,X,out) */
static weft_value average(weft_graph *g, weft_value x, int64_t out)
{
    const weft_shape s = weft_value_get(g, x)->shape;
    const int64_t group = s.dim[4] / out;
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3] * out, group));
    x = weft_affine(g, weft_sum(g, x, 1u << 4), 1.0 / (double)group, 0);
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3], out));
}

/* Each channel several times: (B,T,Y,X,C) -> (B,T,Y,X,out) */
static weft_value repeat(weft_graph *g, weft_value x, int64_t out)
{
    const weft_shape s = weft_value_get(g, x)->shape;
    const int64_t places = s.dim[3] * s.dim[4];
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], places, 1));
    x = weft_broadcast(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], places, out / s.dim[4]));
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3], out));
}

static weft_value halve(weft_graph *g, const dc_ae *c, const char *name, weft_value x, int64_t out,
                        bool shortcut)
{
    const weft_conv_shape half = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .before = {0, 1, 1}};
    weft_graph_push(g, "%s", name);
    weft_value y = c->downsample
                       ? weft_nn_conv(g, "conv", x, out, half, true)
                       : weft_nn_pixel_unshuffle(g, weft_nn_conv_2d(g, "conv", x, out / 4, 3), 2);
    if (shortcut && weft_value_ok(y))
        y = weft_add(g, y, average(g, weft_nn_pixel_unshuffle(g, x, 2), out));
    weft_graph_pop(g);
    return y;
}

static weft_value twice(weft_graph *g, const dc_ae *c, const char *name, weft_value x, int64_t out,
                        bool shortcut)
{
    weft_graph_push(g, "%s", name);
    weft_value y =
        c->upsample ? weft_nn_conv_2d(g, "conv", weft_nn_repeat(g, x, (int64_t[]){1, 2, 2}), out, 3)
                    : weft_nn_pixel_shuffle(g, weft_nn_conv_2d(g, "conv", x, 4 * out, 3), 2);
    if (shortcut && weft_value_ok(y))
        y = weft_add(g, y, weft_nn_pixel_shuffle(g, repeat(g, x, 4 * out), 2));
    weft_graph_pop(g);
    return y;
}

/* ---- blocks --------------------------------------------------------------------------------- */

static weft_value residual(weft_graph *g, weft_value x)
{
    const int64_t width = weft_dim(g, x, 4);
    weft_value h = silu(g, weft_nn_conv_2d(g, "conv1", x, width, 3));
    h = norm(g, "norm", conv_plain(g, "conv2", h, width));
    return weft_add(g, x, h);
}

/* A further scale of qkv (B,T,Y,X,3 I): a convolution of each channel, then a matrix for each group
 * of D channels. */
static weft_value other_scale(weft_graph *g, weft_value qkv, int64_t side, int64_t head_dim)
{
    const weft_shape s = weft_value_get(g, qkv)->shape;
    const int64_t channels = s.dim[4], groups = channels / head_dim,
                  places = s.dim[1] * s.dim[2] * s.dim[3];
    weft_graph_push(g, "to_qkv_multiscale.0");
    weft_graph_push(g, "proj_in");
    const weft_value kernel =
        weft_reshape(g, weight_of(g, channels, 1, side), WEFT_SHAPE(channels, side * side));
    weft_value x = weft_nn_conv_channels(g, qkv, 2, side, kernel, WEFT_NONE);
    weft_graph_pop(g);
    weft_graph_push(g, "proj_out");
    const weft_value weight =
        weft_broadcast(g,
                       weft_reshape(g, weight_of(g, channels, head_dim, 1),
                                    WEFT_SHAPE(1, groups, head_dim, head_dim)),
                       WEFT_SHAPE(s.dim[0], groups, head_dim, head_dim));
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], places, groups, head_dim));
    x = weft_matmul(g, weft_permute(g, x, (int[]){0, 2, 1, 3}), weight, false, true);
    x = weft_reshape(g, weft_permute(g, x, (int[]){0, 2, 1, 3}), s);
    weft_graph_pop(g);
    weft_graph_pop(g);
    return x;
}

/* Linear attention in each frame of the heads in x (B,T,Y,X,3 H D): (B,T,Y,X,H D). For few places
 * the reference multiplies in another order. */
static weft_value attend_linearly(weft_graph *g, weft_value x, int64_t head_dim)
{
    const weft_shape s = weft_value_get(g, x)->shape;
    const int64_t heads = s.dim[4] / (3 * head_dim), places = s.dim[2] * s.dim[3];
    weft_value qkv[3];
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], places, heads, 3 * head_dim));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] * heads, places, 3 * head_dim));
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_slice(g, x, 3, i * head_dim, head_dim);
        if (i < 2)
            qkv[i] = positive(g, qkv[i]);
    }
    const weft_value keys = weft_sum(g, qkv[1], 1u << 2), /* (B,T H,1,D) */
        state = weft_matmul(g, qkv[1], qkv[2], true, false),
                     weight = weft_sum(g, weft_mul(g, qkv[0], keys), 1u << 3);
    x = weft_div(g, weft_matmul(g, qkv[0], state, false, false),
                 weft_affine(g, weight, 1, denominator_eps));
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], heads, places, head_dim));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3], heads * head_dim));
}

static weft_value attend(weft_graph *g, const dc_ae *c, weft_value x, int64_t side)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    const int64_t width = weft_dim(g, x, 4), inner = width / c->head_dim * c->head_dim;
    weft_value part[3], scale[2];
    weft_graph_push(g, "attn");
    for (int i = 0; i < 3; i++)
        part[i] = weft_nn_linear_plain(g, names[i], x, inner);
    scale[0] = weft_concat(g, part, 3, 4);
    if (side)
        scale[1] = other_scale(g, scale[0], side, c->head_dim);
    weft_value h = attend_linearly(g, weft_concat(g, scale, side ? 2 : 1, 4), c->head_dim);
    h = norm(g, "norm_out", weft_nn_linear_plain(g, "to_out", h, width));
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

static weft_value gated_conv(weft_graph *g, weft_value x)
{
    const int64_t width = weft_dim(g, x, 4), inner = EXPAND * width;
    weft_graph_push(g, "conv_out");
    weft_value h = silu(g, weft_nn_conv_2d(g, "conv_inverted", x, 2 * inner, 1));
    weft_graph_push(g, "conv_depth");
    const weft_value kernel = weft_reshape(g, weight_of(g, 2 * inner, 1, GATE_SIDE),
                                           WEFT_SHAPE(2 * inner, GATE_SIDE * GATE_SIDE)),
                     bias = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(2 * inner),
                                       (weft_init){.kind = WEFT_INIT_ZERO});
    h = weft_nn_conv_channels(g, h, 2, GATE_SIDE, kernel, bias);
    weft_graph_pop(g);
    h = weft_mul(g, weft_slice(g, h, 4, 0, inner), silu(g, weft_slice(g, h, 4, inner, inner)));
    weft_graph_push(g, "conv_point");
    const weft_nn_layer point = {
        "point", weft_reshape(g, weight_of(g, width, inner, 1), WEFT_SHAPE(width, inner)),
        WEFT_NONE};
    h = weft_nn_linear_by(g, &point, h);
    weft_graph_pop(g);
    h = norm(g, "norm", h);
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

/* Block `index` of a level's list. */
static weft_value block(weft_graph *g, const dc_ae *c, const dc_ae_half *half, int64_t level,
                        int64_t index, weft_value x)
{
    if (!weft_value_ok(x))
        return x;
    weft_graph_push(g, "%d", (int)index);
    x = half->block[level] == BLOCK_RESIDUAL
            ? residual(g, x)
            : gated_conv(g, attend(g, c, x, scale_side[half->scale[level]]));
    weft_graph_pop(g);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value encode(weft_graph *g, const dc_ae *c, weft_value x)
{
    const dc_ae_half *e = &c->encoder;
    const int64_t last = e->levels - 1;
    weft_graph_push(g, "encoder");
    x = e->layers[0] ? weft_nn_conv_2d(g, "conv_in", x, e->width[0], 3)
                     : halve(g, c, "conv_in", x, e->width[1], false);
    for (int64_t i = 0; i <= last; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        for (int64_t k = 0; k < e->layers[i]; k++)
            x = block(g, c, e, i, k, x);
        if (i < last && e->layers[i]) {
            char name[24];
            snprintf(name, sizeof name, "%d", (int)e->layers[i]);
            x = halve(g, c, name, x, e->width[i + 1], true);
        }
        weft_graph_pop(g);
    }
    weft_value z = weft_nn_conv_2d(g, "conv_out", x, c->z, 3);
    if (c->encoder_shortcut && weft_value_ok(x))
        z = weft_add(g, z, average(g, x, c->z));
    weft_graph_pop(g);
    return z;
}

static weft_value decode(weft_graph *g, const dc_ae *c, weft_value z)
{
    const dc_ae_half *d = &c->decoder;
    const int64_t last = d->levels - 1;
    weft_graph_push(g, "decoder");
    weft_value x = weft_nn_conv_2d(g, "conv_in", z, d->width[last], 3);
    if (c->decoder_shortcut && weft_value_ok(x))
        x = weft_add(g, x, repeat(g, z, d->width[last]));
    for (int64_t i = last; i >= 0; i--) {
        const int64_t first = i < last && d->layers[i]; /* blocks follow the doubling */
        weft_graph_push(g, "up_blocks.%d", (int)i);
        if (first)
            x = twice(g, c, "0", x, d->width[i], true);
        for (int64_t k = 0; k < d->layers[i]; k++)
            x = block(g, c, d, i, first + k, x);
        weft_graph_pop(g);
    }
    x = positive(g, norm(g, "norm_out", x));
    x = d->layers[0] ? weft_nn_conv_2d(g, "conv_out", x, c->in_channels, 3)
                     : twice(g, c, "conv_out", x, c->in_channels, false);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

/* Widths that shortcuts and heads can divide. */
static weft_status check_half(const dc_ae *c, const dc_ae_half *h, const char *key,
                              const weft_config_locations *locations)
{
    for (int64_t i = 0; i < h->levels; i++) {
        const int64_t next = i + 1 < h->levels ? h->width[i + 1] : c->z;
        if (i && !h->layers[i])
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, 0),
                              "only the first level may have no blocks");
        if (h->block[i] == BLOCK_VIT && h->width[i] < c->head_dim)
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, h->width[i]),
                              "a level is narrower than a head of %" PRId64 " channels",
                              c->head_dim);
        if ((i + 1 < h->levels && (next % 4 || 4 * h->width[i] % next)) ||
            (i + 1 == h->levels && h->width[i] % next))
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, h->width[i]),
                              "shortcuts need whole groups of channels from %" PRId64
                              " to the next %" PRId64,
                              h->width[i], next);
    }
    return WEFT_OK;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const dc_ae *c = config;
    if (c->encoder.levels < 2 || c->encoder.levels != c->decoder.levels)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "decoder_block_out_channels", c->decoder.levels),
                          "%" PRId64 " levels for %" PRId64 " of the encoder; both need the same "
                          "number, at least 2",
                          c->decoder.levels, c->encoder.levels);
    WEFT_TRY(check_half(c, &c->encoder, "encoder_block_out_channels", locations));
    return check_half(c, &c->decoder, "decoder_block_out_channels", locations);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const dc_ae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

/* Every frame is a separate temporal chunk. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(g, config, ports->at[WEFT_PORT_LATENTS]);
    else
        ports->at[WEFT_PORT_MEAN] = encode(g, config, ports->at[WEFT_PORT_VIDEO]);
}

static void grid(const void *config, weft_grid *grid)
{
    const dc_ae *c = config;
    grid->factor[0] = grid->piece = 1;
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->encoder.levels - 1);
    grid->channels = grid->out_channels = c->z;
}

static int64_t levels_of(const void *config)
{
    return ((const dc_ae *)config)->encoder.levels;
}

static int64_t channels_of(const void *config)
{
    return ((const dc_ae *)config)->z;
}

/* clang-format off */
static const char *const block_words[] = {"\"ResBlock\"", "\"EfficientViTBlock\"", NULL};
static const char *const upsample_words[] = {"\"pixel_shuffle\"", "\"interpolate\"", NULL};
static const char *const downsample_words[] = {"\"pixel_unshuffle\"", "\"conv\"", NULL};

#define AT(member) offsetof(dc_ae, member)
#define HALF(half, layers_) \
    {#half "_block_out_channels", WEFT_FIELD_I64S, AT(half.width), \
     "[128, 256, 512, 512, 1024, 1024]", 1, 65536, .capacity = MAX_LEVELS, \
     .count = AT(half.levels), .help = "width of each level of the " #half}, \
    {#half "_block_types", WEFT_FIELD_WORDS, AT(half.block), "\"ResBlock\"", \
     .capacity = MAX_LEVELS, .length = levels_of, .words = block_words, .spread = true, \
     .help = "blocks of each level"}, \
    {#half "_layers_per_block", WEFT_FIELD_I64S, AT(half.layers), layers_, 0, 64, \
     .capacity = MAX_LEVELS, .length = levels_of, \
     .help = "blocks per level; 0: first level only"}, \
    {#half "_qkv_multiscales", WEFT_FIELD_WORDS, AT(half.scale), "[[], [], [], [5], [5], [5]]", \
     .capacity = MAX_LEVELS, .length = levels_of, .words = scale_words, \
     .help = "kernel side of a further scale of queries, keys and values"}
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "32", MAX_Z),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "32", 1, 4096, .help = "width of a head"},
    HALF(encoder, "[2, 2, 2, 3, 3, 3]"),
    HALF(decoder, "[3, 3, 3, 3, 3, 3]"),
    {"upsample_block_type", WEFT_FIELD_WORD, AT(upsample), "\"pixel_shuffle\"",
     .words = upsample_words, .help = "how the decoder doubles rows and columns"},
    {"downsample_block_type", WEFT_FIELD_WORD, AT(downsample), "\"pixel_unshuffle\"",
     .words = downsample_words, .help = "how the encoder halves rows and columns"},
    {"decoder_norm_types", WEFT_FIELD_EACH, .fallback = "\"rms_norm\"", .length = levels_of,
     .spread = true},
    {"decoder_act_fns", WEFT_FIELD_EACH, .fallback = "\"silu\"", .length = levels_of,
     .spread = true},
    {"encoder_out_shortcut", WEFT_FIELD_BOOL, AT(encoder_shortcut), "true",
     .help = "adds means of channels at the end of the encoder"},
    {"decoder_in_shortcut", WEFT_FIELD_BOOL, AT(decoder_shortcut), "true",
     .help = "adds repeated latents at the beginning of the decoder"},
    {"decoder_conv_act_fn", WEFT_FIELD_FIXED, .fallback = "\"relu\""},
    WEFT_SCALE_FIELD(AT(latents.scale), "1.0"),
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
};

static const weft_named_config sizes[] = {
    {"dc-ae-f32c32-sana",
     "{\"encoder_block_types\": [\"ResBlock\", \"ResBlock\", \"ResBlock\", \"EfficientViTBlock\","
     " \"EfficientViTBlock\", \"EfficientViTBlock\"],"
     " \"decoder_block_types\": [\"ResBlock\", \"ResBlock\", \"ResBlock\", \"EfficientViTBlock\","
     " \"EfficientViTBlock\", \"EfficientViTBlock\"],"
     " \"downsample_block_type\": \"conv\", \"upsample_block_type\": \"interpolate\","
     " \"scaling_factor\": 0.41407}"},
    {NULL, NULL},
};

/* Key mapping of the authors' files with shortcuts, convolutions that halve, and blocks in the
 * first level. 1x1 convolutions of the attention are matrices here. */
static const weft_rename_rule original[] = {
    {"encoder.project_in.conv",                  "encoder.conv_in"},
    {"encoder.project_out.main.op_list.0.conv",  "encoder.conv_out"},
    {"decoder.project_in.main.conv",             "decoder.conv_in"},
    {"decoder.project_out.op_list.0",            "decoder.norm_out"},
    {"decoder.project_out.op_list.2.conv",       "decoder.conv_out"},
    {"encoder.stages.#.op_list.#",               "encoder.down_blocks.#.#"},
    {"decoder.stages.#.op_list.#",               "decoder.up_blocks.#.#"},
    {"encoder.down_blocks.#.#.main.conv",        "encoder.down_blocks.#.#.conv"},
    {"decoder.up_blocks.#.#.main.conv.conv",     "decoder.up_blocks.#.#.conv"},
    {"encoder.down_blocks.#.#.main.conv2.norm",  "encoder.down_blocks.#.#.norm"},
    {"decoder.up_blocks.#.#.main.conv2.norm",    "decoder.up_blocks.#.#.norm"},
    {"main.conv1.conv",                          "conv1"},
    {"main.conv2.conv",                          "conv2"},
    {"context_module.main.qkv.conv",             "attn.{to_q,to_k,to_v}", 2},
    {"context_module.main.aggreg.0.0",           "attn.to_qkv_multiscale.0.proj_in"},
    {"context_module.main.aggreg.0.1",           "attn.to_qkv_multiscale.0.proj_out"},
    {"context_module.main.proj.conv",            "attn.to_out", 2},
    {"context_module.main.proj.norm",            "attn.norm_out"},
    {"local_module.main.inverted_conv.conv",     "conv_out.conv_inverted"},
    {"local_module.main.depth_conv.conv",        "conv_out.conv_depth"},
    {"local_module.main.point_conv.conv",        "conv_out.conv_point"},
    {"local_module.main.point_conv.norm",        "conv_out.norm"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.1.0.conv2.weight", NULL, 0},
    {"diffusers", "encoder.down_blocks.1.0.attn.to_q.weight", NULL, 0},
    {"original", "decoder.stages.0.op_list.0.main.conv.conv.bias", original,
     sizeof original / sizeof *original},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO,          false, "sample"},
    {WEFT_PORT_MEAN,           true,  "mean"},
    {WEFT_PORT_RECONSTRUCTION, true,  "sample"},
};

const weft_family weft_family_dc_ae = {
    .class_name = "AutoencoderDC", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"encoder_qkv_multiscales", "decoder_qkv_multiscales"},
    .config_bytes = sizeof(dc_ae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 512, 512}, {0, 448, 448}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
