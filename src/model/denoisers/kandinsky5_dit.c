/* Kandinsky 5 transformers (diffusers' Kandinsky5Transformer3DModel), for text and for a first
 * frame. Parameters have the names of the public checkpoints.
 *
 *   latents --patch, linear--> x (B,S,C); text --linear, norm--> y (B,L,C)
 *   timestep --MLP, + pooled text --> temb (B,W)
 *   text blocks on y: attention, feed-forward
 *   visual blocks on x: attention, attention to y, feed-forward
 *   x --> norm, modulate, project --> prediction
 *
 * Shift, scale and gate of each part of a block come from temb. Attention within a stream has
 * rotary positions. Angles of rows and columns are divided by a number that depends on the size of
 * the video. With visual_cond, channels of zeros and of a mark follow the noisy latents. The mark
 * is 1 in a first frame that is given, whose latents replace the noisy ones.
 *
 * With attention_type "nabla" (Mikhailov et al., NABLA), tokens of the video are ordered by squares
 * of 8 by 8, each a block. Queries of a block attend to nearby blocks, and to the blocks that
 * have the largest shares of attention between the means of blocks.
 *
 * Shape letters: B batch; T, Y, X tokens of the sides; S = T Y X. L text tokens, C width,
 * W width of temb, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "nn/chosen_blocks.h"

#include <math.h>
#include <stdlib.h>

enum { PART = 3 }; /* modulation rows of a part of a block: shift, scale, gate */
enum { SIDE = 8, SQUARE = SIDE * SIDE }; /* tokens of a block for nabla */

typedef struct kandinsky5 {
    int64_t in_channels, out_channels, text_dim, pooled_dim, time_dim, width, ff_dim;
    int64_t text_layers, layers, patch[3], axes[3];
    bool condition;
    int64_t nabla, window[3], add_window, method; /* words, except the window in blocks */
    double mass;
} kandinsky5;
_Static_assert(sizeof(kandinsky5) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double theta = 10000, norm_eps = 1e-5, head_eps = 1.1920928955078125e-07;

static int64_t head_dim(const kandinsky5 *c)
{
    return c->axes[0] + c->axes[1] + c->axes[2];
}

static int64_t heads_of(const kandinsky5 *c)
{
    return c->width / head_dim(c);
}

/* Channels of the input: with visual_cond twice the latent channels and a mark. */
static int64_t channels_of(const kandinsky5 *c)
{
    return c->condition ? 2 * c->in_channels + 1 : c->in_channels;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Angles (count,pairs) of the positions 0, 1, ... Frequencies and angles are rounded to f32, as in
 * the reference. */
static weft_value angles(weft_graph *g, int64_t count, int64_t pairs)
{
    float *at = weft_calloc(count * pairs + 1, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t i = 0; i < count * pairs; i++)
        at[i] = (float)(i / pairs) * expf((float)-log(theta) * (float)(i % pairs) / (float)pairs);
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(count, pairs), at);
    weft_free(at);
    return v;
}

static void cos_sin_of(weft_graph *g, weft_value angle, weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    cos_sin[0] = weft_unary(g, WEFT_OP_COS, angle);
    cos_sin[1] = weft_unary(g, WEFT_OP_SIN, angle);
}

/* Pixels of a side for which the pipelines divide angles by 2. */
static bool is_small(int64_t latents)
{
    enum { PIXELS = 8, LEAST = 480, MOST = 854 };
    return latents * PIXELS >= LEAST && latents * PIXELS <= MOST;
}

/* Divisors of the angles of frames, rows and columns: (3). `size` in tokens. */
static weft_value scale_of(weft_graph *g, const kandinsky5 *c, const int64_t size[3])
{
    const bool small = is_small(size[1] * c->patch[1]) && is_small(size[2] * c->patch[2]);
    const float side = small ? 2 : 3.16f;
    return weft_constant(g, WEFT_F32, WEFT_SHAPE(3), (float[]){1, side, side});
}

/* Rotary tables of the video (1,S,1,D/2). */
static void video_rope(weft_graph *g, const kandinsky5 *c, const int64_t size[3], weft_value scale,
                       weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    weft_value part[3];
    for (int d = 0; d < 3; d++) {
        const int64_t pairs = c->axes[d] / 2;
        weft_shape own = WEFT_SHAPE(1, 1, 1, pairs);
        own.dim[d] = size[d];
        part[d] = weft_div(g, angles(g, size[d], pairs),
                           weft_reshape(g, weft_slice(g, scale, 0, d, 1), WEFT_SHAPE(1, 1)));
        part[d] = weft_broadcast(g, weft_reshape(g, part[d], own),
                                 WEFT_SHAPE(size[0], size[1], size[2], pairs));
    }
    cos_sin_of(g,
               weft_reshape(g, weft_concat(g, part, 3, 3),
                            WEFT_SHAPE(1, size[0] * size[1] * size[2], 1, head_dim(c) / 2)),
               cos_sin);
}

static void text_rope(weft_graph *g, const kandinsky5 *c, int64_t length,
                      weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t pairs = head_dim(c) / 2;
    cos_sin_of(g, weft_reshape(g, angles(g, length, pairs), WEFT_SHAPE(1, length, 1, pairs)),
               cos_sin);
}

/* ---- nabla ---------------------------------------------------------------------------------- */

static const int64_t square[] = {1, SIDE, SIDE};

/* Blocks (1,1,N,N) of queries and keys whose distance is within the window. */
static weft_value window_of(weft_graph *g, const kandinsky5 *c, const int64_t size[3])
{
    const int64_t rows = size[1] / SIDE, columns = size[2] / SIDE, n = size[0] * rows * columns;
    float *near = weft_calloc(n * n + 1, sizeof *near);
    if (!near)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for blocks of attention");
    for (int64_t i = 0; i < n * n; i++) {
        const int64_t q = i / n, k = i % n;
        const int64_t apart[3] = {q / columns / rows - k / columns / rows,
                                  q / columns % rows - k / columns % rows,
                                  q % columns - k % columns};
        near[i] = 1;
        for (int d = 0; d < 3; d++)
            if (llabs(apart[d]) > c->window[d] / 2)
                near[i] = 0;
    }
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, n, n), near);
    weft_free(near);
    return v;
}

/* Attention of the video to itself over chosen blocks. */
static weft_value attend_blocks(weft_graph *g, const kandinsky5 *c, const weft_value qkv[3],
                                weft_value window)
{
    const weft_attr_top_p top = {.mass = c->mass};
    const double scale = 1 / sqrt((double)head_dim(c));
    const weft_value scores = weft_nn_block_scores(g, qkv[0], qkv[1], SQUARE),
                     share = weft_unary(g, WEFT_OP_SOFTMAX, weft_affine(g, scores, scale, 0)),
                     chosen = weft_add(g, weft_emit(g, WEFT_OP_TOP_P, &share, 1, &top), window);
    return weft_nn_attend_blocks(g, qkv[0], qkv[1], qkv[2], chosen);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Attention of x (B,S,C) to `context` (B,N,C). `rope`: tables of both, NULL: none. `bias` of the
 * keys, or WEFT_NONE. `window`: for attention over blocks, or WEFT_NONE. */
static weft_value attend(weft_graph *g, const kandinsky5 *c, const char *name, weft_value x,
                         weft_value context, const weft_value *rope, weft_value bias,
                         weft_value window)
{
    static const char *const names[] = {"to_query", "to_key", "to_value"}, *const norms[] = {
                                                                               "query_norm",
                                                                               "key_norm"};
    weft_value qkv[3];
    weft_graph_push(g, "%s", name);
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_linear(g, names[i], i ? context : x, c->width, WEFT_LINEAR_XAVIER);
        qkv[i] = weft_nn_split_heads(g, qkv[i], heads_of(c));
        if (i < 2)
            qkv[i] = weft_nn_rms_norm(g, norms[i], qkv[i], head_eps);
        if (i < 2 && rope)
            qkv[i] = weft_nn_rope(g, qkv[i], rope, false);
    }
    const weft_value heads = weft_value_ok(window)
                                 ? attend_blocks(g, c, qkv, window)
                                 : weft_nn_attend(g, qkv[0], qkv[1], qkv[2], bias),
                     out = weft_nn_linear(g, "out_layer", weft_nn_join_heads(g, heads), c->width,
                                          WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value feed_forward(weft_graph *g, const kandinsky5 *c, weft_value x)
{
    weft_graph_push(g, "feed_forward");
    x = weft_nn_linear_plain(g, "in_layer", x, c->ff_dim);
    x = weft_nn_linear_plain(g, "out_layer", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), c->width);
    weft_graph_pop(g);
    return x;
}

/* Modulation rows (B,rows,C) of the scope `name`. */
static weft_value modulation(weft_graph *g, const kandinsky5 *c, const char *name,
                             weft_value temb_bw, int64_t rows)
{
    weft_graph_push(g, "%s", name);
    const weft_nn_layer layer =
        weft_nn_linear_of(g, "out_layer", c->time_dim, rows * c->width, true, WEFT_LINEAR_ZERO);
    const weft_value mod = weft_mmdit_modulation(g, &layer, temb_bw, rows);
    weft_graph_pop(g);
    return mod;
}

/* The norm of x with the rows shift and scale of a part. */
static weft_value modulated(weft_graph *g, weft_value x, weft_value mod, int64_t row)
{
    return weft_nn_modulate(g, weft_nn_plain_norm(g, x, norm_eps), weft_nn_row(g, mod, row + 1),
                            weft_nn_row(g, mod, row));
}

/* Values that the blocks share. */
typedef struct shared {
    weft_value temb_bw, text, hidden; /* hidden: bias of the text's keys, or WEFT_NONE */
    weft_value rope[WEFT_MAX_OUTPUTS], text_rope[WEFT_MAX_OUTPUTS];
    weft_value window; /* of blocks for nabla, or WEFT_NONE */
} shared;

/* Runs a block on the text, or on the video x. */
static weft_value block(weft_graph *g, const kandinsky5 *c, const shared *s, weft_value x,
                        bool text)
{
    const int64_t parts = text ? 2 : 3, last = PART * (parts - 1);
    const weft_value mod =
        modulation(g, c, text ? "text_modulation" : "visual_modulation", s->temb_bw, PART * parts);
    weft_value h = modulated(g, x, mod, 0);
    h = attend(g, c, "self_attention", h, h, text ? s->text_rope : s->rope,
               text ? s->hidden : WEFT_NONE, text ? WEFT_NONE : s->window);
    x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, 2));
    if (!text) {
        h = attend(g, c, "cross_attention", modulated(g, x, mod, PART), s->text, NULL, s->hidden,
                   WEFT_NONE);
        x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, PART + 2));
    }
    h = feed_forward(g, c, modulated(g, x, mod, last));
    return weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, last + 2));
}

/* ---- the model ------------------------------------------------------------------------------ */

/* "in_layer" and "norm" of text embeddings. */
static weft_value embed_text(weft_graph *g, const char *name, weft_value text, int64_t width)
{
    weft_graph_push(g, "%s", name);
    text = weft_nn_linear(g, "in_layer", text, width, WEFT_LINEAR_XAVIER);
    text = weft_nn_layer_norm(g, "norm", text, norm_eps);
    weft_graph_pop(g);
    return text;
}

static weft_value embed_time(weft_graph *g, const kandinsky5 *c, const weft_ports *in)
{
    weft_graph_push(g, "time_embeddings");
    weft_value h =
        weft_nn_linear(g, "in_layer", weft_nn_sinusoid(g, c->width, in->at[WEFT_PORT_TIMESTEP]),
                       c->time_dim, WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "out_layer", weft_unary(g, WEFT_OP_SILU, h), c->time_dim,
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return weft_add(g, h,
                    embed_text(g, "pooled_text_embeddings", in->at[WEFT_PORT_POOLED], c->time_dim));
}

static weft_value embed_video(weft_graph *g, const kandinsky5 *c, weft_value latents)
{
    const weft_value folded = weft_nn_fold(g, latents, c->patch);
    const int64_t tokens = weft_dim(g, folded, 1) * weft_dim(g, folded, 2) * weft_dim(g, folded, 3);
    const weft_shape rows = WEFT_SHAPE(weft_dim(g, latents, 0), tokens, weft_dim(g, folded, 4));
    weft_graph_push(g, "visual_embeddings");
    const weft_value x =
        weft_nn_linear(g, "in_layer", weft_reshape(g, folded, rows), c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value run_blocks(weft_graph *g, const kandinsky5 *c, const shared *s, weft_value x,
                             bool text)
{
    for (int64_t i = 0; i < (text ? c->text_layers : c->layers); i++) {
        weft_graph_push(g, "%s_transformer_blocks.%d", text ? "text" : "visual", (int)i);
        x = block(g, c, s, x, text);
        weft_graph_pop(g);
    }
    return x;
}

static weft_value forward(weft_graph *g, const kandinsky5 *c, const weft_ports *in)
{
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK], scale = in->at[WEFT_PORT_ROPE_SCALE];
    int64_t size[3];
    shared s = {.hidden = WEFT_NONE, .window = WEFT_NONE};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    video_rope(g, c, size, weft_value_ok(scale) ? scale : scale_of(g, c, size), s.rope);
    text_rope(g, c, weft_dim(g, in->at[WEFT_PORT_TEXT], 1), s.text_rope);
    if (c->nabla) {
        s.window = window_of(g, c, size);
        for (int i = 0; i < 2; i++)
            s.rope[i] = weft_nn_by_blocks(g, s.rope[i], size, square, false);
    }
    if (weft_value_ok(mask))
        s.hidden = weft_nn_hide(g, weft_cast(g, mask, WEFT_F32));
    s.temb_bw = embed_time(g, c, in);
    s.text = embed_text(g, "text_embeddings", in->at[WEFT_PORT_TEXT], c->width);
    s.text = run_blocks(g, c, &s, s.text, true);
    weft_value x = embed_video(g, c, in->at[WEFT_PORT_LATENTS]);
    x = run_blocks(g, c, &s, c->nabla ? weft_nn_by_blocks(g, x, size, square, false) : x, false);
    x = c->nabla ? weft_nn_by_blocks(g, x, size, square, true) : x;
    weft_graph_push(g, "out_layer");
    x = modulated(g, x, modulation(g, c, "modulation", s.temb_bw, 2), 0);
    x = weft_nn_linear(g, "out_layer", x, c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, x, c->out_channels), size, c->patch);
}

/* Index of the word "false" of attention_add_sta. */
enum { WITHOUT_WINDOW = 2 };

/* ---- the family ----------------------------------------------------------------------------- */

/* nabla: every field that the choice of blocks needs. */
static weft_status check_nabla(const kandinsky5 *c, const weft_config_locations *locations)
{
    static const char *const windows[] = {"attention_wT", "attention_wH", "attention_wW"};
    if (c->mass <= 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_P", c->mass),
                          "attention_type \"nabla\" needs the share of attention to keep");
    for (int d = 0; d < 3; d++)
        if (c->window[d] < 1)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, windows[d], c->window[d]),
                              "attention_type \"nabla\" needs the width of its window in blocks");
    if (c->add_window == WITHOUT_WINDOW)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_add_sta", 0),
                          "nabla is supported with its window only");
    if (c->patch[0] != 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "patch_size", c->patch[0]),
                          "nabla needs patches of one frame");
    return WEFT_OK;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const kandinsky5 *c = config;
    for (int d = 0; d < 3; d++)
        if (c->axes[d] % 2)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "axes_dims", c->axes[d]),
                              "rotations are of pairs, so each axis needs an even width");
    if (head_dim(c) < 2 || c->width % head_dim(c) || c->width % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "model_dim", c->width),
                          "the width is not an even multiple of a head's, which is the sum %" PRId64
                          " of \"axes_dims\"",
                          head_dim(c));
    return c->nabla ? check_nabla(c, locations) : WEFT_OK;
}

static void grid(const void *config, weft_grid *grid)
{
    const kandinsky5 *c = config;
    for (int d = 0; d < 3; d++)
        grid->factor[d] = c->patch[d] * (c->nabla && d ? SIDE : 1);
    grid->channels = channels_of(c);
    grid->out_channels = c->out_channels;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const kandinsky5 *c = config;
    switch (port) {
    case WEFT_PORT_POOLED: return WEFT_SHAPE(s->batch, c->pooled_dim);
    case WEFT_PORT_ROPE_SCALE: return WEFT_SHAPE(3);
    default: return weft_denoiser_shape(s, port, channels_of(c), c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const kandinsky5 *c = config;
    *cond = (weft_frame_condition){.form = c->condition ? WEFT_FRAME_CONDITION_CHANNELS
                                                        : WEFT_FRAME_CONDITION_NONE,
                                   .mark_after = c->condition,
                                   .in_place = c->condition,
                                   .also_none = c->condition,
                                   .settled = 4};
}

static const char *const types[] = {"\"regular\"", "\"nabla\"", NULL},
                         *const windows_added[] = {"null", "true", "false", NULL},
                         *const methods[] = {"null", "\"topcdf\"", NULL};
/* clang-format off */
#define AT(member) offsetof(kandinsky5, member)
static const weft_field fields[] = {
    {"in_visual_dim", WEFT_FIELD_I64, AT(in_channels), "4", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "channels of a noisy latent"},
    {"in_text_dim", WEFT_FIELD_I64, AT(text_dim), "3584", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"in_text_dim2", WEFT_FIELD_I64, AT(pooled_dim), "768", 1, 1 << 16,
     .help = "width of the pooled embedding"},
    {"time_dim", WEFT_FIELD_I64, AT(time_dim), "512", 1, 1 << 16,
     .help = "width of the embedding of timestep and pooled text"},
    {"out_visual_dim", WEFT_FIELD_I64, AT(out_channels), "4", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "output channels of a latent"},
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    {"model_dim", WEFT_FIELD_I64, AT(width), "2048", 2, 1 << 16, .help = "width of the model"},
    {"ff_dim", WEFT_FIELD_I64, AT(ff_dim), "5120", 1, 1 << 20,
     .help = "width of the feed-forward layers"},
    {"num_text_blocks", WEFT_FIELD_I64, AT(text_layers), "2", 0, 1024, .help = "text blocks"},
    {"num_visual_blocks", WEFT_FIELD_I64, AT(layers), "32", 0, 1024, .help = "blocks of the video"},
    {"axes_dims", WEFT_FIELD_I64S, AT(axes), "[16, 24, 24]", 0, 4096, .capacity = 3,
     .length = weft_three, .help = "channels of a head that rotate by frames, rows and columns"},
    {"visual_cond", WEFT_FIELD_BOOL, AT(condition), "false",
     .help = "channels of zeros and of a mark of given frames follow the noisy latents"},
    {"attention_type", WEFT_FIELD_WORD, AT(nabla), .words = types,
     .help = "attention of the video to itself: to all tokens, or to chosen blocks of 8 by 8"},
    {"attention_causal", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"attention_local", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"attention_glob", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"attention_window", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"attention_P", WEFT_FIELD_F64, AT(mass), "null", 0, 1,
     .help = "nabla: share of attention between the means of blocks that chosen blocks have"},
    {"attention_wT", WEFT_FIELD_I64, AT(window[0]), "null", 0, 1 << 16,
     .help = "nabla: frames of the window of blocks that are always chosen"},
    {"attention_wW", WEFT_FIELD_I64, AT(window[2]), "null", 0, 1 << 16,
     .help = "nabla: columns of blocks of the window"},
    {"attention_wH", WEFT_FIELD_I64, AT(window[1]), "null", 0, 1 << 16,
     .help = "nabla: rows of blocks of the window"},
    {"attention_add_sta", WEFT_FIELD_WORD, AT(add_window), .words = windows_added,
     .help = "nabla: choose the window as well; null: yes"},
    {"attention_method", WEFT_FIELD_WORD, AT(method), .words = methods,
     .help = "nabla: how blocks are chosen; null: by their share of attention"},
};

static const weft_named_config sizes[] = {
    {"kandinsky5-lite", "{\"in_visual_dim\": 16, \"out_visual_dim\": 16, \"model_dim\": 1792, "
                        "\"ff_dim\": 7168, \"visual_cond\": true}"},
    {"kandinsky5-pro", "{\"in_visual_dim\": 16, \"out_visual_dim\": 16, \"time_dim\": 1024, "
                       "\"model_dim\": 4096, \"ff_dim\": 16384, \"num_text_blocks\": 4, "
                       "\"num_visual_blocks\": 60, \"axes_dims\": [32, 48, 48], "
                       "\"visual_cond\": true}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_BTYXC},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_POOLED,     false, "pooled_projections"},
    {WEFT_PORT_ROPE_SCALE, false, "scale_factor", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_BTYXC},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "visual_transformer_blocks.0.visual_modulation.out_layer.weight", NULL, 0},
};

/* The denoiser gets the tokens of a text only: the pipelines encode each text alone. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512, .crop = 128,
     .clean = WEFT_CLEAN_PROMPT, .hidden = {WEFT_HIDDEN_LAST},
     .before = "<|im_start|>system\nYou are a prompt engineer. Describe the video in detail.\n"
               "Describe how the camera moves or shakes, describe the zoom and view angle, "
               "whether it follows the objects.\n"
               "Describe the location of the video, main characters or objects and their action.\n"
               "Describe the dynamism of the video and presented actions.\n"
               "Name the visual style of the video: whether it is a professional footage, user "
               "generated content, some kind of animation, video game or scren content.\n"
               "Describe the visual effects, postprocessing and transitions if they are presented "
               "in the video.\n"
               "Pay attention to the order of key actions shown in the scene.<|im_end|>\n"
               "<|im_start|>user\n",
     .after = "<|im_end|>"},
    {"text_encoder_2", "tokenizer_2", .pooled = WEFT_PORT_POOLED, .length = 77,
     .clean = WEFT_CLEAN_PROMPT},
};

/* ---- recipes ---- */

#define TOKENS {WEFT_S, 1}
#define COLUMNS(name, axis)                                   \
    {name ".weight",                   axis, {WEFT_S, 0}},    \
    {name ".bias",                     axis, {WEFT_S, 0}}
/* Tensor parallel (Shoeybi et al., Megatron-LM). The variadic arguments give the layout of the
 * outputs of row-split layers. */
#define TENSOR_PARALLEL(axis, ...)                            \
    COLUMNS("*attention.to_query", axis),                     \
    COLUMNS("*attention.to_key", axis),                       \
    COLUMNS("*attention.to_value", axis),                     \
    {"*attention.out_layer.weight",    axis, {WEFT_S, 1}},    \
    {"*feed_forward.in_layer.weight",  axis, {WEFT_S, 0}},    \
    {"*feed_forward.out_layer.weight", axis, {WEFT_S, 1}},    \
    {"*attention.out_layer:linear",    axis, __VA_ARGS__},    \
    {"*feed_forward.out_layer:linear", axis, __VA_ARGS__}
/* Tokens of the video and of the text are split from the first norm of their blocks on. */
#define SEQUENCE(axis) {"*blocks.*:layer_norm", axis, TOKENS}
#define ALL {WEFT_R, 0}
static const weft_recipe_row
    tp_rows[] = {TENSOR_PARALLEL("tp", ALL)},
    sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS), SEQUENCE("sp")},
    cp_rows[] = {SEQUENCE("cp"), {"*attention:attention", "cp", TOKENS}},
    ring_rows[] = {SEQUENCE("ring"),
                   {"*visual_transformer_blocks.*self_attention:attention", "ring", TOKENS,
                    .by = "ring", .optional = true}, /* not with nabla */
                   {"*attention:attention", "ring", TOKENS}};
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp   = LIST("tp",   "tensor parallel",                     tp_rows),
    ring = LIST("ring", "context parallel, keys go round",     ring_rows),
    cp   = LIST("cp",   "context parallel, tokens into heads", cp_rows),
    sp   = LIST("sp",   "tensor parallel, tokens in between",  sp_rows);
static const weft_recipe_list *const recipes[] = {&tp, &ring, &cp, &sp};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_kandinsky5_dit = {
    .class_name = "Kandinsky5Transformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "Kandinsky5T2VPipeline",
    .image_pipeline = "Kandinsky5I2VPipeline",
    .autoencoder = "AutoencoderKLHunyuanVideo",
    .marks = {"in_visual_dim", "num_visual_blocks"},
    .config_bytes = sizeof(kandinsky5), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "with \"visual_cond\": none or a first frame",
    .fps = 24,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .lora_targets =
        (const char *const[]){"to_query", "to_key", "to_value", "*attention.out_layer", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
