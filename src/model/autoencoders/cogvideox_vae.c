/* CogVideoX's autoencoder (diffusers' AutoencoderKLCogVideoX): 1 + 8n frames of 8x8 pixels to 1
 * + 2n latent frames.
 *
 *   encoder: conv_in -> levels x (residual blocks, halve) -> mid -> norm, silu, conv_out
 *   decoder: conv_in -> mid -> levels x (residual blocks, double) -> norm, silu, conv_out
 *            its norms are scaled and shifted by 1x1 convolutions of the latents
 *
 * Time. The reference processes a video in temporal chunks of 8 frames or 2 latent frames. The
 * first chunk also has the remaining frame. Convolutions read two preceding frames across chunks
 * (states ".cache.N"), with the first frame repeated before the video. Norms use only their
 * chunk. So a complete video is computed layer by layer with norms per chunk, and a stream uses
 * the same chunks. The first frame stays separate where frames are averaged in pairs or doubled.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/autoencoders/latent_diffusion.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/halo.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64, TIME_LEVELS = 2, TIME = 4, PIECE = 2 };
static const double eps_of_latents = 1e-6; /* eps of latent-scaled norms and of the last norm */

typedef struct cogvideox_vae {
    int64_t in_channels, out_channels;
    int64_t levels, width[MAX_LEVELS];
    int64_t layers, z, groups;
    double eps;
    weft_statistics latents;
    bool quant, post_quant, inverted;
} cogvideox_vae;
_Static_assert(sizeof(cogvideox_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* Encoder or decoder while its graph is built. */
typedef struct half {
    weft_stream stream;
    int caches;
    int64_t latent_frames; /* latent frames of this graph */
    weft_value latents;    /* decoder: latents that scale the norms; encoder: WEFT_NONE */
} half;

/* ---- layers --------------------------------------------------------------------------------- */

/* Prepends two frames to x: the last two of the stream, or the first frame twice. */
static weft_value prepend_halo(weft_nn_coder *co, weft_value x)
{
    half *h = co->user;
    return weft_halo_join(co->g, h->stream, &h->caches, &x, 2, true)
               ? x
               : weft_nn_pad_edge(co->g, x, 1, 2, 0);
}

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    weft_graph *g = co->g;
    const int64_t p = k / 2;
    const weft_conv_shape shape = {
        .kernel = {k, k, k}, .stride = {1, 1, 1}, .before = {0, p, p}, .after = {0, p, p}};
    if (k == 1)
        return weft_nn_conv(g, name, x, out, shape, false);
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", prepend_halo(co, x), out, shape, false);
    weft_graph_pop(g);
    return x;
}

/* Normalises each temporal chunk separately. */
static weft_value norm_pieces(weft_nn_coder *co, weft_value x, double eps)
{
    weft_graph *g = co->g;
    const half *h = co->user;
    const int64_t t = weft_dim(g, x, 1), n = h->latent_frames, lone = h->stream != WEFT_STREAM_NEXT;
    const int64_t times = n > lone ? (t - lone) / (n - lone) : 1; /* frames per latent frame */
    int64_t begin = 0, end = n < PIECE ? t : lone + PIECE * times;
    weft_value out = WEFT_NONE;
    for (; begin < t; begin = end, end += PIECE * times) {
        const weft_value piece =
            weft_nn_group_plain(g, begin || end < t ? weft_slice(g, x, 1, begin, end - begin) : x,
                                co->groups, eps, false);
        out = begin ? weft_concat(g, (weft_value[]){out, piece}, 2, 1) : piece;
    }
    return out;
}

/* Repeats latents (B,t,y,x,C) to the frames and pixels of `like`. The first frame of a video stays
 * single. */
static weft_value stretch(weft_nn_coder *co, weft_value x, weft_value like)
{
    weft_graph *g = co->g;
    const int64_t t = weft_dim(g, x, 1),
                  lone = ((const half *)co->user)->stream != WEFT_STREAM_NEXT;
    const int64_t in_space[3] = {1, weft_dim(g, like, 2) / weft_dim(g, x, 2),
                                 weft_dim(g, like, 3) / weft_dim(g, x, 3)};
    if (t == lone)
        return weft_nn_repeat(g, x, in_space);
    const int64_t times[3] = {(weft_dim(g, like, 1) - lone) / (t - lone), in_space[1], in_space[2]};
    if (!lone)
        return weft_nn_repeat(g, x, times);
    const weft_value parts[2] = {
        weft_nn_repeat(g, weft_slice(g, x, 1, 0, 1), in_space),
        weft_nn_repeat(g, weft_slice(g, x, 1, 1, t - 1), times),
    };
    return weft_concat(g, parts, 2, 1);
}

static weft_value norm(weft_nn_coder *co, const char *name, weft_value x)
{
    weft_graph *g = co->g;
    const half *h = co->user;
    const int64_t c = weft_dim(g, x, 4);
    const weft_conv_shape one = {.kernel = {1, 1, 1}, .stride = {1, 1, 1}};
    if (!weft_value_ok(h->latents)) {
        const weft_nn_layer layer = weft_nn_norm_of(g, name, c, true);
        return weft_nn_scale_channels(g, &layer, norm_pieces(co, x, co->eps));
    }
    weft_graph_push(g, "%s", name);
    const weft_nn_layer layer = weft_nn_norm_of(g, "norm_layer", c, true);
    /* a 1x1 convolution gives the same result before and after the repetition */
    const weft_value scale = weft_nn_conv(g, "conv_y.conv", h->latents, c, one, false),
                     shift = weft_nn_conv(g, "conv_b.conv", h->latents, c, one, false);
    const weft_value y = weft_nn_scale_channels(g, &layer, norm_pieces(co, x, eps_of_latents));
    weft_graph_pop(g);
    return weft_add(g, weft_mul(g, y, stretch(co, scale, x)), stretch(co, shift, x));
}

static weft_value mid_block(weft_nn_coder *co, weft_value x)
{
    weft_graph_push(co->g, "mid_block");
    x = weft_nn_res_blocks(co, x, weft_dim(co->g, x, 4), 2);
    weft_graph_pop(co->g);
    return x;
}

/* Averages pairs of frames. The first frame of a video stays unchanged. */
static weft_value halve_frames(weft_nn_coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    const int64_t lone = ((const half *)co->user)->stream != WEFT_STREAM_NEXT;
    if (t == lone)
        return x;
    weft_value pairs = lone ? weft_slice(g, x, 1, 1, t - 1) : x;
    pairs = weft_reshape(g, pairs, WEFT_SHAPE(b, (t - lone) / 2, 2, y * w * c));
    pairs = weft_affine(g, weft_sum(g, pairs, 1 << 2), 0.5, 0);
    pairs = weft_reshape(g, pairs, WEFT_SHAPE(b, (t - lone) / 2, y, w, c));
    return lone ? weft_concat(g, (weft_value[]){weft_slice(g, x, 1, 0, 1), pairs}, 2, 1) : pairs;
}

/* Doubles rows and columns. With `frames`, also doubles frames except the first of a video. */
static weft_value twice(weft_nn_coder *co, weft_value x, bool frames)
{
    weft_graph *g = co->g;
    const int64_t t = weft_dim(g, x, 1),
                  lone = ((const half *)co->user)->stream != WEFT_STREAM_NEXT;
    const int64_t pixels[3] = {1, 2, 2}, all[3] = {2, 2, 2};
    if (!frames || t == lone)
        return weft_nn_repeat(g, x, pixels);
    if (!lone)
        return weft_nn_repeat(g, x, all);
    const weft_value parts[2] = {
        weft_nn_repeat(g, weft_slice(g, x, 1, 0, 1), pixels),
        weft_nn_repeat(g, weft_slice(g, x, 1, 1, t - 1), all),
    };
    return weft_concat(g, parts, 2, 1);
}

/* ---- the two halves ------------------------------------------------------------------------- */

/* Returns true if `frames` frames (`one` per latent frame) are complete temporal chunks. */
static bool fits(weft_graph *g, const half *h, int64_t frames, int64_t one)
{
    const int64_t lone = h->stream != WEFT_STREAM_NEXT;
    if (frames >= lone && (frames - lone) % (PIECE * one) == 0 && frames > 0)
        return true;
    weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "the VAE takes %s%" PRId64 " n frames, not %" PRId64,
                    lone ? "1 + " : "", PIECE * one, frames);
    return false;
}

static weft_value encode(weft_nn_coder *co, const cogvideox_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    half *h = co->user;
    const weft_conv_shape stride = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .after = {0, 1, 1}};
    const int64_t frames = weft_dim(g, x, 1), lone = h->stream != WEFT_STREAM_NEXT;
    if (weft_value_ok(x) && !fits(g, h, frames, TIME))
        return WEFT_NONE;
    h->latent_frames = lone + (frames - lone) / TIME;
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", x, c->width[0], 3);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, c->width[i], c->layers);
        if (i < c->levels - 1)
            x = weft_nn_conv(g, "downsamplers.0.conv", i < TIME_LEVELS ? halve_frames(co, x) : x,
                             c->width[i], stride, true);
        weft_graph_pop(g);
    }
    x = mid_block(co, x);
    co->eps = eps_of_latents;
    x = conv(co, "conv_out", weft_nn_norm_silu(co, "norm_out", x), 2 * c->z, 3);
    weft_graph_pop(g);
    return c->quant ? conv(co, "quant_conv", x, 2 * c->z, 1) : x;
}

static weft_value decode(weft_nn_coder *co, const cogvideox_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    half *h = co->user;
    h->latent_frames = weft_dim(g, x, 1);
    if (weft_value_ok(x) && !fits(g, h, h->latent_frames, 1))
        return WEFT_NONE;
    if (c->post_quant)
        x = conv(co, "post_quant_conv", x, c->z, 1);
    h->latents = x;
    weft_graph_push(g, "decoder");
    x = mid_block(co, conv(co, "conv_in", x, c->width[c->levels - 1], 3));
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t width = c->width[c->levels - 1 - i];
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, width, c->layers + 1);
        if (i < c->levels - 1)
            x = weft_nn_conv_2d(g, "upsamplers.0.conv", twice(co, x, i < TIME_LEVELS), width, 3);
        weft_graph_pop(g);
    }
    x = conv(co, "conv_out", weft_nn_norm_silu(co, "norm_out", x), c->out_channels, 3);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const cogvideox_vae *c = config;
    return weft_check_levels(locations, c->width, c->levels, TIME_LEVELS + 1, c->groups);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const cogvideox_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

/* The encoder outputs the mean and the log variance, which is clamped to [-30, 20]. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const cogvideox_vae *c = config;
    half h = {.stream = call.stream, .latents = WEFT_NONE};
    weft_nn_coder co = {
        .g = g, .groups = c->groups, .eps = c->eps, .conv = conv, .norm = norm, .user = &h};
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    weft_ports_set_posterior(g, encode(&co, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const cogvideox_vae *c = config;
    grid->factor[0] = TIME;
    grid->causal = true;
    grid->piece = PIECE;
    grid->group = PIECE;
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->levels - 1);
    grid->channels = grid->out_channels = c->z;
    grid->inverted = c->inverted;
}

static int64_t levels_of(const void *config)
{
    return ((const cogvideox_vae *)config)->levels;
}

static int64_t channels_of(const void *config)
{
    return ((const cogvideox_vae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(cogvideox_vae, member)
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    {"block_out_channels", WEFT_FIELD_I64S, AT(width), "[128, 256, 256, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(levels),
     .help = "width of each level; all levels but the last halve rows and columns"},
    {"down_block_types", WEFT_FIELD_EACH, .fallback = "\"CogVideoXDownBlock3D\"",
     .length = levels_of},
    {"up_block_types", WEFT_FIELD_EACH, .fallback = "\"CogVideoXUpBlock3D\"",
     .length = levels_of},
    WEFT_LEVEL_BLOCKS_FIELD(AT(layers), "3"),
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "16", MAX_Z),
    WEFT_NORM_GROUPS_FIELD(AT(groups), "32"),
    {"norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1, .help = "epsilon of the encoder's norms"},
    {"temporal_compression_ratio", WEFT_FIELD_FIXED, .fallback = "4"},
    {"sample_height", WEFT_FIELD_IGNORED, .fallback = "480"},
    {"sample_width", WEFT_FIELD_IGNORED, .fallback = "720"},
    WEFT_SCALE_FIELD(AT(latents.scale), "1.15258426"),
    {"shift_factor", WEFT_FIELD_F64, AT(latents.shift), "null",
     .help = "value subtracted from latents before scaling"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
    {"force_upcast", WEFT_FIELD_IGNORED, .fallback = "true"},
    {"use_quant_conv", WEFT_FIELD_BOOL, AT(quant), "false",
     .help = "a 1x1 convolution after the encoder"},
    {"use_post_quant_conv", WEFT_FIELD_BOOL, AT(post_quant), "false",
     .help = "a 1x1 convolution before the decoder"},
    {"invert_scale_latents", WEFT_FIELD_BOOL, AT(inverted), "false",
     .help = "divide conditioning images by the scale (1.5, image to video)"},
};

static const weft_named_config sizes[] = {
    {"cogvideox-2b-vae", "{}"},
    {"cogvideox-5b-vae", "{\"scaling_factor\": 0.7}"},
    {NULL, NULL},
};

/* Key mapping of SwissArmyTransformer's files: latent diffusion's names, with other norms. */
static const weft_rename_rule original[] = {
    WEFT_LATENT_DIFFUSION_NAMES,
    {"loss",                 ""}, /* training loss */
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "decoder.up_blocks.0.resnets.0.norm1.conv_y.conv.weight", NULL, 0},
    {"original", "decoder.up.0.block.0.norm1.conv_y.conv.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_cogvideox_vae = {
    .class_name = "AutoencoderKLCogVideoX", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"sample_height", "invert_scale_latents"},
    .config_bytes = sizeof(cogvideox_vae), .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 240, 360}, {0, 200, 288}, .parts = true},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
