/* LTX-2's text connectors (diffusers' LTX2TextConnectors): hidden states of all layers of the text
 * encoder to one embedding per token for the video and one for the audio. Parameters have the names
 * of the class.
 *
 *   hidden states of N layers --normalised, joined--> (B,L,D N) --linear--> x (B,L,C)
 *   connector, for each stream:
 *     tokens after the text become learnable registers
 *     blocks: x += attn(rms x);  x += ffn(rms x)
 *     RMS norm
 *
 * 2.0 normalises a layer over all tokens of a text, by its mean and range, and has one projection.
 * 2.3 normalises each token of a layer, and has a projection for each stream. The text comes before
 * the padding. Rotary positions are a token's place in all L tokens, which attend to each other.
 *
 * Shape letters: B batch, L tokens, N layers, D width of the text encoder, C width of a stream. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/ltx2_layers.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

enum { VIDEO, AUDIO, STREAMS };
enum { INTERLEAVED, SPLIT };

typedef struct connector {
    int64_t heads, head_dim, layers, registers;
    bool gated;
} connector;

typedef struct ltx2_connectors {
    connector of[STREAMS];
    int64_t text_dim, states, base, rope_type, width[STREAMS];
    double theta;
    bool double_precision, own_projections, bias;
} ltx2_connectors;
_Static_assert(sizeof(ltx2_connectors) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double norm_eps = 1e-6;
static const double range_factor = 8; /* of states that are normalised by their range */

static int64_t width_of(const ltx2_connectors *c, int s)
{
    return c->of[s].heads * c->of[s].head_dim;
}

/* ---- hidden states to one embedding --------------------------------------------------------- */

/* Largest value over the last dim, which becomes 1. */
static weft_value largest(weft_graph *g, weft_value x)
{
    const weft_attr_top_k best = {.count = 1};
    const weft_value id = weft_emit(g, WEFT_OP_TOP_K, &x, 1, &best);
    return weft_emit(g, WEFT_OP_PICK, (weft_value[]){x, id}, 2, NULL);
}

/* Largest value (N,B,1,1) of x (N,B,L,D) over the tokens of the mask (1,B,L,1). */
static weft_value largest_of_text(weft_graph *g, weft_value x, weft_value mask)
{
    const int64_t states = weft_dim(g, x, 0), batch = weft_dim(g, x, 1), length = weft_dim(g, x, 2);
    const weft_value each = weft_reshape(g, largest(g, x), WEFT_SHAPE(states, batch, 1, length));
    const weft_value hidden =
        weft_reshape(g, weft_nn_hide(g, mask), WEFT_SHAPE(1, batch, 1, length));
    return largest(g, weft_add(g, each, hidden));
}

/* (x - mean) / (largest - smallest) of each layer's states x (N,B,L,D) in the text. */
static weft_value normed_by_range(weft_graph *g, weft_value x, weft_value mask)
{
    const double width = (double)weft_dim(g, x, 3);
    const uint32_t tokens = 1u << 2, last = 1u << 3;
    const weft_value count = weft_affine(g, weft_sum(g, mask, tokens), width, norm_eps),
                     mean = weft_div(g, weft_sum(g, weft_mul(g, x, mask), tokens | last), count),
                     below = largest_of_text(g, weft_affine(g, x, -1, 0), mask),
                     range = weft_add(g, largest_of_text(g, x, mask), below);
    x = weft_div(g, weft_sub(g, x, mean), weft_affine(g, range, 1, norm_eps));
    return weft_affine(g, x, range_factor, 0);
}

/* States (N,B,L,D) to (B,L,D N), normalised, 0 after the text. */
static weft_value join_states(weft_graph *g, const ltx2_connectors *c, weft_value x,
                              weft_value mask)
{
    const int64_t states = weft_dim(g, x, 0), batch = weft_dim(g, x, 1), length = weft_dim(g, x, 2),
                  width = weft_dim(g, x, 3);
    const weft_value text = weft_reshape(g, mask, WEFT_SHAPE(1, batch, length, 1));
    x = c->own_projections ? weft_nn_plain_rms_norm(g, x, norm_eps) : normed_by_range(g, x, text);
    x = weft_permute(g, weft_mul(g, x, text), (int[]){1, 2, 3, 0});
    return weft_reshape(g, x, WEFT_SHAPE(batch, length, width * states));
}

/* Embedding (B,L,C) of a stream before its connector. */
static weft_value project(weft_graph *g, const ltx2_connectors *c, int s, weft_value joined)
{
    static const char *const names[STREAMS] = {"video_text_proj_in", "audio_text_proj_in"};
    if (!c->own_projections)
        return weft_nn_dense(g, "text_proj_in", joined, c->text_dim, c->bias);
    const double scale = sqrt((double)c->width[s] / (double)c->text_dim);
    return weft_nn_dense(g, names[s], weft_affine(g, joined, scale, 0), c->width[s], c->bias);
}

/* ---- connectors ----------------------------------------------------------------------------- */

/* x (B,L,C) in the text, registers after it. Token i has register i modulo their number. */
static weft_value add_registers(weft_graph *g, const connector *how, weft_value x, weft_value mask)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), width = weft_dim(g, x, 2),
                  times = (length + how->registers - 1) / how->registers;
    const weft_init init = {.kind = WEFT_INIT_UNIFORM, .value = 1};
    weft_value all =
        weft_param(g, "learnable_registers", WEFT_F32, WEFT_SHAPE(how->registers, width), init);
    all = weft_broadcast(g, weft_reshape(g, all, WEFT_SHAPE(1, how->registers, width)),
                         WEFT_SHAPE(times, how->registers, width));
    all = weft_reshape(g, all, WEFT_SHAPE(1, times * how->registers, width));
    all = weft_slice(g, all, 1, 0, length);
    const weft_value text = weft_reshape(g, mask, WEFT_SHAPE(batch, length, 1));
    return weft_add(g, weft_mul(g, x, text), weft_mul(g, all, weft_affine(g, text, -1, 1)));
}

/* Rotary positions 0, 1, ... (1,L,1). */
static weft_value places(weft_graph *g, int64_t length)
{
    float *at = weft_calloc(length + 1, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t i = 0; i < length; i++)
        at[i] = (float)i;
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, length, 1), at);
    weft_free(at);
    return v;
}

static weft_value connect(weft_graph *g, const ltx2_connectors *c, int s, weft_value x,
                          weft_value mask)
{
    const connector *how = &c->of[s];
    const weft_ltx2_rope rope = {c->theta, c->double_precision, c->rope_type == SPLIT};
    const weft_ltx2_attention attention = {how->heads,          how->head_dim,
                                           .bias = true,        .out_bias = true,
                                           .gated = how->gated, .halves = c->rope_type == SPLIT};
    const float whole = (float)c->base;
    weft_ltx2_tables tables;
    const weft_ltx2_tables *const ropes[2] = {&tables, &tables};
    x = add_registers(g, how, x, mask);
    if (weft_graph_check(g) != WEFT_OK)
        return x;
    weft_ltx2_rope_tables(g, &rope, places(g, weft_dim(g, x, 1)), &whole, width_of(c, s),
                          how->heads, &tables);
    for (int64_t i = 0; i < how->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_value h = weft_nn_plain_rms_norm(g, x, norm_eps);
        x = weft_add(g, x, weft_ltx2_attend(g, &attention, "attn1", h, h, ropes, WEFT_NONE));
        h = weft_nn_plain_rms_norm(g, x, norm_eps);
        x = weft_add(g, x, weft_ltx2_feed_forward(g, "ff", h, true));
        weft_graph_pop(g);
    }
    return weft_nn_plain_rms_norm(g, x, norm_eps);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    static const char *const names[STREAMS] = {"video_connector", "audio_connector"};
    static const weft_port ports[STREAMS] = {WEFT_PORT_TEXT, WEFT_PORT_AUDIO_TEXT};
    const ltx2_connectors *c = config;
    (void)call;
    const weft_value mask = weft_cast(g, p->at[WEFT_PORT_TEXT_MASK], WEFT_F32),
                     joined = join_states(g, c, p->at[WEFT_PORT_TEXT_LAYERS], mask);
    weft_value x = WEFT_NONE;
    for (int s = 0; s < STREAMS; s++) {
        if (s == VIDEO || c->own_projections)
            x = project(g, c, s, joined);
        weft_graph_push(g, "%s", names[s]);
        p->at[ports[s]] = connect(g, c, s, x, mask);
        weft_graph_pop(g);
    }
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    static const char *const heads[STREAMS] = {"video_connector_num_attention_heads",
                                               "audio_connector_num_attention_heads"};
    const ltx2_connectors *c = config;
    for (int s = 0; s < STREAMS; s++) {
        const int64_t width = c->own_projections ? c->width[s] : c->text_dim;
        if (width_of(c, s) != width)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, heads[s], c->of[s].heads),
                              "%" PRId64 " heads of width %" PRId64
                              " do not have the width of the projected text, %" PRId64,
                              c->of[s].heads, c->of[s].head_dim, width);
    }
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx2_connectors *c = config;
    switch (port) {
    case WEFT_PORT_TEXT_LAYERS: return WEFT_SHAPE(c->states, s->batch, s->text, c->text_dim);
    case WEFT_PORT_TEXT_MASK: return WEFT_SHAPE(s->batch, s->text);
    case WEFT_PORT_TEXT: return WEFT_SHAPE(s->batch, s->text, width_of(c, VIDEO));
    case WEFT_PORT_AUDIO_TEXT: return WEFT_SHAPE(s->batch, s->text, width_of(c, AUDIO));
    default: return WEFT_SCALAR;
    }
}

/* clang-format off */
#define AT(member) offsetof(ltx2_connectors, member)
#define OF(s, member) (offsetof(ltx2_connectors, of) + (s) * sizeof(connector) + \
                       offsetof(connector, member))
#define CONNECTOR(stream, s) \
    {stream "_connector_num_attention_heads", WEFT_FIELD_I64, OF(s, heads), "30", 1, 1024, \
     .help = "attention heads of the " stream "'s connector"}, \
    {stream "_connector_attention_head_dim", WEFT_FIELD_I64, OF(s, head_dim), "128", 2, 4096, \
     .help = "width of a head of the " stream "'s connector"}, \
    {stream "_connector_num_layers", WEFT_FIELD_I64, OF(s, layers), "2", 0, 1024, \
     .help = "blocks of the " stream "'s connector"}, \
    {stream "_connector_num_learnable_registers", WEFT_FIELD_I64, OF(s, registers), "128", \
     1, 1 << 16, .help = "learnable embeddings that replace padding"}, \
    {stream "_gated_attn", WEFT_FIELD_BOOL, OF(s, gated), "false", \
     .help = "gates of the heads of the " stream "'s connector"}
static const char *const rope_types[] = {"\"interleaved\"", "\"split\"", NULL};
static const weft_field fields[] = {
    {"caption_channels", WEFT_FIELD_I64, AT(text_dim), "3840", 1, 1 << 16,
     .help = "width of the text encoder"},
    {"text_proj_in_factor", WEFT_FIELD_I64, AT(states), "49", 1, 1024,
     .help = "hidden states of the text encoder: its layers, and the embeddings of tokens"},
    CONNECTOR("video", VIDEO),
    CONNECTOR("audio", AUDIO),
    {"connector_rope_base_seq_len", WEFT_FIELD_I64, AT(base), "4096", 1, 1 << 24,
     .help = "tokens of the complete range of rotary positions"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000", 1e-3, 1e9,
     .help = "largest rotary frequency over the smallest"},
    {"rope_double_precision", WEFT_FIELD_BOOL, AT(double_precision), "true",
     .help = "rotary frequencies are computed in f64"},
    {"causal_temporal_positioning", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"rope_type", WEFT_FIELD_WORD, AT(rope_type), "\"interleaved\"", .words = rope_types,
     .help = "rotary pairs: neighbours, or from both halves of a head"},
    {"per_modality_projections", WEFT_FIELD_BOOL, AT(own_projections), "false",
     .help = "a projection for each stream, and a norm of each token (2.3)"},
    {"video_hidden_dim", WEFT_FIELD_I64, AT(width[VIDEO]), "4096", 1, 1 << 16,
     .help = "width of the video's projection (2.3)"},
    {"audio_hidden_dim", WEFT_FIELD_I64, AT(width[AUDIO]), "2048", 1, 1 << 16,
     .help = "width of the audio's projection (2.3)"},
    {"proj_bias", WEFT_FIELD_BOOL, AT(bias), "false", .help = "bias of the projections"},
};

static const weft_named_config sizes[] = {
    {"ltx-2-connectors", "{\"rope_type\": \"split\"}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_TEXT_LAYERS, false, "text_encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,   false, "attention_mask"},
    {WEFT_PORT_TEXT,        true,  "video_text_embedding", .target = "target_video_text_embedding"},
    {WEFT_PORT_AUDIO_TEXT,  true,  "audio_text_embedding", .target = "target_audio_text_embedding"},
};

/* Names in the file of the transformer, whose prefix only the connectors have. */
static const weft_rename_rule original[] = {
    {"model.diffusion_model.video_embeddings_connector",  "video_connector"},
    {"model.diffusion_model.audio_embeddings_connector",  "audio_connector"},
    {"text_embedding_projection.aggregate_embed",         "text_proj_in"},
    {"text_embedding_projection.video_aggregate_embed",   "video_text_proj_in"},
    {"text_embedding_projection.audio_aggregate_embed",   "audio_text_proj_in"},
    {"transformer_1d_blocks",                             "transformer_blocks"},
    {"q_norm",                                            "norm_q"},
    {"k_norm",                                            "norm_k"},
    {"model",                                             ""}, /* of the other models */
    {"vae",                                               ""},
    {"audio_vae",                                         ""},
    {"vocoder",                                           ""},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "video_connector.learnable_registers", NULL, 0},
    {"original", "model.diffusion_model.video_embeddings_connector.learnable_registers", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_ltx2_connectors = {
    .class_name = "LTX2TextConnectors", .role = WEFT_ROLE_TEXT_CONNECTORS,
    .scope = "connectors", .stem = "diffusion_pytorch_model", .library = "ltx2",
    .marks = {"text_proj_in_factor", "connector_rope_base_seq_len"},
    .config_bytes = sizeof(ltx2_connectors), .field = fields,
    .fields = sizeof fields / sizeof *fields, .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
