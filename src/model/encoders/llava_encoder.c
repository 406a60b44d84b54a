/* LLaVA, a Llama with an image input (transformers' LlavaForConditionalGeneration), as the text
 * encoder of HunyuanVideo's image to video. Parameters are in "vision_tower",
 * "multi_modal_projector" and "language_model". Published files use two other naming schemes,
 * which are key mappings here.
 *
 *   pixels --CLIP, second-to-last layer without the class token--> (B,N,V)
 *          --linear_1, GELU, linear_2--> (B,N,C)
 *   tokens --> embeddings (B,S,C), image tokens replaced by the patches in order --> Llama
 *
 * Shape letters: B batch, S tokens, N patches of the image, C width of Llama, V width of CLIP. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/encoders/clip_encoder.h"
#include "model/encoders/llama_encoder.h"
#include "model/encoders/text_encoder.h"
#include "nn/nn.h"

typedef struct llava {
    weft_clip_config vision;
    weft_llama text;
    int64_t token; /* id of the image token */
} llava;
_Static_assert(sizeof(llava) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static weft_value see(weft_graph *g, const llava *c, weft_ports *p)
{
    weft_ports inside = weft_ports_none();
    inside.at[WEFT_PORT_VIDEO] = p->at[WEFT_PORT_VIDEO];
    weft_graph_push(g, "vision_tower");
    weft_clip_vision_encode(g, &c->vision, &inside);
    weft_graph_pop(g);
    const weft_value patches =
        weft_slice(g, inside.at[WEFT_PORT_IMAGE], 1, 1, weft_clip_patches(&c->vision));
    return weft_nn_embedder(g, "multi_modal_projector", patches, c->text.width, WEFT_NN_GELU_ERF);
}

/* (B,S): 1 at image tokens. */
static weft_value marks(weft_graph *g, const llava *c, weft_value tokens_bs)
{
    const weft_value other =
        weft_affine(g, weft_cast(g, tokens_bs, WEFT_F32), 1, -(double)c->token);
    return weft_affine(g, weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, other), 0, 1), -1, 1);
}

/* Replaces the embedding of the k-th image token by patch k: words (B,S,C), seen (B,N,C). The
 * selection multiplies by exact ones and zeros. */
static weft_value put(weft_graph *g, const llava *c, weft_value tokens_bs, weft_value words,
                      weft_value seen)
{
    const int64_t batch = weft_dim(g, words, 0), length = weft_dim(g, words, 1),
                  count = weft_dim(g, seen, 1);
    const weft_value mark_bs = marks(g, c, tokens_bs),
                     order_bs = weft_matmul(g, mark_bs, weft_llama_up_to(g, length), false,
                                            false); /* 1-based */
    float *number = weft_calloc(count, sizeof *number);
    if (!number)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " patches",
                               count);
    for (int64_t i = 0; i < count; i++)
        number[i] = (float)(i + 1);
    const weft_value numbers = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, count), number);
    weft_free(number);
    weft_value which =
        weft_sub(g, weft_reshape(g, order_bs, WEFT_SHAPE(batch, length, 1)), numbers);
    which = weft_affine(g, weft_clamp(g, weft_unary(g, WEFT_OP_SQUARE, which), 0, 1), -1, 1);
    const weft_value mark = weft_reshape(g, mark_bs, WEFT_SHAPE(batch, length, 1));
    const weft_value placed = weft_matmul(g, weft_mul(g, which, mark), seen, false, false);
    return weft_add(g, weft_mul(g, words, weft_affine(g, mark, -1, 1)), placed);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    const llava *c = config;
    const weft_value tokens_bs = ports->at[WEFT_PORT_TOKENS], seen = see(g, c, ports);
    if (!weft_value_ok(seen))
        return;
    weft_graph_push(g, "language_model");
    const weft_value words = weft_llama_words(g, &c->text, tokens_bs);
    weft_llama_encode(g, &c->text, WEFT_LLAMA, put(g, c, tokens_bs, words, seen), ports);
    weft_graph_pop(g);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const llava *c = config;
    return c->token < c->text.vocabulary
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT_FIELD(locations, "image_token_index", c->token),
                            "%" PRId64 " is outside the vocabulary of %" PRId64 " tokens", c->token,
                            c->text.vocabulary);
}

static weft_shape shape(const void *config, const weft_model_size *size, weft_port port)
{
    const llava *c = config;
    return port == WEFT_PORT_VIDEO ? WEFT_SHAPE(size->batch, 1, c->vision.image, c->vision.image, 3)
                                   : weft_text_encoder_shape(config, size, port);
}

static void text_shape(const void *config, weft_text_shape *text)
{
    const llava *c = config;
    *text = (weft_text_shape){.length = c->text.max_length,
                              .width = c->text.width,
                              .layers = c->text.layers,
                              .image_side = c->vision.image,
                              .patches = weft_clip_patches(&c->vision),
                              .image_token = c->token};
}

/* clang-format off */
extern const weft_family weft_family_clip_vision, weft_family_llama;
static const weft_field fields[] = {
    {"vision_config", WEFT_FIELD_PART, offsetof(llava, vision), .part = &weft_family_clip_vision},
    {"text_config", WEFT_FIELD_PART, offsetof(llava, text), .part = &weft_family_llama},
    {"image_token_index", WEFT_FIELD_I64, offsetof(llava, token), "32000", 0, 1 << 24,
     .also = "image_token_id", .help = "token that image patches replace"},
    {"vision_feature_layer", WEFT_FIELD_FIXED, .fallback = "-2"},
    {"vision_feature_select_strategy", WEFT_FIELD_FIXED, .fallback = "\"default\""},
    {"projector_hidden_act", WEFT_FIELD_FIXED, .fallback = "\"gelu\""},
    {"multimodal_projector_bias", WEFT_FIELD_FIXED, .fallback = "true"},
    {"image_seq_length", WEFT_FIELD_IGNORED, .fallback = "576"},
};

static const weft_unused_field unused[] = {
    {"ignore_index"}, /* training loss */
    {"vocab_size"},   /* same as in "text_config" */
    {NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TOKENS,      false, "input_ids"},
    {WEFT_PORT_TEXT_MASK,   false, "attention_mask", .optional = true},
    {WEFT_PORT_VIDEO,       false, "pixel_values"},
    {WEFT_PORT_TEXT,        true,  "prompt_embeds_uncropped", .target = "target"},
    {WEFT_PORT_LAST_HIDDEN, true,  "last_hidden_state",       .target = "target_last"},
};

static const weft_named_config sizes[] = {
    {"llava-llama3-8b", "{\"image_token_index\": 128257,"
        " \"vision_config\": {\"hidden_size\": 1024, \"intermediate_size\": 4096,"
        " \"num_hidden_layers\": 24, \"num_attention_heads\": 16, \"image_size\": 336,"
        " \"patch_size\": 14},"
        " \"text_config\": {\"vocab_size\": 128320, \"intermediate_size\": 14336,"
        " \"num_key_value_heads\": 8, \"rope_theta\": 500000, \"rms_norm_eps\": 1e-5}}"},
    {NULL, NULL},
};

/* Files have "language_model.model.layers", newer files "model.language_model.layers". */
static const weft_rename_rule rules[] = {{"model.", ""}, {"vision_model.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "language_model.model.embed_tokens.weight", rules, 2},
    {"transformers", "model.multi_modal_projector.linear_1.weight", rules, 2},
    {"bare", "multi_modal_projector.linear_1.weight", rules, 2},
};

const weft_family weft_family_llava = {
    .class_name = "LlavaForConditionalGeneration", .also = "LlavaModel",
    .role = WEFT_ROLE_TEXT_ENCODER, .scope = "text_encoder", .stem = "model",
    .library = "transformers", .model_type = "llava",
    .config_bytes = sizeof(llava), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports,
    .shape = shape, .build = build, .text = text_shape,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
