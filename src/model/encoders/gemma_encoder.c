/* Gemma 2, Gemma 3 and T5Gemma 2 as text encoders (transformers' Gemma2Model, Gemma3TextModel and
 * the text part of T5Gemma2Encoder). Parameters have the names of the class. Published files have a
 * prefix before the names: a key mapping.
 *
 *   tokens, times sqrt(width) --> blocks --> RMS norm
 *   block: norm, causal attention, norm, add; norm, gated GELU, norm, add
 *   hidden states: the inputs of all blocks, then the output of the last norm
 *
 * The weight of a norm is added to 1. Gemma 2 limits scores of attention by a tanh before the
 * softmax. Gemma 3 has norms of the heads of queries and keys instead. Some layers see a window of
 * keys only, so texts may not be longer than the window. In Gemma 3 the rotary positions of other
 * layers have a larger base and a smaller step. T5Gemma 2 is Gemma 3 with attention in both
 * directions; its window is centred, and one token has an embedding of its own.
 *
 * Shape letters: B batch, S tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/llama_encoder.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

#include <math.h>

enum { MAX_LAYERS = 256 };
enum { LAYER_WINDOW, LAYER_FULL }; /* indices of layer_words */
static const char *const layer_words[] = {"\"sliding_attention\"", "\"full_attention\"", NULL};

enum { END_OF_IMAGE = 256000 }; /* T5Gemma 2: the token with its own embedding */

typedef struct gemma {
    int64_t vocabulary, width, inner, layers, heads, key_heads, head_dim, window, pad, max_length;
    double theta, eps, scalar, cap;
    /* Gemma 3 and T5Gemma 2 */
    bool head_norms;
    bool both_ways;                  /* T5Gemma 2 */
    double window_theta, factor;     /* base in layers with a window; divisor of other positions */
    int64_t period;                  /* the last of `period` layers has no window */
    int64_t kinds, kind[MAX_LAYERS]; /* kinds of all layers; none: by `period` */
} gemma;
_Static_assert(sizeof(gemma) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* RMS norm, times 1 + "weight". */
static weft_value norm(weft_graph *g, const gemma *c, const char *name, weft_value x)
{
    weft_graph_push(g, "%s", name);
    const int64_t width =
        weft_dim(g, x, weft_value_ok(x) ? weft_value_get(g, x)->shape.rank - 1 : 0);
    const weft_value weight =
        weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(width), (weft_init){.kind = WEFT_INIT_ZERO});
    x = weft_mul(g, weft_nn_plain_rms_norm(g, x, c->eps), weft_affine(g, weight, 1, 1));
    weft_graph_pop(g);
    return x;
}

/* (B,S,N D) -> (B,H,S,D), each of the N heads H / N times. `norm_name` NULL: values, which have
 * neither norm nor positions. */
static weft_value heads_of(weft_graph *g, const gemma *c, weft_value x, int64_t own,
                           const char *norm_name, const weft_value *rope)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), times = c->heads / own;
    x = weft_nn_split_heads(g, x, own);
    if (norm_name && c->head_norms)
        x = norm(g, c, norm_name, x);
    if (norm_name)
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
    q = heads_of(g, c, q, c->heads, "q_norm", rope);
    k = heads_of(g, c, k, c->key_heads, "k_norm", rope);
    v = heads_of(g, c, v, c->key_heads, NULL, NULL);
    weft_value scores = weft_affine(g, weft_matmul(g, q, k, false, true), 1 / sqrt(c->scalar), 0);
    if (c->cap > 0)
        scores = weft_affine(g, weft_unary(g, WEFT_OP_TANH, weft_affine(g, scores, 1 / c->cap, 0)),
                             c->cap, 0);
    if (weft_value_ok(hidden))
        scores = weft_add(g, scores, hidden);
    scores = weft_unary(g, WEFT_OP_SOFTMAX, scores);
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

/* (S,S) at (key, query): 1 at keys in the window around a query, which has one key more before it
 * if its width is even. */
static weft_value around(weft_graph *g, int64_t length, int64_t window)
{
    float *at = weft_calloc(length * length, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " tokens",
                               length);
    for (int64_t i = 0; i < length * length; i++) {
        const int64_t back = i % length - i / length; /* positions from the key to the query */
        at[i] = back >= 0 ? back < (window + 1) / 2 : -back < window / 2 + 1;
    }
    const weft_value near = weft_constant(g, WEFT_F32, WEFT_SHAPE(length, length), at);
    weft_free(at);
    return near;
}

/* Bias of the scores: (1,1,S,S), or (B,1,S,S) with a mask of the tokens. `seen`: keys of queries,
 * (S,S) at (key, query), or WEFT_NONE. */
static weft_value bias_of(weft_graph *g, weft_value seen, weft_value mask, int64_t batch,
                          int64_t length)
{
    weft_value bias = WEFT_NONE;
    if (weft_value_ok(seen))
        bias = weft_reshape(g, weft_nn_hide(g, weft_permute(g, seen, (int[]){1, 0})),
                            WEFT_SHAPE(1, 1, length, length));
    if (!weft_value_ok(mask))
        return bias;
    const weft_value keys = weft_reshape(g, weft_nn_hide(g, weft_cast(g, mask, WEFT_F32)),
                                         WEFT_SHAPE(batch, 1, 1, length));
    return weft_value_ok(bias) ? weft_add(g, bias, keys) : keys;
}

/* Rotary tables of positions 0, `step`, ... */
static void rope_of(weft_graph *g, const gemma *c, int64_t length, double theta, double step,
                    weft_value rope[WEFT_MAX_OUTPUTS])
{
    const weft_attr_rope_table attr = {.theta = {theta, theta, theta},
                                       .step = {step, 1, 1},
                                       .grid = {length, 1, 1},
                                       .pairs = {c->head_dim / 2, 0, 0},
                                       .len = length};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, rope);
}

static bool has_window(const gemma *c, int64_t layer)
{
    return c->kinds > 0 ? c->kind[layer] == LAYER_WINDOW : (layer + 1) % c->period != 0;
}

/* Embeddings of the tokens (B,S,C). */
static weft_value words_of(weft_graph *g, const gemma *c, weft_value tokens)
{
    const weft_llama words = {.vocabulary = c->vocabulary, .width = c->width, .pad = c->pad};
    const weft_value x =
        weft_affine(g, weft_llama_words(g, &words, tokens), (float)sqrt((double)c->width), 0);
    if (!c->both_ways)
        return x;
    const weft_value own = weft_param(g, "embed_tokens.eoi_embedding", WEFT_F32,
                                      WEFT_SHAPE(c->width), (weft_init){.kind = WEFT_INIT_ZERO});
    weft_value other = weft_affine(g, weft_cast(g, tokens, WEFT_F32), 1, -END_OF_IMAGE);
    other = weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, other), 0, 1); /* 0 at this token */
    other = weft_reshape(g, other, WEFT_SHAPE(weft_dim(g, tokens, 0), weft_dim(g, tokens, 1), 1));
    return weft_add(g, weft_mul(g, x, other),
                    weft_mul(g, weft_affine(g, other, -1, 1),
                             weft_reshape(g, own, WEFT_SHAPE(1, 1, c->width))));
}

/* Values that the blocks share; [1]: of layers with a window. */
typedef struct shared {
    weft_value rope[2][WEFT_MAX_OUTPUTS], hidden[2];
} shared;

static void shared_of(weft_graph *g, const gemma *c, weft_value mask, int64_t batch, int64_t length,
                      shared *s)
{
    rope_of(g, c, length, c->theta, c->head_norms ? 1 / c->factor : 1, s->rope[0]);
    if (c->head_norms)
        rope_of(g, c, length, c->window_theta, 1, s->rope[1]);
    s->hidden[0] = s->hidden[1] =
        bias_of(g, c->both_ways ? WEFT_NONE : weft_llama_up_to(g, length), mask, batch, length);
    if (c->both_ways && length > c->window / 2)
        s->hidden[1] = bias_of(g, around(g, length, c->window), mask, batch, length);
}

static weft_value block(weft_graph *g, const gemma *c, int64_t index, const shared *s, weft_value x)
{
    static const char *const names[2][2] = {
        {"input_layernorm", "post_attention_layernorm"},
        {"pre_self_attn_layernorm", "post_self_attn_layernorm"}};
    const char *const *name = names[c->both_ways];
    const int at = c->head_norms && has_window(c, index);
    weft_graph_push(g, "layers.%d", (int)index);
    weft_value h = attend(g, c, norm(g, c, name[0], x), s->rope[at], s->hidden[at]);
    x = weft_add(g, x, norm(g, c, name[1], h));
    h = feed_forward(g, c, norm(g, c, "pre_feedforward_layernorm", x));
    x = weft_add(g, x, norm(g, c, "post_feedforward_layernorm", h));
    weft_graph_pop(g);
    return x;
}

static void forward(weft_graph *g, const gemma *c, weft_ports *p)
{
    const weft_value tokens = p->at[WEFT_PORT_TOKENS];
    const int64_t batch = weft_dim(g, tokens, 0), length = weft_dim(g, tokens, 1);
    shared s;
    if (length > c->window && !c->both_ways)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " tokens exceed sliding_window %" PRId64, length, c->window);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    shared_of(g, c, p->at[WEFT_PORT_TEXT_MASK], batch, length, &s);
    const weft_shape one = WEFT_SHAPE(batch, 1, length, c->width);
    weft_value x = words_of(g, c, tokens), state[MAX_LAYERS + 1];
    for (int64_t i = 0; i < c->layers; i++) {
        state[i] = weft_reshape(g, x, one);
        x = block(g, c, i, &s, x);
    }
    x = norm(g, c, "norm", x);
    state[c->layers] = weft_reshape(g, x, one);
    p->at[WEFT_PORT_TEXT] = x;
    p->at[WEFT_PORT_TEXT_LAYERS] = weft_concat(g, state, (int)c->layers + 1, 1);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    (void)call;
    forward(g, config, p);
}

static void build_third(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    gemma c = *(const gemma *)config;
    c.head_norms = true;
    (void)call;
    forward(g, &c, p);
}

static void build_encoder(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    gemma c = *(const gemma *)config;
    c.head_norms = c.both_ways = true;
    (void)call;
    forward(g, &c, p);
}

/* ---- the families --------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const gemma *c = config;
    return weft_check_grouped_heads(locations, c->heads, c->key_heads, c->head_dim);
}

static weft_status check_third(const void *config, const weft_config_locations *locations)
{
    const gemma *c = config;
    if (c->kinds > 0 && c->kinds < c->layers)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "layer_types", c->kinds),
                          "%" PRId64 " kinds for %" PRId64 " layers", c->kinds, c->layers);
    return check(config, locations);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const gemma *c = config;
    *text = (weft_text_shape){.length = c->max_length, .width = c->width, .layers = c->layers + 1};
}

/* The rope_type of layers without a window, in the configs that transformers writes since version
 * 5. */
static const char *rope_type(const void *config)
{
    return ((const gemma *)config)->factor == 1 ? "\"default\"" : "\"linear\"";
}

/* clang-format off */
#define AT(member) offsetof(gemma, member)
#define VOCABULARY(count) \
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), count, 1, 1 << 24, \
     .help = "vocabulary size in tokens"}
#define BLOCKS \
    {"hidden_size", WEFT_FIELD_I64, AT(width), "2304", 1, 1 << 16, .help = "width"}, \
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "9216", 1, 1 << 20, \
     .help = "inner width of the feed-forward layer"}, \
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "26", 1, MAX_LAYERS, .help = "blocks"}, \
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "8", 1, 1024, .help = "query heads"}, \
    {"num_key_value_heads", WEFT_FIELD_I64, AT(key_heads), "4", 1, 1024, \
     .help = "key and value heads"}, \
    {"head_dim", WEFT_FIELD_I64, AT(head_dim), "256", 2, 1 << 12, .help = "width of a head"}, \
    {"hidden_activation", WEFT_FIELD_FIXED, .fallback = "\"gelu_pytorch_tanh\""}, \
    {"rms_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 1e-12, 1, .help = "epsilon of the RMS norms"}
#define END(window_help) \
    {"sliding_window", WEFT_FIELD_I64, AT(window), "4096", 1, 1 << 24, .help = window_help}, \
    {"attention_bias", WEFT_FIELD_FIXED, .fallback = "false"}, \
    {"pad_token_id", WEFT_FIELD_I64, AT(pad), "0", -1, 1 << 24, \
     .help = "padding token; -1: none"}, \
    {"max_length", WEFT_FIELD_I64, AT(max_length), "300", 1, 1 << 16, \
     .help = "tokens that a prompt is padded or truncated to"}
static const weft_field fields[] = {
    VOCABULARY("256000"),
    BLOCKS,
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000", 1, 1e12,
     .also = "rope_parameters.rope_theta", .help = "base of the rotary frequencies"},
    {"query_pre_attn_scalar", WEFT_FIELD_F64, AT(scalar), "256", 1e-6, 1e12,
     .help = "scores are divided by the square root of this number"},
    {"attn_logit_softcapping", WEFT_FIELD_F64, AT(cap), "50", 1e-6, 1e12,
     .help = "limit of the scores"},
    END("tokens that a text has at most"),
};

#define THIRD(window_help) \
    VOCABULARY("262208"), \
    BLOCKS, \
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "1000000", 1, 1e12, \
     .also = "rope_parameters.full_attention.rope_theta", \
     .help = "base of the rotary frequencies of layers without a window"}, \
    {"rope_local_base_freq", WEFT_FIELD_F64, AT(window_theta), "10000", 1, 1e12, \
     .also = "rope_parameters.sliding_attention.rope_theta", \
     .help = "base of the rotary frequencies of layers with a window"}, \
    {"rope_factor", WEFT_FIELD_F64, AT(factor), "1", 1e-3, 1e6, \
     .also = "rope_parameters.full_attention.factor|rope_scaling.factor", \
     .help = "divisor of the positions in layers without a window"}, \
    {"sliding_window_pattern", WEFT_FIELD_I64, AT(period), "6", 1, 1024, \
     .also = "_sliding_window_pattern", \
     .help = "layers of which the last has no window"}, \
    {"layer_types", WEFT_FIELD_WORDS, AT(kind), "[]", .capacity = MAX_LAYERS, .count = AT(kinds), \
     .words = layer_words, .help = "kind of each layer; by default the pattern"}, \
    {"query_pre_attn_scalar", WEFT_FIELD_F64, AT(scalar), "256", 1e-6, 1e12, \
     .help = "scores are divided by the square root of this number"}, \
    {"attn_logit_softcapping", WEFT_FIELD_FIXED, .fallback = "null"}, \
    END(window_help)
static const weft_field fields_third[] = {THIRD("tokens that a text has at most")},
                        fields_encoder[] = {THIRD("keys around a query in layers with a window")};

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

static const weft_unused_field unused_third[] = {
    {"cache_implementation"},
    {"final_logit_softcapping"}, /* of the layer for words */
    {"max_position_embeddings"}, /* training length; rotary positions have no limit */
    {"rope_parameters.full_attention.rope_type", .implied = rope_type},
    {"rope_parameters.sliding_attention.rope_type", "\"default\""},
    {"rope_scaling.rope_type", "\"linear\""},
    {"use_bidirectional_attention", "false"},
    {NULL},
};

static const weft_unused_field unused_encoder[] = {
    {"cache_implementation"},
    {"dropout_rate", "0"},
    {"final_logit_softcapping"}, /* of the layer for words */
    {"max_position_embeddings"}, /* training length; rotary positions have no limit */
    {"rope_parameters.full_attention.rope_type", .implied = rope_type},
    {"rope_parameters.sliding_attention.rope_type", "\"default\""},
    {"rope_scaling.rope_type", "\"linear\""},
    {NULL},
};

static const weft_named_config sizes_third[] = {
    {"gemma-3-12b",
     "{\"hidden_size\": 3840, \"intermediate_size\": 15360, \"num_hidden_layers\": 48,"
     "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"sliding_window\": 1024,"
     "\"rope_factor\": 8}"},
    {NULL, NULL},
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

/* A folder with an image encoder has "language_model." in the names. */
static const weft_rename_rule joint_rules[] = {
    {"language_model.model.", ""}, {"model.language_model.", ""}, {"model.", ""}};
/* Qwen3 has the norms of heads, and Gemma 2 the norm before the feed-forward. */
#define MAPPING(name, prefix, rules, count) \
    {name, prefix "layers.0.self_attn.q_norm.weight", rules, count, \
     .also = prefix "layers.0.pre_feedforward_layernorm.weight"}
static const weft_key_mapping mappings_third[] = {
    MAPPING("transformers", "model.", joint_rules, 3),
    MAPPING("transformers", "model.language_model.", joint_rules, 3),
    MAPPING("transformers", "language_model.model.", joint_rules, 3),
    MAPPING("bare", "", NULL, 0),
};

/* A whole encoder has "text_model." in the names, next to a vision part that weft opens apart. */
static const weft_rename_rule encoder_rules[] = {{"text_model.", ""}};
#define ENCODER(name, prefix, rules, count) \
    {name, prefix "layers.0.pre_self_attn_layernorm.weight", rules, count, \
     .also = prefix "embed_tokens.eoi_embedding"}
static const weft_key_mapping mappings_encoder[] = {
    ENCODER("transformers", "text_model.", encoder_rules, 1),
    ENCODER("bare", "", NULL, 0),
};

static const weft_named_config sizes_encoder[] = {
    {"t5gemma-2-4b",
     "{\"hidden_size\": 2560, \"intermediate_size\": 10240, \"num_hidden_layers\": 34,"
     "\"sliding_window\": 1024, \"rope_factor\": 8}"},
    {NULL, NULL},
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

const weft_family weft_family_gemma3 = {
    .class_name = "Gemma3TextModel", .also = "Gemma3ForCausalLM", .role = WEFT_ROLE_TEXT_ENCODER,
    .scope = "text_encoder", .stem = "model", .library = "transformers",
    .model_type = "gemma3_text", .joint = {"gemma3", "text_config", NULL},
    .config_bytes = sizeof(gemma), .field = fields_third,
    .fields = sizeof fields_third / sizeof *fields_third,
    .check = check_third, .unused = unused_third, .sizes = sizes_third,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = weft_text_encoder_shape,
    .build = build_third, .text = text_shape,
    .mapping = mappings_third, .mappings = sizeof mappings_third / sizeof *mappings_third,
};

const weft_family weft_family_t5gemma2 = {
    .class_name = "T5Gemma2TextEncoder", .also = "T5Gemma2Encoder", .role = WEFT_ROLE_TEXT_ENCODER,
    .scope = "text_encoder", .stem = "model", .library = "transformers",
    .model_type = "t5gemma2_text", .joint = {"t5gemma2_encoder", "text_config", NULL},
    .config_bytes = sizeof(gemma), .field = fields_encoder,
    .fields = sizeof fields_encoder / sizeof *fields_encoder,
    .check = check_third, .unused = unused_encoder, .sizes = sizes_encoder,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = weft_text_encoder_shape,
    .build = build_encoder, .text = text_shape,
    .mapping = mappings_encoder, .mappings = sizeof mappings_encoder / sizeof *mappings_encoder,
};
/* clang-format on */
