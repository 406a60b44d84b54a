/* A small byte-level transformer text encoder, trained together with the denoiser, for machines
 * without pretrained weights. Tokens are the UTF-8 bytes of the caption. 256 is the end token, 257
 * is padding. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <string.h>

enum { END = 256, PAD = 257, VOCABULARY = 258 };

typedef struct bytes_encoder {
    int64_t dim, heads, layers, ffn_dim;
    int64_t max_length; /* L: tokens per caption; longer ones are truncated */
} bytes_encoder;
_Static_assert(sizeof(bytes_encoder) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value layer(weft_graph *g, const bytes_encoder *c, weft_value x_blc)
{
    weft_value h = weft_nn_layer_norm(g, "norm1", x_blc, 1e-6);
    const weft_value q = weft_nn_linear(g, "to_q", h, c->dim, WEFT_LINEAR_XAVIER);
    const weft_value k = weft_nn_linear(g, "to_k", h, c->dim, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", h, c->dim, WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "to_out", weft_nn_attention(g, q, k, v, c->heads, NULL), c->dim,
                       WEFT_LINEAR_XAVIER);
    x_blc = weft_add(g, x_blc, h);
    h = weft_nn_linear(g, "fc1", weft_nn_layer_norm(g, "norm2", x_blc, 1e-6), c->ffn_dim,
                       WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "fc2", weft_gelu_tanh(g, h), c->dim, WEFT_LINEAR_XAVIER);
    return weft_add(g, x_blc, h);
}

/* tokens i32 (B,L) -> (B,L,dim). */
static weft_value encode(weft_graph *g, const bytes_encoder *c, weft_value tokens_bl)
{
    const int64_t length = weft_dim(g, tokens_bl, 1);
    if (length > c->max_length)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "%" PRId64 " tokens, but the text encoder has %" PRId64 " positions",
                               length, c->max_length);
    const weft_init normal = {.kind = WEFT_INIT_NORMAL, .value = 1.0};
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.5};
    const weft_value table =
        weft_param(g, "embed.weight", WEFT_F32, WEFT_SHAPE(VOCABULARY, c->dim), normal);
    weft_value position =
        weft_param(g, "position.weight", WEFT_F32, WEFT_SHAPE(c->max_length, c->dim), small);
    position =
        weft_reshape(g, weft_slice(g, position, 0, 0, length), WEFT_SHAPE(1, length, c->dim));
    weft_value x = weft_add(
        g, weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, tokens_bl}, 2, NULL), position);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "layers.%d", (int)i);
        x = layer(g, c, x);
        weft_graph_pop(g);
    }
    return weft_nn_layer_norm(g, "norm", x, 1e-6);
}

/* ---- the family ----------------------------------------------------------------------------- */

static void fill_tokens(const void *config, const char *caption, int32_t *tokens)
{
    const bytes_encoder *c = config;
    int64_t n = (int64_t)strlen(caption);
    if (n > c->max_length - 1)
        n = c->max_length - 1;
    for (int64_t i = 0; i < c->max_length; i++)
        tokens[i] = i < n ? (int32_t)(unsigned char)caption[i] : i == n ? END : PAD;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const bytes_encoder *c = config;
    if (c->dim % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "dim", c->dim),
                          "%" PRId64 " is not a multiple of \"num_heads\" %" PRId64, c->dim,
                          c->heads);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *size, weft_port port)
{
    (void)config;
    return port == WEFT_PORT_TOKENS ? WEFT_SHAPE(size->batch, size->text) : WEFT_SCALAR;
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    const bytes_encoder *c = config;
    const weft_value text = encode(g, c, ports->at[WEFT_PORT_TOKENS]);
    ports->at[WEFT_PORT_TEXT] = text;
    if (weft_value_ok(text)) /* mean over all positions, with padding, as trained */
        ports->at[WEFT_PORT_POOLED] =
            weft_reshape(g, weft_mean(g, text, 1u << 1), WEFT_SHAPE(weft_dim(g, text, 0), c->dim));
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const bytes_encoder *c = config;
    *text = (weft_text_shape){c->max_length, c->dim, c->max_length - 1, c->dim};
}

static int64_t four_dims(const void *config)
{
    return 4 * ((const bytes_encoder *)config)->dim;
}

/* clang-format off */
#define AT(member) offsetof(bytes_encoder, member)
static const weft_field fields[] = {
    {"dim", WEFT_FIELD_I64, AT(dim), "128", 1, 1 << 16,
     .help = "width; also the transformer's text_dim"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "4", 1, 1024, .help = "attention heads"},
    WEFT_BLOCKS_FIELD(AT(layers), "2"),
    {"ffn_dim", WEFT_FIELD_I64, AT(ffn_dim), NULL, 1, 1 << 20, .length = four_dims,
     .help = "inner width of the feed-forward layer; default: 4 dim"},
    {"max_length", WEFT_FIELD_I64, AT(max_length), "64", 1, 1 << 16,
     .help = "maximum bytes of a caption plus 1; longer captions are truncated"},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS, false, "input_ids"},
    {WEFT_PORT_TEXT,   true,  "last_hidden_state"},
    {WEFT_PORT_POOLED, true,  "pooled", .optional = true},
};

static const weft_key_mapping mappings[] = {
    {"weft", "position.weight", NULL, 0},
};

const weft_family weft_family_bytes_encoder = {
    .class_name = "WeftBytesEncoder", .role = WEFT_ROLE_TEXT_ENCODER,
    .scope = "text_encoder", .stem = "model", .library = "weft",
    .config_bytes = sizeof(bytes_encoder),
    .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .text = text_shape, .tokens = fill_tokens,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
