/* Diffusion transformers of Cosmos 1.0, Predict2, Predict 2.5 and Transfer 2.5
 * (CosmosTransformer3DModel).
 * Parameters have the names of the public checkpoints. Linear layers have no biases.
 *
 *   latents, [condition mask], [padding mask] --patch--> x (B,S,C)
 *   timestep --sinusoid s--> norm s (B,C), and MLP of s: temb (B,3C), shared by all norms
 *   every norm: shift, scale, gate = low-rank linear of silu(norm s) + temb
 *
 *   block:  x += positions (1.0);  x += gate attn(norm1 x);  x += gate cross(norm2 x, text)
 *           x += gate ffn(norm3 x)
 *
 * With a timestep per latent frame, modulations are (B,T,1,C) and x is (B,T,Y X,C).
 * Shape letters: B batch, S video tokens, T, Y, X frames, rows, columns, C width, D head width. */
#include "model/denoisers/cosmos_dit.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/cosmos_control.h"
#include "model/tp_recipes.h"

typedef struct cosmos {
    int64_t in_channels, out_channels, layers;
    bool padding;
    weft_cosmos net;
    int64_t image_tokens;
    int64_t every; /* blocks from one hint of the control branch to the next; 0: none */
    weft_cosmos_control control;
} cosmos;
_Static_assert(sizeof(cosmos) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Predict 2.5 and Transfer 2.5 project their texts. */
static bool is_25(const void *config)
{
    return ((const cosmos *)config)->net.project;
}

static bool is_before_25(const void *config)
{
    return !is_25(config);
}

/* Returns true if an input channel marks given frames. */
static bool has_condition(const cosmos *c)
{
    return c->in_channels == c->out_channels + 1;
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value embed_latents(weft_graph *g, const cosmos *c, const weft_ports *in)
{
    weft_value part[3] = {in->at[WEFT_PORT_LATENTS]};
    int parts = 1;
    if (has_condition(c))
        part[parts++] = weft_cosmos_marks(g, in);
    if (c->padding)
        part[parts++] = weft_cosmos_padding(g, in);
    return weft_nn_patch(g, "patch_embed.proj",
                         parts > 1 ? weft_concat(g, part, parts, 4) : part[0],
                         weft_cosmos_width(&c->net), c->net.patch, WEFT_PATCH_LINEAR, false);
}

static weft_value project_out(weft_graph *g, const cosmos *c, weft_value x)
{
    const int64_t *patch = c->net.patch, sides = patch[1] * patch[2];
    x = weft_nn_linear_plain(g, "proj_out", x, sides * patch[0] * c->out_channels);
    if (patch[0] > 1) { /* (ph pw, pt, channel) */
        const int64_t batch = weft_dim(g, x, 0), tokens = weft_dim(g, x, 1);
        x = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, sides, patch[0], c->out_channels));
        x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
        x = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, sides * patch[0] * c->out_channels));
    }
    return x;
}

/* `hint` NULL: the control branch makes the hints, if the config and the inputs have one. */
static weft_value forward(weft_graph *g, const cosmos *c, const weft_ports *in,
                          const weft_value *hint)
{
    weft_cosmos_condition to;
    weft_value made[WEFT_COSMOS_MAX_HINTS];
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->net.patch, to.size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_value x = embed_latents(g, c, in);
    weft_cosmos_embed(g, &c->net, in, &to);
    if (!hint && c->control.blocks && weft_value_ok(in->at[WEFT_PORT_CONTROL])) {
        weft_graph_push(g, "controlnet");
        weft_cosmos_control_build(g, &c->control, in, to.size, made);
        weft_graph_pop(g);
        hint = made;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        x = weft_cosmos_block(g, &c->net, x, &to);
        if (hint && i % c->every == 0)
            x = weft_add(g, x, hint[i / c->every]);
        weft_graph_pop(g);
    }
    x = weft_cosmos_last_norm(g, &c->net, x, &to);
    return weft_nn_unpatch(g, project_out(g, c, x), to.size, c->net.patch);
}

static int64_t hints_of(const cosmos *c)
{
    return c->every ? (c->layers + c->every - 1) / c->every : 0;
}

int64_t weft_cosmos_hints(const weft_model *model)
{
    return hints_of((const cosmos *)model->config);
}

weft_value weft_cosmos_hinted(weft_graph *g, const weft_model *model, const weft_ports *in,
                              const weft_value *hint)
{
    return forward(g, (const cosmos *)model->config, in, hint);
}

/* ---- the family ----------------------------------------------------------------------------- */

/* 1.0 has learned positions in addition to the rotary ones. */
static const char *pipeline_of(const void *config, bool image)
{
    (void)image;
    const cosmos *c = config;
    const bool first = c->net.pos_embed == WEFT_COSMOS_POS_EMBED_LEARNED;
    if (c->control.blocks)
        return "Cosmos2_5_TransferPipeline";
    if (is_25(c))
        return "Cosmos2_5_PredictBasePipeline";
    if (has_condition(c))
        return first ? "CosmosVideoToWorldPipeline" : "Cosmos2VideoToWorldPipeline";
    return first ? "CosmosTextToWorldPipeline" : "Cosmos2TextToImagePipeline";
}

/* A part of the control branch that has to equal the same part of the transformer. */
static weft_status check_same(const weft_config_locations *locations, const char *key,
                              int64_t control, int64_t own)
{
    return control == own
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, control),
                            "%" PRId64 " of the control branch differs from %" PRId64
                            " of the transformer; write the same value",
                            control, own);
}

static weft_status check_control(const cosmos *c, const weft_config_locations *locations)
{
    const weft_cosmos_control *control = &c->control;
    const int64_t hints = hints_of(c);
    if (hints != control->blocks)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "n_controlnet_blocks", control->blocks),
            "%" PRId64
            " blocks of the control branch, but the transformer reads the hints of %" PRId64
            " (\"num_layers\" %" PRId64 ", \"controlnet_block_every_n\" %" PRId64 ")",
            control->blocks, hints, c->layers, c->every);
    WEFT_TRY(check_same(locations, "num_attention_heads", weft_cosmos_width(&control->net),
                        weft_cosmos_width(&c->net)));
    WEFT_TRY(check_same(locations, "img_context_dim_in", control->net.image_dim, c->net.image_dim));
    for (int i = 0; i < 3; i++)
        WEFT_TRY(check_same(locations, "patch_size", control->net.patch[i], c->net.patch[i]));
    WEFT_TRY(check_same(locations, "crossattn_proj_in_channels",
                        control->net.project ? control->net.project_from : control->net.text_dim,
                        c->net.project ? c->net.project_from : c->net.text_dim));
    return check_same(locations, "latent_channels", control->latent_channels,
                      c->in_channels + (has_condition(c) ? 1 : 2));
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const cosmos *c = config;
    WEFT_TRY(weft_cosmos_check(&c->net, locations));
    return c->control.blocks ? check_control(c, locations) : WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const cosmos *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_FPS: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_CONDITION:
        return has_condition(c) ? WEFT_SHAPE(s->batch, s->frames, s->height, s->width, 1)
                                : WEFT_SCALAR;
    case WEFT_PORT_PADDING:
        return c->padding ? WEFT_SHAPE(1, 1, WEFT_COSMOS_PIXELS * s->height,
                                       WEFT_COSMOS_PIXELS * s->width, 1)
                          : WEFT_SCALAR;
    case WEFT_PORT_IMAGE:
        return c->net.image_dim
                   ? WEFT_SHAPE(s->batch, s->image ? s->image : c->image_tokens, c->net.image_dim)
                   : WEFT_SCALAR;
    case WEFT_PORT_CONTROL:
        return c->control.blocks
                   ? WEFT_SHAPE(s->batch, s->frames, s->height, s->width, c->out_channels)
                   : WEFT_SCALAR;
    case WEFT_PORT_CONTROL_SCALE:
        return c->control.blocks ? WEFT_SHAPE(c->control.blocks) : WEFT_SCALAR;
    default:
        return weft_denoiser_shape(s, port, has_condition(c) ? c->out_channels : c->in_channels,
                                   c->net.project ? c->net.project_from : c->net.text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports, NULL);
}

static void grid(const void *config, weft_grid *grid)
{
    const cosmos *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->net.patch[i];
    grid->channels = has_condition(c) ? c->out_channels : c->in_channels;
    grid->out_channels = c->out_channels;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const double clean = 1e-4; /* noise level of given frames */
    if (has_condition(config))
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_PORT,
                                       .also_none = is_25(config),
                                       .keeps_noise = is_25(config),
                                       .given_time = is_25(config) ? clean : clean / (1 + clean)};
}

/* The pipeline of 2.5 gives no frame rate. */
static bool piped(const void *config, weft_port port)
{
    return port != WEFT_PORT_FPS || !is_25(config);
}

/* clang-format off */
#define AT(member) offsetof(cosmos, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS,
     .help = "input channels: output channels and a mask of conditioning frames"},
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    WEFT_BLOCKS_FIELD(AT(layers), "28"),
    WEFT_COSMOS_FIELDS(AT(net), NULL),
    {"concat_padding_mask", WEFT_FIELD_BOOL, AT(padding), "true",
     .help = "an input channel masks the area outside the image"},
    {"img_context_num_tokens", WEFT_FIELD_I64, AT(image_tokens), "256", 1, 1 << 20,
     .help = "image tokens; they are zeros where no image is given"},
    {"controlnet_block_every_n", WEFT_FIELD_I64, AT(every), "null", 0, 1024,
     .help = "blocks from one hint of the control branch to the next (Transfer 2.5); null: none"},
    {"controlnet", WEFT_FIELD_PART, AT(control), "null", .part = &weft_family_cosmos_control,
     .help = "config of the control branch (CosmosControlNetModel)"},
};

#define SECOND "\"extra_pos_embed_type\": null, "
#define LARGE "\"num_attention_heads\": 40, \"num_layers\": 36"
#define PROJECTED_TEXT "\"use_crossattn_projection\": true," \
                       " \"crossattn_proj_in_channels\": 100352, "
#define PROJECTED "\"in_channels\": 17, \"rope_scale\": [1.0, 3.0, 3.0], " PROJECTED_TEXT
#define IMAGES "\"img_context_dim_in\": 1152, "
static const weft_named_config sizes[] = {
    {"cosmos1-7b", "{}"},
    {"cosmos1-14b", "{" LARGE ", \"rope_scale\": [2.0, 2.0, 2.0]}"},
    {"cosmos-predict2-2b-t2i", "{" SECOND "\"num_attention_heads\": 16,"
                               " \"rope_scale\": [1.0, 4.0, 4.0]}"},
    {"cosmos-predict2-2b", "{" SECOND "\"num_attention_heads\": 16, \"in_channels\": 17,"
                           " \"rope_scale\": [1.0, 3.0, 3.0]}"},
    {"cosmos-predict2-14b", "{" SECOND LARGE ", \"in_channels\": 17,"
                            " \"rope_scale\": [0.8333333333333334, 2.0, 2.0]}"},
    {"cosmos-predict2.5-2b", "{" SECOND PROJECTED "\"num_attention_heads\": 16}"},
    {"cosmos-predict2.5-14b", "{" SECOND PROJECTED LARGE "}"},
    {"cosmos-transfer2.5-2b", "{" SECOND PROJECTED IMAGES "\"num_attention_heads\": 16,"
                              " \"controlnet_block_every_n\": 7, \"controlnet\": {" PROJECTED_TEXT
                              IMAGES "\"n_controlnet_blocks\": 4, \"num_attention_heads\": 16,"
                              " \"rope_scale\": [1.0, 3.0, 3.0]}}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_FPS,        false, "fps", .optional = true},
    {WEFT_PORT_CONDITION,  false, "condition_mask", .optional = true},
    {WEFT_PORT_PADDING,    false, "padding_mask", .optional = true},
    {WEFT_PORT_IMAGE,      false, "image_context", .optional = true},
    {WEFT_PORT_CONTROL,    false, "controls_latents"},
    {WEFT_PORT_CONTROL_SCALE, false, "conditioning_scale", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Names that the own files of Predict2 and Transfer 2.5 share. The dropped tensors are computed, or
 * count the training. */
#define SECOND_NAMES                                         \
    {"pos_embedder",                  ""},                   \
    {"accum_image_sample_counter",    ""},                   \
    {"accum_video_sample_counter",    ""},                   \
    {"accum_iteration",               ""},                   \
    {"accum_train_in_hours",          ""},                   \
    {"blocks",                        "transformer_blocks"}, \
    {"adaln_modulation_self_attn.1",  "norm1.linear_1"},     \
    {"adaln_modulation_self_attn.2",  "norm1.linear_2"},     \
    {"adaln_modulation_cross_attn.1", "norm2.linear_1"},     \
    {"adaln_modulation_cross_attn.2", "norm2.linear_2"},     \
    {"adaln_modulation_mlp.1",        "norm3.linear_1"},     \
    {"adaln_modulation_mlp.2",        "norm3.linear_2"},     \
    {"self_attn",                     "attn1"},              \
    {"cross_attn",                    "attn2"},              \
    {"q_proj",                        "to_q"},               \
    {"k_proj",                        "to_k"},               \
    {"v_proj",                        "to_v"},               \
    {"output_proj",                   "to_out.0"},           \
    {"q_norm",                        "norm_q"},             \
    {"k_norm",                        "norm_k"},             \
    {"mlp.layer1",                    "ff.net.0.proj"},      \
    {"mlp.layer2",                    "ff.net.2"},           \
    {"final_layer.adaln_modulation.1", "norm_out.linear_1"}, \
    {"final_layer.adaln_modulation.2", "norm_out.linear_2"}, \
    {"final_layer.linear",            "proj_out"}
static const weft_rename_rule original[] = {
    SECOND_NAMES,
    {"t_embedder.1",      "time_embed.t_embedder"},
    {"t_embedding_norm",  "time_embed.norm"},
    {"x_embedder.proj.1", "patch_embed.proj"},
};
/* Transfer 2.5: one file with the control branch, which uses the embedders of the transformer. The
 * branch of the model has embedders of its own. */
static const weft_rename_rule transfer[] = {
    SECOND_NAMES,
    {"control_blocks",          "controlnet.control_blocks"},
    {"control_embedder.proj.1", "controlnet.patch_embed.proj"},
    {"t_embedder.1",      "&{time_embed.t_embedder,controlnet.time_embed.t_embedder}"},
    {"t_embedding_norm",  "&{time_embed.norm,controlnet.time_embed.norm}"},
    {"x_embedder.proj.1", "&{patch_embed.proj,controlnet.patch_embed_base.proj}"},
    {"crossattn_proj",    "&{crossattn_proj,controlnet.crossattn_proj}"},
    {"img_context_proj",  "&{img_context_proj,controlnet.img_context_proj}"},
};
/* state of the authors' quantized layers */
static const char *const unused[] = {"._extra_state", NULL};
/* Key mapping of Cosmos 1.0's own files: a block is a list of three layers. */
static const weft_rename_rule original1[] = {
    {"pos_embedder", ""}, /* computed */
    {"logvar",       ""}, /* loss only */
    {"t_embedder.1",                               "time_embed.t_embedder"},
    {"affline_norm",                               "time_embed.norm"},
    {"blocks.block#.blocks.0.block.attn",          "transformer_blocks.#.attn1"},
    {"blocks.block#.blocks.1.block.attn",          "transformer_blocks.#.attn2"},
    {"blocks.block#.blocks.2.block",               "transformer_blocks.#.ff"},
    {"blocks.block#.blocks.0.adaLN_modulation.1",  "transformer_blocks.#.norm1.linear_1"},
    {"blocks.block#.blocks.0.adaLN_modulation.2",  "transformer_blocks.#.norm1.linear_2"},
    {"blocks.block#.blocks.1.adaLN_modulation.1",  "transformer_blocks.#.norm2.linear_1"},
    {"blocks.block#.blocks.1.adaLN_modulation.2",  "transformer_blocks.#.norm2.linear_2"},
    {"blocks.block#.blocks.2.adaLN_modulation.1",  "transformer_blocks.#.norm3.linear_1"},
    {"blocks.block#.blocks.2.adaLN_modulation.2",  "transformer_blocks.#.norm3.linear_2"},
    {"to_q.1",                                     "norm_q"},
    {"to_q.0",                                     "to_q"},
    {"to_k.1",                                     "norm_k"},
    {"to_k.0",                                     "to_k"},
    {"to_v.0",                                     "to_v"},
    {"layer1",                                     "net.0.proj"},
    {"layer2",                                     "net.2"},
    {"x_embedder.proj.1",                          "patch_embed.proj"},
    {"extra_pos_embedder",                         "learnable_pos_embed"},
    {"final_layer.adaLN_modulation.1",             "norm_out.linear_1"},
    {"final_layer.adaLN_modulation.2",             "norm_out.linear_2"},
    {"final_layer.linear",                         "proj_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "transformer_blocks.0.norm1.linear_1.weight", NULL, 0},
    {"original", "control_embedder.proj.1.weight", transfer, sizeof transfer / sizeof *transfer,
     .also = "blocks.0.adaln_modulation_cross_attn.1.weight", .unused = unused},
    {"original", "blocks.0.adaln_modulation_cross_attn.1.weight", original,
     sizeof original / sizeof *original, .unused = unused},
    {"original", "blocks.block0.blocks.0.block.attn.to_q.0.weight", original1,
     sizeof original1 / sizeof *original1},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .zeros = true,
     .fits = is_before_25},
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512,
     .before = "<|im_start|>system\nYou are a helpful assistant who will provide prompts to an "
               "image generator.<|im_end|>\n<|im_start|>user\n",
     .after = "<|im_end|>\n",
     .sees_padding = true, .own_side = true, .all_hidden = true, .fits = is_25},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (DBCache's default threshold, and twice that). With a control
 * branch, the first block also adds the control, which does not change; measured on a model of six
 * blocks relative to Wan (bench/cache.md). */
static bool is_7b(const void *config)
{
    const cosmos *c = config;
    return c->layers == 28 && c->net.heads == 32;
}
static bool has_branch(const void *config)
{
    const cosmos *c = config;
    return c->every > 0;
}
static const weft_feature_cache_row caches[] = {
    {is_7b, 0, WEFT_SIGNAL_INPUT,
     {2.71156237e2, -9.19775607e1, 2.24437250e0, 2.08355751e0, 1.41776330e-1}, 0.1, 0.2, 0},
    {has_branch, 0, WEFT_SIGNAL_BLOCK, {0}, 0.05, 0.09, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

static const char *autoencoder_of(const void *config)
{
    const cosmos *c = config;
    return c->net.pos_embed == WEFT_COSMOS_POS_EMBED_LEARNED ? "AutoencoderKLCosmos"
                                                             : "AutoencoderKLWan";
}
/* The pipeline of Transfer 2.5 makes longer videos in chunks (num_frames_per_chunk). */
static int64_t piece(const void *config)
{
    return has_branch(config) ? 93 : 0;
}

static const weft_companion companion = {"controlnet", "controlnet_block_every_n",
                                         &weft_family_cosmos_control};

const weft_family weft_family_cosmos_dit = {
    .class_name = "CosmosTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "CosmosTextToWorldPipeline",
    .autoencoder_of = autoencoder_of, .piece = piece,
    .pipeline_of = pipeline_of,
    .marks = {"adaln_lora_dim", "rope_scale"}, .companion = &companion,
    .config_bytes = sizeof(cosmos), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "video to world (in_channels is out_channels + 1): first frame",
    .fps = 30, .guidance = "cosmos", .unit_times = is_25, .piped = piped,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_per_head, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
