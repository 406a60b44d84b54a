/* Wan VACE diffusion transformers (diffusers' WanVACETransformer3DModel): Wan's model with a
 * control video. Control blocks run first, on the control's tokens. Each gives a hint to one block.
 *
 *   control --patch--> c;  c = proj_in(c) + x, in the first control block
 *   control block i:   c = block(c);  hint i = proj_out(c)
 *   x = block(x);      x += scale i * hint i, after the block vace_layers[i]
 *
 * The control has latents of the video's given and of its new pixels, and the pixels of its mask as
 * channels. Shape letters: B batch, S video tokens, C width, N control blocks. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"

enum { MAX_HINTS = 128 };

typedef struct vace {
    weft_wan wan;
    int64_t hints, layer[MAX_HINTS]; /* blocks that get a hint */
    int64_t control_channels;
} vace;
_Static_assert(sizeof(vace) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const vace *c = config;
    if (!c->hints || c->layer[0] != 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "vace_layers", c->hints ? c->layer[0] : 0),
                          "the list must begin with 0, because the first block needs a hint");
    for (int64_t i = 0; i < c->hints; i++)
        if (c->layer[i] >= c->wan.layers || (i && c->layer[i] <= c->layer[i - 1]))
            return weft_error(
                WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "vace_layers", c->layer[i]),
                "the blocks must ascend and be below num_layers %" PRId64, c->wan.layers);
    return weft_wan_check(config, locations);
}

/* Tokens of the control (B,S,C). */
static weft_value embed_control(weft_graph *g, const vace *c, const weft_ports *in)
{
    const weft_value control = in->at[WEFT_PORT_CONTROL];
    weft_denoiser_check_control(g, in);
    return weft_nn_patch(g, "vace_patch_embedding", control, c->wan.heads * c->wan.head_dim,
                         c->wan.patch, WEFT_PATCH_3D, true);
}

/* Fills hint[i] (B,S,C), with its scale. */
static void make_hints(weft_graph *g, const vace *c, const weft_ports *in, weft_value x_bsc,
                       const weft_wan_condition *to, weft_value hint[MAX_HINTS])
{
    const int64_t width = c->wan.heads * c->wan.head_dim;
    const weft_value scales = in->at[WEFT_PORT_CONTROL_SCALE];
    weft_value control_bsc = embed_control(g, c, in);
    for (int64_t i = 0; i < c->hints; i++) {
        weft_graph_push(g, "vace_blocks.%d", (int)i);
        if (i == 0)
            control_bsc = weft_add(
                g, weft_nn_linear(g, "proj_in", control_bsc, width, WEFT_LINEAR_XAVIER), x_bsc);
        control_bsc = weft_wan_block(g, &c->wan, control_bsc, to);
        hint[i] = weft_nn_linear(g, "proj_out", control_bsc, width, WEFT_LINEAR_ZERO);
        if (weft_value_ok(scales))
            hint[i] = weft_mul(
                g, hint[i], weft_reshape(g, weft_slice(g, scales, 0, i, 1), WEFT_SHAPE(1, 1, 1)));
        weft_graph_pop(g);
    }
}

/* latents (B,T,Y,X,in), control (B,T,Y,X,control channels), timestep (B) in [0, 1000], text
 * (B,L,text_dim), image (B,L,image_dim), scales (N) or WEFT_NONE -> prediction (B,T,Y,X,out) */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const vace *c = config;
    const weft_wan *wan = &c->wan;
    int64_t size[3], next = 0;
    weft_wan_condition to = {0};
    weft_value hint[MAX_HINTS];
    (void)call;
    if (!weft_wan_count_tokens(g, wan, ports->at[WEFT_PORT_LATENTS], size))
        return;
    weft_wan_rope(g, wan, size, 1, to.rope);
    weft_value x = weft_nn_patch(g, "patch_embedding", ports->at[WEFT_PORT_LATENTS],
                                 wan->heads * wan->head_dim, wan->patch, WEFT_PATCH_3D, true);
    weft_wan_embed(g, wan, weft_wan_sinusoid(g, wan, ports->at[WEFT_PORT_TIMESTEP]), ports, &to);
    make_hints(g, c, ports, x, &to, hint);
    for (int64_t i = 0; i < wan->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = weft_wan_block(g, wan, x, &to);
        if (next < c->hints && c->layer[next] == i)
            x = weft_add(g, x, hint[next++]);
        weft_graph_pop(g);
    }
    ports->at[WEFT_PORT_PREDICTION] = weft_wan_last(g, wan, x, &to, size);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const vace *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_CONTROL:
        return WEFT_SHAPE(s->batch, s->frames, s->height, s->width, c->control_channels);
    case WEFT_PORT_CONTROL_SCALE: return WEFT_SHAPE(c->hints);
    default: return weft_wan_shape(config, s, port);
    }
}

/* clang-format off */
static const weft_field fields[] = {
    WEFT_WAN_FIELDS("40", "13824", "40"),
    {"vace_layers", WEFT_FIELD_I64S, offsetof(vace, layer), "[0, 5, 10, 15, 20, 25, 30, 35]", 0,
     1023, .capacity = MAX_HINTS, .count = offsetof(vace, hints),
     .help = "blocks that get a hint of the control, ascending from 0"},
    {"vace_in_channels", WEFT_FIELD_I64, offsetof(vace, control_channels), "96", 1, 1 << 16,
     .help = "channels of the control"},
};

static const weft_named_config sizes[] = {
    {"wan2.1-vace-1.3b", "{\"num_attention_heads\": 12, \"ffn_dim\": 8960, \"num_layers\": 30,"
                         " \"vace_layers\": [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,"
                         " 28]}"},
    {"wan2.1-vace-14b", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_CONTROL,       false, "control_hidden_states"},
    {WEFT_PORT_CONTROL_SCALE, false, "control_hidden_states_scale", .optional = true},
    WEFT_WAN_PORTS,
};

static const weft_rename_rule original[] = {
    {"vace_blocks.#.before_proj", "vace_blocks.#.proj_in"},
    {"vace_blocks.#.after_proj",  "vace_blocks.#.proj_out"},
    {"vace_blocks.#.modulation",  "vace_blocks.#.scale_shift_table"},
    WEFT_WAN_ORIGINAL,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "vace_blocks.0.proj_in.weight", NULL, 0},
    {"original", "vace_blocks.0.before_proj.weight", original, sizeof original / sizeof *original},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). It is small, because the first control block also adds the
 * control, which does not change. */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.02, 0.04, 0},
};

const weft_family weft_family_wan_vace_dit = {
    .class_name = "WanVACETransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "WanVACEPipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "vace_layers"},
    .config_bytes = sizeof(vace), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = weft_wan_grid,
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
