/* Gemma 2 as a text encoder (transformers' Gemma2Model). Parameters have the names of the class.
 * Published files put "model." before the names, which is a key mapping here.
 *
 *   tokens, times sqrt(width) --> blocks --> RMS norm
 *   block: norm, causal attention, norm, add; norm, gated GELU, norm, add
 *
 * The weight of a norm is added to 1. Scores of attention are limited by a tanh before the softmax.
 * Half of the layers see a window of keys only, so texts may not be longer than the window. Shape
 * letters: B batch, S tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/llama_encoder.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

#include <math.h>

typedef struct gemma {
    int64_t vocabulary, width, inner, layers, heads, key_heads, head_dim, window, pad, max_length;
    double theta, eps, scalar, cap;
} gemma;
_Static_assert(sizeof(gemma) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* RMS norm, times 1 + "weight". */
static weft_value norm(weft_graph *g, const gemma *c, const char *name, weft_value x)
{
    weft_graph_push(g, "%s", name);
    const weft_value weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(c->width),
                                         (weft_init){.kind = WEFT_INIT_ZERO});
    x = weft_mul(g, weft_nn_plain_rms_norm(g, x, c->eps), weft_affine(g, weight, 1, 1));
    weft_graph_pop(g);
    return x;
}

/* (B,S,N D) -> (B,H,S,D), each of the N heads H / N times. */
static weft_value heads_of(weft_graph *g, const gemma *c, weft_value x, int64_t own,
                           const weft_value *rope)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), times = c->heads / own;
    x = weft_nn_split_heads(g, x, own);
    if (rope)
        x = weft_nn_rope(g, x, rope, true);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, length, own, 1, c->head_dim));
    x = weft_broadcast(g, x, WEFT_SHAPE(batch, length, own, times, c->head_dim));
    x = weft_reshape(g, x, WEFT_SHAPE(batch, length, c->heads, c->head_dim));
    return weft_permute(g, x, (int[]){0, 2, 1, 3});
}

static weft_value attend(weft_graph *g, const gemma *c, weft_value x, const weft_value *rope,
                         weft_value hidden)
{
    weft_graph_push(g, "self_attn");
    const int64_t keys = c->key_heads * c->head_dim, queries = c->heads * c->head_dim;
    weft_value q = weft_nn_linear_plain(g, "q_proj", x, queries),
               k = weft_nn_linear_plain(g, "k_proj", x, keys),
               v = weft_nn_linear_plain(g, "v_proj", x, keys);
    q = heads_of(g, c, q, c->heads, rope);
    k = heads_of(g, c, k, c->key_heads, rope);
    v = heads_of(g, c, v, c->key_heads, NULL);
    weft_value scores = weft_affine(g, weft_matmul(g, q, k, false, true), 1 / sqrt(c->scalar), 0);
    if (c->cap > 0)
        scores = weft_affine(g, weft_unary(g, WEFT_OP_TANH, weft_affine(g, scores, 1 / c->cap, 0)),
                             c->cap, 0);
    scores = weft_unary(g, WEFT_OP_SOFTMAX, weft_add(g, scores, hidden));
    weft_value h = weft_permute(g, weft_matmul(g, scores, v, false, false), (int[]){0, 2, 1, 3});
    h = weft_nn_linear_plain(g, "o_proj", weft_nn_join_heads(g, h), c->width);
    weft_graph_pop(g);
    return h;
}

static weft_value feed_forward(weft_graph *g, const gemma *c, weft_value x)
{
    weft_graph_push(g, "mlp");
    const weft_value gate = weft_gelu_tanh(g, weft_nn_linear_plain(g, "gate_proj", x, c->inner));
    x = weft_mul(g, gate, weft_nn_linear_plain(g, "up_proj", x, c->inner));
    x = weft_nn_linear_plain(g, "down_proj", x, c->width);
    weft_graph_pop(g);
    return x;
}

/* Bias of the scores: (1,1,S,S), or (B,1,S,S) with a mask of the tokens. */
static weft_value bias_of(weft_graph *g, weft_value mask, int64_t batch, int64_t length)
{
    const weft_value before =
        weft_permute(g, weft_llama_up_to(g, length), (int[]){1, 0}); /* key at most query */
    const weft_value causal =
        weft_reshape(g, weft_nn_hide(g, before), WEFT_SHAPE(1, 1, length, length));
    if (!weft_value_ok(mask))
        return causal;
    const weft_value keys = weft_nn_hide(g, weft_cast(g, mask, WEFT_F32));
    return weft_add(g, causal, weft_reshape(g, keys, WEFT_SHAPE(batch, 1, 1, length)));
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const gemma *c = config;
    const weft_value tokens = p->at[WEFT_PORT_TOKENS];
    const int64_t batch = weft_dim(g, tokens, 0), length = weft_dim(g, tokens, 1);
    const weft_llama words = {.vocabulary = c->vocabulary, .width = c->width, .pad = c->pad};
    const weft_attr_rope_table attr = {.theta = {c->theta, c->theta, c->theta},
                                       .step = {1, 1, 1},
                                       .grid = {length, 1, 1},
                                       .pairs = {c->head_dim / 2, 0, 0},
                                       .len = length};
    weft_value rope[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE};
    (void)call;
    if (length > c->window)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " tokens exceed sliding_window %" PRId64, length, c->window);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, rope);
    const weft_value hidden = bias_of(g, p->at[WEFT_PORT_TEXT_MASK], batch, length);
    weft_value x =
        weft_affine(g, weft_llama_words(g, &words, tokens), (float)sqrt((double)c->width), 0);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "layers.%d", (int)i);
        weft_value h = attend(g, c, norm(g, c, "input_layernorm", x), rope, hidden);
        x = weft_add(g, x, norm(g, c, "post_attention_layernorm", h));
        h = feed_forward(g, c, norm(g, c, "pre_feedforward_layernorm", x));
        x = weft_add(g, x, norm(g, c, "post_feedforward_layernorm", h));
        weft_graph_pop(g);
    }
    p->at[WEFT_PORT_TEXT] = norm(g, c, "norm", x);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const gemma *c = config;
    return weft_check_grouped_heads(locations, c->heads, c->key_heads, c->head_dim);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const gemma *c = config;
    *text = (weft_text_shape){.length = c->max_length, .width = c->width};
}

/* clang-format off */
#define AT(member) offsetof(gemma, member)
static const weft_field fields[] = {
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), "256000", 1, 1 << 24,
     .help = "vocabulary size in tokens"},
    {"hidden_size", WEFT_FIELD_I64, AT(width), "2304", 1, 1 << 16, .help = "width"},
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "9216", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "26", 1, 1024, .help = "blocks"},
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "8", 1, 1024, .help = "query heads"},
    {"num_key_value_heads", WEFT_FIELD_I64, AT(key_heads), "4", 1, 1024,
     .help = "key and value heads"},
    {"head_dim", WEFT_FIELD_I64, AT(head_dim), "256", 2, 1 << 12, .help = "width of a head"},
    {"hidden_activation", WEFT_FIELD_FIXED, .fallback = "\"gelu_pytorch_tanh\""},
    {"rms_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 1e-12, 1, .help = "epsilon of the RMS norms"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000", 1, 1e12,
     .also = "rope_parameters.rope_theta", .help = "base of the rotary frequencies"},
    {"query_pre_attn_scalar", WEFT_FIELD_F64, AT(scalar), "256", 1e-6, 1e12,
     .help = "scores are divided by the square root of this number"},
    {"attn_logit_softcapping", WEFT_FIELD_F64, AT(cap), "50", 1e-6, 1e12,
     .help = "limit of the scores"},
    {"sliding_window", WEFT_FIELD_I64, AT(window), "4096", 1, 1 << 24,
     .help = "tokens that a text has at most"},
    {"attention_bias", WEFT_FIELD_FIXED, .fallback = "false"},
    {"pad_token_id", WEFT_FIELD_I64, AT(pad), "0", -1, 1 << 24,
     .help = "padding token; -1: none"},
    {"max_length", WEFT_FIELD_I64, AT(max_length), "300", 1, 1 << 16,
     .help = "tokens that a prompt is padded or truncated to"},
};

static const weft_unused_field unused[] = {
    {"cache_implementation"},
    {"final_logit_softcapping"}, /* of the layer for words */
    {"hidden_act"},              /* the class reads "hidden_activation" */
    {"layer_types"},             /* windows, which texts do not exceed */
    {"max_position_embeddings"}, /* training length; rotary positions have no limit */
    {"rope_parameters.rope_type", "\"default\""},
    {"sliding_window_size"},
    {"use_bidirectional_attention", "null"},
    {NULL},
};

static const weft_named_config sizes[] = {
    {"gemma-2-2b", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS,    false, "input_ids"},
    {WEFT_PORT_TEXT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,      true,  "last_hidden_state"},
};

static const weft_rename_rule prefix_rules[] = {{"model.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "model.layers.0.pre_feedforward_layernorm.weight", prefix_rules, 1},
    {"bare",         "layers.0.pre_feedforward_layernorm.weight", NULL, 0},
};

const weft_family weft_family_gemma2 = {
    .class_name = "Gemma2Model", .also = "Gemma2ForCausalLM", .role = WEFT_ROLE_TEXT_ENCODER,
    .scope = "text_encoder", .stem = "model", .library = "transformers", .model_type = "gemma2",
    .config_bytes = sizeof(gemma), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = weft_text_encoder_shape,
    .build = build, .text = text_shape,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
