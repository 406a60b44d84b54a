/* Wan 2.1 and 2.2 diffusion transformers (diffusers' WanTransformer3DModel): text to video, image
 * to video, first and last frame. Parameters have the names of the public diffusers checkpoints.
 *
 *   latents --patch--> x (B,S,C) --[ layers x block ]--> norm, modulate, project
 *           --unpatch--> prediction
 *   timestep --sinusoid, MLP--> temb (B,C) --silu, linear--> six modulations per block (B,6,C)
 *   text --MLP--> context (B,L,C); an image's tokens likewise, for image to video
 *
 * Shape letters: B batch, S video tokens, L text tokens, C width. */
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"

_Static_assert(sizeof(weft_wan) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = weft_wan_forward(g, config, ports, 1);
}

/* clang-format off */
static const weft_field fields[] = {
    WEFT_WAN_FIELDS("40", "13824", "40"),
};

static const weft_named_config sizes[] = {
    {"wan-1.3b", "{\"num_attention_heads\": 12, \"ffn_dim\": 8960, \"num_layers\": 30}"},
    {"wan-14b",  "{}"},
    {"wan-i2v-14b", "{\"in_channels\": 36, \"out_channels\": 16, \"image_dim\": 1280,"
                    " \"added_kv_proj_dim\": 5120}"},
    {"wan-flf2v-14b", "{\"in_channels\": 36, \"out_channels\": 16, \"image_dim\": 1280,"
                      " \"added_kv_proj_dim\": 5120, \"pos_embed_seq_len\": 514}"},
    {"wan2.2-i2v-a14b", "{\"in_channels\": 36, \"out_channels\": 16}"},
    {"wan2.2-ti2v-5b", "{\"num_attention_heads\": 24, \"in_channels\": 48,"
                       " \"out_channels\": 48, \"ffn_dim\": 14336, \"num_layers\": 30}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    WEFT_WAN_PORTS,
};

static const weft_rename_rule original[] = {
    WEFT_WAN_ORIGINAL,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "blocks.0.ffn.net.0.proj.weight", NULL, 0},
    {"original", "head.modulation", original, sizeof original / sizeof *original},
};

/* Feature cache rules: TeaCache's polynomials and thresholds as published, on the timestep
 * modulation of the blocks, with the first tenth of the steps computed. Other sizes: the change of
 * the first block's residual, measured on a model of six blocks (bench/README.md). */
static bool is_1_3b(const void *config)
{
    const weft_wan *c = config;
    return c->layers == 30 && c->heads == 12 && !c->image_dim;
}
static bool is_14b(const void *config)
{
    const weft_wan *c = config;
    return c->layers == 40 && c->heads == 40 && c->in_channels == c->out_channels;
}
static bool is_i2v_14b(const void *config)
{
    const weft_wan *c = config;
    return c->layers == 40 && c->heads == 40 && c->in_channels > c->out_channels;
}
static const weft_feature_cache_row caches[] = {
    {is_1_3b, 0, WEFT_SIGNAL_TIME,
     {-5.21862437e4, 9.23041404e3, -5.28275948e2, 1.36987616e1, -4.99875664e-2}, 0.05, 0.1, 0.1},
    {is_14b, 0, WEFT_SIGNAL_TIME,
     {-3.03318725e5, 4.90537029e4, -2.65530556e3, 5.87365115e1, -3.15583525e-1}, 0.1, 0.2, 0.1},
    {is_i2v_14b, 1280 * 720, WEFT_SIGNAL_TIME,
     {8.10705460e3, 2.13393892e3, -3.72934672e2, 1.66203073e1, -4.17769401e-2}, 0.2, 0.3, 0.1},
    {is_i2v_14b, 0, WEFT_SIGNAL_TIME,
     {2.57151496e5, -3.54229917e4, 1.40286849e3, -1.35890334e1, 1.32517977e-1}, 0.2, 0.3, 0.1},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_wan_dit = {
    .class_name = "WanTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "WanPipeline",
    .image_pipeline = "WanImageToVideoPipeline", .times_key = "expand_timesteps",
    .autoencoder = "AutoencoderKLWan",
    .packs = true, .marks = {"num_attention_heads", "freq_dim"},
    .config_bytes = sizeof(weft_wan), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = weft_wan_check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = weft_wan_shape, .build = build,
    .grid = weft_wan_grid, .frame_condition = weft_wan_frame_condition,
    .frame_condition_help = "I2V: first frame, optionally with a last one; FLF2V: both; "
                            "TI2V-5B: first frame",
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
