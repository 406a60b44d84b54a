/* Mochi's autoencoder (diffusers' AutoencoderKLMochi): 1 + 6n frames of 8x8 pixels to 1 + n
 * latent frames of 12 channels.
 *
 *   encoder: colours and their sines -> proj_in -> block_in -> levels x (stride, blocks)
 *            -> block_out -> norm, silu, proj_out
 *   decoder: conv_in -> block_in -> levels x (blocks, channels to frames and pixels) -> block_out
 *            -> silu, proj_out
 *   block: a residual block; with attention, also attention over the frames of each pixel
 *
 * Every convolution reads two preceding frames. The edge is repeated before the first frame and
 * around the image. Every latent frame decodes to the same number of frames. Of those from the
 * first latent frame, only the last remains.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64, GROUPS = 32, HEAD = 32, FREQUENCIES = 2, FIRST_FREQUENCY = 6 };
static const double norm_eps = 1e-5;

typedef struct mochi_vae {
    int64_t out_channels, z;
    int64_t levels, width[MAX_LEVELS], decoder_width[MAX_LEVELS], layers[MAX_LEVELS + 1];
    /* reduction factors of the levels; levels - 1 items */
    int64_t time[MAX_LEVELS], space[MAX_LEVELS];
    bool attends[MAX_LEVELS + 1];
    weft_statistics latents;
} mochi_vae;
_Static_assert(sizeof(mochi_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    return weft_nn_conv_edge(co->g, name, x, out, k, (int64_t[]){1, 1, 1});
}

static weft_value norm(weft_nn_coder *co, const char *name, weft_value x)
{
    weft_graph_push(co->g, "%s", name);
    x = weft_nn_frame_norm(co->g, "norm_layer", x, GROUPS, norm_eps);
    weft_graph_pop(co->g);
    return x;
}

/* Queries and keys of length 1. The scale includes the norm's sqrt(D). */
static weft_value unit(weft_graph *g, weft_value x)
{
    const weft_attr_norm attr = {.eps = norm_eps, .l2 = true};
    return weft_emit(g, WEFT_OP_RMS_NORM, &x, 1, &attr);
}

/* Causal attention over the frames of each pixel: x (B,T,Y,X,C). */
static weft_value attention(weft_graph *g, weft_value x)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    const weft_attr_attention attr = {.scale = 1 / (HEAD * sqrt((double)HEAD)), .causal = true};
    x = weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(b, t, y * w, c)), (int[]){0, 2, 1, 3});
    x = weft_reshape(g, x, WEFT_SHAPE(b * y * w, t, c));
    const weft_value q = weft_nn_linear_plain(g, "to_q", x, c),
                     k = weft_nn_linear_plain(g, "to_k", x, c),
                     v = weft_nn_linear_plain(g, "to_v", x, c);
    const weft_value in[3] = {unit(g, weft_nn_split_heads(g, q, c / HEAD)),
                              unit(g, weft_nn_split_heads(g, k, c / HEAD)),
                              weft_nn_split_heads(g, v, c / HEAD)};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION, in, 3, &attr, out);
    x = weft_nn_linear(g, "to_out.0", weft_nn_join_heads(g, out[0]), c, WEFT_LINEAR_XAVIER);
    x = weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(b, y * w, t, c)), (int[]){0, 2, 1, 3});
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, c));
}

static weft_value blocks(weft_nn_coder *co, weft_value x, int64_t count, bool attends)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4);
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "resnets.%d", (int)i);
        x = weft_nn_res_block(co, name, x, c);
        if (!attends)
            continue;
        snprintf(name, sizeof name, "norms.%d", (int)i);
        const weft_value y = norm(co, name, x);
        weft_graph_push(g, "attentions.%d", (int)i);
        x = weft_add(g, x, attention(g, y));
        weft_graph_pop(g);
    }
    return x;
}

static weft_value blocks_named(weft_nn_coder *co, const char *name, weft_value x, int64_t count,
                               bool attends)
{
    weft_graph_push(co->g, "%s", name);
    x = blocks(co, x, count, attends);
    weft_graph_pop(co->g);
    return x;
}

/* Colours, followed by their sines and cosines at each frequency. */
static weft_value waves(weft_graph *g, weft_value x)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    weft_value angle[FREQUENCIES];
    for (int i = 0; i < FREQUENCIES; i++) {
        const double frequency = (double)(1 << (FIRST_FREQUENCY + i)) * 6.283185307179586;
        angle[i] = weft_reshape(g, weft_affine(g, x, (double)(float)frequency, 0),
                                WEFT_SHAPE(b, t * y * w, c, 1));
    }
    const weft_value all = weft_reshape(g, weft_concat(g, angle, FREQUENCIES, 3),
                                        WEFT_SHAPE(b, t, y, w, FREQUENCIES * c));
    const weft_value parts[3] = {x, weft_unary(g, WEFT_OP_SIN, all),
                                 weft_unary(g, WEFT_OP_COS, all)};
    return weft_concat(g, parts, 3, 4);
}

/* ---- the two halves ------------------------------------------------------------------------- */

static int64_t time_of(const void *config)
{
    const mochi_vae *c = config;
    int64_t factor = 1;
    for (int64_t i = 0; i + 1 < c->levels; i++)
        factor *= c->time[i];
    return factor;
}

static int64_t space_of(const mochi_vae *c)
{
    int64_t factor = 1;
    for (int64_t i = 0; i + 1 < c->levels; i++)
        factor *= c->space[i];
    return factor;
}

static weft_value encode(weft_nn_coder *co, const mochi_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "encoder");
    x = weft_nn_linear(g, "proj_in", waves(g, x), c->width[0], WEFT_LINEAR_XAVIER);
    x = blocks_named(co, "block_in", x, c->layers[0], c->attends[0]);
    for (int64_t i = 0; i + 1 < c->levels; i++) {
        const int64_t t = c->time[i], s = c->space[i];
        const weft_conv_shape stride = {.kernel = {t, s, s}, .stride = {t, s, s}};
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = weft_nn_pad_edge(g, x, 1, t - 1, 0);
        x = weft_nn_conv(g, "conv_in.conv", x, c->width[i + 1], stride, false);
        x = blocks(co, x, c->layers[i + 1], c->attends[i + 1]);
        weft_graph_pop(g);
    }
    x = blocks_named(co, "block_out", x, c->layers[c->levels], c->attends[c->levels]);
    x = weft_nn_linear_plain(g, "proj_out", weft_nn_norm_silu(co, "norm_out", x), 2 * c->z);
    weft_graph_pop(g);
    return x;
}

static weft_value decode(weft_nn_coder *co, const mochi_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const weft_conv_shape one = {.kernel = {1, 1, 1}, .stride = {1, 1, 1}};
    const int64_t last = c->levels - 1, gone = time_of(c) - 1;
    weft_graph_push(g, "decoder");
    x = weft_nn_conv(g, "conv_in", x, c->decoder_width[last], one, false);
    x = blocks_named(co, "block_in", x, c->layers[c->levels], false);
    for (int64_t level = last; level > 0; level--) {
        const int64_t step[3] = {c->time[level - 1], c->space[level - 1], c->space[level - 1]},
                      out = c->decoder_width[level - 1], b = weft_dim(g, x, 0),
                      size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)},
                      all = out * step[0] * step[1] * step[2];
        weft_graph_push(g, "up_blocks.%d", (int)(last - level));
        x = weft_nn_linear(g, "proj", blocks(co, x, c->layers[level], false), all,
                           WEFT_LINEAR_XAVIER);
        x = weft_reshape(g, x, WEFT_SHAPE(b, size[0] * size[1] * size[2], all));
        x = weft_nn_unpatch(g, weft_nn_channels_last(g, x, out), size, step);
        weft_graph_pop(g);
    }
    x = blocks_named(co, "block_out", x, c->layers[0], false);
    x = weft_nn_linear(g, "proj_out", weft_unary(g, WEFT_OP_SILU, x), c->out_channels,
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return weft_slice(g, x, 1, gone, weft_dim(g, x, 1) - gone);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const mochi_vae *c = config;
    if (c->levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "encoder_block_out_channels", c->levels),
                          "at least one level is needed");
    for (int64_t i = 0; i < c->levels; i++)
        if (c->width[i] % GROUPS || c->decoder_width[i] % GROUPS)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "encoder_block_out_channels", c->width[i]),
                              "the widths of level %" PRId64 ", %" PRId64
                              " in the encoder and %" PRId64 " in the "
                              "decoder, are not multiples of %d",
                              i, c->width[i], c->decoder_width[i], GROUPS);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const mochi_vae *c = config;
    return weft_autoencoder_shape(s, port, 3, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const mochi_vae *c = config;
    weft_nn_coder co = {.g = g, .conv = conv, .norm = norm};
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    weft_ports_set_posterior(g, encode(&co, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const mochi_vae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = space_of(c);
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

static int64_t levels_of(const void *config)
{
    return ((const mochi_vae *)config)->levels;
}

static int64_t steps_of(const void *config)
{
    return levels_of(config) - 1;
}

static int64_t layers_of(const void *config)
{
    return levels_of(config) + 1;
}

static int64_t channels_of(const void *config)
{
    return ((const mochi_vae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(mochi_vae, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_FIXED, .fallback = "15"},
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    {"encoder_block_out_channels", WEFT_FIELD_I64S, AT(width), "[64, 128, 256, 384]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(levels), .help = "width of each level"},
    {"decoder_block_out_channels", WEFT_FIELD_I64S, AT(decoder_width), "[128, 256, 512, 768]",
     1, 65536, .capacity = MAX_LEVELS, .length = levels_of,
     .help = "width of each level of the decoder"},
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "12", MAX_Z),
    {"layers_per_block", WEFT_FIELD_I64S, AT(layers), "[3, 3, 4, 6, 3]", 1, 64,
     .capacity = MAX_LEVELS + 1, .length = layers_of,
     .help = "residual blocks of each level and of the last block"},
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    {"temporal_expansions", WEFT_FIELD_I64S, AT(time), "[1, 2, 3]", 1, 64,
     .capacity = MAX_LEVELS, .length = steps_of, .help = "factor of frames at each level"},
    {"spatial_expansions", WEFT_FIELD_I64S, AT(space), "[2, 2, 2]", 1, 2,
     .capacity = MAX_LEVELS, .length = steps_of,
     .help = "factor of rows and columns at each level"},
    {"add_attention_block", WEFT_FIELD_BOOLS, AT(attends), "[false, true, true, true, true]",
     .capacity = MAX_LEVELS + 1, .length = layers_of,
     .help = "blocks of the encoder with attention"},
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of),
    WEFT_SCALE_FIELD(AT(latents.scale), "1.0"),
};

static const weft_named_config sizes[] = {
    {"mochi-vae",
     "{\"latents_mean\": [-0.06730895953510081, -0.038011381506090416, -0.07477820912866141, "
     "-0.05565264470995561, 0.012767231469026969, -0.04703542746246419, 0.043896967884726704, "
     "-0.09346305707025976, -0.09918314763016893, -0.008729793427399178, -0.011931556316503654, "
     "-0.0321993391887285], \"latents_std\": [0.9263795028493863, 0.9248894543193766, "
     "0.9393059390890617, 0.959253732819592, 0.8244560132752793, 0.917259975397747, "
     "0.9294154431013696, 1.3720942357788521, 0.881393668867029, 0.9168315692124348, "
     "0.9185249279345552, 0.9274757570805041]}"},
    {NULL, NULL},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.block_in.resnets.0.norm1.norm_layer.weight", NULL, 0},
};

const weft_family weft_family_mochi_vae = {
    .class_name = "AutoencoderKLMochi", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"temporal_expansions", "add_attention_block"},
    .config_bytes = sizeof(mochi_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 256, 256}, {0, 192, 192}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
