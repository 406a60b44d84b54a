/* Sana-Video transformers (diffusers' SanaVideoTransformer3DModel). Parameters have the names of
 * the public checkpoints.
 *
 *   latents --patch--> x (B,S,C); text --MLP, norm--> y (B,L,C)
 *   timestep, per sample or per token --MLP, linear--> six modulation rows for all blocks
 *   blocks: linear attention, attention to y, convolutions in place of a feed-forward
 *   x --> norm, modulate, project --> prediction
 *
 * Linear attention has no softmax: keys and values of all tokens become one matrix per head. The
 * cost grows with the number of tokens, not with its square. Positions rotate queries and keys in
 * the numerator only. The convolutions are 3x3 in a frame, per channel, and over three frames.
 * Tokens are in the order of their places in a frame: all frames of the first place, then of the
 * second. Ranks that share the tokens then have complete rows of frames, and the convolution over
 * frames sends nothing.
 * Shape letters: B batch, T, Y, X tokens of the sides, N = Y X, S = N T, L text tokens. C width, H
 * heads, D head width, I inner channels of the convolutions. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

enum { TIME = 256, TAPS = 3 };

typedef struct sana_video {
    int64_t in_channels, out_channels, heads, head_dim, layers, cross_heads, cross_dim;
    int64_t text_dim, sample, patch[3], most;
    double mlp_ratio, eps;
    bool bias;
} sana_video;
_Static_assert(sizeof(sana_video) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double norm_eps = 1e-5, last_eps = 1e-6, denominator_eps = 1e-15, largest = 3e38;

static int64_t width_of(const sana_video *c)
{
    return c->heads * c->head_dim;
}

static int64_t inner_of(const sana_video *c)
{
    return (int64_t)(c->mlp_ratio * (double)width_of(c));
}

/* ---- attention ------------------------------------------------------------------------------ */

static weft_value positive(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, 0, largest);
}

/* (B,S,H,D) -> (B,H,S,D), and back. */
static weft_value heads_first(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, (int[]){0, 2, 1, 3});
}

/* Linear attention of q, k, v (B,S,H,D), q and k not negative. */
static weft_value attend_linearly(weft_graph *g, const weft_value qkv[3], const weft_value *rope)
{
    const weft_value q = heads_first(g, weft_nn_rope(g, qkv[0], rope, false)),
                     k = heads_first(g, weft_nn_rope(g, qkv[1], rope, false)),
                     v = heads_first(g, qkv[2]);
    weft_graph_push(g, "all_tokens"); /* the two sums over tokens, of which ranks have terms */
    const weft_value keys = weft_sum(g, qkv[1], 1u << 1), /* (B,1,H,D) */
        state = weft_matmul(g, k, v, true, false);        /* (B,H,D,D) */
    weft_graph_pop(g);
    const weft_value weight = weft_sum(g, weft_mul(g, qkv[0], keys), 1u << 3), /* (B,S,H,1) */
        out = heads_first(g, weft_matmul(g, q, state, false, false));
    return weft_div(g, out, weft_affine(g, weight, 1, denominator_eps));
}

/* "attn1": linear attention in the video. */
static weft_value attend_video(weft_graph *g, const sana_video *c, weft_value x,
                               const weft_value *rope)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"}, *const norms[] = {"norm_q",
                                                                                   "norm_k"};
    weft_value qkv[3];
    weft_graph_push(g, "attn1");
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_dense(g, names[i], x, width_of(c), c->bias);
        if (i < 2)
            qkv[i] = weft_nn_rms_norm(g, norms[i], qkv[i], norm_eps);
        qkv[i] = weft_nn_split_heads(g, qkv[i], c->heads);
        if (i < 2)
            qkv[i] = positive(g, qkv[i]);
    }
    const weft_value out =
        weft_nn_linear(g, "to_out.0", weft_nn_join_heads(g, attend_linearly(g, qkv, rope)),
                       width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* "attn2": attention to the text. */
static weft_value attend_text(weft_graph *g, const sana_video *c, weft_value x, weft_value text,
                              weft_value hidden)
{
    const int64_t width = c->cross_heads * c->cross_dim;
    weft_graph_push(g, "attn2");
    weft_value q = weft_nn_linear(g, "to_q", x, width, WEFT_LINEAR_XAVIER),
               k = weft_nn_linear(g, "to_k", text, width, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", text, width, WEFT_LINEAR_XAVIER);
    q = weft_nn_split_heads(g, weft_nn_rms_norm(g, "norm_q", q, norm_eps), c->cross_heads);
    k = weft_nn_split_heads(g, weft_nn_rms_norm(g, "norm_k", k, norm_eps), c->cross_heads);
    const weft_value h = weft_nn_attend(g, q, k, weft_nn_split_heads(g, v, c->cross_heads), hidden);
    const weft_value out =
        weft_nn_linear(g, "to_out.0", weft_nn_join_heads(g, h), width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* ---- convolutions --------------------------------------------------------------------------- */

/* A weight of a convolution, as a matrix (rows,columns). */
static weft_value weight_of(weft_graph *g, weft_shape shape, int64_t rows, int64_t columns)
{
    const double reach = sqrt(6.0 / (double)(columns + rows));
    const weft_value w = weft_param(g, "weight", WEFT_F32, shape,
                                    (weft_init){.kind = WEFT_INIT_UNIFORM, .value = reach});
    return weft_reshape(g, w, WEFT_SHAPE(rows, columns));
}

static weft_value bias_of(weft_graph *g, int64_t count)
{
    return weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(count), (weft_init){.kind = WEFT_INIT_ZERO});
}

/* x (B,N,T,C) with the sum of three frames, each times its own matrix: "conv_temp". */
static weft_value convolve_frames(weft_graph *g, weft_value x)
{
    const int64_t frames = weft_dim(g, x, 2), width = weft_dim(g, x, 3);
    weft_graph_push(g, "conv_temp");
    const weft_value weight =
        weft_reshape(g, weight_of(g, WEFT_SHAPE(width, width, TAPS, 1), width, width * TAPS),
                     WEFT_SHAPE(width, width, TAPS));
    const weft_value padded = weft_pad(g, x, 2, 1, 1);
    weft_value sum = x;
    for (int i = 0; i < TAPS; i++) {
        const weft_nn_layer tap = {
            .name = "tap",
            .weight = weft_reshape(g, weft_slice(g, weight, 2, i, 1), WEFT_SHAPE(width, width)),
            .bias = WEFT_NONE};
        sum = weft_add(g, sum, weft_nn_linear_by(g, &tap, weft_slice(g, padded, 2, i, frames)));
    }
    weft_graph_pop(g);
    return sum;
}

/* Halves of the first two convolutions of "ff". One of the halves is a gate. */
typedef struct half {
    weft_value weight, bias, kernel, kernel_bias;
} half;

static void halves_of(weft_graph *g, const sana_video *c, half to[2])
{
    const int64_t width = width_of(c), inner = inner_of(c);
    weft_graph_push(g, "conv_inverted");
    const weft_value weight = weight_of(g, WEFT_SHAPE(2 * inner, width, 1, 1), 2 * inner, width),
                     bias = bias_of(g, 2 * inner);
    weft_graph_push(g, "half");
    for (int i = 0; i < 2; i++) {
        to[i].weight = weft_slice(g, weight, 0, i * inner, inner);
        to[i].bias = weft_slice(g, bias, 0, i * inner, inner);
    }
    weft_graph_pop(g);
    weft_graph_pop(g);
    weft_graph_push(g, "conv_depth");
    const weft_value kernel =
                         weight_of(g, WEFT_SHAPE(2 * inner, 1, TAPS, TAPS), 2 * inner, TAPS * TAPS),
                     kernel_bias = bias_of(g, 2 * inner);
    weft_graph_push(g, "half");
    for (int i = 0; i < 2; i++) {
        to[i].kernel = weft_slice(g, kernel, 0, i * inner, inner);
        to[i].kernel_bias = weft_slice(g, kernel_bias, 0, i * inner, inner);
    }
    weft_graph_pop(g);
    weft_graph_pop(g);
}

/* x (B,S,C) of size[3] tokens */
static weft_value convolve(weft_graph *g, const sana_video *c, weft_value x, const int64_t size[3])
{
    const int64_t batch = weft_dim(g, x, 0), width = width_of(c), inner = inner_of(c),
                  places = size[1] * size[2];
    half halves[2];
    weft_value h[2];
    weft_graph_push(g, "ff");
    halves_of(g, c, halves);
    weft_graph_push(g, "frames");
    x = weft_reshape(g, x, WEFT_SHAPE(batch, places, size[0], width));
    weft_graph_pop(g);
    for (int i = 0; i < 2; i++) {
        const weft_nn_layer layer = {"half", halves[i].weight, halves[i].bias};
        weft_graph_push(g, "conv_inverted");
        h[i] = weft_unary(g, WEFT_OP_SILU, weft_nn_linear_by(g, &layer, x));
        weft_graph_pop(g);
        h[i] = weft_reshape(g, h[i], WEFT_SHAPE(batch, size[1], size[2], size[0], inner));
        weft_graph_push(g, "conv_depth");
        h[i] = weft_nn_conv_channels(g, h[i], 1, TAPS, halves[i].kernel, halves[i].kernel_bias);
        weft_graph_pop(g);
    }
    x = weft_mul(g, h[0], weft_unary(g, WEFT_OP_SILU, h[1]));
    x = weft_reshape(g, x, WEFT_SHAPE(batch, places, size[0], inner));
    weft_graph_push(g, "conv_point");
    const weft_nn_layer point = {
        "point", weight_of(g, WEFT_SHAPE(width, inner, 1, 1), width, inner), WEFT_NONE};
    x = weft_nn_linear_by(g, &point, x);
    weft_graph_pop(g);
    x = convolve_frames(g, x);
    weft_graph_push(g, "tokens");
    x = weft_reshape(g, x, WEFT_SHAPE(batch, places * size[0], width));
    weft_graph_pop(g);
    weft_graph_pop(g);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Values that the blocks share. */
typedef struct shared {
    weft_value rows; /* modulation (B,6,C) or (B,S,6,C) */
    weft_value text, hidden;
    weft_value rope[WEFT_MAX_OUTPUTS];
    int64_t size[3];
} shared;

static weft_value block(weft_graph *g, const sana_video *c, const shared *s, weft_value x)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_value mod = weft_nn_add_table(g, s->rows, ROWS);
    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps),
                                    weft_nn_row(g, mod, SCALE1), weft_nn_row(g, mod, SHIFT1));
    x = weft_nn_gated_add(g, x, attend_video(g, c, h, s->rope), weft_nn_row(g, mod, GATE1));
    x = weft_add(g, x, attend_text(g, c, x, s->text, s->hidden));
    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, SCALE2),
                         weft_nn_row(g, mod, SHIFT2));
    return weft_nn_gated_add(g, x, convolve(g, c, h, s->size), weft_nn_row(g, mod, GATE2));
}

static weft_value embed_text(weft_graph *g, const sana_video *c, weft_value text)
{
    text = weft_nn_embedder(g, "caption_projection", text, width_of(c), WEFT_NN_GELU_TANH);
    return weft_nn_rms_norm(g, "caption_norm", text, norm_eps);
}

/* x (B, outer inner, ...) with the tokens in the other order: (B, inner outer, ...). */
static weft_value turn_tokens(weft_graph *g, weft_value x, int64_t outer, int64_t inner)
{
    const weft_shape shape = weft_value_get(g, x)->shape;
    x = weft_reshape(g, x, WEFT_SHAPE(shape.dim[0], outer, inner, -1));
    return weft_reshape(g, weft_permute(g, x, (int[]){0, 2, 1, 3}), shape);
}

/* "patch_embedding", a convolution, as a linear layer. Its patches are in the order of the tokens,
 * so that ranks that share the tokens read the latents of their own. */
static weft_value embed_latents(weft_graph *g, const sana_video *c, weft_value latents,
                                const int64_t size[3])
{
    const int64_t *p = c->patch, cells = p[0] * p[1] * p[2], width = width_of(c),
                  inner = cells * c->in_channels;
    weft_value x = weft_nn_fold(g, latents, p); /* (B,T,Y,X,cells in), channels fastest */
    x = weft_reshape(g, x, WEFT_SHAPE(weft_dim(g, latents, 0), size[0] * size[1] * size[2], inner));
    x = turn_tokens(g, x, size[0], size[1] * size[2]);
    weft_graph_push(g, "patch_embedding");
    weft_value weight =
        weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(width, c->in_channels, p[0], p[1], p[2]),
                   (weft_init){.kind = WEFT_INIT_UNIFORM, .value = 1.0 / sqrt((double)inner)});
    weight = weft_reshape(g, weight, WEFT_SHAPE(width, c->in_channels, cells));
    weight = weft_reshape(g, weft_permute(g, weight, (int[]){0, 2, 1}), WEFT_SHAPE(width, inner));
    const weft_nn_layer layer = {"patch", weight, bias_of(g, width)};
    x = weft_nn_linear_by(g, &layer, x);
    weft_graph_pop(g);
    return x;
}

/* Frames, rows and columns share the pairs of a head as in Wan. */
static void video_rope(weft_graph *g, const sana_video *c, shared *s)
{
    const int64_t pairs = c->head_dim / 2, side = c->head_dim / 6, *size = s->size;
    const weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                       .step = {1, 1, 1},
                                       .grid = {size[0], size[1], size[2]},
                                       .pairs = {pairs - 2 * side, side, side},
                                       .len = size[0] * size[1] * size[2]};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, s->rope);
    for (int i = 0; i < 2; i++) { /* cosines, sines (S,D/2) */
        const weft_value table =
            weft_reshape(g, s->rope[i], WEFT_SHAPE(size[0], size[1] * size[2], pairs));
        s->rope[i] =
            weft_reshape(g, weft_permute(g, table, (int[]){1, 0, 2}), WEFT_SHAPE(attr.len, pairs));
    }
}

static weft_value forward(weft_graph *g, const sana_video *c, const weft_ports *in)
{
    enum { BLOCK_ROWS = 6, LAST_ROWS = 2 };
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    weft_value embedded;
    shared s = {.hidden = WEFT_NONE};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, s.size);
    for (int d = 0; d < 3; d++)
        if (s.size[d] > c->most)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%" PRId64 " tokens along a side exceed rope_max_seq_len %" PRId64,
                            s.size[d], c->most);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t places = s.size[1] * s.size[2];
    weft_value times = in->at[WEFT_PORT_TIMESTEP];
    if (weft_value_get(g, times)->shape.rank > 1)
        times = turn_tokens(g, times, s.size[0], places);
    video_rope(g, c, &s);
    s.rows = weft_nn_time_rows(g, "time_embed", weft_nn_sinusoid(g, TIME, times), width_of(c),
                               BLOCK_ROWS, &embedded);
    s.text = embed_text(g, c, in->at[WEFT_PORT_TEXT]);
    if (weft_value_ok(mask))
        s.hidden = weft_nn_hide(g, weft_cast(g, mask, WEFT_F32));
    weft_value x = embed_latents(g, c, in->at[WEFT_PORT_LATENTS], s.size);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        x = block(g, c, &s, x);
        weft_graph_pop(g);
    }
    const weft_value mod = weft_nn_add_table(g, embedded, LAST_ROWS); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, last_eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, turn_tokens(g, x, places, s.size[0]), s.size, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const sana_video *c = config;
    return c->head_dim % 2
               ? weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                            "%" PRId64 " is not even, which rotary embedding needs", c->head_dim)
               : WEFT_OK;
}

static void grid(const void *config, weft_grid *grid)
{
    const sana_video *c = config;
    for (int d = 0; d < 3; d++)
        grid->factor[d] = c->patch[d];
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const sana_video *c = config;
    if (port == WEFT_PORT_TIMESTEP)
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_TIMES};
}

static int64_t same_width(const void *config)
{
    return width_of(config);
}

/* clang-format off */
#define AT(member) offsetof(sana_video, member)
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    WEFT_HEADS_FIELD(AT(heads), "20"),
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "112"),
    WEFT_BLOCKS_FIELD(AT(layers), "20"),
    {"num_cross_attention_heads", WEFT_FIELD_I64, AT(cross_heads), "20", 1, 1024,
     .help = "heads of the attention to the text"},
    {"cross_attention_head_dim", WEFT_FIELD_I64, AT(cross_dim), "112", 1, 4096,
     .help = "width of a head of the attention to the text"},
    {"cross_attention_dim", WEFT_FIELD_DERIVED, .length = same_width},
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "2304"),
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "2.5"),
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "false",
     .help = "queries, keys and values of the video have a bias"},
    {"sample_size", WEFT_FIELD_I64, AT(sample), "30", 1, 1 << 16,
     .help = "resolution of the training, for the reference's list of sizes"},
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "false"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-06"),
    {"interpolation_scale", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"guidance_embeds", WEFT_FIELD_FIXED, .fallback = "false"},
    {"guidance_embeds_scale", WEFT_FIELD_IGNORED, .fallback = "0.1"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm_across_heads\""},
    {"rope_max_seq_len", WEFT_FIELD_I64, AT(most), "1024", 1, 1 << 20,
     .help = "tokens along a side at most"},
};

static const weft_named_config sizes[] = {
    {"sana-video-2b", "{\"mlp_ratio\":3.0}"},
    {"sana-video-2b-720p",
     "{\"mlp_ratio\":3.0,\"in_channels\":128,\"out_channels\":128,\"patch_size\":[1,1,1],"
     "\"sample_size\":22}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of the authors' files. */
static const weft_rename_rule original[] = {
    {"y_embedder.y_embedding",  ""}, /* the empty caption of their training */
    {"pos_embed",               ""}, /* computed */
    {"logvar_linear",           ""}, /* loss only */
    {"x_embedder.proj",         "patch_embedding"},
    {"y_embedder.y_proj.fc1",   "caption_projection.linear_1"},
    {"y_embedder.y_proj.fc2",   "caption_projection.linear_2"},
    {"attention_y_norm",        "caption_norm"},
    {"t_embedder.mlp.0",        "time_embed.emb.timestep_embedder.linear_1"},
    {"t_embedder.mlp.2",        "time_embed.emb.timestep_embedder.linear_2"},
    {"t_block.1",               "time_embed.linear"},
    {"final_layer.linear",      "proj_out"},
    {"blocks.#.scale_shift_table", "transformer_blocks.#.scale_shift_table"},
    {"blocks",                  "transformer_blocks"},
    {"final_layer.scale_shift_table", "scale_shift_table"},
    {"attn.qkv",                "attn1.{to_q,to_k,to_v}"},
    {"attn.q_norm",             "attn1.norm_q"},
    {"attn.k_norm",             "attn1.norm_k"},
    {"attn.proj",               "attn1.to_out.0"},
    {"cross_attn.q_linear",     "attn2.to_q"},
    {"cross_attn.kv_linear",    "attn2.{to_k,to_v}"},
    {"cross_attn.q_norm",       "attn2.norm_q"},
    {"cross_attn.k_norm",       "attn2.norm_k"},
    {"cross_attn.proj",         "attn2.to_out.0"},
    {"mlp.inverted_conv.conv",  "ff.conv_inverted"},
    {"mlp.depth_conv.conv",     "ff.conv_depth"},
    {"mlp.point_conv.conv",     "ff.conv_point"},
    {"mlp.t_conv",              "ff.conv_temp"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "transformer_blocks.0.ff.conv_temp.weight", NULL, 0},
    {"original",  "blocks.0.mlp.t_conv.weight", original, sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 300,
     .clean = WEFT_CLEAN_LOWER, .instruction = true,
     .before =
         "Given a user prompt, generate an 'Enhanced prompt' that provides detailed visual "
         "descriptions suitable for video generation. Evaluate the level of detail in the user "
         "prompt:\n"
         "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, "
         "textures, motion, and temporal relationships to create vivid and dynamic scenes.\n"
         "- If the prompt is already detailed, refine and enhance the existing details slightly "
         "without overcomplicating.\n"
         "Here are examples of how to transform or refine prompts:\n"
         "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat slowly settling "
         "into a curled position, peacefully falling asleep on a warm sunny windowsill, with "
         "gentle sunlight filtering through surrounding pots of blooming red flowers.\n"
         "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, "
         "featuring glowing street lamps gradually lighting up, a diverse crowd of people in "
         "colorful clothing walking past, and a double-decker bus smoothly passing by towering "
         "glass skyscrapers.\n"
         "Please generate only the enhanced description for the prompt below and avoid including "
         "any additional commentary or evaluations:\n"
         "User Prompt: "},
};

/* ---- recipes ---- */

#define TOKENS {WEFT_S, 1}
#define ALL {WEFT_R, 0}
#define COLUMNS(name, axis)                                   \
    {name ".weight",                  axis, {WEFT_S, 0}},     \
    {name ".bias",                    axis, {WEFT_S, 0}, .optional = true}
/* Tensor parallel (Shoeybi et al., Megatron-LM): heads, and inner channels of the convolutions. A
 * half of a fused weight is a slice, of which each rank takes its channels. The variadic arguments
 * give the layout of the outputs of row-split layers. */
#define TENSOR_PARALLEL(axis, ...)                            \
    COLUMNS("*attn*.to_q", axis),                             \
    COLUMNS("*attn*.to_k", axis),                             \
    COLUMNS("*attn*.to_v", axis),                             \
    {"*attn*.norm_q.weight",          axis, {WEFT_S, 0}},     \
    {"*attn*.norm_k.weight",          axis, {WEFT_S, 0}},     \
    {"*attn*.to_out.0.weight",        axis, {WEFT_S, 1}},     \
    {"*ff.*.half:slice",              axis, {WEFT_S, 0}},     \
    {"*ff.conv_point.weight",         axis, {WEFT_S, 1}},     \
    {"*attn*.to_out.0:linear",        axis, __VA_ARGS__}
#define SEQUENCE(axis)                                        \
    {"*blocks.*:layer_norm",          axis, TOKENS},          \
    {"*ff.tokens:reshape",            axis, TOKENS}
/* Places of a frame are split where three frames are added. */
#define PLACES {WEFT_S, 1}
#define FRAMES {WEFT_S, 2}

static const weft_recipe_row
    tp_rows[] = {TENSOR_PARALLEL("tp", ALL), {"*ff.conv_point.*:linear", "tp", ALL}},
    sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS), SEQUENCE("sp"),
                 {"*ff.conv_point.*:linear", "sp", PLACES}},
    /* Context parallel: ranks have the tokens of some places in all frames. Linear attention sums
     * its two terms over ranks. The convolutions in a frame need complete frames: an all-to-all
     * before the first one turns places into frames, and another one turns them back. */
    cp_rows[] = {SEQUENCE("cp"),
                 {"*attn1.all_tokens:sum",    "cp", ALL},
                 {"*attn1.all_tokens:matmul", "cp", ALL},
                 {"*attn2:attention",         "cp", TOKENS},
                 {"*ff.frames:reshape",       "cp", FRAMES},
                 {"*ff.conv_point.*:linear",  "cp", PLACES}};
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp = LIST("tp", "tensor parallel", tp_rows),
    cp = LIST("cp", "context parallel, places into frames", cp_rows),
    sp = LIST("sp", "tensor parallel, tokens in between", sp_rows);
static const weft_recipe_list *const recipes[] = {&tp, &cp, &sp};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_sana_video_dit = {
    .class_name = "SanaVideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "SanaVideoPipeline",
    .image_pipeline = "SanaImageToVideoPipeline",
    .autoencoder = "AutoencoderKLWan",
    .marks = {"num_cross_attention_heads", "rope_max_seq_len"},
    .config_bytes = sizeof(sana_video), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition, .frame_condition_help = "a first frame",
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
