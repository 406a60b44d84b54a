/* Language models as text encoders: Llama (as HunyuanVideo uses it), the text part of Qwen2.5-VL,
 * Qwen3 and Mistral (transformers' LlamaModel, Qwen2_5_VLTextModel, Qwen3Model, MistralModel).
 * Parameters have the names of the classes. Published files put "model." before the names, which is
 * a key mapping here.
 *
 *   tokens --> blocks: RMS norm, causal attention, RMS norm, gated SiLU --> RMS norm
 *
 * The text embedding is the output of a layer before the last. Several query heads share one
 * head of keys and values. Shape letters: B batch, S tokens, C width, K key heads, G query heads
 * per key head, D head width. Qwen2.5-VL replaces tokens of the text by images (weft_ports.images).
 */
#include "model/encoders/llama_encoder.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

#include <math.h>

enum { ROPE_LLAMA3 = 2 }; /* index in `ropes` */

static weft_value project(weft_graph *g, const char *name, weft_value h, int64_t out, bool bias)
{
    return bias ? weft_nn_linear(g, name, h, out, WEFT_LINEAR_XAVIER)
                : weft_nn_linear_plain(g, name, h, out);
}

/* (B,S,K,D) -> (B,S,K G,D), each head G times. */
static weft_value repeat_heads(weft_graph *g, const weft_llama *c, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1),
                  times = c->heads / c->key_heads;
    if (times == 1)
        return x;
    x = weft_reshape(g, x, WEFT_SHAPE(batch, length, c->key_heads, 1, c->head_dim));
    x = weft_broadcast(g, x, WEFT_SHAPE(batch, length, c->key_heads, times, c->head_dim));
    return weft_reshape(g, x, WEFT_SHAPE(batch, length, c->heads, c->head_dim));
}

/* Heads of q or k with the rotation. Qwen3 normalizes each head before. */
static weft_value rotate(weft_graph *g, const weft_llama *c, weft_llama_kind kind, const char *norm,
                         weft_value heads, const weft_value *rope)
{
    if (kind == WEFT_QWEN3)
        heads = weft_nn_rms_norm(g, norm, heads, c->eps);
    return weft_nn_rope(g, heads, rope, true);
}

/* Padding of a batch. Each may be WEFT_NONE. */
typedef struct padding {
    weft_value hidden;    /* bias of the keys (B,S) */
    weft_value attending; /* (B,S,1): 0 where no key is visible; the reference attends to nothing */
} padding;

static weft_value attend(weft_graph *g, const weft_llama *c, weft_llama_kind kind, weft_value h,
                         const weft_value *rope, const padding *pad)
{
    const int64_t keys = c->key_heads * c->head_dim;
    const bool bias = kind == WEFT_QWEN2;
    weft_graph_push(g, "self_attn");
    weft_value q = project(g, "q_proj", h, c->heads * c->head_dim, bias),
               k = project(g, "k_proj", h, keys, bias), v = project(g, "v_proj", h, keys, bias);
    q = rotate(g, c, kind, "q_norm", weft_nn_split_heads(g, q, c->heads), rope);
    k = rotate(g, c, kind, "k_norm", weft_nn_split_heads(g, k, c->key_heads), rope);
    v = weft_nn_split_heads(g, v, c->key_heads);
    h = weft_nn_attend_back(g, q, repeat_heads(g, c, k), repeat_heads(g, c, v), pad->hidden);
    h = weft_nn_join_heads(g, h);
    if (weft_value_ok(pad->attending))
        h = weft_mul(g, h, pad->attending);
    h = weft_nn_linear_plain(g, "o_proj", h, c->width);
    weft_graph_pop(g);
    return h;
}

static weft_value block(weft_graph *g, const weft_llama *c, weft_llama_kind kind, weft_value x,
                        const weft_value *rope, const padding *pad)
{
    weft_value h = weft_nn_rms_norm(g, "input_layernorm", x, c->eps);
    x = weft_add(g, x, attend(g, c, kind, h, rope, pad));
    h = weft_nn_rms_norm(g, "post_attention_layernorm", x, c->eps);
    weft_graph_push(g, "mlp");
    const weft_value gate =
        weft_unary(g, WEFT_OP_SILU, weft_nn_linear_plain(g, "gate_proj", h, c->inner));
    h = weft_mul(g, gate, weft_nn_linear_plain(g, "up_proj", h, c->inner));
    h = weft_nn_linear_plain(g, "down_proj", h, c->width);
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

/* Token embeddings. The row of the padding token is used but not trained. */
weft_value weft_llama_words(weft_graph *g, const weft_llama *c, weft_value tokens_bs)
{
    const weft_value table =
        weft_param(g, "embed_tokens.weight", WEFT_F32, WEFT_SHAPE(c->vocabulary, c->width),
                   (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
    const weft_value x = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, tokens_bs}, 2, NULL);
    if (c->pad < 0)
        return x;
    weft_value trained = weft_affine(g, weft_cast(g, tokens_bs, WEFT_F32), 1, -(double)c->pad);
    trained = weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, trained), 0, 1);
    trained = weft_reshape(g, trained,
                           WEFT_SHAPE(weft_dim(g, tokens_bs, 0), weft_dim(g, tokens_bs, 1), 1));
    return weft_add(g, weft_mul(g, x, trained),
                    weft_mul(g, weft_unary(g, WEFT_OP_STOP, x), weft_affine(g, trained, -1, 1)));
}

/* Factor of a rotary frequency of Llama 3.1: 1 for wavelengths up to trained / high, 1 / stretch
 * from trained / low on, and linear in the inverse wavelength between them. */
static double stretched(const weft_llama *c, double frequency)
{
    const double periods = (double)c->trained * frequency / 6.283185307179586, /* in `trained` */
        share = (periods - c->low) / (c->high - c->low);
    if (periods > c->high)
        return 1;
    return periods < c->low ? 1 / c->stretch : (1 - share) / c->stretch + share;
}

/* Cosines and sines (S,D/2) of Llama 3.1, angles in f64. */
static void stretched_rope(weft_graph *g, const weft_llama *c, int64_t length, weft_value *rope)
{
    const int64_t pairs = c->head_dim / 2;
    float *table = weft_calloc(2 * length * pairs, sizeof *table);
    if (!table) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " tokens", length);
        return;
    }
    for (int64_t i = 0; i < pairs; i++) {
        const double plain = 1.0 / pow(c->theta, (double)i / (double)pairs),
                     frequency = plain * stretched(c, plain);
        for (int64_t t = 0; t < length; t++) {
            table[t * pairs + i] = (float)cos((double)t * frequency);
            table[(length + t) * pairs + i] = (float)sin((double)t * frequency);
        }
    }
    for (int i = 0; i < 2; i++)
        rope[i] = weft_constant(g, WEFT_F32, WEFT_SHAPE(length, pairs), table + i * length * pairs);
    weft_free(table);
}

/* Frame, row and column (length,3) of tokens of text and images. All tokens of an image have the
 * frame of its first one. Text after an image follows its longer side. */
static void image_positions(const weft_image_tokens *images, int64_t length, int64_t *at)
{
    int64_t next = 0, s = 0;
    for (int i = 0; i <= images->count; i++) {
        const int64_t end = i < images->count ? images->of[i].at : length;
        for (; s < end; s++, next++)
            at[3 * s] = at[3 * s + 1] = at[3 * s + 2] = next;
        if (i == images->count)
            return;
        const int64_t rows = images->of[i].rows, columns = images->of[i].columns;
        for (int64_t k = 0; k < rows * columns; k++, s++) {
            at[3 * s] = next;
            at[3 * s + 1] = next + k / columns;
            at[3 * s + 2] = next + k % columns;
        }
        next += rows > columns ? rows : columns;
    }
}

/* Cosines and sines (S,D/2) of text and images. */
static void image_rope(weft_graph *g, const weft_llama *c, const weft_image_tokens *images,
                       int64_t length, weft_value *rope)
{
    const int64_t pairs = c->head_dim / 2, *section = c->section;
    if (section[0] + section[1] + section[2] != pairs) {
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "\"mrope_section\" has %" PRId64 " frequencies, and a head has %" PRId64,
                        section[0] + section[1] + section[2], pairs);
        return;
    }
    float *table = weft_calloc(2 * length * pairs, sizeof *table);
    int64_t *at = weft_calloc(3 * length, sizeof *at);
    if (table && at) {
        image_positions(images, length, at);
        for (int64_t s = 0; s < length; s++)
            for (int64_t i = 0; i < pairs; i++) {
                const int axis = i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
                const double angle =
                    (double)at[3 * s + axis] / pow(c->theta, (double)i / (double)pairs);
                table[s * pairs + i] = (float)cos(angle);
                table[(length + s) * pairs + i] = (float)sin(angle);
            }
        for (int i = 0; i < 2; i++)
            rope[i] =
                weft_constant(g, WEFT_F32, WEFT_SHAPE(length, pairs), table + i * length * pairs);
    } else {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " tokens", length);
    }
    weft_free(table);
    weft_free(at);
}

/* Replaces embeddings (B,S,C) by the embeddings of images (B,N,C) at their places. */
static weft_value with_images(weft_graph *g, const weft_image_tokens *images, weft_value words,
                              weft_value seen)
{
    weft_value part[2 * WEFT_MAX_IMAGES + 1];
    int64_t from = 0, shown = 0;
    int count = 0;
    for (int i = 0; i < images->count; i++) {
        const int64_t at = images->of[i].at, tokens = images->of[i].rows * images->of[i].columns;
        if (at > from)
            part[count++] = weft_slice(g, words, 1, from, at - from);
        part[count++] = weft_slice(g, seen, 1, shown, tokens);
        shown += tokens;
        from = at + tokens;
    }
    const int64_t rest = weft_dim(g, words, 1) - from;
    if (rest > 0)
        part[count++] = weft_slice(g, words, 1, from, rest);
    return weft_concat(g, part, count, 1);
}

static void rope_of(weft_graph *g, const weft_llama *c, const weft_image_tokens *images,
                    int64_t length, weft_value *rope)
{
    if (images) {
        image_rope(g, c, images, length, rope);
        return;
    }
    const weft_attr_rope_table attr = {
        .theta = {c->theta, c->theta, c->theta},
        .step = {1, 1, 1},
        .grid = {length, 1, 1},
        .pairs = {c->head_dim / 2, 0, 0},
        .len = length,
    };
    if (c->rope == ROPE_LLAMA3)
        stretched_rope(g, c, length, rope);
    else
        weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, rope);
}

weft_value weft_llama_up_to(weft_graph *g, int64_t length)
{
    float *at = weft_calloc(length * length, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " tokens",
                               length);
    for (int64_t i = 0; i < length * length; i++)
        at[i] = i / length <= i % length;
    const weft_value all = weft_constant(g, WEFT_F32, WEFT_SHAPE(length, length), at);
    weft_free(at);
    return all;
}

/* (B,S) to (B,S,1): 1 from the first visible token on. */
static weft_value after_padding(weft_graph *g, weft_value seen_bs)
{
    const int64_t batch = weft_dim(g, seen_bs, 0), length = weft_dim(g, seen_bs, 1);
    const weft_value count = weft_matmul(g, seen_bs, weft_llama_up_to(g, length), false, false);
    return weft_reshape(g, weft_clamp(g, count, 0, 1), WEFT_SHAPE(batch, length, 1));
}

/* Concatenates the hidden states `which`: outputs of blocks (B,1,S,C), and x after the norm. */
static weft_value take_hidden(weft_graph *g, const weft_llama *c, const int64_t *which,
                              const weft_value *layer, weft_value x)
{
    weft_value part[WEFT_MAX_HIDDEN];
    int count = 0;
    for (; which[count] && count < WEFT_MAX_HIDDEN; count++) {
        const int64_t n = which[count];
        if (n > c->layers)
            return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                                   "hidden state %" PRId64 " of %" PRId64 " layers", n, c->layers);
        part[count] = n == WEFT_HIDDEN_LAST || n == c->layers
                          ? x
                          : weft_reshape(g, layer[n - 1], weft_value_get(g, x)->shape);
    }
    return count > 1 ? weft_concat(g, part, count, 2) : part[0];
}

void weft_llama_encode(weft_graph *g, const weft_llama *c, weft_llama_kind kind, weft_value x,
                       weft_ports *p)
{
    const weft_value mask = p->at[WEFT_PORT_TEXT_MASK];
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1);
    padding pad = {WEFT_NONE, WEFT_NONE}; /* causal: right padding is never seen */
    if (weft_value_ok(mask)) {
        const weft_value seen = weft_cast(g, mask, WEFT_F32);
        pad.hidden = weft_nn_hide(g, seen);
        if (kind == WEFT_MISTRAL)
            pad.attending = after_padding(g, seen);
    }
    weft_value rope[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE};
    rope_of(g, c, p->images, length, rope);
    weft_value *layer = weft_calloc(c->layers, sizeof *layer);
    if (!layer) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " layers",
                        c->layers);
        return;
    }
    /* shape of a layer in the stack of layers */
    const weft_shape one = WEFT_SHAPE(batch, 1, length, c->width);
    for (int64_t i = 0; i < c->layers; i++) {
        if (i == c->layers - c->skipped)
            p->at[WEFT_PORT_TEXT] = x;
        weft_graph_push(g, "layers.%d", (int)i);
        x = block(g, c, kind, x, rope, &pad);
        weft_graph_pop(g);
        layer[i] = weft_reshape(g, x, one);
    }
    x = weft_nn_rms_norm(g, "norm", x, c->eps);
    layer[c->layers - 1] = weft_reshape(g, x, one);
    p->at[WEFT_PORT_TEXT_LAYERS] = weft_concat(g, layer, (int)c->layers, 1);
    p->at[WEFT_PORT_LAST_HIDDEN] = x;
    if (c->skipped == 0)
        p->at[WEFT_PORT_TEXT] = x;
    if (p->hidden && weft_graph_check(g) == WEFT_OK)
        p->at[WEFT_PORT_TEXT] = take_hidden(g, c, p->hidden, layer, x);
    weft_free(layer);
}

static void encode(weft_graph *g, const weft_llama *c, weft_llama_kind kind, weft_ports *p)
{
    weft_value words = weft_llama_words(g, c, p->at[WEFT_PORT_TOKENS]);
    if (p->images)
        words = with_images(g, p->images, words, p->at[WEFT_PORT_IMAGE]);
    weft_llama_encode(g, c, kind, words, p);
}

/* ---- the families --------------------------------------------------------------------------- */

static weft_status check_rope(const weft_llama *c, const weft_config_locations *locations)
{
    const bool stretches = c->rope == ROPE_LLAMA3;
    if (!stretches && (c->stretch != 0 || c->low != 0 || c->high != 0 || c->trained != 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "rope_type", c->rope),
                          "a factor of rotary frequencies is supported with \"llama3\" only");
    if (stretches && !(c->stretch > 0 && c->low > 0 && c->high > c->low && c->trained > 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "rope_type", c->rope),
                          "\"llama3\" needs \"factor\", \"low_freq_factor\", a higher "
                          "\"high_freq_factor\" and \"original_max_position_embeddings\"");
    return WEFT_OK;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const weft_llama *c = config;
    WEFT_TRY(weft_check_grouped_heads(locations, c->heads, c->key_heads, c->head_dim));
    if (c->skipped > c->layers)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "num_hidden_layers_to_skip", c->skipped),
                          "%" PRId64 " is more than the %" PRId64 " layers", c->skipped, c->layers);
    return check_rope(c, locations);
}

static void build_llama(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    encode(g, config, WEFT_LLAMA, ports);
}

static void build_qwen(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    encode(g, config, WEFT_QWEN2, ports);
}

static void build_qwen3(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    encode(g, config, WEFT_QWEN3, ports);
}

static void build_mistral(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    encode(g, config, WEFT_MISTRAL, ports);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const weft_llama *c = config;
    *text = (weft_text_shape){.length = c->max_length, .width = c->width, .layers = c->layers};
}

static int64_t axes_of(const void *config)
{
    (void)config;
    return 3;
}

static int64_t even_share(const void *config)
{
    const weft_llama *c = config;
    return c->width / c->heads;
}

/* clang-format off */
static const char *const ropes[] = {"\"default\"", "\"mrope\"", "\"llama3\"", NULL};

#define AT(member) offsetof(weft_llama, member)
/* Fields that transformers has in an object, named differently since version 5. */
#define STRETCH(key) .also = "rope_parameters." key "|rope_scaling." key, .object = "rope_scaling"
#define FIELDS(vocabulary_, width_, inner_, layers_, heads_, keys_, theta_, eps_, skipped_, max_)  \
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), vocabulary_, 1, 1 << 24,                       \
     .help = "vocabulary size in tokens"},                                                        \
    {"hidden_size", WEFT_FIELD_I64, AT(width), width_, 1, 1 << 16, .help = "width"},              \
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), inner_, 1, 1 << 20,                          \
     .help = "inner width of the feed-forward layer"},                                            \
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), layers_, 1, 1024, .help = "blocks"},        \
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), heads_, 1, 1024,                           \
     .help = "query heads"},                                                                      \
    {"num_key_value_heads", WEFT_FIELD_I64, AT(key_heads), keys_, 1, 1024,                        \
     .help = "key and value heads"},                                                              \
    {"head_dim", WEFT_FIELD_I64, AT(head_dim), NULL, 2, 1 << 12, .length = even_share,            \
     .help = "width of a head; default: hidden_size / heads"},                                    \
    {"rope_theta", WEFT_FIELD_F64, AT(theta), theta_, 1, 1e12,                                    \
     .also = "rope_parameters.rope_theta|rope_scaling.rope_theta",                                \
     .help = "base of the rotary frequencies"},                                                   \
    {"rope_type", WEFT_FIELD_WORD, AT(rope), .words = ropes,                                      \
     .also = "rope_parameters.rope_type|rope_scaling.rope_type|rope_scaling.type",                \
     .object = "rope_scaling", .help = "type of RoPE"},                                           \
    {"factor", WEFT_FIELD_F64, AT(stretch), "null", 1, 1e6, STRETCH("factor"),                    \
     .help = "llama3: divisor of low rotary frequencies"},                                        \
    {"low_freq_factor", WEFT_FIELD_F64, AT(low), "null", 1e-6, 1e6, STRETCH("low_freq_factor"),   \
     .help = "llama3: periods in the original positions up to which frequencies are low"},        \
    {"high_freq_factor", WEFT_FIELD_F64, AT(high), "null", 1e-6, 1e6,                             \
     STRETCH("high_freq_factor"),                                                                 \
     .help = "llama3: periods in the original positions from which frequencies are high"},        \
    {"original_max_position_embeddings", WEFT_FIELD_I64, AT(trained), "null", 1, 1 << 24,         \
     STRETCH("original_max_position_embeddings"),                                                 \
     .help = "llama3: positions before the model was trained for more"},                          \
    {"rms_norm_eps", WEFT_FIELD_F64, AT(eps), eps_, 1e-12, 1, .help = "epsilon of the RMS norms"}, \
    {"hidden_act", WEFT_FIELD_FIXED, .fallback = "\"silu\""},                                     \
    {"attention_bias", WEFT_FIELD_FIXED, .fallback = "false"},                                    \
    {"mlp_bias", WEFT_FIELD_FIXED, .fallback = "false"},                                          \
    {"use_sliding_window", WEFT_FIELD_FIXED, .fallback = "false"},                                \
    {"pad_token_id", WEFT_FIELD_I64, AT(pad), "-1", -1, 1 << 24,                                  \
     .help = "padding token; -1: none"},                                                          \
    {"num_hidden_layers_to_skip", WEFT_FIELD_I64, AT(skipped), skipped_, 0, 1024,                 \
     .help = "last layers that are skipped for the text embedding"},                              \
    {"max_length", WEFT_FIELD_I64, AT(max_length), max_, 1, 1 << 16,                            \
     .help = "tokens that a prompt is padded or truncated to"}

static const weft_field llama_fields[] = {
    FIELDS("32000", "4096", "11008", "32", "32", "=num_attention_heads", "10000", "1e-6", "2",
           "351"),
}, qwen_fields[] = {
    FIELDS("152064", "8192", "29568", "80", "64", "8", "1000000", "1e-5", "2", "351"),
    {"mrope_section", WEFT_FIELD_I64S, AT(section), "[16, 24, 24]", 0, 1 << 12, .capacity = 3,
     .length = axes_of, STRETCH("mrope_section"),
     .help = "rotary frequencies for frames, rows and columns of images"},
}, qwen3_fields[] = {
    FIELDS("151936", "4096", "22016", "32", "32", "32", "10000", "1e-6", "1", "512"),
}, mistral_fields[] = {
    FIELDS("32000", "4096", "14336", "32", "32", "8", "10000", "1e-6", "0", "512"),
};

static const weft_unused_field unused[] = {
    {"image_token_id"},
    {"layer_types", "\"full_attention\"", .each = true},
    {"max_position_embeddings"}, /* training length; rotary positions have no limit */
    {"max_window_layers"},       /* sliding windows, disabled by "use_sliding_window" */
    {"pretraining_tp"},
    {"sliding_window"},
    {"video_token_id"},
    {"vision_end_token_id"},
    {"vision_start_token_id"},
    {"vision_token_id"},
    /* image positions; text positions are equal in all sections */
    {"rope_parameters.mrope_section"},
    {"rope_parameters.partial_rotary_factor", "1"},
    {"rope_scaling.mrope_section"},
    {NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS,      false, "input_ids"},
    {WEFT_PORT_TEXT_MASK,   false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,        true,  "prompt_embeds_uncropped", .target = "target"},
    {WEFT_PORT_LAST_HIDDEN, true,  "last_hidden_state",       .target = "target_last"},
};

static const weft_named_config llama_sizes[] = {
    {"llama3-8b", "{\"vocab_size\": 128320, \"intermediate_size\": 14336,"
                  " \"num_key_value_heads\": 8, \"rope_theta\": 500000, \"rms_norm_eps\": 1e-5}"},
    {"llama3.1-8b", "{\"vocab_size\": 128256, \"intermediate_size\": 14336,"
                    " \"num_key_value_heads\": 8, \"rope_theta\": 500000, \"rms_norm_eps\": 1e-5,"
                    " \"rope_type\": \"llama3\", \"factor\": 8,"
                    " \"low_freq_factor\": 1, \"high_freq_factor\": 4,"
                    " \"original_max_position_embeddings\": 8192}"},
    {NULL, NULL},
}, qwen3_sizes[] = {
    {"qwen3-4b", "{\"hidden_size\": 2560, \"intermediate_size\": 9728,"
                 " \"num_hidden_layers\": 36, \"num_key_value_heads\": 8, \"head_dim\": 128,"
                 " \"rope_theta\": 1000000}"},
    {NULL, NULL},
}, mistral_sizes[] = {
    {"mistral-small-24b", "{\"vocab_size\": 131072, \"hidden_size\": 5120,"
                          " \"intermediate_size\": 32768, \"num_hidden_layers\": 40,"
                          " \"head_dim\": 128, \"rope_theta\": 1000000000,"
                          " \"rms_norm_eps\": 1e-5}"},
    {NULL, NULL},
}, qwen_sizes[] = {
    {"qwen2.5-vl-7b-text", "{\"hidden_size\": 3584, \"intermediate_size\": 18944,"
                           " \"num_hidden_layers\": 28, \"num_attention_heads\": 28,"
                           " \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-6}"},
    {NULL, NULL},
};

static const weft_rename_rule prefix_rules[] = {
    {"language_model.model.", ""}, {"model.language_model.", ""}, {"model.", ""}};
#define DIALECTS(marker)                                                                          \
    {"transformers", "model." marker, prefix_rules, 3},                                           \
    {"transformers", "model.language_model." marker, prefix_rules, 3},                            \
    {"transformers", "language_model.model." marker, prefix_rules, 3},                            \
    {"bare", marker, NULL, 0}
/* Qwen2.5's projections have biases and Qwen3's heads norms: both must precede Llama in the
 * registry. */
static const weft_key_mapping llama_mappings[] = {DIALECTS("layers.0.self_attn.q_proj.weight")},
                          qwen_mappings[] = {DIALECTS("layers.0.self_attn.q_proj.bias")},
                          qwen3_mappings[] = {DIALECTS("layers.0.self_attn.q_norm.weight")},
                          /* the names of Llama */
                          mistral_mappings[] = {DIALECTS("layers.0.self_attn.q_proj.weight")};

#define FAMILY(stem_, class_, type_, ...)                                                         \
    const weft_family weft_family_##stem_ = {                                                     \
        .class_name = class_, .role = WEFT_ROLE_TEXT_ENCODER,                                     \
        .scope = "text_encoder", .stem = "model", .library = "transformers",                      \
        .model_type = type_,                                                                      \
        .config_bytes = sizeof(weft_llama),                                                       \
        .field = stem_##_fields, .fields = sizeof stem_##_fields / sizeof *stem_##_fields,        \
        .check = check, .unused = unused, .sizes = stem_##_sizes,                                 \
        .port = ports, .ports = sizeof ports / sizeof *ports, \
        .shape = weft_text_encoder_shape,                                                         \
        .build = build_##stem_, .text = text_shape,                                               \
        .mapping = stem_##_mappings,                                                              \
        .mappings = sizeof stem_##_mappings / sizeof *stem_##_mappings, __VA_ARGS__               \
    }
FAMILY(llama, "LlamaModel", "llama", );
FAMILY(qwen, "Qwen2_5_VLTextModel", "qwen2_5_vl_text",
       .joint = {"qwen2_5_vl", "text_config", NULL});
FAMILY(qwen3, "Qwen3Model", "qwen3", );
FAMILY(mistral, "MistralModel", "mistral", .joint = {"mistral3", "text_config", NULL});
/* clang-format on */
