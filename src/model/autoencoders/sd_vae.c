/* Stable Diffusion's image autoencoder (diffusers' AutoencoderKL; SDXL, Latte, Hunyuan-DiT), and
 * Flux 2's (AutoencoderKLFlux2). Latents of Flux 2 here are 2x2 of its network's, channels slowest,
 * with statistics from a batch norm. The frames of a video are separate images.
 *
 *   encoder: conv_in -> levels x (residual blocks, halve) -> mid (block, attention, block)
 *            -> norm, silu, conv_out -> quant_conv
 *   decoder: post_quant_conv -> conv_in -> mid -> levels x (residual blocks, double)
 *            -> norm, silu, conv_out
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "model/autoencoders/sd_vae.h"

#include "graph/builder_helpers.h"
#include "model/autoencoders/latent_diffusion.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

enum { MAX_Z = 64 };
static const double eps = 1e-6;

typedef struct sd_vae {
    weft_sd_networks net;
    weft_statistics latents;
} sd_vae;
enum { PART = 2 }; /* side of the network's latents in one of Flux 2 */
_Static_assert(sizeof(sd_vae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    return weft_nn_conv_2d(co->g, name, x, out, k);
}

static weft_value norm_out(weft_nn_coder *co, weft_value x, int64_t out)
{
    return conv(co, "conv_out", weft_nn_norm_silu(co, "conv_norm_out", x), out, 3);
}

/* Every frame is a separate temporal chunk. */
static weft_nn_coder coder_of(weft_graph *g, const weft_sd_networks *c)
{
    return (weft_nn_coder){
        .g = g, .groups = c->groups, .eps = eps, .each_frame = true, .conv = conv};
}

weft_value weft_sd_encode(weft_graph *g, const weft_sd_networks *c, weft_value x)
{
    weft_nn_coder coder = coder_of(g, c), *co = &coder;
    const weft_conv_shape half = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .after = {0, 1, 1}};
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", x, c->width[0], 3);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, c->width[i], c->layers);
        if (i < c->levels - 1)
            x = weft_nn_conv(g, "downsamplers.0.conv", x, c->width[i], half, true);
        weft_graph_pop(g);
    }
    x = norm_out(co, weft_nn_mid_block(co, x, c->attention), 2 * c->z);
    weft_graph_pop(g);
    return c->quant ? conv(co, "quant_conv", x, 2 * c->z, 1) : x;
}

weft_value weft_sd_decode(weft_graph *g, const weft_sd_networks *c, weft_value x)
{
    weft_nn_coder coder = coder_of(g, c), *co = &coder;
    if (c->post_quant)
        x = conv(co, "post_quant_conv", x, c->z, 1);
    weft_graph_push(g, "decoder");
    x = weft_nn_mid_block(co, conv(co, "conv_in", x, c->width[c->levels - 1], 3), c->attention);
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t width = c->width[c->levels - 1 - i];
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, width, c->layers + 1);
        if (i < c->levels - 1)
            x = conv(co, "upsamplers.0.conv", weft_nn_repeat(g, x, (int64_t[]){1, 2, 2}), width, 3);
        weft_graph_pop(g);
    }
    x = norm_out(co, x, c->out_channels);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const sd_vae *c = config;
    return weft_check_levels(locations, c->net.width, c->net.levels, 1, c->net.groups);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const sd_vae *c = config;
    return weft_autoencoder_shape(s, port, c->net.in_channels, c->net.z);
}

/* The encoder outputs the mean and the log variance, which is clamped to [-30, 20]. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const sd_vae *c = config;
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] =
            weft_sd_decode(g, &c->net, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    weft_ports_set_posterior(g, weft_sd_encode(g, &c->net, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void build_flux2(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_LATENTS] = weft_nn_pixel_shuffle(g, ports->at[WEFT_PORT_LATENTS], PART);
    build(g, config, call, ports);
    if (call.kind == WEFT_CALL_DECODE)
        return;
    ports->at[WEFT_PORT_MEAN] = weft_nn_pixel_unshuffle(g, ports->at[WEFT_PORT_MEAN], PART);
    ports->at[WEFT_PORT_LOGVAR] = weft_nn_pixel_unshuffle(g, ports->at[WEFT_PORT_LOGVAR], PART);
}

static weft_shape shape_flux2(const void *config, const weft_model_size *s, weft_port port)
{
    const sd_vae *c = config;
    return weft_autoencoder_shape(s, port, c->net.in_channels, c->net.z * PART * PART);
}

static void grid(const void *config, weft_grid *grid)
{
    const sd_vae *c = config;
    grid->factor[0] = grid->piece = 1;
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->net.levels - 1);
    grid->channels = grid->out_channels = c->net.z;
}

static void grid_flux2(const void *config, weft_grid *of)
{
    grid(config, of);
    of->factor[1] = of->factor[2] *= PART;
    of->channels = of->out_channels *= PART * PART;
}

static int64_t levels_of(const void *config)
{
    return ((const sd_vae *)config)->net.levels;
}

static int64_t channels_of(const void *config)
{
    return ((const sd_vae *)config)->net.z;
}

static int64_t channels_of_flux2(const void *config)
{
    return ((const sd_vae *)config)->net.z * PART * PART;
}

static int64_t two_of(const void *config)
{
    (void)config;
    return 2;
}

/* clang-format off */
#define AT(member) offsetof(sd_vae, member)
/* Fields of both classes. */
#define BLOCK_TYPES_FIELDS                                                                  \
    {"down_block_types", WEFT_FIELD_EACH, .fallback = "\"DownEncoderBlock2D\"",             \
     .length = levels_of},                                                                  \
    {"up_block_types", WEFT_FIELD_EACH, .fallback = "\"UpDecoderBlock2D\"",                 \
     .length = levels_of}
#define LAST_FIELDS                                                                         \
    {"force_upcast", WEFT_FIELD_IGNORED, .fallback = "true"},                               \
    {"use_quant_conv", WEFT_FIELD_BOOL, AT(net.quant), "true",                                  \
     .help = "a 1x1 convolution after the encoder"},                                        \
    {"use_post_quant_conv", WEFT_FIELD_BOOL, AT(net.post_quant), "true",                        \
     .help = "a 1x1 convolution before the decoder"},                                       \
    {"mid_block_add_attention", WEFT_FIELD_BOOL, AT(net.attention), "true",                     \
     .help = "attention in the middle block"}
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(net.in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(net.out_channels), "3"),
    {"block_out_channels", WEFT_FIELD_I64S, AT(net.width), "[64]", 1, 65536,
     .capacity = WEFT_SD_LEVELS, .count = AT(net.levels),
     .help = "width of each level; all levels but the last halve rows and columns"},
    BLOCK_TYPES_FIELDS,
    WEFT_LEVEL_BLOCKS_FIELD(AT(net.layers), "1"),
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    WEFT_LATENT_CHANNELS_FIELD(AT(net.z), "4", MAX_Z),
    WEFT_NORM_GROUPS_FIELD(AT(net.groups), "32"),
    {"sample_size", WEFT_FIELD_IGNORED, .fallback = "32"},
    WEFT_SCALE_FIELD(AT(latents.scale), "0.18215"),
    {"shift_factor", WEFT_FIELD_F64, AT(latents.shift), "null",
     .help = "value subtracted from latents before scaling"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
    LAST_FIELDS,
};

static const weft_field flux2_fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(net.in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(net.out_channels), "3"),
    {"block_out_channels", WEFT_FIELD_I64S, AT(net.width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = WEFT_SD_LEVELS, .count = AT(net.levels),
     .help = "width of each level; all levels but the last halve rows and columns"},
    {"decoder_block_out_channels", WEFT_FIELD_FIXED, .fallback = "null"},
    BLOCK_TYPES_FIELDS,
    WEFT_LEVEL_BLOCKS_FIELD(AT(net.layers), "2"),
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    WEFT_LATENT_CHANNELS_FIELD(AT(net.z), "32", MAX_Z),
    WEFT_NORM_GROUPS_FIELD(AT(net.groups), "32"),
    {"sample_size", WEFT_FIELD_IGNORED, .fallback = "1024"},
    {"patch_size", WEFT_FIELD_EACH, .fallback = "2", .length = two_of},
    {"batch_norm_eps", WEFT_FIELD_F64, AT(latents.variance_epsilon), "0.0001", 0, 1,
     .help = "value added to the variances of latents in the weights"},
    {"batch_norm_momentum", WEFT_FIELD_IGNORED, .fallback = "0.1"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of_flux2),
    LAST_FIELDS,
};

static const weft_named_config flux2_sizes[] = {
    {"flux2-vae", "{}"},
    {NULL, NULL},
}, sizes[] = {
    {"sd-vae", "{\"block_out_channels\": [128, 256, 512, 512], \"layers_per_block\": 2}"},
    {"sdxl-vae", "{\"block_out_channels\": [128, 256, 512, 512], \"layers_per_block\": 2, "
                 "\"scaling_factor\": 0.13025}"},
    {"flux-vae", "{\"block_out_channels\": [128, 256, 512, 512], \"layers_per_block\": 2, "
                 "\"latent_channels\": 16, \"scaling_factor\": 0.3611, \"shift_factor\": 0.1159, "
                 "\"use_quant_conv\": false, \"use_post_quant_conv\": false}"},
    {NULL, NULL},
};

/* Key mapping of latent diffusion's own files, for four levels, which the decoder counts from the
 * last. Attention matrices are stored as 1 x 1 convolutions. */
#define ATTENTION_AND_NORM_NAMES \
    {"mid.attn_1.norm",      "mid_block.attentions.0.group_norm"}, \
    {"mid.attn_1.q",         "mid_block.attentions.0.to_q", 2},    \
    {"mid.attn_1.k",         "mid_block.attentions.0.to_k", 2},    \
    {"mid.attn_1.v",         "mid_block.attentions.0.to_v", 2},    \
    {"mid.attn_1.proj_out",  "mid_block.attentions.0.to_out.0", 2}, \
    {"norm_out",             "conv_norm_out"}
static const weft_rename_rule original[] = {
    WEFT_LATENT_DIFFUSION_NAMES,
    ATTENTION_AND_NORM_NAMES,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.0.resnets.0.conv1.weight", NULL, 0},
    {"original", "decoder.up.0.block.0.conv1.weight", original, sizeof original / sizeof *original},
};

#define BATCH_NORM_NAMES \
    {"bn.running_mean",        "latents_mean"},     \
    {"bn.running_var",         "latents_variance"}, \
    {"bn.num_batches_tracked", "latents_batches"}
static const weft_rename_rule flux2_names[] = {
    BATCH_NORM_NAMES,
};
/* Key mapping of Black Forest Labs' own file */
static const weft_rename_rule flux2_original[] = {
    BATCH_NORM_NAMES,
    {"encoder.quant_conv",      "quant_conv"},
    {"decoder.post_quant_conv", "post_quant_conv"},
    WEFT_LATENT_DIFFUSION_NAMES,
    ATTENTION_AND_NORM_NAMES,
};
static const weft_key_mapping flux2_mappings[] = {
    {"original", "decoder.up.0.block.0.conv1.weight", flux2_original,
     sizeof flux2_original / sizeof *flux2_original, .also = "bn.running_mean"},
    {"diffusers", "bn.running_mean", flux2_names, sizeof flux2_names / sizeof *flux2_names},
};
static const weft_port_row flux2_ports[WEFT_AUTOENCODER_PORTS] = {
    {WEFT_PORT_VIDEO,          false, "sample"},
    {WEFT_PORT_NOISE,          false, "eps",    .form = WEFT_VIDEO_PARTS},
    {WEFT_PORT_MEAN,           true,  "mean",   .form = WEFT_VIDEO_PARTS},
    {WEFT_PORT_LOGVAR,         true,  "logvar", .form = WEFT_VIDEO_PARTS},
    {WEFT_PORT_RECONSTRUCTION, true,  "sample"},
};

const weft_family weft_family_flux2_vae = {
    .class_name = "AutoencoderKLFlux2", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"batch_norm_eps", "batch_norm_momentum"},
    .config_bytes = sizeof(sd_vae), .field = flux2_fields,
    .fields = sizeof flux2_fields / sizeof *flux2_fields,
    .check = check, .sizes = flux2_sizes,
    .port = flux2_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape_flux2,
    .build = build_flux2, .grid = grid_flux2, .statistics = AT(latents),
    .tile = {{0, 1024, 1024}, {0, 768, 768}, .parts = true},
    .mapping = flux2_mappings, .mappings = sizeof flux2_mappings / sizeof *flux2_mappings,
};

const weft_family weft_family_sd_vae = {
    .class_name = "AutoencoderKL", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"use_post_quant_conv", "mid_block_add_attention"},
    .config_bytes = sizeof(sd_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 512, 512}, {0, 384, 384}, .parts = true},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
