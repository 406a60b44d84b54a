/* Causal Wan (CausalWanTransformer3DModel), as CausVid and Self-Forcing distil it from Wan 2.1. The
 * model is Wan's with three additions:
 *
 *   a timestep per latent frame, whose modulations all tokens of the frame have
 *   self-attention in blocks of frames: a block attends to itself and to earlier blocks, or to a
 *   window of frames that ends with the block, of which the first may be the first of the video
 *   blocks can be generated in sequence, with the keys and values of earlier blocks in a
 *   cache (model/frame_cache.h)
 *
 * With teacher forcing, tokens of the video without noise, at timestep 0, precede the noisy ones:
 *
 *             clean 0  clean 1  noisy 0  noisy 1
 *   clean 0      x
 *   clean 1      x        x
 *   noisy 0                        x
 *   noisy 1      x                          x
 *
 * Shape letters: B batch, S tokens of a video, T frames of tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/frame_cache.h"
#include "model/model.h"

typedef struct causal_wan {
    weft_wan wan;
    int64_t block_frames;
    int64_t window_frames; /* -1: all */
    int64_t sink_frames;
} causal_wan;
_Static_assert(sizeof(causal_wan) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

/* Timesteps (B) or (B,T) of the noisy video after zeros for the clean one: (B,2) or (B,2T). */
static weft_value after_zeros(weft_graph *g, weft_value times)
{
    if (!weft_value_ok(times))
        return times;
    const weft_shape given = weft_value_get(g, times)->shape,
                     shape = WEFT_SHAPE(given.dim[0], given.rank == 2 ? given.dim[1] : 1);
    const weft_value part[] = {weft_fill(g, WEFT_F32, shape, 0), weft_reshape(g, times, shape)};
    return weft_concat(g, part, 2, 1);
}

/* Returns false if the latents or the timesteps do not fit. */
static bool count_tokens(weft_graph *g, const causal_wan *c, const weft_ports *in, int64_t size[3])
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    if (!weft_wan_count_tokens(g, &c->wan, in->at[WEFT_PORT_LATENTS], size))
        return false;
    if (weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2 && weft_dim(g, t, 1) != size[0])
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " timesteps for %" PRId64 " frames",
                        weft_dim(g, t, 1), size[0]);
    if (size[0] % c->block_frames)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames of tokens are not a multiple of num_frames_per_block "
                        "%" PRId64,
                        size[0], c->block_frames);
    return weft_graph_check(g) == WEFT_OK;
}

/* latents (B,T,Y,X,in), timestep (B) or (B,T) in [0, 1000], text (B,L,text_dim), clean as latents
 * or WEFT_NONE -> prediction (B,T,Y,X,out) */
static weft_value forward(weft_graph *g, const causal_wan *c, const weft_ports *in)
{
    const weft_wan *wan = &c->wan;
    const weft_value clean = in->at[WEFT_PORT_CLEAN];
    int64_t size[3];
    weft_wan_condition to = {.cache = in->cache};
    if (!count_tokens(g, c, in, size))
        return WEFT_NONE;
    const int64_t frame = size[1] * size[2], all = size[0] * frame;
    weft_value times = in->at[WEFT_PORT_TIMESTEP], x = in->at[WEFT_PORT_LATENTS];
    to.block_tokens = c->block_frames * frame;
    to.window_tokens = c->window_frames > 0 ? c->window_frames * frame : 0;
    to.sink_tokens = c->sink_frames * frame;
    if (to.cache && to.cache->past)
        weft_wan_rope_of_block(g, wan, (int64_t[]){(to.cache->at + 1) * size[0], size[1], size[2]},
                               size[0], to.rope);
    else if (to.cache)
        weft_wan_rope_at(g, wan, to.cache->position, 1, to.rope);
    else
        weft_wan_rope(g, wan, size, 1, to.rope);
    if (weft_value_ok(clean)) {
        to.clean_tokens = all;
        times = after_zeros(g, times);
        for (int i = 0; i < 2; i++)
            to.rope[i] = weft_concat(g, (weft_value[]){to.rope[i], to.rope[i]}, 2, 0);
        x = weft_concat(g, (weft_value[]){clean, x}, 2, 1);
    }
    x = weft_nn_patch(g, "patch_embedding", x, wan->heads * wan->head_dim, wan->patch,
                      WEFT_PATCH_3D, true);
    const bool several = weft_value_ok(times) && weft_value_get(g, times)->shape.rank == 2;
    to.frames = several ? weft_dim(g, times, 1) : 0;
    weft_wan_embed(g, wan, weft_wan_sinusoid_f64(g, wan, times), in, &to);
    x = weft_wan_blocks(g, wan, x, &to);
    if (to.clean_tokens) {
        to.frames /= 2;
        x = weft_slice(g, x, 1, all, all);
        to.time = weft_slice(g, to.time, 1, to.frames, to.frames);
    }
    return weft_wan_last(g, wan, x, &to, size);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const causal_wan *c = config;
    const int64_t least = c->block_frames + c->sink_frames;
    WEFT_TRY(weft_wan_check(config, locations));
    if (c->wan.image_dim)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "image_dim", c->wan.image_dim),
                          "only null is supported: causal models take no image tokens");
    if (c->window_frames == 0 || (c->window_frames > 0 && c->window_frames < least))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "local_attn_size", c->window_frames),
                          "%" PRId64 " is neither -1 (all frames) nor at least %" PRId64
                          ", the sum of num_frames_per_block and sink_size",
                          c->window_frames, least);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    return weft_wan_shape(config, s, port == WEFT_PORT_CLEAN ? WEFT_PORT_LATENTS : port);
}

static void grid(const void *config, weft_grid *grid)
{
    const causal_wan *c = config;
    weft_wan_grid(config, grid);
    grid->block = c->block_frames;
    grid->caches = true;
    grid->window = c->window_frames > 0 ? c->window_frames : 0;
    grid->sink = c->sink_frames;
}

/* clang-format off */
static const weft_field fields[] = {
    WEFT_WAN_FIELDS("40", "13824", "40"),
    {"num_frames_per_block", WEFT_FIELD_I64, offsetof(causal_wan, block_frames), "3", 1, 1024,
     .also = "num_frame_per_block",
     .help = "frames of tokens that attend to each other and to earlier ones only"},
    {"local_attn_size", WEFT_FIELD_I64, offsetof(causal_wan, window_frames), "-1", -1, 1 << 20,
     .help = "frames of tokens that a block attends to, its own included; -1: all"},
    {"sink_size", WEFT_FIELD_I64, offsetof(causal_wan, sink_frames), "0", 0, 1024,
     .help = "first frames of the video among local_attn_size"},
};

static const weft_named_config sizes[] = {
    {"causal-wan-1.3b", "{\"num_attention_heads\": 12, \"ffn_dim\": 8960, \"num_layers\": 30}"},
    {"causal-wan-14b", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_CLEAN,      false, "clean_x", .optional = true},
    WEFT_WAN_PORTS,
};

/* The names are Wan's, and a single file of weights is read as Wan's. */
static const weft_rename_rule original[] = {
    WEFT_WAN_ORIGINAL,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "blocks.0.ffn.net.0.proj.weight", NULL, 0},
    {"original", "head.modulation", original, sizeof original / sizeof *original},
};

const weft_family weft_family_causal_wan_dit = {
    .class_name = "CausalWanTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "WanPipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "local_attn_size"},
    .config_bytes = sizeof(causal_wan), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .noise_levels = WEFT_LEVELS_EVEN,
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
