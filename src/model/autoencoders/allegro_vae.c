/* Allegro's autoencoder (diffusers' AutoencoderKLAllegro): 4n frames of 8x8 pixels to n latent
 * frames. Image layers alternate with layers over frames:
 *
 *   encoder: conv_in, frames -> levels x (block, frames; halve frames; halve rows and columns)
 *            -> mid (block, frames, attention, block, frames) -> norm, silu, frames, conv_out
 *            -> quant_conv
 *   decoder: post_quant_conv -> conv_in, frames -> mid -> levels x (block, frames; double frames;
 *            double rows and columns) -> norm, silu, frames, conv_out
 *
 * Blocks and attention are per frame. In the layers over frames, group norms are over all frames,
 * and convolutions see a frame on either side. Temporal chunks are therefore not supported.
 * The reference processes overlapping tiles of 24 frames and 320x320 pixels only.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "base/config.h"
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64 };
static const double eps = 1e-6, frames_eps = 1e-5;

typedef struct allegro_vae {
    int64_t in_channels, out_channels, levels, width[MAX_LEVELS], layers, z, groups;
    int64_t side;                                 /* of a tile, in pixels */
    bool halves[MAX_LEVELS], doubles[MAX_LEVELS]; /* frames, by level of the encoder, decoder */
    weft_statistics latents;
} allegro_vae;
_Static_assert(sizeof(allegro_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value conv_2d(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    return weft_nn_conv_2d(co->g, name, x, out, k);
}

/* ---- layers over frames --------------------------------------------------------------------- */

/* How a layer changes the number of frames. */
typedef enum frames_change { FRAMES_KEPT, FRAMES_HALVED, FRAMES_DOUBLED } frames_change;

/* Convolution over three frames and `side` x `side` pixels, with `zeros` frames of zeros around the
 * video. */
static weft_value conv_frames(weft_graph *g, const char *name, weft_value x, int64_t side,
                              int64_t zeros)
{
    const int64_t p = side / 2;
    const weft_conv_shape shape = {.kernel = {3, side, side},
                                   .stride = {1, 1, 1},
                                   .before = {zeros, p, p},
                                   .after = {zeros, p, p}};
    return weft_nn_conv(g, name, x, weft_dim(g, x, 4), shape, false);
}

/* First convolution of a layer that changes the number of frames. */
static weft_value conv_change(weft_graph *g, const char *name, weft_value x, frames_change change)
{
    const int64_t c = weft_dim(g, x, 4), time = change == FRAMES_HALVED ? 2 : 1;
    const weft_conv_shape shape = {
        .kernel = {time, 3, 3}, .stride = {time, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    if (change == FRAMES_HALVED)
        return weft_nn_conv(g, name, x, c, shape, false);
    const int64_t b = weft_dim(g, x, 0),
                  size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
    x = weft_nn_conv(g, name, x, 2 * c, shape, false); /* channels: a frame, then its twin */
    x = weft_reshape(g, x, WEFT_SHAPE(b, size[0] * size[1] * size[2], 2 * c));
    return weft_nn_unpatch(g, x, size, (int64_t[]){2, 1, 1});
}

/* x with every second frame dropped. */
static weft_value every_second(weft_graph *g, weft_value x)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1) / 2, y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    x = weft_slice(g, weft_reshape(g, x, WEFT_SHAPE(b, t, 2, y * w * c)), 2, 0, 1);
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, c));
}

/* Four convolutions over frames, added to x. */
static weft_value temporal(weft_nn_coder *co, const char *name, weft_value x, frames_change change)
{
    static const char *const convs[] = {"conv1.2", "conv2.3", "conv3.3", "conv4.2"};
    weft_graph *g = co->g;
    const int64_t side = change == FRAMES_KEPT ? 1 : 3;
    weft_value h = x;
    if (change == FRAMES_HALVED && weft_dim(g, x, 1) % 2)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "%" PRId64 " frames are not divisible by two", weft_dim(g, x, 1));
    weft_graph_push(g, "%s", name);
    for (int i = 0; i < WEFT_COUNT(convs); i++) {
        const bool changes = i == 0 && change != FRAMES_KEPT;
        char norm[16];
        snprintf(norm, sizeof norm, "conv%d.0", i + 1);
        /* the norm counts the repeated frames, as in the reference */
        h = changes ? h : weft_nn_pad_edge(g, h, 1, 1, 1);
        h = weft_nn_group_norm(g, norm, h, co->groups, frames_eps);
        h = weft_unary(g, WEFT_OP_SILU, h);
        h = changes ? conv_change(g, convs[i], h, change) : conv_frames(g, convs[i], h, side, 0);
    }
    weft_graph_pop(g);
    if (change == FRAMES_HALVED)
        x = every_second(g, x);
    else if (change == FRAMES_DOUBLED)
        x = weft_nn_repeat(g, x, (int64_t[]){2, 1, 1});
    return weft_add(g, x, h);
}

/* A convolution over frames alone, added to x. */
static weft_value frames_alone(weft_graph *g, const char *name, weft_value x)
{
    return weft_add(g, x, conv_frames(g, name, x, 1, 1));
}

/* ---- the two halves ------------------------------------------------------------------------- */

/* `index`-th residual block and its layer over frames. */
static weft_value pair(weft_nn_coder *co, int64_t index, weft_value x, int64_t out)
{
    char block[32], frames[32];
    snprintf(block, sizeof block, "resnets.%d", (int)index);
    snprintf(frames, sizeof frames, "temp_convs.%d", (int)index);
    return temporal(co, frames, weft_nn_res_block(co, block, x, out), FRAMES_KEPT);
}

static weft_value mid_block(weft_nn_coder *co, weft_value x)
{
    const int64_t c = weft_dim(co->g, x, 4);
    weft_graph_push(co->g, "mid_block");
    x = pair(co, 0, x, c);
    x = pair(co, 1, weft_nn_pixel_attention(co, "attentions.0", x), c);
    weft_graph_pop(co->g);
    return x;
}

static weft_value enter(weft_nn_coder *co, weft_value x, int64_t width)
{
    return frames_alone(co->g, "temp_conv_in", conv_2d(co, "conv_in", x, width, 3));
}

static weft_value leave(weft_nn_coder *co, weft_value x, int64_t out)
{
    x = frames_alone(co->g, "temp_conv_out", weft_nn_norm_silu(co, "conv_norm_out", x));
    return conv_2d(co, "conv_out", x, out, 3);
}

static weft_value encode(weft_nn_coder *co, const allegro_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const weft_conv_shape half = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .after = {0, 1, 1}};
    weft_graph_push(g, "encoder");
    x = enter(co, x, c->width[0]);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        for (int64_t k = 0; k < c->layers; k++)
            x = pair(co, k, x, c->width[i]);
        if (c->halves[i])
            x = temporal(co, "temp_convs_down", x, FRAMES_HALVED);
        if (i < c->levels - 1)
            x = weft_nn_conv(g, "downsamplers.0.conv", x, c->width[i], half, true);
        weft_graph_pop(g);
    }
    x = leave(co, mid_block(co, x), 2 * c->z);
    weft_graph_pop(g);
    return conv_2d(co, "quant_conv", x, 2 * c->z, 1);
}

static weft_value decode(weft_nn_coder *co, const allegro_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    x = conv_2d(co, "post_quant_conv", x, c->z, 1);
    weft_graph_push(g, "decoder");
    x = mid_block(co, enter(co, x, c->width[c->levels - 1]));
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t width = c->width[c->levels - 1 - i];
        weft_graph_push(g, "up_blocks.%d", (int)i);
        for (int64_t k = 0; k <= c->layers; k++)
            x = pair(co, k, x, width);
        if (c->doubles[i])
            x = temporal(co, "temp_conv_up", x, FRAMES_DOUBLED);
        if (i < c->levels - 1)
            x = conv_2d(co, "upsamplers.0.conv", weft_nn_repeat(g, x, (int64_t[]){1, 2, 2}), width,
                        3);
        weft_graph_pop(g);
    }
    x = leave(co, x, c->out_channels);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static int64_t factor_of(const bool *changes, int64_t levels)
{
    int64_t factor = 1;
    for (int64_t i = 0; i < levels; i++)
        factor *= changes[i] ? 2 : 1;
    return factor;
}

static int64_t time_of(const void *config)
{
    const allegro_vae *c = config;
    return factor_of(c->halves, c->levels);
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const allegro_vae *c = config;
    const int64_t up = factor_of(c->doubles, c->levels);
    WEFT_TRY(weft_check_levels(locations, c->width, c->levels, 1, c->groups));
    return up == time_of(c) ? WEFT_OK
                            : weft_error(WEFT_MSG_MODEL_CONFIG,
                                         WEFT_AT_FIELD(locations, "temporal_upsample_blocks", up),
                                         "the decoder makes %" PRId64
                                         " frames of one, but the encoder makes one of %" PRId64,
                                         up, time_of(c));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const allegro_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const allegro_vae *c = config;
    weft_nn_coder co = {
        .g = g, .groups = c->groups, .eps = eps, .each_frame = true, .conv = conv_2d};
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
    else
        weft_ports_set_posterior(g, encode(&co, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const allegro_vae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->levels - 1);
    grid->channels = grid->out_channels = c->z;
}

/* Tiles overlap by 120 rows and 80 columns; the reference cannot run smaller tiles. */
static void set_tile(const void *config, weft_tile_rule *tile)
{
    const int64_t side = ((const allegro_vae *)config)->side;
    if (side <= 120)
        return;
    tile->size[1] = tile->size[2] = side;
    tile->step[1] = side - 120;
    tile->step[2] = side - 80;
}

static int64_t levels_of(const void *config)
{
    return ((const allegro_vae *)config)->levels;
}

static int64_t channels_of(const void *config)
{
    return ((const allegro_vae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(allegro_vae, member)
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    {"block_out_channels", WEFT_FIELD_I64S, AT(width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(levels),
     .help = "width of each level; all levels but the last halve rows and columns"},
    {"down_block_types", WEFT_FIELD_EACH, .fallback = "\"AllegroDownBlock3D\"",
     .length = levels_of},
    {"up_block_types", WEFT_FIELD_EACH, .fallback = "\"AllegroUpBlock3D\"", .length = levels_of},
    {"temporal_downsample_blocks", WEFT_FIELD_BOOLS, AT(halves), "[true, true, false, false]",
     .capacity = MAX_LEVELS, .length = levels_of,
     .help = "levels of the encoder that halve the frames"},
    {"temporal_upsample_blocks", WEFT_FIELD_BOOLS, AT(doubles), "[false, true, true, false]",
     .capacity = MAX_LEVELS, .length = levels_of,
     .help = "levels of the decoder, in its order, that double the frames"},
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "4", MAX_Z),
    WEFT_LEVEL_BLOCKS_FIELD(AT(layers), "2"),
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    WEFT_NORM_GROUPS_FIELD(AT(groups), "32"),
    {"temporal_compression_ratio", WEFT_FIELD_DERIVED, .length = time_of},
    {"sample_size", WEFT_FIELD_I64, AT(side), "320", 1, 65536,
     .help = "rows and columns of a tile of encoding and decoding"},
    WEFT_SCALE_FIELD(AT(latents.scale), "0.13"),
    {"force_upcast", WEFT_FIELD_IGNORED, .fallback = "true"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
};

static const weft_named_config sizes[] = {
    {"allegro-vae", "{}"},
    {NULL, NULL},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.0.temp_convs.0.conv1.0.weight", NULL, 0},
};

const weft_family weft_family_allegro_vae = {
    .class_name = "AutoencoderKLAllegro", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"temporal_downsample_blocks", "temporal_upsample_blocks"},
    .config_bytes = sizeof(allegro_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .set_tile = set_tile,
    .tile = {{24, 320, 320}, {16, 200, 240}, .sums = true},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
