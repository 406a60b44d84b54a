/* HunyuanVideo's autoencoder (diffusers' AutoencoderKLHunyuanVideo): 1 + 4n frames of 8x8 pixels
 * to 1 + n latent frames.
 *
 *   encoder: conv_in -> levels x (residual blocks, halve) -> mid (block, attention, block)
 *            -> norm, silu, conv_out -> quant_conv
 *   decoder: post_quant_conv -> conv_in -> mid -> levels x (residual blocks, double)
 *            -> norm, silu, conv_out
 *
 * Every convolution reads two preceding frames. The edge is repeated before the first frame and
 * around the image. Norms are over all frames, so temporal chunks are not supported.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/autoencoders/latent_diffusion.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

enum { MAX_LEVELS = 8, MAX_Z = 64 };
static const double eps = 1e-6;

typedef struct hunyuan_vae {
    int64_t in_channels, out_channels;
    int64_t levels, width[MAX_LEVELS];
    int64_t layers, z, groups;
    weft_statistics latents;
    int64_t space, time; /* pixels and frames per latent */
    bool attention;
} hunyuan_vae;
_Static_assert(sizeof(hunyuan_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    return weft_nn_conv_edge(co->g, name, x, out, k, (int64_t[]){1, 1, 1});
}

/* Steps of frames, rows and columns for level i of the encoder and block i of the decoder. */
static void steps_of(const hunyuan_vae *c, int64_t i, int64_t step[3])
{
    const int64_t last = c->levels - 1;
    step[0] = i >= last - weft_nn_halvings(c->time) && i < last ? 2 : 1;
    step[1] = step[2] = i < weft_nn_halvings(c->space) ? 2 : 1;
}

/* Repeats frames, rows and columns. The first frame stays single. */
static weft_value repeat(weft_graph *g, weft_value x, const int64_t times[3])
{
    const int64_t t = weft_dim(g, x, 1), in_space[3] = {1, times[1], times[2]};
    const weft_value first = weft_nn_repeat(g, weft_slice(g, x, 1, 0, 1), in_space);
    if (t == 1)
        return first;
    return weft_concat(
        g, (weft_value[]){first, weft_nn_repeat(g, weft_slice(g, x, 1, 1, t - 1), times)}, 2, 1);
}

static weft_value norm_out(weft_nn_coder *co, weft_value x, int64_t out)
{
    return conv(co, "conv_out", weft_nn_norm_silu(co, "conv_norm_out", x), out, 3);
}

static weft_value encode(weft_nn_coder *co, const hunyuan_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", x, c->width[0], 3);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, c->width[i], c->layers);
        int64_t step[3];
        steps_of(c, i, step);
        if (step[0] > 1 || step[1] > 1)
            x = weft_nn_conv_edge(co->g, "downsamplers.0.conv", x, c->width[i], 3, step);
        weft_graph_pop(g);
    }
    x = norm_out(co, weft_nn_mid_block(co, x, c->attention), 2 * c->z);
    weft_graph_pop(g);
    return weft_nn_conv_point(g, "quant_conv", x, 2 * c->z);
}

static weft_value decode(weft_nn_coder *co, const hunyuan_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    x = weft_nn_conv_point(g, "post_quant_conv", x, c->z);
    weft_graph_push(g, "decoder");
    x = weft_nn_mid_block(co, conv(co, "conv_in", x, c->width[c->levels - 1], 3), c->attention);
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t width = c->width[c->levels - 1 - i];
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, width, c->layers + 1);
        int64_t step[3];
        steps_of(c, i, step);
        if (step[0] > 1 || step[1] > 1)
            x = conv(co, "upsamplers.0.conv", repeat(g, x, step), width, 3);
        weft_graph_pop(g);
    }
    x = norm_out(co, x, c->out_channels);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hunyuan_vae *c = config;
    WEFT_TRY(weft_check_levels(locations, c->width, c->levels, 1, c->groups));
    if (c->time != 4 || c->levels < 3 || c->space & (c->space - 1) ||
        weft_nn_halvings(c->space) > c->levels)
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "temporal_compression_ratio", c->time),
                          "compression by %" PRId64 " in time and %" PRId64
                          " in space is not supported with %" PRId64 " levels. Time "
                          "is compressed by 4 with at least 3 levels, and space by a power of two.",
                          c->time, c->space, c->levels);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

/* The encoder outputs the mean and the log variance, which is clamped to [-30, 20]. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const hunyuan_vae *c = config;
    weft_nn_coder co = {.g = g, .groups = c->groups, .eps = eps, .conv = conv};
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    weft_ports_set_posterior(g, encode(&co, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const hunyuan_vae *c = config;
    grid->factor[0] = c->time;
    grid->factor[1] = grid->factor[2] = c->space;
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

static int64_t levels_of(const void *config)
{
    return ((const hunyuan_vae *)config)->levels;
}

static int64_t channels_of(const void *config)
{
    return ((const hunyuan_vae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(hunyuan_vae, member)
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "16", MAX_Z),
    {"block_out_channels", WEFT_FIELD_I64S, AT(width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(levels), .help = "width of each level"},
    {"down_block_types", WEFT_FIELD_EACH, .fallback = "\"HunyuanVideoDownBlock3D\"",
     .length = levels_of},
    {"up_block_types", WEFT_FIELD_EACH, .fallback = "\"HunyuanVideoUpBlock3D\"",
     .length = levels_of},
    WEFT_LEVEL_BLOCKS_FIELD(AT(layers), "2"),
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    WEFT_NORM_GROUPS_FIELD(AT(groups), "32"),
    WEFT_SCALE_FIELD(AT(latents.scale), "0.476986"),
    {"spatial_compression_ratio", WEFT_FIELD_I64, AT(space), "8", 1, 128,
     .help = "pixel rows and columns per latent"},
    {"temporal_compression_ratio", WEFT_FIELD_I64, AT(time), "4", 1, 8,
     .help = "frames per latent frame"},
    {"mid_block_add_attention", WEFT_FIELD_BOOL, AT(attention), "true",
     .help = "attention in the middle block"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
};

static const weft_named_config sizes[] = {
    {"hunyuan-video-vae", "{}"},
    {NULL, NULL},
};

/* Key mapping of ComfyUI's files, which have latent diffusion's names. The authors' own files have
 * diffusers' names. */
static const weft_rename_rule original[] = {
    WEFT_LATENT_DIFFUSION_NAMES,
    {"mid.attn_1.norm",      "mid_block.attentions.0.group_norm"},
    {"mid.attn_1.q",         "mid_block.attentions.0.to_q", 3},
    {"mid.attn_1.k",         "mid_block.attentions.0.to_k", 3},
    {"mid.attn_1.v",         "mid_block.attentions.0.to_v", 3},
    {"mid.attn_1.proj_out",  "mid_block.attentions.0.to_out.0", 3},
    {"norm_out",             "conv_norm_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "decoder.up_blocks.0.upsamplers.0.conv.conv.weight", NULL, 0},
    {"original", "decoder.up.1.upsample.conv.conv.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_hunyuan_vae = {
    .class_name = "AutoencoderKLHunyuanVideo", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"spatial_compression_ratio", "mid_block_add_attention"},
    .config_bytes = sizeof(hunyuan_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{16, 256, 256}, {12, 192, 192}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
