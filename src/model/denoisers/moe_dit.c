/* A video diffusion transformer with mixture-of-experts feed-forwards: weft's own architecture,
 * with the routing of public models as options. Scores are softmax without renormalised weights
 * (HiDream), or sigmoids with groups and a bias for the choice (LingBot-Video). Further options:
 * shared experts (Dai et al., DeepSeekMoE), dense blocks, limited capacity.
 *
 *   latents --patch--> x (B,S,C); text --MLP--> y (B,L,C)
 *   timestep --sinusoid, MLP--> temb (B,C) --silu, linear--> six modulations, shared by all blocks
 *
 *   block:  x += gate1 attn(mod1(norm x))
 *           x += cross(norm x, y)
 *           x += gate2 ff(mod2(norm x)), ff experts or dense
 *
 * Shape letters: B batch, S video tokens, L text tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/experts.h"
#include "nn/nn.h"

#include <math.h>

typedef struct moe_dit {
    int64_t patch[3];
    int64_t heads, head_dim, in_channels, out_channels, text_dim, freq_dim, ffn_dim, layers;
    double eps;
    /* `dense`, `every`: selection of the blocks with experts */
    int64_t experts, active, expert_dim, shared, dense, every;
    int64_t scoring; /* 0 softmax, 1 sigmoid */
    bool corrected, normalised;
    int64_t groups, topk_groups;
    double scale, balance, capacity;
} moe_dit;
_Static_assert(sizeof(moe_dit) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

typedef struct conditioning {
    weft_value text_blc, modulation; /* (B,6,C) */
    weft_value rope[WEFT_MAX_OUTPUTS];
} conditioning;

/* Load of the experts summed over blocks, and number of blocks. */
typedef struct tally {
    weft_nn_load load;
    int64_t blocks;
} tally;

static int64_t width_of(const moe_dit *c)
{
    return c->heads * c->head_dim;
}

static bool has_experts(const moe_dit *c, int64_t block)
{
    return block >= c->dense && (block - c->dense) % c->every == 0;
}

static void add_load(weft_graph *g, const weft_nn_load *one, tally *sum)
{
    const bool first = sum->blocks++ == 0;
    sum->load.balance = first ? one->balance : weft_add(g, sum->load.balance, one->balance);
    sum->load.fullest = first ? one->fullest : weft_add(g, sum->load.fullest, one->fullest);
    sum->load.dropped = first ? one->dropped : weft_add(g, sum->load.dropped, one->dropped);
}

static weft_value feed_forward(weft_graph *g, const moe_dit *c, int64_t i, weft_value x, tally *sum)
{
    const weft_nn_experts moe = {.experts = c->experts,
                                 .active = c->active,
                                 .inner = c->expert_dim,
                                 .shared = c->shared * c->expert_dim,
                                 .sigmoid = c->scoring == 1,
                                 .corrected = c->corrected,
                                 .groups = c->groups,
                                 .top_groups = c->topk_groups,
                                 .normalised = c->normalised,
                                 .scale = c->scale,
                                 .capacity = c->capacity};
    weft_nn_load load;
    weft_graph_push(g, "ff");
    if (has_experts(c, i)) {
        x = weft_nn_experts_of(g, &moe, x, &load);
        if (weft_value_ok(x))
            add_load(g, &load, sum);
    } else {
        x = weft_nn_swiglu(g, x, c->ffn_dim);
    }
    weft_graph_pop(g);
    return x;
}

/* Self-attention if rope is present, otherwise cross-attention to the text. */
static weft_value attention(weft_graph *g, const moe_dit *c, const char *name, weft_value x,
                            weft_value seen, const weft_value *rope)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_linear(g, "to_q", x, width, WEFT_LINEAR_XAVIER),
               k = weft_nn_linear(g, "to_k", seen, width, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", seen, width, WEFT_LINEAR_XAVIER);
    q = weft_nn_rms_norm(g, "norm_q", q, c->eps);
    k = weft_nn_rms_norm(g, "norm_k", k, c->eps);
    x = weft_nn_linear(g, "to_out.0", weft_nn_attention(g, q, k, v, c->heads, rope), width,
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const moe_dit *c, int64_t i, weft_value x,
                        const conditioning *to, tally *sum)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)width_of(c))};
    const weft_value table = weft_param(g, "scale_shift_table", WEFT_F32,
                                        WEFT_SHAPE(1, ROWS, width_of(c)), init),
                     mod = weft_add(g, to->modulation, table);
    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps),
                                    weft_nn_row(g, mod, SCALE1), weft_nn_row(g, mod, SHIFT1));
    h = attention(g, c, "attn1", h, h, to->rope);
    x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE1));
    h = weft_nn_layer_norm(g, "norm2", x, c->eps);
    x = weft_add(g, x, attention(g, c, "attn2", h, to->text_blc, NULL));
    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, SCALE2),
                         weft_nn_row(g, mod, SHIFT2));
    return weft_nn_gated_add(g, x, feed_forward(g, c, i, h, sum), weft_nn_row(g, mod, GATE2));
}

static void output_load(weft_graph *g, const moe_dit *c, const tally *sum, weft_ports *p)
{
    const double each = 1 / (double)sum->blocks;
    if (!sum->blocks || weft_graph_check(g) != WEFT_OK)
        return;
    p->at[WEFT_PORT_BALANCE] = weft_affine(g, sum->load.balance, c->balance * each, 0);
    p->at[WEFT_PORT_FULLEST] = weft_affine(g, sum->load.fullest, each, 0);
    p->at[WEFT_PORT_DROPPED] = weft_affine(g, sum->load.dropped, each, 0);
}

static weft_value forward(weft_graph *g, const moe_dit *c, weft_ports *in)
{
    const int64_t width = width_of(c), pairs = c->head_dim / 2, side = c->head_dim / 6;
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    int64_t size[3];
    conditioning to;
    tally sum = {.blocks = 0};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_attr_rope_table rope_attr = {.theta = {10000, 10000, 10000},
                                            .step = {1, 1, 1},
                                            .grid = {size[0], size[1], size[2]},
                                            .pairs = {pairs - 2 * side, side, side},
                                            .len = size[0] * size[1] * size[2]};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &rope_attr, to.rope);
    weft_value x = weft_nn_patch(g, "patch_embedding", in->at[WEFT_PORT_LATENTS], width, c->patch,
                                 WEFT_PATCH_3D, true);
    weft_graph_push(g, "condition_embedder");
    const weft_value temb = weft_nn_embedder(
        g, "time_embedder", weft_nn_sinusoid(g, c->freq_dim, t), width, WEFT_NN_SILU);
    to.modulation = weft_nn_linear(g, "time_proj", weft_unary(g, WEFT_OP_SILU, temb), 6 * width,
                                   WEFT_LINEAR_XAVIER);
    to.modulation = weft_reshape(g, to.modulation, WEFT_SHAPE(weft_dim(g, t, 0), 6, width));
    to.text_blc =
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    weft_graph_pop(g);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = block(g, c, i, x, &to, &sum);
        weft_graph_pop(g);
    }
    output_load(g, c, &sum, in);
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)width)};
    const weft_value time = weft_reshape(g, temb, WEFT_SHAPE(weft_dim(g, t, 0), 1, width)),
                     table = weft_param(g, "scale_shift_table", WEFT_F32, WEFT_SHAPE(1, 2, width),
                                        init),
                     mod = weft_add(g, time, table); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x, size, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const moe_dit *c = config;
    if (c->head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", c->head_dim);
    if (c->groups && (c->experts % c->groups || c->topk_groups < 1 || c->topk_groups > c->groups))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "n_group", c->groups),
                          "%" PRId64 " does not divide the %" PRId64
                          " experts, or \"topk_group\" %" PRId64 " is not from 1 to %" PRId64,
                          c->groups, c->experts, c->topk_groups, c->groups);
    const int64_t open = c->groups ? c->experts / c->groups * c->topk_groups : c->experts;
    if (c->active > open)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_activated_experts", c->active),
            "%" PRId64 " is more than the %" PRId64 " experts that a token chooses from", c->active,
            open);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const moe_dit *c = config;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const moe_dit *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->patch[i];
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* clang-format off */
static const char *const scoring_words[] = {"\"softmax\"", "\"sigmoid\"", NULL};
#define AT(member) offsetof(moe_dit, member)
static const weft_field fields[] = {
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    WEFT_HEADS_FIELD(AT(heads), "16"),
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "128", 2, 4096,
     .help = "width of a head, even"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "=in_channels", 1, 1 << 16,
     .help = "output channels of latents"},
    {"text_dim", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"freq_dim", WEFT_FIELD_I64, AT(freq_dim), "256", 2, 1 << 16,
     .help = "width of the sinusoidal time embedding, even"},
    {"ffn_dim", WEFT_FIELD_I64, AT(ffn_dim), "8192", 1, 1 << 20,
     .help = "inner width of the feed-forward layer in blocks without experts"},
    WEFT_BLOCKS_FIELD(AT(layers), "24"),
    {"eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1, .help = "epsilon of the norms"},
    {"num_routed_experts", WEFT_FIELD_I64, AT(experts), "64", 1, 4096,
     .help = "routed experts of a block"},
    {"num_activated_experts", WEFT_FIELD_I64, AT(active), "6", 1, 4096,
     .help = "experts per token"},
    {"moe_intermediate_size", WEFT_FIELD_I64, AT(expert_dim), "2048", 1, 1 << 20,
     .help = "inner width of one expert"},
    {"n_shared_experts", WEFT_FIELD_I64, AT(shared), "2", 0, 1024,
     .help = "shared experts of every token, computed as one expert of their total width"},
    {"first_k_dense_replace", WEFT_FIELD_I64, AT(dense), "0", 0, 1024,
     .help = "first blocks, without experts"},
    {"moe_layer_freq", WEFT_FIELD_I64, AT(every), "1", 1, 1024,
     .help = "interval of blocks with experts after the first blocks"},
    {"scoring_func", WEFT_FIELD_WORD, AT(scoring), .words = scoring_words,
     .help = "scores of the gate: over all experts, or of each expert separately"},
    {"score_correction_bias", WEFT_FIELD_BOOL, AT(corrected), "false",
     .help = "a bias per expert affects the choice of experts, not their weights"},
    {"n_group", WEFT_FIELD_I64, AT(groups), "0", 0, 4096,
     .help = "groups of experts, ranked by the sum of their two best scores; 0 (default): no "
             "groups"},
    {"topk_group", WEFT_FIELD_I64, AT(topk_groups), "0", 0, 4096,
     .help = "groups that a token may use"},
    {"norm_topk_prob", WEFT_FIELD_BOOL, AT(normalised), "false",
     .help = "the weights of a token add up to 1"},
    {"routed_scaling_factor", WEFT_FIELD_F64, AT(scale), "1.0", 0, 1e6,
     .help = "factor on the weights"},
    {"aux_loss_alpha", WEFT_FIELD_F64, AT(balance), "0.01", 0, 1e3,
     .help = "weight of the load-balance loss in training; the loss is 1 at an even load"},
    {"capacity_factor", WEFT_FIELD_F64, AT(capacity), "0.0", 0, 1e6,
     .help = "slots of an expert per sample, over the even share; other tokens are dropped. "
             "0: no token is dropped"},
};

/* LingBot-Video's routing at its size. Aquarius' mixture: 6 of 64 experts of a quarter of the
 * feed-forward width, two shared experts, all blocks except the first; 10B parameters, 1.7B
 * active. */
static const weft_named_config sizes[] = {
    {"aquarius-moe-10b-a1.7b", "{\"num_attention_heads\": 12, \"ffn_dim\": 4224,"
     " \"moe_intermediate_size\": 1056, \"num_layers\": 30, \"first_k_dense_replace\": 1}"},
    {"moe-30b-a3b", "{\"attention_head_dim\": 128, \"num_layers\": 48, \"num_routed_experts\": 128,"
     " \"num_activated_experts\": 8, \"moe_intermediate_size\": 768, \"n_shared_experts\": 1,"
     " \"scoring_func\": \"sigmoid\", \"score_correction_bias\": true, \"n_group\": 4,"
     " \"topk_group\": 2, \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5,"
     " \"text_dim\": 2560}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_BALANCE,    true,  "balance", .optional = true},
    {WEFT_PORT_FULLEST,    true,  "fullest", .optional = true},
    {WEFT_PORT_DROPPED,    true,  "dropped", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* The first block is dense or has experts, by first_k_dense_replace. */
static const weft_key_mapping mappings[] = {
    {"weft", "blocks.0.ff.w1.weight", NULL, 0},
    {"weft", "blocks.0.ff.gate.weight", NULL, 0},
};

/* The encoder has no mask: zeros after the text are attended to. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .clean = WEFT_CLEAN_PROMPT,
     .zeros = true},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_moe_dit = {
    .class_name = "WeftMoeTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "weft", .pipeline = "WeftMoePipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"moe_intermediate_size", "num_routed_experts"},
    .config_bytes = sizeof(moe_dit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_with_experts, .recipes = WEFT_SPLIT_EXPERTS_LISTS,
};
/* clang-format on */
