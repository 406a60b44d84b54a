/* HunyuanVideo 1.5's diffusion transformer (diffusers' HunyuanVideo15Transformer3DModel), text and
 * image to video. Parameters have the names of the public checkpoints.
 *
 *   latents --patch--> x (B,S,C)
 *   text --refiner-->, glyph text --MLP-->, image --MLP--> + a vector of each kind = y (B,L,C)
 *   timestep --MLP--> temb (B,C)
 *   double blocks (model/denoisers/mmdit.h): separate layers for x and y, attention over both
 *   x --> norm, modulate, project --unpatch--> prediction
 *
 * Tokens of y have no positions, so their order has no effect, and hidden tokens have no effect on
 * x. The reference puts hidden tokens last and gives them other values. Tokens of
 * an image are hidden if all its embeddings are zero.
 * Shape letters: B batch, S video tokens, L tokens of the conditions, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/denoisers/token_refiner.h"
#include "model/model.h"
#include "model/tp_recipes.h"

typedef struct hunyuan15 {
    int64_t in_channels, out_channels, heads, head_dim, layers, refiner_layers;
    double mlp_ratio;
    int64_t patch, patch_t, text_dim, glyph_dim, glyph_inner, image_dim;
    double theta;
    int64_t axes[3];
} hunyuan15;
_Static_assert(sizeof(hunyuan15) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

enum { KIND_TEXT, KIND_GLYPHS, KIND_IMAGE, KINDS }; /* rows of cond_type_embed */
enum { IMAGE_TOKENS = 729 };                        /* of the published image encoder */
static const double norm_eps = 1e-5;

static int64_t width_of(const hunyuan15 *c)
{
    return c->heads * c->head_dim;
}

/* ---- conditions ----------------------------------------------------------------------------- */

static weft_value embed_glyphs(weft_graph *g, const hunyuan15 *c, weft_value x)
{
    weft_graph_push(g, "context_embedder_2");
    x = weft_nn_layer_norm(g, "norm", x, norm_eps);
    x = weft_nn_linear(g, "linear_1", x, c->glyph_inner, WEFT_LINEAR_XAVIER);
    x = weft_nn_linear(g, "linear_2", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), c->glyph_inner,
                       WEFT_LINEAR_XAVIER);
    x = weft_nn_linear(g, "linear_3", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), width_of(c),
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

/* (B,N): 1 if any embedding of the sample's image is not zero, otherwise 0. */
static weft_value is_there(weft_graph *g, weft_value image)
{
    const int64_t batch = weft_dim(g, image, 0), tokens = weft_dim(g, image, 1);
    const double large = 1e30; /* squares of numbers above 1e-15 become 1 */
    weft_value there =
        weft_clamp(g, weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, image), large, 0), 0, 1);
    there = weft_clamp(g, weft_sum(g, there, 1u << 1 | 1u << 2), 0, 1);
    there = weft_unary(g, WEFT_OP_STOP, weft_reshape(g, there, WEFT_SHAPE(batch, 1)));
    return weft_broadcast(g, there, WEFT_SHAPE(batch, tokens));
}

/* The tokens of all conditions (B,L,C), and their mask (B,L). */
static weft_value embed_conditions(weft_graph *g, const hunyuan15 *c, const weft_ports *in,
                                   weft_value *mask_bl)
{
    const int64_t width = width_of(c), batch = weft_dim(g, in->at[WEFT_PORT_TEXT], 0);
    const weft_token_refiner refiner = {c->heads, c->head_dim, c->refiner_layers, false};
    weft_value x[KINDS] = {in->at[WEFT_PORT_TEXT], in->at[WEFT_PORT_TEXT2],
                           in->at[WEFT_PORT_IMAGE]},
               mask[KINDS];
    if (!weft_value_ok(x[KIND_IMAGE])) /* one hidden token: the layers have gradients of zero */
        x[KIND_IMAGE] = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, 1, c->image_dim), 0);
    mask[KIND_TEXT] = weft_token_mask(g, in->at[WEFT_PORT_TEXT_MASK], x[KIND_TEXT]);
    mask[KIND_GLYPHS] = weft_token_mask(g, in->at[WEFT_PORT_TEXT2_MASK], x[KIND_GLYPHS]);
    mask[KIND_IMAGE] = is_there(g, x[KIND_IMAGE]);
    x[KIND_TEXT] =
        weft_token_refine(g, &refiner, x[KIND_TEXT], mask[KIND_TEXT], in->at[WEFT_PORT_TIMESTEP]);
    x[KIND_GLYPHS] = embed_glyphs(g, c, x[KIND_GLYPHS]);
    x[KIND_IMAGE] = weft_mmdit_image_tokens(g, x[KIND_IMAGE], width);
    const weft_value table =
        weft_param(g, "cond_type_embed.weight", WEFT_F32, WEFT_SHAPE(KINDS, width),
                   (weft_init){.kind = WEFT_INIT_NORMAL, .value = 1});
    for (int k = 0; k < KINDS; k++)
        x[k] = weft_add(g, x[k],
                        weft_reshape(g, weft_slice(g, table, 0, k, 1), WEFT_SHAPE(1, 1, width)));
    *mask_bl = weft_concat(g, mask, KINDS, 1);
    return weft_concat(g, x, KINDS, 1);
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value embed_time(weft_graph *g, const hunyuan15 *c, weft_value t_b)
{
    weft_graph_push(g, "time_embed");
    const weft_value temb =
        weft_nn_embedder(g, "timestep_embedder", weft_nn_sinusoid(g, WEFT_MMDIT_TIME, t_b),
                         width_of(c), WEFT_NN_SILU);
    weft_graph_pop(g);
    return temb;
}

static weft_value forward(weft_graph *g, const hunyuan15 *c, const weft_ports *in)
{
    const weft_mmdit blocks = {.heads = c->heads,
                               .head_dim = c->head_dim,
                               .inner = (int64_t)((double)width_of(c) * c->mlp_ratio)};
    const int64_t patch[3] = {c->patch_t, c->patch, c->patch};
    int64_t size[3];
    weft_mmdit_stream stream[2] = {{.text = false}, {.text = true}};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_mmdit_video_rope(g, c->theta, c->axes, 0, size, stream[0].rope);
    stream[0].temb_bc = stream[1].temb_bc = embed_time(g, c, in->at[WEFT_PORT_TIMESTEP]);
    stream[0].x = weft_nn_patch(g, "x_embedder.proj", in->at[WEFT_PORT_LATENTS], width_of(c), patch,
                                WEFT_PATCH_3D, true);
    weft_value mask_bl;
    stream[1].x = embed_conditions(g, c, in, &mask_bl);
    const weft_value bias = weft_mmdit_key_bias(g, mask_bl, size[0] * size[1] * size[2]);
    for (int64_t i = 0; i < c->layers; i++) {
        stream[1].last = i == c->layers - 1;
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_mmdit_double(g, &blocks, stream, 2, bias);
        weft_graph_pop(g);
    }
    const weft_value x = weft_mmdit_last(g, &blocks, stream[0].x, stream[0].temb_bc,
                                         patch[0] * patch[1] * patch[2] * c->out_channels);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, x, c->out_channels), size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hunyuan15 *c = config;
    return weft_check_axes(locations, "rope_axes_dim", c->axes, c->head_dim);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan15 *c = config;
    const int64_t glyphs = s->text2 ? s->text2 : s->text;
    switch (port) {
    case WEFT_PORT_TEXT2: return WEFT_SHAPE(s->batch, glyphs, c->glyph_dim);
    case WEFT_PORT_TEXT2_MASK: return WEFT_SHAPE(s->batch, glyphs);
    case WEFT_PORT_IMAGE:
        return WEFT_SHAPE(s->batch, s->image ? s->image : IMAGE_TOKENS, c->image_dim);
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
    const hunyuan15 *c = config;
    grid->factor[0] = c->patch_t;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const hunyuan15 *c = config;
    if (c->in_channels == 2 * c->out_channels + 1)
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_CHANNELS,
                                       .mark_after = true,
                                       .also_none = true,
                                       .resized = true};
}

/* clang-format off */
#define AT(member) offsetof(hunyuan15, member)
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "65"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "32"),
    WEFT_HEADS_FIELD(AT(heads), "16"),
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_BLOCKS_FIELD(AT(layers), "54"),
    {"num_refiner_layers", WEFT_FIELD_I64, AT(refiner_layers), "2", 0, 1024,
     .help = "blocks over text tokens only"},
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),
    WEFT_PATCH_FIELD(AT(patch), "1"),
    {"patch_size_t", WEFT_FIELD_I64, AT(patch_t), "1", 1, 64, .help = "latent frames of a token"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm\""},
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "3584"),
    {"text_embed_2_dim", WEFT_FIELD_I64, AT(glyph_dim), "1472", 1, 1 << 16,
     .help = "width of the embeddings of glyph texts"},
    {"text_embed_2_hidden_dim", WEFT_FIELD_I64, AT(glyph_inner), "2048", 1, 1 << 16,
     .help = "inner width of the layers for glyph texts; public configs do not have it"},
    {"image_embed_dim", WEFT_FIELD_I64, AT(image_dim), "1152", 1, 1 << 16,
     .help = "width of the image embeddings"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "256.0", 1, 1e9,
     .help = "base of the rotary frequencies"},
    {"rope_axes_dim", WEFT_FIELD_I64S, AT(axes), "[16, 56, 56]", 0, 4096, .capacity = 3,
     .length = weft_three,
     .help = "channels of a head that RoPE rotates by frames, rows and columns"},
    {"target_size", WEFT_FIELD_IGNORED, .fallback = "640"},
    {"task_type", WEFT_FIELD_IGNORED, .fallback = "\"i2v\""},
    {"use_meanflow", WEFT_FIELD_FIXED, .fallback = "false"},
};

static const weft_named_config sizes[] = {
    {"hunyuan-video-1.5", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_TEXT2,      false, "encoder_hidden_states_2"},
    {WEFT_PORT_TEXT2_MASK, false, "encoder_attention_mask_2", .optional = true},
    {WEFT_PORT_IMAGE,      false, "image_embeds", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of Tencent's files. */
static const weft_rename_rule original[] = {
    {"img_in.proj",                         "x_embedder.proj"},
    {"time_in.mlp.0",                       "time_embed.timestep_embedder.linear_1"},
    {"time_in.mlp.2",                       "time_embed.timestep_embedder.linear_2"},
    {"cond_type_embedding",                 "cond_type_embed"},
    {"byt5_in.layernorm",                   "context_embedder_2.norm"},
    {"byt5_in.fc1",                         "context_embedder_2.linear_1"},
    {"byt5_in.fc2",                         "context_embedder_2.linear_2"},
    {"byt5_in.fc3",                         "context_embedder_2.linear_3"},
    {"vision_in.proj.0",                    "image_embedder.norm_in"},
    {"vision_in.proj.1",                    "image_embedder.linear_1"},
    {"vision_in.proj.3",                    "image_embedder.linear_2"},
    {"vision_in.proj.4",                    "image_embedder.norm_out"},
    {"txt_in.t_embedder.mlp.0",
     "context_embedder.time_text_embed.timestep_embedder.linear_1"},
    {"txt_in.t_embedder.mlp.2",
     "context_embedder.time_text_embed.timestep_embedder.linear_2"},
    {"txt_in.c_embedder",                   "context_embedder.time_text_embed.text_embedder"},
    {"txt_in.input_embedder",               "context_embedder.proj_in"},
    {"txt_in.individual_token_refiner.blocks", "context_embedder.token_refiner.refiner_blocks"},
    {"refiner_blocks.#.self_attn_qkv",      "refiner_blocks.#.attn.{to_q,to_k,to_v}"},
    {"refiner_blocks.#.self_attn_proj",     "refiner_blocks.#.attn.to_out.0"},
    {"refiner_blocks.#.mlp.fc1",            "refiner_blocks.#.ff.net.0.proj"},
    {"refiner_blocks.#.mlp.fc2",            "refiner_blocks.#.ff.net.2"},
    {"refiner_blocks.#.adaLN_modulation.1", "refiner_blocks.#.norm_out.linear"},
    {"final_layer.adaLN_modulation.1",      "~norm_out.linear"}, /* shift, scale there */
    {"final_layer.linear",                  "proj_out"},
    {"double_blocks.#",                     "transformer_blocks.#"},
    {"img_mod.linear",                      "norm1.linear"},
    {"txt_mod.linear",                      "norm1_context.linear"},
    {"img_attn_q",                          "attn.to_q"},
    {"img_attn_k",                          "attn.to_k"},
    {"img_attn_v",                          "attn.to_v"},
    {"img_attn_q_norm",                     "attn.norm_q"},
    {"img_attn_k_norm",                     "attn.norm_k"},
    {"img_attn_proj",                       "attn.to_out.0"},
    {"txt_attn_q",                          "attn.add_q_proj"},
    {"txt_attn_k",                          "attn.add_k_proj"},
    {"txt_attn_v",                          "attn.add_v_proj"},
    {"txt_attn_q_norm",                     "attn.norm_added_q"},
    {"txt_attn_k_norm",                     "attn.norm_added_k"},
    {"txt_attn_proj",                       "attn.to_add_out"},
    {"img_mlp.fc1",                         "ff.net.0.proj"},
    {"img_mlp.fc2",                         "ff.net.2"},
    {"txt_mlp.fc1",                         "ff_context.net.0.proj"},
    {"txt_mlp.fc2",                         "ff_context.net.2"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "context_embedder_2.linear_3.weight", NULL, 0},
    {"original",  "byt5_in.fc3.weight", original, sizeof original / sizeof *original},
};

#define INDENT "        "
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 1000, .crop = 108,
     .empty = " ",
     .before = "<|im_start|>system\nYou are a helpful assistant. Describe the video by detailing "
               "the following aspects: "
               INDENT "1. The main content and theme of the video. "
               INDENT "2. The color, shape, size, texture, quantity, text, and spatial "
               "relationships of the objects. "
               INDENT "3. Actions, events, behaviors temporal relationships, physical movement "
               "changes of the objects. "
               INDENT "4. background environment, light, style and atmosphere. "
               INDENT "5. camera angles, movements, and transitions used in the video.<|im_end|>\n"
               "<|im_start|>user\n",
     .after = "<|im_end|>\n<|im_start|>assistant\n"},
    {"text_encoder_2", "tokenizer_2", WEFT_PORT_TEXT2, WEFT_PORT_TEXT2_MASK, .length = 256,
     .quoted = true},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_hunyuan_video15_dit = {
    .class_name = "HunyuanVideo15Transformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "HunyuanVideo15Pipeline",
    .autoencoder = "AutoencoderKLHunyuanVideo15",
    .marks = {"text_embed_2_dim", "image_embed_dim"},
    .config_bytes = sizeof(hunyuan15), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "with twice the latent channels and a mask: none or a first frame",
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
