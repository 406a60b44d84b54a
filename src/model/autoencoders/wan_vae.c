/* Wan causal 3D video autoencoder (Wan 2.1 and 2.2; diffusers' AutoencoderKLWan): 4x8x8
 * compression by default.
 *
 *   encoder: conv_in -> levels x (res blocks, downsample) -> mid (res, attention, res)
 *            -> norm, silu, conv_out
 *   decoder: conv_in -> mid -> levels x (res blocks, upsample) -> norm, silu, conv_out
 *
 * Time. Causal: frame 0 is separate, then each group of 4 frames makes one latent frame. So 1 +
 * 4n frames give 1 + n latent frames. Any split into temporal chunks at these borders gives the
 * result of a single call. Every 3-frame convolution reads two preceding frames: zeros at the
 * beginning of the video, otherwise the cached last frames (states ".cache.N" in its scope). The
 * temporal resamplers pass the first frame of the video through:
 *
 *   down: frames 1.. pass a strided convolution that also reads the frame before them (cache
 *         of 1);
 *   up:   frames 1.. become two each; the convolution before the upsampling does not read frame 0.
 *
 * Wan 2.2 (is_residual) packs `patch_size`^2 pixels into channels. Each level also has a
 * shortcut without parameters: blocks of pixels and frames are moved into channels and averaged
 * (shrink), or channels are repeated and moved into blocks (grow).
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/autoencoders/wan_vae_init.h"
#include "model/config_fields.h"
#include "model/halo.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 64 };

typedef struct wan_vae {
    int64_t base_dim, decoder_base_dim, z_dim;
    int64_t levels; /* length of dim_mult */
    int64_t dim_mult[MAX_LEVELS];
    bool temporal_downsample[MAX_LEVELS]; /* levels - 1 items */
    int64_t res_blocks;
    int64_t attn_scale_count;
    double attn_scales[MAX_LEVELS];
    bool residual; /* Wan 2.2 */
    int64_t in_channels, out_channels;
    int64_t patch_size; /* 0: none */
    weft_statistics latents;
} wan_vae;
_Static_assert(sizeof(wan_vae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* ---- factors -------------------------------------------------------------------------------- */

static int64_t time_factor(const wan_vae *c)
{
    int64_t factor = 1;
    for (int64_t i = 0; i < c->levels - 1; i++)
        factor *= c->temporal_downsample[i] ? 2 : 1;
    return factor;
}

static int64_t patch_of(const wan_vae *c)
{
    return c->patch_size ? c->patch_size : 1;
}

static int64_t space_factor(const wan_vae *c)
{
    return patch_of(c) << (c->levels - 1);
}

/* Qwen-Image's config has one width and one number of channels for both halves. */
static int64_t decoder_dim_of(const wan_vae *c)
{
    return c->decoder_base_dim ? c->decoder_base_dim : c->base_dim;
}

static int64_t out_of(const wan_vae *c)
{
    return c->out_channels ? c->out_channels : c->in_channels;
}

/* ---- streaming ----------------------------------------------------------------------------- */

/* Encoder or decoder while its graph is built. `caches` is the number of the next cache. */
typedef struct coder {
    weft_graph *g;
    weft_stream stream;
    int caches;
} coder;

static bool join_cache(coder *co, weft_value *x, int64_t frames)
{
    return weft_halo_join(co->g, co->stream, &co->caches, x, frames, false);
}

/* Kernel k x k x k (k = 1 or 3), causal in time, same size in space. */
static weft_value causal_conv(coder *co, const char *name, weft_value x, int64_t out, int64_t kt,
                              int64_t kyx)
{
    weft_conv_shape shape = {.kernel = {kt, kyx, kyx}, .stride = {1, 1, 1}};
    shape.before[1] = shape.before[2] = shape.after[1] = shape.after[2] = (kyx - 1) / 2;
    shape.before[0] = kt - 1;
    if (kt > 1 && join_cache(co, &x, kt - 1))
        shape.before[0] = 0;
    return weft_nn_conv(co->g, name, x, out, shape, false);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* The VAE's norm: x sqrt(C) / ||x|| gamma; gamma is stored as (C,1,1,1), or (C,1,1) for images. */
static weft_value norm(coder *co, const char *name, weft_value x, bool images)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4);
    weft_graph_push(g, "%s", name);
    weft_value gamma =
        weft_param(g, "gamma", WEFT_F32, images ? WEFT_SHAPE(c, 1, 1) : WEFT_SHAPE(c, 1, 1, 1),
                   (weft_init){.kind = WEFT_INIT_FILL, .value = 1});
    gamma = weft_reshape(g, gamma, WEFT_SHAPE(c));
    const weft_attr_norm attr = {.eps = 1e-12, .l2 = true};
    x = weft_emit(g, WEFT_OP_RMS_NORM, (weft_value[]){x, gamma}, 2, &attr);
    weft_graph_pop(g);
    return x;
}

static weft_value norm_silu(coder *co, const char *name, weft_value x)
{
    return weft_unary(co->g, WEFT_OP_SILU, norm(co, name, x, false));
}

static weft_value res_block(coder *co, weft_value x, int64_t out)
{
    weft_value shortcut = x;
    if (weft_dim(co->g, x, 4) != out)
        shortcut = causal_conv(co, "conv_shortcut", x, out, 1, 1);
    weft_value h = causal_conv(co, "conv1", norm_silu(co, "norm1", x), out, 3, 3);
    h = causal_conv(co, "conv2", norm_silu(co, "norm2", h), out, 3, 3);
    return weft_add(co->g, h, shortcut);
}

static weft_value res_block_named(coder *co, const char *name, int64_t index, weft_value x,
                                  int64_t out)
{
    weft_graph_push(co->g, "%s.%d", name, (int)index);
    x = res_block(co, x, out);
    weft_graph_pop(co->g);
    return x;
}

/* Single-head attention inside each frame: frames are batch items. */
static weft_value attention_block(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3);
    const int64_t c = weft_dim(g, x, 4);
    const weft_conv_shape one = {.kernel = {1, 1, 1}, .stride = {1, 1, 1}};
    weft_value qkv = weft_nn_conv(g, "to_qkv", norm(co, "norm", x, true), 3 * c, one, true);
    qkv = weft_reshape(g, qkv, WEFT_SHAPE(b * t, y * w, 3 * c));
    const weft_value q = weft_slice(g, qkv, 2, 0, c), k = weft_slice(g, qkv, 2, c, c),
                     v = weft_slice(g, qkv, 2, 2 * c, c);
    weft_value h = weft_nn_attention(g, q, k, v, 1, NULL);
    h = weft_reshape(g, h, WEFT_SHAPE(b, t, y, w, c));
    return weft_add(g, x, weft_nn_conv(g, "proj", h, c, one, true));
}

static weft_value mid_block(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4);
    weft_graph_push(g, "mid_block");
    x = res_block_named(co, "resnets", 0, x, c);
    weft_graph_push(g, "attentions.0");
    x = attention_block(co, x);
    weft_graph_pop(g);
    x = res_block_named(co, "resnets", 1, x, c);
    weft_graph_pop(g);
    return x;
}

/* Halves rows and columns; with `temporal` also the frames after the first. */
static weft_value downsample(coder *co, weft_value x, bool temporal)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4);
    const weft_conv_shape half = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .after = {0, 1, 1}};
    x = weft_nn_conv(g, "resample.1", x, c, half, true);
    if (!temporal)
        return x;
    const weft_conv_shape strided = {.kernel = {3, 1, 1}, .stride = {2, 1, 1}};
    if (join_cache(co, &x, 1))
        return weft_nn_conv(g, "time_conv", x, c, strided, false);
    if (weft_dim(g, x, 1) < 3) {
        /* A single frame does not pass the convolution, but the parameters must exist. */
        weft_graph_push(g, "time_conv");
        (void)weft_param(
            g, "weight", WEFT_F32, WEFT_SHAPE(c, c, 3, 1, 1),
            (weft_init){.kind = WEFT_INIT_UNIFORM, .value = 1.0 / sqrt((double)(3 * c))});
        (void)weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(c), (weft_init){.kind = WEFT_INIT_ZERO});
        weft_graph_pop(g);
        return x;
    }
    const weft_value rest = weft_nn_conv(g, "time_conv", x, c, strided, false);
    return weft_concat(g, (weft_value[]){weft_slice(g, x, 1, 0, 1), rest}, 2, 1);
}

/* Each frame of x becomes two: channels (2, C) of the convolution are the two frames. */
static weft_value double_frames(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3);
    const int64_t c = weft_dim(g, x, 4);
    x = causal_conv(co, "time_conv", x, 2 * c, 3, 1);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t, y * w, 2, c));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    return weft_reshape(g, x, WEFT_SHAPE(b, 2 * t, y, w, c));
}

/* Temporal part of an upsampler. Frame 0 of the video passes unchanged. The convolution reads only
 * the frames after frame 0, so the cache of a first chunk has no frame 0. */
static weft_value upsample_frames(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t t = weft_dim(g, x, 1), c = weft_dim(g, x, 4);
    if (co->stream == WEFT_STREAM_NEXT)
        return double_frames(co, x);
    const weft_value first = weft_slice(g, x, 1, 0, 1);
    if (t > 1)
        return weft_concat(
            g, (weft_value[]){first, double_frames(co, weft_slice(g, x, 1, 1, t - 1))}, 2, 1);
    if (co->stream == WEFT_STREAM_FIRST) {
        weft_shape shape = weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SCALAR;
        shape.dim[1] = 2;
        char name[32];
        snprintf(name, sizeof name, "cache.%d", co->caches++);
        const weft_value cache =
            weft_state(g, name, WEFT_F32, shape, (weft_init){.kind = WEFT_INIT_ZERO});
        weft_update(g, cache, weft_fill(g, WEFT_F32, shape, 0));
    }
    weft_graph_push(g, "time_conv");
    (void)weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(2 * c, c, 3, 1, 1),
                     (weft_init){.kind = WEFT_INIT_UNIFORM, .value = 1.0 / sqrt((double)(3 * c))});
    (void)weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(2 * c), (weft_init){.kind = WEFT_INIT_ZERO});
    weft_graph_pop(g);
    return first;
}

/* Doubles rows and columns; with `temporal` also frames. */
static weft_value upsample(coder *co, weft_value x, int64_t out, bool temporal)
{
    weft_graph *g = co->g;
    if (temporal)
        x = upsample_frames(co, x);
    x = weft_nn_repeat(g, x, (int64_t[]){1, 2, 2});
    const weft_conv_shape same = {
        .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    return weft_nn_conv(g, "resample.1", x, out, same, true);
}

/* ---- ways around a level (Wan 2.2) ---------------------------------------------------------- */

/* (B,T,Y,X,C) -> (B,T/ft,Y/f,X/f,out): moves blocks of pixels into channels (C,ft,fy,fx), and
 * averages neighbours in this list. The separate first frame is preceded by zeros. */
static weft_value shrink(coder *co, weft_value x, int64_t out, int64_t ft, int64_t f)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4), group = c * ft * f * f / out;
    if (ft > 1 && co->stream != WEFT_STREAM_NEXT)
        x = weft_pad(g, x, 1, ft - 1, 0);
    x = weft_nn_fold(g, x, (int64_t[]){ft, f, f});
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y * w, ft * f * f, c));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2});
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y * w, out, group));
    x = weft_affine(g, weft_sum(g, x, 1 << 3), 1.0 / (double)group, 0);
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, out));
}

/* Inverse of shrink: repeats every channel and moves the list (out,ft,fy,fx) into blocks of pixels.
 * Of the frames made from the first latent frame, only the last remains. */
static weft_value grow(coder *co, weft_value x, int64_t out, int64_t ft, int64_t f)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), c = weft_dim(g, x, 4), times = out * ft * f * f / c;
    const int64_t size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
    const int64_t positions = size[0] * size[1] * size[2];
    x = weft_reshape(g, x, WEFT_SHAPE(b, positions, c, 1));
    x = weft_broadcast(g, x, WEFT_SHAPE(b, positions, c, times));
    x = weft_reshape(g, x, WEFT_SHAPE(b, positions, out * ft * f * f));
    x = weft_nn_unpatch(g, weft_nn_channels_last(g, x, out), size, (int64_t[]){ft, f, f});
    if (ft > 1 && co->stream != WEFT_STREAM_NEXT)
        x = weft_slice(g, x, 1, ft - 1, size[0] * ft - ft + 1);
    return x;
}

/* ---- the two halves ------------------------------------------------------------------------ */

static bool attends_at(const wan_vae *c, double scale)
{
    for (int64_t i = 0; i < c->attn_scale_count; i++)
        if (c->attn_scales[i] == scale)
            return true;
    return false;
}

static weft_value levels_down(coder *co, const wan_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    int64_t index = 0;
    double scale = 1;
    for (int64_t level = 0; level < c->levels; level++) {
        const int64_t width = c->base_dim * c->dim_mult[level];
        for (int64_t r = 0; r < c->res_blocks; r++) {
            x = res_block_named(co, "down_blocks", index++, x, width);
            if (attends_at(c, scale)) {
                weft_graph_push(g, "down_blocks.%d", (int)index++);
                x = attention_block(co, x);
                weft_graph_pop(g);
            }
        }
        if (level < c->levels - 1) {
            weft_graph_push(g, "down_blocks.%d", (int)index++);
            x = downsample(co, x, c->temporal_downsample[level]);
            weft_graph_pop(g);
            scale /= 2;
        }
    }
    return x;
}

static weft_value residual_levels_down(coder *co, const wan_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    for (int64_t level = 0; level < c->levels; level++) {
        const bool last = level == c->levels - 1, temporal = !last && c->temporal_downsample[level];
        const int64_t width = c->base_dim * c->dim_mult[level];
        const weft_value around = shrink(co, x, width, temporal ? 2 : 1, last ? 1 : 2);
        weft_graph_push(g, "down_blocks.%d", (int)level);
        for (int64_t r = 0; r < c->res_blocks; r++)
            x = res_block_named(co, "resnets", r, x, width);
        if (!last) {
            weft_graph_push(g, "downsampler");
            x = downsample(co, x, temporal);
            weft_graph_pop(g);
        }
        weft_graph_pop(g);
        x = weft_add(g, x, around);
    }
    return x;
}

/* video (B,T,Y,X,in) in [-1,1] -> mean and logvar, (B,T',Y',X',2 z). T is 1 + 4n (ALONE, FIRST) or
 * 4n (NEXT); Y and X multiples of 8. */
static weft_value encode(weft_graph *g, const wan_vae *c, weft_stream stream,
                         weft_value video_btyxc)
{
    coder co = {.g = g, .stream = stream};
    const int64_t frames = weft_dim(g, video_btyxc, 1), factor = time_factor(c);
    const int64_t space = space_factor(c), y = weft_dim(g, video_btyxc, 2),
                  w = weft_dim(g, video_btyxc, 3);
    if (weft_value_ok(video_btyxc) && (frames - (stream == WEFT_STREAM_NEXT ? 0 : 1)) % factor)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "the VAE takes %s%" PRId64 " n frames, not %" PRId64,
                               stream == WEFT_STREAM_NEXT ? "" : "1 + ", factor, frames);
    if (y % space || w % space)
        return weft_graph_fail(
            g, WEFT_MSG_MODEL_SHAPE,
            "the VAE takes multiples of %" PRId64 " pixels, not %" PRId64 "x%" PRId64, space, w, y);
    if (c->patch_size)
        video_btyxc = weft_nn_pixels_in(g, video_btyxc, c->patch_size);
    weft_graph_push(g, "encoder");
    weft_value x = causal_conv(&co, "conv_in", video_btyxc, c->base_dim, 3, 3);
    x = c->residual ? residual_levels_down(&co, c, x) : levels_down(&co, c, x);
    x = mid_block(&co, x);
    x = causal_conv(&co, "conv_out", norm_silu(&co, "norm_out", x), 2 * c->z_dim, 3, 3);
    weft_graph_pop(g);
    return causal_conv(&co, "quant_conv", x, 2 * c->z_dim, 1, 1);
}

/* latents (B,T',Y',X',z) -> video (B,T,Y,X,out), not clamped. */
static weft_value decode(weft_graph *g, const wan_vae *c, weft_stream stream,
                         weft_value latents_btyxc)
{
    coder co = {.g = g, .stream = stream};
    weft_value x = causal_conv(&co, "post_quant_conv", latents_btyxc, c->z_dim, 1, 1);
    weft_graph_push(g, "decoder");
    x = causal_conv(&co, "conv_in", x, decoder_dim_of(c) * c->dim_mult[c->levels - 1], 3, 3);
    x = mid_block(&co, x);
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t level = c->levels - 1 - i;
        const int64_t width = decoder_dim_of(c) * c->dim_mult[level];
        const weft_value from = x;
        weft_graph_push(g, "up_blocks.%d", (int)i);
        for (int64_t r = 0; r <= c->res_blocks; r++)
            x = res_block_named(&co, "resnets", r, x, width);
        if (level > 0) {
            const bool temporal = c->temporal_downsample[level - 1];
            weft_graph_push(g, "%s", c->residual ? "upsampler" : "upsamplers.0");
            x = upsample(&co, x, c->residual ? width : width / 2, temporal);
            weft_graph_pop(g);
            if (c->residual)
                x = weft_add(g, x, grow(&co, from, width, temporal ? 2 : 1, 2));
        }
        weft_graph_pop(g);
    }
    x = causal_conv(&co, "conv_out", norm_silu(&co, "norm_out", x), out_of(c), 3, 3);
    weft_graph_pop(g);
    return c->patch_size ? weft_nn_pixels_out(g, x, c->patch_size) : x;
}

/* ---- the family ----------------------------------------------------------------------------- */

/* Returns true if the shortcuts of encoder and decoder split a level's channels into equal
 * groups. */
static bool goes_around(const wan_vae *c, int64_t level)
{
    const bool last = level == c->levels - 1;
    const int64_t factor = last ? 1 : c->temporal_downsample[level] ? 8 : 4;
    const int64_t before = level ? c->dim_mult[level - 1] : 1;
    const int64_t above = c->dim_mult[level + (last ? 0 : 1)],
                  block = level ? c->temporal_downsample[level - 1] ? 8 : 4 : 1;
    /* decoder: from the level above to this one; the last level: from itself */
    const int64_t from = last ? c->dim_mult[level] : above;
    return before * c->base_dim * factor % (c->base_dim * c->dim_mult[level]) == 0 &&
           (!level || c->dim_mult[level] * block % from == 0);
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const wan_vae *c = config;
    const int64_t area = patch_of(c) * patch_of(c);
    if (c->levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "dim_mult", c->levels),
                          "at least one level is needed");
    if (c->in_channels % area || out_of(c) % area)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "patch_size", c->patch_size),
            "a patch of %" PRId64 " needs \"in_channels\" and \"out_channels\" that are "
            "multiples of %" PRId64 ", not %" PRId64 " and %" PRId64,
            c->patch_size, area, c->in_channels, out_of(c));
    if (c->residual && c->attn_scale_count)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attn_scales", c->attn_scale_count),
                          "the list must be empty with \"is_residual\"");
    for (int64_t level = 0; c->residual && level < c->levels; level++)
        if (!goes_around(c, level))
            return weft_error(
                WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "dim_mult", c->dim_mult[level]),
                "the channels before level %" PRId64 " do not divide into equal groups for "
                "its channels, which \"is_residual\" needs",
                level);
    return WEFT_OK;
}

static int64_t borders(const void *config)
{
    return ((const wan_vae *)config)->levels - 1;
}

static int64_t channels(const void *config)
{
    return ((const wan_vae *)config)->z_dim;
}

static int64_t time_of(const void *config)
{
    return time_factor(config);
}

static int64_t space_of(const void *config)
{
    return space_factor(config);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const wan_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels / (patch_of(c) * patch_of(c)), c->z_dim);
}

/* The encoder outputs the mean and the log variance, which is clamped to [-30, 20]. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const wan_vae *c = config;
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] =
            decode(g, c, call.stream, ports->at[WEFT_PORT_LATENTS]);
        return;
    }
    weft_ports_set_posterior(g, encode(g, c, call.stream, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const wan_vae *c = config;
    grid->factor[0] = time_factor(c);
    grid->factor[1] = grid->factor[2] = space_factor(c);
    grid->causal = true;
    grid->piece = 1;
    grid->cell = patch_of(c);
    grid->channels = grid->out_channels = c->z_dim;
}

static void begin(const void *config, const weft_weight *weight, int64_t count, uint64_t seed)
{
    const wan_vae *c = config;
    if (!c->residual && !c->patch_size) /* Wan 2.2 has the average in its shortcuts */
        weft_wan_vae_begin(weight, count, c->z_dim, seed);
}

/* clang-format off */
#define AT(member) offsetof(wan_vae, member)
/* Fields that AutoencoderKLQwenImage has as well. */
#define BASE_DIM \
    {"base_dim", WEFT_FIELD_I64, AT(base_dim), "96", 1, 4096, .help = "width of the first level"}
#define FIELDS_OF_BOTH \
    {"z_dim", WEFT_FIELD_I64, AT(z_dim), "16", 1, MAX_Z, .help = "latent channels"}, \
    {"dim_mult", WEFT_FIELD_I64S, AT(dim_mult), "[1, 2, 4, 4]", 1, 1024, \
     .capacity = MAX_LEVELS, .count = AT(levels), \
     .help = "width of each level over base_dim; all levels but the last halve rows and columns"}, \
    {"num_res_blocks", WEFT_FIELD_I64, AT(res_blocks), "2", 1, 64, \
     .help = "residual blocks per level"}, \
    {"attn_scales", WEFT_FIELD_F64S, AT(attn_scales), "[]", \
     .capacity = MAX_LEVELS, .count = AT(attn_scale_count), \
     .help = "scales (1, 0.5, ...) with attention after their blocks"}, \
    {"temperal_downsample", WEFT_FIELD_BOOLS, AT(temporal_downsample), "[false, true, true]", \
     .capacity = MAX_LEVELS, .length = borders, .help = "levels that also halve the frames"}, \
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"}, \
    WEFT_STATISTICS_FIELDS(AT(latents), channels)
static const weft_field fields[] = {
    BASE_DIM,
    {"decoder_base_dim", WEFT_FIELD_I64, AT(decoder_base_dim), "=base_dim", 1, 4096,
     .help = "width of the decoder's first level; default: base_dim"},
    FIELDS_OF_BOTH,
    {"is_residual", WEFT_FIELD_BOOL, AT(residual), "false",
     .help = "Wan 2.2: each level has an averaging shortcut"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "3", 1, 768,
     .help = "channels of the video, times patch_size^2"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "3", 1, 768,
     .help = "channels of the video, times patch_size^2"},
    {"patch_size", WEFT_FIELD_I64, AT(patch_size), "null", 1, 16,
     .help = "side of the square of pixels that becomes channels"},
    {"scale_factor_temporal", WEFT_FIELD_DERIVED, .length = time_of},
    {"scale_factor_spatial", WEFT_FIELD_DERIVED, .length = space_of},
    {"clip_output", WEFT_FIELD_IGNORED, .fallback = "true"}, /* the reference does not read it */
};

static const weft_named_config sizes[] = {
    {"wan-vae", "{}"},
    {"wan2.2-vae",
     "{\"base_dim\": 160, \"decoder_base_dim\": 256, \"z_dim\": 48, \"is_residual\": true, "
     "\"in_channels\": 12, \"out_channels\": 12, \"patch_size\": 2, \"latents_mean\": ["
     "-0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557, -0.1382, "
     "0.0542, 0.2813, 0.0891, "
     "0.157, -0.0098, 0.0375, -0.1825, -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, "
     "-0.2108, -0.2158, 0.2502, "
     "-0.2055, -0.0322, 0.1109, 0.1567, -0.0729, 0.0899, -0.2799, -0.123, -0.0313, "
     "-0.1649, 0.0117, 0.0723, "
     "-0.2839, -0.2083, -0.052, 0.3748, 0.0152, 0.1957, 0.1433, -0.2944, 0.3573, -0.0548, "
     "-0.1681, -0.0667"
     "], \"latents_std\": ["
     "0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.499, 0.4818, 0.5013, 0.8158, 1.0344, "
     "0.5894, 1.0901, "
     "0.6885, 0.6165, 0.8454, 0.4978, 0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, "
     "0.8986, 0.5659, "
     "0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999, 0.6866, 0.4093, 0.5709, 0.6065, "
     "0.6415, 0.4944, "
     "0.5726, 1.2042, 0.5458, 1.6887, 0.3971, 1.06, 0.3943, 0.5537, 0.5444, 0.4089, "
     "0.7468, 0.7744"
     "]}"},
    {NULL, NULL},
};

static const weft_field qwen_fields[] = {
    BASE_DIM,
    FIELDS_OF_BOTH,
    {"input_channels", WEFT_FIELD_I64, AT(in_channels), "3", 1, 768,
     .help = "channels of the image"},
};

static const weft_named_config qwen_sizes[] = {
    {"qwen-image-vae",
     "{\"latents_mean\": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, "
     "0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921], \"latents_std\": ["
     "2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, "
     "1.5579, 1.6382, 1.1253, 2.8251, 1.916]}"},
    {NULL, NULL},
};

/* Key mapping of Wan's own files (.pth), for levels of two residual blocks, as in all published
 * models. The convolutions next to the latents are conv1 and conv2 at the root. In Wan 2.2, each
 * level is a module. In Wan 2.1, all blocks are in one list. */
/* Rules of both versions, before and after the version's own rules. */
#define ENDS \
    {"encoder.conv1", "encoder.conv_in"},  \
    {"decoder.conv1", "decoder.conv_in"},  \
    {"conv1",         "quant_conv"},       \
    {"conv2",         "post_quant_conv"}  
#define INSIDE \
    {"residual.0",     "norm1"},                   \
    {"residual.2",     "conv1"},                   \
    {"residual.3",     "norm2"},                   \
    {"residual.6",     "conv2"},                   \
    {"shortcut",       "conv_shortcut"},           \
    {"middle.0",       "mid_block.resnets.0"},     \
    {"middle.1",       "mid_block.attentions.0"},  \
    {"middle.2",       "mid_block.resnets.1"},     \
    {"head.0",         "norm_out"},                \
    {"head.2",         "conv_out"}                
static const weft_rename_rule original21[] = {
    ENDS,
    {"decoder.upsamples.0",   "decoder.up_blocks.0.resnets.0"},
    {"decoder.upsamples.1",   "decoder.up_blocks.0.resnets.1"},
    {"decoder.upsamples.2",   "decoder.up_blocks.0.resnets.2"},
    {"decoder.upsamples.3",   "decoder.up_blocks.0.upsamplers.0"},
    {"decoder.upsamples.4",   "decoder.up_blocks.1.resnets.0"},
    {"decoder.upsamples.5",   "decoder.up_blocks.1.resnets.1"},
    {"decoder.upsamples.6",   "decoder.up_blocks.1.resnets.2"},
    {"decoder.upsamples.7",   "decoder.up_blocks.1.upsamplers.0"},
    {"decoder.upsamples.8",   "decoder.up_blocks.2.resnets.0"},
    {"decoder.upsamples.9",   "decoder.up_blocks.2.resnets.1"},
    {"decoder.upsamples.10",  "decoder.up_blocks.2.resnets.2"},
    {"decoder.upsamples.11",  "decoder.up_blocks.2.upsamplers.0"},
    {"decoder.upsamples.12",  "decoder.up_blocks.3.resnets.0"},
    {"decoder.upsamples.13",  "decoder.up_blocks.3.resnets.1"},
    {"decoder.upsamples.14",  "decoder.up_blocks.3.resnets.2"},
    {"encoder.downsamples",   "encoder.down_blocks"},
    INSIDE,
};
static const weft_rename_rule original22[] = {
    ENDS,
    {"decoder.upsamples.#.upsamples.3",      "decoder.up_blocks.#.upsampler"},
    {"decoder.upsamples.#.upsamples",        "decoder.up_blocks.#.resnets"},
    {"encoder.downsamples.#.downsamples.2",  "encoder.down_blocks.#.downsampler"},
    {"encoder.downsamples.#.downsamples",    "encoder.down_blocks.#.resnets"},
    INSIDE,
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "decoder.up_blocks.0.resnets.0.norm1.gamma", NULL, 0},
    {"original", "decoder.upsamples.0.residual.0.gamma", original21,
     sizeof original21 / sizeof *original21},
    {"original", "decoder.upsamples.0.upsamples.0.residual.0.gamma", original22,
     sizeof original22 / sizeof *original22},
};

#define NETWORK                                                                                    \
    .role = WEFT_ROLE_AUTOENCODER, .scope = "vae", .stem = "diffusion_pytorch_model",              \
    .library = "diffusers", .config_bytes = sizeof(wan_vae), .check = check,                       \
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape,               \
    .build = build, .clamps = true, .grid = grid, .statistics = AT(latents),                       \
    .tile = {{0, 256, 256}, {0, 192, 192}}, .begin = begin,                                        \
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings
const weft_family weft_family_wan_vae = {
    .class_name = "AutoencoderKLWan", NETWORK,
    .marks = {"z_dim", "dim_mult"}, .sizes = sizes,
    .field = fields, .fields = sizeof fields / sizeof *fields,
};

/* Wan 2.1's network, for images: other names of fields. */
const weft_family weft_family_qwen_image_vae = {
    .class_name = "AutoencoderKLQwenImage", NETWORK,
    .sizes = qwen_sizes,
    .field = qwen_fields, .fields = sizeof qwen_fields / sizeof *qwen_fields,
};
/* clang-format on */
