/* Z-Image transformers (diffusers' ZImageTransformer2DModel). Parameters have the names of the
 * public checkpoints. A token is a patch of latents, channels fastest.
 *
 *   latents --patch, linear--> x (B,S,C); text --norm, linear--> y (B,L,C)
 *   timestep --MLP--> temb (B,W)
 *   noise_refiner on x, context_refiner on y without modulation, then layers on both
 *   x --> norm, scale, project --> prediction
 *
 * Both streams are padded to multiples of 32 tokens by a learned token, which is attended to.
 * Only tokens after a text's own multiple are hidden. Positions (frame, row, column): texts count
 * frames from 1, and the image has the frame after its text. The padding of the image is at 0.
 * Shape letters: B batch, S image tokens, L text tokens, C width, W width of temb, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

enum { MULTIPLE = 32, TIME = 256, IMAGE = 0, TEXT = 1, STREAMS = 2, GATES = 4 };

typedef struct z_image {
    int64_t patch, in_channels, width, layers, refiners, heads, text_dim, time_inner;
    int64_t axes[3];
    double eps, theta, time_scale;
} z_image;
_Static_assert(sizeof(z_image) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static const double head_eps = 1e-5, last_eps = 1e-6;

static int64_t inner_of(const z_image *c)
{
    return (int64_t)((double)c->width / 3 * 8);
}

static int64_t temb_width(const z_image *c)
{
    return c->width < TIME ? c->width : TIME;
}

static int64_t padded(int64_t tokens)
{
    return (tokens + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Angles of the pairs of axis `d` at positions (B or 1,N): (B or 1,N,pairs). */
static weft_value angles(weft_graph *g, const z_image *c, weft_value at_bn, int d)
{
    const int64_t pairs = c->axes[d] / 2;
    const weft_shape shape = WEFT_SHAPE(weft_dim(g, at_bn, 0), weft_dim(g, at_bn, 1), 1);
    float *f = weft_calloc(pairs + 1, sizeof *f);
    if (!f)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for frequencies");
    for (int64_t i = 0; i < pairs; i++)
        f[i] = (float)pow(c->theta, -2 * (double)i / (double)c->axes[d]);
    const weft_value frequencies = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, pairs), f);
    weft_free(f);
    return weft_mul(g, weft_reshape(g, at_bn, shape), frequencies);
}

/* cos and sin (B or 1,N,1,D/2) of positions on the three axes. */
static void rope_of(weft_graph *g, const z_image *c, const weft_value at[3],
                    weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    weft_value part[3];
    for (int d = 0; d < 3; d++)
        part[d] = angles(g, c, at[d], d);
    const int64_t batch = weft_dim(g, part[0], 0), count = weft_dim(g, part[0], 1);
    for (int d = 1; d < 3; d++)
        part[d] = weft_broadcast(g, part[d], WEFT_SHAPE(batch, count, c->axes[d] / 2));
    weft_value angle = weft_concat(g, part, 3, 2);
    angle = weft_reshape(g, angle, WEFT_SHAPE(batch, count, 1, weft_dim(g, angle, 2)));
    cos_sin[0] = weft_unary(g, WEFT_OP_COS, angle);
    cos_sin[1] = weft_unary(g, WEFT_OP_SIN, angle);
}

/* 0, 1, ... (1,count), each divided by `by` and reduced modulo `modulo`; 0 after `real`. */
static weft_value count_up(weft_graph *g, int64_t count, int64_t real, int64_t by, int64_t modulo)
{
    float *at = weft_calloc(count, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t i = 0; i < real; i++)
        at[i] = (float)(i / by % modulo);
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, count), at);
    weft_free(at);
    return v;
}

/* Length of each text, up to a multiple of 32: (B,1). Without a mask every text has all tokens:
 * (1,1). */
static weft_value own_length(weft_graph *g, weft_value mask, int64_t text)
{
    if (!weft_value_ok(mask))
        return weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1), (double)padded(text));
    const weft_value length = weft_sum(g, weft_cast(g, mask, WEFT_F32), 1u << 1);
    weft_value blocks = WEFT_NONE;
    for (int64_t i = 0; i < text; i += MULTIPLE) {
        const weft_value begun = weft_clamp(g, weft_affine(g, length, 1, -(double)i), 0, 1);
        blocks = weft_value_ok(blocks) ? weft_add(g, blocks, begun) : begun;
    }
    return weft_affine(g, blocks, MULTIPLE, 0);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* The tokens of a block: one stream, or both. */
typedef struct streams {
    weft_value x[STREAMS], rope[STREAMS][WEFT_MAX_OUTPUTS];
    weft_value hide[STREAMS]; /* bias of the keys (B,N), or WEFT_NONE */
    weft_value temb_bw;
} streams;

static void attend(weft_graph *g, const z_image *c, const streams *s, int from, int to,
                   weft_value *h)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"}, *const norms[] = {"norm_q",
                                                                                   "norm_k"};
    weft_nn_layer layer[3], norm[2];
    weft_value qkv[3][STREAMS], bias[STREAMS];
    const int count = to - from;
    weft_graph_push(g, "attention");
    for (int i = 0; i < 3; i++)
        layer[i] = weft_nn_linear_of(g, names[i], c->width, c->width, false, WEFT_LINEAR_XAVIER);
    for (int i = 0; i < 2; i++)
        norm[i] = weft_nn_norm_of(g, norms[i], c->width / c->heads, false);
    const weft_nn_layer out =
        weft_nn_linear_of(g, "to_out.0", c->width, c->width, false, WEFT_LINEAR_XAVIER);
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < 3; i++) {
            qkv[i][k] = weft_nn_split_heads(g, weft_nn_linear_by(g, &layer[i], h[k]), c->heads);
            if (i < 2)
                qkv[i][k] = weft_nn_rope(g, weft_nn_rms_norm_by(g, &norm[i], qkv[i][k], head_eps),
                                         s->rope[from + k], false);
        }
        bias[k] = s->hide[from + k];
        if (count > 1 && !weft_value_ok(bias[k]))
            bias[k] =
                weft_fill(g, WEFT_F32, WEFT_SHAPE(weft_dim(g, h[k], 0), weft_dim(g, h[k], 1)), 0);
    }
    const weft_value all = count > 1 ? weft_concat(g, bias, count, 1) : bias[0];
    weft_nn_attend_jointly(g, count, qkv[0], qkv[1], qkv[2], all, h);
    for (int k = 0; k < count; k++)
        h[k] = weft_nn_linear_by(g, &out, weft_nn_join_heads(g, h[k]));
    weft_graph_pop(g);
}

/* tanh of a gate row */
static weft_value gate(weft_graph *g, weft_value mod, int64_t row)
{
    return weft_unary(g, WEFT_OP_TANH, weft_nn_row(g, mod, row));
}

/* x + [gate] norm2(h) */
static weft_value added(weft_graph *g, const weft_nn_layer *norm, double eps, weft_value x,
                        weft_value h, weft_value gate_b1c)
{
    h = weft_nn_rms_norm_by(g, norm, h, eps);
    return weft_add(g, x, weft_value_ok(gate_b1c) ? weft_mul(g, h, gate_b1c) : h);
}

/* Runs one block on the streams [from, to). */
static void block(weft_graph *g, const z_image *c, streams *s, int from, int to, bool modulated)
{
    static const char *const norms[] = {"attention_norm1", "attention_norm2", "ffn_norm1",
                                        "ffn_norm2"};
    const int64_t inner = inner_of(c);
    weft_nn_layer norm[GATES], w[3];
    weft_value h[STREAMS], mod = WEFT_NONE, gates[2] = {WEFT_NONE, WEFT_NONE};
    if (modulated) {
        mod = weft_nn_linear(g, "adaLN_modulation.0", s->temb_bw, GATES * c->width,
                             WEFT_LINEAR_XAVIER);
        mod = weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, s->temb_bw, 0), GATES, c->width));
        gates[0] = gate(g, mod, 1);
        gates[1] = gate(g, mod, 3);
    }
    for (int i = 0; i < GATES; i++)
        norm[i] = weft_nn_norm_of(g, norms[i], c->width, false);
    weft_graph_push(g, "feed_forward");
    w[0] = weft_nn_linear_of(g, "w1", c->width, inner, false, WEFT_LINEAR_XAVIER);
    w[1] = weft_nn_linear_of(g, "w2", inner, c->width, false, WEFT_LINEAR_XAVIER);
    w[2] = weft_nn_linear_of(g, "w3", c->width, inner, false, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    for (int half = 0; half < 2; half++) {
        for (int k = from; k < to; k++) {
            h[k - from] = weft_nn_rms_norm_by(g, &norm[2 * half], s->x[k], c->eps);
            if (modulated)
                h[k - from] =
                    weft_mul(g, h[k - from], weft_affine(g, weft_nn_row(g, mod, 2 * half), 1, 1));
        }
        if (!half)
            attend(g, c, s, from, to, h);
        for (int k = 0; half && k < to - from; k++) {
            weft_graph_push(g, "feed_forward");
            const weft_value up = weft_unary(g, WEFT_OP_SILU, weft_nn_linear_by(g, &w[0], h[k]));
            h[k] = weft_nn_linear_by(g, &w[1], weft_mul(g, up, weft_nn_linear_by(g, &w[2], h[k])));
            weft_graph_pop(g);
        }
        for (int k = from; k < to; k++)
            s->x[k] = added(g, &norm[2 * half + 1], c->eps, s->x[k], h[k - from], gates[half]);
    }
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value embed_time(weft_graph *g, const z_image *c, weft_value time)
{
    /* here 1000 is noise and 0 is clean; in the reference 0 is noise and 1 is clean */
    const weft_value own = weft_affine(g, time, -c->time_scale / 1000, c->time_scale);
    weft_graph_push(g, "t_embedder");
    weft_value h = weft_nn_linear(g, "mlp.0", weft_nn_sinusoid(g, TIME, own), c->time_inner,
                                  WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "mlp.2", weft_unary(g, WEFT_OP_SILU, h), temb_width(c),
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return h;
}

/* A learned token (1,1,C), in f32 as other tokens, also where it is stored in bf16. */
static weft_value pad_token(weft_graph *g, const z_image *c, const char *name)
{
    const weft_value token = weft_param(g, name, WEFT_F32, WEFT_SHAPE(1, c->width),
                                        (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
    return weft_reshape(g, weft_cast(g, token, WEFT_F32), WEFT_SHAPE(1, 1, c->width));
}

/* Image tokens (B,padded S,C). */
static weft_value embed_image(weft_graph *g, const z_image *c, weft_value latents,
                              const int64_t patch[3], int64_t tokens)
{
    const int64_t batch = weft_dim(g, latents, 0), more = padded(tokens) - tokens;
    const weft_value folded = weft_nn_fold(g, latents, patch);
    const weft_value pad = pad_token(g, c, "x_pad_token");
    weft_graph_push(g, "all_x_embedder");
    char name[32];
    snprintf(name, sizeof name, "%d-1", (int)c->patch);
    const weft_value x = weft_nn_linear(
        g, name, weft_reshape(g, folded, WEFT_SHAPE(batch, tokens, weft_dim(g, folded, 4))),
        c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    const weft_value both[] = {x, weft_broadcast(g, pad, WEFT_SHAPE(batch, more, c->width))};
    return more ? weft_concat(g, both, 2, 1) : x;
}

/* Text tokens (B,padded L,C); tokens that the mask hides are the learned token. */
static weft_value embed_text(weft_graph *g, const z_image *c, weft_value text, weft_value mask)
{
    const int64_t batch = weft_dim(g, text, 0), length = weft_dim(g, text, 1),
                  more = padded(length) - length;
    const weft_value pad = pad_token(g, c, "cap_pad_token");
    weft_graph_push(g, "cap_embedder");
    weft_value y = weft_nn_linear(g, "1", weft_nn_rms_norm(g, "0", text, c->eps), c->width,
                                  WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    if (weft_value_ok(mask)) {
        const weft_value real =
            weft_reshape(g, weft_cast(g, mask, WEFT_F32), WEFT_SHAPE(batch, length, 1));
        y = weft_add(g, weft_mul(g, y, real), weft_mul(g, pad, weft_affine(g, real, -1, 1)));
    }
    const weft_value both[] = {y, weft_broadcast(g, pad, WEFT_SHAPE(batch, more, c->width))};
    return more ? weft_concat(g, both, 2, 1) : y;
}

static void run_blocks(weft_graph *g, const z_image *c, const char *name, int64_t count, streams *s,
                       int from, int to)
{
    for (int64_t i = 0; i < count; i++) {
        weft_graph_push(g, "%s.%d", name, (int)i);
        block(g, c, s, from, to, from == IMAGE);
        weft_graph_pop(g);
    }
}

/* Rotations of both streams, and the hidden keys of the text. */
static void set_positions(weft_graph *g, const z_image *c, const int64_t size[3], weft_value text,
                          weft_value mask, streams *s)
{
    const int64_t tokens = size[1] * size[2], all = padded(tokens), length = weft_dim(g, text, 1),
                  text_all = padded(length);
    const weft_value own = own_length(g, mask, length), /* (B or 1,1) */
        zero = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, text_all), 0),
                     index = count_up(g, text_all, text_all, 1, text_all);
    float *real = weft_calloc(all, sizeof *real);
    for (int64_t i = 0; real && i < tokens; i++)
        real[i] = 1;
    if (!real) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        return;
    }
    const weft_value is_real = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, all), real);
    weft_free(real);
    const weft_value image[] = {weft_mul(g, weft_affine(g, own, 1, 1), is_real),
                                count_up(g, all, tokens, size[2], size[1]),
                                count_up(g, all, tokens, 1, size[2])},
                     texts[] = {weft_affine(g, index, 1, 1), zero, zero};
    rope_of(g, c, image, s->rope[IMAGE]);
    rope_of(g, c, texts, s->rope[TEXT]);
    s->hide[IMAGE] = s->hide[TEXT] = WEFT_NONE;
    if (weft_value_ok(mask))
        s->hide[TEXT] = weft_nn_hide(g, weft_clamp(g, weft_sub(g, own, index), 0, 1));
}

static weft_value forward(weft_graph *g, const z_image *c, const weft_ports *in)
{
    const int64_t patch[3] = {1, c->patch, c->patch};
    const weft_value latents = in->at[WEFT_PORT_LATENTS], text = in->at[WEFT_PORT_TEXT],
                     mask = in->at[WEFT_PORT_TEXT_MASK];
    int64_t size[3];
    streams s = {0};
    char name[32];
    weft_nn_count_tokens(g, latents, patch, size);
    if (size[0] != 1)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames: the model makes single images", size[0]);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t tokens = size[1] * size[2];
    s.temb_bw = embed_time(g, c, in->at[WEFT_PORT_TIMESTEP]);
    set_positions(g, c, size, text, mask, &s);
    s.x[IMAGE] = embed_image(g, c, latents, patch, tokens);
    s.x[TEXT] = embed_text(g, c, text, mask);
    run_blocks(g, c, "noise_refiner", c->refiners, &s, IMAGE, TEXT);
    run_blocks(g, c, "context_refiner", c->refiners, &s, TEXT, STREAMS);
    run_blocks(g, c, "layers", c->layers, &s, IMAGE, STREAMS);
    snprintf(name, sizeof name, "all_final_layer.%d-1", (int)c->patch);
    weft_graph_push(g, "%s", name);
    const weft_value scale =
        weft_nn_linear(g, "adaLN_modulation.1", weft_unary(g, WEFT_OP_SILU, s.temb_bw), c->width,
                       WEFT_LINEAR_XAVIER);
    weft_value x = weft_nn_plain_norm(g, weft_slice(g, s.x[IMAGE], 1, 0, tokens), last_eps);
    x = weft_mul(g, x,
                 weft_reshape(g, weft_affine(g, scale, 1, 1),
                              WEFT_SHAPE(weft_dim(g, scale, 0), 1, c->width)));
    x = weft_nn_linear(g, "linear", x, c->patch * c->patch * c->in_channels, WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    return weft_nn_unpatch(g, x, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const z_image *c = config;
    if (c->width % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "n_heads", c->heads),
                          "the heads do not divide \"dim\" %" PRId64, c->width);
    return weft_check_axes(locations, "axes_dims", c->axes, c->width / c->heads);
}

static void grid(const void *config, weft_grid *grid)
{
    const z_image *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = grid->out_channels = c->in_channels;
    grid->only[0] = 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const z_image *c = config;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static int64_t one_of(const void *config)
{
    (void)config;
    return 1;
}

static int64_t three_of(const void *config)
{
    (void)config;
    return 3;
}

static int64_t heads_of(const void *config)
{
    return ((const z_image *)config)->heads;
}

/* clang-format off */
#define AT(member) offsetof(z_image, member)
static const weft_field fields[] = {
    {"all_patch_size", WEFT_FIELD_I64S, AT(patch), "[2]", 1, 64, .capacity = 1, .length = one_of,
     .help = "side of a patch; one size only"},
    {"all_f_patch_size", WEFT_FIELD_EACH, .fallback = "1", .length = one_of},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "latent channels"},
    {"dim", WEFT_FIELD_I64, AT(width), "3840", 1, 1 << 20, .help = "width"},
    {"n_layers", WEFT_FIELD_I64, AT(layers), "30", 0, 1024, .help = "blocks of image and text"},
    {"n_refiner_layers", WEFT_FIELD_I64, AT(refiners), "2", 0, 1024,
     .help = "blocks of image and of text before"},
    {"n_heads", WEFT_FIELD_I64, AT(heads), "30", 1, 1 << 12, .help = "attention heads"},
    {"n_kv_heads", WEFT_FIELD_DERIVED, .length = heads_of},
    {"norm_eps", WEFT_FIELD_F64, AT(eps), "1e-05", 0, 1, .help = "epsilon of the norms"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "true"},
    {"cap_feat_dim", WEFT_FIELD_I64, AT(text_dim), "2560", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"siglip_feat_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "256.0", 1, 1e9, .help = "base of the rotations"},
    {"t_scale", WEFT_FIELD_F64, AT(time_scale), "1000.0", 1e-3, 1e6,
     .help = "factor of a timestep from 0 to 1"},
    {"axes_dims", WEFT_FIELD_I64S, AT(axes), "[32, 48, 48]", 0, 1 << 12, .capacity = 3,
     .length = three_of, .help = "share of a head that frame, row and column rotate"},
    {"axes_lens", WEFT_FIELD_IGNORED, .fallback = "[1024, 512, 512]"},
    {"t_embedder_mid_dim", WEFT_FIELD_I64, AT(time_inner), "1024", 1, 1 << 16,
     .help = "inner width of the timestep's layers; public configs do not have it"},
};

static const weft_named_config sizes[] = {
    {"z-image", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "x"},
    {WEFT_PORT_TIMESTEP,   false, "t", .unit = -1000, .origin = 1000},
    {WEFT_PORT_TEXT,       false, "cap_feats"},
    {WEFT_PORT_TEXT_MASK,  false, "cap_lens", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of single files (diffusers' from_single_file reads them): query, key and value are
 * one layer. The norm after the last block is not a part of the model. */
static const weft_rename_rule original[] = {
    {"x_embedder",              "all_x_embedder.2-1"},
    {"final_layer",             "all_final_layer.2-1"},
    {"norm_final",              ""},
#define BLOCKS(name)                                                                \
    {name ".#.attention.qkv",    name ".#.attention.{to_q,to_k,to_v}"},             \
    {name ".#.attention.out",    name ".#.attention.to_out.0"},                     \
    {name ".#.attention.q_norm", name ".#.attention.norm_q"},                       \
    {name ".#.attention.k_norm", name ".#.attention.norm_k"}
    BLOCKS("layers"),
    BLOCKS("noise_refiner"),
    BLOCKS("context_refiner"),
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "layers.0.attention.to_q.weight", NULL, 0, .also = "cap_pad_token"},
    {"original",  "layers.0.attention.qkv.weight", original, sizeof original / sizeof *original,
     .no_adapters = true, .also = "cap_pad_token"},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .before = "<|im_start|>user\n", .after = "<|im_end|>\n<|im_start|>assistant\n"},
};

/* Splits of heads and widths, and of tokens. */
#define TOKENS {WEFT_S, 1}
#define WEIGHTS(axis, ...)                                           \
    {"*attention.to_q.weight",      axis, {WEFT_S, 0}},              \
    {"*attention.to_k.weight",      axis, {WEFT_S, 0}},              \
    {"*attention.to_v.weight",      axis, {WEFT_S, 0}},              \
    {"*attention.to_out.0.weight",  axis, {WEFT_S, 1}},              \
    {"*attention.to_out.0:linear",  axis, __VA_ARGS__},              \
    {"*feed_forward.w1.weight",     axis, {WEFT_S, 0}},              \
    {"*feed_forward.w3.weight",     axis, {WEFT_S, 0}},              \
    {"*feed_forward.w2.weight",     axis, {WEFT_S, 1}},              \
    {"*feed_forward.w2:linear",     axis, __VA_ARGS__}
#define SEQUENCE(axis) {"*refiner.*norm*:rms_norm", axis, TOKENS, .optional = true}, \
                       {"*layers.*norm*:rms_norm",  axis, TOKENS, .optional = true}
static const weft_recipe_row
    tp_rows[] = {WEIGHTS("tp", {WEFT_R, 0})}, sp_rows[] = {WEIGHTS("sp", TOKENS), SEQUENCE("sp")},
    cp_rows[] = {SEQUENCE("cp"), {"*attention*:attention", "cp", TOKENS}},
    ring_rows[] = {SEQUENCE("ring"), {"*attention*:attention", "ring", TOKENS, .by = "ring"}};
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp = LIST("tp", "tensor parallel", tp_rows),
    ring = LIST("ring", "context parallel, keys go round", ring_rows),
    cp = LIST("cp", "context parallel, tokens into heads", cp_rows),
    sp = LIST("sp", "tensor parallel, tokens in between", sp_rows);
static const weft_recipe_list *const recipes[] = {&tp, &ring, &cp, &sp};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.02, 0.04, 0},
};

const weft_family weft_family_z_image_dit = {
    .class_name = "ZImageTransformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "ZImagePipeline", .autoencoder = "flux-vae",
    .frames = 1,
    .marks = {"cap_feat_dim", "n_refiner_layers"},
    .config_bytes = sizeof(z_image), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .negative = true, .grid = grid, .guidance = "cosmos", .noise_levels = WEFT_LEVELS_EVEN,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
