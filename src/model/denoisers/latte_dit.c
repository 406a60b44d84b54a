/* Latte diffusion transformer (diffusers' LatteTransformer3DModel). Parameters have the names of
 * the public checkpoint.
 *
 *   latents --patch of each frame--> x (B,T,N,C), + sines of rows and columns
 *   text --MLP--> y (B,L,C)
 *   timestep --sinusoid, MLP--> e; silu, linear --> (B,6,C)
 *   per layer: a spatial block over the tokens of each frame, with the text
 *              a temporal block over the frames of each token, without the text; sines of frames
 *              are added before the first temporal block
 *
 *   block:  x += gate1 attn(mod1(norm x));  x += cross(x, y);  x += gate2 ffn(mod2(norm x))
 *
 * A temporal block works on (B,N,T,C). In both kinds of blocks, attention is separate for each
 * index of dim 1.
 * Shape letters: B batch, T frames, N tokens of a frame, L text tokens, C width, H heads. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

typedef struct latte {
    int64_t heads, head_dim, in_channels, out_channels, layers, cross_dim;
    bool bias;
    int64_t sample, patch;
    double eps;
    int64_t text_dim, frames;
} latte;
_Static_assert(sizeof(latte) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { TIME_WIDTH = 256 };
static const double last_eps = 1e-6;

static int64_t width_of(const latte *c)
{
    return c->heads * c->head_dim;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Sines and cosines of columns in half of the width, of rows in the other half: (1,1,N,C). */
static weft_value positions_in_frame(weft_graph *g, const latte *c, const int64_t size[3])
{
    const int64_t width = width_of(c), zoom = c->sample / 64 > 1 ? c->sample / 64 : 1;
    const double base = (double)(c->sample / c->patch) / (double)zoom;
    const weft_attr_rope_table attr = {
        .theta = {1, 10000, 10000},
        .step = {0, base / (double)size[1], base / (double)size[2]},
        .grid = {1, size[1], size[2]},
        .pairs = {0, width / 4, width / 4},
        .len = size[1] * size[2],
    };
    return weft_reshape(g, weft_nn_sines(g, &attr, (int[]){2, 1}, 2),
                        WEFT_SHAPE(1, 1, attr.len, width));
}

/* (1,1,T,C) */
static weft_value positions_in_time(weft_graph *g, const latte *c, const int64_t size[3])
{
    const int64_t width = width_of(c);
    const weft_attr_rope_table attr = {
        .theta = {10000, 1, 1},
        .step = {1, 0, 0},
        .grid = {size[0], 1, 1},
        .pairs = {width / 2, 0, 0},
        .len = size[0],
    };
    return weft_reshape(g, weft_nn_sines(g, &attr, (int[]){0}, 1),
                        WEFT_SHAPE(1, 1, attr.len, width));
}

/* ---- blocks --------------------------------------------------------------------------------- */

static weft_value self_attention(weft_graph *g, const latte *c, weft_value x_bgsc)
{
    const int64_t width = width_of(c), groups = weft_dim(g, x_bgsc, 1);
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    weft_value qkv[3];
    weft_graph_push(g, "attn1");
    for (int i = 0; i < 3; i++)
        qkv[i] =
            weft_nn_group_heads(g, weft_nn_dense(g, names[i], x_bgsc, width, c->bias), c->heads);
    const weft_value mixed =
        weft_nn_ungroup_heads(g, weft_nn_attend(g, qkv[0], qkv[1], qkv[2], WEFT_NONE), groups);
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* All tokens of a sample attend to its text. `bias` WEFT_NONE: no mask. */
static weft_value cross_attention(weft_graph *g, const latte *c, weft_value x_bgsc,
                                  weft_value text_blc, weft_value bias)
{
    const int64_t width = width_of(c), batch = weft_dim(g, x_bgsc, 0),
                  groups = weft_dim(g, x_bgsc, 1), tokens = weft_dim(g, x_bgsc, 2);
    weft_graph_push(g, "attn2");
    weft_value q = weft_nn_dense(g, "to_q", x_bgsc, width, c->bias);
    q = weft_reshape(g, q, WEFT_SHAPE(batch, groups * tokens, c->heads, c->head_dim));
    const weft_value k = weft_nn_split_heads(g, weft_nn_dense(g, "to_k", text_blc, width, c->bias),
                                             c->heads),
                     v = weft_nn_split_heads(g, weft_nn_dense(g, "to_v", text_blc, width, c->bias),
                                             c->heads);
    const weft_value mixed =
        weft_reshape(g, weft_nn_attend(g, q, k, v, bias), WEFT_SHAPE(batch, groups, tokens, width));
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* Row of a modulation for grouped tokens: (B,1,1,C). */
static weft_value row(weft_graph *g, weft_value table, int64_t index)
{
    const weft_value r = weft_nn_row(g, table, index);
    return weft_reshape(g, r, WEFT_SHAPE(weft_dim(g, r, 0), 1, 1, weft_dim(g, r, 2)));
}

/* `text_blc` WEFT_NONE: a temporal block. */
static weft_value block(weft_graph *g, const latte *c, weft_value x, weft_value text_blc,
                        weft_value bias, weft_value times)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_value mod = weft_nn_add_table(g, times, ROWS);
    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), row(g, mod, SCALE1),
                                    row(g, mod, SHIFT1));
    x = weft_nn_gated_add(g, x, self_attention(g, c, h), row(g, mod, GATE1));
    if (weft_value_ok(text_blc))
        x = weft_add(g, x, cross_attention(g, c, x, text_blc, bias));
    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), row(g, mod, SCALE2),
                         row(g, mod, SHIFT2));
    h = weft_nn_feed_forward(g, "ff", h, 4 * width_of(c), WEFT_NN_GELU_TANH);
    return weft_nn_gated_add(g, x, h, row(g, mod, GATE2));
}

static weft_value forward(weft_graph *g, const latte *c, const weft_ports *in)
{
    const int64_t width = width_of(c), patch[3] = {1, c->patch, c->patch};
    int64_t size[3];
    weft_value embedded;
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t batch = weft_dim(g, in->at[WEFT_PORT_LATENTS], 0), frame = size[1] * size[2];
    weft_value x = weft_nn_patch(g, "pos_embed.proj", in->at[WEFT_PORT_LATENTS], width, patch,
                                 WEFT_PATCH_2D, true);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0], frame, width));
    x = weft_add(g, x, positions_in_frame(g, c, size));
    const weft_value times = weft_nn_time_rows(
        g, "adaln_single", weft_nn_sinusoid(g, TIME_WIDTH, in->at[WEFT_PORT_TIMESTEP]), width, 6,
        &embedded);
    const weft_value text =
        weft_nn_embedder(g, "caption_projection", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    const weft_value bias =
        weft_value_ok(mask) ? weft_nn_hide(g, weft_cast(g, mask, WEFT_F32)) : WEFT_NONE;
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        x = block(g, c, x, text, bias, times);
        weft_graph_pop(g);
        x = weft_permute(g, x, (int[]){0, 2, 1, 3});
        if (i == 0 && size[0] > 1)
            x = weft_add(g, x, positions_in_time(g, c, size));
        weft_graph_push(g, "temporal_transformer_blocks.%d", (int)i);
        x = block(g, c, x, WEFT_NONE, WEFT_NONE, times);
        weft_graph_pop(g);
        x = weft_permute(g, x, (int[]){0, 2, 1, 3});
    }
    const weft_value mod = weft_nn_add_table(g, embedded, 2); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, last_eps), row(g, mod, 1), row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch * c->patch * c->out_channels, WEFT_LINEAR_ZERO);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * frame, weft_dim(g, x, 3)));
    return weft_nn_unpatch(g, x, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const latte *c = config;
    if (width_of(c) % 4)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
            "the heads have %" PRId64 " channels together, not a multiple of 4, which sines "
            "of rows and columns need",
            width_of(c));
    WEFT_TRY(weft_check_cross(locations, c->cross_dim, width_of(c)));
    if (c->sample < c->patch)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "sample_size", c->sample),
                          "%" PRId64 " is smaller than a patch of %" PRId64, c->sample, c->patch);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const latte *c = config;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const latte *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static int64_t width_field(const void *config)
{
    return width_of(config);
}

/* clang-format off */
#define AT(member) offsetof(latte, member)
static const weft_field fields[] = {
    WEFT_HEADS_FIELD(AT(heads), "16"),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "72", 1, 4096, .help = "width of a head"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "4"),
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "=in_channels", 1, 1 << 16,
     .help = "output channels of latents; twice the channels with variances"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "28", 0, 1024,
     .help = "pairs of a spatial and a temporal block"},
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"cross_attention_dim", WEFT_FIELD_I64, AT(cross_dim), .length = width_field,
     .min = 1, .max = 1 << 20, .help = "width of the model"},
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "false",
     .help = "bias of queries, keys and values"},
    {"sample_size", WEFT_FIELD_I64, AT(sample), "64", 1, 1 << 16,
     .help = "side of the latents that positions are scaled to"},
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"num_embeds_ada_norm", WEFT_FIELD_IGNORED, .fallback = "1000"},
    {"norm_type", WEFT_FIELD_FIXED, .fallback = "\"ada_norm_single\""},
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "false"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-6"),
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "4096"),
    {"video_length", WEFT_FIELD_I64, AT(frames), "16", 1, 1 << 16,
     .help = "frames that the model was trained on; others are accepted"},
};

static const weft_named_config sizes[] = {
    {"latte-1", "{\"out_channels\": 8, \"attention_bias\": true}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "temporal_transformer_blocks.0.attn1.to_q.weight", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 120,
     .clean = WEFT_CLEAN_LOWER, .paired = true},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.05, 0.09, 0},
};

const weft_family weft_family_latte_dit = {
    .class_name = "LatteTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "LattePipeline",
    .autoencoder = "sd-vae", .frames = 16,
    .marks = {"video_length", "caption_channels"},
    .config_bytes = sizeof(latte), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_latte, .recipes = WEFT_SPLIT_LATTE_LISTS,
};
/* clang-format on */
