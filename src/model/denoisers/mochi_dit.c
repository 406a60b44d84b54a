/* Mochi 1 diffusion transformer (diffusers' MochiTransformer3DModel). Parameters have the names
 * of the public checkpoint. The text stream is narrower than the video stream.
 *
 *   latents --patch--> x (B,S,C); text --linear--> y (B,L,E)
 *   timestep --sinusoid, MLP--> + text --attention pool--> temb (B,C)
 *
 *   block:  x', y' = attention over both, of rms x (1 + scale), rms y (1 + scale)
 *           x += rms x' tanh gate; the same with a feed-forward
 *           y likewise, except in the last block
 *
 * RoPE angles are learned frequencies per head, multiplied by frames and by centred rows and
 * columns.
 * Shape letters: B batch, S video tokens, L text tokens, C width, E width of the text, H heads. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <math.h>

typedef struct mochi {
    int64_t patch, heads, head_dim, layers, text_width, in_channels, out_channels;
    int64_t text_dim, time_dim, text_length;
} mochi;
_Static_assert(sizeof(mochi) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { VIDEO, TEXT, STREAMS };
enum { POOL_HEADS = 8 };
static const double eps = 1e-6, qk_eps = 1e-5;

typedef struct conditioning {
    weft_value temb_bc;
    weft_value rope[2];
    weft_value bias;    /* key bias; WEFT_NONE: all tokens are real */
    weft_value packing; /* (B,L,L): moves real tokens to the front */
} conditioning;

static int64_t width_of(const mochi *c)
{
    return c->heads * c->head_dim;
}

/* ---- time and text -------------------------------------------------------------------------- */

/* Attention pooling (B,C) of the text (B,L,D): the mean attends to itself and to the tokens. */
static weft_value pool(weft_graph *g, const mochi *c, weft_value text_bld, weft_value mask_bl)
{
    const int64_t d = c->text_dim, batch = weft_dim(g, text_bld, 0),
                  length = weft_dim(g, text_bld, 1);
    const weft_value mask = weft_reshape(g, mask_bl, WEFT_SHAPE(batch, length, 1));
    const weft_value mean =
        weft_div(g, weft_sum(g, weft_mul(g, text_bld, mask), 1u << 1), weft_sum(g, mask, 1u << 1));
    const weft_value all = weft_concat(g, (weft_value[]){mean, text_bld}, 2, 1);
    const weft_value seen = weft_concat(
        g, (weft_value[]){weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, 1), 1), mask_bl}, 2, 1);
    weft_graph_push(g, "pooler");
    const weft_value kv = weft_nn_linear(g, "to_kv", all, 2 * d, WEFT_LINEAR_XAVIER);
    const weft_value q = weft_nn_linear(g, "to_q", mean, d, WEFT_LINEAR_XAVIER);
    weft_value out = weft_nn_attend(g, weft_nn_split_heads(g, q, POOL_HEADS),
                                    weft_nn_split_heads(g, weft_slice(g, kv, 2, 0, d), POOL_HEADS),
                                    weft_nn_split_heads(g, weft_slice(g, kv, 2, d, d), POOL_HEADS),
                                    weft_nn_hide(g, seen));
    out = weft_nn_linear(g, "to_out", weft_reshape(g, out, WEFT_SHAPE(batch, d)), width_of(c),
                         WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* (B,L,L): row j has a 1 at the j-th real token. */
static weft_value packing(weft_graph *g, weft_value mask_bl)
{
    const int64_t batch = weft_dim(g, mask_bl, 0), n = weft_dim(g, mask_bl, 1);
    float *up_to = weft_calloc(n * n, sizeof *up_to), *position = weft_alloc(n * 4);
    weft_value packed = WEFT_NONE;
    if (!up_to || !position) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for the positions of a text");
        goto out;
    }
    for (int64_t i = 0; i < n; i++) {
        position[i] = (float)i + 1;
        for (int64_t j = i; j < n; j++)
            up_to[i * n + j] = 1;
    }
    const weft_value count =
        weft_matmul(g, mask_bl, weft_constant(g, WEFT_F32, WEFT_SHAPE(n, n), up_to), false, false);
    const weft_value distance = weft_sub(g, weft_reshape(g, count, WEFT_SHAPE(batch, 1, n)),
                                         weft_constant(g, WEFT_F32, WEFT_SHAPE(1, n, 1), position));
    const weft_value here =
        weft_affine(g, weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, distance), 0, 1), -1, 1);
    packed = weft_mul(g, here, weft_reshape(g, mask_bl, WEFT_SHAPE(batch, 1, n)));
out:
    weft_free(up_to);
    weft_free(position);
    return packed;
}

/* RoPE angles per head, (1,S,H,D/2). Frames count from 0. Rows and columns are centred and scaled
 * to the area of the first training resolution. */
static void rope_angles(weft_graph *g, const mochi *c, const int64_t size[3], weft_value cos_sin[2])
{
    const int64_t tokens = size[0] * size[1] * size[2], pairs = c->head_dim / 2;
    const double rows = (double)size[1], columns = (double)size[2],
                 step = sqrt(192.0 * 192.0 / (rows * columns));
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02};
    const weft_value frequency =
        weft_param(g, "pos_frequencies", WEFT_F32, WEFT_SHAPE(3, c->heads, pairs), small);
    float *position = weft_calloc(tokens * 3, sizeof *position);
    if (!position) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        return;
    }
    for (int64_t s = 0; s < tokens; s++) {
        position[3 * s] = (float)(s / (size[1] * size[2]));
        position[3 * s + 1] = (float)(((double)(s / size[2] % size[1]) + 0.5 - rows / 2) * step);
        position[3 * s + 2] = (float)(((double)(s % size[2]) + 0.5 - columns / 2) * step);
    }
    const weft_value positions = weft_constant(g, WEFT_F32, WEFT_SHAPE(tokens, 3), position);
    weft_free(position);
    const weft_value angle = weft_matmul(
        g, positions, weft_reshape(g, frequency, WEFT_SHAPE(3, c->heads * pairs)), false, false);
    for (int i = 0; i < 2; i++)
        cos_sin[i] = weft_reshape(g, weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle),
                                  WEFT_SHAPE(1, tokens, c->heads, pairs));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* rms x (1 + scale) */
static weft_value scaled(weft_graph *g, const char *name, weft_value x, weft_value scale)
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_plain_rms_norm(g, x, eps);
    weft_graph_pop(g);
    return weft_mul(g, x, weft_affine(g, scale, 1, 1));
}

/* x + rms y tanh gate */
static weft_value added(weft_graph *g, const char *name, weft_value x, weft_value y,
                        weft_value gate)
{
    weft_graph_push(g, "%s", name);
    y = weft_nn_plain_rms_norm(g, y, eps);
    weft_graph_pop(g);
    return weft_nn_gated_add(g, x, y, weft_unary(g, WEFT_OP_TANH, gate));
}

static weft_value modulation(weft_graph *g, const char *name, weft_value temb_bc, int64_t rows,
                             int64_t width)
{
    const weft_value mod = weft_nn_linear(g, name, weft_unary(g, WEFT_OP_SILU, temb_bc),
                                          rows * width, WEFT_LINEAR_XAVIER);
    return weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, mod, 0), rows, width));
}

/* Gated feed-forward: values times silu of gates, both from one product. */
static weft_value feed_forward(weft_graph *g, const char *name, weft_value x)
{
    const int64_t width = weft_dim(g, x, 2), inner = 8 * width / 3;
    weft_graph_push(g, "%s.net", name);
    const weft_value both = weft_nn_linear_plain(g, "0.proj", x, 2 * inner);
    const weft_value gate = weft_unary(g, WEFT_OP_SILU, weft_slice(g, both, 2, inner, inner));
    x = weft_nn_linear_plain(g, "2", weft_mul(g, weft_slice(g, both, 2, 0, inner), gate), width);
    weft_graph_pop(g);
    return x;
}

/* Attention of the normalised streams. The last block has no text queries. */
static void attention(weft_graph *g, const mochi *c, const conditioning *to, bool last,
                      weft_value h[2])
{
    static const char *const names[STREAMS][5] = {
        {"to_q", "to_k", "to_v", "norm_q", "norm_k"},
        {"add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k"}};
    weft_value qkv[3][STREAMS] = {{WEFT_NONE, WEFT_NONE}};
    weft_graph_push(g, "attn1");
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 3; i++) {
            const weft_nn_layer layer = weft_nn_linear_of(g, names[s][i], weft_dim(g, h[s], 2),
                                                          width_of(c), false, WEFT_LINEAR_XAVIER);
            const weft_nn_layer norm =
                i < 2 ? weft_nn_norm_of(g, names[s][3 + i], c->head_dim, false) : layer;
            if (last && s == TEXT && i == 0)
                continue; /* the parameters must exist but are not used */
            weft_value v = weft_nn_split_heads(g, weft_nn_linear_by(g, &layer, h[s]), c->heads);
            if (i < 2)
                v = weft_nn_rms_norm_by(g, &norm, v, qk_eps);
            qkv[i][s] = i < 2 && s == VIDEO ? weft_nn_rope(g, v, to->rope, false) : v;
        }
    const weft_value keys = weft_concat(g, qkv[1], STREAMS, 1),
                     values = weft_concat(g, qkv[2], STREAMS, 1);
    h[VIDEO] = weft_nn_join_heads(g, weft_nn_attend(g, qkv[0][VIDEO], keys, values, to->bias));
    h[VIDEO] = weft_nn_linear(g, "to_out.0", h[VIDEO], width_of(c), WEFT_LINEAR_XAVIER);
    if (!last) {
        h[TEXT] = weft_nn_join_heads(g, weft_nn_attend(g, qkv[0][TEXT], keys, values, to->bias));
        if (weft_value_ok(to->packing))
            h[TEXT] = weft_matmul(g, to->packing, h[TEXT], false, false);
        h[TEXT] = weft_nn_linear(g, "to_add_out", h[TEXT], c->text_width, WEFT_LINEAR_XAVIER);
    }
    weft_graph_pop(g);
}

static void block(weft_graph *g, const mochi *c, const conditioning *to, bool last, weft_value x[2])
{
    enum { SCALE1, GATE1, SCALE2, GATE2, ROWS };
    static const char *const norms[STREAMS][4] = {
        {"norm1", "norm2", "norm3", "norm4"},
        {"norm1_context", "norm2_context", "norm3_context", "norm4_context"}};
    weft_value mod[STREAMS], h[STREAMS];
    mod[VIDEO] = modulation(g, "norm1.linear", to->temb_bc, ROWS, width_of(c));
    mod[TEXT] = modulation(g, last ? "norm1_context.linear_1" : "norm1_context.linear", to->temb_bc,
                           last ? 1 : ROWS, c->text_width);
    for (int s = 0; s < STREAMS; s++)
        h[s] = scaled(g, norms[s][0], x[s], weft_nn_row(g, mod[s], SCALE1));
    attention(g, c, to, last, h);
    for (int s = 0; s < (last ? 1 : STREAMS); s++) {
        x[s] = added(g, norms[s][1], x[s], h[s], weft_nn_row(g, mod[s], GATE1));
        const weft_value y =
            feed_forward(g, s == VIDEO ? "ff" : "ff_context",
                         scaled(g, norms[s][2], x[s], weft_nn_row(g, mod[s], SCALE2)));
        x[s] = added(g, norms[s][3], x[s], y, weft_nn_row(g, mod[s], GATE2));
    }
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value finish(weft_graph *g, const mochi *c, weft_value x, weft_value temb_bc,
                         const int64_t size[3], const int64_t patch[3])
{
    weft_graph_push(g, "norm_out");
    const weft_value mod = modulation(g, "linear", temb_bc, 2, width_of(c)); /* scale, shift */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), weft_nn_row(g, mod, 0),
                         weft_nn_row(g, mod, 1));
    weft_graph_pop(g);
    x = weft_nn_linear(g, "proj_out", x, c->patch * c->patch * c->out_channels, WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x, size, patch);
}

static weft_value forward(weft_graph *g, const mochi *c, const weft_ports *in)
{
    const int64_t patch[3] = {1, c->patch, c->patch};
    const weft_value text = in->at[WEFT_PORT_TEXT], mask = in->at[WEFT_PORT_TEXT_MASK];
    int64_t size[3];
    conditioning to = {.bias = WEFT_NONE, .packing = WEFT_NONE};
    weft_value x[STREAMS];
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t batch = weft_dim(g, text, 0), tokens = size[0] * size[1] * size[2];
    weft_value seen = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, weft_dim(g, text, 1)), 1);
    if (weft_value_ok(mask)) {
        seen = weft_cast(g, mask, WEFT_F32);
        to.packing = packing(g, seen);
        to.bias = weft_concat(g,
                              (weft_value[]){weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens), 0),
                                             weft_nn_hide(g, seen)},
                              2, 1);
    }
    x[VIDEO] = weft_nn_patch(g, "patch_embed.proj", in->at[WEFT_PORT_LATENTS], width_of(c), patch,
                             WEFT_PATCH_2D, true);
    weft_graph_push(g, "time_embed");
    to.temb_bc = weft_nn_embedder(g, "timestep_embedder",
                                  weft_nn_sinusoid(g, c->time_dim, in->at[WEFT_PORT_TIMESTEP]),
                                  width_of(c), WEFT_NN_SILU);
    to.temb_bc = weft_add(g, to.temb_bc, pool(g, c, text, seen));
    x[TEXT] = weft_nn_linear(g, "caption_proj", text, c->text_width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    rope_angles(g, c, size, to.rope);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        block(g, c, &to, i == c->layers - 1, x);
        weft_graph_pop(g);
    }
    return finish(g, c, x[VIDEO], to.temb_bc, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const mochi *c = config;
    if (c->head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", c->head_dim);
    if (c->text_dim % POOL_HEADS)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "text_embed_dim", c->text_dim),
                          "%" PRId64 " is not a multiple of the %d heads of the pooling",
                          c->text_dim, POOL_HEADS);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const mochi *c = config;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const mochi *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* clang-format off */
#define AT(member) offsetof(mochi, member)
static const weft_field fields[] = {
    WEFT_PATCH_FIELD(AT(patch), "2"),
    WEFT_HEADS_FIELD(AT(heads), "24"),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "128", 2, 4096,
     .help = "width of a head, even"},
    WEFT_BLOCKS_FIELD(AT(layers), "48"),
    {"pooled_projection_dim", WEFT_FIELD_I64, AT(text_width), "1536", 1, 1 << 16,
     .help = "width of the text stream"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "12"),
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "=in_channels", 1, 1 << 16,
     .help = "output channels of latents"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm\""},
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "4096"),
    {"time_embed_dim", WEFT_FIELD_I64, AT(time_dim), "256", 2, 1 << 16,
     .help = "width of the sinusoidal time embedding, even"},
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"swiglu\""},
    {"max_sequence_length", WEFT_FIELD_I64, AT(text_length), "256", 1, 1 << 16,
     .help = "text tokens"},
};

static const weft_named_config sizes[] = {
    {"mochi-1", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of Mochi's own files. In these files, the gate of a feed-forward and the shift of the
 * last norm come second. The last block's text has one linear (linear_1). */
static const weft_rename_rule original[] = {
    {"blocks",              "transformer_blocks"},
    {"x_embedder",          "patch_embed"},
    {"t_embedder.mlp.0",    "time_embed.timestep_embedder.linear_1"},
    {"t_embedder.mlp.2",    "time_embed.timestep_embedder.linear_2"},
    {"t5_y_embedder",       "time_embed.pooler"},
    {"t5_yproj",            "time_embed.caption_proj"},
    {"mod_x",               "norm1.linear"},
    {"mod_y",               "norm1_context.[linear,linear_1]"},
    {"attn.qkv_x",          "attn1.{to_q,to_k,to_v}"},
    {"attn.qkv_y",          "attn1.{add_q_proj,add_k_proj,add_v_proj}"},
    {"attn.q_norm_x",       "attn1.norm_q"},
    {"attn.k_norm_x",       "attn1.norm_k"},
    {"attn.q_norm_y",       "attn1.norm_added_q"},
    {"attn.k_norm_y",       "attn1.norm_added_k"},
    {"attn.proj_x",         "attn1.to_out.0"},
    {"attn.proj_y",         "attn1.to_add_out"},
    {"mlp_x.w1",            "~ff.net.0.proj"},
    {"mlp_x.w2",            "ff.net.2"},
    {"mlp_y.w1",            "~ff_context.net.0.proj"},
    {"mlp_y.w2",            "ff_context.net.2"},
    {"final_layer.mod",     "~norm_out.linear"},
    {"final_layer.linear",  "proj_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "time_embed.pooler.to_q.weight", NULL, 0},
    {"original", "t5_y_embedder.to_q.weight", original, sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 256},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (DBCache's default threshold, and twice that). */
static bool is_published(const void *config)
{
    const mochi *c = config;
    return c->layers == 48 && c->heads == 24;
}
static const weft_feature_cache_row caches[] = {
    {is_published, 0, WEFT_SIGNAL_INPUT,
     {-3.51241319e3, 8.11675948e2, -6.09400215e1, 2.42429681e0, 3.05291719e-3}, 0.06, 0.09, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_mochi_dit = {
    .class_name = "MochiTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "MochiPipeline",
    .autoencoder = "AutoencoderKLMochi",
    .marks = {"pooled_projection_dim", "max_sequence_length"},
    .config_bytes = sizeof(mochi), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_QUADRATIC,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
