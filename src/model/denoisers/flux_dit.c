/* Flux image transformers (diffusers' FluxTransformer2DModel). Parameters have the names of the
 * public checkpoints. A token packs 2x2 latents, channels slowest.
 *
 *   latents --pack, linear--> x (B,S,C); text --linear--> y (B,L,C)
 *   timestep, guidance, pooled text --MLPs, summed--> temb (B,C)
 *   double blocks, single blocks (model/denoisers/mmdit.h), attention over image and text
 *   x --> norm, modulate, project --unpack--> prediction
 *
 * The reference rotates the text by positions of 0, which has no effect and is omitted here.
 * Shape letters: B batch, S image tokens, L text tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"

typedef struct flux {
    int64_t in_channels, out_channels, layers, single_layers, head_dim, heads, text_dim, pooled_dim;
    bool guidance;
    int64_t axes[3];
} flux;
_Static_assert(sizeof(flux) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static int64_t width_of(const flux *c)
{
    return c->heads * c->head_dim;
}

static int64_t out_of(const flux *c)
{
    return c->out_channels ? c->out_channels : c->in_channels;
}

/* Side of the latents that a token packs. 1 if the channels are not divisible by four. */
static int64_t patch_of(const flux *c)
{
    return c->in_channels % 4 || out_of(c) % 4 ? 1 : 2;
}

static weft_value embed_condition(weft_graph *g, const flux *c, const weft_ports *in)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "time_text_embed");
    weft_value temb = weft_nn_embedder(
        g, "timestep_embedder", weft_nn_sinusoid(g, WEFT_MMDIT_TIME, in->at[WEFT_PORT_TIMESTEP]),
        width, WEFT_NN_SILU);
    if (c->guidance)
        temb = weft_add(
            g, temb,
            weft_nn_embedder(g, "guidance_embedder",
                             weft_nn_sinusoid(g, WEFT_MMDIT_TIME, in->at[WEFT_PORT_GUIDANCE]),
                             width, WEFT_NN_SILU));
    temb = weft_add(
        g, temb,
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_POOLED], width, WEFT_NN_SILU));
    weft_graph_pop(g);
    return temb;
}

static weft_value forward(weft_graph *g, const flux *c, const weft_ports *in)
{
    const weft_mmdit blocks = {
        .heads = c->heads, .head_dim = c->head_dim, .inner = 4 * width_of(c)};
    const int64_t side = patch_of(c), patch[3] = {1, side, side};
    const weft_value latents = in->at[WEFT_PORT_LATENTS];
    int64_t size[3];
    weft_nn_count_tokens(g, latents, patch, size);
    if (size[0] != 1)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames: the model makes single images", size[0]);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_attr_rope_table rope_attr = {
        .theta = {10000, 10000, 10000},
        .step = {1, 1, 1},
        .grid = {size[0], size[1], size[2]},
        .pairs = {c->axes[0] / 2, c->axes[1] / 2, c->axes[2] / 2},
        .len = size[1] * size[2],
    };
    const weft_value temb = embed_condition(g, c, in);
    weft_mmdit_stream stream[2] = {{.temb_bc = temb}, {.temb_bc = temb, .text = true}};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &rope_attr, stream[0].rope);
    stream[0].x = weft_nn_linear(g, "x_embedder", weft_nn_pack(g, latents, side), width_of(c),
                                 WEFT_LINEAR_XAVIER);
    stream[1].x = weft_nn_linear(g, "context_embedder", in->at[WEFT_PORT_TEXT], width_of(c),
                                 WEFT_LINEAR_XAVIER);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_mmdit_double(g, &blocks, stream, 2, WEFT_NONE);
        weft_graph_pop(g);
    }
    for (int64_t i = 0; i < c->single_layers; i++) {
        weft_graph_push(g, "single_transformer_blocks.%d", (int)i);
        weft_mmdit_single(g, &blocks, stream, 2, WEFT_NONE);
        weft_graph_pop(g);
    }
    return weft_nn_unpack(g, weft_mmdit_last(g, &blocks, stream[0].x, temb, out_of(c)), size, side);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const flux *c = config;
    return weft_check_axes(locations, "axes_dims_rope", c->axes, c->head_dim);
}

static void grid(const void *config, weft_grid *grid)
{
    const flux *c = config;
    const int64_t side = patch_of(c);
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = side;
    grid->channels = c->in_channels / (side * side);
    grid->out_channels = out_of(c) / (side * side);
    grid->only[0] = 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const flux *c = config;
    const int64_t side = patch_of(c);
    switch (port) {
    case WEFT_PORT_POOLED: return WEFT_SHAPE(s->batch, c->pooled_dim);
    case WEFT_PORT_GUIDANCE: return c->guidance ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels / (side * side), c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* clang-format off */
#define AT(member) offsetof(flux, member)
static const weft_field fields[] = {
    {"patch_size", WEFT_FIELD_FIXED, .fallback = "1"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "64", 1, 1 << 16,
     .help = "input channels of a token of 2x2 latents"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "null", 1, 1 << 16,
     .help = "output channels of a token; null: in_channels"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "19", 0, 1024,
     .help = "blocks with separate layers for image and text"},
    {"num_single_layers", WEFT_FIELD_I64, AT(single_layers), "38", 0, 1024,
     .help = "blocks with shared layers"},
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_HEADS_FIELD(AT(heads), "24"),
    {"joint_attention_dim", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"pooled_projection_dim", WEFT_FIELD_I64, AT(pooled_dim), "768", 1, 1 << 16,
     .help = "width of the pooled embedding"},
    {"guidance_embeds", WEFT_FIELD_BOOL, AT(guidance), "false",
     .help = "embedded guidance: the guidance scale x 1000 is an input"},
    WEFT_ROPE_AXES_FIELD(AT(axes), "[16, 56, 56]"),
};

static const weft_named_config sizes[] = {
    {"flux-dev",     "{\"guidance_embeds\": true}"},
    {"flux-schnell", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_TIMESTEP,   false, "timestep", .unit = 1000},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_POOLED,     false, "pooled_projections"},
    {WEFT_PORT_GUIDANCE,   false, "guidance", .unit = 1000},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_PACKED},
};

/* Key mapping of Black Forest Labs' own files. */
static const weft_rename_rule original[] = {
    {"img_in",                          "x_embedder"},
    {"txt_in",                          "context_embedder"},
    {"time_in.in_layer",                "time_text_embed.timestep_embedder.linear_1"},
    {"time_in.out_layer",               "time_text_embed.timestep_embedder.linear_2"},
    {"vector_in.in_layer",              "time_text_embed.text_embedder.linear_1"},
    {"vector_in.out_layer",             "time_text_embed.text_embedder.linear_2"},
    {"guidance_in.in_layer",            "time_text_embed.guidance_embedder.linear_1"},
    {"guidance_in.out_layer",           "time_text_embed.guidance_embedder.linear_2"},
    {"final_layer.adaLN_modulation.1",  "~norm_out.linear"}, /* shift, scale there */
    {"final_layer.linear",              "proj_out"},

#define DOUBLE(theirs, ours) {"double_blocks.#." theirs, "transformer_blocks.#." ours}
    DOUBLE("img_mod.lin",                    "norm1.linear"),
    DOUBLE("txt_mod.lin",                    "norm1_context.linear"),
    DOUBLE("img_attn.qkv",                   "attn.{to_q,to_k,to_v}"),
    DOUBLE("img_attn.norm.query_norm.scale", "attn.norm_q.weight"),
    DOUBLE("img_attn.norm.key_norm.scale",   "attn.norm_k.weight"),
    DOUBLE("img_attn.proj",                  "attn.to_out.0"),
    DOUBLE("txt_attn.qkv",                   "attn.{add_q_proj,add_k_proj,add_v_proj}"),
    DOUBLE("txt_attn.norm.query_norm.scale", "attn.norm_added_q.weight"),
    DOUBLE("txt_attn.norm.key_norm.scale",   "attn.norm_added_k.weight"),
    DOUBLE("txt_attn.proj",                  "attn.to_add_out"),
    DOUBLE("img_mlp.0",                      "ff.net.0.proj"),
    DOUBLE("img_mlp.2",                      "ff.net.2"),
    DOUBLE("txt_mlp.0",                      "ff_context.net.0.proj"),
    DOUBLE("txt_mlp.2",                      "ff_context.net.2"),

#define SINGLE(theirs, ours) {"single_blocks.#." theirs, "single_transformer_blocks.#." ours}
    SINGLE("modulation.lin",                 "norm.linear"),
    SINGLE("norm.query_norm.scale",          "attn.norm_q.weight"),
    SINGLE("norm.key_norm.scale",            "attn.norm_k.weight"),
    SINGLE("linear1",                        "{attn.to_q,attn.to_k,attn.to_v,proj_mlp}"),
    SINGLE("linear2",                        "proj_out"),
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "x_embedder.weight", NULL, 0},
    {"original",  "txt_in.weight", original, sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder_2", "tokenizer_2", WEFT_PORT_TEXT, .length = 512, .length_without_guidance = 256,
     .sees_padding = true},
    {"text_encoder", "tokenizer", .pooled = WEFT_PORT_POOLED, .length = 77},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (FBCache's thresholds). */
static bool is_published(const void *config)
{
    const flux *c = config;
    return c->layers == 19 && c->single_layers == 38;
}
static const weft_feature_cache_row caches[] = {
    {is_published, 0, WEFT_SIGNAL_INPUT,
     {4.98651651e2, -2.83781631e2, 5.58554382e1, -3.82021401e0, 2.64230861e-1}, 0.25, 0.4, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.12, 0},
};

const weft_family weft_family_flux_dit = {
    .class_name = "FluxTransformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "FluxPipeline", .autoencoder = "flux-vae",
    .frames = 1,
    .marks = {"joint_attention_dim", "num_single_layers"},
    .config_bytes = sizeof(flux), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
