/* WFVAE, the autoencoder of Open-Sora-Plan 1.3 and 1.5 (its WFVAEModel; WF-VAE, arXiv 2411.17459).
 *
 *     video ─ Haar 3D ─┬─ down1 ── + ── down2 ── + ── mid ── latents
 *                      │           │             │
 *                      └ low bands ┴─ Haar ──────┴ Haar      (energy flow, with "connect_l1", _l2)
 *
 *     latents ─ mid ─┬─ up2 ─┬── up1 ── layer ── + low bands ─ inverse Haar 3D ─ video
 *                    │       └ connect_l1 + low bands ─┴ inverse Haar
 *                    └ connect_l2 ── inverse Haar ┘
 *
 * Both levels halve rows and columns; the second level halves frames, and the first one as well in
 * Open-Sora-Plan 1.5 (8x8x8 and not 4x8x8).
 *
 * Time. Only interpolation in the decoder is not causal. The new frames are mixed from two
 * neighbours, and the right neighbour of a chunk's last frame is in the next chunk. In a stream,
 * each interpolation keeps its last frame, and its output lags by one frame. The energy flow is
 * delayed by one frame as well. The first frame of a video is not interpolated. The last chunk
 * (WEFT_STREAM_LAST) returns the frames that lag.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/halo.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MAX_Z = 64, VIDEO = 3, PIECE = 2 };
static const double eps = 1e-6;
/* The published filters have this value, not 1 / sqrt(8). */
static const double published_share = 0.3536;

typedef struct wfvae {
    int64_t z, width, encoder_blocks, encoder_energy, decoder_blocks, decoder_energy,
        connect_blocks;
    bool attention;
    int64_t linear; /* index of interpolation_words */
    /* indices of the words of each: 1: the first level also halves frames */
    int64_t halves, transforms, doubles, inverts;
    weft_statistics latents;
} wfvae;
_Static_assert(sizeof(wfvae) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Encoder or decoder while its graph is built. */
typedef struct coder {
    weft_graph *g;
    const wfvae *c;
    weft_stream stream;
    bool last; /* the stream ends with this chunk */
    int caches;
} coder;

static bool begins(const coder *co)
{
    return co->stream != WEFT_STREAM_NEXT;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* "<name>.conv" k x k x k that reads preceding frames only; the first frame of a video is repeated
 * before it. `half`: every second position, with zeros after the last row and column. */
static weft_value causal_conv(coder *co, const char *name, weft_value x, int64_t out, int64_t k,
                              bool half)
{
    weft_graph *g = co->g;
    const int64_t step = half ? 2 : 1, before = half ? 0 : k / 2, after = half ? 1 : k / 2;
    const weft_conv_shape shape = {.kernel = {k, k, k},
                                   .stride = {step, step, step},
                                   .before = {0, before, before},
                                   .after = {0, after, after}};
    if (k > 1 && !weft_halo_join(g, co->stream, &co->caches, &x, k - step, true))
        x = weft_nn_pad_edge(g, x, 1, k - 1, 0);
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", x, out, shape, false);
    weft_graph_pop(g);
    return x;
}

static weft_value norm(coder *co, const char *name, weft_value x)
{
    weft_graph_push(co->g, "%s", name);
    x = weft_nn_layer_norm(co->g, "norm", x, eps);
    weft_graph_pop(co->g);
    return x;
}

static weft_value norm_silu(coder *co, const char *name, weft_value x)
{
    return weft_unary(co->g, WEFT_OP_SILU, norm(co, name, x));
}

static weft_value conv_of(coder *co, const char *name, weft_value x, int64_t out, bool images)
{
    return images ? weft_nn_conv_2d(co->g, name, x, out, 3)
                  : causal_conv(co, name, x, out, 3, false);
}

/* Residual block `index` of the scope. `images`: its convolutions are inside each frame. */
static weft_value residual(coder *co, int64_t index, weft_value x, int64_t out, bool images)
{
    weft_graph_push(co->g, "%d", (int)index);
    weft_value h = conv_of(co, "conv1", norm_silu(co, "norm1", x), out, images);
    h = conv_of(co, "conv2", norm_silu(co, "norm2", h), out, images);
    if (weft_dim(co->g, x, 4) != out)
        x = causal_conv(co, "nin_shortcut", x, out, 1, false);
    weft_graph_pop(co->g);
    return weft_add(co->g, x, h);
}

static weft_value residuals(coder *co, int64_t first, int64_t count, weft_value x, int64_t out,
                            bool images)
{
    for (int64_t i = 0; i < count; i++)
        x = residual(co, first + i, x, out, images);
    return x;
}

/* Single-head attention inside each frame, added to x. */
static weft_value attend(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    const weft_shape frames = WEFT_SHAPE(b * t, y * w, c);
    weft_graph_push(g, "1");
    const weft_value h = norm(co, "norm", x);
    static const char *const names[3] = {"q", "k", "v"};
    weft_value qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = weft_reshape(g, causal_conv(co, names[i], h, c, 1, false), frames);
    const weft_value made = weft_reshape(g, weft_nn_attention(g, qkv[0], qkv[1], qkv[2], 1, NULL),
                                         WEFT_SHAPE(b, t, y, w, c));
    const weft_value out = causal_conv(co, "proj_out", made, c, 1, false);
    weft_graph_pop(g);
    return weft_add(g, x, out);
}

/* "mid": to `width` channels, then to `out`. */
static weft_value middle(coder *co, weft_value x, int64_t width, int64_t out)
{
    weft_graph_push(co->g, "mid");
    x = residual(co, 0, x, width, false);
    if (co->c->attention)
        x = attend(co, x);
    x = residual(co, co->c->attention ? 2 : 1, x, out, false);
    weft_graph_pop(co->g);
    return x;
}

/* ---- wavelets ------------------------------------------------------------------------------- */

/* Filters of a Haar transform of 3 channels as a matrix (band, 3) x (frame, row, column, 3);
 * `inverse`: transposed. Each bit of a band's number is an axis along which every second sign
 * changes: from the lowest bit columns, rows and frames, in 2D rows and columns. */
static weft_value filters(weft_graph *g, bool time, bool inverse)
{
    enum { MOST = 8 * VIDEO };
    float matrix[MOST * MOST] = {0};
    const int bands = time ? 8 : 4, n = bands * VIDEO;
    for (int band = 0; band < bands; band++)
        for (int place = 0; place < bands; place++) {
            const int high = time ? band : band >> 1 | (band & 1) << 1, signs = high & place;
            const int odd = (signs ^ signs >> 1 ^ signs >> 2) & 1;
            const double share = time ? published_share : 0.5;
            for (int c = 0; c < VIDEO; c++) {
                const int at[2] = {band * VIDEO + c, place * VIDEO + c};
                matrix[at[inverse] * n + at[!inverse]] = (float)(odd ? -share : share);
            }
        }
    return weft_constant(g, WEFT_F32, WEFT_SHAPE(n, n), matrix);
}

/* x (B,T,Y,X,3) to bands (B,T',Y/2,X/2,24), or 12 without `time`. The first frame of a video is
 * counted twice. */
static weft_value to_bands(coder *co, weft_value x, bool time)
{
    weft_graph *g = co->g;
    const weft_nn_layer haar = {"haar", filters(g, time, false), WEFT_NONE};
    if (time && begins(co))
        x = weft_nn_pad_edge(g, x, 1, 1, 0);
    return weft_nn_linear_by(g, &haar, weft_nn_fold(g, x, (int64_t[]){time ? 2 : 1, 2, 2}));
}

/* Inverse of to_bands. Of the two frames of a video's first frame of bands, the second remains. */
static weft_value from_bands(coder *co, weft_value x, bool time)
{
    weft_graph *g = co->g;
    const weft_nn_layer haar = {"haar", filters(g, time, true), WEFT_NONE};
    const int64_t size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)},
                  patch[3] = {time ? 2 : 1, 2, 2};
    x = weft_reshape(g, weft_nn_linear_by(g, &haar, x),
                     WEFT_SHAPE(weft_dim(g, x, 0), size[0] * size[1] * size[2], weft_dim(g, x, 4)));
    x = weft_nn_unpatch(g, x, size, patch);
    return time && begins(co) ? weft_slice(g, x, 1, 1, 2 * size[0] - 1) : x;
}

static weft_value low_bands(weft_graph *g, weft_value bands)
{
    return weft_slice(g, bands, 4, 0, VIDEO);
}

/* Adds `low` to the low band. */
static weft_value add_low(weft_graph *g, weft_value bands, weft_value low)
{
    const int64_t c = weft_dim(g, bands, 4);
    const weft_value part[2] = {weft_add(g, low_bands(g, bands), low),
                                weft_slice(g, bands, 4, VIDEO, c - VIDEO)};
    return weft_concat(g, part, 2, 4);
}

/* ---- interpolation -------------------------------------------------------------------------- */

static weft_value mix(weft_graph *g, weft_value near, weft_value far)
{
    return weft_add(g, weft_affine(g, near, 0.75, 0), weft_affine(g, far, 0.25, 0));
}

/* Items of a and b in turn along `dim`. */
static weft_value interleave(weft_graph *g, weft_value a, weft_value b, int dim)
{
    if (!weft_value_ok(a))
        return a;
    weft_shape made = weft_value_get(g, a)->shape;
    int64_t before = 1, after = 1;
    for (int d = 1; d < dim; d++)
        before *= made.dim[d];
    for (int d = dim + 1; d < made.rank; d++)
        after *= made.dim[d];
    const weft_shape single = WEFT_SHAPE(made.dim[0], before * made.dim[dim], 1, after);
    const weft_value part[2] = {weft_reshape(g, a, single), weft_reshape(g, b, single)};
    made.dim[dim] *= 2;
    return weft_reshape(g, weft_concat(g, part, 2, 2), made);
}

/* The two values between each two neighbours along `dim`: n - 1 pairs. */
static weft_value between(weft_graph *g, weft_value x, int dim)
{
    const int64_t n = weft_dim(g, x, dim);
    const weft_value a = weft_slice(g, x, dim, 0, n - 1), b = weft_slice(g, x, dim, 1, n - 1);
    return interleave(g, mix(g, a, b), mix(g, b, a), dim);
}

/* Doubles a dim by linear interpolation; values at both ends are repeated. */
static weft_value twice(weft_graph *g, weft_value x, int dim)
{
    const int64_t n = weft_dim(g, x, dim);
    const weft_value first = weft_slice(g, x, dim, 0, 1), last = weft_slice(g, x, dim, n - 1, 1);
    if (n == 1)
        return weft_concat(g, (weft_value[]){x, x}, 2, dim);
    return weft_concat(g, (weft_value[]){first, between(g, x, dim), last}, 3, dim);
}

static weft_value repeat_frames(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t t = weft_dim(g, x, 1), pairs[3] = {2, 1, 1};
    if (!begins(co))
        return weft_nn_repeat(g, x, pairs);
    if (t == 1)
        return x;
    const weft_value part[2] = {weft_slice(g, x, 1, 0, 1),
                                weft_nn_repeat(g, weft_slice(g, x, 1, 1, t - 1), pairs)};
    return weft_concat(g, part, 2, 1);
}

/* Doubles the frames after the first. By interpolation, the result lags by one frame in a
 * stream. */
static weft_value double_frames(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    if (!co->c->linear)
        return repeat_frames(co, x);
    weft_halo_join(g, co->stream, &co->caches, &x, 1, true);
    const int64_t t = weft_dim(g, x, 1);
    weft_value part[3];
    int count = 0;
    if (begins(co) && t == 1)
        return x;
    if (begins(co)) /* the first frame, which is never mixed, and the second */
        part[count++] = weft_slice(g, x, 1, 0, 2);
    if (!begins(co) || t > 2)
        part[count++] = between(g, begins(co) ? weft_slice(g, x, 1, 1, t - 1) : x, 1);
    if (co->stream == WEFT_STREAM_ALONE || co->last)
        part[count++] = weft_slice(g, x, 1, t - 1, 1);
    return count > 1 ? weft_concat(g, part, count, 1) : part[0];
}

/* Delays a stream by one frame, as double_frames does. */
static weft_value delay(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    if (!co->c->linear || co->stream == WEFT_STREAM_ALONE)
        return x;
    weft_halo_join(g, co->stream, &co->caches, &x, 1, true);
    return co->last ? x : weft_slice(g, x, 1, 0, weft_dim(g, x, 1) - 1);
}

/* Layer `index`, which doubles rows, columns and the frames after the first. */
static weft_value double_all(coder *co, int64_t index, weft_value x)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "%d", (int)index);
    x = twice(g, twice(g, double_frames(co, x), 2), 3);
    x = causal_conv(co, "conv", x, weft_dim(g, x, 4), 3, false);
    weft_graph_pop(g);
    return x;
}

static weft_value double_images(coder *co, int64_t index, weft_value x)
{
    weft_graph *g = co->g;
    weft_graph_push(g, "%d", (int)index);
    x = weft_nn_repeat(g, x, (int64_t[]){1, 2, 2});
    x = weft_nn_conv_2d(g, "conv", x, weft_dim(g, x, 4), 3);
    weft_graph_pop(g);
    return x;
}

/* Layer `index`, which halves rows and columns, and with `time` frames. */
static weft_value halve(coder *co, int64_t index, weft_value x, bool time)
{
    weft_graph *g = co->g;
    const weft_conv_shape images = {.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .after = {0, 1, 1}};
    const int64_t width = weft_dim(g, x, 4);
    weft_graph_push(g, "%d", (int)index);
    x = time ? causal_conv(co, "conv", x, width, 3, true)
             : weft_nn_conv(g, "conv", x, width, images, true);
    weft_graph_pop(g);
    return x;
}

/* ---- the two halves ------------------------------------------------------------------------- */

/* video (B,T,Y,X,3) to mean and log variance (B,T',Y/8,X/8,2 z). */
static weft_value encode(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const wfvae *c = co->c;
    const int64_t n = c->encoder_blocks, w = c->width;
    const bool time = c->halves;
    weft_graph_push(g, "encoder");
    const weft_value bands = to_bands(co, x, true);
    const weft_value energy = to_bands(co, low_bands(g, bands), time);
    const weft_value deeper = to_bands(co, low_bands(g, energy), true);
    weft_graph_push(g, "down1");
    x = residuals(co, 1, n, weft_nn_conv_2d(g, "0", bands, w, 3), w, true);
    x = halve(co, n + 1, x, time);
    weft_graph_pop(g);
    const weft_value l1 = weft_nn_conv_2d(g, "connect_l1", energy, c->encoder_energy, 3);
    x = weft_concat(g, (weft_value[]){x, l1}, 2, 4);
    weft_graph_push(g, "down2");
    x = residuals(co, 1, n, weft_nn_conv_2d(g, "0", x, 2 * w, 3), 2 * w, false);
    x = halve(co, n + 1, x, true);
    weft_graph_pop(g);
    const weft_value l2 = weft_nn_conv_2d(g, "connect_l2", deeper, c->encoder_energy, 3);
    x = middle(co, weft_concat(g, (weft_value[]){x, l2}, 2, 4), 4 * w, 4 * w);
    x = causal_conv(co, "conv_out", norm_silu(co, "norm_out", x), 2 * c->z, 3, false);
    weft_graph_pop(g);
    return x;
}

/* Bands of the energy flow, which are the last channels of *x. *x keeps its other channels. */
static weft_value split_energy(coder *co, const char *name, weft_value *x, int64_t bands)
{
    weft_graph *g = co->g;
    const int64_t energy = co->c->decoder_energy, width = weft_dim(g, *x, 4) - energy;
    char last[32];
    snprintf(last, sizeof last, "%d", (int)co->c->connect_blocks);
    weft_graph_push(g, "%s", name);
    weft_value e =
        residuals(co, 0, co->c->connect_blocks, weft_slice(g, *x, 4, width, energy), energy, false);
    e = weft_nn_conv_2d(g, last, e, bands, 3);
    weft_graph_pop(g);
    *x = weft_slice(g, *x, 4, 0, width);
    return e;
}

/* latents (B,T',Y,X,z) to video (B,T,8 Y,8 X,3), not clamped. */
static weft_value decode(coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const wfvae *c = co->c;
    const int64_t n = c->decoder_blocks, w = c->width;
    const bool time = c->halves;
    weft_graph_push(g, "decoder");
    x = causal_conv(co, "conv_in", x, 4 * w, 3, false);
    x = middle(co, x, 4 * w, 4 * w + c->decoder_energy);
    const weft_value deeper = split_energy(co, "connect_l2", &x, 24);
    weft_graph_push(g, "up2");
    x = residuals(co, 0, n, x, 4 * w, false);
    x = residual(co, n + 1, double_all(co, n, x), 4 * w + c->decoder_energy, false);
    weft_graph_pop(g);
    weft_value energy = split_energy(co, "connect_l1", &x, time ? 24 : 12);
    energy = add_low(g, energy, delay(co, from_bands(co, deeper, true)));
    weft_value low = from_bands(co, energy, time);
    weft_graph_push(g, "up1");
    x = residuals(co, 0, n, x, 2 * w, false);
    x = residual(co, n + 1, time ? double_all(co, n, x) : double_images(co, n, x), 2 * w, false);
    weft_graph_pop(g);
    weft_graph_push(g, "layer");
    x = residuals(co, 0, 2, x, w, false);
    weft_graph_pop(g);
    x = weft_nn_conv_2d(g, "conv_out", norm_silu(co, "norm_out", x), 8 * VIDEO, 3);
    if (time)
        low = delay(co, low);
    x = from_bands(co, add_low(g, x, low), true);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const wfvae *c = config;
    if (c->halves != c->transforms || c->halves != c->doubles || c->halves != c->inverts)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "l1_dowmsample_block", c->halves),
                          "the first level must halve frames in all of \"l1_dowmsample_block\", "
                          "\"l1_downsample_wavelet\", \"l1_upsample_block\" and "
                          "\"l1_upsample_wavelet\", or in none");
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    return weft_autoencoder_shape(s, port, VIDEO, ((const wfvae *)config)->z);
}

static int64_t time_of(const wfvae *c)
{
    return c->halves ? 8 : 4;
}

/* Fails if the video is not 1 + n frames of latents, or its sides are not whole latents. */
static bool fits(weft_graph *g, const coder *co, weft_value x)
{
    const int64_t frames = weft_dim(g, x, 1), lone = begins(co), factor = time_of(co->c);
    if (!weft_value_ok(x))
        return false;
    if ((frames - lone) % factor || weft_dim(g, x, 2) % 8 || weft_dim(g, x, 3) % 8) {
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "the VAE takes %s%" PRId64
                        " n frames of multiples of 8 pixels, not %" PRId64 " of %" PRId64
                        "x%" PRId64,
                        lone ? "1 + " : "", factor, frames, weft_dim(g, x, 3), weft_dim(g, x, 2));
        return false;
    }
    return true;
}

/* The encoder outputs the mean and the log variance, which is clamped to [-30, 20]. */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    coder co = {.g = g, .c = config, .stream = call.stream};
    if (call.stream == WEFT_STREAM_LAST) {
        co.stream = WEFT_STREAM_NEXT;
        co.last = true;
    }
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, ports->at[WEFT_PORT_LATENTS]);
    else if (fits(g, &co, ports->at[WEFT_PORT_VIDEO]))
        weft_ports_set_posterior(g, encode(&co, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const wfvae *c = config;
    grid->factor[0] = time_of(c);
    grid->factor[1] = grid->factor[2] = 8;
    grid->causal = true;
    grid->piece = PIECE;
    grid->lag = c->linear ? (c->halves ? 6 : 2) : 0;
    grid->channels = grid->out_channels = c->z;
}

static int64_t channels_of(const void *config)
{
    return ((const wfvae *)config)->z;
}

/* clang-format off */
#define AT(member) offsetof(wfvae, member)
static const char *const interpolation_words[] = {"\"nearest\"", "\"trilinear\"", NULL};
static const char *const halving_words[] = {
    "\"Downsample\"", "\"Spatial2xTime2x3DDownsample\"", NULL};
static const char *const doubling_words[] = {"\"Upsample\"", "\"Spatial2xTime2x3DUpsample\"", NULL};
static const char *const transform_words[] = {
    "\"HaarWaveletTransform2D\"", "\"HaarWaveletTransform3D\"", NULL};
static const char *const inverse_words[] = {
    "\"InverseHaarWaveletTransform2D\"", "\"InverseHaarWaveletTransform3D\"", NULL};
static const weft_field fields[] = {
    {"latent_dim", WEFT_FIELD_I64, AT(z), "8", 1, MAX_Z, .help = "latent channels"},
    {"base_channels", WEFT_FIELD_I64, AT(width), "128", 1, 65536,
     .help = "width of the first level; deeper levels have 2 and 4 times the width"},
    {"encoder_num_resblocks", WEFT_FIELD_I64, AT(encoder_blocks), "2", 0, 64,
     .help = "residual blocks of each of the encoder's levels"},
    {"encoder_energy_flow_hidden_size", WEFT_FIELD_I64, AT(encoder_energy), "64", 1, 65536,
     .help = "channels of the energy flow into the encoder"},
    {"decoder_num_resblocks", WEFT_FIELD_I64, AT(decoder_blocks), "2", 1, 64,
     .help = "residual blocks of each of the decoder's levels"},
    {"decoder_energy_flow_hidden_size", WEFT_FIELD_I64, AT(decoder_energy), "128", 1, 65536,
     .help = "channels of the energy flow out of the decoder"},
    {"connect_res_layer_num", WEFT_FIELD_I64, AT(connect_blocks), "1", 0, 64,
     .help = "residual blocks of the energy flow out of the decoder"},
    {"use_attention", WEFT_FIELD_BOOL, AT(attention), "true",
     .help = "attention inside each frame in the middle block"},
    {"attention_type", WEFT_FIELD_FIXED, .fallback = "\"AttnBlock3DFix\""},
    /* The authors' default is "groupnorm", whose layers have other names. All published models have
     * layer norms. */
    {"norm_type", WEFT_FIELD_FIXED, .fallback = "\"layernorm\""},
    {"t_interpolation", WEFT_FIELD_WORD, AT(linear), "\"nearest\"", .words = interpolation_words,
     .help = "how the decoder doubles frames"},
    {"l1_dowmsample_block", WEFT_FIELD_WORD, AT(halves), "\"Downsample\"", .words = halving_words,
     .help = "whether the first level also halves frames"},
    {"l1_downsample_wavelet", WEFT_FIELD_WORD, AT(transforms), "\"HaarWaveletTransform2D\"",
     .words = transform_words, .help = "must agree with l1_dowmsample_block"},
    {"l1_upsample_block", WEFT_FIELD_WORD, AT(doubles), "\"Upsample\"", .words = doubling_words,
     .help = "must agree with l1_dowmsample_block"},
    {"l1_upsample_wavelet", WEFT_FIELD_WORD, AT(inverts), "\"InverseHaarWaveletTransform2D\"",
     .words = inverse_words, .help = "must agree with l1_dowmsample_block"},
    {"l2_dowmsample_block", WEFT_FIELD_FIXED, .fallback = "\"Spatial2xTime2x3DDownsample\""},
    {"l2_downsample_wavelet", WEFT_FIELD_FIXED, .fallback = "\"HaarWaveletTransform3D\""},
    {"l2_upsample_block", WEFT_FIELD_FIXED, .fallback = "\"Spatial2xTime2x3DUpsample\""},
    {"l2_upsample_wavelet", WEFT_FIELD_FIXED, .fallback = "\"InverseHaarWaveletTransform3D\""},
    {"scale", WEFT_FIELD_F64S, AT(latents.deviation), "0.18215", 1e-30, 1e30,
     .capacity = WEFT_MAX_CHANNELS, .length = channels_of, .spread = true,
     .help = "factor on each latent channel"},
    {"shift", WEFT_FIELD_F64S, AT(latents.mean), "0", .capacity = WEFT_MAX_CHANNELS,
     .length = channels_of, .spread = true,
     .help = "value subtracted from each latent channel before the factor"},
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
};

static const weft_named_config sizes[] = {
    {"opensoraplan-1.5-vae",
     "{\"t_interpolation\": \"trilinear\", \"latent_dim\": 32, \"base_channels\": 160, "
     "\"encoder_energy_flow_hidden_size\": 128, "
     "\"l1_dowmsample_block\": \"Spatial2xTime2x3DDownsample\", "
     "\"l1_downsample_wavelet\": \"HaarWaveletTransform3D\", "
     "\"l1_upsample_block\": \"Spatial2xTime2x3DUpsample\", "
     "\"l1_upsample_wavelet\": \"InverseHaarWaveletTransform3D\", "
     "\"scale\": [0.7031, 0.7109, 1.5391, 1.2969, 0.7109, 1.4141, 1.3828, 2.1719, 1.7266, 1.8281, "
     "1.9141, 1.2031, 0.6875, 0.9609, 1.6484, 1.1875, 1.5312, 1.1328, 0.8828, 0.6836, 0.8828, "
     "0.9219, 1.6953, 1.4453, 1.5312, 0.6836, 0.7656, 0.8242, 1.2344, 1.0312, 1.7266, 0.9492], "
     "\"shift\": [-0.2129, 0.1226, 1.6328, 0.6211, -0.8750, 0.6172, -0.5703, 0.1348, -0.2178, "
     "-0.9375, 0.3184, 0.3281, -0.0544, -0.1826, -0.2812, 0.4355, 0.1621, -0.2578, 0.7148, "
     "-0.7422, -0.2295, -0.2324, -1.4922, 0.6328, 1.1250, -0.2578, -2.1094, 1.0391, 1.1797, "
     "-1.2422, -0.2988, -0.9570]}"},
    {"opensoraplan-1.3-vae", "{\"t_interpolation\": \"trilinear\", \"connect_res_layer_num\": 2}"},
    {NULL, NULL},
};

/* The authors' files have the wavelets' filters, which are constants here. */
static const weft_rename_rule original[] = {
    {"encoder.wavelet_transform_in", ""},
    {"encoder.wavelet_transform_l1", ""},
    {"encoder.wavelet_transform_l2", ""},
    {"decoder.inverse_wavelet_transform_out", ""},
    {"decoder.inverse_wavelet_transform_l1", ""},
    {"decoder.inverse_wavelet_transform_l2", ""},
};
static const weft_key_mapping mappings[] = {
    {"original", "encoder.connect_l1.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_wfvae = {
    .class_name = "WFVAEModel", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "weft",
    .marks = {"l1_dowmsample_block", "encoder_energy_flow_hidden_size"},
    .config_bytes = sizeof(wfvae), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .factors = true,
    .tile = {{0, 256, 256}, {0, 192, 192}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
