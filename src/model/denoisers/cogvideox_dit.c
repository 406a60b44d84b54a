/* CogVideoX diffusion transformers 2B, 5B and 1.5 (diffusers' CogVideoXTransformer3DModel).
 * Parameters have the names of the public checkpoints.
 *
 *   text --linear--> y (B,L,C); latents --patch--> x (B,S,C)
 *   positions: added sines; or RoPE, with or without learned positions
 *   timestep --sinusoid, MLP--> temb (B,E), + embedded offset (1.5 image to video)
 *
 *   block:  x', y' = attention over both, of mod(norm1 x), mod(norm1 y)
 *           x += gate x', y += gate y'; the same with norm2 and a feed-forward of each token
 *
 * The layers of a block are shared by text and video. Modulations are separate. The streams stay
 * separate: only keys and values are joined, text first.
 * Shape letters: B batch, S video tokens, L text tokens, C width, E time embedding width, D head
 * width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

typedef struct cogvideox {
    int64_t heads, head_dim, in_channels, out_channels;
    int64_t time_dim, offset_dim; /* offset_dim 0: none */
    int64_t text_dim, layers;
    bool attention_bias, patch_bias;
    int64_t sample[3]; /* latent width, latent height, video frames */
    int64_t patch, patch_t;
    int64_t compression, text_length;
    double eps, spatial_scale, temporal_scale;
    bool rotary, learned;
} cogvideox;
_Static_assert(sizeof(cogvideox) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

enum { TEXT, VIDEO, STREAMS };
static const double qk_eps = 1e-6;

static void patch_of(const cogvideox *c, int64_t patch[3])
{
    patch[0] = c->patch_t ? c->patch_t : 1;
    patch[1] = patch[2] = c->patch;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* RoPE rotates a quarter of a head by frames, the rest by rows and columns. */
static void rope_tables(weft_graph *g, const cogvideox *c, const int64_t size[3],
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t side = c->head_dim / 8 * 3;
    weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                 .step = {1, 1, 1},
                                 .grid = {size[0], size[1], size[2]},
                                 .pairs = {c->head_dim / 4 / 2, side / 2, side / 2},
                                 .len = size[0] * size[1] * size[2]};
    const int64_t base[2] = {c->sample[1] / c->patch, c->sample[0] / c->patch};
    if (!c->patch_t)
        weft_nn_fit_positions(size + 1, base, attr.origin + 1, attr.step + 1);
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
}

/* (1,S,C): sines, then cosines. A quarter of the width is for frames, the rest for columns, then
 * rows. */
static weft_value sine_positions(weft_graph *g, const cogvideox *c, const int64_t size[3])
{
    const int64_t width = c->heads * c->head_dim, frames = width / 4 / 2,
                  side = width / 4 * 3 / 2 / 2;
    const weft_attr_rope_table attr = {
        .theta = {10000, 10000, 10000},
        .step = {1 / c->temporal_scale, 1 / c->spatial_scale, 1 / c->spatial_scale},
        .grid = {size[0], size[1], size[2]},
        .pairs = {frames, side, side},
        .len = size[0] * size[1] * size[2]};
    return weft_reshape(g, weft_nn_sines(g, &attr, (int[]){0, 2, 1}, 3),
                        WEFT_SHAPE(1, attr.len, width));
}

/* Adds the positions of text and video from the checkpoint, which are fixed values for one size. */
static void add_learned(weft_graph *g, const cogvideox *c, const int64_t size[3], weft_value x[2])
{
    const int64_t width = c->heads * c->head_dim,
                  tokens = ((c->sample[2] - 1) / c->compression + 1) * (c->sample[1] / c->patch) *
                           (c->sample[0] / c->patch);
    const weft_value table =
        weft_buffer(g, "pos_embedding", WEFT_F32, WEFT_SHAPE(1, c->text_length + tokens, width),
                    (weft_init){.kind = WEFT_INIT_ZERO});
    if (weft_graph_check(g) != WEFT_OK)
        return;
    if (size[0] * size[1] * size[2] != tokens || weft_dim(g, x[TEXT], 1) != c->text_length)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "the checkpoint has positions for latents of %" PRId64 "x%" PRId64
                        ", %" PRId64 " frames of pixels "
                        "and %" PRId64 " tokens of text only",
                        c->sample[0], c->sample[1], c->sample[2], c->text_length);
    x[TEXT] = weft_add(g, x[TEXT], weft_slice(g, table, 1, 0, c->text_length));
    x[VIDEO] = weft_add(g, x[VIDEO], weft_slice(g, table, 1, c->text_length, tokens));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Modulated norm of one half of a block. gate[]: gates of the half's output. */
static void modulated_norm(weft_graph *g, const cogvideox *c, const char *name, weft_value temb_be,
                           const weft_value x[2], weft_value h[2], weft_value gate[2])
{
    enum { SHIFT, SCALE, GATE, TEXT_SHIFT, TEXT_SCALE, TEXT_GATE, ROWS };
    const int64_t width = c->heads * c->head_dim;
    weft_graph_push(g, "%s", name);
    weft_value mod = weft_nn_linear(g, "linear", weft_unary(g, WEFT_OP_SILU, temb_be), ROWS * width,
                                    WEFT_LINEAR_XAVIER);
    mod = weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, mod, 0), ROWS, width));
    const weft_nn_layer norm = weft_nn_norm_of(g, "norm", width, true);
    for (int s = 0; s < STREAMS; s++) {
        const int first = s == TEXT ? TEXT_SHIFT : SHIFT;
        h[s] = weft_nn_modulate(g, weft_nn_layer_norm_by(g, &norm, x[s], c->eps),
                                weft_nn_row(g, mod, first + SCALE),
                                weft_nn_row(g, mod, first + SHIFT));
        gate[s] = weft_nn_row(g, mod, first + GATE);
    }
    weft_graph_pop(g);
}

static void attention(weft_graph *g, const cogvideox *c, weft_value h[2], const weft_value *rope)
{
    const int64_t width = c->heads * c->head_dim;
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    weft_nn_layer layer[3], norm[2];
    weft_value qkv[3][STREAMS];
    weft_graph_push(g, "attn1");
    for (int i = 0; i < 3; i++)
        layer[i] =
            weft_nn_linear_of(g, names[i], width, width, c->attention_bias, WEFT_LINEAR_XAVIER);
    norm[0] = weft_nn_norm_of(g, "norm_q", c->head_dim, true);
    norm[1] = weft_nn_norm_of(g, "norm_k", c->head_dim, true);
    const weft_nn_layer out =
        weft_nn_linear_of(g, "to_out.0", width, width, true, WEFT_LINEAR_XAVIER);
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 3; i++) {
            weft_value v = weft_nn_split_heads(g, weft_nn_linear_by(g, &layer[i], h[s]), c->heads);
            if (i < 2)
                v = weft_nn_layer_norm_by(g, &norm[i], v, qk_eps);
            qkv[i][s] = i < 2 && s == VIDEO && rope ? weft_nn_rope(g, v, rope, false) : v;
        }
    weft_nn_attend_jointly(g, STREAMS, qkv[0], qkv[1], qkv[2], WEFT_NONE, h);
    for (int s = 0; s < STREAMS; s++)
        h[s] = weft_nn_linear_by(g, &out, weft_nn_join_heads(g, h[s]));
    weft_graph_pop(g);
}

static void feed_forward(weft_graph *g, const cogvideox *c, weft_value h[2])
{
    const int64_t width = c->heads * c->head_dim;
    weft_graph_push(g, "ff.net");
    const weft_nn_layer in = weft_nn_linear_of(g, "0.proj", width, 4 * width, true,
                                               WEFT_LINEAR_XAVIER),
                        out = weft_nn_linear_of(g, "2", 4 * width, width, true, WEFT_LINEAR_XAVIER);
    for (int s = 0; s < STREAMS; s++)
        h[s] = weft_nn_linear_by(g, &out, weft_gelu_tanh(g, weft_nn_linear_by(g, &in, h[s])));
    weft_graph_pop(g);
}

static void block(weft_graph *g, const cogvideox *c, weft_value temb_be, const weft_value *rope,
                  weft_value x[2])
{
    weft_value h[STREAMS], gate[STREAMS];
    modulated_norm(g, c, "norm1", temb_be, x, h, gate);
    attention(g, c, h, rope);
    for (int s = 0; s < STREAMS; s++)
        x[s] = weft_nn_gated_add(g, x[s], h[s], gate[s]);
    modulated_norm(g, c, "norm2", temb_be, x, h, gate);
    feed_forward(g, c, h);
    for (int s = 0; s < STREAMS; s++)
        x[s] = weft_nn_gated_add(g, x[s], h[s], gate[s]);
}

/* ---- the model ------------------------------------------------------------------------------ */

static void embed(weft_graph *g, const cogvideox *c, const weft_ports *in, const int64_t size[3],
                  weft_value x[2])
{
    const int64_t width = c->heads * c->head_dim;
    int64_t patch[3];
    patch_of(c, patch);
    weft_graph_push(g, "patch_embed");
    x[VIDEO] =
        weft_nn_patch(g, "proj", in->at[WEFT_PORT_LATENTS], width, patch,
                      c->patch_t ? WEFT_PATCH_LINEAR : WEFT_PATCH_2D, c->patch_t || c->patch_bias);
    x[TEXT] = weft_nn_linear(g, "text_proj", in->at[WEFT_PORT_TEXT], width, WEFT_LINEAR_XAVIER);
    if (c->learned)
        add_learned(g, c, size, x);
    else if (!c->rotary)
        x[VIDEO] = weft_add(g, x[VIDEO], sine_positions(g, c, size));
    weft_graph_pop(g);
    if (!c->rotary && weft_dim(g, x[TEXT], 1) != c->text_length)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " tokens of text; this model takes exactly %" PRId64,
                        weft_dim(g, x[TEXT], 1), c->text_length);
}

static weft_value embed_time(weft_graph *g, const cogvideox *c, const weft_ports *in)
{
    const int64_t width = c->heads * c->head_dim;
    weft_value temb = weft_nn_embedder(g, "time_embedding",
                                       weft_nn_sinusoid(g, width, in->at[WEFT_PORT_TIMESTEP]),
                                       c->time_dim, WEFT_NN_SILU);
    if (c->offset_dim)
        temb =
            weft_add(g, temb,
                     weft_nn_embedder(g, "ofs_embedding",
                                      weft_nn_sinusoid(g, c->offset_dim, in->at[WEFT_PORT_OFFSET]),
                                      c->offset_dim, WEFT_NN_SILU));
    return temb;
}

static weft_value forward(weft_graph *g, const cogvideox *c, const weft_ports *in)
{
    const int64_t width = c->heads * c->head_dim;
    int64_t size[3], patch[3];
    weft_value rope[WEFT_MAX_OUTPUTS], x[STREAMS];
    patch_of(c, patch);
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    embed(g, c, in, size, x);
    const weft_value temb_be = embed_time(g, c, in);
    if (c->rotary)
        rope_tables(g, c, size, rope);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        block(g, c, temb_be, c->rotary ? rope : NULL, x);
        weft_graph_pop(g);
    }
    weft_value y = weft_nn_layer_norm(g, "norm_final", x[VIDEO], c->eps);
    weft_graph_push(g, "norm_out");
    weft_value mod = weft_nn_linear(g, "linear", weft_unary(g, WEFT_OP_SILU, temb_be), 2 * width,
                                    WEFT_LINEAR_XAVIER);
    mod = weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, mod, 0), 2, width)); /* shift, scale */
    y = weft_nn_modulate(g, weft_nn_layer_norm(g, "norm", y, c->eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    weft_graph_pop(g);
    y = weft_nn_linear(g, "proj_out", y, patch[0] * patch[1] * patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, y, c->out_channels), size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const cogvideox *c = config;
    if (c->rotary && c->head_dim % 16)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
            "%" PRId64 " is not a multiple of 16, which rotary positions along three axes need",
            c->head_dim);
    if (!c->rotary && c->heads * c->head_dim % 16)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
            "%" PRId64 " x \"num_attention_heads\" %" PRId64 " is not a multiple of 16, which "
            "positions along three axes need",
            c->head_dim, c->heads);
    if (c->offset_dim && c->offset_dim != c->time_dim)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "ofs_embed_dim", c->offset_dim),
            "%" PRId64 " differs from \"time_embed_dim\" %" PRId64 "; the two embeddings are added",
            c->offset_dim, c->time_dim);
    if (c->learned && !c->rotary)
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "use_learned_positional_embeddings", 1),
                          "learned positions without rotary ones are not supported");
    if (c->learned && c->patch_t)
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "use_learned_positional_embeddings", 1),
                          "learned positions with \"patch_size_t\" are not supported");
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const cogvideox *c = config;
    switch (port) {
    case WEFT_PORT_OFFSET: return c->offset_dim ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const cogvideox *c = config;
    patch_of(c, grid->factor);
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
    if (c->learned) {
        grid->only[0] = (c->sample[2] - 1) / c->compression + 1;
        grid->only[1] = c->sample[1];
        grid->only[2] = c->sample[0];
    }
    grid->text = c->learned || !c->rotary ? c->text_length : 0;
}

/* Image latents follow the noisy latents on channels. Frames without an image are zeros. */
static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const cogvideox *c = config;
    if (c->in_channels == 2 * c->out_channels)
        cond->form = WEFT_FRAME_CONDITION_CHANNELS;
}

/* clang-format off */
#define AT(member) offsetof(cogvideox, member)
static const weft_field fields[] = {
    WEFT_HEADS_FIELD(AT(heads), "30"),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "64", 1, 4096,
     .help = "width of a head, a multiple of 16"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    {"flip_sin_to_cos", WEFT_FIELD_FIXED, .fallback = "true"},
    {"freq_shift", WEFT_FIELD_FIXED, .fallback = "0"},
    {"time_embed_dim", WEFT_FIELD_I64, AT(time_dim), "512", 1, 1 << 16,
     .help = "width of the time embedding"},
    {"ofs_embed_dim", WEFT_FIELD_I64, AT(offset_dim), "null", 2, 1 << 16,
     .help = "width of the embedding of an image's offset; null: no such input"},
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "4096"),
    WEFT_BLOCKS_FIELD(AT(layers), "30"),
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"attention_bias", WEFT_FIELD_BOOL, AT(attention_bias), "true",
     .help = "bias of queries, keys and values"},
    {"sample_width", WEFT_FIELD_I64, AT(sample[0]), "90", 1, 1 << 16,
     .help = "width of the latents that positions are scaled to"},
    {"sample_height", WEFT_FIELD_I64, AT(sample[1]), "60", 1, 1 << 16,
     .help = "height of the latents that positions are scaled to"},
    {"sample_frames", WEFT_FIELD_I64, AT(sample[2]), "49", 1, 1 << 16,
     .help = "video frames that learned positions are for"},
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"patch_size_t", WEFT_FIELD_I64, AT(patch_t), "null", 1, 64,
     .help = "latent frames of a token (1.5); null: 1"},
    {"temporal_compression_ratio", WEFT_FIELD_I64, AT(compression), "4", 1, 64,
     .help = "video frames per latent frame"},
    {"max_text_seq_length", WEFT_FIELD_I64, AT(text_length), "226", 1, 1 << 16,
     .help = "text tokens"},
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"timestep_activation_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "true"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-5"),
    {"spatial_interpolation_scale", WEFT_FIELD_F64, AT(spatial_scale), "1.875", 1e-6, 1e6,
     .help = "divisor of rows and columns in sine tables"},
    {"temporal_interpolation_scale", WEFT_FIELD_F64, AT(temporal_scale), "1.0", 1e-6, 1e6,
     .help = "divisor of frames in sine tables"},
    {"use_rotary_positional_embeddings", WEFT_FIELD_BOOL, AT(rotary), "false",
     .help = "rotary positions (5B, 1.5) instead of sines (2B)"},
    {"use_learned_positional_embeddings", WEFT_FIELD_BOOL, AT(learned), "false",
     .help = "learned positions in addition to rotary ones (5B image to video)"},
    {"patch_bias", WEFT_FIELD_BOOL, AT(patch_bias), "true",
     .help = "bias of patches; 1.5 always has it"},
};

#define FIVE "\"num_attention_heads\": 48, \"num_layers\": 42, " \
             "\"use_rotary_positional_embeddings\": true"
#define ONE_FIVE ", \"patch_size_t\": 2, \"sample_width\": 300, \"sample_height\": 300," \
                 " \"sample_frames\": 81, \"patch_bias\": false"
static const weft_named_config sizes[] = {
    {"cogvideox-2b",       "{}"},
    {"cogvideox-5b",       "{" FIVE "}"},
    {"cogvideox-5b-i2v",   "{" FIVE ", \"in_channels\": 32,"
                           " \"use_learned_positional_embeddings\": true}"},
    {"cogvideox1.5-5b",    "{" FIVE ONE_FIVE "}"},
    {"cogvideox1.5-5b-i2v", "{" FIVE ONE_FIVE ", \"in_channels\": 32, \"ofs_embed_dim\": 512}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_BTCYX},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_OFFSET,     false, "ofs"},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_BTCYX},
};

/* Key mapping of SwissArmyTransformer's files: names of the shared blocks, and "mixins". Both
 * streams have one fused modulation: alternately three parts of video and three of text. */
static const weft_rename_rule original[] = {
    {"mixins.adaln_layer.adaLN_modulations.#.1",    "transformer_blocks.#.%{norm1,norm2}.linear"},
    {"mixins.adaln_layer.query_layernorm_list.#",   "transformer_blocks.#.attn1.norm_q"},
    {"mixins.adaln_layer.key_layernorm_list.#",     "transformer_blocks.#.attn1.norm_k"},
    {"transformer.layers.#.input_layernorm",        "transformer_blocks.#.norm1.norm"},
    {"transformer.layers.#.post_attention_layernorm", "transformer_blocks.#.norm2.norm"},
    {"transformer.layers.#.attention.query_key_value",
     "transformer_blocks.#.attn1.{to_q,to_k,to_v}"},
    {"transformer.layers.#.attention.dense",        "transformer_blocks.#.attn1.to_out.0"},
    {"transformer.layers.#.mlp.dense_h_to_4h",      "transformer_blocks.#.ff.net.0.proj"},
    {"transformer.layers.#.mlp.dense_4h_to_h",      "transformer_blocks.#.ff.net.2"},
    {"time_embed.0",                                "time_embedding.linear_1"},
    {"time_embed.2",                                "time_embedding.linear_2"},
    {"ofs_embed.0",                                 "ofs_embedding.linear_1"},
    {"ofs_embed.2",                                 "ofs_embedding.linear_2"},
    {"mixins.patch_embed",                          "patch_embed"},
    {"mixins.final_layer.norm_final",               "norm_out.norm"},
    {"transformer.final_layernorm",                 "norm_final"},
    {"mixins.final_layer.linear",                   "proj_out"},
    {"mixins.final_layer.adaLN_modulation.1",       "norm_out.linear"},
    {"mixins.pos_embed.pos_embedding",              "{patch_embed.pos_embedding}"},
    {"mixins.pos_embed.freqs_sin",                  ""}, /* computed */
    {"mixins.pos_embed.freqs_cos",                  ""},
    {"transformer.word_embeddings",                 ""}, /* not used */
    {"transformer.position_embeddings",             ""},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "patch_embed.text_proj.weight", NULL, 0},
    {"original", "mixins.patch_embed.text_proj.weight", original,
     sizeof original / sizeof *original, .no_adapters = true},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 226, .sees_padding = true},
};

/* Feature cache rules: TeaCache's polynomials and thresholds as published, on the time embedding.
 * Other sizes: the change of the first block's residual (DBCache's default threshold, and twice
 * that). */
static bool is_2b(const void *config)
{
    const cogvideox *c = config;
    return c->layers == 30 && c->heads == 30 && !c->rotary;
}
static bool is_5b(const void *config)
{
    const cogvideox *c = config;
    return c->layers == 42 && c->heads == 48 && !c->patch_t;
}
static bool is_15_i2v(const void *config)
{
    const cogvideox *c = config;
    return c->layers == 42 && c->patch_t && c->in_channels > c->out_channels;
}
static bool is_15(const void *config)
{
    const cogvideox *c = config;
    return c->layers == 42 && c->heads == 48 && c->patch_t;
}
static const weft_feature_cache_row caches[] = {
    {is_2b, 0, WEFT_SIGNAL_TIME,
     {-3.10658903e1, 2.54732368e1, -5.92380459e0, 1.75769064e0, -3.61568434e-3}, 0.1, 0.2, 0},
    {is_5b, 0, WEFT_SIGNAL_TIME,
     {-1.53880483e3, 8.43202495e2, -1.34363087e2, 7.97131516e0, -5.23162339e-2}, 0.1, 0.2, 0},
    {is_15_i2v, 0, WEFT_SIGNAL_TIME,
     {1.22842302e2, -1.04088754e2, 2.62981677e1, -3.06009921e-1, 3.71213220e-2}, 0.1, 0.2, 0},
    {is_15, 0, WEFT_SIGNAL_TIME,
     {2.50210439e2, -1.65061612e2, 3.57804877e1, -7.81551492e-1, 3.58559703e-2}, 0.1, 0.2, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_cogvideox_dit = {
    .class_name = "CogVideoXTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "CogVideoXPipeline",
    .autoencoder = "AutoencoderKLCogVideoX",
    .image_pipeline = "CogVideoXImageToVideoPipeline",
    .marks = {"use_rotary_positional_embeddings", "time_embed_dim"},
    .config_bytes = sizeof(cogvideox), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "I2V (in_channels is twice out_channels): first frame", .fps = 8,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
