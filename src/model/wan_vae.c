/* Wan causal 3D VAE.
 *
 *   encoder: conv_in -> levels x (res blocks, downsample) -> mid (res, attention, res) -> norm,
 * silu, conv_out decoder: conv_in -> mid -> levels x (res blocks, upsample) -> norm, silu, conv_out
 *
 * Time. Every 3-frame convolution looks two frames back: zeros at the beginning of the video, the
 * cached last frames in the middle of a stream. The temporal resamplers leave the first frame of
 * the video alone: down: frames 1.. go through a strided convolution that also sees the frame
 * before them (cache of 1); up:   frames 1.. become two each; the convolution in front of that does
 * not see frame 0.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "model/wan_vae.h"

#include "model/json_fields.h"
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

/* ---- config -------------------------------------------------------------------------------- */

static weft_status read_f64s(const json_t *json, const char *key, const char *where, int64_t count,
                             double *out)
{
    const json_t *array = json_object_get(json, key);
    if (!array || json_is_null(array))
        return WEFT_OK;
    if (!json_is_array(array) || (int64_t)json_array_size(array) != count)
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" must be a list of %lld numbers", where, key,
                         (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, (size_t)i);
        if (!json_is_number(item))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\"[%lld] is not a number", where, key,
                             (long long)i);
        out[i] = json_number_value(item);
    }
    return WEFT_OK;
}

static weft_status read_levels(const json_t *json, const char *where, weft_wan_vae_config *c)
{
    const json_t *mult = json_object_get(json, "dim_mult");
    if (mult && (!json_is_array(mult) || json_array_size(mult) < 1 ||
                 json_array_size(mult) > WEFT_WAN_VAE_MAX_LEVELS))
        return weft_fail(WEFT_E_FORMAT, "%s: \"dim_mult\" must be a list of 1..%d integers", where,
                         WEFT_WAN_VAE_MAX_LEVELS);
    if (mult)
        c->levels = (int64_t)json_array_size(mult);
    WEFT_TRY(weft_model_read_i64s(json, "dim_mult", where, (int)c->levels, c->dim_mult));
    for (int64_t i = 0; i < c->levels; i++)
        if (c->dim_mult[i] < 1 || c->dim_mult[i] > 1024)
            return weft_fail(WEFT_E_FORMAT,
                             "%s: \"dim_mult\"[%lld] is %lld; it must lie in 1..1024", where,
                             (long long)i, (long long)c->dim_mult[i]);
    const json_t *temporal = json_object_get(json, "temperal_downsample");
    if (temporal &&
        (!json_is_array(temporal) || (int64_t)json_array_size(temporal) != c->levels - 1))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"temperal_downsample\" must be a list of %lld booleans", where,
                         (long long)c->levels - 1);
    for (int64_t i = 0; temporal && i < c->levels - 1; i++)
        c->temporal_downsample[i] = json_is_true(json_array_get(temporal, (size_t)i));
    const json_t *scales = json_object_get(json, "attn_scales");
    c->attn_scale_count = json_is_array(scales) ? (int64_t)json_array_size(scales) : 0;
    if (c->attn_scale_count > WEFT_WAN_VAE_MAX_LEVELS)
        return weft_fail(WEFT_E_FORMAT, "%s: \"attn_scales\" has more than %d entries", where,
                         WEFT_WAN_VAE_MAX_LEVELS);
    return read_f64s(json, "attn_scales", where, c->attn_scale_count, c->attn_scales);
}

weft_status weft_wan_vae_config_read(const json_t *json, const char *where,
                                     weft_wan_vae_config *config)
{
    weft_wan_vae_config c = {
        .levels = 4, .dim_mult = {1, 2, 4, 4}, .temporal_downsample = {false, true, true}};
    WEFT_TRY(weft_model_read_count(json, "base_dim", where, 96, 1, &c.base_dim));
    WEFT_TRY(
        weft_model_read_count(json, "decoder_base_dim", where, c.base_dim, 1, &c.decoder_base_dim));
    WEFT_TRY(weft_model_read_count(json, "z_dim", where, 16, 1, &c.z_dim));
    if (c.z_dim > WEFT_WAN_VAE_MAX_Z)
        return weft_fail(WEFT_E_FORMAT, "%s: \"z_dim\" is %lld, more than %d", where,
                         (long long)c.z_dim, WEFT_WAN_VAE_MAX_Z);
    WEFT_TRY(read_levels(json, where, &c));
    WEFT_TRY(weft_model_read_count(json, "num_res_blocks", where, 2, 1, &c.res_blocks));
    WEFT_TRY(weft_model_read_count(json, "in_channels", where, 3, 1, &c.in_channels));
    WEFT_TRY(weft_model_read_count(json, "out_channels", where, 3, 1, &c.out_channels));
    WEFT_TRY(weft_model_require(json, "is_residual", where, "false"));
    WEFT_TRY(weft_model_require(json, "patch_size", where, "null"));
    for (int64_t i = 0; i < c.z_dim; i++)
        c.latents_std[i] = 1;
    WEFT_TRY(read_f64s(json, "latents_mean", where, c.z_dim, c.latents_mean));
    WEFT_TRY(read_f64s(json, "latents_std", where, c.z_dim, c.latents_std));
    for (int64_t i = 0; i < c.z_dim; i++)
        if (!(c.latents_std[i] > 0))
            return weft_fail(WEFT_E_FORMAT, "%s: \"latents_std\"[%lld] is %g; it must be positive",
                             where, (long long)i, c.latents_std[i]);
    *config = c;
    return WEFT_OK;
}

json_t *weft_wan_vae_config_write(const weft_wan_vae_config *c)
{
    json_t *temporal = json_array();
    for (int64_t i = 0; i < c->levels - 1; i++)
        json_array_append_new(temporal, json_boolean(c->temporal_downsample[i]));
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:f, s:o, s:o, s:b, s:I, s:I, s:n, s:I, s:I}",
        "_class_name", "AutoencoderKLWan", "base_dim", (json_int_t)c->base_dim, "decoder_base_dim",
        (json_int_t)c->decoder_base_dim, "z_dim", (json_int_t)c->z_dim, "dim_mult",
        weft_model_write_i64s(c->dim_mult, c->levels), "num_res_blocks", (json_int_t)c->res_blocks,
        "attn_scales", weft_model_write_f64s(c->attn_scales, c->attn_scale_count),
        "temperal_downsample", temporal, "dropout", 0.0, "latents_mean",
        weft_model_write_f64s(c->latents_mean, c->z_dim), "latents_std",
        weft_model_write_f64s(c->latents_std, c->z_dim), "is_residual", 0, "in_channels",
        (json_int_t)c->in_channels, "out_channels", (json_int_t)c->out_channels, "patch_size",
        "scale_factor_temporal", (json_int_t)weft_wan_vae_time_factor(c), "scale_factor_spatial",
        (json_int_t)weft_wan_vae_space_factor(c));
}

int64_t weft_wan_vae_time_factor(const weft_wan_vae_config *c)
{
    int64_t factor = 1;
    for (int64_t i = 0; i < c->levels - 1; i++)
        factor *= c->temporal_downsample[i] ? 2 : 1;
    return factor;
}

int64_t weft_wan_vae_space_factor(const weft_wan_vae_config *c)
{
    return (int64_t)1 << (c->levels - 1);
}

int64_t weft_wan_vae_latent_frames(const weft_wan_vae_config *c, int64_t frames)
{
    return frames < 1 ? 0 : 1 + (frames - 1) / weft_wan_vae_time_factor(c);
}

/* ---- streaming ----------------------------------------------------------------------------- */

/* One coder (encoder or decoder) while its graph is built: the next cache has number `caches`. */
typedef struct coder {
    weft_graph *g;
    weft_vae_stream stream;
    int caches;
} coder;

/* The cached `frames` last frames of the tensor that x continues; zeros at the beginning. Keeps the
 * last frames of x (with what went before it) for the next chunk. NULL-like (WEFT_NONE) when there
 * is nothing before x. */
static weft_value take_cache(coder *co, weft_value x, int64_t frames)
{
    weft_graph *g = co->g;
    if (co->stream == WEFT_VAE_ALONE)
        return WEFT_NONE;
    char name[32];
    snprintf(name, sizeof name, "cache.%d", co->caches++);
    const weft_shape whole = weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SCALAR;
    weft_shape shape = whole;
    shape.dim[1] = frames;
    const weft_value cache =
        weft_state(g, name, WEFT_F32, shape, (weft_init){.kind = WEFT_INIT_ZERO});
    const weft_value before = co->stream == WEFT_VAE_NEXT ? cache : WEFT_NONE;
    weft_value last;
    if (whole.dim[1] >= frames)
        last = weft_slice(g, x, 1, whole.dim[1] - frames, frames);
    else if (weft_value_ok(before))
        last = weft_concat(
            g, (weft_value[]){weft_slice(g, before, 1, whole.dim[1], frames - whole.dim[1]), x}, 2,
            1);
    else
        last = weft_pad(g, x, 1, frames - whole.dim[1], 0);
    weft_update(g, cache, last);
    return before;
}

/* Kernel k x k x k (k = 1 or 3), causal in time, same size in space. */
static weft_value causal_conv(coder *co, const char *name, weft_value x, int64_t out, int64_t kt,
                              int64_t kyx)
{
    weft_graph *g = co->g;
    weft_conv_shape shape = {.kernel = {kt, kyx, kyx}, .stride = {1, 1, 1}};
    shape.before[1] = shape.before[2] = shape.after[1] = shape.after[2] = (kyx - 1) / 2;
    shape.before[0] = kt - 1;
    if (kt > 1) {
        const weft_value before = take_cache(co, x, kt - 1);
        if (weft_value_ok(before)) {
            x = weft_concat(g, (weft_value[]){before, x}, 2, 1);
            shape.before[0] = 0;
        }
    }
    return weft_nn_conv(g, name, x, out, shape, false);
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
    const weft_value before = take_cache(co, x, 1);
    if (weft_value_ok(before))
        return weft_nn_conv(g, "time_conv", weft_concat(g, (weft_value[]){before, x}, 2, 1), c,
                            strided, false);
    if (weft_dim(g, x, 1) < 3) {
        /* One frame never reaches the convolution; its parameters exist all the same. */
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

/* The temporal half of an upsampler. Frame 0 of the video passes; the convolution sees only the
 * frames after it, so the cache that a first chunk leaves holds no frame 0. */
static weft_value upsample_frames(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t t = weft_dim(g, x, 1), c = weft_dim(g, x, 4);
    if (co->stream == WEFT_VAE_NEXT)
        return double_frames(co, x);
    const weft_value first = weft_slice(g, x, 1, 0, 1);
    if (t > 1)
        return weft_concat(
            g, (weft_value[]){first, double_frames(co, weft_slice(g, x, 1, 1, t - 1))}, 2, 1);
    if (co->stream == WEFT_VAE_FIRST) {
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

static weft_value upsample(coder *co, weft_value x, bool temporal)
{
    weft_graph *g = co->g;
    if (temporal)
        x = upsample_frames(co, x);
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3);
    const int64_t c = weft_dim(g, x, 4);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y, 1, w, 1, c));
    x = weft_broadcast(g, x, WEFT_SHAPE(b, t * y, 2, w, 2, c));
    x = weft_reshape(g, x, WEFT_SHAPE(b, t, 2 * y, 2 * w, c));
    const weft_conv_shape same = {
        .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    return weft_nn_conv(g, "resample.1", x, c / 2, same, true);
}

/* ---- the two halves ------------------------------------------------------------------------ */

static bool attends_at(const weft_wan_vae_config *c, double scale)
{
    for (int64_t i = 0; i < c->attn_scale_count; i++)
        if (c->attn_scales[i] == scale)
            return true;
    return false;
}

weft_value weft_wan_vae_encode(weft_graph *g, const weft_wan_vae_config *c, weft_vae_stream stream,
                               weft_value video_btyxc)
{
    coder co = {.g = g, .stream = stream};
    const int64_t frames = weft_dim(g, video_btyxc, 1), factor = weft_wan_vae_time_factor(c);
    const int64_t space = weft_wan_vae_space_factor(c), y = weft_dim(g, video_btyxc, 2),
                  w = weft_dim(g, video_btyxc, 3);
    if (weft_value_ok(video_btyxc) && (frames - (stream == WEFT_VAE_NEXT ? 0 : 1)) % factor)
        return weft_graph_fail(g, WEFT_E_SHAPE, "the VAE takes %s%lld n frames, not %lld",
                               stream == WEFT_VAE_NEXT ? "" : "1 + ", (long long)factor,
                               (long long)frames);
    if (y % space || w % space)
        return weft_graph_fail(g, WEFT_E_SHAPE,
                               "the VAE takes multiples of %lld pixels, not %lldx%lld",
                               (long long)space, (long long)w, (long long)y);
    weft_graph_push(g, "encoder");
    weft_value x = causal_conv(&co, "conv_in", video_btyxc, c->base_dim, 3, 3);
    int64_t index = 0;
    double scale = 1;
    for (int64_t level = 0; level < c->levels; level++) {
        const int64_t width = c->base_dim * c->dim_mult[level];
        for (int64_t r = 0; r < c->res_blocks; r++) {
            x = res_block_named(&co, "down_blocks", index++, x, width);
            if (attends_at(c, scale)) {
                weft_graph_push(g, "down_blocks.%d", (int)index++);
                x = attention_block(&co, x);
                weft_graph_pop(g);
            }
        }
        if (level < c->levels - 1) {
            weft_graph_push(g, "down_blocks.%d", (int)index++);
            x = downsample(&co, x, c->temporal_downsample[level]);
            weft_graph_pop(g);
            scale /= 2;
        }
    }
    x = mid_block(&co, x);
    x = causal_conv(&co, "conv_out", norm_silu(&co, "norm_out", x), 2 * c->z_dim, 3, 3);
    weft_graph_pop(g);
    return causal_conv(&co, "quant_conv", x, 2 * c->z_dim, 1, 1);
}

weft_value weft_wan_vae_decode(weft_graph *g, const weft_wan_vae_config *c, weft_vae_stream stream,
                               weft_value latents_btyxc)
{
    coder co = {.g = g, .stream = stream};
    weft_value x = causal_conv(&co, "post_quant_conv", latents_btyxc, c->z_dim, 1, 1);
    weft_graph_push(g, "decoder");
    x = causal_conv(&co, "conv_in", x, c->decoder_base_dim * c->dim_mult[c->levels - 1], 3, 3);
    x = mid_block(&co, x);
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t level = c->levels - 1 - i;
        const int64_t width = c->decoder_base_dim * c->dim_mult[level];
        weft_graph_push(g, "up_blocks.%d", (int)i);
        for (int64_t r = 0; r <= c->res_blocks; r++)
            x = res_block_named(&co, "resnets", r, x, width);
        if (level > 0) {
            weft_graph_push(g, "upsamplers.0");
            x = upsample(&co, x, c->temporal_downsample[level - 1]);
            weft_graph_pop(g);
        }
        weft_graph_pop(g);
    }
    x = causal_conv(&co, "conv_out", norm_silu(&co, "norm_out", x), c->out_channels, 3, 3);
    weft_graph_pop(g);
    return x;
}

void weft_wan_vae_moments(weft_graph *g, weft_value moments_btyx2z, weft_value *mean,
                          weft_value *logvar)
{
    const int64_t z = weft_dim(g, moments_btyx2z, 4) / 2;
    *mean = weft_slice(g, moments_btyx2z, 4, 0, z);
    *logvar = weft_clamp(g, weft_slice(g, moments_btyx2z, 4, z, z), -30, 20);
}
