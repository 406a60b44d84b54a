/* Chroma image transformers (diffusers' ChromaTransformer2DModel): Flux's blocks without guidance
 * and pooled text. Parameters have the names of the public checkpoints. A token packs 2x2 latents,
 * channels slowest.
 *
 *   latents --pack, linear--> x (B,S,C); text --linear--> y (B,L,C)
 *   timestep, and the number of each modulation row --approximator--> all rows (B,R,C)
 *   double blocks, single blocks (model/denoisers/mmdit.h) with their rows
 *   x --> norm, modulate by the last rows, project --unpack--> prediction
 *
 * Rows of single blocks come first, 3 of each. Double blocks have 6 of the image each, then 6 of
 * the text each. The last rows are shift and scale of the projection. The reference also hides
 * padding of the text as queries. Their output is not seen by other tokens, so the mask hides
 * keys only here.
 * Shape letters: B batch, S image tokens, L text tokens, C width, R rows. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"

#include <stdio.h>

enum { SINGLE_ROWS = 3, DOUBLE_ROWS = 6, LAST_ROWS = 2, SIDE = 2 };

typedef struct chroma {
    int64_t in_channels, out_channels, layers, single_layers, head_dim, heads, text_dim;
    int64_t number_width, hidden, hidden_layers; /* approximator */
    int64_t axes[3];
} chroma;
_Static_assert(sizeof(chroma) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* the reference's default: the epsilon of f32 */
static const double approximator_eps = 1.1920928955078125e-07;

static int64_t width_of(const chroma *c)
{
    return c->heads * c->head_dim;
}

static int64_t out_of(const chroma *c)
{
    return c->out_channels ? c->out_channels : c->in_channels;
}

static int64_t rows_of(const chroma *c)
{
    return SINGLE_ROWS * c->single_layers + 2 * DOUBLE_ROWS * c->layers + LAST_ROWS;
}

/* Inputs of the approximator (B,R,width): sinusoids of the timestep, of 0 and of the row's number x
 * 1000. */
static weft_value numbers_of(weft_graph *g, const chroma *c, weft_value time)
{
    const int64_t rows = rows_of(c), batch = weft_dim(g, time, 0), quarter = c->number_width / 4;
    float *number = weft_calloc(rows, sizeof *number);
    if (!number)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for modulation rows");
    for (int64_t i = 0; i < rows; i++)
        number[i] = (float)(1000 * i);
    const weft_value row =
        weft_nn_sinusoid(g, 2 * quarter, weft_constant(g, WEFT_F32, WEFT_SHAPE(1, rows), number));
    weft_free(number);
    const weft_value pair[] = {weft_nn_sinusoid(g, quarter, time),
                               weft_nn_sinusoid(g, quarter, weft_affine(g, time, 0, 0))};
    const weft_value both =
        weft_reshape(g, weft_concat(g, pair, 2, 1), WEFT_SHAPE(batch, 1, 2 * quarter));
    const weft_value part[] = {weft_broadcast(g, both, WEFT_SHAPE(batch, rows, 2 * quarter)),
                               weft_broadcast(g, row, WEFT_SHAPE(batch, rows, 2 * quarter))};
    return weft_concat(g, part, 2, 2);
}

/* Modulation rows of all blocks (B,R,C). */
static weft_value approximate(weft_graph *g, const chroma *c, weft_value time)
{
    weft_graph_push(g, "distilled_guidance_layer");
    weft_value x =
        weft_nn_linear(g, "in_proj", numbers_of(g, c, time), c->hidden, WEFT_LINEAR_XAVIER);
    for (int64_t i = 0; i < c->hidden_layers; i++) {
        weft_graph_push(g, "norms");
        char name[24];
        snprintf(name, sizeof name, "%d", (int)i);
        weft_value h = weft_nn_rms_norm(g, name, x, approximator_eps);
        weft_graph_pop(g);
        weft_graph_push(g, "layers.%d", (int)i);
        h = weft_nn_linear(g, "linear_1", h, c->hidden, WEFT_LINEAR_XAVIER);
        h = weft_nn_linear(g, "linear_2", weft_unary(g, WEFT_OP_SILU, h), c->hidden,
                           WEFT_LINEAR_XAVIER);
        weft_graph_pop(g);
        x = weft_add(g, x, h);
    }
    x = weft_nn_linear(g, "out_proj", x, width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

/* Runs all blocks; stream[0] is the image. */
static void run_blocks(weft_graph *g, const chroma *c, weft_value rows, weft_value bias,
                       weft_mmdit_stream stream[2])
{
    const weft_mmdit blocks = {
        .heads = c->heads, .head_dim = c->head_dim, .inner = 4 * width_of(c), .given_mod = true};
    const int64_t doubles = SINGLE_ROWS * c->single_layers;
    for (int64_t i = 0; i < c->layers; i++) {
        for (int64_t s = 0; s < 2; s++)
            stream[s].mod =
                weft_slice(g, rows, 1, doubles + DOUBLE_ROWS * (s * c->layers + i), DOUBLE_ROWS);
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_mmdit_double(g, &blocks, stream, 2, bias);
        weft_graph_pop(g);
    }
    for (int64_t i = 0; i < c->single_layers; i++) {
        stream[0].mod = stream[1].mod = weft_slice(g, rows, 1, SINGLE_ROWS * i, SINGLE_ROWS);
        weft_graph_push(g, "single_transformer_blocks.%d", (int)i);
        weft_mmdit_single(g, &blocks, stream, 2, bias);
        weft_graph_pop(g);
    }
}

static weft_value forward(weft_graph *g, const chroma *c, const weft_ports *in)
{
    const int64_t patch[3] = {1, SIDE, SIDE}, width = width_of(c);
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
    const weft_value rows = approximate(g, c, in->at[WEFT_PORT_TIMESTEP]);
    weft_mmdit_stream stream[2] = {{.text = false}, {.text = true}};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &rope_attr, stream[0].rope);
    stream[0].x =
        weft_nn_linear(g, "x_embedder", weft_nn_pack(g, latents, SIDE), width, WEFT_LINEAR_XAVIER);
    stream[1].x =
        weft_nn_linear(g, "context_embedder", in->at[WEFT_PORT_TEXT], width, WEFT_LINEAR_XAVIER);
    run_blocks(g, c, rows, weft_mmdit_key_bias(g, in->at[WEFT_PORT_TEXT_MASK], size[1] * size[2]),
               stream);
    const weft_value mod = weft_slice(g, rows, 1, rows_of(c) - LAST_ROWS, LAST_ROWS);
    weft_graph_push(g, "norm_out");
    const weft_value x = weft_nn_modulate(g, weft_nn_plain_norm(g, stream[0].x, WEFT_MMDIT_EPS),
                                          weft_nn_row(g, mod, 1), weft_nn_row(g, mod, 0));
    weft_graph_pop(g);
    return weft_nn_unpack(g, weft_nn_linear(g, "proj_out", x, out_of(c), WEFT_LINEAR_ZERO), size,
                          SIDE);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const chroma *c = config;
    if (c->in_channels % (SIDE * SIDE) || out_of(c) % (SIDE * SIDE))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "in_channels", c->in_channels),
                          "a token packs 2x2 latents, so its channels are a multiple of 4");
    if (c->number_width % 8)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "approximator_num_channels", c->number_width),
                          "quarters of the channels are pairs, so they are a multiple of 8");
    return weft_check_axes(locations, "axes_dims_rope", c->axes, c->head_dim);
}

static void grid(const void *config, weft_grid *grid)
{
    const chroma *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = SIDE;
    grid->channels = c->in_channels / (SIDE * SIDE);
    grid->out_channels = out_of(c) / (SIDE * SIDE);
    grid->only[0] = 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const chroma *c = config;
    return weft_denoiser_shape(s, port, c->in_channels / (SIDE * SIDE), c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* clang-format off */
#define AT(member) offsetof(chroma, member)
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
    WEFT_ROPE_AXES_FIELD(AT(axes), "[16, 56, 56]"),
    {"approximator_num_channels", WEFT_FIELD_I64, AT(number_width), "64", 8, 1 << 16,
     .help = "input width of the layers that make all modulations"},
    {"approximator_hidden_dim", WEFT_FIELD_I64, AT(hidden), "5120", 1, 1 << 16,
     .help = "inner width of the approximator"},
    {"approximator_layers", WEFT_FIELD_I64, AT(hidden_layers), "5", 0, 1024,
     .help = "inner layers of the approximator"},
};

static const weft_named_config sizes[] = {
    {"chroma", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_TIMESTEP,   false, "timestep", .unit = 1000},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "attention_mask", .optional = true}, /* of text, then image */
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_PACKED},
};

/* Key mapping of the authors' files, which are Flux's. */
static const weft_rename_rule original[] = {
    {"img_in",                                       "x_embedder"},
    {"txt_in",                                       "context_embedder"},
    {"final_layer.linear",                           "proj_out"},
    {"distilled_guidance_layer.layers.#.in_layer",   "distilled_guidance_layer.layers.#.linear_1"},
    {"distilled_guidance_layer.layers.#.out_layer",  "distilled_guidance_layer.layers.#.linear_2"},
    {"distilled_guidance_layer.norms.#.scale",       "distilled_guidance_layer.norms.#.weight"},

#define DOUBLE(theirs, ours) {"double_blocks.#." theirs, "transformer_blocks.#." ours}
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
    SINGLE("norm.query_norm.scale",          "attn.norm_q.weight"),
    SINGLE("norm.key_norm.scale",            "attn.norm_k.weight"),
    SINGLE("linear1",                        "{attn.to_q,attn.to_k,attn.to_v,proj_mlp}"),
    SINGLE("linear2",                        "proj_out"),
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "distilled_guidance_layer.layers.0.linear_1.weight", NULL, 0},
    {"original",  "distilled_guidance_layer.layers.0.in_layer.weight", original,
     sizeof original / sizeof *original},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .seen_padding = 1},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_chroma_dit = {
    .class_name = "ChromaTransformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "ChromaPipeline", .autoencoder = "flux-vae",
    .frames = 1,
    .marks = {"approximator_layers", "num_single_layers"},
    .config_bytes = sizeof(chroma), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
