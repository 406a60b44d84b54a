/* What a picture shows, as a few tokens beside a prompt's: for videos of the same thing, wherever
 * the picture has it. The autoencoder's latents of the picture are what it sees; queries attend to
 * them without being told places (a resampler), so that what is learnt is the look and not the
 * layout.
 *
 *     latents (B,T,Y,X,Z) --conv_in, conv_out: 3x3 of each frame--> (B,T Y X,D)
 *     queries (K,D) --layers: attend to those and to each other, feed forward--> proj_out, norm_out
 *                                                                         --> tokens (B,K,W)
 *
 * B batch, T pictures, Y,X rows and columns of latents, Z their channels, D own width, K tokens, W
 * the width of the transformer's text. */
#include "model/model.h"
#include "nn/nn.h"

typedef struct identity_encoder {
    int64_t in_channels, text_dim;
    int64_t tokens, dim, heads, layers, ffn_dim;
} identity_encoder;
_Static_assert(sizeof(identity_encoder) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double eps = 1e-6;
static const weft_conv_shape same = {
    .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};

/* What is seen of the pictures, (B,S,D): around each place, but not which place it is. */
static weft_value see(weft_graph *g, const identity_encoder *c, weft_value x)
{
    x = weft_nn_conv(g, "conv_in", x, c->dim, same, true);
    x = weft_nn_conv(g, "conv_out", weft_unary(g, WEFT_OP_SILU, x), c->dim, same, true);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t *d = weft_value_get(g, x)->shape.dim;
    x = weft_reshape(g, x, WEFT_SHAPE(d[0], d[1] * d[2] * d[3], c->dim));
    return weft_nn_layer_norm(g, "norm_in", x, eps);
}

/* The queries, of every sample (B,K,D). */
static weft_value ask(weft_graph *g, const identity_encoder *c, weft_value x_bsc)
{
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0};
    const int64_t batch = weft_dim(g, x_bsc, 0);
    weft_value q = weft_param(g, "queries", WEFT_F32, WEFT_SHAPE(c->tokens, c->dim), init);
    q = weft_reshape(g, q, WEFT_SHAPE(1, c->tokens, c->dim));
    return weft_broadcast(g, q, WEFT_SHAPE(batch, c->tokens, c->dim));
}

static weft_value layer(weft_graph *g, const identity_encoder *c, weft_value x_bsc,
                        weft_value q_bkc)
{
    const weft_value h = weft_nn_layer_norm(g, "norm1", q_bkc, eps);
    const weft_value both = weft_concat(g, (weft_value[]){x_bsc, h}, 2, 1);
    const weft_value q = weft_nn_linear(g, "to_q", h, c->dim, WEFT_LINEAR_XAVIER),
                     k = weft_nn_linear(g, "to_k", both, c->dim, WEFT_LINEAR_XAVIER),
                     v = weft_nn_linear(g, "to_v", both, c->dim, WEFT_LINEAR_XAVIER);
    q_bkc = weft_add(g, q_bkc,
                     weft_nn_linear(g, "to_out", weft_nn_attention(g, q, k, v, c->heads, NULL),
                                    c->dim, WEFT_LINEAR_XAVIER));
    const weft_value f = weft_nn_feed_forward(g, "ff", weft_nn_layer_norm(g, "norm2", q_bkc, eps),
                                              c->ffn_dim, WEFT_NN_GELU_TANH);
    return weft_add(g, q_bkc, f);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    const identity_encoder *c = config;
    const weft_value x = see(g, c, ports->at[WEFT_PORT_CONDITION]);
    if (!weft_value_ok(x))
        return;
    weft_value q = ask(g, c, x);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "layers.%d", (int)i);
        q = layer(g, c, x, q);
        weft_graph_pop(g);
    }
    q = weft_nn_linear(g, "proj_out", q, c->text_dim, WEFT_LINEAR_XAVIER);
    ports->at[WEFT_PORT_IMAGE] = weft_nn_layer_norm(g, "norm_out", q, eps);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_places *places)
{
    const identity_encoder *c = config;
    if (c->dim % c->heads)
        return weft_fail(WEFT_E_FORMAT, "%s: \"dim\" %lld does not divide into \"num_heads\" %lld",
                         weft_places_of(places, "dim"), (long long)c->dim, (long long)c->heads);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *size, weft_port port)
{
    const identity_encoder *c = config;
    if (port == WEFT_PORT_CONDITION)
        return WEFT_SHAPE(size->batch, size->frames, size->height, size->width, c->in_channels);
    return port == WEFT_PORT_IMAGE ? WEFT_SHAPE(size->batch, c->tokens, c->text_dim) : WEFT_SCALAR;
}

static int64_t four_dims(const void *config)
{
    return 4 * ((const identity_encoder *)config)->dim;
}

/* clang-format off */
#define AT(member) offsetof(identity_encoder, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, WEFT_MAX_CHANNELS,
     .follows = WEFT_FOLLOWS_LATENTS, .help = "of the autoencoder's latents"},
    {"text_dim", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,
     .follows = WEFT_FOLLOWS_TEXT, .help = "width of the text that its tokens go beside"},
    {"num_tokens", WEFT_FIELD_I64, AT(tokens), "4", 1, 4096,
     .help = "beside those of the text"},
    {"dim", WEFT_FIELD_I64, AT(dim), "128", 1, 1 << 16, .help = "width"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "4", 1, 1024, .help = "attention heads"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "2", 1, 1024, .help = "blocks"},
    {"ffn_dim", WEFT_FIELD_I64, AT(ffn_dim), NULL, 1, 1 << 20, .length = four_dims,
     .help = "inner width of the feed-forward layer; left out: 4 dim"},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_CONDITION, false, "latents"},
    {WEFT_PORT_IMAGE,     true,  "tokens"},
};

static const weft_dialect dialects[] = {
    {"weft", "queries", NULL, 0},
};

const weft_family weft_family_identity_encoder = {
    .class_name = "WeftIdentityEncoder", .role = WEFT_ROLE_IDENTITY_ENCODER,
    .scope = "identity", .stem = "model", .library = "weft",
    .config_bytes = sizeof(identity_encoder),
    .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .dialect = dialects, .dialects = sizeof dialects / sizeof *dialects,
};
/* clang-format on */
