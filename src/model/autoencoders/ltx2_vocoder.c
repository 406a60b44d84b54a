/* LTX-2's vocoders (diffusers' LTX2Vocoder and LTX2VocoderWithBWE): a mel spectrogram to a
 * waveform. Parameters have the names of the classes.
 *
 *   generator: conv_in -> levels x (transposed convolution, mean of residual blocks) -> conv_out
 *   2.0: one generator
 *   2.3: a generator at a low rate; the mel spectrogram of its waveform through a second one, plus
 *        the waveform at the high rate (bandwidth extension)
 *
 * Each residual block adds three pairs of convolutions, the first of each pair dilated. Activations
 * are leaky ReLU, or Snake: x + sin(a x)^2 / b. Around Snake the signal may be doubled and halved
 * by a low-pass filter.
 *
 * Shape letters: B batch, S steps of the spectrogram, M mel bins, N samples, C channels. Signals
 * are (B,1,N,1,C) inside. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

#include <math.h>
#include <stdio.h>

enum { MAX_LEVELS = 8, MAX_KERNELS = 8, DILATIONS = 3, MEL_KERNEL = 7 };
enum { LEAKY, SNAKE_BETA, SNAKE }; /* indices of act_words */
enum { TANH, CLAMP, PLAIN };       /* indices of final_words */
static const int64_t dilations[DILATIONS] = {1, 3, 5};
static const double snake_eps = 1e-9, last_slope = 0.01, least_mel = 1e-5;

typedef struct synth {
    int64_t in, hidden, out, levels, kernel[MAX_LEVELS], factors, factor[MAX_LEVELS];
    int64_t kernels, res_kernel[MAX_KERNELS], act, ratio, filter, final_act;
    double slope;
    bool antialias, final_bias;
} synth;

typedef struct ltx2_vocoder {
    synth of, wide; /* wide: the second generator of 2.3 */
    int64_t rate, in_rate, filter, hop, window, bins;
} ltx2_vocoder;
_Static_assert(sizeof(ltx2_vocoder) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* ---- convolutions --------------------------------------------------------------------------- */

static int64_t length_of(const weft_graph *g, weft_value x)
{
    return weft_dim(g, x, 2);
}

/* "NAME", k taps `dilation` samples apart, same length. A dilated convolution is one of each
 * column of a matrix with `dilation` columns. */
static weft_value conv(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k,
                       int64_t dilation, bool bias)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), in = weft_dim(g, x, 4),
                  rows = (length + dilation - 1) / dilation;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)(in * k))};
    const weft_conv_shape shape = {.kernel = {1, k, 1},
                                   .stride = {1, 1, 1},
                                   .before = {0, (k - 1) / 2, 0},
                                   .after = {0, k - 1 - (k - 1) / 2, 0}};
    weft_graph_push(g, "%s", name);
    const weft_nn_layer layer = {
        .weight = weft_reshape(g, weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, k), init),
                               WEFT_SHAPE(out, in, 1, k, 1)),
        .bias = bias ? weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out),
                                  (weft_init){.kind = WEFT_INIT_ZERO})
                     : WEFT_NONE};
    if (rows * dilation > length)
        x = weft_pad(g, x, 2, 0, rows * dilation - length);
    x = weft_nn_conv_by(g, &layer, weft_reshape(g, x, WEFT_SHAPE(batch, 1, rows, dilation, in)),
                        &shape);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, 1, rows * dilation, 1, out));
    weft_graph_pop(g);
    return rows * dilation > length ? weft_slice(g, x, 2, 0, length) : x;
}

/* Transposed convolution "upsamplers.I" to half the channels. Each sample is multiplied by all
 * taps; the products of neighbours overlap. */
static weft_value conv_up(weft_graph *g, int index, weft_value x, int64_t k, int64_t factor)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), in = weft_dim(g, x, 4),
                  out = in / 2, parts = (k + factor - 1) / factor, side = (k - factor) / 2;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)(out * k))};
    weft_graph_push(g, "upsamplers.%d", index);
    weft_value taps = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(in, out, k), init);
    const weft_value bias =
        weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), (weft_init){.kind = WEFT_INIT_ZERO});
    taps = weft_permute(g, taps, (int[]){0, 2, 1});
    if (parts * factor > k)
        taps = weft_pad(g, taps, 1, 0, parts * factor - k);
    taps = weft_reshape(g, taps, WEFT_SHAPE(in, parts * factor * out));
    weft_value all = weft_matmul(g, weft_reshape(g, x, WEFT_SHAPE(batch, length, in)), taps, false,
                                 false),
               sum = WEFT_NONE;
    for (int64_t i = 0; i < parts; i++) {
        weft_value part = weft_slice(g, all, 2, i * factor * out, factor * out);
        part = weft_pad(g, part, 1, i, parts - 1 - i);
        sum = i ? weft_add(g, sum, part) : part;
    }
    sum = weft_reshape(g, sum, WEFT_SHAPE(batch, 1, (length + parts - 1) * factor, 1, out));
    sum = weft_slice(g, sum, 2, side, (length - 1) * factor - 2 * side + k);
    weft_graph_pop(g);
    return weft_add(g, sum, bias);
}

/* ---- low-pass filters ----------------------------------------------------------------------- */

/* x with `factor` times the samples, each channel through `taps` (k). `edge` samples are repeated
 * at both ends; the first `skip` filtered ones are dropped. */
static weft_value filter_up(weft_graph *g, weft_value x, weft_value taps, int64_t factor,
                            int64_t edge, int64_t skip)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), channels = weft_dim(g, x, 4),
                  k = weft_dim(g, taps, 0), parts = (k + factor - 1) / factor,
                  rows = length + 2 * edge + parts - 1;
    const weft_conv_shape shape = {.kernel = {1, parts, 1},
                                   .stride = {1, 1, 1},
                                   .before = {0, parts - 1, 0},
                                   .after = {0, parts - 1, 0}};
    enum { MOST = 64 };
    weft_value part[MOST];
    if (weft_graph_check(g) != WEFT_OK)
        return x;
    if (parts > MOST)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " taps of a filter", k);
    if (parts * factor > k)
        taps = weft_pad(g, taps, 0, 0, parts * factor - k);
    taps = weft_affine(g, weft_reshape(g, taps, WEFT_SHAPE(parts, factor)), (double)factor, 0);
    for (int64_t i = 0; i < parts; i++) /* a convolution has its last tap first */
        part[i] = weft_slice(g, taps, 0, parts - 1 - i, 1);
    taps = weft_permute(g, weft_concat(g, part, (int)parts, 0), (int[]){1, 0});
    const weft_nn_layer layer = {
        .weight = weft_reshape(g, taps, WEFT_SHAPE(factor, 1, 1, parts, 1)), .bias = WEFT_NONE};
    x = weft_nn_pad_edge(g, x, 2, edge, edge);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, 1, length + 2 * edge, channels, 1));
    x = weft_permute(g, weft_nn_conv_by(g, &layer, x, &shape), (int[]){0, 1, 2, 4, 3});
    x = weft_reshape(g, x, WEFT_SHAPE(batch, 1, rows * factor, 1, channels));
    return weft_slice(g, x, 2, skip, length * factor);
}

static weft_value filter_down(weft_graph *g, weft_value x, weft_value taps, int64_t factor)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), channels = weft_dim(g, x, 4),
                  k = weft_dim(g, taps, 0), before = k / 2 + k % 2 - 1, after = k / 2;
    const weft_conv_shape shape = {.kernel = {1, k, 1}, .stride = {1, factor, 1}};
    const weft_nn_layer layer = {.weight = weft_reshape(g, taps, WEFT_SHAPE(1, 1, 1, k, 1)),
                                 .bias = WEFT_NONE};
    x = weft_nn_pad_edge(g, x, 2, before, after);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, 1, length + before + after, channels, 1));
    x = weft_nn_conv_by(g, &layer, x, &shape);
    return weft_reshape(g, x, WEFT_SHAPE(batch, 1, weft_dim(g, x, 2), 1, channels));
}

/* The taps (k) in the file. */
static weft_value taps_of(weft_graph *g, const char *name, int64_t k)
{
    weft_graph_push(g, "%s", name);
    const weft_init init = {.kind = WEFT_INIT_FILL, .value = 1 / (double)k};
    const weft_value taps = weft_param(g, "filter", WEFT_F32, WEFT_SHAPE(1, 1, k), init);
    weft_graph_pop(g);
    return weft_reshape(g, taps, WEFT_SHAPE(k));
}

/* ---- activations ---------------------------------------------------------------------------- */

static weft_value leaky(weft_graph *g, weft_value x, double slope)
{
    return weft_add(g, weft_affine(g, x, slope, 0),
                    weft_affine(g, weft_clamp(g, x, 0, 3e38), 1 - slope, 0));
}

/* exp of a learned vector of the channels. */
static weft_value learned(weft_graph *g, const char *name, int64_t channels)
{
    const weft_init init = {.kind = WEFT_INIT_ZERO};
    return weft_unary(g, WEFT_OP_EXP, weft_param(g, name, WEFT_F32, WEFT_SHAPE(channels), init));
}

static weft_value snake(weft_graph *g, weft_value x, bool has_beta)
{
    const int64_t channels = weft_dim(g, x, 4);
    const weft_value alpha = learned(g, "alpha", channels),
                     beta = has_beta ? learned(g, "beta", channels) : alpha,
                     wave = weft_unary(g, WEFT_OP_SIN, weft_mul(g, x, alpha));
    return weft_add(
        g, x, weft_div(g, weft_unary(g, WEFT_OP_SQUARE, wave), weft_affine(g, beta, 1, snake_eps)));
}

/* Activation "NAME". `filtered`: at `ratio` times the rate. */
static weft_value activate(weft_graph *g, const synth *c, const char *name, weft_value x,
                           int64_t act, double slope, bool filtered)
{
    const int64_t k = c->filter, ratio = c->ratio, edge = k / ratio - 1;
    weft_graph_push(g, "%s", name);
    if (filtered)
        x = filter_up(g, x, taps_of(g, "upsample", k), ratio, edge, edge * ratio + (k - ratio) / 2);
    if (filtered)
        weft_graph_push(g, "act");
    x = act == LEAKY ? leaky(g, x, slope) : snake(g, x, act == SNAKE_BETA);
    if (filtered)
        weft_graph_pop(g);
    if (filtered)
        x = filter_down(g, x, taps_of(g, "downsample", k), ratio);
    weft_graph_pop(g);
    return x;
}

/* ---- generators ----------------------------------------------------------------------------- */

static weft_value res_block(weft_graph *g, const synth *c, int64_t index, weft_value x, int64_t k)
{
    const int64_t channels = weft_dim(g, x, 4);
    char name[32];
    weft_graph_push(g, "resnets.%d", (int)index);
    for (int i = 0; i < DILATIONS; i++) {
        weft_value h = x;
        for (int second = 0; second < 2; second++) {
            snprintf(name, sizeof name, "acts%d.%d", second + 1, i);
            h = activate(g, c, name, h, c->act, c->slope, c->antialias);
            snprintf(name, sizeof name, "convs%d.%d", second + 1, i);
            h = conv(g, name, h, channels, k, second ? 1 : dilations[i], true);
        }
        x = weft_add(g, x, h);
    }
    weft_graph_pop(g);
    return x;
}

/* Spectrogram (B,1,S,1,C M) to a waveform (B,1,N,1,C). */
static weft_value generate(weft_graph *g, const synth *c, weft_value x)
{
    x = conv(g, "conv_in", x, c->hidden, MEL_KERNEL, 1, true);
    for (int64_t i = 0; i < c->levels; i++) {
        if (c->act == LEAKY)
            x = leaky(g, x, c->slope);
        x = conv_up(g, (int)i, x, c->kernel[i], c->factor[i]);
        weft_value sum = WEFT_NONE;
        for (int64_t r = 0; r < c->kernels; r++) {
            const weft_value made = res_block(g, c, i * c->kernels + r, x, c->res_kernel[r]);
            sum = r ? weft_add(g, sum, made) : made;
        }
        x = weft_affine(g, sum, 1 / (double)c->kernels, 0);
    }
    x = c->act == LEAKY ? leaky(g, x, last_slope)
                        : activate(g, c, "act_out", x, SNAKE_BETA, 0, true);
    x = conv(g, "conv_out", x, c->out, MEL_KERNEL, 1, c->final_bias);
    return c->final_act == TANH    ? weft_unary(g, WEFT_OP_TANH, x)
           : c->final_act == CLAMP ? weft_clamp(g, x, -1, 1)
                                   : x;
}

static weft_value spectrogram_in(weft_graph *g, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), channels = weft_dim(g, x, 1),
                  steps = weft_dim(g, x, 2), bins = weft_dim(g, x, 3);
    return weft_reshape(g, weft_permute(g, x, (int[]){0, 2, 1, 3}),
                        WEFT_SHAPE(batch, 1, steps, 1, channels * bins));
}

/* Waveform (B,1,N,1,C) to (B,C,N). */
static weft_value waveform_out(weft_graph *g, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), channels = weft_dim(g, x, 4);
    return weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(batch, length, channels)),
                        (int[]){0, 2, 1});
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const ltx2_vocoder *c = config;
    (void)call;
    const weft_value x = spectrogram_in(g, p->at[WEFT_PORT_SPECTROGRAM]);
    p->at[WEFT_PORT_WAVEFORM] = waveform_out(g, generate(g, &c->of, x));
}

/* ---- bandwidth extension -------------------------------------------------------------------- */

/* Logarithms of the mel spectrogram of x (B,1,N,1,C): (B,1,S,1,C M). A step sees its own and
 * preceding samples. */
static weft_value mel_of(weft_graph *g, const ltx2_vocoder *c, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), length = length_of(g, x), channels = weft_dim(g, x, 4),
                  k = c->filter, waves = k / 2 + 1,
                  left = c->window > c->hop ? c->window - c->hop : 0;
    const weft_init zero = {.kind = WEFT_INIT_ZERO};
    const weft_conv_shape shape = {
        .kernel = {1, k, 1}, .stride = {1, c->hop, 1}, .before = {0, left, 0}};
    weft_graph_push(g, "mel_stft");
    weft_graph_push(g, "stft_fn");
    const weft_value basis =
        weft_param(g, "forward_basis", WEFT_F32, WEFT_SHAPE(2 * waves, 1, k), zero);
    weft_param(g, "inverse_basis", WEFT_F32, WEFT_SHAPE(2 * waves, 1, k), zero); /* not read */
    weft_graph_pop(g);
    const weft_value bins = weft_param(g, "mel_basis", WEFT_F32, WEFT_SHAPE(c->bins, waves), zero);
    weft_graph_pop(g);
    const weft_nn_layer layer = {
        .weight = weft_reshape(g, basis, WEFT_SHAPE(2 * waves, 1, 1, k, 1)), .bias = WEFT_NONE};
    x = weft_nn_conv_by(g, &layer, weft_reshape(g, x, WEFT_SHAPE(batch, 1, length, channels, 1)),
                        &shape);
    const int64_t steps = weft_dim(g, x, 2);
    x = weft_unary(g, WEFT_OP_SQUARE, x);
    x = weft_add(g, weft_slice(g, x, 4, 0, waves), weft_slice(g, x, 4, waves, waves));
    x = weft_reshape(g, weft_unary(g, WEFT_OP_SQRT, x), WEFT_SHAPE(batch, steps * channels, waves));
    x = weft_matmul(g, x, bins, false, true);
    x = weft_unary(g, WEFT_OP_LOG, weft_clamp(g, x, least_mel, 3e38));
    return weft_reshape(g, x, WEFT_SHAPE(batch, 1, steps, 1, channels * c->bins));
}

/* x with `factor` times the samples, by a windowed sinc. */
static weft_value resample(weft_graph *g, weft_value x, int64_t factor)
{
    const double pi = 3.14159265358979323846, rolloff = 0.99, half = 6;
    const int64_t width = (int64_t)ceil(half / rolloff), k = 2 * width * factor + 1;
    float *taps = weft_calloc(k, sizeof *taps);
    if (!taps)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for a filter");
    for (int64_t i = 0; i < k; i++) {
        const double t = ((double)i / (double)factor - (double)width) * rolloff,
                     limited = fmin(fmax(t, -half), half), wave = cos(limited * pi / half / 2),
                     sinc = t == 0 ? 1 : sin(pi * t) / (pi * t); /* NOLINT: exact middle */
        taps[i] = (float)(sinc * wave * wave * rolloff / (double)factor);
    }
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(k), taps);
    weft_free(taps);
    return filter_up(g, x, v, factor, width, 2 * width * factor);
}

static void build_wide(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const ltx2_vocoder *c = config;
    (void)call;
    weft_graph_push(g, "vocoder");
    weft_value x = generate(g, &c->of, spectrogram_in(g, p->at[WEFT_PORT_SPECTROGRAM]));
    weft_graph_pop(g);
    const int64_t length = length_of(g, x), factor = c->rate / c->in_rate;
    if (length % c->hop)
        x = weft_pad(g, x, 2, 0, c->hop - length % c->hop);
    const weft_value mel = mel_of(g, c, x);
    weft_graph_push(g, "bwe_generator");
    const weft_value more = generate(g, &c->wide, mel);
    weft_graph_pop(g);
    x = weft_clamp(g, weft_add(g, more, resample(g, x, factor)), -1, 1);
    p->at[WEFT_PORT_WAVEFORM] = waveform_out(g, weft_slice(g, x, 2, 0, length * factor));
}

/* ---- the families --------------------------------------------------------------------------- */

static weft_status check_synth(const synth *c, const char *prefix,
                               const weft_config_locations *locations)
{
    char key[64];
    snprintf(key, sizeof key, "%supsample_factors", prefix);
    if (c->levels != c->factors || c->levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, c->factors),
                          "%" PRId64 " factors for %" PRId64 " kernels of levels", c->factors,
                          c->levels);
    for (int64_t i = 0; i < c->levels; i++)
        if (c->kernel[i] < c->factor[i])
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, c->factor[i]),
                              "the factor %" PRId64 " exceeds its kernel of %" PRId64, c->factor[i],
                              c->kernel[i]);
    snprintf(key, sizeof key, "%shidden_channels", prefix);
    if (c->hidden % ((int64_t)1 << c->levels))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, c->hidden),
                          "%" PRId64 " channels cannot be halved by each of %" PRId64 " levels",
                          c->hidden, c->levels);
    snprintf(key, sizeof key, "%santialias_kernel_size", prefix);
    if (c->filter < c->ratio)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, c->filter),
                          "%" PRId64 " taps for a ratio of %" PRId64, c->filter, c->ratio);
    return WEFT_OK;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx2_vocoder *c = config;
    return check_synth(&c->of, "", locations);
}

static int64_t product(const synth *c)
{
    int64_t all = 1;
    for (int64_t i = 0; i < c->levels; i++)
        all *= c->factor[i];
    return all;
}

static weft_status check_wide(const void *config, const weft_config_locations *locations)
{
    const ltx2_vocoder *c = config;
    WEFT_TRY(check(config, locations));
    WEFT_TRY(check_synth(&c->wide, "bwe_", locations));
    if (c->rate % c->in_rate)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "output_sampling_rate", c->rate),
            "%" PRId64 " is not a multiple of input_sampling_rate, %" PRId64, c->rate, c->in_rate);
    if (product(&c->wide) != c->rate / c->in_rate * c->hop || c->wide.out != c->of.out)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "bwe_upsample_factors", product(&c->wide)),
                          "the second generator makes %" PRId64 " samples of a step, not the "
                          "%" PRId64 " of hop_length at the higher rate, or other channels",
                          product(&c->wide), c->rate / c->in_rate * c->hop);
    if (c->window != c->filter)
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "window_length", c->window),
                          "%" PRId64 " differs from filter_length, %" PRId64, c->window, c->filter);
    if (c->wide.in != c->of.out * c->bins)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "bwe_in_channels", c->wide.in),
                          "%" PRId64 " is not %" PRId64 " channels of %" PRId64 " mel bins",
                          c->wide.in, c->of.out, c->bins);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx2_vocoder *c = config;
    const int64_t bins = s->width > 0 ? s->width : 1;
    switch (port) {
    case WEFT_PORT_SPECTROGRAM: return WEFT_SHAPE(s->batch, c->of.in / bins, s->height, bins);
    case WEFT_PORT_WAVEFORM:
        return WEFT_SHAPE(s->batch, c->of.out,
                          s->height * product(&c->of) * (c->in_rate ? c->rate / c->in_rate : 1));
    default: return WEFT_SCALAR;
    }
}

static int64_t kernels(const void *config)
{
    return ((const ltx2_vocoder *)config)->of.kernels;
}

static int64_t wide_kernels(const void *config)
{
    return ((const ltx2_vocoder *)config)->wide.kernels;
}

/* clang-format off */
#define AT(member) offsetof(ltx2_vocoder, member)
static const char *const act_words[] = {"\"leaky_relu\"", "\"snakebeta\"", "\"snake\"", NULL};
static const char *const final_words[] = {"\"tanh\"", "\"clamp\"", "null", NULL};
/* Fields of a generator with their defaults. */
#define SYNTH(prefix, m, hidden_, kernels_, factors_, act_, antialias_, final_, bias_, count_) \
    {prefix "in_channels", WEFT_FIELD_I64, AT(m.in), "128", 1, 1 << 16, \
     .help = "mel bins of all channels"}, \
    {prefix "hidden_channels", WEFT_FIELD_I64, AT(m.hidden), hidden_, 2, 1 << 16, \
     .help = "width before the first level, halved by every level"}, \
    {prefix "out_channels", WEFT_FIELD_I64, AT(m.out), "2", 1, 64, \
     .help = "channels of the waveform"}, \
    {prefix "upsample_kernel_sizes", WEFT_FIELD_I64S, AT(m.kernel), kernels_, 1, 1024, \
     .capacity = MAX_LEVELS, .count = AT(m.levels), .help = "taps of each level"}, \
    {prefix "upsample_factors", WEFT_FIELD_I64S, AT(m.factor), factors_, 1, 1024, \
     .capacity = MAX_LEVELS, .count = AT(m.factors), .help = "samples per sample of each level"}, \
    {prefix "resnet_kernel_sizes", WEFT_FIELD_I64S, AT(m.res_kernel), "[3, 7, 11]", 1, 255, \
     .capacity = MAX_KERNELS, .count = AT(m.kernels), \
     .help = "taps of the residual blocks of a level"}, \
    {prefix "resnet_dilations", WEFT_FIELD_EACH, .fallback = "[1, 3, 5]", .length = count_}, \
    {prefix "act_fn", WEFT_FIELD_WORD, AT(m.act), act_, .words = act_words, \
     .help = "activation"}, \
    {prefix "leaky_relu_negative_slope", WEFT_FIELD_F64, AT(m.slope), "0.1", 0, 1, \
     .help = "slope of leaky ReLU below 0"}, \
    {prefix "antialias", WEFT_FIELD_BOOL, AT(m.antialias), antialias_, \
     .help = "activations at a higher rate"}, \
    {prefix "antialias_ratio", WEFT_FIELD_I64, AT(m.ratio), "2", 1, 16, \
     .help = "factor of the higher rate"}, \
    {prefix "antialias_kernel_size", WEFT_FIELD_I64, AT(m.filter), "12", 1, 255, \
     .help = "taps of its low-pass filters"}, \
    {prefix "final_act_fn", WEFT_FIELD_WORD, AT(m.final_act), final_, .words = final_words, \
     .help = "limit of the waveform"}, \
    {prefix "final_bias", WEFT_FIELD_BOOL, AT(m.final_bias), bias_, \
     .help = "bias of the last convolution"}
#define RATE(default_) \
    {"output_sampling_rate", WEFT_FIELD_I64, AT(rate), default_, 1, 1 << 20, \
     .help = "samples of the waveform per second"}
static const weft_field fields[] = {
    SYNTH("", of, "1024", "[16, 15, 8, 4, 4]", "[6, 5, 2, 2, 2]", "\"leaky_relu\"", "false",
          "\"tanh\"", "true", kernels),
    RATE("24000"),
};
static const weft_field wide_fields[] = {
    SYNTH("", of, "1536", "[11, 4, 4, 4, 4, 4]", "[5, 2, 2, 2, 2, 2]", "\"snakebeta\"", "true",
          "null", "false", kernels),
    SYNTH("bwe_", wide, "512", "[12, 11, 4, 4, 4]", "[6, 5, 2, 2, 2]", "\"snakebeta\"", "true",
          "null", "false", wide_kernels),
    {"filter_length", WEFT_FIELD_I64, AT(filter), "512", 2, 1 << 16,
     .help = "samples that a step of the second spectrogram sees"},
    {"hop_length", WEFT_FIELD_I64, AT(hop), "80", 1, 1 << 16,
     .help = "samples per step of the second spectrogram"},
    {"window_length", WEFT_FIELD_I64, AT(window), "512", 1, 1 << 16, .help = "as filter_length"},
    {"num_mel_channels", WEFT_FIELD_I64, AT(bins), "64", 1, 4096,
     .help = "mel bins of the second spectrogram"},
    {"input_sampling_rate", WEFT_FIELD_I64, AT(in_rate), "16000", 1, 1 << 20,
     .help = "samples of the first waveform per second"},
    RATE("48000"),
};

static const weft_named_config sizes[] = {
    {"ltx-2-vocoder", "{}"},
    {NULL, NULL},
};
static const weft_named_config wide_sizes[] = {
    {"ltx-2.3-vocoder", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_SPECTROGRAM, false, "hidden_states"},
    {WEFT_PORT_WAVEFORM,    true,  "sample", .target = "target"},
};

static const weft_rename_rule original[] = {
    {"conv_pre",                  "conv_in"},
    {"conv_post",                 "conv_out"},
    {"act_post",                  "act_out"},
    {"ups",                       "upsamplers"},
    {"resblocks",                 "resnets"},
    {"downsample.lowpass.filter", "downsample.filter"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "resnets.0.convs1.0.weight", NULL, 0},
    {"original", "resblocks.0.convs1.0.weight", original, sizeof original / sizeof *original},
};
static const weft_key_mapping wide_mappings[] = {
    {"diffusers", "bwe_generator.resnets.0.convs1.0.weight", NULL, 0},
    {"original", "bwe_generator.resblocks.0.convs1.0.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_ltx2_vocoder = {
    .class_name = "LTX2Vocoder", .role = WEFT_ROLE_VOCODER,
    .scope = "vocoder", .stem = "diffusion_pytorch_model", .library = "ltx2",
    .config_bytes = sizeof(ltx2_vocoder), .field = fields,
    .fields = sizeof fields / sizeof *fields, .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};

const weft_family weft_family_ltx2_vocoder_wide = {
    .class_name = "LTX2VocoderWithBWE", .role = WEFT_ROLE_VOCODER,
    .scope = "vocoder", .stem = "diffusion_pytorch_model", .library = "ltx2",
    .marks = {"bwe_in_channels", "num_mel_channels"},
    .config_bytes = sizeof(ltx2_vocoder), .field = wide_fields,
    .fields = sizeof wide_fields / sizeof *wide_fields, .check = check_wide, .sizes = wide_sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build_wide,
    .mapping = wide_mappings, .mappings = sizeof wide_mappings / sizeof *wide_mappings,
};
/* clang-format on */
