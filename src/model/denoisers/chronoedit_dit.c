/* ChronoEdit diffusion transformer (diffusers' ChronoEditTransformer3DModel): edits an image as a
 * video of two latent frames, the image and its edit. The model is Wan's image-to-video model. With
 * exactly two latent frames the second one is at the time position `rope_temporal_skip_len` - 1; a
 * longer video has Wan's positions. */
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"

typedef struct chronoedit {
    weft_wan wan;
    int64_t skip_len;
} chronoedit;
_Static_assert(sizeof(chronoedit) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const chronoedit *c = config;
    if (c->wan.head_dim % 6 ==
        4) /* the reference cuts its tables at floor(D/3), not 2 floor(D/6) */
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->wan.head_dim),
            "%" PRId64 " divided by 6 has the remainder 4; the reference then mixes the rotary "
            "tables of frames, rows and columns",
            c->wan.head_dim);
    if (c->skip_len > c->wan.rope_max_seq_len)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "rope_temporal_skip_len", c->skip_len),
            "%" PRId64 " exceeds rope_max_seq_len %" PRId64, c->skip_len, c->wan.rope_max_seq_len);
    return weft_wan_check(config, locations);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const chronoedit *c = config;
    const bool skips = weft_dim(g, ports->at[WEFT_PORT_LATENTS], 1) == 2;
    (void)call;
    if (skips && c->wan.patch[0] != 1)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "2 latent frames need a patch of 1 frame, not of %" PRId64,
                        c->wan.patch[0]);
    ports->at[WEFT_PORT_PREDICTION] =
        weft_wan_forward(g, &c->wan, ports, skips ? (double)(c->skip_len - 1) : 1);
}

/* A first frame only. */
static void frame_condition(const void *config, weft_frame_condition *cond)
{
    weft_wan_frame_condition(config, cond);
    cond->last = cond->last_must = false;
    cond->reasons = true;
}

/* clang-format off */
static const weft_field fields[] = {
    WEFT_WAN_FIELDS("40", "13824", "40"),
    {"rope_temporal_skip_len", WEFT_FIELD_I64, offsetof(chronoedit, skip_len), "8", 1, 1 << 20,
     .help = "time positions from the first to the last of two latent frames, both counted"},
};

static const weft_named_config sizes[] = {
    {"chronoedit-14b", "{\"in_channels\": 36, \"out_channels\": 16, \"image_dim\": 1280,"
                       " \"added_kv_proj_dim\": 5120}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    WEFT_WAN_PORTS,
};

/* The names are Wan's, so a single file of weights is read as Wan's. */
static const weft_rename_rule original[] = {
    WEFT_WAN_ORIGINAL,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "blocks.0.ffn.net.0.proj.weight", NULL, 0},
    {"original", "head.modulation", original, sizeof original / sizeof *original},
};

/* Feature cache rule of Wan, whose blocks these are: with the same weights the predictions are
 * Wan's. */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_chronoedit_dit = {
    .class_name = "ChronoEditTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "ChronoEditPipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "rope_temporal_skip_len"},
    .config_bytes = sizeof(chronoedit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = weft_wan_shape, .build = build,
    .grid = weft_wan_grid, .frame_condition = frame_condition,
    .frame_condition_help = "first frame: the image to edit",
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
