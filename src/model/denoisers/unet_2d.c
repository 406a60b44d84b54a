/* The U-Net of Stable Diffusion 1 and 2 (diffusers' UNet2DConditionModel): text to image.
 * Parameters have the names of the public checkpoints.
 *
 *   timestep --sinusoid, MLP--> temb (B,4C0)
 *   latents --conv--> levels down: resnets, at some levels text attention, then stride 2
 *           middle
 *           levels up: the same, concatenated with outputs of the level down, then 2x upsampling
 *           --norm, conv--> prediction
 *
 *   resnet:      h = conv(silu norm x) + linear silu temb;  x + conv(silu norm h)
 *   transformer: x + out(block(in(norm x)));  block: self-attention, attention to the text, GEGLU
 *
 * Shape letters: B batch, Y, X rows and columns, S = Y X, C channels, L text tokens. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

enum { MAX_LEVELS = 8, MAX_SKIPS = 256 };
static const double inner_eps = 1e-6, layer_eps = 1e-5;

typedef struct unet {
    int64_t levels, sample, in_channels, out_channels;
    int64_t channels[MAX_LEVELS], heads[MAX_LEVELS];
    int64_t down[MAX_LEVELS], up[MAX_LEVELS]; /* 1: with attention */
    int64_t layers, groups, text_dim;
    double eps;
    bool linear;
} unet;
_Static_assert(sizeof(unet) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value conv(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t side,
                       int64_t stride)
{
    const int64_t around = side / 2;
    const weft_conv_shape shape = {.kernel = {1, side, side},
                                   .stride = {1, stride, stride},
                                   .before = {0, around, around},
                                   .after = {0, around, around}};
    return weft_nn_conv(g, name, x, out, shape, true);
}

static weft_value resnet(weft_graph *g, const unet *c, weft_value x, int64_t out,
                         weft_value temb_be)
{
    const int64_t batch = weft_dim(g, x, 0);
    weft_value h =
        weft_unary(g, WEFT_OP_SILU, weft_nn_group_norm(g, "norm1", x, c->groups, c->eps));
    h = conv(g, "conv1", h, out, 3, 1);
    const weft_value time = weft_nn_linear(g, "time_emb_proj", weft_unary(g, WEFT_OP_SILU, temb_be),
                                           out, WEFT_LINEAR_XAVIER);
    h = weft_add(g, h, weft_reshape(g, time, WEFT_SHAPE(batch, 1, 1, 1, out)));
    h = weft_unary(g, WEFT_OP_SILU, weft_nn_group_norm(g, "norm2", h, c->groups, c->eps));
    h = conv(g, "conv2", h, out, 3, 1);
    if (weft_dim(g, x, 4) != out)
        x = conv(g, "conv_shortcut", x, out, 1, 1);
    return weft_add(g, x, h);
}

/* ---- transformer ---------------------------------------------------------------------------- */

static weft_value attention(weft_graph *g, const char *name, weft_value x_bsc,
                            weft_value context_blc, int64_t heads)
{
    const int64_t width = weft_dim(g, x_bsc, 2);
    weft_graph_push(g, "%s", name);
    const weft_value q = weft_nn_linear_plain(g, "to_q", x_bsc, width),
                     k = weft_nn_linear_plain(g, "to_k", context_blc, width),
                     v = weft_nn_linear_plain(g, "to_v", context_blc, width);
    const weft_value out = weft_nn_linear(g, "to_out.0", weft_nn_attention(g, q, k, v, heads, NULL),
                                          width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* Gated feed-forward: values times gelu of gates, both from one product. */
static weft_value feed_forward(weft_graph *g, weft_value x)
{
    const int64_t width = weft_dim(g, x, 2), inner = 4 * width;
    weft_graph_push(g, "ff.net");
    const weft_value both = weft_nn_linear(g, "0.proj", x, 2 * inner, WEFT_LINEAR_XAVIER);
    const weft_value gate =
        weft_nn_activate(g, WEFT_NN_GELU_ERF, weft_slice(g, both, 2, inner, inner));
    x = weft_nn_linear(g, "2", weft_mul(g, weft_slice(g, both, 2, 0, inner), gate), width,
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

/* A linear layer, stored as linear or as a 1 x 1 convolution. */
static weft_value project(weft_graph *g, const unet *c, const char *name, weft_value x)
{
    const int64_t width = weft_dim(g, x, 4);
    return c->linear ? weft_nn_linear(g, name, x, width, WEFT_LINEAR_XAVIER)
                     : conv(g, name, x, width, 1, 1);
}

static weft_value transformer(weft_graph *g, const unet *c, weft_value x, weft_value text,
                              int64_t heads)
{
    const int64_t batch = weft_dim(g, x, 0), rows = weft_dim(g, x, 2), columns = weft_dim(g, x, 3),
                  width = weft_dim(g, x, 4);
    weft_value h = project(g, c, "proj_in", weft_nn_group_norm(g, "norm", x, c->groups, inner_eps));
    h = weft_reshape(g, h, WEFT_SHAPE(batch, rows * columns, width));
    weft_graph_push(g, "transformer_blocks.0");
    weft_value n = weft_nn_layer_norm(g, "norm1", h, layer_eps);
    h = weft_add(g, h, attention(g, "attn1", n, n, heads));
    n = weft_nn_layer_norm(g, "norm2", h, layer_eps);
    h = weft_add(g, h, attention(g, "attn2", n, text, heads));
    h = weft_add(g, h, feed_forward(g, weft_nn_layer_norm(g, "norm3", h, layer_eps)));
    weft_graph_pop(g);
    h = weft_reshape(g, h, WEFT_SHAPE(batch, 1, rows, columns, width));
    return weft_add(g, x, project(g, c, "proj_out", h));
}

/* ---- levels --------------------------------------------------------------------------------- */

typedef struct state {
    weft_value x, temb_be, text;
    weft_value skip[MAX_SKIPS];
    int64_t skips;
} state;

static void layer(weft_graph *g, const unet *c, state *s, int64_t level, int64_t index,
                  bool attends)
{
    weft_graph_push(g, "resnets.%d", (int)index);
    s->x = resnet(g, c, s->x, c->channels[level], s->temb_be);
    weft_graph_pop(g);
    if (!attends)
        return;
    weft_graph_push(g, "attentions.%d", (int)index);
    s->x = transformer(g, c, s->x, s->text, c->heads[level]);
    weft_graph_pop(g);
}

static void go_down(weft_graph *g, const unet *c, state *s)
{
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        for (int64_t k = 0; k < c->layers; k++) {
            layer(g, c, s, i, k, c->down[i]);
            s->skip[s->skips++] = s->x;
        }
        if (i < c->levels - 1)
            s->skip[s->skips++] = s->x = conv(g, "downsamplers.0.conv", s->x, c->channels[i], 3, 2);
        weft_graph_pop(g);
    }
}

/* Repeats every position twice along both sides, cut to the size of `like`, which may be one
 * less. */
static weft_value twice(weft_graph *g, weft_value x, weft_value like)
{
    const int64_t b = weft_dim(g, x, 0), y = weft_dim(g, x, 2), w = weft_dim(g, x, 3),
                  c = weft_dim(g, x, 4);
    x = weft_broadcast(g, weft_reshape(g, x, WEFT_SHAPE(b, y, 1, w, 1, c)),
                       WEFT_SHAPE(b, y, 2, w, 2, c));
    x = weft_reshape(g, x, WEFT_SHAPE(b, 1, 2 * y, 2 * w, c));
    for (int d = 2; d < 4; d++)
        if (weft_dim(g, x, d) != weft_dim(g, like, d))
            x = weft_slice(g, x, d, 0, weft_dim(g, like, d));
    return x;
}

static void go_up(weft_graph *g, const unet *c, state *s)
{
    for (int64_t i = 0; i < c->levels; i++) {
        const int64_t level = c->levels - 1 - i;
        weft_graph_push(g, "up_blocks.%d", (int)i);
        for (int64_t k = 0; k <= c->layers; k++) {
            s->x = weft_concat(g, (weft_value[]){s->x, s->skip[--s->skips]}, 2, 4);
            layer(g, c, s, level, k, c->up[i]);
        }
        if (i < c->levels - 1)
            s->x = conv(g, "upsamplers.0.conv", twice(g, s->x, s->skip[s->skips - 1]),
                        c->channels[level], 3, 1);
        weft_graph_pop(g);
    }
}

static weft_value forward(weft_graph *g, const unet *c, const weft_ports *in)
{
    const int64_t first = c->channels[0], last = c->levels - 1;
    state s = {.text = in->at[WEFT_PORT_TEXT]};
    if (weft_dim(g, in->at[WEFT_PORT_LATENTS], 1) != 1)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "a U-Net makes one frame, not %" PRId64,
                               weft_dim(g, in->at[WEFT_PORT_LATENTS], 1));
    s.temb_be = weft_nn_embedder(g, "time_embedding",
                                 weft_nn_sinusoid(g, first, in->at[WEFT_PORT_TIMESTEP]), 4 * first,
                                 WEFT_NN_SILU);
    s.x = conv(g, "conv_in", in->at[WEFT_PORT_LATENTS], first, 3, 1);
    s.skip[s.skips++] = s.x;
    go_down(g, c, &s);
    weft_graph_push(g, "mid_block");
    layer(g, c, &s, last, 0, true);
    layer(g, c, &s, last, 1, false);
    weft_graph_pop(g);
    go_up(g, c, &s);
    s.x =
        weft_unary(g, WEFT_OP_SILU, weft_nn_group_norm(g, "conv_norm_out", s.x, c->groups, c->eps));
    return conv(g, "conv_out", s.x, c->out_channels, 3, 1);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const unet *c = config;
    if (c->levels < 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "down_block_types", c->levels),
                          "the list is empty");
    for (int64_t i = 0; i < c->levels; i++)
        if (c->channels[i] % c->heads[i] || c->channels[i] % c->groups || c->channels[0] % 2)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "block_out_channels", c->channels[i]),
                              "%" PRId64 " is not a multiple of the %" PRId64
                              " heads (\"attention_head_dim\" counts them) and "
                              "of the %" PRId64 " groups",
                              c->channels[i], c->heads[i], c->groups);
    return WEFT_OK;
}

static int64_t levels(const void *config)
{
    return ((const unet *)config)->levels;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const unet *c = config;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const unet *c = config;
    grid->factor[0] = grid->factor[1] = grid->factor[2] = 1;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
    grid->only[0] = 1;
}

/* clang-format off */
static const char *const down_words[] = {"\"DownBlock2D\"", "\"CrossAttnDownBlock2D\"", NULL};
static const char *const up_words[] = {"\"UpBlock2D\"", "\"CrossAttnUpBlock2D\"", NULL};
#define AT(member) offsetof(unet, member)
static const weft_field fields[] = {
    {"sample_size", WEFT_FIELD_I64, AT(sample), "64", 1, 1 << 16,
     .help = "side of the latents that the model was made for; others are accepted"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "4"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "4"),
    {"center_input_sample", WEFT_FIELD_FIXED, .fallback = "false"},
    {"flip_sin_to_cos", WEFT_FIELD_FIXED, .fallback = "true"},
    {"freq_shift", WEFT_FIELD_FIXED, .fallback = "0"},
    {"down_block_types", WEFT_FIELD_WORDS, AT(down),
     "[\"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\","
     " \"DownBlock2D\"]",
     .capacity = MAX_LEVELS, .count = AT(levels), .words = down_words,
     .help = "levels of the encoder, with or without attention"},
    {"mid_block_type", WEFT_FIELD_FIXED, .fallback = "\"UNetMidBlock2DCrossAttn\""},
    {"up_block_types", WEFT_FIELD_WORDS, AT(up),
     "[\"UpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\"]",
     .capacity = MAX_LEVELS, .length = levels, .words = up_words,
     .help = "levels of the decoder, with or without attention"},
    {"only_cross_attention", WEFT_FIELD_FIXED, .fallback = "false"},
    {"block_out_channels", WEFT_FIELD_I64S, AT(channels), "[320, 640, 1280, 1280]", 1, 1 << 16,
     .capacity = MAX_LEVELS, .length = levels, .help = "channels of each level"},
    {"layers_per_block", WEFT_FIELD_I64, AT(layers), "2", 1, 16,
     .help = "residual blocks per level of the encoder; the decoder has one more"},
    {"downsample_padding", WEFT_FIELD_FIXED, .fallback = "1"},
    {"mid_block_scale_factor", WEFT_FIELD_FIXED, .fallback = "1"},
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"act_fn", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    {"norm_num_groups", WEFT_FIELD_I64, AT(groups), "32", 1, 1 << 16,
     .help = "groups of the group norms"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-5"),
    {"cross_attention_dim", WEFT_FIELD_I64, AT(text_dim), "1280", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"transformer_layers_per_block", WEFT_FIELD_FIXED, .fallback = "1"},
    {"reverse_transformer_layers_per_block", WEFT_FIELD_FIXED, .fallback = "null"},
    {"encoder_hid_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"encoder_hid_dim_type", WEFT_FIELD_FIXED, .fallback = "null"},
    {"attention_head_dim", WEFT_FIELD_I64S, AT(heads), "8", 1, 1024, .capacity = MAX_LEVELS,
     .length = levels, .spread = true,
     .help = "attention heads of each level, or of all levels (as in public configs)"},
    {"num_attention_heads", WEFT_FIELD_FIXED, .fallback = "null"},
    {"dual_cross_attention", WEFT_FIELD_FIXED, .fallback = "false"},
    {"use_linear_projection", WEFT_FIELD_BOOL, AT(linear), "false",
     .help = "projections around a transformer are linear layers (2), not convolutions (1)"},
    {"class_embed_type", WEFT_FIELD_FIXED, .fallback = "null"},
    {"addition_embed_type", WEFT_FIELD_FIXED, .fallback = "null"},
    {"addition_time_embed_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"num_class_embeds", WEFT_FIELD_FIXED, .fallback = "null"},
    {"upcast_attention", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"resnet_time_scale_shift", WEFT_FIELD_FIXED, .fallback = "\"default\""},
    {"resnet_skip_time_act", WEFT_FIELD_FIXED, .fallback = "false"},
    {"resnet_out_scale_factor", WEFT_FIELD_FIXED, .fallback = "1.0"},
    {"time_embedding_type", WEFT_FIELD_FIXED, .fallback = "\"positional\""},
    {"time_embedding_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"time_embedding_act_fn", WEFT_FIELD_FIXED, .fallback = "null"},
    {"timestep_post_act", WEFT_FIELD_FIXED, .fallback = "null"},
    {"time_cond_proj_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"conv_in_kernel", WEFT_FIELD_FIXED, .fallback = "3"},
    {"conv_out_kernel", WEFT_FIELD_FIXED, .fallback = "3"},
    {"projection_class_embeddings_input_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"attention_type", WEFT_FIELD_FIXED, .fallback = "\"default\""},
    {"class_embeddings_concat", WEFT_FIELD_FIXED, .fallback = "false"},
    {"mid_block_only_cross_attention", WEFT_FIELD_FIXED, .fallback = "null"},
    {"cross_attention_norm", WEFT_FIELD_FIXED, .fallback = "null"},
    {"addition_embed_type_num_heads", WEFT_FIELD_IGNORED, .fallback = "64"},
};

static const weft_named_config sizes[] = {
    {"sd1", "{\"cross_attention_dim\": 768}"},
    {"sd2.1", "{\"sample_size\": 96, \"cross_attention_dim\": 1024,"
              " \"use_linear_projection\": true, \"attention_head_dim\": [5, 10, 20, 20]}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "sample"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of latent diffusion's own files, for the four levels of Stable Diffusion 1 and 2. Two
 * blocks per level on the way down and three on the way up are numbered consecutively. */
static const weft_rename_rule original[] = {
    {"time_embed.0",            "time_embedding.linear_1"},
    {"time_embed.2",            "time_embedding.linear_2"},
    {"out.0",                   "conv_norm_out"},
    {"out.2",                   "conv_out"},
    {"input_blocks.0.0",        "conv_in"},
    {"middle_block.0",          "mid_block.resnets.0"},
    {"middle_block.1",          "mid_block.attentions.0"},
    {"middle_block.2",          "mid_block.resnets.1"},
    {"input_blocks.1.0",        "down_blocks.0.resnets.0"},
    {"input_blocks.1.1",        "down_blocks.0.attentions.0"},
    {"input_blocks.2.0",        "down_blocks.0.resnets.1"},
    {"input_blocks.2.1",        "down_blocks.0.attentions.1"},
    {"input_blocks.3.0.op",     "down_blocks.0.downsamplers.0.conv"},
    {"input_blocks.4.0",        "down_blocks.1.resnets.0"},
    {"input_blocks.4.1",        "down_blocks.1.attentions.0"},
    {"input_blocks.5.0",        "down_blocks.1.resnets.1"},
    {"input_blocks.5.1",        "down_blocks.1.attentions.1"},
    {"input_blocks.6.0.op",     "down_blocks.1.downsamplers.0.conv"},
    {"input_blocks.7.0",        "down_blocks.2.resnets.0"},
    {"input_blocks.7.1",        "down_blocks.2.attentions.0"},
    {"input_blocks.8.0",        "down_blocks.2.resnets.1"},
    {"input_blocks.8.1",        "down_blocks.2.attentions.1"},
    {"input_blocks.9.0.op",     "down_blocks.2.downsamplers.0.conv"},
    {"input_blocks.10.0",       "down_blocks.3.resnets.0"},
    {"input_blocks.11.0",       "down_blocks.3.resnets.1"},
    {"output_blocks.0.0",       "up_blocks.0.resnets.0"},
    {"output_blocks.1.0",       "up_blocks.0.resnets.1"},
    {"output_blocks.2.1.conv",  "up_blocks.0.upsamplers.0.conv"},
    {"output_blocks.2.0",       "up_blocks.0.resnets.2"},
    {"output_blocks.3.0",       "up_blocks.1.resnets.0"},
    {"output_blocks.3.1",       "up_blocks.1.attentions.0"},
    {"output_blocks.4.0",       "up_blocks.1.resnets.1"},
    {"output_blocks.4.1",       "up_blocks.1.attentions.1"},
    {"output_blocks.5.2.conv",  "up_blocks.1.upsamplers.0.conv"},
    {"output_blocks.5.0",       "up_blocks.1.resnets.2"},
    {"output_blocks.5.1",       "up_blocks.1.attentions.2"},
    {"output_blocks.6.0",       "up_blocks.2.resnets.0"},
    {"output_blocks.6.1",       "up_blocks.2.attentions.0"},
    {"output_blocks.7.0",       "up_blocks.2.resnets.1"},
    {"output_blocks.7.1",       "up_blocks.2.attentions.1"},
    {"output_blocks.8.2.conv",  "up_blocks.2.upsamplers.0.conv"},
    {"output_blocks.8.0",       "up_blocks.2.resnets.2"},
    {"output_blocks.8.1",       "up_blocks.2.attentions.2"},
    {"output_blocks.9.0",       "up_blocks.3.resnets.0"},
    {"output_blocks.9.1",       "up_blocks.3.attentions.0"},
    {"output_blocks.10.0",      "up_blocks.3.resnets.1"},
    {"output_blocks.10.1",      "up_blocks.3.attentions.1"},
    {"output_blocks.11.0",      "up_blocks.3.resnets.2"},
    {"output_blocks.11.1",      "up_blocks.3.attentions.2"},
    {"resnets.#.in_layers.0",   "resnets.#.norm1"},
    {"resnets.#.in_layers.2",   "resnets.#.conv1"},
    {"resnets.#.emb_layers.1",  "resnets.#.time_emb_proj"},
    {"resnets.#.out_layers.0",  "resnets.#.norm2"},
    {"resnets.#.out_layers.3",  "resnets.#.conv2"},
    {"resnets.#.skip_connection", "resnets.#.conv_shortcut"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "down_blocks.0.resnets.0.time_emb_proj.weight", NULL, 0},
    {"original", "input_blocks.0.0.weight", original, sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT},
};

const weft_family weft_family_unet_2d = {
    .class_name = "UNet2DConditionModel", .role = WEFT_ROLE_DENOISER,
    .scope = "unet", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "StableDiffusionPipeline",
    .autoencoder = "sd-vae", .frames = 1,
    .marks = {"down_block_types", "cross_attention_dim"},
    .config_bytes = sizeof(unet), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
