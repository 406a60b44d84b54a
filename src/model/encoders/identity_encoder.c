/* Identity encoder: encodes images of one subject as a few tokens next to the text tokens.
 * Videos of the same subject share the tokens, independent of its position in the image. Queries
 * attend to the features without positions (a resampler), so that they learn the appearance and not
 * the layout. Each image has its own tokens, in the order of the images.
 *
 *     latents (B,T,Y,X,C) --conv_in, conv_out: 3x3 of each image--> (B T,Y X,D)
 *     patches (B,T,1,P,C) --proj_in-------------------------------> (B T,P,D)
 *     queries (K,D) --layers: attend to features and queries, feed forward--> proj_out, norm_out
 *                                                                         --> tokens (B,T K,W)
 *     embedding (B,T,1,1,C) --proj_embedding--> (B T,K W) --> norm_out --> tokens (B,T K,W)
 *
 * Latents are the autoencoder's. Patches are a CLIP encoder's second-to-last hidden states with the
 * class token. The embedding is its last state of the class token, projected if the encoder has a
 * projection.
 * B batch, T images, Y,X rows and columns of latents. P patches and the class token, C channels of
 * the features, D encoder width. K tokens of an image, W width of the transformer's text. */
#include "model/encoders/identity_encoder.h"
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

typedef struct identity_encoder {
    int64_t in_channels, text_dim;
    int64_t tokens, dim, heads, layers, ffn_dim;
    int64_t features; /* weft_identity_features */
    int64_t images;   /* maximum images of a sample */
} identity_encoder;
_Static_assert(sizeof(identity_encoder) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double eps = 1e-6;
static const weft_conv_shape same = {
    .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};

/* The images (B,T,Y,X,C) as samples of their own (B T,1,Y,X,C). */
static weft_value apart(weft_graph *g, weft_value x)
{
    const int64_t *d = weft_value_get(g, x)->shape.dim;
    return d[1] == 1 ? x : weft_reshape(g, x, WEFT_SHAPE(d[0] * d[1], 1, d[2], d[3], d[4]));
}

/* Features of the images (B,S,D): the neighbourhood of each position, without the position
 * itself. */
static weft_value see(weft_graph *g, const identity_encoder *c, weft_value x)
{
    if (c->features == WEFT_IDENTITY_LATENTS) {
        x = weft_nn_conv(g, "conv_in", x, c->dim, same, true);
        x = weft_nn_conv(g, "conv_out", weft_unary(g, WEFT_OP_SILU, x), c->dim, same, true);
    } else {
        x = weft_nn_linear(g, "proj_in", x, c->dim, WEFT_LINEAR_XAVIER);
    }
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t *d = weft_value_get(g, x)->shape.dim;
    x = weft_reshape(g, x, WEFT_SHAPE(d[0], d[1] * d[2] * d[3], c->dim));
    return weft_nn_layer_norm(g, "norm_in", x, eps);
}

/* Queries repeated for every sample: (B,K,D). */
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

/* Tokens (B,K,W) of features (B,T,Y,X,C). */
static weft_value resample(weft_graph *g, const identity_encoder *c, weft_value x)
{
    x = see(g, c, x);
    if (!weft_value_ok(x))
        return WEFT_NONE;
    weft_value q = ask(g, c, x);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "layers.%d", (int)i);
        q = layer(g, c, x, q);
        weft_graph_pop(g);
    }
    return weft_nn_linear(g, "proj_out", q, c->text_dim, WEFT_LINEAR_XAVIER);
}

/* Tokens (B,K,W) of vectors (B,1,1,1,C). */
static weft_value project(weft_graph *g, const identity_encoder *c, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0);
    x = weft_nn_linear(g, "proj_embedding", x, c->tokens * c->text_dim, WEFT_LINEAR_XAVIER);
    return weft_reshape(g, x, WEFT_SHAPE(batch, c->tokens, c->text_dim));
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    const identity_encoder *c = config;
    const weft_value images = ports->at[WEFT_PORT_CONDITION];
    if (!weft_value_ok(images))
        return;
    const int64_t batch = weft_dim(g, images, 0), count = weft_dim(g, images, 1);
    weft_value x = apart(g, images);
    x = c->features == WEFT_IDENTITY_EMBEDDING ? project(g, c, x) : resample(g, c, x);
    if (!weft_value_ok(x))
        return;
    x = weft_nn_layer_norm(g, "norm_out", x, eps);
    ports->at[WEFT_PORT_IMAGE] =
        count == 1 ? x : weft_reshape(g, x, WEFT_SHAPE(batch, count * c->tokens, c->text_dim));
}

weft_identity_features weft_identity_encoder_features(const weft_model *model)
{
    return (weft_identity_features)((const identity_encoder *)model->config)->features;
}

int64_t weft_identity_encoder_images(const weft_model *model)
{
    return ((const identity_encoder *)model->config)->images;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const identity_encoder *c = config;
    if (c->dim % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "dim", c->dim),
                          "%" PRId64 " is not a multiple of \"num_heads\" %" PRId64, c->dim,
                          c->heads);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *size, weft_port port)
{
    const identity_encoder *c = config;
    if (port == WEFT_PORT_CONDITION)
        return WEFT_SHAPE(size->batch, size->frames, size->height, size->width, c->in_channels);
    return port == WEFT_PORT_IMAGE ? WEFT_SHAPE(size->batch, size->frames * c->tokens, c->text_dim)
                                   : WEFT_SCALAR;
}

static int64_t four_dims(const void *config)
{
    return 4 * ((const identity_encoder *)config)->dim;
}

/* clang-format off */
#define AT(member) offsetof(identity_encoder, member)
static const char *const features[] = {"\"latents\"", "\"patches\"", "\"embedding\"", NULL};
static const weft_field fields[] = {
    {"features", WEFT_FIELD_WORD, AT(features), .words = features,
     .help = "features of an image: the autoencoder's latents, or of identity.image_encoder the "
             "second-to-last hidden states (patches, the default with image_encoder) or the "
             "projected vector (embedding)"},
    {"num_images", WEFT_FIELD_I64, AT(images), "1", 1, WEFT_IDENTITY_MOST_IMAGES,
     .help = "maximum images of a sample, each with its own tokens; default: the number of "
             "identity.images"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS,
     .help = "channels of the features: the autoencoder's latents, or the image encoder's width"},
    {"text_dim", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT,
     .help = "width of the text embeddings, and of the identity tokens"},
    {"num_tokens", WEFT_FIELD_I64, AT(tokens), "4", 1, 4096,
     .help = "identity tokens of an image, in addition to the text tokens"},
    {"dim", WEFT_FIELD_I64, AT(dim), "128", 1, 1 << 16, .help = "width"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "4", 1, 1024, .help = "attention heads"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "2", 1, 1024,
     .help = "blocks; dim, num_heads, num_layers and ffn_dim have no effect on an embedding"},
    {"ffn_dim", WEFT_FIELD_I64, AT(ffn_dim), NULL, 1, 1 << 20, .length = four_dims,
     .help = "inner width of the feed-forward layer; default: 4 dim"},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_CONDITION, false, "latents"},
    {WEFT_PORT_IMAGE,     true,  "tokens"},
};

static const weft_key_mapping mappings[] = {
    {"weft", "queries", NULL, 0},
    {"weft", "proj_embedding.weight", NULL, 0},
};

const weft_family weft_family_identity_encoder = {
    .class_name = "WeftIdentityEncoder", .role = WEFT_ROLE_IDENTITY_ENCODER,
    .scope = "identity", .stem = "model", .library = "weft",
    .config_bytes = sizeof(identity_encoder),
    .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
