/* Cosmos' autoencoder (diffusers' AutoencoderKLCosmos, the continuous tokenizers): 1 + 8n frames
 * of 8x8 pixels to 1 + n latent frames. The encoder has no variance: its output is the latent.
 *
 *   encoder: patches -> conv_in -> levels x (residual blocks, attention, halve)
 *            -> mid (block, attention, block) -> norm, silu, conv_out -> quant_conv
 *   decoder: post_quant_conv -> conv_in -> mid -> levels x (residual blocks, attention, double)
 *            -> norm, silu, conv_out -> out of patches
 *
 * A patch of p x p x p pixels becomes channels, by log2(p) steps of a Haar wavelet or unchanged
 * ("rearrange"). The first frame is repeated p times. Of its decoded frames only the last
 * remains.
 *
 * A convolution is a pair: over the image with zero padding, then over time. Convolutions read
 * two preceding frames, with the first frame repeated before the video. Norms are per frame.
 * Attention is over the image, then causal over all frames of a pixel. Temporal chunks would
 * need all preceding frames, so a video is encoded at once.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64 };
static const double norm_eps = 1e-6;

typedef struct cosmos_half {
    int64_t levels, width[MAX_LEVELS]; /* width[0]: next to the pixels */
} cosmos_half;

typedef struct cosmos_vae {
    int64_t in_channels, out_channels, z;
    cosmos_half encoder, decoder;
    /* sides with attention, in pixels of `resolution` */
    int64_t attentions, attends_at[MAX_LEVELS];
    int64_t resolution, layers, patch;
    int64_t rearranges; /* patch_type: 0 "haar", 1 "rearrange" */
    int64_t space, time;
    weft_statistics latents;
} cosmos_vae;
_Static_assert(sizeof(cosmos_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* ---- patches -------------------------------------------------------------------------------- */

/* Haar step on x (..., 8 C), the eight neighbours of a 2x2x2 block as (2,2,2,C): sums and
 * differences of pairs along each axis. Applying the step twice gives 8 x. */
static weft_value haar(weft_graph *g, weft_value x)
{
    const weft_shape shape = weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SCALAR;
    const int64_t all = weft_value_ok(x) ? weft_shape_count(&shape) : 0, wide = weft_dim(g, x, 4);
    for (int64_t half = wide / 2; half >= wide / 8 && half > 0; half /= 2) {
        x = weft_reshape(g, x, WEFT_SHAPE(all / (2 * half), 2, half));
        const weft_value a = weft_slice(g, x, 1, 0, 1), b = weft_slice(g, x, 1, 1, 1);
        x = weft_concat(g, (weft_value[]){weft_add(g, a, b), weft_sub(g, a, b)}, 2, 1);
    }
    return weft_reshape(g, x, shape);
}

/* Video (B,T,Y,X,C) to (B,T',Y/p,X/p,C p^3). */
static weft_value patches_in(weft_graph *g, const cosmos_vae *c, weft_value x)
{
    const int64_t p = c->patch;
    x = weft_nn_pad_edge(g, x, 1, p - 1, 0);
    for (int64_t s = p; s > 1 && !c->rearranges; s /= 2)
        x = weft_affine(g, haar(g, weft_nn_fold(g, x, (int64_t[]){2, 2, 2})), 0.125, 0);
    if (!c->rearranges || p == 1)
        return x;
    const int64_t channels = weft_dim(g, x, 4);
    x = weft_nn_fold(g, x, (int64_t[]){p, p, p});
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y * w, p * p * p, channels));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2});
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, channels * p * p * p));
}

static weft_value patches_out(weft_graph *g, const cosmos_vae *c, weft_value x)
{
    const int64_t step = c->rearranges ? c->patch : 2, block = step * step * step;
    for (int64_t s = c->patch; s > 1; s /= step) {
        const int64_t b = weft_dim(g, x, 0), wide = weft_dim(g, x, 4),
                      size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
        x = c->rearranges ? x : haar(g, x);
        x = weft_reshape(g, x, WEFT_SHAPE(b, size[0] * size[1] * size[2], wide));
        if (c->rearranges)
            x = weft_nn_channels_last(g, x, wide / block);
        x = weft_nn_unpatch(g, x, size, (int64_t[]){step, step, step});
    }
    return weft_slice(g, x, 1, c->patch - 1, weft_dim(g, x, 1) - c->patch + 1);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Convolution 1 x k x k with zero padding. With `stride` > 1, padding is only at the end. */
static weft_value conv_s(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t stride)
{
    const int64_t before = stride > 1 ? 0 : 1;
    const weft_conv_shape shape = {.kernel = {1, 3, 3},
                                   .stride = {1, stride, stride},
                                   .before = {0, before, before},
                                   .after = {0, 1, 1}};
    return weft_nn_conv(g, name, x, out, shape, false);
}

/* Causal convolution over three frames. */
static weft_value conv_t(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t stride)
{
    const weft_conv_shape shape = {.kernel = {3, 1, 1}, .stride = {stride, 1, 1}};
    return weft_nn_conv(g, name, weft_nn_pad_edge(g, x, 1, 2, 0), out, shape, false);
}

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    weft_graph *g = co->g;
    if (k == 1)
        return weft_nn_conv_point(g, name, x, out);
    weft_graph_push(g, "%s", name);
    x = conv_t(g, "conv_t", conv_s(g, "conv_s", x, out, 1), out, 1);
    weft_graph_pop(g);
    return x;
}

static weft_value norm(weft_nn_coder *co, const char *name, weft_value x)
{
    weft_graph_push(co->g, "%s", name);
    x = weft_nn_frame_norm(co->g, "norm", x, 1, norm_eps);
    weft_graph_pop(co->g);
    return x;
}

/* (B,T,Y,X,C) -> (B Y X,T,1,C), the frames of each pixel; and back. */
static weft_value frames_of_pixels(weft_graph *g, weft_value x)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), c = weft_dim(g, x, 4),
                  pixels = weft_dim(g, x, 2) * weft_dim(g, x, 3);
    x = weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(b, t, pixels, c)), (int[]){0, 2, 1, 3});
    return weft_reshape(g, x, WEFT_SHAPE(b * pixels, t, 1, c));
}

static weft_value pixels_of_frames(weft_graph *g, weft_value x, weft_shape like)
{
    const int64_t b = like.dim[0], t = like.dim[1], pixels = like.dim[2] * like.dim[3],
                  c = like.dim[4];
    x = weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(b, pixels, t, c)), (int[]){0, 2, 1, 3});
    return weft_reshape(g, x, like);
}

/* Single-head attention over the positions of a frame, or causal over the frames of a position. */
static weft_value attention(weft_nn_coder *co, const char *name, int64_t index, weft_value x,
                            bool over_time)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4), frames = weft_dim(g, x, 0) * weft_dim(g, x, 1),
                  pixels = weft_dim(g, x, 2) * weft_dim(g, x, 3);
    const weft_shape shape = weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SCALAR,
                     tokens = WEFT_SHAPE(frames, pixels, c);
    weft_graph_push(g, "%s.%d", name, (int)index);
    const weft_value h = norm(co, "norm", x), q = weft_nn_conv_point(g, "to_q", h, c),
                     k = weft_nn_conv_point(g, "to_k", h, c),
                     v = weft_nn_conv_point(g, "to_v", h, c);
    weft_value y;
    if (!weft_value_ok(v))
        y = v;
    else if (over_time)
        y = pixels_of_frames(g,
                             weft_nn_attend_back(g, frames_of_pixels(g, q), frames_of_pixels(g, k),
                                                 frames_of_pixels(g, v), WEFT_NONE),
                             shape);
    else
        y = weft_reshape(g,
                         weft_nn_attention(g, weft_reshape(g, q, tokens),
                                           weft_reshape(g, k, tokens), weft_reshape(g, v, tokens),
                                           1, NULL),
                         shape);
    y = weft_nn_conv_point(g, "to_out.0", y, c);
    weft_graph_pop(g);
    return weft_add(g, x, y);
}

static weft_value both_attentions(weft_nn_coder *co, int64_t index, weft_value x)
{
    x = attention(co, "attentions", index, x, false);
    return attention(co, "temp_attentions", index, x, true);
}

static weft_value blocks(weft_nn_coder *co, weft_value x, int64_t out, int64_t count, bool attends)
{
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "resnets.%d", (int)i);
        x = weft_nn_res_block(co, name, x, out);
        x = attends ? both_attentions(co, i, x) : x;
    }
    return x;
}

static weft_value mid_block(weft_nn_coder *co, weft_value x)
{
    const int64_t c = weft_dim(co->g, x, 4);
    weft_graph_push(co->g, "mid_block");
    x = both_attentions(co, 0, weft_nn_res_block(co, "resnets.0", x, c));
    x = weft_nn_res_block(co, "resnets.1", x, c);
    weft_graph_pop(co->g);
    return x;
}

/* Means over blocks of t x s x s. */
static weft_value means(weft_graph *g, weft_value x, int64_t t, int64_t s)
{
    const int64_t c = weft_dim(g, x, 4), block = t * s * s;
    x = weft_nn_fold(g, x, (int64_t[]){t, s, s});
    weft_shape shape = weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SCALAR;
    const int64_t positions = weft_value_ok(x) ? weft_shape_count(&shape) / (block * c) : 0;
    x = weft_sum(g, weft_reshape(g, x, WEFT_SHAPE(positions, block, c)), 1 << 1);
    shape.dim[4] = c;
    return weft_reshape(g, weft_affine(g, x, 1.0 / (double)block, 0), shape);
}

static weft_value halve(weft_graph *g, weft_value x, bool space, bool time)
{
    const int64_t c = weft_dim(g, x, 4);
    weft_graph_push(g, "downsamplers.0");
    if (space)
        x = weft_add(g, conv_s(g, "conv1", x, c, 2), means(g, x, 1, 2));
    if (time) {
        const weft_value before = weft_nn_pad_edge(g, x, 1, 1, 0);
        x = weft_add(g, conv_t(g, "conv2", x, c, 2), means(g, before, 2, 1));
    }
    x = weft_nn_conv_point(g, "conv3", x, c);
    weft_graph_pop(g);
    return x;
}

/* Doubles rows and columns, and frames. The first frame stays single. */
static weft_value twice(weft_graph *g, weft_value x, bool space, bool time)
{
    const int64_t c = weft_dim(g, x, 4), t = weft_dim(g, x, 1);
    weft_graph_push(g, "upsamplers.0");
    if (time) {
        if (t > 1)
            x = weft_slice(g, weft_nn_repeat(g, x, (int64_t[]){2, 1, 1}), 1, 1, 2 * t - 1);
        x = weft_add(g, conv_t(g, "conv1", x, c, 1), x);
    }
    if (space) {
        x = weft_nn_repeat(g, x, (int64_t[]){1, 2, 2});
        x = weft_add(g, conv_s(g, "conv2", x, c, 1), x);
    }
    x = weft_nn_conv_point(g, "conv3", x, c);
    weft_graph_pop(g);
    return x;
}

/* ---- the two halves ------------------------------------------------------------------------- */

/* Sets whether block i of the encoder halves pixels and frames. */
static void steps_down(const cosmos_vae *c, int64_t i, bool *space, bool *time)
{
    const bool any = i < c->encoder.levels - 2;
    *space = any && i < weft_nn_halvings(c->space / c->patch);
    *time = any && i < weft_nn_halvings(c->time / c->patch);
}

/* Sets whether block i of the decoder doubles pixels and frames. */
static void steps_up(const cosmos_vae *c, int64_t i, bool *space, bool *time)
{
    const int64_t in_space = weft_nn_halvings(c->space / c->patch),
                  in_time = weft_nn_halvings(c->time / c->patch);
    const bool any = i < c->decoder.levels - 2;
    *time = any && i > 0 && i <= in_time;
    *space = *time || (any && i < in_space && in_space > in_time);
}

static bool attends(const cosmos_vae *c, int64_t side)
{
    for (int64_t i = 0; i < c->attentions; i++)
        if (c->attends_at[i] == side)
            return true;
    return false;
}

static weft_value encode(weft_nn_coder *co, const cosmos_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const cosmos_half *h = &c->encoder;
    int64_t side = c->resolution / c->patch;
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", patches_in(g, c, x), h->width[0], 3);
    for (int64_t i = 0; i + 1 < h->levels; i++, side /= 2) {
        bool space, time;
        steps_down(c, i, &space, &time);
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = blocks(co, x, h->width[i + 1], c->layers, attends(c, side));
        if (space || time)
            x = halve(g, x, space, time);
        weft_graph_pop(g);
    }
    x = conv(co, "conv_out", weft_nn_norm_silu(co, "norm_out", mid_block(co, x)), c->z, 3);
    weft_graph_pop(g);
    return weft_nn_conv_point(g, "quant_conv", x, c->z);
}

static weft_value decode(weft_nn_coder *co, const cosmos_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const cosmos_half *h = &c->decoder;
    const int64_t last = h->levels - 1, block = c->patch * c->patch * c->patch;
    int64_t side = c->resolution / c->patch;
    for (int64_t i = 2; i < h->levels; i++)
        side /= 2;
    x = weft_nn_conv_point(g, "post_quant_conv", x, c->z);
    weft_graph_push(g, "decoder");
    x = mid_block(co, conv(co, "conv_in", x, h->width[last], 3));
    for (int64_t i = 0; i < last; i++, side *= 2) {
        bool space, time;
        steps_up(c, i, &space, &time);
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = blocks(co, x, h->width[last - 1 - i], c->layers + 1, attends(c, side));
        if (space || time)
            x = twice(g, x, space, time);
        weft_graph_pop(g);
    }
    x = conv(co, "conv_out", weft_nn_norm_silu(co, "norm_out", x), c->out_channels * block, 3);
    weft_graph_pop(g);
    return patches_out(g, c, x);
}

/* ---- the family ----------------------------------------------------------------------------- */

static bool is_power(int64_t n)
{
    return n > 0 && !(n & (n - 1));
}

/* Returns true if both halves change the size by the config's factors. */
static bool agrees(const cosmos_vae *c)
{
    int64_t down[2] = {c->patch, c->patch}, up[2] = {c->patch, c->patch};
    bool space, time;
    for (int64_t i = 0; i + 1 < c->encoder.levels; i++) {
        steps_down(c, i, &space, &time);
        down[0] *= space ? 2 : 1;
        down[1] *= time ? 2 : 1;
    }
    for (int64_t i = 0; i + 1 < c->decoder.levels; i++) {
        steps_up(c, i, &space, &time);
        up[0] *= space ? 2 : 1;
        up[1] *= time ? 2 : 1;
    }
    return down[0] == c->space && up[0] == c->space && down[1] == c->time && up[1] == c->time;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const cosmos_vae *c = config;
    const weft_statistics *s = &c->latents;
    if (c->encoder.levels < 2 || c->decoder.levels < 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "encoder_block_out_channels", c->encoder.levels),
                          "%" PRId64 " widths here and %" PRId64
                          " in \"decode_block_out_channels\"; each needs at least two",
                          c->encoder.levels, c->decoder.levels);
    if (!is_power(c->patch) || !is_power(c->space) || !is_power(c->time) || c->space < c->patch ||
        c->time < c->patch || !agrees(c))
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "temporal_compression_ratio", c->time),
                          "compression by %" PRId64 " in time and %" PRId64
                          " in space does not follow from "
                          "patches of %" PRId64 " and the %" PRId64
                          " levels of the encoder and %" PRId64 " of the "
                          "decoder. All must be powers of two.",
                          c->time, c->space, c->patch, c->encoder.levels, c->decoder.levels);
    for (int i = 0; i < 2; i++)
        if (s->count[i] % c->z || s->count[i] != s->count[0])
            return weft_error(
                WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "latents_mean", s->count[0]),
                "%" PRId64 " values here and %" PRId64 " in \"latents_std\"; both need the same "
                "multiple of the %" PRId64 " latent channels",
                s->count[0], s->count[1], c->z);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const cosmos_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

/* Returns true if the video divides into complete patch blocks. */
static bool fits(weft_graph *g, const cosmos_vae *c, weft_value video)
{
    const int64_t t = weft_dim(g, video, 1), y = weft_dim(g, video, 2), x = weft_dim(g, video, 3);
    if (!weft_value_ok(video) || ((t - 1) % c->time == 0 && y % c->space == 0 && x % c->space == 0))
        return true;
    weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                    "the VAE takes 1 + %" PRId64 " n frames of multiples of %" PRId64
                    " pixels, not %" PRId64 " of "
                    "%" PRId64 "x%" PRId64,
                    c->time, c->space, t, x, y);
    return false;
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const cosmos_vae *c = config;
    weft_nn_coder co = {.g = g, .conv = conv, .norm = norm};
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
    else if (fits(g, c, ports->at[WEFT_PORT_VIDEO]))
        ports->at[WEFT_PORT_MEAN] = encode(&co, c, ports->at[WEFT_PORT_VIDEO]);
}

static void grid(const void *config, weft_grid *grid)
{
    const cosmos_vae *c = config;
    grid->factor[0] = c->time;
    grid->factor[1] = grid->factor[2] = c->space;
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

/* clang-format off */
static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO,          false, "sample"},
    {WEFT_PORT_MEAN,           true,  "mean"},
    {WEFT_PORT_RECONSTRUCTION, true,  "sample"},
};

static const char *const patch_types[] = {"\"haar\"", "\"rearrange\"", NULL};

#define AT(member) offsetof(cosmos_vae, member)
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "16", MAX_Z),
    {"encoder_block_out_channels", WEFT_FIELD_I64S, AT(encoder.width), "[128, 256, 512, 512]",
     1, 65536, .capacity = MAX_LEVELS, .count = AT(encoder.levels),
     .help = "width of each level of the encoder"},
    {"decode_block_out_channels", WEFT_FIELD_I64S, AT(decoder.width), "[256, 512, 512, 512]",
     1, 65536, .capacity = MAX_LEVELS, .count = AT(decoder.levels),
     .help = "width of each level of the decoder"},
    {"attention_resolutions", WEFT_FIELD_I64S, AT(attends_at), "[32]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(attentions),
     .help = "sides, `resolution` patched and halved, of levels with attention"},
    {"resolution", WEFT_FIELD_I64, AT(resolution), "1024", 1, 65536,
     .help = "side of the image that attention_resolutions refer to"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "2", 1, 64, .help = "residual blocks per level"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "4", 1, 64,
     .help = "side of the cube of pixels that becomes channels"},
    {"patch_type", WEFT_FIELD_WORD, AT(rearranges), "\"haar\"", .words = patch_types,
     .help = "transform of a patch to channels"},
    {"scaling_factor", WEFT_FIELD_IGNORED, .fallback = "1.0"}, /* not used by its pipelines */
    {"spatial_compression_ratio", WEFT_FIELD_I64, AT(space), "8", 1, 128,
     .help = "pixel rows and columns per latent"},
    {"temporal_compression_ratio", WEFT_FIELD_I64, AT(time), "8", 1, 128,
     .help = "frames per latent frame"},
    {"latents_mean", WEFT_FIELD_F64S, AT(latents.mean), "[]", .capacity = WEFT_MAX_STATISTICS,
     .count = AT(latents.count[0]), .help = "mean of each channel and latent frame"},
    {"latents_std", WEFT_FIELD_F64S, AT(latents.deviation), "[]", 1e-30, 1e30,
     .capacity = WEFT_MAX_STATISTICS, .count = AT(latents.count[1]),
     .help = "standard deviation of each channel and latent frame"},
};

static const weft_named_config sizes[] = {
    /* CV8x8x8: statistics of 16 frames per channel */
    {"cosmos-vae",
     "{\"latents_mean\": ["
     "0.11362758, -0.0171717, 0.03071163, 0.02046862, 0.01931456, 0.02138567, 0.01999342, "
     "0.02189187, 0.02011935, 0.01872694, 0.02168613, 0.02207148, 0.01986941, 0.01770413, "
     "0.02067643, 0.02028245, 0.19125476, 0.04556972, 0.0595558, 0.05315534, 0.05496629, "
     "0.05356264, 0.04856596, 0.05327453, 0.05410472, 0.05597149, 0.05524866, 0.05181874, "
     "0.05071663, 0.05204537, 0.0564108, 0.05518042, 0.01306714, 0.03341161, 0.03847246, "
     "0.02810185, 0.02790166, 0.02920026, 0.02823597, 0.02631033, 0.0278531, 0.02880507, "
     "0.02977769, 0.03145441, 0.02888389, 0.03280773, 0.03484927, 0.03049198, -0.00197727, "
     "0.07534957, 0.04963879, 0.05530893, 0.05410828, 0.05252541, 0.05029899, 0.05321025, "
     "0.05149245, 0.0511921, 0.04643495, 0.04604527, 0.04631618, 0.04404101, 0.04403536, "
     "0.04499495, -0.02994183, -0.04787003, -0.01064558, -0.01779824, -0.01490502, -0.02157517, "
     "-0.0204778, -0.02180816, -0.01945375, -0.02062863, -0.02192209, -0.02520639, -0.02246656, "
     "-0.02427533, -0.02683363, -0.02762006, 0.08019473, -0.13005368, -0.07568636, -0.06082374, "
     "-0.06036175, -0.05875364, -0.05921887, -0.05869788, -0.05273941, -0.052565, -0.05346428, "
     "-0.05456541, -0.053657, -0.05656897, -0.05728589, -0.05321847, 0.16718403, -0.00390146, "
     "0.0379406, 0.0356561, 0.03554131, 0.03924074, 0.03873615, 0.04187329, 0.04226924, "
     "0.04378717, 0.04684274, 0.05117614, 0.04547792, 0.05251586, 0.05048339, 0.04950784, "
     "0.09564418, 0.0547128, 0.08183969, 0.07978633, 0.08076023, 0.08108605, 0.08011818, "
     "0.07965573, 0.08187773, 0.08350263, 0.08101469, 0.0786941, 0.0774442, 0.07724521, "
     "0.07830418, 0.07599796, -0.04987567, 0.05923908, -0.01058746, -0.01177603, -0.01116162, "
     "-0.01364149, -0.01546014, -0.0117213, -0.01780043, -0.01648314, -0.02100247, -0.02104417, "
     "-0.02482123, -0.02611689, -0.02561143, -0.02597336, -0.05364667, 0.08211684, 0.04686937, "
     "0.04605641, 0.04304186, 0.0397355, 0.03686767, 0.04087112, 0.03704741, 0.03706401, "
     "0.03120073, 0.03349091, 0.03319963, 0.03205781, 0.03195127, 0.03180481, 0.16427967, "
     "-0.11048453, -0.04595276, -0.04982893, -0.05213465, -0.04809378, -0.05080318, "
     "-0.04992863, -0.04493337, -0.0467619, -0.04884703, -0.04627892, -0.04913311, -0.04955709, "
     "-0.04533982, -0.04570218, -0.10612928, -0.05121198, -0.06761009, -0.07251801, "
     "-0.07265285, -0.07417855, -0.07202412, -0.07499027, -0.07625481, -0.07535747, "
     "-0.07638787, -0.07920305, -0.07596069, -0.07959418, -0.08265036, -0.07955471, "
     "-0.16888915, 0.0753242, 0.04062594, 0.03375093, 0.03337452, 0.03699376, 0.03651138, "
     "0.03611023, 0.03555622, 0.03378554, 0.0300498, 0.03395559, 0.02941847, 0.03156432, "
     "0.03431173, 0.03016853, -0.03415358, -0.01699573, -0.04029295, -0.04912157, -0.0498858, "
     "-0.04917918, -0.04918056, -0.0525189, -0.05325506, -0.05341973, -0.04983329, -0.04883146, "
     "-0.04985548, -0.04736718, -0.0462027, -0.04836091, 0.02055675, 0.03419799, -0.02907669, "
     "-0.04350509, -0.04156144, -0.04234421, -0.04446109, -0.04461774, -0.04882839, "
     "-0.04822346, -0.04502493, -0.0506244, -0.05146913, -0.04655267, -0.04862994, -0.04841615, "
     "0.20312774, -0.07208502, -0.03635615, -0.03556088, -0.04246174, -0.04195838, -0.04293778, "
     "-0.04071276, -0.04240569, -0.04125213, -0.04395144, -0.03959096, -0.04044993, "
     "-0.04015875, -0.04088107, -0.03885176"
     "], \"latents_std\": ["
     "0.56700271, 0.65488982, 0.65589428, 0.66524369, 0.66619784, 0.6666382, 0.6720838, "
     "0.66955978, 0.66928875, 0.67108786, 0.67092526, 0.67397463, 0.67894882, 0.67668313, "
     "0.67769569, 0.67479557, 0.85245121, 0.8688373, 0.87348086, 0.88459337, 0.89135885, "
     "0.8910504, 0.89714909, 0.89947474, 0.90201765, 0.90411824, 0.90692616, 0.90847772, "
     "0.90648711, 0.91006982, 0.91033435, 0.90541548, 0.84960359, 0.85863352, 0.86895317, "
     "0.88460612, 0.89245003, 0.89451706, 0.89931005, 0.90647358, 0.90338236, 0.90510076, "
     "0.91008312, 0.90961218, 0.9123717, 0.91313171, 0.91435546, 0.91565102, 0.91877103, "
     "0.85155135, 0.857804, 0.86998034, 0.87365264, 0.88161767, 0.88151032, 0.88758916, "
     "0.89015514, 0.89245576, 0.89276224, 0.89450496, 0.90054202, 0.89994133, 0.90136105, "
     "0.90114892, 0.77755755, 0.81456852, 0.81911844, 0.83137071, 0.83820474, 0.83890373, "
     "0.84401101, 0.84425181, 0.84739357, 0.84798753, 0.85249585, 0.85114998, 0.85160935, "
     "0.85626358, 0.85677862, 0.85641026, 0.69903517, 0.71697885, 0.71696913, 0.72583169, "
     "0.72931731, 0.73254126, 0.73586977, 0.73734969, 0.73664582, 0.74084908, 0.74399322, "
     "0.74471819, 0.74493188, 0.74824578, 0.75024873, 0.75274801, 0.8187142, 0.82251883, "
     "0.82616025, 0.83164483, 0.84072375, 0.8396467, 0.84143305, 0.84880769, 0.8503468, "
     "0.85196948, 0.85211051, 0.85386664, 0.85410017, 0.85439342, 0.85847849, 0.85385275, "
     "0.67583984, 0.68259847, 0.69198853, 0.69928843, 0.70194328, 0.70467001, 0.70755547, "
     "0.70917857, 0.71007699, 0.70963502, 0.71064079, 0.71027333, 0.71291167, 0.71537536, "
     "0.71902508, 0.71604162, 0.72450989, 0.71979928, 0.72057378, 0.73035461, 0.73329622, "
     "0.73660028, 0.73891461, 0.74279994, 0.74105692, 0.74002433, 0.74257588, 0.74416119, "
     "0.74543899, 0.74694443, 0.74747062, 0.74586403, 0.90176988, 0.90990674, 0.91106802, "
     "0.92163783, 0.92390233, 0.93056196, 0.93482202, 0.93642414, 0.93858379, 0.94064975, "
     "0.94078934, 0.94325715, 0.94955301, 0.94814706, 0.95144123, 0.94923073, 0.49853548, "
     "0.64968109, 0.6427654, 0.64966393, 0.6487664, 0.65203559, 0.6584242, 0.65351611, "
     "0.65464371, 0.6574859, 0.65626335, 0.66123748, 0.66121179, 0.66077942, 0.66040152, "
     "0.66474909, 0.61986589, 0.69138134, 0.6884557, 0.6955843, 0.69765401, 0.70015347, "
     "0.70529598, 0.70468754, 0.70399523, 0.70479989, 0.70887572, 0.71126866, 0.7097227, "
     "0.71249932, 0.71231949, 0.71175605, 0.35586974, 0.68723857, 0.68973219, 0.69958478, "
     "0.6943453, 0.6995818, 0.70980215, 0.69899458, 0.70271689, 0.70095056, 0.69912851, "
     "0.70522696, 0.70392174, 0.70916915, 0.70585734, 0.70373541, 0.98101336, 0.89024764, "
     "0.89607251, 0.90678179, 0.91308665, 0.91812348, 0.91980827, 0.92480654, 0.92635667, "
     "0.92887944, 0.93338072, 0.93468094, 0.93619436, 0.93906063, 0.94191772, 0.94471723, "
     "0.83202779, 0.84106231, 0.84463632, 0.85829508, 0.86319661, 0.86751342, 0.86914337, "
     "0.87085921, 0.87286359, 0.87537396, 0.87931138, 0.88054478, 0.8811838, 0.88872558, "
     "0.88942474, 0.88934827, 0.44025335, 0.63061613, 0.63110614, 0.63601959, 0.6395812, "
     "0.64104342, 0.65019929, 0.6502797, 0.64355946, 0.64657205, 0.64847094, 0.64728117, "
     "0.64972943, 0.65162975, 0.65328044, 0.64914775"
     "]}"},
    {NULL, NULL},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.0.resnets.0.conv1.conv_s.weight", NULL, 0},
};

const weft_family weft_family_cosmos_vae = {
    .class_name = "AutoencoderKLCosmos", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"encoder_block_out_channels", "attention_resolutions"},
    .config_bytes = sizeof(cosmos_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 512, 512}, {0, 448, 448}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
