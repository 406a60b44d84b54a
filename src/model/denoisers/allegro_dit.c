/* Allegro and Open-Sora-Plan 1.3 diffusion transformers (diffusers' AllegroTransformer3DModel,
 * Open-Sora-Plan's OpenSoraT2V_v1_3). Parameters have the names of the public checkpoints, which
 * are the same for both.
 *
 *   latents --patch of each frame--> x (B,S,C); text --MLP--> y (B,L,C)
 *   timestep --sinusoid, MLP--> e; silu, linear --> (B,6,C)
 *
 *   block:  x += gate1 attn(mod1(norm x));  x += cross(x, y);  x += gate2 ffn(mod2(norm x))
 *
 * RoPE rotates a third of a head by frames, a third by rows and a third by columns, each with
 * rotate-half.
 *
 * Open-Sora-Plan's middle blocks are sparse: after RoPE, tokens are split into subsequences
 * without attention between them (weft_nn_skip_split), alternately by single tokens and by
 * groups. Cross-attention is as in a dense block: every subsequence attends to the complete
 * text.
 * Shape letters: B batch, S video tokens, L text tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

typedef struct allegro {
    int64_t patch, heads, head_dim, in_channels, out_channels, layers, cross_dim;
    bool bias;
    double eps;
    int64_t text_dim;
    double interpolation[3]; /* frames, rows, columns */
    bool sparse;             /* Open-Sora-Plan only */
    int64_t skip;            /* subsequences */
} allegro;
_Static_assert(sizeof(allegro) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { TIME_WIDTH = 256, FIRST_SPARSE = 2, END_SPARSE = 30 };
static const double last_eps = 1e-6;

static int64_t width_of(const allegro *c)
{
    return c->heads * c->head_dim;
}

/* cos and sin (1,S,3H,D/6): each head is rotated as three heads of a third of the width. `plan`:
 * the Open-Sora-Plan reference caches tables by length, so an axis reuses the scale of a preceding
 * axis of equal length. */
static void rope_tables(weft_graph *g, const allegro *c, const int64_t size[3], bool plan,
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t pairs = c->head_dim / 6, tokens = size[0] * size[1] * size[2];
    weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                 .grid = {size[0], size[1], size[2]},
                                 .pairs = {pairs, pairs, pairs},
                                 .len = tokens};
    for (int i = 0; i < 3; i++) {
        int like = i;
        for (int before = i - 1; plan && before >= 0; before--)
            like = size[before] == size[i] ? before : like;
        attr.step[i] = 1 / c->interpolation[like];
    }
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
    for (int i = 0; i < 2; i++) {
        cos_sin[i] = weft_reshape(g, cos_sin[i], WEFT_SHAPE(1, tokens, 1, 3, pairs));
        cos_sin[i] = weft_broadcast(g, cos_sin[i], WEFT_SHAPE(1, tokens, c->heads, 3, pairs));
        cos_sin[i] = weft_reshape(g, cos_sin[i], WEFT_SHAPE(1, tokens, 3 * c->heads, pairs));
    }
}

/* Token layout in a block's self-attention. */
typedef struct pattern {
    int64_t skip; /* number of subsequences; 1: dense attention */
    bool grouped;
    weft_value bias; /* key bias, in this layout */
} pattern;

/* q, k, v (B,S,H,D) are padded with zeros to complete subsequences. The zeros are also keys. */
static weft_value attend(weft_graph *g, weft_value qkv[3], const pattern *lie)
{
    const int64_t tokens = weft_dim(g, qkv[0], 1), more = weft_nn_skip_padding(tokens, lie->skip);
    if (lie->skip == 1)
        return weft_nn_attend(g, qkv[0], qkv[1], qkv[2], lie->bias);
    for (int i = 0; i < 3; i++) {
        const weft_value whole = more ? weft_pad(g, qkv[i], 1, 0, more) : qkv[i];
        qkv[i] = weft_nn_skip_split(g, whole, lie->skip, lie->grouped);
    }
    const weft_value out = weft_nn_attend(g, qkv[0], qkv[1], qkv[2], lie->bias);
    return weft_slice(g, weft_nn_skip_join(g, out, lie->skip, lie->grouped), 1, 0, tokens);
}

/* Self-attention if context is x itself (rope present), otherwise cross-attention. */
static weft_value attention(weft_graph *g, const allegro *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, const weft_value *rope, const pattern *lie)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    const int64_t width = width_of(c);
    weft_value qkv[3];
    weft_graph_push(g, "%s", name);
    for (int i = 0; i < 3; i++) {
        const weft_value v = weft_nn_dense(g, names[i], i ? context_blc : x_bsc, width, c->bias);
        const bool rotates = rope && i < 2;
        qkv[i] = weft_nn_split_heads(g, v, rotates ? 3 * c->heads : c->heads);
        if (rotates)
            qkv[i] = weft_reshape(
                g, weft_nn_rope(g, qkv[i], rope, true),
                WEFT_SHAPE(weft_dim(g, v, 0), weft_dim(g, v, 1), c->heads, c->head_dim));
    }
    const weft_value mixed = weft_nn_join_heads(g, attend(g, qkv, lie));
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

typedef struct conditioning {
    weft_value times, text;
    pattern cross, dense, skips[2]; /* skips: by single tokens, by groups */
    weft_value rope[WEFT_MAX_OUTPUTS];
} conditioning;

static weft_value block(weft_graph *g, const allegro *c, weft_value x, const conditioning *to,
                        const pattern *lie)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_value mod = weft_nn_add_table(g, to->times, ROWS);
    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps),
                                    weft_nn_row(g, mod, SCALE1), weft_nn_row(g, mod, SHIFT1));
    h = attention(g, c, "attn1", h, h, to->rope, lie);
    x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE1));
    x = weft_add(g, x, attention(g, c, "attn2", x, to->text, NULL, &to->cross));
    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, SCALE2),
                         weft_nn_row(g, mod, SHIFT2));
    h = weft_nn_feed_forward(g, "ff", h, 4 * width_of(c), WEFT_NN_GELU_TANH);
    return weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE2));
}

/* Masked keys have a bias of -10000, as in the reference, not -1e30. */
static weft_value bias_of(weft_graph *g, weft_value mask)
{
    return weft_affine(g, mask, 10000, -10000);
}

/* A token is real if any of its latents is real. */
static weft_value video_bias(weft_graph *g, const allegro *c, weft_value mask_btyx,
                             const int64_t size[3])
{
    if (!weft_value_ok(mask_btyx))
        return WEFT_NONE;
    const int64_t batch = weft_dim(g, mask_btyx, 0);
    weft_value m = weft_cast(g, mask_btyx, WEFT_F32);
    m = weft_reshape(g, m, WEFT_SHAPE(batch, size[0], size[1], c->patch, size[2], c->patch));
    m = weft_clamp(g, weft_sum(g, m, 1u << 3 | 1u << 5), 0, 1);
    return bias_of(g, weft_reshape(g, m, WEFT_SHAPE(batch, size[0] * size[1] * size[2])));
}

/* Key bias of a sparse block. Padding has a higher bias than masked tokens, as in the reference: a
 * subsequence without real tokens averages its zeros. */
static weft_value skip_bias(weft_graph *g, weft_value bias_bs, int64_t batch, int64_t tokens,
                            const pattern *lie)
{
    const int64_t more = weft_nn_skip_padding(tokens, lie->skip);
    if (!weft_value_ok(bias_bs) && !more)
        return WEFT_NONE;
    if (!weft_value_ok(bias_bs))
        bias_bs = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens), 0);
    const weft_value parts[2] = {bias_bs, weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, more), -9980)};
    return weft_nn_skip_split(g, more ? weft_concat(g, parts, 2, 1) : bias_bs, lie->skip,
                              lie->grouped);
}

static const pattern *pattern_of(const allegro *c, const conditioning *to, int64_t block)
{
    const bool sparse = c->sparse && c->skip > 1 && block >= FIRST_SPARSE && block < END_SPARSE;
    return sparse ? &to->skips[block % 2] : &to->dense;
}

static weft_value forward(weft_graph *g, const allegro *c, const weft_ports *in, bool plan)
{
    const int64_t width = width_of(c), patch[3] = {1, c->patch, c->patch};
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    int64_t size[3];
    weft_value embedded;
    conditioning to;
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_value x = weft_nn_patch(g, "pos_embed.proj", in->at[WEFT_PORT_LATENTS], width, patch,
                                 WEFT_PATCH_2D, true);
    to.times = weft_nn_time_rows(g, "adaln_single",
                                 weft_nn_sinusoid(g, TIME_WIDTH, in->at[WEFT_PORT_TIMESTEP]), width,
                                 6, &embedded);
    to.text =
        weft_nn_embedder(g, "caption_projection", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    to.cross = (pattern){.skip = 1};
    to.cross.bias = weft_value_ok(mask) ? bias_of(g, weft_cast(g, mask, WEFT_F32)) : WEFT_NONE;
    to.dense = (pattern){.skip = 1};
    to.dense.bias = video_bias(g, c, in->at[WEFT_PORT_LATENT_MASK], size);
    for (int i = 0; i < 2 && c->sparse; i++) {
        to.skips[i] = (pattern){.skip = c->skip, .grouped = i == 1};
        to.skips[i].bias =
            skip_bias(g, to.dense.bias, weft_dim(g, x, 0), weft_dim(g, x, 1), &to.skips[i]);
    }
    rope_tables(g, c, size, plan, to.rope);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        x = block(g, c, x, &to, pattern_of(c, &to, i));
        weft_graph_pop(g);
    }
    const weft_value mod = weft_nn_add_table(g, embedded, 2); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, last_eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch * c->patch * c->out_channels, WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const allegro *c = config;
    if (c->head_dim % 6)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
            "%" PRId64 " is not a multiple of 6, which rotary embedding over three axes needs",
            c->head_dim);
    return weft_check_cross(locations, c->cross_dim, width_of(c));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const allegro *c = config;
    switch (port) {
    case WEFT_PORT_LATENT_MASK: return WEFT_SHAPE(s->batch, s->frames, s->height, s->width);
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports, false);
}

static void build_plan(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports, true);
}

static void grid(const void *config, weft_grid *grid)
{
    const allegro *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static int64_t width_field(const void *config)
{
    return width_of(config);
}

/* clang-format off */
#define AT(member) offsetof(allegro, member)
/* Fields of both families: latent channels, and divisors of RoPE positions. */
#define FIELDS(channels, space, time)                                                             \
    {"patch_size", WEFT_FIELD_I64, AT(patch), "2", 1, 64,                                         \
     .help = "latent rows and columns of a token"},                                               \
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},                                          \
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "24", 1, 1024,                             \
     .help = "attention heads; heads x head width is the model's width"},                         \
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "96", 6, 4096,                           \
     .help = "width of a head, a multiple of 6"},                                                 \
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), channels, 1, 1 << 16,                        \
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "input channels of latents"},         \
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), channels, 1, 1 << 16,                      \
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "output channels of latents"},        \
    WEFT_BLOCKS_FIELD(AT(layers), "32"),                  \
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},                                           \
    {"cross_attention_dim", WEFT_FIELD_I64, AT(cross_dim), .length = width_field,                 \
     .min = 1, .max = 1 << 20, .help = "width of the model"},                                     \
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "true",                                         \
     .help = "bias of queries, keys and values"},                                                 \
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},                      \
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "false"},                           \
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-6"),          \
    {"caption_channels", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,                        \
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},         \
    {"interpolation_scale_h", WEFT_FIELD_F64, AT(interpolation[1]), space, 1e-3, 1e3,             \
     .help = "divisor of row positions in RoPE"},                                                 \
    {"interpolation_scale_w", WEFT_FIELD_F64, AT(interpolation[2]), space, 1e-3, 1e3,             \
     .help = "divisor of column positions in RoPE"},                                              \
    {"interpolation_scale_t", WEFT_FIELD_F64, AT(interpolation[0]), time, 1e-3, 1e3,              \
     .help = "divisor of frame positions in RoPE"}
static const weft_field fields[] = {
    FIELDS("4", "2.0", "2.2"),
    {"sample_height", WEFT_FIELD_IGNORED, .fallback = "90"},
    {"sample_width", WEFT_FIELD_IGNORED, .fallback = "160"},
    {"sample_frames", WEFT_FIELD_IGNORED, .fallback = "22"},
}, plan_fields[] = {
    FIELDS("8", "1.0", "1.0"),
    {"sample_size_h", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"sample_size_w", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"sample_size_t", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"only_cross_attention", WEFT_FIELD_FIXED, .fallback = "false"},
    {"double_self_attention", WEFT_FIELD_FIXED, .fallback = "false"},
    {"upcast_attention", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"sparse1d", WEFT_FIELD_BOOL, AT(sparse), "true",
     .help = "blocks 2 to 29 attend in subsequences, of single tokens and groups alternately"},
    {"sparse_n", WEFT_FIELD_I64, AT(skip), "4", 1, 64,
     .help = "number of subsequences; 1: full attention"},
};

static const weft_named_config sizes[] = {
    {"allegro", "{}"},
    {NULL, NULL},
}, plan_sizes[] = {
    {"opensoraplan-1.3", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,     false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,    false, "timestep"},
    {WEFT_PORT_TEXT,        false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,   false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_LATENT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_PREDICTION,  true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "adaln_single.emb.timestep_embedder.linear_1.weight", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .clean = WEFT_CLEAN_LOWER},
}, plan_text_encoders[] = {
    /* the pipeline's templates, cleaned as it cleans them */
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .clean = WEFT_CLEAN_LOWER, .prompt_before = "high quality, high aesthetic, ",
     .negative_before =
         "nsfw, lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, "
         "fewer digits, cropped, worst quality, low quality, normal quality, jpeg artifacts, "
         "signature, watermark, username, blurry. "},
};

/* Feature cache rule: the change of the first block's residual, measured on models of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_allegro_dit = {
    .class_name = "AllegroTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "AllegroPipeline",
    .autoencoder = "AutoencoderKLAllegro",
    .marks = {"interpolation_scale_t", "caption_channels"},
    .config_bytes = sizeof(allegro), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_per_head, .recipes = WEFT_SPLIT_CROSS_LISTS,
};

const weft_family weft_family_opensoraplan_dit = {
    .class_name = "OpenSoraT2V_v1_3", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "weft", .pipeline = "OpenSoraPlanPipeline", .autoencoder = "WFVAEModel",
    .fps = 18,
    .marks = {"sparse1d", "sparse_n"},
    .config_bytes = sizeof(allegro), .field = plan_fields,
    .fields = sizeof plan_fields / sizeof *plan_fields,
    .check = check, .sizes = plan_sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build_plan,
    .grid = grid,
    .text_encoder = plan_text_encoders,
    .text_encoders = sizeof plan_text_encoders / sizeof *plan_text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_per_head, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
