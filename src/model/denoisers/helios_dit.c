/* Helios diffusion transformer (diffusers' HeliosTransformer3DModel), which generates a chunk of a
 * video after the latent frames of a history. Parameters have the names of the public checkpoints.
 * The blocks are Wan's with two streams:
 *
 *   history (short, mid, long) --patch, in three sizes--> h (B,H,C)
 *   latents of the chunk       --patch-----------------> x (B,S,C)
 *   self-attention over both: keys of h first, optionally times a trained factor per head
 *   h has the modulations of timestep 0, x those of the timestep
 *   cross-attention of x alone to the text
 *   x --> norm, modulate, project --unpatch--> prediction
 *
 * All frames have given time positions (latent_history.h). The history may have other rows and
 * columns than the chunk; positions of both count from 0.
 * Shape letters: B batch, S tokens of the chunk, H of the history, C width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/latent_history.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"

typedef struct helios {
    weft_wan wan;
    int64_t axes[3];
    double theta;
    bool cross_chunk_only; /* the history does not attend to the text */
    bool zero_time;        /* the history has timestep 0 */
    bool history;          /* there is a history */
    bool amplifies;        /* keys of the history have a factor */
    int64_t factors;       /* enum factors */
} helios;
_Static_assert(sizeof(helios) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum factors { FACTOR_PER_HEAD, FACTOR_SCALAR };

/* Keys of the history are multiplied by 1 to this. */
static const double most_factor = 10;

/* Streams of tokens in the order of the keys: the history, if there is one, then the chunk. */
enum { STREAMS = 2 };
typedef struct stream {
    weft_value x, modulation;
    weft_value rope[WEFT_MAX_OUTPUTS];
    bool chunk, reads_text;
} stream;

/* ---- blocks --------------------------------------------------------------------------------- */

typedef struct attention {
    weft_nn_layer qkv[3], norm[2], out;
} attention;

static attention attention_of(weft_graph *g, const weft_wan *c)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    const int64_t width = c->heads * c->head_dim;
    attention a;
    for (int i = 0; i < 3; i++)
        a.qkv[i] = weft_nn_linear_of(g, names[i], width, width, true, WEFT_LINEAR_XAVIER);
    a.norm[0] = weft_nn_norm_of(g, "norm_q", width, false);
    a.norm[1] = weft_nn_norm_of(g, "norm_k", width, false);
    a.out = weft_nn_linear_of(g, "to_out.0", width, width, true, WEFT_LINEAR_XAVIER);
    return a;
}

/* q, k, v (B,S,H,D) of x (B,S,C) and its context, without positions. */
static void project(weft_graph *g, const weft_wan *c, const attention *a, weft_value x_bsc,
                    weft_value context, weft_value qkv[3])
{
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_linear_by(g, &a->qkv[i], i ? context : x_bsc);
        if (i < 2)
            qkv[i] = weft_nn_rms_norm_by(g, &a->norm[i], qkv[i], c->eps);
        qkv[i] = weft_nn_split_heads(g, qkv[i], c->heads);
    }
}

/* The factor of the history's keys, (1,1,heads or 1,1). */
static weft_value key_factor(weft_graph *g, const helios *c)
{
    const int64_t count = c->factors == FACTOR_PER_HEAD ? c->wan.heads : 1;
    const weft_value own = weft_param(g, "history_key_scale", WEFT_F32, WEFT_SHAPE(count),
                                      (weft_init){.kind = WEFT_INIT_FILL, .value = 1});
    return weft_affine(
        g, weft_unary(g, WEFT_OP_SIGMOID, weft_reshape(g, own, WEFT_SHAPE(1, 1, count, 1))),
        most_factor - 1, 1);
}

/* "attn1": the streams attend to all tokens. h: normed streams, then the results. */
static void attend_all(weft_graph *g, const helios *c, const stream *s, int count, weft_value *h)
{
    weft_value qkv[3][STREAMS], one[3];
    weft_graph_push(g, "attn1");
    const attention a = attention_of(g, &c->wan);
    const weft_value factor = c->amplifies ? key_factor(g, c) : WEFT_NONE;
    for (int i = 0; i < count; i++) {
        project(g, &c->wan, &a, h[i], h[i], one);
        for (int k = 0; k < 2; k++)
            one[k] = weft_nn_rope(g, one[k], s[i].rope, false);
        if (c->amplifies && !s[i].chunk)
            one[1] = weft_mul(g, one[1], factor);
        for (int k = 0; k < 3; k++)
            qkv[k][i] = one[k];
    }
    weft_nn_attend_jointly(g, count, qkv[0], qkv[1], qkv[2], WEFT_NONE, h);
    for (int i = 0; i < count; i++)
        h[i] = weft_nn_linear_by(g, &a.out, weft_nn_join_heads(g, h[i]));
    weft_graph_pop(g);
}

/* "attn2": streams attend to the text. */
static void attend_text(weft_graph *g, const helios *c, weft_value text_blc, stream *s, int count)
{
    const weft_wan *wan = &c->wan;
    weft_value h[STREAMS];
    weft_nn_layer norm;
    if (wan->cross_attn_norm) {
        norm = weft_nn_norm_of(g, "norm2", wan->heads * wan->head_dim, true);
        for (int i = 0; i < count; i++)
            if (s[i].reads_text)
                h[i] = weft_nn_layer_norm_by(g, &norm, s[i].x, wan->eps);
    }
    weft_graph_push(g, "attn2");
    const attention a = attention_of(g, wan);
    for (int i = 0; i < count; i++) {
        weft_value qkv[3];
        if (!s[i].reads_text)
            continue;
        project(g, wan, &a, wan->cross_attn_norm ? h[i] : s[i].x, text_blc, qkv);
        const weft_value mixed =
            weft_nn_join_heads(g, weft_nn_attend(g, qkv[0], qkv[1], qkv[2], WEFT_NONE));
        s[i].x = weft_add(g, s[i].x, weft_nn_linear_by(g, &a.out, mixed));
    }
    weft_graph_pop(g);
}

static weft_value modulated(weft_graph *g, const weft_wan *c, weft_value x, weft_value mod,
                            int64_t shift)
{
    return weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, shift + 1),
                            weft_nn_row(g, mod, shift));
}

static void block(weft_graph *g, const helios *c, weft_value text_blc, stream *s, int count)
{
    enum { SHIFT1, GATE1 = 2, SHIFT2, GATE2 = 5, ROWS }; /* each scale follows its shift */
    const int64_t width = c->wan.heads * c->wan.head_dim;
    const weft_value table = weft_wan_table(g, &c->wan, ROWS);
    weft_value mod[STREAMS], h[STREAMS];
    for (int i = 0; i < count; i++) {
        mod[i] = weft_add(g, s[i].modulation, table);
        h[i] = modulated(g, &c->wan, s[i].x, mod[i], SHIFT1);
    }
    attend_all(g, c, s, count, h);
    for (int i = 0; i < count; i++)
        s[i].x = weft_nn_gated_add(g, s[i].x, h[i], weft_nn_row(g, mod[i], GATE1));
    attend_text(g, c, text_blc, s, count);
    weft_graph_push(g, "ffn.net");
    const weft_nn_layer wide = weft_nn_linear_of(g, "0.proj", width, c->wan.ffn_dim, true,
                                                 WEFT_LINEAR_XAVIER),
                        back = weft_nn_linear_of(g, "2", c->wan.ffn_dim, width, true,
                                                 WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    for (int i = 0; i < count; i++) {
        h[i] = modulated(g, &c->wan, s[i].x, mod[i], SHIFT2);
        weft_graph_push(g, "ffn.net");
        h[i] = weft_gelu_tanh(g, weft_nn_linear_by(g, &wide, h[i]));
        h[i] = weft_nn_linear_by(g, &back, h[i]);
        weft_graph_pop(g);
        s[i].x = weft_nn_gated_add(g, s[i].x, h[i], weft_nn_row(g, mod[i], GATE2));
    }
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Without given positions, a call is the first chunk of a video: the first frame, the history from
 * the largest patches to the smallest, the chunk. Returns the position of the chunk. */
static int64_t first_positions(weft_graph *g, weft_history_part part[WEFT_LATENT_HISTORIES])
{
    int64_t first = 1;
    for (int i = WEFT_LATENT_HISTORIES - 1; i > 0; i--) {
        const int64_t frames = weft_dim(g, part[i].latents, 1);
        part[i].index = weft_latent_history_index(g, part[i].index, part[i].latents, first, frames);
        first += frames;
    }
    const int64_t frames = weft_dim(g, part[0].latents, 1);
    if (!weft_value_ok(part[0].index)) {
        const weft_value both[] = {
            weft_latent_history_index(g, WEFT_NONE, part[0].latents, 0, 1),
            weft_latent_history_index(g, WEFT_NONE, part[0].latents, first, frames - 1)};
        part[0].index = frames > 1 ? weft_concat(g, both, 2, 1) : both[0];
    }
    return first + frames - 1;
}

/* Sets the streams and returns their number. */
static int streams_of(weft_graph *g, const helios *c, const weft_ports *in, const int64_t size[3],
                      stream *s)
{
    static const char *const layers[] = {"patch_short", "patch_mid", "patch_long"};
    const weft_value latents = in->at[WEFT_PORT_LATENTS];
    const int64_t width = c->wan.heads * c->wan.head_dim;
    weft_latent_history history = {
        .width = width, .layer = layers, .theta = c->theta, .axes = c->axes};
    weft_history_part part[WEFT_LATENT_HISTORIES];
    int64_t first = 0;
    const int chunk = c->history;
    s[chunk] = (stream){.chunk = true, .reads_text = true};
    s[chunk].x =
        weft_nn_patch(g, "patch_embedding", latents, width, c->wan.patch, WEFT_PATCH_3D, true);
    if (c->history) {
        for (int i = 0; i < WEFT_LATENT_HISTORIES; i++)
            part[i] = weft_latent_history_part(g, in, i, latents);
        first = first_positions(g, part);
        s[0] = (stream){.reads_text = !c->cross_chunk_only};
        for (int d = 0; d < 2; d++)
            history.size[d] = weft_dim(g, part[0].latents, 2 + d) / c->wan.patch[1 + d];
        s[0].x = weft_latent_history_tokens(g, &history, part, s[0].rope);
    }
    const weft_value index =
        weft_latent_history_index(g, in->at[WEFT_PORT_INDEX], latents, first, size[0]);
    history.size[0] = size[1];
    history.size[1] = size[2];
    weft_latent_history_rope(g, &history, index, 1, s[chunk].rope);
    return chunk + 1;
}

/* Embeds the timestep and timestep 0 at once. *condition has the chunk's. */
static void embed_times(weft_graph *g, const helios *c, const weft_ports *in, stream *s,
                        weft_wan_condition *condition)
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    const bool two = c->history && c->zero_time;
    const int64_t batch = weft_dim(g, t, 0), width = c->wan.heads * c->wan.head_dim;
    weft_value times = t;
    if (two) {
        const weft_value each = weft_reshape(g, t, WEFT_SHAPE(batch, 1));
        times = weft_concat(g, (weft_value[]){each, weft_affine(g, each, 0, 0)}, 2, 1);
    }
    weft_wan_embed(g, &c->wan, weft_wan_sinusoid(g, &c->wan, times), in, condition);
    weft_value mod[STREAMS] = {condition->modulation, condition->modulation};
    for (int i = 0; two && i < STREAMS; i++)
        mod[i] = weft_reshape(g, weft_slice(g, condition->modulation, 1, i, 1),
                              WEFT_SHAPE(batch, 6, width));
    if (two)
        condition->time =
            weft_reshape(g, weft_slice(g, condition->time, 1, 0, 1), WEFT_SHAPE(batch, 1, width));
    s[c->history].modulation = mod[0];
    if (c->history)
        s[0].modulation = mod[1];
}

/* latents (B,T,Y,X,in), timestep (B) in [0, 1000], text (B,L,text_dim), the history (family.h) ->
 * prediction (B,T,Y,X,out) */
static weft_value forward(weft_graph *g, const helios *c, const weft_ports *in)
{
    int64_t size[3];
    stream s[STREAMS];
    weft_wan_condition condition = {0};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->wan.patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int count = streams_of(g, c, in, size, s);
    embed_times(g, c, in, s, &condition);
    for (int64_t i = 0; i < c->wan.layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        block(g, c, condition.text_blc, s, count);
        weft_graph_pop(g);
    }
    weft_graph_push(g, "norm_out");
    const weft_value table = weft_wan_table(g, &c->wan, 2);
    weft_graph_pop(g);
    return weft_wan_end(g, &c->wan, s[count - 1].x, &condition, table, size);
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const helios *c = config;
    const int64_t *patch = c->wan.patch;
    if (c->history && (patch[0] != 1 || patch[1] != 2 || patch[2] != 2))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "patch_size", patch[1]),
                          "the history has patches of 1x2x2, 2x4x4 and 4x8x8 latents; use "
                          "[1, 2, 2], not [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
                          patch[0], patch[1], patch[2]);
    return weft_check_axes(locations, "rope_dim", c->axes, c->wan.head_dim);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const helios *c = config;
    const weft_shape history = weft_latent_history_shape(s, port, c->wan.in_channels);
    if (history.rank)
        return c->history || port == WEFT_PORT_INDEX ? history : WEFT_SCALAR;
    return weft_denoiser_shape(s, port, c->wan.in_channels, c->wan.text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const helios *c = config;
    if (c->history)
        *cond = (weft_frame_condition){
            .form = WEFT_FRAME_CONDITION_HISTORY, .section = 9, .precedes = true};
}

/* clang-format off */
static const char *const factor_words[] = {"\"per_head\"", "\"scalar\"", NULL};
#define AT(member) offsetof(helios, member)
static const weft_field fields[] = {
    WEFT_WAN_BLOCK_FIELDS("40", "13824", "40"),
    {"added_kv_proj_dim", WEFT_FIELD_FIXED, .fallback = "null"},
    {"rope_dim", WEFT_FIELD_I64S, AT(axes), "[44, 42, 42]", 0, 4096, .capacity = 3,
     .length = weft_three,
     .help = "channels of a head that RoPE rotates by frames, rows and columns"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000.0", 1, 1e9,
     .help = "base of the rotary frequencies"},
    {"guidance_cross_attn", WEFT_FIELD_BOOL, AT(cross_chunk_only), "true",
     .help = "tokens of the chunk attend to the text, and tokens of the history do not"},
    {"zero_history_timestep", WEFT_FIELD_BOOL, AT(zero_time), "true",
     .help = "tokens of the history have timestep 0"},
    {"has_multi_term_memory_patch", WEFT_FIELD_BOOL, AT(history), "true",
     .help = "a history of other latent frames in three sizes of patches"},
    {"is_amplify_history", WEFT_FIELD_BOOL, AT(amplifies), "false",
     .help = "keys of the history have a trained factor"},
    {"history_scale_mode", WEFT_FIELD_WORD, AT(factors), "\"per_head\"", .words = factor_words,
     .help = "one factor per head, or one for all"},
};

static const weft_named_config sizes[] = {
    {"helios-14b", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,          false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,         false, "timestep"},
    {WEFT_PORT_TEXT,             false, "encoder_hidden_states"},
    {WEFT_PORT_INDEX,            false, "indices_hidden_states", .optional = true},
    {WEFT_PORT_HISTORY,          false, "latents_history_short", .optional = true},
    {WEFT_PORT_HISTORY_2X,       false, "latents_history_mid", .optional = true},
    {WEFT_PORT_HISTORY_4X,       false, "latents_history_long", .optional = true},
    {WEFT_PORT_HISTORY_INDEX,    false, "indices_latents_history_short", .optional = true},
    {WEFT_PORT_HISTORY_2X_INDEX, false, "indices_latents_history_mid", .optional = true},
    {WEFT_PORT_HISTORY_4X_INDEX, false, "indices_latents_history_long", .optional = true},
    {WEFT_PORT_PREDICTION,       true,  "sample"},
};

/* Adapters may have Wan's own names, which the reference's loader reads as well. */
static const weft_rename_rule original[] = {
    {"head.modulation", "norm_out.scale_shift_table"},
    WEFT_WAN_ORIGINAL_BLOCKS,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "norm_out.scale_shift_table", NULL, 0},
    {"original", "patch_short.weight", original, sizeof original / sizeof *original,
     .also = "head.modulation"},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_helios_dit = {
    .class_name = "HeliosTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "HeliosPipeline",
    .staged_pipeline = "HeliosPyramidPipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"has_multi_term_memory_patch", "zero_history_timestep"},
    .config_bytes = sizeof(helios), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = weft_wan_grid, .frame_condition = frame_condition,
    .frame_condition_help = "image or video before the first frame",
    .noise_levels = WEFT_LEVELS_EVEN_BELOW_1,
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .fps = 24,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
