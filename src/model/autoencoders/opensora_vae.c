/* The autoencoder of Open-Sora 1.2 (its VideoAutoencoderPipeline): Stable Diffusion's image
 * autoencoder for each frame, and a causal autoencoder of frames (VAE_Temporal_SD) for its latents.
 *
 *     video ─ images ─ x 0.18215 ─ zeros before frame 0 ─ frames / 4 ─ latents
 *     latents ─ frames x 4 ─ first 3 frames dropped ─ / 0.18215 ─ images ─ video
 *
 *     frames, encoder: conv_in -> levels x (residual blocks, halve) -> residual blocks
 *                      -> norm, silu, conv2 -> quant_conv
 *     frames, decoder: post_quant_conv -> conv1 -> residual blocks
 *                      -> levels x (residual blocks, double) -> norm, silu, conv_out
 *
 * A video has clips of 17 frames (5 latents), which are videos of their own for the autoencoder of
 * frames: its norms are over all frames of a clip, and its convolutions read zeros before the first
 * one. A shorter video is one clip. The encoder takes the mean of the images' latents, where the
 * authors draw a sample.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels. */
#include "graph/builder_helpers.h"
#include "model/autoencoders/sd_vae.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/transformers_fields.h"
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64 };
static const double eps = 1e-5;
static const double images_scale = 0.18215; /* of the images' latents, not a field */

typedef struct opensora_vae {
    weft_sd_networks images;
    int64_t width, blocks, levels, times[MAX_LEVELS]; /* times: width of a level over `width` */
    bool halves[MAX_LEVELS];                          /* levels - 1 items */
    int64_t groups;
    int64_t clip; /* frames of a clip; 0: the complete video */
    weft_statistics latents;
} opensora_vae;
_Static_assert(sizeof(opensora_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* Frames per latent. */
static int64_t time_of(const opensora_vae *c)
{
    int64_t time = 1;
    for (int64_t i = 0; i + 1 < c->levels; i++)
        time *= c->halves[i] ? 2 : 1;
    return time;
}

/* ---- layers of the autoencoder of frames ---------------------------------------------------- */

typedef struct coder {
    weft_graph *g;
    const opensora_vae *c;
} coder;

/* "<name>.conv" k x k x k, with zeros before the first frame and around the image. `step`: every
 * step-th frame, the last one included. */
static weft_value conv(const coder *co, const char *name, weft_value x, int64_t out, int64_t k,
                       int64_t step, bool bias)
{
    weft_graph *g = co->g;
    const weft_conv_shape shape = {.kernel = {k, k, k},
                                   .stride = {step, 1, 1},
                                   .before = {k - step, k / 2, k / 2},
                                   .after = {0, k / 2, k / 2}};
    const int64_t in = weft_dim(g, x, 4);
    weft_graph_push(g, "%s", name);
    if (bias) {
        x = weft_nn_conv(g, "conv", x, out, shape, false);
    } else {
        weft_graph_push(g, "conv");
        const weft_init init = {.kind = WEFT_INIT_UNIFORM,
                                .value = 1 / sqrt((double)(in * k * k * k))};
        const weft_nn_layer layer = {
            .weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, k, k, k), init),
            .bias = WEFT_NONE};
        x = weft_nn_conv_by(g, &layer, x, &shape);
        weft_graph_pop(g);
    }
    weft_graph_pop(g);
    return x;
}

static weft_value norm_silu(const coder *co, const char *name, weft_value x)
{
    return weft_unary(co->g, WEFT_OP_SILU, weft_nn_group_norm(co->g, name, x, co->c->groups, eps));
}

/* `blocks` residual blocks "0", "1", ... of the scope `name`. */
static weft_value residuals(const coder *co, const char *name, weft_value x, int64_t out)
{
    weft_graph *g = co->g;
    for (int64_t i = 0; i < co->c->blocks; i++) {
        weft_graph_push(g, "%s.%d", name, (int)i);
        weft_value h = conv(co, "conv1", norm_silu(co, "norm1", x), out, 3, 1, false);
        h = conv(co, "conv2", norm_silu(co, "norm2", h), out, 3, 1, false);
        if (weft_dim(g, x, 4) != out)
            x = conv(co, "conv3", x, out, 1, 1, false);
        weft_graph_pop(g);
        x = weft_add(g, h, x);
    }
    return x;
}

static weft_value level(const coder *co, int64_t i, weft_value x)
{
    char name[32];
    snprintf(name, sizeof name, "block_res_blocks.%d", (int)i);
    return residuals(co, name, x, co->c->width * co->c->times[i]);
}

/* Convolution "conv_blocks.<i>" between the levels i and i + 1. */
static weft_value between(const coder *co, int64_t i, weft_value x, int64_t out, int64_t step)
{
    char name[32];
    snprintf(name, sizeof name, "conv_blocks.%d", (int)i);
    return conv(co, name, x, out, 3, step, true);
}

/* The channels (C,2) of each frame become two frames. */
static weft_value double_frames(weft_graph *g, weft_value x)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4) / 2;
    x = weft_reshape(g, x, WEFT_SHAPE(b * t, y * w, c, 2));
    x = weft_permute(g, x, (int[]){0, 3, 1, 2});
    return weft_reshape(g, x, WEFT_SHAPE(b, 2 * t, y, w, c));
}

/* ---- the autoencoder of frames -------------------------------------------------------------- */

/* (B,n T,Y,X,C) with clips of T frames to (B n,T,Y,X,C), and back if `batch`, B, is not 0. */
static weft_value fold_clips(weft_graph *g, weft_value x, int64_t frames, int64_t batch)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    return weft_reshape(g, x,
                        batch ? WEFT_SHAPE(batch, b * t / batch, y, w, c)
                              : WEFT_SHAPE(b * t / frames, frames, y, w, c));
}

/* Moments of the clips (B,T,Y,X,Z). Zeros before the first frame complete the first latent. */
static weft_value encode_frames(const coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const opensora_vae *c = co->c;
    const int64_t time = time_of(c), last = c->levels - 1;
    weft_graph_push(g, "temporal_vae");
    x = weft_pad(g, x, 1, time - 1, 0);
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", x, c->width, 3, 1, false);
    for (int64_t i = 0; i <= last; i++) {
        x = level(co, i, x);
        if (i < last && c->halves[i])
            x = between(co, i, x, c->width * c->times[i], 2);
    }
    x = residuals(co, "res_blocks", x, c->width * c->times[last]);
    x = conv(co, "conv2", norm_silu(co, "norm1", x), 2 * c->images.z, 1, 1, true);
    weft_graph_pop(g);
    x = conv(co, "quant_conv", x, 2 * c->images.z, 1, 1, true);
    weft_graph_pop(g);
    return x;
}

static weft_value decode_frames(const coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const opensora_vae *c = co->c;
    const int64_t time = time_of(c), last = c->levels - 1;
    weft_graph_push(g, "temporal_vae");
    x = conv(co, "post_quant_conv", x, c->images.z, 1, 1, true);
    weft_graph_push(g, "decoder");
    x = conv(co, "conv1", x, c->width * c->times[last], 3, 1, true);
    x = residuals(co, "res_blocks", x, c->width * c->times[last]);
    for (int64_t i = last; i >= 0; i--) {
        x = level(co, i, x);
        if (i && c->halves[i - 1])
            x = double_frames(g, between(co, i - 1, x, 2 * c->width * c->times[i], 1));
    }
    x = conv(co, "conv_out", norm_silu(co, "norm1", x), c->images.z, 3, 1, true);
    weft_graph_pop(g);
    weft_graph_pop(g);
    return weft_slice(g, x, 1, time - 1, weft_dim(g, x, 1) - (time - 1));
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const opensora_vae *c = config;
    WEFT_TRY(weft_check_levels(locations, c->images.width, c->images.levels, 1, c->images.groups));
    if (c->levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "channel_multipliers", c->levels),
                          "a level is needed");
    if (c->width % c->groups)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "filters", c->width),
                          "%" PRId64 " is not a multiple of \"num_groups\" %" PRId64, c->width,
                          c->groups);
    if (c->clip && (c->clip - 1) % time_of(c))
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "micro_frame_size", c->clip),
                          "%" PRId64 " is not 1 + %" PRId64 " n frames", c->clip, time_of(c));
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const opensora_vae *c = config;
    return weft_autoencoder_shape(s, port, c->images.in_channels, c->images.z);
}

/* Latent frames of a clip. 0: the complete video. */
static int64_t clip_of(const opensora_vae *c)
{
    return c->clip ? 1 + (c->clip - 1) / time_of(c) : 0;
}

/* Sets *clip to the frames, or latent frames, of a clip of `x`. Fails if a video of several clips
 * has an incomplete one, or frames that are not 1 + n latents. */
static bool cut(weft_graph *g, const opensora_vae *c, weft_value x, bool decoder, int64_t *clip)
{
    const int64_t whole = decoder ? clip_of(c) : c->clip;
    if (!weft_value_ok(x))
        return false;
    const int64_t frames = weft_dim(g, x, 1);
    *clip = whole && frames > whole ? whole : frames;
    if (frames % *clip == 0 && (decoder || (*clip - 1) % time_of(c) == 0))
        return true;
    weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                    "%" PRId64 " frames are neither 1 + %" PRId64 " n nor whole clips of %" PRId64,
                    frames, decoder ? 1 : time_of(c), *clip);
    return false;
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const opensora_vae *c = config;
    const bool decoder = call.kind == WEFT_CALL_DECODE;
    const coder co = {g, c};
    weft_value x = ports->at[decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO];
    int64_t clip;
    if (!cut(g, c, x, decoder, &clip))
        return;
    const int64_t batch = weft_dim(g, x, 0);
    weft_graph_push(g, "spatial_vae.module");
    if (!decoder) { /* the images' log variance is not used */
        x = weft_slice(g, weft_sd_encode(g, &c->images, x), 4, 0, c->images.z);
        x = fold_clips(g, weft_affine(g, x, images_scale, 0), clip, 0);
    }
    weft_graph_pop(g);
    if (!decoder) {
        weft_ports_set_posterior(g, fold_clips(g, encode_frames(&co, x), 0, batch), ports);
        return;
    }
    x = fold_clips(g, decode_frames(&co, fold_clips(g, x, clip, 0)), 0, batch);
    weft_graph_push(g, "spatial_vae.module");
    ports->at[WEFT_PORT_RECONSTRUCTION] =
        weft_sd_decode(g, &c->images, weft_affine(g, x, 1 / images_scale, 0));
    weft_graph_pop(g);
}

static void grid(const void *config, weft_grid *grid)
{
    const opensora_vae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = (int64_t)1 << (c->images.levels - 1);
    grid->causal = true;
    grid->clip = grid->piece = clip_of(c);
    grid->channels = grid->out_channels = c->images.z;
}

static int64_t channels_of(const void *config)
{
    return ((const opensora_vae *)config)->images.z;
}

static int64_t steps_of(const void *config)
{
    return ((const opensora_vae *)config)->levels - 1;
}

/* clang-format off */
#define AT(member) offsetof(opensora_vae, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_I64, AT(images.in_channels), "3", 1, 64,
     .also = "vae_2d.in_channels", .help = "channels of the video"},
    {"out_channels", WEFT_FIELD_I64, AT(images.out_channels), "3", 1, 64,
     .also = "vae_2d.out_channels", .help = "channels of the video"},
    {"block_out_channels", WEFT_FIELD_I64S, AT(images.width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = WEFT_SD_LEVELS, .count = AT(images.levels), .also = "vae_2d.block_out_channels",
     .help = "images: width of each level; all levels but the last halve rows and columns"},
    {"layers_per_block", WEFT_FIELD_I64, AT(images.layers), "2", 1, 64,
     .also = "vae_2d.layers_per_block", .help = "images: residual blocks per level"},
    {"latent_channels", WEFT_FIELD_I64, AT(images.z), "4", 1, MAX_Z,
     .also = "vae_2d.latent_channels|vae_temporal.embed_dim", .help = "latent channels"},
    {"norm_num_groups", WEFT_FIELD_I64, AT(images.groups), "32", 1, 65536,
     .also = "vae_2d.norm_num_groups", .help = "images: groups of the group norms"},
    {"use_quant_conv", WEFT_FIELD_BOOL, AT(images.quant), "true",
     .also = "vae_2d.use_quant_conv", .help = "images: a 1x1 convolution after the encoder"},
    {"use_post_quant_conv", WEFT_FIELD_BOOL, AT(images.post_quant), "true",
     .also = "vae_2d.use_post_quant_conv", .help = "images: a 1x1 convolution before the decoder"},
    {"mid_block_add_attention", WEFT_FIELD_BOOL, AT(images.attention), "true",
     .also = "vae_2d.mid_block_add_attention", .help = "images: attention in the middle block"},
    {"filters", WEFT_FIELD_I64, AT(width), "128", 1, 65536,
     .also = "vae_temporal.filters", .help = "frames: width of the first level"},
    {"num_res_blocks", WEFT_FIELD_I64, AT(blocks), "4", 1, 64,
     .also = "vae_temporal.num_res_blocks", .help = "frames: residual blocks per level"},
    {"channel_multipliers", WEFT_FIELD_I64S, AT(times), "[1, 2, 2, 4]", 1, 1024,
     .capacity = MAX_LEVELS, .count = AT(levels), .also = "vae_temporal.channel_multipliers",
     .help = "frames: width of each level over \"filters\""},
    {"temporal_downsample", WEFT_FIELD_BOOLS, AT(halves), "[false, true, true]",
     .capacity = MAX_LEVELS, .length = steps_of, .also = "vae_temporal.temporal_downsample",
     .help = "frames: whether each level but the last halves frames"},
    {"num_groups", WEFT_FIELD_I64, AT(groups), "32", 1, 65536,
     .also = "vae_temporal.num_groups", .help = "frames: groups of the group norms"},
    {"micro_frame_size", WEFT_FIELD_I64, AT(clip), "null", 1, 1 << 20,
     .help = "frames of a clip, which is a video of its own; null: the complete video"},
    {"scale", WEFT_FIELD_F64S, AT(latents.deviation), "1", 1e-30, 1e30,
     .capacity = WEFT_MAX_CHANNELS, .length = channels_of, .spread = true,
     .help = "standard deviation of each latent channel over the data set"},
    {"shift", WEFT_FIELD_F64S, AT(latents.mean), "0", .capacity = WEFT_MAX_CHANNELS,
     .length = channels_of, .spread = true,
     .help = "mean of each latent channel over the data set"},
    {"from_pretrained", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"freeze_vae_2d", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"cal_loss", WEFT_FIELD_IGNORED, .fallback = "false"},
};

/* Fields of the authors' config that name where weights come from, and how many frames the image
 * autoencoder takes at once. */
static const weft_unused_field unused[] = {
    {"vae_2d.type", "\"VideoAutoencoderKL\""}, {"vae_2d.from_pretrained"}, {"vae_2d.subfolder"},
    {"vae_2d.cache_dir"}, {"vae_2d.local_files_only"}, {"vae_2d.micro_batch_size"},
    {"vae_temporal.type", "\"VAE_Temporal_SD\""}, {"vae_temporal.from_pretrained"},
    {"vae_temporal.activation_fn", "\"swish\""},
    {NULL},
};

static const weft_named_config sizes[] = {
    {"opensora-1.2-vae", "{\"micro_frame_size\": 17, \"scale\": [3.85, 2.32, 2.33, 3.06], "
                         "\"shift\": [-0.1, 0.34, 0.27, 0.98]}"},
    {NULL, NULL},
};

/* The authors' files have the values of the config as tensors. */
static const weft_rename_rule original[] = {
    {"scale", ""},
    {"shift", ""},
};
static const weft_key_mapping mappings[] = {
    {"original", "temporal_vae.encoder.conv_in.conv.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_opensora_vae = {
    .class_name = "VideoAutoencoderPipeline", .also = "OpenSoraVAE_V1_2",
    .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "model", .library = "transformers",
    .marks = {"vae_2d", "vae_temporal"}, .model_type = "VideoAutoencoderPipeline",
    .config_bytes = sizeof(opensora_vae),
    .field = fields, .fields = sizeof fields / sizeof *fields, .unused = unused,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 512, 512}, {0, 384, 384}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
