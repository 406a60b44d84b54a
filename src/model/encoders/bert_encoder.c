/* BERT's encoder (transformers' BertModel; Hunyuan-DiT's first text encoder). The pooler is not
 * used and is skipped in files that have one.
 *
 *   words + positions + the first token type --> norm
 *                                   --> blocks: attention, add, norm, feed-forward, add, norm
 *
 * Shape letters: B batch, S tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

typedef struct bert {
    int64_t vocabulary, width, inner, layers, heads, positions, kinds;
    double eps;
} bert;
_Static_assert(sizeof(bert) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value project(weft_graph *g, const bert *c, const char *name, weft_value x)
{
    return weft_nn_split_heads(g, weft_nn_linear(g, name, x, c->width, WEFT_LINEAR_XAVIER),
                               c->heads);
}

/* End of a layer: adds its output h to x and normalises the sum. */
static weft_value join(weft_graph *g, const bert *c, weft_value x, weft_value h)
{
    weft_graph_push(g, "output");
    h = weft_nn_linear(g, "dense", h, c->width, WEFT_LINEAR_XAVIER);
    x = weft_nn_layer_norm(g, "LayerNorm", weft_add(g, x, h), c->eps);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const bert *c, int64_t index, weft_value hidden,
                        weft_value x)
{
    weft_graph_push(g, "encoder.layer.%d", (int)index);
    weft_graph_push(g, "attention");
    weft_graph_push(g, "self");
    const weft_value q = project(g, c, "query", x), k = project(g, c, "key", x),
                     v = project(g, c, "value", x);
    weft_graph_pop(g);
    x = join(g, c, x, weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, hidden)));
    weft_graph_pop(g);
    weft_graph_push(g, "intermediate");
    const weft_value inner = weft_nn_linear(g, "dense", x, c->inner, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    x = join(g, c, x, weft_nn_activate(g, WEFT_NN_GELU_ERF, inner));
    weft_graph_pop(g);
    return x;
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const bert *c = config;
    const weft_value tokens_bs = p->at[WEFT_PORT_TOKENS], mask = p->at[WEFT_PORT_TEXT_MASK];
    const int64_t length = weft_dim(g, tokens_bs, 1);
    (void)call;
    if (length > c->positions) {
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " tokens, but the text encoder has %" PRId64 " positions",
                        length, c->positions);
        return;
    }
    const weft_value hidden =
        weft_value_ok(mask) ? weft_nn_hide(g, weft_cast(g, mask, WEFT_F32)) : WEFT_NONE;
    weft_graph_push(g, "embeddings");
    const weft_value words = weft_text_encoder_table(g, "word_embeddings.weight", c->vocabulary,
                                                     c->width),
                     positions = weft_text_encoder_table(g, "position_embeddings.weight",
                                                         c->positions, c->width),
                     kinds = weft_text_encoder_table(g, "token_type_embeddings.weight", c->kinds,
                                                     c->width);
    weft_value x = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){words, tokens_bs}, 2, NULL);
    x = weft_add(g, x, weft_reshape(g, weft_slice(g, kinds, 0, 0, 1), WEFT_SHAPE(1, 1, c->width)));
    x = weft_add(
        g, x,
        weft_reshape(g, weft_slice(g, positions, 0, 0, length), WEFT_SHAPE(1, length, c->width)));
    x = weft_nn_layer_norm(g, "LayerNorm", x, c->eps);
    weft_graph_pop(g);
    for (int64_t i = 0; i < c->layers; i++)
        x = block(g, c, i, hidden, x);
    p->at[WEFT_PORT_TEXT] = x;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const bert *c = config;
    return c->width % c->heads == 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT_FIELD(locations, "hidden_size", c->width),
                            "%" PRId64 " is not a multiple of the %" PRId64 " attention heads",
                            c->width, c->heads);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const bert *c = config;
    *text = (weft_text_shape){.length = c->positions, .width = c->width};
}

/* clang-format off */
#define AT(member) offsetof(bert, member)
static const weft_field fields[] = {
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), "30522", 1, 1 << 24,
     .help = "vocabulary size in tokens"},
    {"hidden_size", WEFT_FIELD_I64, AT(width), "768", 1, 1 << 16, .help = "width"},
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "12", 1, 1024, .help = "blocks"},
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "12", 1, 1024, .help = "attention heads"},
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "3072", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"hidden_act", WEFT_FIELD_FIXED, .fallback = "\"gelu\""},
    {"max_position_embeddings", WEFT_FIELD_I64, AT(positions), "512", 1, 1 << 16,
     .help = "maximum tokens of a prompt"},
    {"type_vocab_size", WEFT_FIELD_I64, AT(kinds), "2", 1, 1 << 16,
     .help = "token types; a prompt has the first"},
    {"layer_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-12", 0, 1,
     .help = "epsilon of the layer norms"},
    {"position_embedding_type", WEFT_FIELD_FIXED, .fallback = "\"absolute\""},
    {"is_decoder", WEFT_FIELD_FIXED, .fallback = "false"},
};

static const weft_unused_field unused[] = {
    {"directionality"},
    {"pooler_fc_size"},
    {"pooler_num_attention_heads"},
    {"pooler_num_fc_layers"},
    {"pooler_size_per_head"},
    {"pooler_type"},
    {NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS,    false, "input_ids"},
    {WEFT_PORT_TEXT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,      true,  "last_hidden_state", .target = "target"},
};

static const weft_named_config sizes[] = {
    {"hunyuan-dit-bert", "{\"vocab_size\": 47020, \"hidden_size\": 1024, \"num_hidden_layers\": 24,"
                         " \"num_attention_heads\": 16, \"intermediate_size\": 4096}"},
    {NULL, NULL},
};

static const weft_rename_rule prefix_rules[] = {{"bert.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "bert.embeddings.word_embeddings.weight", prefix_rules, 1},
    {"bare", "embeddings.word_embeddings.weight", NULL, 0},
};

const weft_family weft_family_bert = {
    .class_name = "BertModel", .role = WEFT_ROLE_TEXT_ENCODER,
    .scope = "text_encoder", .stem = "model", .library = "transformers", .model_type = "bert",
    .config_bytes = sizeof(bert), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports,
    .shape = weft_text_encoder_shape, .build = build, .text = text_shape,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
