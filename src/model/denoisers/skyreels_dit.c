/* SkyReels-V2 diffusion transformers (diffusers' SkyReelsV2Transformer3DModel). The model is Wan's
 * with three additions:
 *
 *   a timestep per latent frame (diffusion forcing), whose modulations all tokens of the frame have
 *   the frame rate, 16 or another one: embedding, MLP, added to the six modulations of every block
 *   self-attention in blocks of frames: a block attends to itself and to earlier blocks
 *
 * Shape letters: B batch, T frames of tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"

typedef struct skyreels {
    weft_wan wan;
    bool takes_fps;
    int64_t block_frames;
} skyreels;
_Static_assert(sizeof(skyreels) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* Frames per second of the rows of the embedding. The second row is of every rate but the first,
 * and of models that are called without a rate. */
static const double rates[] = {16, 24};

/* Modulations (B,6,C) by the frame rate, fps (B) or WEFT_NONE. */
static weft_value fps_modulation(weft_graph *g, const weft_wan *c, weft_value fps, int64_t batch)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1};
    weft_value second = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, 1), 1);
    if (weft_value_ok(fps)) { /* whole rates: 0 or 1 */
        const weft_value off = weft_affine(g, fps, 1, -rates[0]);
        second = weft_reshape(g, weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, off), 0, 1),
                              WEFT_SHAPE(batch, 1));
    }
    const weft_value table =
        weft_param(g, "fps_embedding.weight", WEFT_F32, WEFT_SHAPE(2, width), init);
    const weft_value first =
        weft_mul(g, weft_affine(g, second, -1, 1), weft_slice(g, table, 0, 0, 1));
    weft_value h = weft_add(g, first, weft_mul(g, second, weft_slice(g, table, 0, 1, 1)));
    weft_graph_push(g, "fps_projection.net");
    h = weft_nn_activate(g, WEFT_NN_SILU,
                         weft_nn_linear(g, "0.proj", h, width, WEFT_LINEAR_XAVIER));
    h = weft_nn_linear(g, "2", h, 6 * width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return weft_reshape(g, h, WEFT_SHAPE(batch, 6, width));
}

/* Returns false if the latents or the timesteps do not fit. */
static bool count_tokens(weft_graph *g, const skyreels *c, const weft_ports *in, int64_t size[3],
                         weft_wan_condition *to)
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    if (!weft_wan_count_tokens(g, &c->wan, in->at[WEFT_PORT_LATENTS], size))
        return false;
    to->frames = weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2 ? weft_dim(g, t, 1) : 0;
    if (to->frames && to->frames != size[0])
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " timesteps for %" PRId64 " frames",
                        to->frames, size[0]);
    if (size[0] % c->block_frames)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames of tokens are not a multiple of num_frame_per_block "
                        "%" PRId64,
                        size[0], c->block_frames);
    if (c->block_frames > 1)
        to->block_tokens = c->block_frames * size[1] * size[2];
    return weft_graph_check(g) == WEFT_OK;
}

/* latents (B,T,Y,X,in), timestep (B) or (B,T) in [0, 1000], text (B,L,text_dim), image
 * (B,L,image_dim), fps (B) -> prediction (B,T,Y,X,out) */
static weft_value forward(weft_graph *g, const skyreels *c, const weft_ports *in)
{
    const weft_wan *wan = &c->wan;
    int64_t size[3];
    weft_wan_condition to = {0};
    if (!count_tokens(g, c, in, size, &to))
        return WEFT_NONE;
    weft_wan_rope(g, wan, size, 1, to.rope);
    const weft_value x = weft_nn_patch(g, "patch_embedding", in->at[WEFT_PORT_LATENTS],
                                       wan->heads * wan->head_dim, wan->patch, WEFT_PATCH_3D, true);
    weft_wan_embed(g, wan, weft_wan_sinusoid_f64(g, wan, in->at[WEFT_PORT_TIMESTEP]), in, &to);
    if (c->takes_fps) {
        const int64_t batch = weft_dim(g, x, 0), width = weft_dim(g, x, 2);
        weft_value by = fps_modulation(g, wan, in->at[WEFT_PORT_FPS], batch);
        if (to.frames)
            by = weft_reshape(g, by, WEFT_SHAPE(batch, 1, 6, width));
        to.modulation = weft_add(g, to.modulation, by);
    }
    return weft_wan_last(g, wan, weft_wan_blocks(g, wan, x, &to), &to, size);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const skyreels *c = config;
    if (port == WEFT_PORT_FPS)
        return c->takes_fps ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    return weft_wan_shape(config, s, port);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* Image to video has latents on extra channels, as Wan's. Models for diffusion forcing have the
 * image in its frame. */
static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const skyreels *c = config;
    weft_wan_frame_condition(config, cond);
    if (c->wan.in_channels <= c->wan.out_channels)
        *cond = (weft_frame_condition){
            .form = WEFT_FRAME_CONDITION_TIMES, .asks = true, .frame_levels = true};
}

static const char *pipeline_of(const void *config, bool image)
{
    const skyreels *c = config;
    if (!image)
        return "SkyReelsV2Pipeline";
    return c->wan.in_channels > c->wan.out_channels
               ? "SkyReelsV2ImageToVideoPipeline"
               : "SkyReelsV2DiffusionForcingImageToVideoPipeline";
}

/* clang-format off */
static const weft_field fields[] = {
    WEFT_WAN_FIELDS("16", "8192", "32"),
    {"inject_sample_info", WEFT_FIELD_BOOL, offsetof(skyreels, takes_fps), "false",
     .help = "an embedding of the frame rate"},
    {"num_frame_per_block", WEFT_FIELD_I64, offsetof(skyreels, block_frames), "1", 1, 1024,
     .help = "frames of tokens that attend to each other and to earlier ones only; 1: all to all"},
};

static const weft_named_config sizes[] = {
    {"skyreels-v2-df-1.3b", "{\"num_attention_heads\": 12, \"ffn_dim\": 8960, \"num_layers\": 30,"
                            " \"inject_sample_info\": true}"},
    {"skyreels-v2-14b", "{\"num_attention_heads\": 40, \"ffn_dim\": 13824, \"num_layers\": 40}"},
    {NULL, NULL},
};

static void grid(const void *config, weft_grid *grid)
{
    weft_wan_grid(config, grid);
    grid->block = ((const skyreels *)config)->block_frames;
}

/* The reference takes the row of the embedding: 0 is 16 frames per second, 1 is 24. */
static const weft_port_row ports[] = {
    {WEFT_PORT_FPS,        false, "fps", .optional = true, .unit = 8, .origin = 16},
    WEFT_WAN_PORTS,
};

/* Without a frame rate the names are Wan's, and a single file of weights is read as Wan's. */
static const weft_rename_rule original[] = {
    WEFT_WAN_ORIGINAL,
    {"fps_projection.0",   "fps_projection.net.0.proj"},
    {"fps_projection.2",   "fps_projection.net.2"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "fps_projection.net.0.proj.weight", NULL, 0},
    {"original", "fps_projection.0.weight", original, sizeof original / sizeof *original},
};

/* Feature cache rule of Wan, whose blocks these are: with the same weights the predictions are
 * Wan's. */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_skyreels_dit = {
    .class_name = "SkyReelsV2Transformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "SkyReelsV2Pipeline", .pipeline_of = pipeline_of,
    .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "num_frame_per_block"},
    .config_bytes = sizeof(skyreels), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = weft_wan_check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "diffusion forcing: first frame; I2V: optionally with a last one",
    .fps = 24,
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
