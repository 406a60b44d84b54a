/* Diffusion transformers of Cosmos 1.0, Predict2 and Predict 2.5 (CosmosTransformer3DModel).
 * Parameters have the names of the public checkpoints. Linear layers have no biases.
 *
 *   latents, [condition mask], [padding mask] --patch--> x (B,S,C)
 *   timestep --sinusoid s--> norm s (B,C), and MLP of s: temb (B,3C), shared by all norms
 *   every norm: shift, scale, gate = low-rank linear of silu(norm s) + temb
 *
 *   block:  x += positions (1.0);  x += gate attn(norm1 x);  x += gate cross(norm2 x, text)
 *           x += gate ffn(norm3 x)
 *
 * With a timestep per latent frame, modulations are (B,T,1,C) and x is (B,T,Y X,C).
 * Shape letters: B batch, S video tokens, T, Y, X frames, rows, columns, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <math.h>

typedef struct cosmos {
    int64_t in_channels, out_channels, heads, head_dim, layers;
    double mlp_ratio;
    int64_t text_dim, lora_dim;
    int64_t most[3], patch[3];
    double rope_scale[3];
    bool padding;
    int64_t pos_embed; /* enum places */
    bool project;      /* projects texts (2.5) */
    int64_t project_from, project_to;
} cosmos;
_Static_assert(sizeof(cosmos) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum pos_embed_kind { POS_EMBED_LEARNED, POS_EMBED_NONE };
enum { SHIFT, SCALE, GATE };
enum { PIXELS = 8, BASE_FPS = 24 }; /* PIXELS: padding mask pixels per latent side */
static const double eps = 1e-6, qk_eps = 1e-5;

typedef struct conditioning {
    weft_value embedded; /* silu of the normed sinusoid: (B,C) or (B,T,C) */
    weft_value temb;     /* (B,3C) or (B,T,3C) */
    int64_t frames;      /* 0: one timestep for all frames */
    int64_t size[3];
} conditioning;

static int64_t width_of(const cosmos *c)
{
    return c->heads * c->head_dim;
}

/* Predict 2.5 projects its texts. */
static bool is_25(const void *config)
{
    return ((const cosmos *)config)->project;
}

static bool is_before_25(const void *config)
{
    return !is_25(config);
}

/* Returns true if an input channel marks given frames. */
static bool has_condition(const cosmos *c)
{
    return c->in_channels == c->out_channels + 1;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* RoPE pairs and bases of the axes. Bases grow with the scale of an axis (NTK). */
static void axes_of(const cosmos *c, int64_t pairs[3], double theta[3])
{
    const int64_t side = c->head_dim / 6 * 2;
    for (int i = 0; i < 3; i++) {
        const double dim = (double)(i ? side : c->head_dim - 2 * side);
        pairs[i] = (int64_t)dim / 2;
        theta[i] = 10000 * pow(c->rope_scale[i], dim / (dim - 2));
    }
}

/* cos and sin of frame positions in seconds, (B,S,pairs). */
static void rope_by_seconds(weft_graph *g, weft_value fps_b, const int64_t size[3], int64_t pairs,
                            double theta, weft_value cos_sin[2])
{
    const int64_t batch = weft_dim(g, fps_b, 0), frame = size[1] * size[2];
    const int64_t all[] = {batch, size[0], frame, pairs};
    float *phase = weft_calloc(size[0] * pairs, sizeof *phase);
    if (!phase) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for rotary positions");
        return;
    }
    for (int64_t t = 0; t < size[0]; t++)
        for (int64_t i = 0; i < pairs; i++)
            phase[t * pairs + i] = (float)((double)t * pow(theta, -(double)i / (double)pairs));
    const weft_value table = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, size[0], 1, pairs), phase);
    weft_free(phase);
    const weft_value rate = weft_div(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1, 1, 1), BASE_FPS),
                                     weft_reshape(g, fps_b, WEFT_SHAPE(batch, 1, 1, 1)));
    const weft_value angle = weft_mul(g, table, rate);
    for (int i = 0; i < 2; i++) {
        cos_sin[i] = weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle);
        cos_sin[i] = weft_broadcast(g, cos_sin[i], weft_shape_of(4, all));
        cos_sin[i] = weft_reshape(g, cos_sin[i], WEFT_SHAPE(batch, size[0] * frame, pairs));
    }
}

static void rope_tables(weft_graph *g, const cosmos *c, weft_value fps_b, const int64_t size[3],
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    weft_attr_rope_table attr = {
        .step = {1, 1, 1}, .grid = {size[0], size[1], size[2]}, .len = size[0] * size[1] * size[2]};
    weft_value frames[2];
    axes_of(c, attr.pairs, attr.theta);
    const int64_t pairs = attr.pairs[0];
    if (weft_value_ok(fps_b))
        attr.pairs[0] = 0;
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
    if (!weft_value_ok(fps_b))
        return;
    const int64_t batch = weft_dim(g, fps_b, 0), sides = attr.pairs[1] + attr.pairs[2];
    rope_by_seconds(g, fps_b, size, pairs, attr.theta[0], frames);
    for (int i = 0; i < 2; i++) {
        cos_sin[i] = weft_reshape(g, cos_sin[i], WEFT_SHAPE(1, attr.len, sides));
        cos_sin[i] = weft_broadcast(g, cos_sin[i], WEFT_SHAPE(batch, attr.len, sides));
        cos_sin[i] = weft_concat(g, (weft_value[]){frames[i], cos_sin[i]}, 2, 2);
        cos_sin[i] = weft_reshape(g, cos_sin[i], WEFT_SHAPE(batch, attr.len, 1, pairs + sides));
    }
}

/* Normalised sum of the learned embeddings of frame, row and column: (1,S,C). */
static weft_value learned_positions(weft_graph *g, const cosmos *c, const int64_t size[3])
{
    static const char *const names[] = {"pos_emb_t", "pos_emb_h", "pos_emb_w"};
    const int64_t width = width_of(c);
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02};
    weft_value sum = WEFT_NONE;
    weft_graph_push(g, "learnable_pos_embed");
    for (int i = 0; i < 3; i++) {
        const int64_t rows = c->most[i] / c->patch[i];
        int64_t at[4] = {1, 1, 1, width};
        at[i] = size[i];
        weft_value table = weft_param(g, names[i], WEFT_F32, WEFT_SHAPE(rows, width), small);
        if (size[i] > rows)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%" PRId64 " patches along %s; \"max_size\" allows %" PRId64, size[i],
                            (const char *[]){"T", "Y", "X"}[i], rows);
        table = weft_reshape(g, weft_slice(g, table, 0, 0, size[i]), weft_shape_of(4, at));
        sum = i ? weft_add(g, sum, table) : table;
    }
    const weft_value norm =
        weft_unary(g, WEFT_OP_SQRT, weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, sum), 1u << 3));
    sum = weft_div(g, sum, weft_affine(g, norm, 1 / sqrt((double)width), eps));
    weft_graph_pop(g);
    return weft_reshape(g, sum, WEFT_SHAPE(1, size[0] * size[1] * size[2], width));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Reshapes x to match its modulations, and back. */
static weft_value by_frames(weft_graph *g, const conditioning *to, weft_value x)
{
    if (!to->frames)
        return x;
    return weft_reshape(
        g, x,
        WEFT_SHAPE(weft_dim(g, x, 0), to->size[0], to->size[1] * to->size[2], weft_dim(g, x, 2)));
}

static weft_value by_tokens(weft_graph *g, const conditioning *to, weft_value x)
{
    if (!to->frames)
        return x;
    return weft_reshape(
        g, x,
        WEFT_SHAPE(weft_dim(g, x, 0), to->size[0] * to->size[1] * to->size[2], weft_dim(g, x, 3)));
}

/* Modulation of a norm: `rows` values of (B,1,C), or (B,T,1,C). */
static void modulation(weft_graph *g, const cosmos *c, const char *name, const conditioning *to,
                       int rows, weft_value row[])
{
    const int64_t width = width_of(c);
    const int last = to->frames ? 2 : 1;
    weft_graph_push(g, "%s", name);
    weft_value mod = weft_nn_linear_plain(g, "linear_1", to->embedded, c->lora_dim);
    mod = weft_nn_linear_plain(g, "linear_2", mod, rows * width);
    weft_graph_pop(g);
    mod = weft_add(g, mod, rows == 3 ? to->temb : weft_slice(g, to->temb, last, 0, rows * width));
    for (int i = 0; i < rows; i++) {
        const int64_t batch = weft_dim(g, mod, 0);
        row[i] = weft_slice(g, mod, last, i * width, width);
        row[i] = weft_reshape(g, row[i],
                              to->frames ? WEFT_SHAPE(batch, to->frames, 1, width)
                                         : WEFT_SHAPE(batch, 1, width));
    }
}

static weft_value modulated(weft_graph *g, const char *name, const conditioning *to, weft_value x,
                            const weft_value row[])
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_plain_norm(g, x, eps);
    weft_graph_pop(g);
    return by_tokens(g, to, weft_nn_modulate(g, by_frames(g, to, x), row[SCALE], row[SHIFT]));
}

static weft_value attention(weft_graph *g, const cosmos *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, const weft_value *rope)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_split_heads(g, weft_nn_linear_plain(g, "to_q", x_bsc, width), c->heads),
               k = weft_nn_split_heads(g, weft_nn_linear_plain(g, "to_k", context_blc, width),
                                       c->heads),
               v = weft_nn_split_heads(g, weft_nn_linear_plain(g, "to_v", context_blc, width),
                                       c->heads);
    q = weft_nn_rms_norm(g, "norm_q", q, qk_eps);
    k = weft_nn_rms_norm(g, "norm_k", k, qk_eps);
    if (rope) {
        q = weft_nn_rope(g, q, rope, true);
        k = weft_nn_rope(g, k, rope, true);
    }
    const weft_value mixed = weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
    const weft_value out = weft_nn_linear_plain(g, "to_out.0", mixed, width);
    weft_graph_pop(g);
    return out;
}

static weft_value feed_forward(weft_graph *g, const cosmos *c, weft_value x)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "ff.net");
    x = weft_nn_linear_plain(g, "0.proj", x, (int64_t)((double)width * c->mlp_ratio));
    x = weft_nn_linear_plain(g, "2", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), width);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const cosmos *c, weft_value x, weft_value text,
                        const conditioning *to, const weft_value *rope)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    for (int i = 0; i < 3; i++) {
        weft_value row[3];
        modulation(g, c, norms[i], to, 3, row);
        weft_value h = modulated(g, norms[i], to, x, row);
        h = i == 0   ? attention(g, c, "attn1", h, h, rope)
            : i == 1 ? attention(g, c, "attn2", h, text, NULL)
                     : feed_forward(g, c, h);
        x = by_tokens(g, to,
                      weft_nn_gated_add(g, by_frames(g, to, x), by_frames(g, to, h), row[GATE]));
    }
    return x;
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Pixel mask sampled at every latent: the first of PIXELS pixels (nearest). */
static weft_value padding_channel(weft_graph *g, const weft_ports *in)
{
    const weft_value x = in->at[WEFT_PORT_LATENTS], mask = in->at[WEFT_PORT_PADDING];
    const int64_t rows = weft_dim(g, x, 2), columns = weft_dim(g, x, 3);
    const weft_shape all = WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), rows, columns, 1);
    if (!weft_value_ok(mask))
        return weft_fill(g, WEFT_F32, all, 0);
    weft_value m = weft_reshape(g, mask, WEFT_SHAPE(1, rows, PIXELS, columns, PIXELS));
    m = weft_slice(g, weft_slice(g, m, 2, 0, 1), 4, 0, 1);
    return weft_broadcast(g, weft_reshape(g, m, WEFT_SHAPE(1, 1, rows, columns, 1)), all);
}

/* Marks of a video without given frames. */
static weft_value no_condition(weft_graph *g, weft_value latents)
{
    weft_shape one = weft_value_get(g, latents)->shape;
    one.dim[4] = 1;
    return weft_fill(g, WEFT_F32, one, 0);
}

static weft_value embed_latents(weft_graph *g, const cosmos *c, const weft_ports *in)
{
    weft_value part[3] = {in->at[WEFT_PORT_LATENTS]};
    const weft_value given = in->at[WEFT_PORT_CONDITION];
    int parts = 1;
    if (has_condition(c))
        part[parts++] = weft_value_ok(given) ? given : no_condition(g, part[0]);
    if (c->padding)
        part[parts++] = padding_channel(g, in);
    return weft_nn_patch(g, "patch_embed.proj",
                         parts > 1 ? weft_concat(g, part, parts, 4) : part[0], width_of(c),
                         c->patch, WEFT_PATCH_LINEAR, false);
}

static void embed_time(weft_graph *g, const cosmos *c, weft_value t, conditioning *to)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "time_embed");
    const weft_value s = weft_nn_sinusoid(g, width, t);
    weft_graph_push(g, "t_embedder");
    const weft_value h = weft_nn_linear_plain(g, "linear_1", s, width);
    to->temb = weft_nn_linear_plain(g, "linear_2", weft_unary(g, WEFT_OP_SILU, h), 3 * width);
    weft_graph_pop(g);
    to->embedded = weft_unary(g, WEFT_OP_SILU, weft_nn_rms_norm(g, "norm", s, eps));
    weft_graph_pop(g);
    to->frames = weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2 ? weft_dim(g, t, 1) : 0;
    if (to->frames && to->frames != to->size[0])
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " timesteps for %" PRId64 " latent frames", to->frames,
                        to->size[0]);
}

static weft_value forward(weft_graph *g, const cosmos *c, const weft_ports *in)
{
    conditioning to;
    weft_value rope[WEFT_MAX_OUTPUTS], positions = WEFT_NONE, row[2];
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, to.size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_value x = embed_latents(g, c, in), text = in->at[WEFT_PORT_TEXT];
    embed_time(g, c, in->at[WEFT_PORT_TIMESTEP], &to);
    rope_tables(g, c, in->at[WEFT_PORT_FPS], to.size, rope);
    if (c->pos_embed == POS_EMBED_LEARNED)
        positions = learned_positions(g, c, to.size);
    if (c->project)
        text = weft_nn_activate(
            g, WEFT_NN_GELU_ERF,
            weft_nn_linear(g, "crossattn_proj.0", text, c->project_to, WEFT_LINEAR_XAVIER));
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        if (weft_value_ok(positions))
            x = weft_add(g, x, positions);
        x = block(g, c, x, text, &to, rope);
        weft_graph_pop(g);
    }
    modulation(g, c, "norm_out", &to, 2, row);
    x = modulated(g, "norm_out", &to, x, row);
    const int64_t sides = c->patch[1] * c->patch[2];
    x = weft_nn_linear_plain(g, "proj_out", x, sides * c->patch[0] * c->out_channels);
    if (c->patch[0] > 1) { /* (ph pw, pt, channel) */
        const int64_t batch = weft_dim(g, x, 0), tokens = weft_dim(g, x, 1);
        x = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, sides, c->patch[0], c->out_channels));
        x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
        x = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, sides * c->patch[0] * c->out_channels));
    }
    return weft_nn_unpatch(g, x, to.size, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const cosmos *c = config;
    if (c->head_dim < 12 || c->head_dim % 2)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
            "%" PRId64 " is not an even number of at least 12, which rotary positions along "
            "three axes need",
            c->head_dim);
    if (c->project && c->project_to != c->text_dim)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "encoder_hidden_states_channels", c->project_to),
                          "%" PRId64 " differs from \"text_embed_dim\" %" PRId64
                          "; write the same value",
                          c->project_to, c->text_dim);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const cosmos *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_FPS: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_CONDITION:
        return has_condition(c) ? WEFT_SHAPE(s->batch, s->frames, s->height, s->width, 1)
                                : WEFT_SCALAR;
    case WEFT_PORT_PADDING:
        return c->padding ? WEFT_SHAPE(1, 1, PIXELS * s->height, PIXELS * s->width, 1)
                          : WEFT_SCALAR;
    default:
        return weft_denoiser_shape(s, port, has_condition(c) ? c->out_channels : c->in_channels,
                                   c->project ? c->project_from : c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const cosmos *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->patch[i];
    grid->channels = has_condition(c) ? c->out_channels : c->in_channels;
    grid->out_channels = c->out_channels;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const double clean = 1e-4; /* noise level of given frames */
    if (has_condition(config))
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_PORT,
                                       .also_none = is_25(config),
                                       .keeps_noise = is_25(config),
                                       .given_time = is_25(config) ? clean : clean / (1 + clean)};
}

/* The pipeline of 2.5 gives no frame rate. */
static bool piped(const void *config, weft_port port)
{
    return port != WEFT_PORT_FPS || !is_25(config);
}

/* clang-format off */
static const char *const pos_embed_words[] = {"\"learnable\"", "null", NULL};
#define AT(member) offsetof(cosmos, member)
static const weft_field fields[] = {
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS,
     .help = "input channels: output channels and a mask of conditioning frames"},
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    WEFT_HEADS_FIELD(AT(heads), "32"),
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_BLOCKS_FIELD(AT(layers), "28"),
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "1024"),
    {"adaln_lora_dim", WEFT_FIELD_I64, AT(lora_dim), "256", 1, 1 << 16,
     .help = "inner width of the norms' low-rank modulation"},
    {"max_size", WEFT_FIELD_I64S, AT(most), "[128, 240, 240]", 1, 1 << 16, .capacity = 3,
     .length = weft_three,
     .help = "latent frames, rows and columns that learned positions are for"},
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    {"rope_scale", WEFT_FIELD_F64S, AT(rope_scale), "[2.0, 1.0, 1.0]", 1e-3, 1e3, .capacity = 3,
     .length = weft_three, .help = "extension of rotary positions along frames, rows and columns"},
    {"concat_padding_mask", WEFT_FIELD_BOOL, AT(padding), "true",
     .help = "an input channel masks the area outside the image"},
    {"extra_pos_embed_type", WEFT_FIELD_WORD, AT(pos_embed), .words = pos_embed_words,
     .help = "learned positions, added before every block (1.0)"},
    {"use_crossattn_projection", WEFT_FIELD_BOOL, AT(project), "false",
     .help = "a linear layer between the text embeddings and the model (2.5)"},
    {"crossattn_proj_in_channels", WEFT_FIELD_I64, AT(project_from), "1024", 1, 1 << 20,
     .help = "input width of this layer"},
    {"encoder_hidden_states_channels", WEFT_FIELD_I64, AT(project_to), "1024", 1, 1 << 20,
     .help = "output width of this layer"},
    {"controlnet_block_every_n", WEFT_FIELD_FIXED, .fallback = "null"},
    {"img_context_dim_in", WEFT_FIELD_FIXED, .fallback = "null"},
    {"img_context_num_tokens", WEFT_FIELD_IGNORED, .fallback = "256"},
    {"img_context_dim_out", WEFT_FIELD_IGNORED, .fallback = "2048"},
};

#define SECOND "\"extra_pos_embed_type\": null, "
#define LARGE "\"num_attention_heads\": 40, \"num_layers\": 36"
#define PROJECTED "\"in_channels\": 17, \"rope_scale\": [1.0, 3.0, 3.0]," \
                  " \"use_crossattn_projection\": true, \"crossattn_proj_in_channels\": 100352, "
static const weft_named_config sizes[] = {
    {"cosmos1-7b", "{}"},
    {"cosmos1-14b", "{" LARGE ", \"rope_scale\": [2.0, 2.0, 2.0]}"},
    {"cosmos-predict2-2b-t2i", "{" SECOND "\"num_attention_heads\": 16,"
                               " \"rope_scale\": [1.0, 4.0, 4.0]}"},
    {"cosmos-predict2-2b", "{" SECOND "\"num_attention_heads\": 16, \"in_channels\": 17,"
                           " \"rope_scale\": [1.0, 3.0, 3.0]}"},
    {"cosmos-predict2-14b", "{" SECOND LARGE ", \"in_channels\": 17,"
                            " \"rope_scale\": [0.8333333333333334, 2.0, 2.0]}"},
    {"cosmos-predict2.5-2b", "{" SECOND PROJECTED "\"num_attention_heads\": 16}"},
    {"cosmos-predict2.5-14b", "{" SECOND PROJECTED LARGE "}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_FPS,        false, "fps", .optional = true},
    {WEFT_PORT_CONDITION,  false, "condition_mask", .optional = true},
    {WEFT_PORT_PADDING,    false, "padding_mask", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of Predict2's own files. */
static const weft_rename_rule original[] = {
    {"pos_embedder",                  ""}, /* computed */
    {"accum_image_sample_counter",    ""},
    {"accum_video_sample_counter",    ""},
    {"accum_iteration",               ""},
    {"accum_train_in_hours",          ""},
    {"t_embedder.1",                  "time_embed.t_embedder"},
    {"t_embedding_norm",              "time_embed.norm"},
    {"blocks",                        "transformer_blocks"},
    {"adaln_modulation_self_attn.1",  "norm1.linear_1"},
    {"adaln_modulation_self_attn.2",  "norm1.linear_2"},
    {"adaln_modulation_cross_attn.1", "norm2.linear_1"},
    {"adaln_modulation_cross_attn.2", "norm2.linear_2"},
    {"adaln_modulation_mlp.1",        "norm3.linear_1"},
    {"adaln_modulation_mlp.2",        "norm3.linear_2"},
    {"self_attn",                     "attn1"},
    {"cross_attn",                    "attn2"},
    {"q_proj",                        "to_q"},
    {"k_proj",                        "to_k"},
    {"v_proj",                        "to_v"},
    {"output_proj",                   "to_out.0"},
    {"q_norm",                        "norm_q"},
    {"k_norm",                        "norm_k"},
    {"mlp.layer1",                    "ff.net.0.proj"},
    {"mlp.layer2",                    "ff.net.2"},
    {"x_embedder.proj.1",             "patch_embed.proj"},
    {"final_layer.adaln_modulation.1", "norm_out.linear_1"},
    {"final_layer.adaln_modulation.2", "norm_out.linear_2"},
    {"final_layer.linear",            "proj_out"},
};
/* Key mapping of Cosmos 1.0's own files: a block is a list of three layers. */
static const weft_rename_rule original1[] = {
    {"pos_embedder", ""}, /* computed */
    {"logvar",       ""}, /* loss only */
    {"t_embedder.1",                               "time_embed.t_embedder"},
    {"affline_norm",                               "time_embed.norm"},
    {"blocks.block#.blocks.0.block.attn",          "transformer_blocks.#.attn1"},
    {"blocks.block#.blocks.1.block.attn",          "transformer_blocks.#.attn2"},
    {"blocks.block#.blocks.2.block",               "transformer_blocks.#.ff"},
    {"blocks.block#.blocks.0.adaLN_modulation.1",  "transformer_blocks.#.norm1.linear_1"},
    {"blocks.block#.blocks.0.adaLN_modulation.2",  "transformer_blocks.#.norm1.linear_2"},
    {"blocks.block#.blocks.1.adaLN_modulation.1",  "transformer_blocks.#.norm2.linear_1"},
    {"blocks.block#.blocks.1.adaLN_modulation.2",  "transformer_blocks.#.norm2.linear_2"},
    {"blocks.block#.blocks.2.adaLN_modulation.1",  "transformer_blocks.#.norm3.linear_1"},
    {"blocks.block#.blocks.2.adaLN_modulation.2",  "transformer_blocks.#.norm3.linear_2"},
    {"to_q.1",                                     "norm_q"},
    {"to_q.0",                                     "to_q"},
    {"to_k.1",                                     "norm_k"},
    {"to_k.0",                                     "to_k"},
    {"to_v.0",                                     "to_v"},
    {"layer1",                                     "net.0.proj"},
    {"layer2",                                     "net.2"},
    {"x_embedder.proj.1",                          "patch_embed.proj"},
    {"extra_pos_embedder",                         "learnable_pos_embed"},
    {"final_layer.adaLN_modulation.1",             "norm_out.linear_1"},
    {"final_layer.adaLN_modulation.2",             "norm_out.linear_2"},
    {"final_layer.linear",                         "proj_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "transformer_blocks.0.norm1.linear_1.weight", NULL, 0},
    {"original", "blocks.0.adaln_modulation_cross_attn.1.weight", original,
     sizeof original / sizeof *original},
    {"original", "blocks.block0.blocks.0.block.attn.to_q.0.weight", original1,
     sizeof original1 / sizeof *original1},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .zeros = true,
     .fits = is_before_25},
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512,
     .before = "<|im_start|>system\nYou are a helpful assistant who will provide prompts to an "
               "image generator.<|im_end|>\n<|im_start|>user\n",
     .after = "<|im_end|>\n",
     .sees_padding = true, .own_side = true, .all_hidden = true, .fits = is_25},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (DBCache's default threshold, and twice that). */
static bool is_7b(const void *config)
{
    const cosmos *c = config;
    return c->layers == 28 && c->heads == 32;
}
static const weft_feature_cache_row caches[] = {
    {is_7b, 0, WEFT_SIGNAL_INPUT,
     {2.71156237e2, -9.19775607e1, 2.24437250e0, 2.08355751e0, 1.41776330e-1}, 0.1, 0.2, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.08, 0.16, 0},
};

const weft_family weft_family_cosmos_dit = {
    .class_name = "CosmosTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "CosmosTextToWorldPipeline",
    .marks = {"adaln_lora_dim", "rope_scale"},
    .config_bytes = sizeof(cosmos), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "video to world (in_channels is out_channels + 1): first frame",
    .fps = 30, .guidance = "cosmos", .unit_times = is_25, .piped = piped,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_per_head, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
