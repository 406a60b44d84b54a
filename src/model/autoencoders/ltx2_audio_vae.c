/* LTX-2's autoencoder for audio (diffusers' AutoencoderKLLTX2Audio): spectrograms of 4n - 3 steps
 * and 64 mel bins to n latent steps of 16 bins and 8 channels. A spectrogram is an image here: its
 * rows are steps of time, its columns mel bins.
 *
 *   encoder: conv_in -> levels x (residual blocks, halve) -> mid -> norm, silu, conv_out
 *   decoder: conv_in -> mid -> levels x (residual blocks, double) -> norm, silu, conv_out
 *
 * Convolutions are causal: they read zeros before the first step, and no later step. Doubling drops
 * the first step. The decoder's output is cut or filled with zeros to the mel bins of the config.
 *
 * Shape letters: B batch, S steps, M mel bins, C channels. Values are (B,1,S,M,C). */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, REDUCTION = 4 }; /* REDUCTION: of the decoder's length in the reference */
static const double norm_eps = 1e-6;

typedef struct ltx2_audio_vae {
    int64_t base, in_channels, out_channels, z, levels, width[MAX_LEVELS], layers, bins, rate, hop;
    weft_statistics latents;
} ltx2_audio_vae;
_Static_assert(sizeof(ltx2_audio_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value norm_silu(weft_graph *g, weft_value x)
{
    return weft_unary(g, WEFT_OP_SILU, weft_nn_plain_rms_norm(g, x, norm_eps));
}

/* "NAME.conv", k x k. */
static weft_value conv(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k)
{
    const int64_t side = k / 2;
    const weft_conv_shape shape = {.kernel = {1, k, k},
                                   .stride = {1, 1, 1},
                                   .before = {0, k - 1, side},
                                   .after = {0, 0, side}};
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", x, out, shape, true);
    weft_graph_pop(g);
    return x;
}

static weft_value halve(weft_graph *g, weft_value x)
{
    const weft_conv_shape shape = {
        .kernel = {1, 3, 3}, .stride = {1, 2, 2}, .before = {0, 2, 0}, .after = {0, 0, 1}};
    weft_graph_push(g, "downsample");
    x = weft_nn_conv(g, "conv", x, weft_dim(g, x, 4), shape, true);
    weft_graph_pop(g);
    return x;
}

static weft_value twice(weft_graph *g, weft_value x)
{
    weft_graph_push(g, "upsample");
    x = weft_nn_repeat(g, x, (int64_t[]){1, 2, 2});
    x = conv(g, "conv", x, weft_dim(g, x, 4), 3);
    weft_graph_pop(g);
    return weft_slice(g, x, 2, 1, weft_dim(g, x, 2) - 1);
}

static weft_value res_block(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    weft_graph_push(g, "%s", name);
    weft_value h = conv(g, "conv1", norm_silu(g, x), out, 3);
    h = conv(g, "conv2", norm_silu(g, h), out, 3);
    if (weft_dim(g, x, 4) != out)
        x = conv(g, "nin_shortcut", x, out, 1);
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

static weft_value res_blocks(weft_graph *g, weft_value x, int64_t out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "block.%d", (int)i);
        x = res_block(g, name, x, out);
    }
    return x;
}

static weft_value middle(weft_graph *g, weft_value x)
{
    const int64_t width = weft_dim(g, x, 4);
    weft_graph_push(g, "mid");
    x = res_block(g, "block_2", res_block(g, "block_1", x, width), width);
    weft_graph_pop(g);
    return x;
}

static int64_t width_of(const ltx2_audio_vae *c, int64_t level)
{
    return c->base * c->width[level];
}

static weft_value encode(weft_graph *g, const ltx2_audio_vae *c, weft_value x)
{
    weft_graph_push(g, "encoder");
    x = conv(g, "conv_in", x, c->base, 3);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down.%d", (int)i);
        x = res_blocks(g, x, width_of(c, i), c->layers);
        if (i + 1 < c->levels)
            x = halve(g, x);
        weft_graph_pop(g);
    }
    x = conv(g, "conv_out", norm_silu(g, middle(g, x)), 2 * c->z, 3);
    weft_graph_pop(g);
    return x;
}

/* Cuts dim `d` to `count` items, or adds items of zeros. */
static weft_value fit(weft_graph *g, weft_value x, int d, int64_t count)
{
    const int64_t now = weft_dim(g, x, d);
    if (!weft_value_ok(x) || now == count)
        return x;
    if (now > count)
        return weft_slice(g, x, d, 0, count);
    weft_shape rest = weft_value_get(g, x)->shape;
    rest.dim[d] = count - now;
    return weft_concat(g, (weft_value[]){x, weft_fill(g, WEFT_F32, rest, 0)}, 2, d);
}

static weft_value decode(weft_graph *g, const ltx2_audio_vae *c, weft_value x)
{
    const int64_t steps = REDUCTION * (weft_dim(g, x, 2) - 1) + 1,
                  bins = c->bins ? c->bins : weft_dim(g, x, 3);
    weft_graph_push(g, "decoder");
    x = middle(g, conv(g, "conv_in", x, width_of(c, c->levels - 1), 3));
    for (int64_t i = c->levels - 1; i >= 0; i--) {
        weft_graph_push(g, "up.%d", (int)i);
        x = res_blocks(g, x, width_of(c, i), c->layers + 1);
        if (i > 0)
            x = twice(g, x);
        weft_graph_pop(g);
    }
    x = conv(g, "conv_out", norm_silu(g, x), c->out_channels, 3);
    weft_graph_pop(g);
    return fit(g, fit(g, x, 2, steps), 3, bins);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx2_audio_vae *c = config;
    return c->levels > 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "ch_mult", c->levels),
                            "at least one level is needed");
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx2_audio_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const ltx2_audio_vae *c = config;
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(g, c, ports->at[WEFT_PORT_LATENTS]);
    else
        weft_ports_set_posterior(g, encode(g, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const ltx2_audio_vae *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->levels - 1);
    grid->channels = grid->out_channels = c->z;
    grid->latents_per_second = (double)c->rate / (double)c->hop / REDUCTION;
}

/* clang-format off */
#define AT(member) offsetof(ltx2_audio_vae, member)
static const weft_field fields[] = {
    {"base_channels", WEFT_FIELD_I64, AT(base), "128", 1, 1 << 16,
     .help = "width of the first level"},
    {"output_channels", WEFT_FIELD_I64, AT(out_channels), "2", 1, 64,
     .help = "channels of the decoded sound"},
    {"ch_mult", WEFT_FIELD_I64S, AT(width), "[1, 2, 4]", 1, 1024, .capacity = MAX_LEVELS,
     .count = AT(levels), .help = "width of each level over the first"},
    {"num_res_blocks", WEFT_FIELD_I64, AT(layers), "2", 1, 64,
     .help = "residual blocks of a level of the encoder; the decoder has one more"},
    {"attn_resolutions", WEFT_FIELD_FIXED, .fallback = "null"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "2", 1, 64, .help = "channels of the sound"},
    {"resolution", WEFT_FIELD_IGNORED, .fallback = "256"},
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "8", 128),
    {"norm_type", WEFT_FIELD_FIXED, .fallback = "\"pixel\""},
    {"causality_axis", WEFT_FIELD_FIXED, .fallback = "\"height\""},
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"mid_block_add_attention", WEFT_FIELD_FIXED, .fallback = "false"},
    {"sample_rate", WEFT_FIELD_I64, AT(rate), "16000", 1, 1 << 20,
     .help = "audio samples per second"},
    {"mel_hop_length", WEFT_FIELD_I64, AT(hop), "160", 1, 1 << 16,
     .help = "audio samples per step of the spectrogram"},
    {"is_causal", WEFT_FIELD_IGNORED, .fallback = "true"},
    {"mel_bins", WEFT_FIELD_I64, AT(bins), "64", 0, 4096,
     .help = "mel bins of a decoded spectrogram; without a number all bins of the latents"},
    {"double_z", WEFT_FIELD_FIXED, .fallback = "true"},
};

static const weft_named_config sizes[] = {
    {"ltx-2-audio-vae", "{}"},
    {NULL, NULL},
};

static const weft_rename_rule original[] = {
    {"per_channel_statistics.mean-of-means", "latents_mean"},
    {"per_channel_statistics.std-of-means",  "latents_std"},
};
static const weft_key_mapping mappings[] = {
    /* first, because only the statistics have other names */
    {"original", "decoder.up.1.upsample.conv.conv.weight", original,
     sizeof original / sizeof *original, .also = "per_channel_statistics.std-of-means"},
    {"diffusers", "decoder.up.1.upsample.conv.conv.weight", NULL, 0},
};

const weft_family weft_family_ltx2_audio_vae = {
    .class_name = "AutoencoderKLLTX2Audio", .role = WEFT_ROLE_AUDIO_AUTOENCODER,
    .scope = "audio_vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"causality_axis", "mel_bins"},
    .config_bytes = sizeof(ltx2_audio_vae), .field = fields,
    .fields = sizeof fields / sizeof *fields, .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape,
    .build = build, .grid = grid, .statistics = AT(latents),
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
