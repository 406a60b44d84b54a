/* LTX-Video diffusion transformers (diffusers' LTXVideoTransformer3DModel). Parameters have the
 * names of the public checkpoints. A token is one latent.
 *
 *   latents --linear--> x (B,S,C); text --MLP--> y (B,L,C)
 *   timestep, per sample or per token --sinusoid, MLP--> e; silu, linear --> (B,1 or S,6,C)
 *   positions in seconds and pixels --> RoPE over the complete width, before the split into heads
 *
 *   block:  x += gate1 attn(mod1(rms x));  x += cross(x, y);  x += gate2 ffn(mod2(rms x))
 *
 * Shape letters: B batch, S video tokens, L text tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <math.h>

typedef struct ltx {
    int64_t in_channels, out_channels, heads, head_dim, layers, text_dim, cross_dim;
    double eps;
    bool bias, out_bias;
} ltx;
_Static_assert(sizeof(ltx) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { TIME_WIDTH = 256 };
static const double qk_eps = 1e-5, last_eps = 1e-6;

static int64_t width_of(const ltx *c)
{
    return c->heads * c->head_dim;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Position of every latent along frames, rows and columns, multiplied by the step of each axis:
 * (1,S,3). */
static weft_value grid_positions(weft_graph *g, const int64_t size[3], weft_value spacing)
{
    const int64_t tokens = size[0] * size[1] * size[2];
    /* one latent of LTX's autoencoder at 25 frames per second */
    const float step[3] = {8.0f / 25.0f, 32, 32};
    float *position = weft_calloc(tokens * 3, sizeof *position);
    if (!position)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t s = 0; s < tokens; s++) {
        position[3 * s] = (float)(s / (size[1] * size[2]));
        position[3 * s + 1] = (float)(s / size[2] % size[1]);
        position[3 * s + 2] = (float)(s % size[2]);
    }
    const weft_value positions = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, tokens, 3), position);
    weft_free(position);
    if (!weft_value_ok(spacing))
        spacing = weft_constant(g, WEFT_F32, WEFT_SHAPE(3), step);
    return weft_mul(g, positions, weft_reshape(g, spacing, WEFT_SHAPE(1, 1, 3)));
}

/* Frequencies from pi/2 to 10000 pi/2, rounded to f32 after each step as in the reference. At
 * angles of 15,708, the last bit of a frequency matters. */
static weft_value frequencies(weft_graph *g, int64_t count)
{
    const float step = count > 1 ? 1.0f / (float)(count - 1) : 0;
    float *f = weft_calloc(count, sizeof *f);
    if (!f)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for frequencies");
    for (int64_t i = 0; i < count; i++) {
        const float exponent =
            i < count / 2 ? step * (float)i : 1.0f - step * (float)(count - 1 - i);
        const float power = (float)pow(10000, (double)exponent);
        f[i] = power * (float)3.14159265358979323846 / 2;
    }
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, count, 1), f);
    weft_free(f);
    return v;
}

/* cos and sin (B or 1,S,H,D/2). The first pairs of the width, the remainder of the division by
 * three axes, are not rotated. The other pairs alternate between frames, rows and columns. */
static void rope_tables(weft_graph *g, const ltx *c, weft_value positions_bs3,
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const float whole[3] = {20, 2048, 2048};
    const int64_t count = width_of(c) / 6, still = width_of(c) % 6 / 2,
                  batch = weft_dim(g, positions_bs3, 0), tokens = weft_dim(g, positions_bs3, 1);
    const weft_value part =
        weft_div(g, positions_bs3, weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, 3), whole));
    const weft_value at =
        weft_reshape(g, weft_affine(g, part, 2, -1), WEFT_SHAPE(batch, tokens, 1, 3));
    const weft_value angle = weft_reshape(g, weft_mul(g, frequencies(g, count), at),
                                          WEFT_SHAPE(batch, tokens, 3 * count));
    for (int i = 0; i < 2; i++) {
        weft_value v = weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle);
        const weft_value rest = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens, still), i ? 0 : 1);
        if (still)
            v = weft_concat(g, (weft_value[]){rest, v}, 2, 2);
        cos_sin[i] = weft_reshape(g, v, WEFT_SHAPE(batch, tokens, c->heads, c->head_dim / 2));
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Self-attention if context is x itself (rope present), otherwise cross-attention. */
static weft_value attention(weft_graph *g, const ltx *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, const weft_value *rope, weft_value bias)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_dense(g, "to_q", x_bsc, width, c->bias),
               k = weft_nn_dense(g, "to_k", context_blc, width, c->bias);
    const weft_value v = weft_nn_dense(g, "to_v", context_blc, width, c->bias);
    q = weft_nn_split_heads(g, weft_nn_rms_norm(g, "norm_q", q, qk_eps), c->heads);
    k = weft_nn_split_heads(g, weft_nn_rms_norm(g, "norm_k", k, qk_eps), c->heads);
    if (rope) {
        q = weft_nn_rope(g, q, rope, false);
        k = weft_nn_rope(g, k, rope, false);
    }
    const weft_value mixed =
        weft_nn_join_heads(g, weft_nn_attend(g, q, k, weft_nn_split_heads(g, v, c->heads), bias));
    const weft_value out = weft_nn_dense(g, "to_out.0", mixed, width, c->out_bias);
    weft_graph_pop(g);
    return out;
}

static weft_value normed(weft_graph *g, const char *name, weft_value x, double eps,
                         weft_value scale, weft_value shift)
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_plain_rms_norm(g, x, eps);
    weft_graph_pop(g);
    return weft_nn_modulate(g, x, scale, shift);
}

static weft_value block(weft_graph *g, const ltx *c, weft_value x, weft_value text,
                        weft_value times, const weft_value *rope, weft_value bias)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_value mod = weft_nn_add_table(g, times, ROWS);
    weft_value h =
        normed(g, "norm1", x, c->eps, weft_nn_row(g, mod, SCALE1), weft_nn_row(g, mod, SHIFT1));
    h = attention(g, c, "attn1", h, h, rope, WEFT_NONE);
    x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE1));
    x = weft_add(g, x, attention(g, c, "attn2", x, text, NULL, bias));
    h = normed(g, "norm2", x, c->eps, weft_nn_row(g, mod, SCALE2), weft_nn_row(g, mod, SHIFT2));
    h = weft_nn_feed_forward(g, "ff", h, 4 * width_of(c), WEFT_NN_GELU_TANH);
    return weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE2));
}

static weft_value forward(weft_graph *g, const ltx *c, const weft_ports *in)
{
    const int64_t width = width_of(c), one[3] = {1, 1, 1};
    const weft_value latents = in->at[WEFT_PORT_LATENTS], t = in->at[WEFT_PORT_TIMESTEP];
    int64_t size[3];
    weft_nn_count_tokens(g, latents, one, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t tokens = size[0] * size[1] * size[2], batch = weft_dim(g, latents, 0);
    if (weft_value_get(g, t)->shape.rank == 2 && weft_dim(g, t, 1) != tokens)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "%" PRId64 " timesteps for %" PRId64 " tokens", weft_dim(g, t, 1),
                               tokens);
    weft_value positions = in->at[WEFT_PORT_POSITIONS], rope[WEFT_MAX_OUTPUTS], embedded;
    positions = weft_value_ok(positions) ? weft_permute(g, positions, (int[]){0, 2, 1})
                                         : grid_positions(g, size, in->at[WEFT_PORT_SPACING]);
    rope_tables(g, c, positions, rope);
    /* masked keys have a bias of -10000, as in the reference: an empty prompt is attended to
     * completely */
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    const weft_value bias = weft_value_ok(mask)
                                ? weft_affine(g, weft_cast(g, mask, WEFT_F32), 10000, -10000)
                                : WEFT_NONE;
    weft_value x = weft_reshape(g, latents, WEFT_SHAPE(batch, tokens, c->in_channels));
    x = weft_nn_linear(g, "proj_in", x, width, WEFT_LINEAR_XAVIER);
    const weft_value times =
        weft_nn_time_rows(g, "time_embed", weft_nn_sinusoid(g, TIME_WIDTH, t), width, 6, &embedded);
    const weft_value text =
        weft_nn_embedder(g, "caption_projection", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        x = block(g, c, x, text, times, rope, bias);
        weft_graph_pop(g);
    }
    const weft_value mod = weft_nn_add_table(g, embedded, 2); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, last_eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->out_channels, WEFT_LINEAR_ZERO);
    return weft_reshape(g, x, WEFT_SHAPE(batch, size[0], size[1], size[2], c->out_channels));
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx *c = config;
    if (c->head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", c->head_dim);
    return weft_check_cross(locations, c->cross_dim, width_of(c));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_POSITIONS: return WEFT_SHAPE(s->batch, 3, s->frames * s->height * s->width);
    case WEFT_PORT_SPACING: return WEFT_SHAPE(3);
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
    const ltx *c = config;
    grid->factor[0] = grid->factor[1] = grid->factor[2] = 1;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static int64_t width_field(const void *config)
{
    return width_of(config);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    cond->form = WEFT_FRAME_CONDITION_TIMES;
}

/* clang-format off */
#define AT(member) offsetof(ltx, member)
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "128"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "128"),
    {"patch_size", WEFT_FIELD_FIXED, .fallback = "1"},
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},
    WEFT_HEADS_FIELD(AT(heads), "32"),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "64", 2, 4096,
     .help = "width of a head, even"},
    {"cross_attention_dim", WEFT_FIELD_I64, AT(cross_dim), .length = width_field,
     .min = 1, .max = 1 << 20, .help = "width of the model"},
    WEFT_BLOCKS_FIELD(AT(layers), "28"),
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm_across_heads\""},
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "false"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-6"),
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "4096"),
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "true",
     .help = "bias of queries, keys and values"},
    {"attention_out_bias", WEFT_FIELD_BOOL, AT(out_bias), "true",
     .help = "bias after attention"},
};

static const weft_named_config sizes[] = {
    {"ltx-2b",  "{}"},
    {"ltx-13b", "{\"attention_head_dim\": 128, \"num_layers\": 48}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_POSITIONS,     false, "video_coords", .optional = true},
    {WEFT_PORT_SPACING,    false, "rope_interpolation_scale", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_PACKED},
};

/* Key mapping of LTX's own files. */
static const weft_rename_rule original[] = {
    {"patchify_proj", "proj_in"},
    {"adaln_single",  "time_embed"},
    {"q_norm",        "norm_q"},
    {"k_norm",        "norm_k"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "time_embed.emb.timestep_embedder.linear_1.weight", NULL, 0},
    {"original", "patchify_proj.weight", original, sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 128,
     .sees_padding = true},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (DBCache's default threshold, and twice that). */
static bool is_2b(const void *config)
{
    const ltx *c = config;
    return c->layers == 28 && c->heads == 32;
}
static const weft_feature_cache_row caches[] = {
    {is_2b, 0, WEFT_SIGNAL_INPUT,
     {2.14700694e1, -1.28016453e1, 2.31279151e0, 7.92487521e-1, 9.69274326e-3}, 0.03, 0.05, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_ltx_dit = {
    .class_name = "LTXVideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "LTXPipeline",
    .autoencoder = "AutoencoderKLLTXVideo",
    .image_pipeline = "LTXImageToVideoPipeline",
    .marks = {"attention_out_bias", "caption_channels"},
    .config_bytes = sizeof(ltx), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "first frame", .fps = 25,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_across, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
