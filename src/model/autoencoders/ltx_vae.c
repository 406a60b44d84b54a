/* LTX-Video's autoencoder (diffusers' AutoencoderKLLTXVideo, 0.9.0 to 0.9.8), and LTX-2's for video
 * (AutoencoderKLLTX2Video): 1 + 8n frames of 32x32 pixels to 1 + n latent frames of 128 channels.
 *
 *   encoder: patches of pixels to channels -> conv_in -> levels x (residual blocks, halve, widen)
 *            -> mid -> norm, silu, conv_out; one logvar for all channels
 *   decoder: conv_in -> mid -> levels x (narrow, double, residual blocks) -> norm, silu, conv_out
 *            -> channels to pixels
 *
 * From 0.9.1 on, the decoder is the last denoising step: its residual blocks and its end are
 * modulated by a timestep from 0 to 1, and residual blocks may add noise. From 0.9.5 on, a level of
 * the encoder moves pixels to channels, and adds the mean of groups of the moved channels.
 *
 * LTX-2 has the encoder of 0.9.5, which begins with the latent channels. Its decoder is causal, its
 * convolutions see mirrored pixels around the image, and its upsamplers may double frames or sides
 * alone.
 *
 * Time. Convolutions of a causal half read two preceding frames; the first frame is repeated
 * before the video. Other convolutions read one frame on either side. Channels become frames,
 * and the first frame is dropped, so that 1 + n become 1 + 2n. The public decoder is not causal,
 * so temporal chunks are not supported.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_Z = 128 };
static const double norm_eps = 1e-8;

/* Resamplers of the encoder: indices of `down_words`. */
typedef enum ltx_down { DOWN_CONV, DOWN_SPACE, DOWN_TIME, DOWN_BOTH } ltx_down;
static const char *const down_words[] = {"\"conv\"", "\"spatial\"", "\"temporal\"",
                                         "\"spatiotemporal\"", NULL};
static const char *const block_words[] = {"\"LTXVideoDownBlock3D\"", "\"LTXVideo095DownBlock3D\"",
                                          NULL};
static const char *const block2_words[] = {"\"LTX2VideoDownBlock3D\"", NULL};
/* Upsamplers of LTX-2's decoder, and padding around an image: indices of words. */
typedef enum ltx_up { UP_BOTH, UP_SPACE, UP_TIME } ltx_up;
static const char *const up_words[] = {"\"spatiotemporal\"", "\"spatial\"", "\"temporal\"", NULL};
static const char *const padding_words[] = {"\"zeros\"", "\"reflect\"", NULL};

typedef struct ltx_half {
    int64_t widths, width[MAX_LEVELS + 1], layers[MAX_LEVELS + 1];
    bool scales[MAX_LEVELS]; /* levels that halve or double frames, rows and columns */
    bool causal;
    int64_t mirrors; /* LTX-2: index of padding_words */
} ltx_half;

typedef struct ltx_vae {
    int64_t in_channels, out_channels, z, patch;
    ltx_half encoder, decoder;
    int64_t blocks, block[MAX_LEVELS], down[MAX_LEVELS]; /* encoder: indices of words */
    /* decoder */
    int64_t factor[MAX_LEVELS];   /* narrowing by a level's upsampler */
    bool residual[MAX_LEVELS];    /* upsamplers add their input */
    bool injects[MAX_LEVELS + 1]; /* residual blocks add noise; the last item is the middle */
    int64_t up[MAX_LEVELS];       /* LTX-2: ltx_up of each level in the order of the decoder */
    bool timed;                   /* modulated by a timestep */
    bool second;                  /* LTX-2 */
    double decode_timestep;       /* timestep of a call without WEFT_PORT_TIMESTEP */
    double eps;                   /* eps of the norm before a shortcut */
    weft_statistics latents;
} ltx_vae;
_Static_assert(sizeof(ltx_vae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Encoder or decoder while its graph is built. */
typedef struct coder {
    weft_graph *g;
    bool causal, mirrors;
    bool plain; /* convolutions of shortcuts have no inner name */
    double eps;
    weft_value sinusoid; /* (B,256) of the decoder's timestep; WEFT_NONE: not modulated */
    weft_value rows;     /* (B,4,C) of the block that is built */
    bool injects;        /* residual blocks of that block add noise */
    int64_t draws;       /* noises drawn */
} coder;

/* Pads dim `d` with the second and the last but one item. The reference refuses a single item,
 * which is repeated here. */
static weft_value mirror(weft_graph *g, weft_value x, int d)
{
    const int64_t n = weft_dim(g, x, d);
    if (n < 2)
        return weft_nn_pad_edge(g, x, d, 1, 1);
    return weft_concat(
        g, (weft_value[]){weft_slice(g, x, d, 1, 1), x, weft_slice(g, x, d, n - 2, 1)}, 3, d);
}

static weft_value conv(coder *co, const char *name, weft_value x, int64_t out, int64_t k,
                       int64_t stride)
{
    weft_graph *g = co->g;
    const bool mirrors = co->mirrors && k > 1;
    const int64_t p = k / 2, side = mirrors ? 0 : p, end = stride > 1 ? 0 : side;
    const weft_conv_shape shape = {.kernel = {k, k, k},
                                   .stride = {stride, stride, stride},
                                   .before = {0, side, side},
                                   .after = {0, end, end}};
    x = weft_nn_pad_edge(g, x, 1, co->causal ? k - 1 : p, co->causal ? 0 : p);
    for (int d = 2; d < 4 && mirrors; d++)
        x = mirror(g, x, d);
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", x, out, shape, false);
    weft_graph_pop(g);
    return x;
}

/* Norm, modulation by rows `shift` and `shift` + 1 of `rows` (WEFT_NONE: none), and silu. */
static weft_value norm_silu(weft_graph *g, weft_value x, weft_value rows, int64_t shift)
{
    weft_value h = weft_nn_plain_rms_norm(g, x, norm_eps);
    if (weft_value_ok(rows)) {
        const weft_shape each = WEFT_SHAPE(weft_dim(g, rows, 0), 1, 1, 1, weft_dim(g, rows, 2));
        h = weft_nn_modulate(g, h, weft_reshape(g, weft_nn_row(g, rows, shift + 1), each),
                             weft_reshape(g, weft_nn_row(g, rows, shift), each));
    }
    return weft_unary(g, WEFT_OP_SILU, h);
}

/* Rows (B,count,C) of the timestep, without a table of this layer. */
static weft_value time_rows(const coder *co, int64_t width, int64_t count)
{
    weft_graph *g = co->g;
    if (!weft_value_ok(co->sinusoid))
        return WEFT_NONE;
    const weft_value e = weft_nn_embedder(g, "time_embedder.timestep_embedder", co->sinusoid,
                                          count * width, WEFT_NN_SILU);
    return weft_reshape(g, e, WEFT_SHAPE(weft_dim(g, co->sinusoid, 0), count, width));
}

/* Adds noise with a learned deviation per channel. As in the reference, samples and frames have the
 * same noise. The noise depends on size and layer only: the reference draws without a seed. */
static weft_value inject(coder *co, const char *name, weft_value x)
{
    weft_graph *g = co->g;
    if (!co->injects)
        return x;
    const int64_t y = weft_dim(g, x, 2), w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    const weft_value key = weft_fill(g, WEFT_I64, WEFT_SHAPE(1), (double)co->draws++);
    const weft_value noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_DECODER,
                                              WEFT_SHAPE(1, 1, y, w, 1));
    const weft_value scale =
        weft_param(g, name, WEFT_F32, WEFT_SHAPE(c, 1, 1), (weft_init){.kind = WEFT_INIT_ZERO});
    return weft_add(g, x, weft_mul(g, noise, weft_reshape(g, scale, WEFT_SHAPE(1, 1, 1, 1, c))));
}

static weft_value res_block(coder *co, const char *name, weft_value x, int64_t out)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "%s", name);
    const weft_value rows = weft_value_ok(co->rows) ? weft_nn_add_table(g, co->rows, 4) : WEFT_NONE;
    weft_value h = conv(co, "conv1", norm_silu(g, x, rows, 0), out, 3, 1);
    h = inject(co, "per_channel_scale1", h);
    h = conv(co, "conv2", norm_silu(g, h, rows, 2), out, 3, 1);
    h = inject(co, "per_channel_scale2", h);
    if (weft_dim(g, x, 4) != out) {
        x = weft_nn_layer_norm(g, "norm3", x, co->eps);
        x = co->plain ? weft_nn_conv_point(g, "conv_shortcut", x, out)
                      : conv(co, "conv_shortcut", x, out, 1, 1);
    }
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

static weft_value res_blocks(coder *co, weft_value x, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        char name[32];
        snprintf(name, sizeof name, "resnets.%d", (int)r);
        x = res_block(co, name, x, weft_dim(co->g, x, 4));
    }
    return x;
}

static weft_value mid_block(coder *co, weft_value x, int64_t count)
{
    weft_graph_push(co->g, "mid_block");
    co->rows = time_rows(co, weft_dim(co->g, x, 4), 4);
    x = res_blocks(co, x, count);
    weft_graph_pop(co->g);
    return x;
}

/* Moves channels (C,pt,py,px) into frames, rows and columns. If pt is 2, drops the first frame. */
static weft_value unfold(weft_graph *g, weft_value x, const int64_t stride[3])
{
    const int64_t c = weft_dim(g, x, 4), b = weft_dim(g, x, 0), pt = stride[0],
                  size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
    x = weft_reshape(g, x, WEFT_SHAPE(b, size[0] * size[1] * size[2], c));
    x = weft_nn_unpatch(g, weft_nn_channels_last(g, x, c / (pt * stride[1] * stride[2])), size,
                        stride);
    return weft_slice(g, x, 1, pt - 1, pt * size[0] - pt + 1);
}

/* Enlarges frames, rows and columns by `stride`, and divides the channels by `factor`. */
static weft_value enlarge(coder *co, weft_value x, const int64_t stride[3], int64_t factor,
                          bool residual)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4), items = stride[0] * stride[1] * stride[2];
    const weft_value h =
        unfold(g, conv(co, "upsamplers.0.conv", x, c * items / factor, 3, 1), stride);
    if (!residual)
        return h;
    weft_value copy[8];
    copy[0] = unfold(g, x, stride);
    for (int64_t i = 1; i < items / factor; i++)
        copy[i] = copy[0];
    return weft_add(g, h, weft_concat(g, copy, (int)(items / factor), 4));
}

/* Moves frames, rows and columns of `stride` into channels (C,pt,py,px). */
static weft_value fold(weft_graph *g, weft_value x, const int64_t stride[3])
{
    const int64_t items = stride[0] * stride[1] * stride[2];
    x = weft_nn_fold(g, x, stride);
    const weft_shape shape =
        weft_value_ok(x) ? weft_value_get(g, x)->shape : WEFT_SHAPE(1, 1, 1, 1, items);
    x = weft_reshape(
        g, x, WEFT_SHAPE(shape.dim[0], shape.dim[1] * shape.dim[2] * shape.dim[3], shape.dim[4]));
    return weft_reshape(g, weft_nn_channels_last(g, x, items), shape);
}

/* Downsampler of 0.9.5: pixels to channels after a convolution, plus the mean of groups of the
 * input's pixels as channels. A stride of two frames repeats the first frame. */
static weft_value shrink(coder *co, weft_value x, int64_t out, const int64_t stride[3])
{
    weft_graph *g = co->g;
    const int64_t items = stride[0] * stride[1] * stride[2],
                  group = weft_dim(g, x, 4) * items / out;
    x = weft_nn_pad_edge(g, x, 1, stride[0] - 1, 0);
    const weft_value h = fold(g, conv(co, "downsamplers.0.conv", x, out / items, 3, 1), stride);
    const int64_t b = weft_dim(g, h, 0),
                  positions = weft_dim(g, h, 1) * weft_dim(g, h, 2) * weft_dim(g, h, 3);
    weft_value mean = weft_reshape(g, fold(g, x, stride), WEFT_SHAPE(b, positions, out, group));
    mean = weft_mean(g, mean, 1u << 3);
    return weft_add(g, h,
                    weft_value_ok(h) ? weft_reshape(g, mean, weft_value_get(g, h)->shape) : mean);
}

/* ---- the two halves ------------------------------------------------------------------------- */

static int64_t levels_of(const void *config)
{
    const ltx_vae *c = config;
    const bool wide = c->blocks > 0 && c->block[c->blocks - 1]; /* 0.9.5 has the first width, too */
    return c->encoder.widths - wide;
}

/* Frames, rows and columns per output of a level of the encoder. */
static void stride_of(const ltx_vae *c, int64_t level, int64_t stride[3])
{
    const ltx_down how = (ltx_down)c->down[level];
    const bool scales = c->encoder.scales[level];
    stride[0] = scales && how != DOWN_SPACE ? 2 : 1;
    stride[1] = stride[2] = scales && how != DOWN_TIME ? 2 : 1;
}

static weft_value down_block(coder *co, const ltx_vae *c, int64_t level, weft_value x)
{
    const ltx_half *h = &c->encoder;
    const bool last = level + 1 >= h->widths;
    const int64_t width = h->width[level], next = h->width[last ? level : level + 1];
    int64_t stride[3];
    stride_of(c, level, stride);
    x = res_blocks(co, x, h->layers[level]);
    if (h->scales[level])
        x = c->down[level] == DOWN_CONV ? conv(co, "downsamplers.0", x, width, 3, 2)
                                        : shrink(co, x, next, stride);
    return next != width && !c->block[level] ? res_block(co, "conv_out", x, next) : x;
}

/* Means and one log variance for all channels, (B,T,Y,X,Z+1). */
static weft_value encode(weft_graph *g, const ltx_vae *c, weft_value x)
{
    const ltx_half *h = &c->encoder;
    const int64_t levels = levels_of(c);
    coder co = {
        .g = g, .causal = h->causal, .mirrors = h->mirrors, .plain = c->second, .eps = c->eps};
    co.sinusoid = co.rows = WEFT_NONE;
    weft_graph_push(g, "encoder");
    x = conv(&co, "conv_in", weft_nn_pixels_in(g, x, c->patch), h->width[0], 3, 1);
    for (int64_t i = 0; i < levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = down_block(&co, c, i, x);
        weft_graph_pop(g);
    }
    x = mid_block(&co, x, h->layers[levels]);
    x = conv(&co, "conv_out", norm_silu(g, x, WEFT_NONE, 0), c->z + 1, 3, 1);
    weft_graph_pop(g);
    return x;
}

/* Frames, rows and columns that a level of the decoder makes from one. */
static void enlargement(const ltx_vae *c, int64_t level, int64_t stride[3])
{
    const ltx_up how = (ltx_up)c->up[c->decoder.widths - 1 - level];
    const bool scales = c->decoder.scales[level];
    stride[0] = scales && how != UP_SPACE ? 2 : 1;
    stride[1] = stride[2] = scales && how != UP_TIME ? 2 : 1;
}

static weft_value up_block(coder *co, const ltx_vae *c, int64_t level, weft_value x)
{
    const ltx_half *h = &c->decoder;
    const int64_t width = h->width[level] / c->factor[level];
    co->injects = c->injects[level];
    co->rows = time_rows(co, width, 4);
    if (c->factor[level] == 1 && weft_dim(co->g, x, 4) != width)
        x = res_block(co, "conv_in", x, width);
    int64_t stride[3];
    enlargement(c, level, stride);
    if (h->scales[level])
        x = enlarge(co, x, stride, c->factor[level], c->residual[level]);
    return res_blocks(co, x, h->layers[level]);
}

/* Sinusoid of the timestep (B) times its trained factor; `time` WEFT_NONE: decode_timestep. */
static weft_value time_of_decoder(weft_graph *g, const ltx_vae *c, weft_value time)
{
    if (!c->timed)
        return WEFT_NONE;
    const weft_value factor = weft_param(g, "timestep_scale_multiplier", WEFT_F32, WEFT_SCALAR,
                                         (weft_init){.kind = WEFT_INIT_FILL, .value = 1000});
    if (!weft_value_ok(time))
        time = weft_fill(g, WEFT_F32, WEFT_SHAPE(1), c->decode_timestep);
    return weft_nn_sinusoid(g, 256, weft_mul(g, time, factor));
}

static weft_value decode(weft_graph *g, const ltx_vae *c, weft_value x, weft_value time)
{
    const ltx_half *h = &c->decoder;
    coder co = {.g = g,
                .causal = h->causal,
                .mirrors = h->mirrors,
                .plain = c->second,
                .eps = c->eps,
                .injects = c->injects[h->widths]};
    weft_graph_push(g, "decoder");
    co.sinusoid = time_of_decoder(g, c, time);
    x = conv(&co, "conv_in", x, h->width[h->widths - 1], 3, 1);
    x = mid_block(&co, x, h->layers[h->widths]);
    for (int64_t i = 0; i < h->widths; i++) {
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = up_block(&co, c, h->widths - 1 - i, x);
        weft_graph_pop(g);
    }
    weft_value rows = time_rows(&co, weft_dim(g, x, 4), 2);
    rows = weft_value_ok(rows) ? weft_nn_add_table(g, rows, 2) : rows;
    x = norm_silu(g, x, rows, 0);
    x = conv(&co, "conv_out", x, c->out_channels * c->patch * c->patch, 3, 1);
    weft_graph_pop(g);
    return weft_nn_pixels_out(g, x, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

/* Frames (dim 0) or rows (dim 1) that the levels of the encoder turn into one. */
static int64_t reduction(const ltx_vae *c, int dim)
{
    int64_t factor = 1, stride[3];
    for (int64_t i = 0; i < levels_of(c); i++) {
        stride_of(c, i, stride);
        factor *= stride[dim];
    }
    return factor;
}

static int64_t time_of(const void *config)
{
    return reduction(config, 0);
}

static int64_t space_of(const void *config)
{
    return reduction(config, 1) * ((const ltx_vae *)config)->patch;
}

/* Blocks of 0.9.5 have a width after the last level, and widen in their downsampler. */
static weft_status check_encoder(const ltx_vae *c, const weft_config_locations *locations)
{
    const int64_t levels = levels_of(c), *width = c->encoder.width;
    if (levels < 1 || c->blocks < levels)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "down_block_types", c->blocks),
                          "%" PRId64 " levels; at least 1 and the type of each are needed", levels);
    for (int64_t i = 0; i < levels; i++) {
        int64_t stride[3];
        stride_of(c, i, stride);
        const int64_t items = stride[0] * stride[1] * stride[2];
        const bool wide = c->block[c->blocks - 1], moves = c->down[i] != DOWN_CONV;
        if (c->block[i] != wide || (moves && !wide))
            return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                              WEFT_AT_FIELD(locations, "downsample_type", i),
                              "level %" PRId64 " has another kind of block than the last level, or "
                              "a downsampler that its kind does not have",
                              i);
        if (wide &&
            (moves && c->encoder.scales[i] ? width[i + 1] % items || width[i] * items % width[i + 1]
                                           : width[i + 1] != width[i]))
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "block_out_channels", width[i + 1]),
                              "level %" PRId64 " of %" PRId64 " channels cannot have %" PRId64
                              " channels at its end",
                              i, width[i], width[i + 1]);
    }
    return WEFT_OK;
}

/* A level narrows before its upsampler (factor 1) or by its upsampler. The former has no rows of
 * its width in the reference. */
static weft_status check_decoder(const ltx_vae *c, const weft_config_locations *locations)
{
    const ltx_half *h = &c->decoder;
    int64_t before = h->widths > 0 ? h->width[h->widths - 1] : 0;
    for (int64_t i = h->widths - 1; i >= 0; i--) {
        const int64_t factor = c->factor[i];
        int64_t stride[3];
        enlargement(c, i, stride);
        const int64_t items = stride[0] * stride[1] * stride[2];
        if (items % factor || h->width[i] % factor || (c->residual[i] && h->width[i] % items))
            return weft_error(
                WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "upsample_factor", factor),
                "level %" PRId64 " of %" PRId64 " channels cannot be narrowed by %" PRId64, i,
                h->width[i], factor);
        if (before != h->width[i] && (factor > 1 || c->timed || c->injects[i]))
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "decoder_block_out_channels", h->width[i]),
                              "level %" PRId64 " has %" PRId64 " channels, but gets %" PRId64, i,
                              h->width[i], before);
        if (factor > 1 && !h->scales[i])
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "upsample_factor", factor),
                              "level %" PRId64 " has no upsampler, which narrows the channels", i);
        before = h->width[i] / factor;
    }
    return h->widths > 0 ? WEFT_OK
                         : weft_error(WEFT_MSG_MODEL_CONFIG,
                                      WEFT_AT_FIELD(locations, "decoder_block_out_channels", 0),
                                      "at least one level is needed");
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx_vae *c = config;
    int64_t up[2] = {1, 1};
    WEFT_TRY(check_encoder(c, locations));
    WEFT_TRY(check_decoder(c, locations));
    for (int64_t i = 0; i < c->decoder.widths; i++) {
        int64_t stride[3];
        enlargement(c, i, stride);
        up[0] *= stride[0];
        up[1] *= stride[1];
    }
    if (up[0] == time_of(c) && up[1] == reduction(c, 1))
        return WEFT_OK;
    return weft_error(WEFT_MSG_MODEL_CONFIG,
                      WEFT_AT_FIELD(locations, "decoder_spatio_temporal_scaling", up[0]),
                      "the decoder enlarges frames by %" PRId64 " and rows by %" PRId64
                      ", but the encoder reduces frames by %" PRId64 " and rows by %" PRId64,
                      up[0], up[1], time_of(c), reduction(c, 1));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx_vae *c = config;
    if (port == WEFT_PORT_TIMESTEP)
        return c->timed ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const ltx_vae *c = config;
    if (call.kind == WEFT_CALL_DECODE) {
        ports->at[WEFT_PORT_RECONSTRUCTION] =
            decode(g, c, ports->at[WEFT_PORT_LATENTS], ports->at[WEFT_PORT_TIMESTEP]);
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

/* Config of LTX-2 in the form of 0.9.5: the encoder's first width is the latent channels. */
static ltx_vae second(const ltx_vae *config)
{
    ltx_vae c = *config;
    c.second = true;
    for (int64_t i = c.encoder.widths; i > 0; i--)
        c.encoder.width[i] = c.encoder.width[i - 1];
    c.encoder.width[0] = c.z;
    for (int64_t i = 0; i < c.blocks; i++)
        c.block[i] = 1;
    c.encoder.widths++;
    return c;
}

static weft_status check_second(const void *config, const weft_config_locations *locations)
{
    const ltx_vae *c = config;
    if (c->encoder.widths < 1 || c->encoder.widths > MAX_LEVELS || c->blocks < c->encoder.widths)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "down_block_types", c->blocks),
            "%" PRId64 " levels; at least 1 and the type of each are needed", c->encoder.widths);
    const ltx_vae wide = second(c);
    return check(&wide, locations);
}

static void build_second(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const ltx_vae wide = second(config);
    build(g, &wide, call, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const ltx_vae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = space_of(c);
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

static int64_t layers_of(const void *config)
{
    return levels_of(config) + 1;
}

static int64_t decoder_levels_of(const void *config)
{
    return ((const ltx_vae *)config)->decoder.widths;
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
#define BEGINNING \
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"), \
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"), \
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "128", MAX_Z)
#define LAYERS(encoder_layers, decoder_layers) \
    {"layers_per_block", WEFT_FIELD_I64S, AT(encoder.layers), encoder_layers, 1, 64, \
     .capacity = MAX_LEVELS + 1, .length = layers_of, \
     .help = "residual blocks of each level and of the middle"}, \
    {"decoder_layers_per_block", WEFT_FIELD_I64S, AT(decoder.layers), decoder_layers, 1, 64, \
     .capacity = MAX_LEVELS + 1, .length = decoder_layers_of, \
     .help = "residual blocks of each decoder level and of the middle"}
#define SCALING(encoder_scales, decoder_scales, down_type) \
    {"spatio_temporal_scaling", WEFT_FIELD_BOOLS, AT(encoder.scales), encoder_scales, \
     .capacity = MAX_LEVELS, .length = levels_of, \
     .help = "levels that halve frames, rows and columns"}, \
    {"decoder_spatio_temporal_scaling", WEFT_FIELD_BOOLS, AT(decoder.scales), decoder_scales, \
     .capacity = MAX_LEVELS, .length = decoder_levels_of, \
     .help = "levels that double frames, rows and columns"}, \
    {"decoder_inject_noise", WEFT_FIELD_BOOLS, AT(injects), "false", \
     .capacity = MAX_LEVELS + 1, .length = decoder_layers_of, \
     .help = "decoder levels whose residual blocks add noise, and the middle"}, \
    {"downsample_type", WEFT_FIELD_WORDS, AT(down), down_type, \
     .capacity = MAX_LEVELS, .length = levels_of, .words = down_words, \
     .help = "downsampler of each level of the encoder"}
#define UPSAMPLING(residual_of, factor_of) \
    {"upsample_residual", WEFT_FIELD_BOOLS, AT(residual), residual_of, \
     .capacity = MAX_LEVELS, .length = decoder_levels_of, \
     .help = "decoder levels whose upsampler adds its input"}, \
    {"upsample_factor", WEFT_FIELD_I64S, AT(factor), factor_of, 1, 8, \
     .capacity = MAX_LEVELS, .length = decoder_levels_of, \
     .help = "decoder levels: narrowing by the upsampler"}, \
    {"timestep_conditioning", WEFT_FIELD_BOOL, AT(timed), "false", \
     .help = "the decoder is modulated by a timestep"}, \
    {"patch_size", WEFT_FIELD_I64, AT(patch), "4", 1, 16, \
     .help = "side of the square of pixels that becomes channels"}, \
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"}, \
    {"resnet_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1, \
     .help = "epsilon of the norm before a shortcut"}, \
    WEFT_SCALE_FIELD(AT(latents.scale), "1.0"), \
    {"encoder_causal", WEFT_FIELD_BOOL, AT(encoder.causal), "true", \
     .help = "the encoder reads no later frames"}
#define END \
    {"spatial_compression_ratio", WEFT_FIELD_DERIVED, .length = space_of}, \
    {"temporal_compression_ratio", WEFT_FIELD_DERIVED, .length = time_of}, \
    WEFT_STATISTICS_FIELDS(AT(latents), channels_of)
static const weft_field fields[] = {
    BEGINNING,
    {"block_out_channels", WEFT_FIELD_I64S, AT(encoder.width), "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS + 1, .count = AT(encoder.widths),
     .help = "width of each level, for blocks of 0.9.5 also after the last"},
    {"decoder_block_out_channels", WEFT_FIELD_I64S, AT(decoder.width),
     "[128, 256, 512, 512]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(decoder.widths),
     .help = "width of each level of the decoder"},
    {"down_block_types", WEFT_FIELD_WORDS, AT(block),
     "[\"LTXVideoDownBlock3D\", \"LTXVideoDownBlock3D\", \"LTXVideoDownBlock3D\","
     " \"LTXVideoDownBlock3D\"]",
     .capacity = MAX_LEVELS, .count = AT(blocks), .words = block_words,
     .help = "kind of the blocks of the encoder"},
    LAYERS("[4, 3, 3, 3, 4]", "[4, 3, 3, 3, 4]"),
    SCALING("[true, true, true, false]", "[true, true, true, false]", "\"conv\""),
    UPSAMPLING("false", "1"),
    {"decoder_causal", WEFT_FIELD_BOOL, AT(decoder.causal), "false",
     .help = "the decoder reads no later frames"},
    END,
};

static const weft_field fields_second[] = {
    BEGINNING,
    {"block_out_channels", WEFT_FIELD_I64S, AT(encoder.width), "[256, 512, 1024, 2048]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(encoder.widths),
     .help = "width after each level"},
    {"decoder_block_out_channels", WEFT_FIELD_I64S, AT(decoder.width), "[256, 512, 1024]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(decoder.widths),
     .help = "width of each level of the decoder"},
    {"down_block_types", WEFT_FIELD_WORDS, AT(block),
     "[\"LTX2VideoDownBlock3D\", \"LTX2VideoDownBlock3D\", \"LTX2VideoDownBlock3D\","
     " \"LTX2VideoDownBlock3D\"]",
     .capacity = MAX_LEVELS, .count = AT(blocks), .words = block2_words,
     .help = "kind of the blocks of the encoder"},
    LAYERS("[4, 6, 6, 2, 2]", "[5, 5, 5, 5]"),
    SCALING("true", "true",
            "[\"spatial\", \"temporal\", \"spatiotemporal\", \"spatiotemporal\"]"),
    {"upsample_type", WEFT_FIELD_WORDS, AT(up), "\"spatiotemporal\"",
     .capacity = MAX_LEVELS, .length = decoder_levels_of, .words = up_words,
     .help = "upsampler of each level, from the first of the decoder"},
    UPSAMPLING("true", "2"),
    {"decoder_causal", WEFT_FIELD_BOOL, AT(decoder.causal), "true",
     .help = "the decoder reads no later frames"},
    {"encoder_spatial_padding_mode", WEFT_FIELD_WORD, AT(encoder.mirrors), "\"zeros\"",
     .words = padding_words, .help = "around images in the encoder"},
    {"decoder_spatial_padding_mode", WEFT_FIELD_WORD, AT(decoder.mirrors), "\"reflect\"",
     .words = padding_words, .help = "around images in the decoder"},
    END,
};

static const weft_named_config sizes[] = {
    {"ltx-video-vae", "{}"},
    {"ltx-video-0.9.1-vae",
     "{\"decoder_block_out_channels\": [256, 512, 1024],"
     "\"decoder_layers_per_block\": [5, 6, 7, 8],"
     "\"decoder_spatio_temporal_scaling\": [true, true, true],"
     "\"decoder_inject_noise\": [true, true, true, false],"
     "\"upsample_residual\": [true, true, true], \"upsample_factor\": [2, 2, 2],"
     "\"timestep_conditioning\": true}"},
    {"ltx-video-0.9.5-vae",
     "{\"block_out_channels\": [128, 256, 512, 1024, 2048],"
     "\"down_block_types\": [\"LTXVideo095DownBlock3D\", \"LTXVideo095DownBlock3D\","
     "\"LTXVideo095DownBlock3D\", \"LTXVideo095DownBlock3D\"],"
     "\"downsample_type\": [\"spatial\", \"temporal\", \"spatiotemporal\", \"spatiotemporal\"],"
     "\"layers_per_block\": [4, 6, 6, 2, 2], \"spatio_temporal_scaling\": [true, true, true, true],"
     "\"decoder_block_out_channels\": [256, 512, 1024], \"decoder_layers_per_block\": [5, 5, 5, 5],"
     "\"decoder_spatio_temporal_scaling\": [true, true, true],"
     "\"upsample_residual\": [true, true, true], \"upsample_factor\": [2, 2, 2],"
     "\"timestep_conditioning\": true}"},
    {NULL, NULL},
};

/* Key mappings of LTX-Video's own files: 0.9.0, 0.9.1, and from 0.9.5 on. Levels, resamplers and
 * layers that change the width are in one list. The order ensures that no rule matches the result
 * of an earlier rule. */
#define ORIGINAL_NAMES \
    {"res_blocks",                            "resnets"}, \
    {"conv_shortcut",                         "conv_shortcut.conv"}, \
    {"norm3.norm",                            "norm3"}, \
    {"per_channel_statistics.mean-of-means",  "latents_mean"}, \
    {"per_channel_statistics.std-of-means",   "latents_std"}
#define ORIGINAL_ENCODER \
    {"encoder.down_blocks.1",                 "encoder.down_blocks.0.downsamplers.0"}, \
    {"encoder.down_blocks.2",                 "encoder.down_blocks.0.conv_out"}, \
    {"encoder.down_blocks.3",                 "encoder.down_blocks.1"}, \
    {"encoder.down_blocks.4",                 "encoder.down_blocks.1.downsamplers.0"}, \
    {"encoder.down_blocks.5",                 "encoder.down_blocks.1.conv_out"}, \
    {"encoder.down_blocks.6",                 "encoder.down_blocks.2"}, \
    {"encoder.down_blocks.7",                 "encoder.down_blocks.2.downsamplers.0"}, \
    {"encoder.down_blocks.8",                 "encoder.down_blocks.3"}, \
    {"encoder.down_blocks.9",                 "encoder.mid_block"}
#define ORIGINAL_TIMED \
    {"decoder.up_blocks.0",                   "decoder.mid_block"}, \
    {"decoder.up_blocks.1",                   "decoder.up_blocks.0.upsamplers.0"}, \
    {"decoder.up_blocks.2",                   "decoder.up_blocks.0"}, \
    {"decoder.up_blocks.3",                   "decoder.up_blocks.1.upsamplers.0"}, \
    {"decoder.up_blocks.4",                   "decoder.up_blocks.1"}, \
    {"decoder.up_blocks.5",                   "decoder.up_blocks.2.upsamplers.0"}, \
    {"decoder.up_blocks.6",                   "decoder.up_blocks.2"}, \
    {"decoder.up_blocks.7",                   "decoder.up_blocks.3.upsamplers.0"}, \
    {"decoder.up_blocks.8",                   "decoder.up_blocks.3"}, \
    {"decoder.last_time_embedder",            "decoder.time_embedder"}, \
    {"decoder.last_scale_shift_table",        "decoder.scale_shift_table"}
static const weft_rename_rule original[] = {
    ORIGINAL_ENCODER,
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
    ORIGINAL_NAMES,
};
static const weft_rename_rule original091[] = {ORIGINAL_ENCODER, ORIGINAL_TIMED, ORIGINAL_NAMES};
#define ORIGINAL_ENCODER_095 \
    {"encoder.down_blocks.1",                 "encoder.down_blocks.0.downsamplers.0"}, \
    {"encoder.down_blocks.2",                 "encoder.down_blocks.1"}, \
    {"encoder.down_blocks.3",                 "encoder.down_blocks.1.downsamplers.0"}, \
    {"encoder.down_blocks.4",                 "encoder.down_blocks.2"}, \
    {"encoder.down_blocks.5",                 "encoder.down_blocks.2.downsamplers.0"}, \
    {"encoder.down_blocks.6",                 "encoder.down_blocks.3"}, \
    {"encoder.down_blocks.7",                 "encoder.down_blocks.3.downsamplers.0"}, \
    {"encoder.down_blocks.8",                 "encoder.mid_block"}
static const weft_rename_rule original095[] = {
    ORIGINAL_ENCODER_095,
    ORIGINAL_TIMED,
    ORIGINAL_NAMES,
};
/* LTX-2 has the names of 0.9.5, but no inner name in shortcuts. */
static const weft_rename_rule original_second[] = {
    ORIGINAL_ENCODER_095,
    ORIGINAL_TIMED,
    {"res_blocks",                            "resnets"},
    {"per_channel_statistics.mean-of-means",  "latents_mean"},
    {"per_channel_statistics.std-of-means",   "latents_std"},
};
static const weft_key_mapping mappings_second[] = {
    /* the marker is a tensor of HunyuanVideo 1.5 as well, which precedes this family */
    {"diffusers", "encoder.down_blocks.3.downsamplers.0.conv.conv.weight", NULL, 0},
    {"original", "encoder.down_blocks.7.conv.conv.weight", original_second,
     sizeof original_second / sizeof *original_second},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "encoder.down_blocks.0.downsamplers.0.conv.weight", NULL, 0},
    {"diffusers", "decoder.scale_shift_table", NULL, 0},
    {"original", "decoder.up_blocks.9.res_blocks.0.conv1.conv.weight", original,
     sizeof original / sizeof *original},
    /* before 0.9.1, whose marker these files have, too; LTX-2 has the first tensor alone */
    {"original", "encoder.down_blocks.1.conv.conv.weight", original095,
     sizeof original095 / sizeof *original095, .also = "decoder.last_scale_shift_table"},
    {"original", "decoder.last_scale_shift_table", original091,
     sizeof original091 / sizeof *original091},
};
static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO,          false, "sample"},
    {WEFT_PORT_NOISE,          false, "eps"},
    {WEFT_PORT_TIMESTEP,       false, "temb", .optional = true},
    {WEFT_PORT_MEAN,           true,  "mean"},
    {WEFT_PORT_LOGVAR,         true,  "logvar"},
    {WEFT_PORT_RECONSTRUCTION, true,  "sample"},
};

const weft_family weft_family_ltx_vae = {
    .class_name = "AutoencoderKLLTXVideo", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"decoder_causal", "spatio_temporal_scaling"},
    .config_bytes = sizeof(ltx_vae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .decode_timestep = AT(decode_timestep),
    .tile = {{0, 512, 512}, {0, 448, 448}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};

static const weft_named_config sizes_second[] = {
    {"ltx-2-vae", "{}"},
    {NULL, NULL},
};

const weft_family weft_family_ltx2_vae = {
    .class_name = "AutoencoderKLLTX2Video", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"decoder_spatial_padding_mode", "upsample_type"},
    .config_bytes = sizeof(ltx_vae), .field = fields_second,
    .fields = sizeof fields_second / sizeof *fields_second,
    .check = check_second, .sizes = sizes_second,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build_second,
    .grid = grid, .statistics = AT(latents), .decode_timestep = AT(decode_timestep),
    .tile = {{0, 512, 512}, {0, 448, 448}},
    .mapping = mappings_second, .mappings = sizeof mappings_second / sizeof *mappings_second,
};
/* clang-format on */
