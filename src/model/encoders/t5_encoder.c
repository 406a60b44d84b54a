/* Text encoders T5 (v1.0 and v1.1) and UMT5: transformers' T5EncoderModel and UMT5EncoderModel,
 * with the names of their checkpoints.
 *
 *   tokens --shared--> x (B,S,C); blocks: RMS norm, attention, RMS norm, feed-forward --> RMS norm
 *
 * Scores q k are not scaled. The distance between two tokens is mapped to one of a few buckets.
 * Each bucket has a learned bias per head that is added to the score. T5 has one table for all
 * blocks, UMT5 one table per block.
 * Shape letters: B batch, S tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/text_encoder.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

typedef struct t5 {
    int64_t vocabulary, width, head_dim, inner, layers, heads;
    int64_t buckets, max_distance;
    int64_t plain; /* 1: a plain feed-forward with ReLU, 0: gated by GELU */
    double eps;
    int64_t pad, max_length;
} t5;
_Static_assert(sizeof(t5) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Returns the bucket of a key `distance` positions after its query. Half of the buckets are for
 * keys before the query. The first half of each half are single distances. The others are
 * logarithmic up to max_distance. The logarithm is f32, as in the reference, because its last bit
 * decides at the bounds. */
static int32_t bucket_of(const t5 *c, int64_t distance)
{
    const int64_t half = c->buckets / 2, exact = half / 2;
    const int64_t far = distance < 0 ? -distance : distance;
    int64_t bucket = far;
    if (far >= exact) {
        const float octaves =
            logf((float)far / (float)exact) / (float)log((double)c->max_distance / (double)exact);
        bucket = exact + (int64_t)(octaves * (float)(half - exact));
        bucket = bucket < half - 1 ? bucket : half - 1;
    }
    return (int32_t)(bucket + (distance > 0 ? half : 0));
}

/* (1,H,S,S) */
static weft_value position_bias(weft_graph *g, const t5 *c, int64_t length)
{
    int32_t *bucket = weft_calloc(length * length, sizeof *bucket);
    if (!bucket)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY,
                               "out of memory for the distances of %" PRId64 " tokens", length);
    for (int64_t i = 0; i < length; i++)
        for (int64_t k = 0; k < length; k++)
            bucket[i * length + k] = bucket_of(c, k - i);
    const weft_value ids = weft_constant(g, WEFT_I32, WEFT_SHAPE(length, length), bucket);
    weft_free(bucket);
    const weft_value table =
        weft_param(g, "relative_attention_bias.weight", WEFT_F32, WEFT_SHAPE(c->buckets, c->heads),
                   (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.5});
    weft_value bias = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, ids}, 2, NULL);
    bias = weft_permute(g, bias, (int[]){2, 0, 1});
    return weft_reshape(g, bias, WEFT_SHAPE(1, c->heads, length, length));
}

/* Heads before tokens: (B,H,S,D). */
static weft_value project(weft_graph *g, const t5 *c, const char *name, weft_value h_bsc)
{
    const weft_value x = weft_nn_linear_plain(g, name, h_bsc, c->heads * c->head_dim);
    return weft_permute(g, weft_nn_split_heads(g, x, c->heads), (int[]){0, 2, 1, 3});
}

/* hidden (B,1,1,S): 0, or -1e30 for padding. */
static weft_value attend(weft_graph *g, const t5 *c, weft_value h_bsc, weft_value hidden,
                         weft_value bias_1hss)
{
    const weft_value q = project(g, c, "q", h_bsc), k = project(g, c, "k", h_bsc),
                     v = project(g, c, "v", h_bsc);
    weft_value score = weft_add(g, weft_matmul(g, q, k, false, true), bias_1hss);
    score = weft_unary(g, WEFT_OP_SOFTMAX, weft_add(g, score, hidden));
    const weft_value out =
        weft_permute(g, weft_matmul(g, score, v, false, false), (int[]){0, 2, 1, 3});
    return weft_nn_linear_plain(g, "o", weft_nn_join_heads(g, out), c->width);
}

static weft_value feed_forward(weft_graph *g, const t5 *c, weft_value h)
{
    weft_graph_push(g, "DenseReluDense");
    if (c->plain) {
        h = weft_clamp(g, weft_nn_linear_plain(g, "wi", h, c->inner), 0, INFINITY);
    } else {
        const weft_value gate = weft_gelu_tanh(g, weft_nn_linear_plain(g, "wi_0", h, c->inner));
        h = weft_mul(g, gate, weft_nn_linear_plain(g, "wi_1", h, c->inner));
    }
    h = weft_nn_linear_plain(g, "wo", h, c->width);
    weft_graph_pop(g);
    return h;
}

/* (B,S): 1 where a token is not padding. */
static weft_value real_tokens(weft_graph *g, const t5 *c, weft_value tokens_bs)
{
    const weft_value other = weft_affine(g, weft_cast(g, tokens_bs, WEFT_F32), 1, -(double)c->pad);
    return weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, other), 0, 1);
}

/* `mask` i32 (B,S). WEFT_NONE: all tokens except the padding token are attended to. */
static weft_value encode(weft_graph *g, const t5 *c, bool own_bias, weft_value tokens_bs,
                         weft_value mask)
{
    const int64_t batch = weft_dim(g, tokens_bs, 0), length = weft_dim(g, tokens_bs, 1);
    const weft_value real =
        weft_value_ok(mask) ? weft_cast(g, mask, WEFT_F32) : real_tokens(g, c, tokens_bs);
    const weft_value hidden =
        weft_reshape(g, weft_nn_hide(g, real), WEFT_SHAPE(batch, 1, 1, length));
    const weft_value table =
        weft_param(g, "shared.weight", WEFT_F32, WEFT_SHAPE(c->vocabulary, c->width),
                   (weft_init){.kind = WEFT_INIT_NORMAL, .value = 1});
    weft_value x = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, tokens_bs}, 2, NULL);
    weft_value bias = WEFT_NONE;
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "encoder.block.%d.layer.0", (int)i);
        weft_value h = weft_nn_rms_norm(g, "layer_norm", x, c->eps);
        weft_graph_push(g, "SelfAttention");
        if (i == 0 || own_bias)
            bias = position_bias(g, c, length);
        h = attend(g, c, h, hidden, bias);
        weft_graph_pop(g);
        weft_graph_pop(g);
        x = weft_add(g, x, h);
        weft_graph_push(g, "encoder.block.%d.layer.1", (int)i);
        h = feed_forward(g, c, weft_nn_rms_norm(g, "layer_norm", x, c->eps));
        weft_graph_pop(g);
        x = weft_add(g, x, h);
    }
    return weft_nn_rms_norm(g, "encoder.final_layer_norm", x, c->eps);
}

/* ---- the families --------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const t5 *c = config;
    if (c->max_distance <= c->buckets / 4)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT_FIELD(locations, "relative_attention_max_distance", c->max_distance),
            "%" PRId64 " is not above a quarter of the %" PRId64 " buckets", c->max_distance,
            c->buckets);
    return WEFT_OK;
}

static void build_t5(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_TEXT] =
        encode(g, config, false, ports->at[WEFT_PORT_TOKENS], ports->at[WEFT_PORT_TEXT_MASK]);
}

static void build_umt5(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_TEXT] =
        encode(g, config, true, ports->at[WEFT_PORT_TOKENS], ports->at[WEFT_PORT_TEXT_MASK]);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const t5 *c = config;
    *text = (weft_text_shape){c->max_length, c->width, 0, 0};
}

/* Both follow from "feed_forward_proj". */
static const char *implied_activation(const void *config)
{
    return ((const t5 *)config)->plain ? "\"relu\"" : "\"gelu_new\"";
}

static const char *implied_gate(const void *config)
{
    return ((const t5 *)config)->plain ? "false" : "true";
}

/* clang-format off */
static const weft_unused_field unused[] = {
    {"dense_act_fn", .implied = implied_activation},
    {"is_gated_act", .implied = implied_gate},
    {"n_positions"},
    {"num_decoder_layers"},
    {"scalable_attention"},    /* training code */
    {"scale_decoder_outputs"},
    {NULL},
};

static const char *const forms[] = {"\"gated-gelu\"", "\"relu\"", NULL};

#define AT(member) offsetof(t5, member)
#define FIELDS(vocabulary_, d_ff_, layers_, heads_, form_)                                      \
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), vocabulary_, 1, 1 << 24,                       \
     .help = "vocabulary size in tokens"},                                                        \
    {"d_model", WEFT_FIELD_I64, AT(width), "512", 1, 1 << 16,                                     \
     .help = "width; also the transformer's text_dim"},                                           \
    {"d_kv", WEFT_FIELD_I64, AT(head_dim), "64", 1, 1 << 12, .help = "width of a head"},          \
    {"d_ff", WEFT_FIELD_I64, AT(inner), d_ff_, 1, 1 << 20,                                        \
     .help = "inner width of the feed-forward layer"},                                            \
    {"num_layers", WEFT_FIELD_I64, AT(layers), layers_, 1, 1024, .help = "blocks"},               \
    {"num_heads", WEFT_FIELD_I64, AT(heads), heads_, 1, 1024, .help = "attention heads"},         \
    {"relative_attention_num_buckets", WEFT_FIELD_I64, AT(buckets), "32", 4, 1 << 16,             \
     .help = "buckets of token distances"},                                                       \
    {"relative_attention_max_distance", WEFT_FIELD_I64, AT(max_distance), "128", 2, 1 << 24,      \
     .help = "distance from which all tokens share a bucket"},                                    \
    {"layer_norm_epsilon", WEFT_FIELD_F64, AT(eps), "1e-6", 1e-12, 1,                             \
     .help = "epsilon of the RMS norms"},                                                         \
    {"feed_forward_proj", WEFT_FIELD_WORD, AT(plain), .words = forms, \
     .fallback = form_,                                                                           \
     .help = "type of the feed-forward layer"},                                                   \
    {"pad_token_id", WEFT_FIELD_I64, AT(pad), "0", 0, 1 << 24, .help = "padding token"},          \
    {"max_length", WEFT_FIELD_I64, AT(max_length), "512", 1, 1 << 16,                             \
     .help = "tokens that a prompt is padded or truncated to"}

static const weft_field t5_fields[]   = {FIELDS("32128", "2048", "6", "8", "\"relu\"")},
                        umt5_fields[] = {FIELDS("250112", "1024", "8", "6", "\"gated-gelu\"")};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS,    false, "input_ids"},
    {WEFT_PORT_TEXT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,      true,  "last_hidden_state"},
};

static const weft_named_config t5_sizes[] = {
    {"t5-v1.1-xxl", "{\"d_model\": 4096, \"d_ff\": 10240, \"num_layers\": 24, \"num_heads\": 64,"
                    " \"feed_forward_proj\": \"gated-gelu\"}"},
    {NULL, NULL},
}, umt5_sizes[] = {
    {"umt5-xxl", "{\"vocab_size\": 256384, \"d_model\": 4096, \"d_ff\": 10240, \"num_layers\": 24,"
                 " \"num_heads\": 64}"},
    {NULL, NULL},
};

#define BIAS "layer.0.SelfAttention.relative_attention_bias"
static const weft_rename_rule wan_rules[] = {
    {"blocks",                  "encoder.block"},
    {"norm1",                   "layer.0.layer_norm"},
    {"attn",                    "layer.0.SelfAttention"},
    {"pos_embedding.embedding", BIAS},
    {"norm2",                   "layer.1.layer_norm"},
    {"ffn.gate.0",              "layer.1.DenseReluDense.wi_0"},
    {"ffn.fc1",                 "layer.1.DenseReluDense.wi_1"},
    {"ffn.fc2",                 "layer.1.DenseReluDense.wo"},
    {"token_embedding",         "shared"},
    {"norm",                    "encoder.final_layer_norm"},
};

/* Two names of one table. A file has one or both names. */
static const weft_rename_rule shared_rules[] = {{"encoder.embed_tokens", "shared"}};

/* The second block distinguishes T5 and UMT5, so UMT5 must precede T5 in the registry. */
static const weft_key_mapping t5_mappings[] = {
    {"transformers", "encoder.block.0." BIAS ".weight", shared_rules, 1},
}, umt5_mappings[] = {
    {"transformers", "encoder.block.1." BIAS ".weight", shared_rules, 1},
    {"original", "blocks.0.pos_embedding.embedding.weight",
     wan_rules, sizeof wan_rules / sizeof *wan_rules},
};

#define FAMILY(stem_, class_, also_, type_)                                                       \
    const weft_family weft_family_##stem_ = {                                                     \
        .class_name = class_, .also = also_, .role = WEFT_ROLE_TEXT_ENCODER,                      \
        .scope = "text_encoder", .stem = "model", .library = "transformers",                      \
        .model_type = type_,                                                                      \
        .config_bytes = sizeof(t5),                                                               \
        .field = stem_##_fields, .fields = sizeof stem_##_fields / sizeof *stem_##_fields,        \
        .check = check, .unused = unused, .sizes = stem_##_sizes,                                 \
        .port = ports, .ports = sizeof ports / sizeof *ports, \
        .shape = weft_text_encoder_shape,                                                         \
        .build = build_##stem_, .text = text_shape,                                               \
        .mapping = stem_##_mappings,                                                              \
        .mappings = sizeof stem_##_mappings / sizeof *stem_##_mappings,                           \
    }
FAMILY(t5, "T5EncoderModel", "MT5EncoderModel", "t5");
FAMILY(umt5, "UMT5EncoderModel", NULL, "umt5");
/* clang-format on */
