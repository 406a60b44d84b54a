/* CLIP's text and image encoders (transformers' CLIPTextModel and CLIPVisionModel, each also with a
 * projection of the pooled vector). Parameters have the names of the classes. Published files put
 * "text_model." or "vision_model." before the names, which is a key mapping here.
 *
 *   tokens or patches + positions --> blocks: norm, attention, norm, feed-forward --> norm
 *
 * Shape letters: B batch, S tokens, C width. */
#include "model/encoders/clip_encoder.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

#include <string.h>

/* Older configs give 2 as the end token and mean the token with the highest id. */
enum { LEGACY_END = 2 };

static weft_value activate(weft_graph *g, const weft_clip_config *c, weft_value x)
{
    if (c->exact)
        return weft_nn_activate(g, WEFT_NN_GELU_ERF, x);
    return weft_mul(g, x, weft_unary(g, WEFT_OP_SIGMOID, weft_affine(g, x, 1.702, 0)));
}

static weft_value project(weft_graph *g, const weft_clip_config *c, const char *name, weft_value h)
{
    return weft_nn_split_heads(g, weft_nn_linear(g, name, h, c->width, WEFT_LINEAR_XAVIER),
                               c->heads);
}

/* `hidden`: bias of the keys (B,S), or WEFT_NONE. */
static weft_value block(weft_graph *g, const weft_clip_config *c, bool causal, int64_t index,
                        weft_value x, weft_value hidden)
{
    weft_graph_push(g, "encoder.layers.%d", (int)index);
    weft_value h = weft_nn_layer_norm(g, "layer_norm1", x, c->eps);
    weft_graph_push(g, "self_attn");
    const weft_value q = project(g, c, "q_proj", h), k = project(g, c, "k_proj", h),
                     v = project(g, c, "v_proj", h);
    h = causal ? weft_nn_attend_back(g, q, k, v, hidden) : weft_nn_attend(g, q, k, v, hidden);
    h = weft_nn_linear(g, "out_proj", weft_nn_join_heads(g, h), c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    x = weft_add(g, x, h);
    h = weft_nn_layer_norm(g, "layer_norm2", x, c->eps);
    weft_graph_push(g, "mlp");
    h = activate(g, c, weft_nn_linear(g, "fc1", h, c->inner, WEFT_LINEAR_XAVIER));
    h = weft_nn_linear(g, "fc2", h, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    weft_graph_pop(g);
    return weft_add(g, x, h);
}

/* ---- text ----------------------------------------------------------------------------------- */

/* (B,S): 1 where a token is an end token. */
static weft_value ends(weft_graph *g, const weft_clip_config *c, weft_value tokens_bs)
{
    const int64_t batch = weft_dim(g, tokens_bs, 0), length = weft_dim(g, tokens_bs, 1);
    const weft_value id = weft_cast(g, tokens_bs, WEFT_F32);
    if (c->end != LEGACY_END) {
        const weft_value other =
            weft_unary(g, WEFT_OP_SQUARE, weft_affine(g, id, 1, -(double)c->end));
        return weft_affine(g, weft_clamp(g, other, 0, 1), -1, 1);
    }
    const weft_value higher = weft_sub(g, weft_reshape(g, id, WEFT_SHAPE(batch, 1, length)),
                                       weft_reshape(g, id, WEFT_SHAPE(batch, length, 1)));
    const weft_value count = weft_sum(g, weft_clamp(g, higher, 0, 1), 1u << 2);
    return weft_reshape(g, weft_affine(g, weft_clamp(g, count, 0, 1), -1, 1),
                        WEFT_SHAPE(batch, length));
}

/* Marks the first 1 of each row, or the first position if the row has none. */
static weft_value first_of(weft_graph *g, weft_value marks_bs)
{
    const int64_t length = weft_dim(g, marks_bs, 1);
    float *earlier = weft_calloc(length * length, sizeof *earlier);
    if (!earlier)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " tokens",
                               length);
    for (int64_t from = 0; from < length; from++)
        for (int64_t to = from + 1; to < length; to++)
            earlier[from * length + to] = 1;
    const weft_value before = weft_matmul(
        g, marks_bs, weft_constant(g, WEFT_F32, WEFT_SHAPE(length, length), earlier), false, false);
    memset(earlier, 0, (size_t)length * sizeof *earlier);
    earlier[0] = 1;
    const weft_value front = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, length), earlier);
    weft_free(earlier);
    const weft_value none =
        weft_affine(g, weft_clamp(g, weft_sum(g, marks_bs, 1u << 1), 0, 1), -1, 1);
    const weft_value first =
        weft_mul(g, marks_bs, weft_affine(g, weft_clamp(g, before, 0, 1), -1, 1));
    return weft_add(g, first, weft_mul(g, none, front));
}

/* (B,C): row of x (B,S,C) at the 1 of `mark` (B,S). */
static weft_value pick(weft_graph *g, weft_value x, weft_value mark)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), width = weft_dim(g, x, 2);
    mark = weft_reshape(g, mark, WEFT_SHAPE(batch, length, 1));
    return weft_reshape(g, weft_sum(g, weft_mul(g, x, mark), 1u << 1), WEFT_SHAPE(batch, width));
}

static void encode_text(weft_graph *g, const weft_clip_config *c, weft_ports *p)
{
    const weft_value tokens_bs = p->at[WEFT_PORT_TOKENS];
    const int64_t length = weft_dim(g, tokens_bs, 1);
    if (length > c->positions) {
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " tokens, but the text encoder has %" PRId64 " positions",
                        length, c->positions);
        return;
    }
    weft_graph_push(g, "embeddings");
    const weft_value words = weft_text_encoder_table(g, "token_embedding.weight", c->vocabulary,
                                                     c->width),
                     positions = weft_text_encoder_table(g, "position_embedding.weight",
                                                         c->positions, c->width);
    weft_graph_pop(g);
    weft_value x = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){words, tokens_bs}, 2, NULL);
    x = weft_add(
        g, x,
        weft_reshape(g, weft_slice(g, positions, 0, 0, length), WEFT_SHAPE(1, length, c->width)));
    const weft_value mask = p->at[WEFT_PORT_TEXT_MASK],
                     hidden = weft_value_ok(mask) ? weft_nn_hide(g, weft_cast(g, mask, WEFT_F32))
                                                  : WEFT_NONE;
    for (int64_t i = 0; i < c->layers; i++)
        x = block(g, c, true, i, x, hidden);
    x = weft_nn_layer_norm(g, "final_layer_norm", x, c->eps);
    p->at[WEFT_PORT_TEXT] = x;
    p->at[WEFT_PORT_POOLED] = pick(g, x, first_of(g, ends(g, c, tokens_bs)));
}

/* ---- images --------------------------------------------------------------------------------- */

int64_t weft_clip_patches(const weft_clip_config *c)
{
    const int64_t side = c->image / c->patch;
    return side * side;
}

void weft_clip_vision_encode(weft_graph *g, const weft_clip_config *c, weft_ports *p)
{
    const weft_value video = p->at[WEFT_PORT_VIDEO];
    const int64_t batch = weft_dim(g, video, 0), width = c->width, count = weft_clip_patches(c) + 1;
    weft_graph_push(g, "embeddings");
    const weft_value of_class = weft_param(g, "class_embedding", WEFT_F32, WEFT_SHAPE(width),
                                           (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
    const weft_value patches =
        weft_nn_patch(g, "patch_embedding", video, width, (int64_t[]){1, c->patch, c->patch},
                      WEFT_PATCH_2D, false);
    const weft_value positions =
        weft_text_encoder_table(g, "position_embedding.weight", count, width);
    weft_graph_pop(g);
    const weft_value front = weft_broadcast(g, weft_reshape(g, of_class, WEFT_SHAPE(1, 1, width)),
                                            WEFT_SHAPE(batch, 1, width));
    weft_value x = weft_concat(g, (weft_value[]){front, patches}, 2, 1);
    x = weft_add(g, x, weft_reshape(g, positions, WEFT_SHAPE(1, count, width)));
    x = weft_nn_layer_norm(g, "pre_layrnorm", x, c->eps);
    for (int64_t i = 0; i < c->layers; i++) {
        p->at[WEFT_PORT_IMAGE] = x;
        x = block(g, c, false, i, x, WEFT_NONE);
    }
    x = weft_reshape(g, weft_slice(g, x, 1, 0, 1), WEFT_SHAPE(batch, width));
    p->at[WEFT_PORT_POOLED] = weft_nn_layer_norm(g, "post_layernorm", x, c->eps);
}

/* ---- the families --------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const weft_clip_config *c = config;
    if (c->width % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not a multiple of the %" PRId64 " attention heads",
                          c->width, c->heads);
    if (c->patch && c->image % c->patch)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "image_size", c->image),
                          "%" PRId64 " is not a multiple of \"patch_size\" %" PRId64, c->image,
                          c->patch);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const weft_clip_config *c = config;
    switch (port) {
    case WEFT_PORT_TOKENS:
    case WEFT_PORT_TEXT_MASK: return WEFT_SHAPE(s->batch, s->text);
    case WEFT_PORT_VIDEO: return WEFT_SHAPE(s->batch, 1, c->image, c->image, 3);
    default: return WEFT_SCALAR;
    }
}

static void build_text(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    encode_text(g, config, ports);
}

static void build_text_projected(weft_graph *g, const void *config, weft_call call,
                                 weft_ports *ports)
{
    const weft_clip_config *c = config;
    weft_value *pooled = &ports->at[WEFT_PORT_POOLED];
    build_text(g, config, call, ports);
    *pooled = weft_nn_linear_plain(g, "text_projection", *pooled, c->projection);
}

static void build_vision(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    weft_clip_vision_encode(g, config, ports);
}

static void build_vision_projected(weft_graph *g, const void *config, weft_call call,
                                   weft_ports *ports)
{
    const weft_clip_config *c = config;
    weft_value *pooled = &ports->at[WEFT_PORT_POOLED];
    build_vision(g, config, call, ports);
    *pooled = weft_nn_linear_plain(g, "visual_projection", *pooled, c->projection);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const weft_clip_config *c = config;
    *text = (weft_text_shape){
        .length = c->positions, .width = c->width, .pooled = c->width, .unmasked = !c->masks};
}

static void text_shape_projected(const void *config, weft_text_shape *text)
{
    const weft_clip_config *c = config;
    *text = (weft_text_shape){
        .length = c->positions, .width = c->width, .pooled = c->projection, .unmasked = !c->masks};
}

/* clang-format off */
static const char *const gelus[] = {"\"quick_gelu\"", "\"gelu\"", NULL};

#define AT(member) offsetof(weft_clip_config, member)
#define COMMON(width_, inner_, heads_)                                                            \
    {"hidden_size", WEFT_FIELD_I64, AT(width), width_, 1, 1 << 16, .help = "width"},              \
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), inner_, 1, 1 << 20,                          \
     .help = "inner width of the feed-forward layer"},                                            \
    {"projection_dim", WEFT_FIELD_I64, AT(projection), "512", 1, 1 << 16,                         \
     .help = "width of the projected vector"},                                                    \
    {"num_hidden_layers", WEFT_FIELD_I64, AT(layers), "12", 1, 1024, .help = "blocks"},           \
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), heads_, 1, 1024,                           \
     .help = "attention heads"},                                                                  \
    {"hidden_act", WEFT_FIELD_WORD, AT(exact), .words = gelus,                                    \
     .help = "activation of the feed-forward layer"},                                             \
    {"layer_norm_eps", WEFT_FIELD_F64, AT(eps), "1e-5", 1e-12, 1,                                  \
     .help = "epsilon of the layer norms"}

static const weft_field text_fields[] = {
    COMMON("512", "2048", "8"),
    {"vocab_size", WEFT_FIELD_I64, AT(vocabulary), "49408", 1, 1 << 24,
     .help = "vocabulary size in tokens"},
    {"max_position_embeddings", WEFT_FIELD_I64, AT(positions), "77", 1, 1 << 16,
     .help = "maximum tokens of a prompt"},
    {"eos_token_id", WEFT_FIELD_I64, AT(end), "49407", 0, 1 << 24,
     .help = "token at which the prompt is pooled; 2: the token of the highest id"},
    {"use_attention_mask", WEFT_FIELD_BOOL, AT(masks), "false",
     .help = "pipelines hide padding from the encoder"},
}, vision_fields[] = {
    COMMON("768", "3072", "12"),
    {"num_channels", WEFT_FIELD_FIXED, .fallback = "3"},
    {"image_size", WEFT_FIELD_I64, AT(image), "224", 1, 1 << 14, .help = "side of the image"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "32", 1, 1 << 14, .help = "side of a patch"},
};

static const weft_port_row text_ports[] = {
    {WEFT_PORT_TOKENS, false, "input_ids"},
    {WEFT_PORT_TEXT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,   true,  "last_hidden_state", .target = "target"},
    {WEFT_PORT_POOLED, true,  "pooler_output",     .target = "target_pooled"},
}, text_projected_ports[] = {
    {WEFT_PORT_TOKENS, false, "input_ids"},
    {WEFT_PORT_TEXT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_TEXT,   true,  "last_hidden_state", .target = "target"},
    {WEFT_PORT_POOLED, true,  "text_embeds",       .target = "target_pooled"},
}, vision_ports[] = {
    {WEFT_PORT_VIDEO,  false, "pixel_values"},
    {WEFT_PORT_IMAGE,  true,  "penultimate",       .target = "target"},
    {WEFT_PORT_POOLED, true,  "pooler_output",     .target = "target_pooled"},
}, vision_projected_ports[] = {
    {WEFT_PORT_VIDEO,  false, "pixel_values"},
    {WEFT_PORT_IMAGE,  true,  "penultimate",       .target = "target"},
    {WEFT_PORT_POOLED, true,  "image_embeds",      .target = "target_pooled"},
};

static const weft_rename_rule text_rules[] = {{"text_model.", ""}},
                              vision_rules[] = {{"vision_model.", ""}};
#define PREFIXED(prefix, marker, rules) {"transformers", prefix marker, rules, 1}
static const weft_key_mapping text_mappings[] = {
    PREFIXED("text_model.", "embeddings.token_embedding.weight", text_rules),
    {"bare", "embeddings.token_embedding.weight", NULL, 0},
}, text_projected_mappings[] = {
    {"transformers", "text_projection.weight", text_rules, 1},
}, vision_mappings[] = {
    PREFIXED("vision_model.", "embeddings.class_embedding", vision_rules),
    {"bare", "embeddings.class_embedding", NULL, 0},
}, vision_projected_mappings[] = {
    {"transformers", "visual_projection.weight", vision_rules, 1},
};

static const weft_named_config text_sizes[] = {
    {"clip-l-text", "{\"hidden_size\": 768, \"intermediate_size\": 3072, \"projection_dim\": 768,"
                    " \"num_attention_heads\": 12}"},
    {NULL, NULL},
}, vision_sizes[] = {
    {"clip-h-vision", "{\"hidden_size\": 1280, \"intermediate_size\": 5120,"
                      " \"projection_dim\": 1024, \"num_hidden_layers\": 32,"
                      " \"num_attention_heads\": 16, \"patch_size\": 14,"
                      " \"hidden_act\": \"gelu\"}"},
    {NULL, NULL},
};

static const weft_unused_field unused[] = {
    {"logit_scale_init_value"},
    {"text_config_dict", "null"},
    {"vision_config_dict", "null"},
    {"vocab_size"}, /* present in vision models inside LLaVA */
    {NULL},
};

#define FAMILY(stem_, kind, class_, role_, scope_, ...)                                           \
    const weft_family weft_family_clip_##stem_ = {                                                \
        .class_name = class_, .role = role_, .scope = scope_, .stem = "model",                    \
        .library = "transformers", .config_bytes = sizeof(weft_clip_config),                   \
        .field = kind##_fields, .fields = sizeof kind##_fields / sizeof *kind##_fields,           \
        .check = check, .unused = unused,                                                         \
        .port = stem_##_ports, .ports = sizeof stem_##_ports / sizeof *stem_##_ports,             \
        .shape = shape, .build = build_##stem_,                                                   \
        .mapping = stem_##_mappings,                                                              \
        .mappings = sizeof stem_##_mappings / sizeof *stem_##_mappings, __VA_ARGS__               \
    }
FAMILY(text, text, "CLIPTextModel", WEFT_ROLE_TEXT_ENCODER, "text_encoder",
       .text = text_shape, .sizes = text_sizes, .model_type = "clip_text_model");
FAMILY(text_projected, text, "CLIPTextModelWithProjection", WEFT_ROLE_TEXT_ENCODER,
       "text_encoder", .text = text_shape_projected,
       .joint = {"clip", "text_config", "projection_dim"});
FAMILY(vision, vision, "CLIPVisionModel", WEFT_ROLE_IMAGE_ENCODER, "image_encoder",
       .sizes = vision_sizes, .model_type = "clip_vision_model");
FAMILY(vision_projected, vision, "CLIPVisionModelWithProjection", WEFT_ROLE_IMAGE_ENCODER,
       "image_encoder", .joint = {"clip", "vision_config", "projection_dim"});
/* clang-format on */
