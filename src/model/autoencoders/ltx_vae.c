/* LTX-Video's autoencoder (diffusers' AutoencoderKLLTXVideo, 0.9.0): 1 + 8n frames of 32x32
 * pixels to 1 + n latent frames of 128 channels.
 *
 *   encoder: patches of pixels to channels -> conv_in -> levels x (residual blocks, halve, widen)
 *            -> mid -> norm, silu, conv_out; one logvar for all channels
 *   decoder: conv_in -> mid -> levels x (narrow, double, residual blocks) -> norm, silu, conv_out
 *            -> channels to pixels
 *
 * Time. Convolutions of a causal half read two preceding frames; the first frame is repeated
 * before the video. Other convolutions read one frame on either side. Channels become frames,
 * and the first frame is dropped, so that 1 + n become 1 + 2n. The public decoder is not causal,
 * so temporal chunks are not supported.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 128 };
static const double norm_eps = 1e-8;

typedef struct ltx_half {
    int64_t levels, width[MAX_LEVELS], layers[MAX_LEVELS + 1];
    bool scales[MAX_LEVELS]; /* levels that halve or double frames, rows and columns */
    bool causal;
} ltx_half;

typedef struct ltx_vae {
    int64_t in_channels, out_channels, z, patch;
    ltx_half encoder, decoder;
    double eps; /* eps of the norm before a shortcut */
    weft_statistics latents;
} ltx_vae;
_Static_assert(sizeof(ltx_vae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Encoder or decoder while its graph is built. */
typedef struct coder {
    weft_graph *g;
    bool causal;
    double eps;
} coder;

static weft_value conv(const coder *co, const char *name, weft_value x, int64_t out, int64_t k,
                       int64_t stride)
{
    weft_graph *g = co->g;
    const int64_t p = k / 2;
    const weft_conv_shape shape = {.kernel = {k, k, k},
                                   .stride = {stride, stride, stride},
                                   .before = {0, p, p},
                                   .after = {0, stride > 1 ? 0 : p, stride > 1 ? 0 : p}};
    x = weft_nn_pad_edge(g, x, 1, co->causal ? k - 1 : p, co->causal ? 0 : p);
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", x, out, shape, false);
    weft_graph_pop(g);
    return x;
}

static weft_value norm_silu(weft_graph *g, weft_value x)
{
    const weft_attr_norm attr = {.eps = norm_eps};
    return weft_unary(g, WEFT_OP_SILU, weft_emit(g, WEFT_OP_RMS_NORM, &x, 1, &attr));
}

static weft_value res_block(const coder *co, const char *name, weft_value x, int64_t out)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "%s", name);
    weft_value h = conv(co, "conv1", norm_silu(g, x), out, 3, 1);
    h = conv(co, "conv2", norm_silu(g, h), out, 3, 1);
    if (weft_dim(g, x, 4) != out)
        x = conv(co, "conv_shortcut", weft_nn_layer_norm(g, "norm3", x, co->eps), out, 1, 1);
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

static weft_value res_blocks(const coder *co, weft_value x, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        char name[32];
        snprintf(name, sizeof name, "resnets.%d", (int)r);
        x = res_block(co, name, x, weft_dim(co->g, x, 4));
    }
    return x;
}

static weft_value mid_block(const coder *co, weft_value x, int64_t count)
{
    weft_graph_push(co->g, "mid_block");
    x = res_blocks(co, x, count);
    weft_graph_pop(co->g);
    return x;
}

/* Moves channels (C,2,2,2) into twice as many frames, rows and columns. Drops the first frame. */
static weft_value twice(const coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4), b = weft_dim(g, x, 0),
                  size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
    x = conv(co, "upsamplers.0.conv", x, 8 * c, 3, 1);
    x = weft_reshape(g, x, WEFT_SHAPE(b, size[0] * size[1] * size[2], 8 * c));
    x = weft_nn_unpatch(g, weft_nn_channels_last(g, x, c), size, (int64_t[]){2, 2, 2});
    return weft_slice(g, x, 1, 1, 2 * size[0] - 1);
}

/* ---- the two halves ------------------------------------------------------------------------- */

/* Means and one log variance for all channels, (B,T,Y,X,Z+1). */
static weft_value encode(weft_graph *g, const ltx_vae *c, weft_value x)
{
    const ltx_half *h = &c->encoder;
    const coder co = {g, h->causal, c->eps};
    weft_graph_push(g, "encoder");
    x = conv(&co, "conv_in", weft_nn_pixels_in(g, x, c->patch), h->width[0], 3, 1);
    for (int64_t i = 0; i < h->levels; i++) {
        const int64_t next = h->width[i + 1 < h->levels ? i + 1 : i];
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = res_blocks(&co, x, h->layers[i]);
        if (h->scales[i]) {
            weft_graph_push(g, "downsamplers");
            x = conv(&co, "0", x, h->width[i], 3, 2);
            weft_graph_pop(g);
        }
        if (next != h->width[i])
            x = res_block(&co, "conv_out", x, next);
        weft_graph_pop(g);
    }
    x = mid_block(&co, x, h->layers[h->levels]);
    x = conv(&co, "conv_out", norm_silu(g, x), c->z + 1, 3, 1);
    weft_graph_pop(g);
    return x;
}

static weft_value decode(weft_graph *g, const ltx_vae *c, weft_value x)
{
    const ltx_half *h = &c->decoder;
    const coder co = {g, h->causal, c->eps};
    weft_graph_push(g, "decoder");
    x = conv(&co, "conv_in", x, h->width[h->levels - 1], 3, 1);
    x = mid_block(&co, x, h->layers[h->levels]);
    for (int64_t i = 0; i < h->levels; i++) {
        const int64_t level = h->levels - 1 - i;
        weft_graph_push(g, "up_blocks.%d", (int)i);
        if (weft_dim(g, x, 4) != h->width[level])
            x = res_block(&co, "conv_in", x, h->width[level]);
        if (h->scales[level])
            x = twice(&co, x);
        x = res_blocks(&co, x, h->layers[level]);
        weft_graph_pop(g);
    }
    x = conv(&co, "conv_out", norm_silu(g, x), c->out_channels * c->patch * c->patch, 3, 1);
    weft_graph_pop(g);
    return weft_nn_pixels_out(g, x, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static int64_t time_of(const void *config)
{
    const ltx_vae *c = config;
    int64_t factor = 1;
    for (int64_t i = 0; i < c->encoder.levels; i++)
        factor *= c->encoder.scales[i] ? 2 : 1;
    return factor;
}

static int64_t space_of(const void *config)
{
    return time_of(config) * ((const ltx_vae *)config)->patch;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx_vae *c = config;
    int64_t up = 1;
    for (int64_t i = 0; i < c->decoder.levels; i++)
        up *= c->decoder.scales[i] ? 2 : 1;
    if (c->encoder.levels < 1 || c->decoder.levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "block_out_channels", c->encoder.levels),
                          "at least one level is needed");
    return up == time_of(c)
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT_FIELD(locations, "decoder_spatio_temporal_scaling", up),
                            "the decoder enlarges by %" PRId64
                            ", but the encoder reduces by %" PRId64,
                            up, time_of(c));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const ltx_vae *c = config;
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(g, c, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    const weft_value moments = encode(g, c, ports->at[WEFT_PORT_VIDEO]);
    ports->at[WEFT_PORT_MEAN] = weft_slice(g, moments, 4, 0, c->z);
    const weft_value logvar = weft_clamp(g, weft_slice(g, moments, 4, c->z, 1), -30, 20);
    ports->at[WEFT_PORT_LOGVAR] =
        weft_value_ok(logvar)
            ? weft_broadcast(g, logvar, weft_value_get(g, ports->at[WEFT_PORT_MEAN])->shape)
            : WEFT_NONE;
}

static void grid(const void *config, weft_grid *grid)
{
    const ltx_vae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = space_of(c);
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

static int64_t levels_of(const void *config)
{
    return ((const ltx_vae *)config)->encoder.levels;
}

static int64_t layers_of(const void *config)
{
    return levels_of(config) + 1;
}

static int64_t decoder_levels_of(const void *config)
{
    return ((const ltx_vae *)config)->decoder.levels;
}

static int64_t decoder_layers_of(const void *config)
{
    return decoder_levels_of(config) + 1;
}

static int64_t channels_of(const void *config)
{
    return ((const ltx_vae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(ltx_vae, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "3", 1, 64, .help = "channels of the video"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "3", 1, 64, .help = "channels of the video"},
    {"latent_channels", WEFT_FIELD_I64, AT(z), "128", 1, MAX_Z, .help = "latent channels"},
    {"block_out_channels", WEFT_FIELD_I64S, AT(encoder.width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(encoder.levels), .help = "width of each level"},
    {"decoder_block_out_channels", WEFT_FIELD_I64S, AT(decoder.width),
     "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(decoder.levels),
     .help = "width of each level of the decoder"},
    {"down_block_types", WEFT_FIELD_EACH, .fallback = "\"LTXVideoDownBlock3D\"",
     .length = levels_of},
    {"layers_per_block", WEFT_FIELD_I64S, AT(encoder.layers), "[4, 3, 3, 3, 4]", 1, 64,
     .capacity = MAX_LEVELS + 1, .length = layers_of,
     .help = "residual blocks of each level and of the middle"},
    {"decoder_layers_per_block", WEFT_FIELD_I64S, AT(decoder.layers), "[4, 3, 3, 3, 4]", 1, 64,
     .capacity = MAX_LEVELS + 1, .length = decoder_layers_of,
     .help = "residual blocks of each decoder level and of the middle"},
    {"spatio_temporal_scaling", WEFT_FIELD_BOOLS, AT(encoder.scales), "[true, true, true, false]",
     .capacity = MAX_LEVELS, .length = levels_of,
     .help = "levels that halve frames, rows and columns"},
    {"decoder_spatio_temporal_scaling", WEFT_FIELD_BOOLS, AT(decoder.scales),
     "[true, true, true, false]",
     .capacity = MAX_LEVELS, .length = decoder_levels_of,
     .help = "levels that double frames, rows and columns"},
    {"decoder_inject_noise", WEFT_FIELD_EACH, .fallback = "false", .length = decoder_layers_of},
    {"downsample_type", WEFT_FIELD_EACH, .fallback = "\"conv\"", .length = levels_of},
    {"upsample_residual", WEFT_FIELD_EACH, .fallback = "false", .length = decoder_levels_of},
    {"upsample_factor", WEFT_FIELD_EACH, .fallback = "1", .length = decoder_levels_of},
    {"timestep_conditioning", WEFT_FIELD_FIXED, .fallback = "false"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "4", 1, 16,
     .help = "side of the square of pixels that becomes channels"},
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},
    {"resnet_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1,
     .help = "epsilon of the norm before a shortcut"},
    {"scaling_factor", WEFT_FIELD_F64, AT(latents.scale), "1.0", 1e-30, 1e30,
     .help = "factor on latents"},
    {"encoder_causal", WEFT_FIELD_BOOL, AT(encoder.causal), "true",
     .help = "the encoder reads no later frames"},
    {"decoder_causal", WEFT_FIELD_BOOL, AT(decoder.causal), "false",
     .help = "the decoder reads no later frames"},
    {"spatial_compression_ratio", WEFT_FIELD_DERIVED, .length = space_of},
    {"temporal_compression_ratio", WEFT_FIELD_DERIVED, .length = time_of},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
};

static const weft_named_config sizes[] = {
    {"ltx-video-vae", "{}"},
    {NULL, NULL},
};

/* Key mapping of LTX-Video's own files up to 0.9.0. Levels, resamplers and layers that change the
 * width are in one list. The order ensures that no rule matches the result of an earlier rule. */
static const weft_rename_rule original[] = {
    {"encoder.down_blocks.1",                 "encoder.down_blocks.0.downsamplers.0"},
    {"encoder.down_blocks.2",                 "encoder.down_blocks.0.conv_out"},
    {"encoder.down_blocks.3",                 "encoder.down_blocks.1"},
    {"encoder.down_blocks.4",                 "encoder.down_blocks.1.downsamplers.0"},
    {"encoder.down_blocks.5",                 "encoder.down_blocks.1.conv_out"},
    {"encoder.down_blocks.6",                 "encoder.down_blocks.2"},
    {"encoder.down_blocks.7",                 "encoder.down_blocks.2.downsamplers.0"},
    {"encoder.down_blocks.8",                 "encoder.down_blocks.3"},
    {"encoder.down_blocks.9",                 "encoder.mid_block"},
    {"decoder.up_blocks.0",                   "decoder.mid_block"},
    {"decoder.up_blocks.1",                   "decoder.up_blocks.0"},
    {"decoder.up_blocks.2",                   "decoder.up_blocks.1.upsamplers.0"},
    {"decoder.up_blocks.3",                   "decoder.up_blocks.1"},
    {"decoder.up_blocks.4",                   "decoder.up_blocks.2.conv_in"},
    {"decoder.up_blocks.5",                   "decoder.up_blocks.2.upsamplers.0"},
    {"decoder.up_blocks.6",                   "decoder.up_blocks.2"},
    {"decoder.up_blocks.7",                   "decoder.up_blocks.3.conv_in"},
    {"decoder.up_blocks.8",                   "decoder.up_blocks.3.upsamplers.0"},
    {"decoder.up_blocks.9",                   "decoder.up_blocks.3"},
    {"res_blocks",                            "resnets"},
    {"conv_shortcut",                         "conv_shortcut.conv"},
    {"norm3.norm",                            "norm3"},
    {"per_channel_statistics.mean-of-means",  "latents_mean"},
    {"per_channel_statistics.std-of-means",   "latents_std"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.0.downsamplers.0.conv.weight", NULL, 0},
    {"original", "decoder.up_blocks.9.res_blocks.0.conv1.conv.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_ltx_vae = {
    .class_name = "AutoencoderKLLTXVideo", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"decoder_causal", "spatio_temporal_scaling"},
    .config_bytes = sizeof(ltx_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 512, 512}, {0, 448, 448}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
