/* Vision transformer (transformers' ViTModel), as DINO trains it without labels. Its vector of the
 * class token describes what an image shows. The pooler is not used and is skipped in files that
 * have one.
 *
 *   patches + positions --> blocks: norm, attention, add, norm, feed-forward, add --> norm
 *
 * Images of another size than the config's have interpolated positions, as in DINO's own
 * code. Pixels on the right and at the bottom that do not fill a patch are not used.
 *
 * Shape letters: B batch, S tokens, C width. */
#include "base/interpolation.h"
#include "base/memory.h"
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

typedef struct vit {
    int64_t width, inner, layers, heads;
    int64_t image, patch; /* sides in pixels */
    double eps;
    bool qkv_bias;
} vit;
_Static_assert(sizeof(vit) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value project(weft_graph *g, const vit *c, const char *name, weft_value x)
{
    const weft_value y = c->qkv_bias ? weft_nn_linear(g, name, x, c->width, WEFT_LINEAR_XAVIER)
                                     : weft_nn_linear_plain(g, name, x, c->width);
    return weft_nn_split_heads(g, y, c->heads);
}

static weft_value dense(weft_graph *g, const char *scope, weft_value x, int64_t width)
{
    weft_graph_push(g, "%s", scope);
    x = weft_nn_linear(g, "dense", x, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const vit *c, int64_t index, weft_value x)
{
    weft_graph_push(g, "encoder.layer.%d", (int)index);
    weft_value h = weft_nn_layer_norm(g, "layernorm_before", x, c->eps);
    weft_graph_push(g, "attention");
    weft_graph_push(g, "attention");
    const weft_value q = project(g, c, "query", h), k = project(g, c, "key", h),
                     v = project(g, c, "value", h);
    weft_graph_pop(g);
    h = weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
    x = weft_add(g, x, dense(g, "output", h, c->width));
    weft_graph_pop(g);
    h = weft_nn_layer_norm(g, "layernorm_after", x, c->eps);
    h = weft_nn_activate(g, WEFT_NN_GELU_ERF, dense(g, "intermediate", h, c->inner));
    x = weft_add(g, x, dense(g, "output", h, c->width));
    weft_graph_pop(g);
    return x;
}

static weft_value table(weft_graph *g, const char *name, int64_t rows, int64_t width)
{
    const weft_value stored = weft_param(g, name, WEFT_F32, WEFT_SHAPE(1, rows, width),
                                         (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
    return weft_cast(g, stored, WEFT_F32); /* files may have bf16 */
}

/* Weights of side x side positions for each of rows x columns positions. DINO scales to
 * rows + 0.1 and columns + 0.1, which avoids a last row or column that is lost by rounding. */
static weft_value position_weights(weft_graph *g, int64_t side, int64_t rows, int64_t columns)
{
    float *weight = weft_alloc(rows * columns * side * side * (int64_t)sizeof *weight);
    if (!weight)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    const double base = (double)side;
    const float down = (float)(1 / (((double)rows + 0.1) / base)),
                across = (float)(1 / (((double)columns + 0.1) / base));
    for (int64_t i = 0; i < rows * columns; i++) {
        const weft_neighbours y = weft_neighbours_cubic(down, i / columns, side),
                              x = weft_neighbours_cubic(across, i % columns, side);
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++)
                weight[(i * side + y.at[j]) * side + x.at[k]] += y.weight[j] * x.weight[k];
    }
    const weft_value made =
        weft_constant(g, WEFT_F32, WEFT_SHAPE(1, rows * columns, side * side), weight);
    weft_free(weight);
    return made;
}

/* Positions of the class token and of the patches of an image of height x width pixels. */
static weft_value positions_of(weft_graph *g, const vit *c, int64_t height, int64_t width)
{
    const int64_t side = c->image / c->patch, rows = height / c->patch, columns = width / c->patch;
    const weft_value all = table(g, "position_embeddings", side * side + 1, c->width);
    if (rows * columns == side * side && height == width)
        return all;
    const weft_value weights = position_weights(g, side, rows, columns);
    const weft_value fitted =
        weft_matmul(g, weights, weft_slice(g, all, 1, 1, side * side), false, false);
    return weft_concat(g, (weft_value[]){weft_slice(g, all, 1, 0, 1), fitted}, 2, 1);
}

/* The part of a video dim that whole patches fill. */
static weft_value trim(weft_graph *g, weft_value video, int dim, int64_t patch)
{
    const int64_t length = weft_dim(g, video, dim);
    return length % patch ? weft_slice(g, video, dim, 0, length / patch * patch) : video;
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const vit *c = config;
    const weft_value video = p->at[WEFT_PORT_VIDEO];
    const int64_t batch = weft_dim(g, video, 0), patch[3] = {1, c->patch, c->patch};
    (void)call;
    weft_graph_push(g, "embeddings");
    const weft_value of_class = table(g, "cls_token", 1, c->width),
                     positions = positions_of(g, c, weft_dim(g, video, 2), weft_dim(g, video, 3));
    weft_graph_push(g, "patch_embeddings");
    const weft_value patches =
        weft_nn_patch(g, "projection", trim(g, trim(g, video, 2, c->patch), 3, c->patch), c->width,
                      patch, WEFT_PATCH_2D, true);
    weft_graph_pop(g);
    weft_graph_pop(g);
    const weft_value front = weft_broadcast(g, of_class, WEFT_SHAPE(batch, 1, c->width));
    weft_value x = weft_concat(g, (weft_value[]){front, patches}, 2, 1);
    x = weft_add(g, x, positions);
    for (int64_t i = 0; i < c->layers; i++)
        x = block(g, c, i, x);
    x = weft_nn_layer_norm(g, "layernorm", x, c->eps);
    p->at[WEFT_PORT_IMAGE] = x;
    p->at[WEFT_PORT_POOLED] =
        weft_reshape(g, weft_slice(g, x, 1, 0, 1), WEFT_SHAPE(batch, c->width));
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const vit *c = config;
    if (c->width % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not a multiple of the %" PRId64 " attention heads",
                          c->width, c->heads);
    if (c->image % c->patch)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "image_size", c->image),
                          "%" PRId64 " is not a multiple of \"patch_size\" %" PRId64, c->image,
                          c->patch);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const vit *c = config;
    return port == WEFT_PORT_VIDEO ? WEFT_SHAPE(s->batch, 1, c->image, c->image, 3) : WEFT_SCALAR;
}

/* clang-format off */
#define AT(member) offsetof(vit, member)
static const weft_field fields[] = {
    {"hidden_size", WEFT_FIELD_I64, AT(width), "768", 1, 1 << 16, .help = "width"},
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "12", 1, 1024, .help = "blocks"},
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "12", 1, 1024, .help = "attention heads"},
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "3072", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"hidden_act", WEFT_FIELD_FIXED, .fallback = "\"gelu\""},
    {"layer_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-12", 0, 1,
     .help = "epsilon of the layer norms"},
    {"image_size", WEFT_FIELD_I64, AT(image), "224", 1, 1 << 14, .help = "side of the image"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "16", 1, 1 << 14, .help = "side of a patch"},
    {"num_channels", WEFT_FIELD_FIXED, .fallback = "3"},
    {"qkv_bias", WEFT_FIELD_BOOL, AT(qkv_bias), "true",
     .help = "queries, keys and values have a bias"},
};

static const weft_unused_field unused[] = {
    {"encoder_stride"}, /* of pretraining with masks */
    {"pooler_act"},
    {"pooler_output_size"},
    {NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO,  false, "pixel_values"},
    {WEFT_PORT_IMAGE,  true,  "last_hidden_state", .target = "target"},
    {WEFT_PORT_POOLED, true,  "class_token",       .target = "target_pooled"},
};

static const weft_named_config sizes[] = {
    {"dino-vitb16", "{}"},
    {"dino-vits16", "{\"hidden_size\": 384, \"num_attention_heads\": 6,"
                    " \"intermediate_size\": 1536}"},
    {NULL, NULL},
};

static const weft_rename_rule prefix_rules[] = {{"vit.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "vit.embeddings.cls_token", prefix_rules, 1},
    {"bare", "embeddings.cls_token", NULL, 0},
};

const weft_family weft_family_vit = {
    .class_name = "ViTModel", .role = WEFT_ROLE_IMAGE_ENCODER,
    .scope = "image_encoder", .stem = "model", .library = "transformers", .model_type = "vit",
    .config_bytes = sizeof(vit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
