/* SigLIP's image encoder (transformers' SiglipVisionModel). Parameters have the names of the class.
 * Published files put "vision_model." before the names, which is a key mapping here.
 *
 *   patches + positions --> blocks: norm, attention, add, norm, feed-forward, add --> norm
 *   learned query --> attention over all patches --> + feed-forward of its norm: the pooled vector
 *
 * A class token is not added. Pixels after the last complete patch of a row or column have no
 * effect. Shape letters: B batch, S tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/text_encoder.h"
#include "model/model.h"
#include "nn/nn.h"

typedef struct siglip {
    int64_t width, inner, layers, heads;
    int64_t image, patch; /* sides in pixels */
    double eps;
    bool head; /* has the pooled vector */
} siglip;
_Static_assert(sizeof(siglip) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value project(weft_graph *g, const siglip *c, const char *name, weft_value x)
{
    return weft_nn_split_heads(g, weft_nn_linear(g, name, x, c->width, WEFT_LINEAR_XAVIER),
                               c->heads);
}

static weft_value feed_forward(weft_graph *g, const siglip *c, weft_value x)
{
    weft_graph_push(g, "mlp");
    x = weft_nn_activate(g, WEFT_NN_GELU_TANH,
                         weft_nn_linear(g, "fc1", x, c->inner, WEFT_LINEAR_XAVIER));
    x = weft_nn_linear(g, "fc2", x, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const siglip *c, int64_t index, weft_value x)
{
    weft_graph_push(g, "encoder.layers.%d", (int)index);
    weft_value h = weft_nn_layer_norm(g, "layer_norm1", x, c->eps);
    weft_graph_push(g, "self_attn");
    const weft_value q = project(g, c, "q_proj", h), k = project(g, c, "k_proj", h),
                     v = project(g, c, "v_proj", h);
    h = weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
    h = weft_nn_linear(g, "out_proj", h, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    x = weft_add(g, x, h);
    x = weft_add(g, x, feed_forward(g, c, weft_nn_layer_norm(g, "layer_norm2", x, c->eps)));
    weft_graph_pop(g);
    return x;
}

/* Part 0, 1 or 2 (queries, keys, values) of the fused layer of the pooling attention. */
static weft_value in_part(weft_graph *g, const siglip *c, weft_value weight, weft_value bias,
                          int64_t part, weft_value x)
{
    const weft_value rows = weft_slice(g, weight, 0, part * c->width, c->width),
                     shift = weft_slice(g, bias, 0, part * c->width, c->width);
    x = weft_matmul(g, x, rows, false, true);
    return weft_nn_split_heads(
        g, weft_add(g, x, weft_reshape(g, shift, WEFT_SHAPE(1, 1, c->width))), c->heads);
}

/* x (B,S,C) -> the pooled vector (B,C) */
static weft_value pool(weft_graph *g, const siglip *c, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), width = c->width;
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02},
                    zero = {.kind = WEFT_INIT_ZERO};
    weft_graph_push(g, "head");
    const weft_value probe =
        weft_broadcast(g, weft_param(g, "probe", WEFT_F32, WEFT_SHAPE(1, 1, width), small),
                       WEFT_SHAPE(batch, 1, width));
    weft_graph_push(g, "attention");
    const weft_value weight = weft_param(g, "in_proj_weight", WEFT_F32,
                                         WEFT_SHAPE(3 * width, width), small),
                     bias = weft_param(g, "in_proj_bias", WEFT_F32, WEFT_SHAPE(3 * width), zero);
    weft_value h =
        weft_nn_attend(g, in_part(g, c, weight, bias, 0, probe), in_part(g, c, weight, bias, 1, x),
                       in_part(g, c, weight, bias, 2, x), WEFT_NONE);
    h = weft_nn_linear(g, "out_proj", weft_nn_join_heads(g, h), width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    h = weft_add(g, h, feed_forward(g, c, weft_nn_layer_norm(g, "layernorm", h, c->eps)));
    weft_graph_pop(g);
    return weft_reshape(g, h, WEFT_SHAPE(batch, width));
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const siglip *c = config;
    const int64_t side = c->image / c->patch, patch[3] = {1, c->patch, c->patch};
    weft_value video = p->at[WEFT_PORT_VIDEO];
    (void)call;
    for (int dim = 2; dim < 4; dim++)
        if (side * c->patch < c->image)
            video = weft_slice(g, video, dim, 0, side * c->patch);
    weft_graph_push(g, "embeddings");
    weft_value x = weft_nn_patch(g, "patch_embedding", video, c->width, patch, WEFT_PATCH_2D, true);
    const weft_value positions =
        weft_text_encoder_table(g, "position_embedding.weight", side * side, c->width);
    weft_graph_pop(g);
    x = weft_add(g, x, weft_reshape(g, positions, WEFT_SHAPE(1, side * side, c->width)));
    for (int64_t i = 0; i < c->layers; i++)
        x = block(g, c, i, x);
    p->at[WEFT_PORT_IMAGE] = weft_nn_layer_norm(g, "post_layernorm", x, c->eps);
    if (c->head)
        p->at[WEFT_PORT_POOLED] = pool(g, c, p->at[WEFT_PORT_IMAGE]);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const siglip *c = config;
    if (c->width % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not a multiple of the %" PRId64 " attention heads",
                          c->width, c->heads);
    if (c->image < c->patch)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "image_size", c->image),
                          "an image of %" PRId64 " pixels has no complete patch of %" PRId64
                          " pixels",
                          c->image, c->patch);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const siglip *c = config;
    return port == WEFT_PORT_VIDEO ? WEFT_SHAPE(s->batch, 1, c->image, c->image, 3) : WEFT_SCALAR;
}

/* clang-format off */
#define AT(member) offsetof(siglip, member)
static const weft_field fields[] = {
    {"hidden_size", WEFT_FIELD_I64, AT(width), "768", 1, 1 << 16, .help = "width"},
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "3072", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "12", 1, 1024, .help = "blocks"},
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "12", 1, 1024, .help = "attention heads"},
    {"hidden_act", WEFT_FIELD_FIXED, .fallback = "\"gelu_pytorch_tanh\""},
    {"layer_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1,
     .help = "epsilon of the layer norms"},
    {"image_size", WEFT_FIELD_I64, AT(image), "224", 1, 1 << 14, .help = "side of the image"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "16", 1, 1 << 14, .help = "side of a patch"},
    {"num_channels", WEFT_FIELD_FIXED, .fallback = "3"},
    {"vision_use_head", WEFT_FIELD_BOOL, AT(head), "true",
     .help = "pools all patches to one vector"},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO,  false, "pixel_values"},
    {WEFT_PORT_IMAGE,  true,  "last_hidden_state", .target = "target"},
    {WEFT_PORT_POOLED, true,  "pooler_output",     .target = "target_pooled"},
};

static const weft_named_config sizes[] = {
    {"siglip-so400m-vision", "{\"hidden_size\": 1152, \"intermediate_size\": 4304,"
                             " \"num_hidden_layers\": 27, \"num_attention_heads\": 16,"
                             " \"image_size\": 384, \"patch_size\": 14}"},
    {NULL, NULL},
};

/* Next to a text encoder it has "vision_tower." in the names. */
static const weft_rename_rule prefix_rules[] = {{"vision_tower.", ""}, {"vision_model.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "vision_model.embeddings.patch_embedding.bias", prefix_rules, 2},
    {"transformers", "vision_tower.embeddings.patch_embedding.bias", prefix_rules, 2},
    {"transformers", "vision_tower.vision_model.embeddings.patch_embedding.bias", prefix_rules, 2},
    {"bare", "embeddings.patch_embedding.bias", NULL, 0},
};

const weft_family weft_family_siglip_vision = {
    .class_name = "SiglipVisionModel", .role = WEFT_ROLE_IMAGE_ENCODER,
    .scope = "image_encoder", .stem = "model", .library = "transformers",
    .model_type = "siglip_vision_model",
    .joint = {"siglip|t5gemma2_encoder", "vision_config", NULL},
    .config_bytes = sizeof(siglip), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
