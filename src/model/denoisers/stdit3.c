/* STDiT3 of Open-Sora 1.2. Parameters have the names of the public checkpoints.
 *
 *   latents --pad, patch--> x (B,T,N,C), + sines of rows and columns scaled by the frame size
 *   text --MLP--> y (B,L,C)
 *   timestep --sinusoid, MLP--> + frames per second, likewise --> e; silu, linear --> (B,6,C)
 *   per layer: a spatial block over the tokens of each frame, with the text
 *              a temporal block over the frames of each token with RoPE, with the text
 *
 *   block:  x += gate1 attn(mod1(norm x));  x += cross(x, y);  x += gate2 mlp(mod2(norm x))
 *
 * The prediction is data - noise, the negative of the velocity of flow matching.
 * Given frames (frame mask 0) are modulated with time 0. A temporal block works on (B,N,T,C). In
 * both kinds of blocks, attention is separate for each index of dim 1.
 * Shape letters: B batch, T frames, N tokens of a frame, L text tokens, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "model/transformers_fields.h"
#include "nn/nn.h"

#include <math.h>
#include <string.h>

typedef struct stdit3 {
    int64_t square, in_channels, patch[3], width, depth, heads;
    double mlp_ratio;
    bool sigma;
    int64_t text_dim, text_length;
    bool qk_norm;
} stdit3;
_Static_assert(sizeof(stdit3) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { TIME_WIDTH = 256, PIXELS = 8, FPS = 24 }; /* PIXELS: default pixels per latent */
static const double eps = 1e-6;

/* Conditioning of every block: modulations for the timestep, and for time 0 of given frames. */
typedef struct conditioning {
    weft_value rows, clean_rows; /* (B,6,C); clean_rows WEFT_NONE: no given frames */
    weft_value mask;             /* f32 (B,T) */
    weft_value text_blc, bias;
    weft_value rope[2]; /* RoPE of frames */
} conditioning;

static int64_t out_of(const stdit3 *c)
{
    return c->sigma ? 2 * c->in_channels : c->in_channels;
}

/* ---- positions ------------------------------------------------------------------------------ */

static weft_value constants(weft_graph *g, weft_shape shape, const float *data)
{
    return weft_constant(g, WEFT_F32, shape, data);
}

/* Sines and cosines of the positions of one side, (n, C/2). `zoom` (1,1): size relative to the
 * training images. */
static weft_value side_positions(weft_graph *g, const stdit3 *c, int64_t n, double base,
                                 weft_value zoom)
{
    const int64_t half = c->width / 2, count = half / 2;
    float *position = weft_calloc(n, sizeof *position), *frequency = weft_alloc(count * 4);
    weft_value both = WEFT_NONE;
    if (!position || !frequency) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        goto out;
    }
    for (int64_t i = 0; i < n; i++)
        position[i] = (float)i;
    for (int64_t i = 0; i < count; i++)
        frequency[i] = 1.0f / powf(10000, (float)(2 * i) / (float)half);
    weft_value at = weft_div(g, constants(g, WEFT_SHAPE(n, 1), position), zoom);
    at = weft_affine(g, at, base / (double)n, 0);
    const weft_value angle = weft_mul(g, at, constants(g, WEFT_SHAPE(1, count), frequency));
    both = weft_concat(
        g, (weft_value[]){weft_unary(g, WEFT_OP_SIN, angle), weft_unary(g, WEFT_OP_COS, angle)}, 2,
        1);
out:
    weft_free(position);
    weft_free(frequency);
    return both;
}

/* Size of the first sample in pixels, (1,1). If no size is given, the size of the latents. */
static weft_value pixels(weft_graph *g, weft_value size_b, int64_t latents)
{
    if (!weft_value_ok(size_b))
        return weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1), (double)(PIXELS * latents));
    return weft_reshape(g, weft_slice(g, size_b, 0, 0, 1), WEFT_SHAPE(1, 1));
}

/* Positions (1,1,N,C): columns in half of the width, rows in the other half. */
static weft_value positions_in_frame(weft_graph *g, const stdit3 *c, const weft_ports *in,
                                     const int64_t size[3])
{
    const weft_value latents = in->at[WEFT_PORT_LATENTS];
    const int64_t rows = size[1], columns = size[2], half = c->width / 2;
    const double base = rint(sqrt((double)(rows * columns)));
    const weft_value area =
        weft_mul(g, pixels(g, in->at[WEFT_PORT_HEIGHT], weft_dim(g, latents, 2)),
                 pixels(g, in->at[WEFT_PORT_WIDTH], weft_dim(g, latents, 3)));
    const weft_value zoom =
        weft_affine(g, weft_unary(g, WEFT_OP_SQRT, area), 1 / (double)c->square, 0);
    const weft_shape all = WEFT_SHAPE(rows, columns, half);
    const weft_value of[2] = {
        weft_broadcast(g,
                       weft_reshape(g, side_positions(g, c, columns, base, zoom),
                                    WEFT_SHAPE(1, columns, half)),
                       all),
        weft_broadcast(
            g, weft_reshape(g, side_positions(g, c, rows, base, zoom), WEFT_SHAPE(rows, 1, half)),
            all)};
    return weft_reshape(g, weft_concat(g, of, 2, 2), WEFT_SHAPE(1, 1, rows * columns, c->width));
}

/* RoPE of frames, with frequencies from the checkpoint, which are not trained. */
static void frame_rope(weft_graph *g, const stdit3 *c, int64_t frames, weft_value cos_sin[2])
{
    const int64_t pairs = c->width / c->heads / 2;
    float *position = weft_calloc(frames, sizeof *position);
    const weft_value frequency = weft_buffer(g, "rope.freqs", WEFT_F32, WEFT_SHAPE(pairs),
                                             (weft_init){.kind = WEFT_INIT_FILL, .value = 1});
    if (!position) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        return;
    }
    for (int64_t t = 0; t < frames; t++)
        position[t] = (float)t;
    const weft_value angle = weft_mul(g, constants(g, WEFT_SHAPE(frames, 1), position), frequency);
    weft_free(position);
    for (int i = 0; i < 2; i++)
        cos_sin[i] = weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Row of a modulation for grouped tokens, (B,1,1,C). With given frames, each frame has its own row:
 * (B,T,1,C), or (B,1,T,C) in a temporal block. */
static weft_value row(weft_graph *g, weft_value rows, weft_value clean_rows, weft_value mask_bt,
                      int64_t index, bool temporal)
{
    weft_value r = weft_nn_row(g, rows, index);
    const int64_t batch = weft_dim(g, r, 0), width = weft_dim(g, r, 2);
    r = weft_reshape(g, r, WEFT_SHAPE(batch, 1, 1, width));
    if (!weft_value_ok(clean_rows))
        return r;
    const int64_t frames = weft_dim(g, mask_bt, 1);
    const weft_value m = weft_reshape(
        g, mask_bt, temporal ? WEFT_SHAPE(batch, 1, frames, 1) : WEFT_SHAPE(batch, frames, 1, 1));
    const weft_value other =
        weft_reshape(g, weft_nn_row(g, clean_rows, index), WEFT_SHAPE(batch, 1, 1, width));
    return weft_add(g, weft_mul(g, r, m), weft_mul(g, other, weft_affine(g, m, -1, 1)));
}

static weft_value self_attention(weft_graph *g, const stdit3 *c, weft_value x_bgsc,
                                 const weft_value *rope)
{
    const int64_t width = c->width, groups = weft_dim(g, x_bgsc, 1);
    weft_value part[3];
    weft_graph_push(g, "attn");
    const weft_value qkv = weft_nn_linear(g, "qkv", x_bgsc, 3 * width, WEFT_LINEAR_XAVIER);
    for (int i = 0; i < 3; i++)
        part[i] = weft_nn_group_heads(g, weft_slice(g, qkv, 3, i * width, width), c->heads);
    if (c->qk_norm) {
        part[0] = weft_nn_rms_norm(g, "q_norm", part[0], eps);
        part[1] = weft_nn_rms_norm(g, "k_norm", part[1], eps);
    }
    for (int i = 0; i < 2 && rope; i++)
        part[i] = weft_nn_rope(g, part[i], rope, false);
    const weft_value mixed =
        weft_nn_ungroup_heads(g, weft_nn_attend(g, part[0], part[1], part[2], WEFT_NONE), groups);
    const weft_value out =
        weft_nn_linear(g, "proj", mixed, width, rope ? WEFT_LINEAR_ZERO : WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value cross_attention(weft_graph *g, const stdit3 *c, weft_value x_bgsc,
                                  const conditioning *to)
{
    const int64_t width = c->width, batch = weft_dim(g, x_bgsc, 0), groups = weft_dim(g, x_bgsc, 1),
                  tokens = weft_dim(g, x_bgsc, 2);
    weft_graph_push(g, "cross_attn");
    weft_value q = weft_nn_linear(g, "q_linear", x_bgsc, width, WEFT_LINEAR_XAVIER);
    q = weft_reshape(g, q, WEFT_SHAPE(batch, groups * tokens, c->heads, width / c->heads));
    const weft_value kv =
        weft_nn_linear(g, "kv_linear", to->text_blc, 2 * width, WEFT_LINEAR_XAVIER);
    const weft_value k = weft_nn_split_heads(g, weft_slice(g, kv, 2, 0, width), c->heads),
                     v = weft_nn_split_heads(g, weft_slice(g, kv, 2, width, width), c->heads);
    const weft_value mixed = weft_reshape(g, weft_nn_attend(g, q, k, v, to->bias),
                                          WEFT_SHAPE(batch, groups, tokens, width));
    const weft_value out = weft_nn_linear(g, "proj", mixed, width, WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    return out;
}

static weft_value block(weft_graph *g, const stdit3 *c, weft_value x, const conditioning *to,
                        bool temporal)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_value table = weft_nn_table(g, ROWS, c->width);
    const weft_value rows = weft_add(g, to->rows, table),
                     clean_rows = weft_value_ok(to->clean_rows) ? weft_add(g, to->clean_rows, table)
                                                                : WEFT_NONE;
    weft_value r[ROWS];
    for (int i = 0; i < ROWS; i++)
        r[i] = row(g, rows, clean_rows, to->mask, i, temporal);
    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), r[SCALE1], r[SHIFT1]);
    h = self_attention(g, c, h, temporal ? to->rope : NULL);
    x = weft_nn_gated_add(g, x, h, r[GATE1]);
    x = weft_add(g, x, cross_attention(g, c, x, to));
    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), r[SCALE2], r[SHIFT2]);
    weft_graph_push(g, "mlp");
    h = weft_nn_linear(g, "fc1", h, (int64_t)((double)c->width * c->mlp_ratio), WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "fc2", weft_gelu_tanh(g, h), c->width,
                       temporal ? WEFT_LINEAR_ZERO : WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return weft_nn_gated_add(g, x, h, r[GATE2]);
}

/* ---- the model ------------------------------------------------------------------------------ */

typedef struct mlp {
    weft_nn_layer first, second;
} mlp;

static mlp mlp_of(weft_graph *g, const char *name, int64_t width)
{
    mlp m;
    weft_graph_push(g, "%s", name);
    m.first = weft_nn_linear_of(g, "mlp.0", TIME_WIDTH, width, true, WEFT_LINEAR_XAVIER);
    m.second = weft_nn_linear_of(g, "mlp.2", width, width, true, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return m;
}

static weft_value mlp_by(weft_graph *g, const mlp *m, weft_value t_b)
{
    const weft_value h = weft_nn_linear_by(g, &m->first, weft_nn_sinusoid(g, TIME_WIDTH, t_b));
    return weft_nn_linear_by(g, &m->second, weft_unary(g, WEFT_OP_SILU, h));
}

/* `last`: time embeddings for the final layer, (B,1,C), of the timestep and of time 0. */
static void embed_time(weft_graph *g, const stdit3 *c, const weft_ports *in, conditioning *to,
                       weft_value last[2])
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP], fps = in->at[WEFT_PORT_FPS],
                     mask = in->at[WEFT_PORT_FRAME_MASK];
    const int64_t batch = weft_dim(g, t, 0), width = c->width;
    const mlp time = mlp_of(g, "t_embedder", width), rate = mlp_of(g, "fps_embedder", width);
    const weft_nn_layer rows =
        weft_nn_linear_of(g, "t_block.1", width, 6 * width, true, WEFT_LINEAR_XAVIER);
    const weft_value at_rate =
        mlp_by(g, &rate, weft_value_ok(fps) ? fps : weft_fill(g, WEFT_F32, WEFT_SHAPE(batch), FPS));
    weft_value made[2] = {WEFT_NONE, WEFT_NONE};
    last[1] = WEFT_NONE;
    for (int i = 0; i < (weft_value_ok(mask) ? 2 : 1); i++) {
        const weft_value e =
            weft_add(g, mlp_by(g, &time, i ? weft_affine(g, t, 0, 0) : t), at_rate);
        made[i] = weft_reshape(g, weft_nn_linear_by(g, &rows, weft_unary(g, WEFT_OP_SILU, e)),
                               WEFT_SHAPE(batch, 6, width));
        last[i] = weft_reshape(g, e, WEFT_SHAPE(batch, 1, width));
    }
    to->rows = made[0];
    to->clean_rows = made[1];
    to->mask = weft_value_ok(mask) ? weft_cast(g, mask, WEFT_F32) : WEFT_NONE;
}

static weft_value embed_text(weft_graph *g, const stdit3 *c, weft_value text)
{
    weft_graph_push(g, "y_embedder.y_proj");
    text = weft_gelu_tanh(g, weft_nn_linear(g, "fc1", text, c->width, WEFT_LINEAR_XAVIER));
    text = weft_nn_linear(g, "fc2", text, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return text;
}

static weft_value normed(weft_graph *g, weft_value x, weft_value rows_b2c)
{
    return weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps),
                            row(g, rows_b2c, WEFT_NONE, WEFT_NONE, 1, false),
                            row(g, rows_b2c, WEFT_NONE, WEFT_NONE, 0, false));
}

/* Given frames are normalised and modulated a second time, at time 0, as in the reference. */
static weft_value finish(weft_graph *g, const stdit3 *c, weft_value x, const conditioning *to,
                         const weft_value last[2], const int64_t size[3])
{
    weft_graph_push(g, "final_layer");
    const weft_value table = weft_nn_table(g, 2, c->width); /* shift, scale */
    x = normed(g, x, weft_add(g, last[0], table));
    if (weft_value_ok(to->mask)) {
        const weft_value m =
            weft_reshape(g, to->mask, WEFT_SHAPE(weft_dim(g, x, 0), size[0], 1, 1));
        const weft_value clean_rows = normed(g, x, weft_add(g, last[1], table));
        x = weft_add(g, weft_mul(g, x, m), weft_mul(g, clean_rows, weft_affine(g, m, -1, 1)));
    }
    x = weft_nn_linear(g, "linear", x, c->patch[0] * c->patch[1] * c->patch[2] * out_of(c),
                       WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    x = weft_reshape(g, x,
                     WEFT_SHAPE(weft_dim(g, x, 0), size[0] * size[1] * size[2], weft_dim(g, x, 3)));
    return weft_nn_unpatch(g, x, size, c->patch);
}

static weft_value forward(weft_graph *g, const stdit3 *c, const weft_ports *in)
{
    const weft_value latents = in->at[WEFT_PORT_LATENTS], mask = in->at[WEFT_PORT_TEXT_MASK];
    const int64_t batch = weft_dim(g, latents, 0);
    int64_t size[3];
    conditioning to = {.bias = WEFT_NONE};
    weft_value last[2], x = latents;
    for (int d = 0; d < 3; d++) { /* pads with zeros to complete patches */
        const int64_t extent = weft_dim(g, latents, 1 + d);
        x = weft_pad(g, x, 1 + d, 0, (c->patch[d] - extent % c->patch[d]) % c->patch[d]);
    }
    weft_nn_count_tokens(g, x, c->patch, size);
    embed_time(g, c, in, &to, last);
    to.text_blc = embed_text(g, c, in->at[WEFT_PORT_TEXT]);
    if (weft_value_ok(mask))
        to.bias = weft_nn_hide(g, weft_cast(g, mask, WEFT_F32));
    frame_rope(g, c, size[0], to.rope);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    if (weft_value_ok(to.mask) && weft_dim(g, to.mask, 1) != size[0])
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "a mask of %" PRId64 " frames for %" PRId64 " rows of tokens",
                               weft_dim(g, to.mask, 1), size[0]);
    x = weft_nn_patch(g, "x_embedder.proj", x, c->width, c->patch, WEFT_PATCH_3D, true);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0], size[1] * size[2], c->width));
    x = weft_add(g, x, positions_in_frame(g, c, in, size));
    for (int64_t i = 0; i < c->depth; i++) {
        weft_graph_push(g, "spatial_blocks.%d", (int)i);
        x = block(g, c, x, &to, false);
        weft_graph_pop(g);
        x = weft_permute(g, x, (int[]){0, 2, 1, 3});
        weft_graph_push(g, "temporal_blocks.%d", (int)i);
        x = block(g, c, x, &to, true);
        weft_graph_pop(g);
        x = weft_permute(g, x, (int[]){0, 2, 1, 3});
    }
    x = finish(g, c, x, &to, last, size);
    for (int d = 0; d < 3; d++)
        if (weft_dim(g, x, 1 + d) != weft_dim(g, latents, 1 + d))
            x = weft_slice(g, x, 1 + d, 0, weft_dim(g, latents, 1 + d));
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const stdit3 *c = config;
    if (c->width % c->heads || c->width / c->heads % 2 || c->width % 4)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not a multiple of 4 and of 2 x \"num_heads\", %" PRId64,
                          c->width, 2 * c->heads);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const stdit3 *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
    case WEFT_PORT_FPS:
    case WEFT_PORT_HEIGHT:
    case WEFT_PORT_WIDTH: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_FRAME_MASK: return WEFT_SHAPE(s->batch, s->frames);
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* Sides are padded to complete patches, so latents of any size fit. */
static void grid(const void *config, weft_grid *grid)
{
    const stdit3 *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->patch[i];
    grid->pads = true;
    grid->channels = c->in_channels;
    grid->out_channels = out_of(c);
}

static void begin(const void *config, const weft_weight *weight, int64_t count, uint64_t seed)
{
    (void)config, (void)seed;
    for (int64_t i = 0; i < count; i++) {
        const int64_t pairs = weight[i].shape.dim[0];
        for (int64_t p = 0; !strcmp(weight[i].name, "rope.freqs") && p < pairs; p++)
            weight[i].data[p] = (float)pow(10000, -(double)p / (double)pairs);
    }
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    cond->form = WEFT_FRAME_CONDITION_FRAME_MASK;
}

/* clang-format off */
#define AT(member) offsetof(stdit3, member)
static const weft_field fields[] = {
    {"model_type", WEFT_FIELD_IGNORED, .fallback = "\"STDiT3\""},
    {"input_size", WEFT_FIELD_IGNORED, .fallback = "[null, null, null]"},
    {"input_sq_size", WEFT_FIELD_I64, AT(square), "512", 1, 1 << 16,
     .help = "side of the square image, in pixels, that positions are scaled to"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "4", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "latent channels"},
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    {"hidden_size", WEFT_FIELD_I64, AT(width), "1152", 4, 1 << 16, .help = "width"},
    {"depth", WEFT_FIELD_I64, AT(depth), "28", 0, 1024,
     .help = "pairs of a spatial and a temporal block"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "16", 1, 1024, .help = "attention heads"},
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),
    {"class_dropout_prob", WEFT_FIELD_IGNORED, .fallback = "0.1"},
    {"pred_sigma", WEFT_FIELD_BOOL, AT(sigma), "true",
     .help = "twice the output channels; the second half is not used"},
    {"drop_path", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "4096"),
    {"model_max_length", WEFT_FIELD_I64, AT(text_length), "300", 1, 1 << 16,
     .help = "text tokens"},
    {"qk_norm", WEFT_FIELD_BOOL, AT(qk_norm), "true", .help = "norms of queries and keys"},
    {"enable_flash_attn", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"enable_layernorm_kernel", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"enable_sequence_parallelism", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"only_train_temporal", WEFT_FIELD_FIXED, .fallback = "false"},
    {"freeze_y_embedder", WEFT_FIELD_FIXED, .fallback = "false"},
    {"skip_y_embedder", WEFT_FIELD_FIXED, .fallback = "false"},
};

static const weft_named_config sizes[] = {
    {"stdit3-xl", "{}"},
    {"stdit3-3b", "{\"hidden_size\": 1872, \"num_heads\": 26}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "x"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "y"},
    {WEFT_PORT_TEXT_MASK,  false, "mask", .optional = true},
    {WEFT_PORT_FRAME_MASK, false, "x_mask", .optional = true},
    {WEFT_PORT_FPS,        false, "fps", .optional = true},
    {WEFT_PORT_HEIGHT,     false, "height", .optional = true},
    {WEFT_PORT_WIDTH,      false, "width", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* The embeddings of an absent text, which generation reads from the file. */
static const weft_rename_rule original[] = {
    {"y_embedder.y_embedding", ""},
};
static const weft_key_mapping mappings[] = {
    {"original", "spatial_blocks.0.attn.qkv.weight", original,
     sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 300,
     .clean = WEFT_CLEAN_LOWER, .prompt_after = " aesthetic score: 6.5.",
     .prompt_mark = "aesthetic score:", .no_text = "y_embedder.y_embedding"},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published for Open-Sora 1.2. Other
 * sizes: the change of the first block's residual (DBCache's default threshold, and twice that). */
static bool is_xl(const void *config)
{
    const stdit3 *c = config;
    return c->depth == 28 && c->width == 1152;
}
static const weft_feature_cache_row caches[] = {
    {is_xl, 0, WEFT_SIGNAL_INPUT,
     {2.17546007e2, -1.18329252e2, 2.68662585e1, -4.59364272e-2, 4.84426240e-2}, 0.1, 0.2, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_stdit3 = {
    .unused = weft_transformers_unused, /* the reference is a transformers model */
    .class_name = "STDiT3", .also = "STDiT3_XL_2", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "weft", .pipeline = "STDiT3Pipeline", .autoencoder = "opensora-1.2-vae",
    .negative = true, .was_positive = true,
    .marks = {"input_sq_size", "caption_channels"},
    .config_bytes = sizeof(stdit3), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "first frame, with a causal autoencoder", .fps = 24, .image_fps = 120,
    .begin = begin,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .lora_targets = (const char *const[]){"qkv", "q_linear", "kv_linear", "proj", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_stdit, .recipes = WEFT_SPLIT_STDIT_LISTS,
};
/* clang-format on */
