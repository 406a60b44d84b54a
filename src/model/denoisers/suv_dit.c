/* SUV, the diffusion transformer of Open-Sora-Plan 1.5 (its SparseUMMDiT). Parameters have the
 * names of the authors' files.
 *
 *   latents --patch of each frame--> x (B,S,C); text --linear--> y (B,L,C)
 *   temb (B,E) = MLP of the timestep's sinusoid + MLP of the pooled text
 *
 *   block:  x += gate attn(mod(norm x), mod(norm y));   x += gate ffn(mod(norm x))
 *           y += gate attn(...);                        y += gate ffn(mod(norm y))
 *
 * Video and text have their own layers and attend to both (as mmdit.h). The blocks form stages with
 * a sparsity n each. Queries, keys and values of the video are split into n subsequences
 * (weft_nn_skip_split): single tokens in even blocks, groups in odd blocks. A subsequence attends
 * to itself and to the complete text. The text's outputs are the means over the subsequences.
 *
 * The stages are U-shaped: a stage after the middle begins with a linear layer of x and the output
 * of the stage opposite, and the same for y.
 *
 * RoPE rotates 4/16 of a head by frames, 6/16 by rows and 6/16 by columns, each with rotate-half.
 * Shape letters: B batch, S video tokens, L text tokens, C width, E width of temb, H heads, D head
 * width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <string.h>

enum { MAX_STAGES = 31 };

typedef struct suv {
    int64_t patch, heads, head_dim, in_channels, out_channels;
    int64_t stages, sparsities; /* items of the lists */
    int64_t layers[MAX_STAGES], skip[MAX_STAGES];
    bool sparse, bias, skips, identity; /* identity: no norm before the linear layer of a skip */
    double eps;
    int64_t temb, text_dim, pooled_dim;
} suv;
_Static_assert(sizeof(suv) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { VIDEO, TEXT, STREAMS };
static const double theta = 10000;

static int64_t width_of(const suv *c)
{
    return c->heads * c->head_dim;
}

/* Inputs of all blocks. */
typedef struct condition {
    weft_value temb;                        /* silu of temb (B,E) */
    weft_value part[2][3];                  /* cos and sin of frames, rows and columns */
    weft_value video_real_bs, text_real_bl; /* f32 masks; WEFT_NONE: all tokens are real */
    int64_t batch, tokens, text;
} condition;

/* ---- attention ------------------------------------------------------------------------------ */

/* Slices the rotary tables of a head into the parts of the axes. */
static void rope_tables(weft_graph *g, const suv *c, const int64_t size[3], condition *to)
{
    const int64_t unit = c->head_dim / 16, axes[3] = {4 * unit, 6 * unit, 6 * unit};
    weft_value table[WEFT_MAX_OUTPUTS];
    weft_mmdit_video_rope(g, theta, axes, 0, size, table);
    for (int i = 0; i < 2; i++) {
        int64_t first = 0;
        for (int d = 0; d < 3; d++) {
            to->part[i][d] = weft_slice(g, table[i], 1, first, axes[d] / 2);
            first += axes[d] / 2;
        }
    }
}

static weft_value rotate(weft_graph *g, const suv *c, weft_value x_bshd, const condition *to)
{
    const int64_t unit = c->head_dim / 16, axes[3] = {4 * unit, 6 * unit, 6 * unit};
    weft_value part[3];
    int64_t first = 0;
    for (int d = 0; d < 3; d++) {
        part[d] = weft_nn_rope(g, weft_slice(g, x_bshd, 3, first, axes[d]),
                               (const weft_value[]){to->part[0][d], to->part[1][d]}, true);
        first += axes[d];
    }
    return weft_concat(g, part, 3, 3);
}

/* Values of the text (B,L,...) for each of n subsequences: (B n,L,...). */
static weft_value repeat(weft_graph *g, weft_value x, int64_t n)
{
    if (n == 1 || weft_graph_check(g) != WEFT_OK)
        return x;
    const weft_shape own = weft_value_get(g, x)->shape;
    weft_shape wide = own, all = own;
    wide.rank = all.rank = own.rank + 1;
    memcpy(wide.dim + 2, own.dim + 1, (size_t)(own.rank - 1) * sizeof *own.dim);
    wide.dim[1] = 1;
    all = wide;
    all.dim[1] = n;
    weft_shape flat = own;
    flat.dim[0] = own.dim[0] * n;
    return weft_reshape(g, weft_broadcast(g, weft_reshape(g, x, wide), all), flat);
}

/* The means over n subsequences: (B n,L,C) -> (B,L,C). */
static weft_value mean_of(weft_graph *g, weft_value x, int64_t n)
{
    if (n == 1 || weft_graph_check(g) != WEFT_OK)
        return x;
    const int64_t batch = weft_dim(g, x, 0) / n, tokens = weft_dim(g, x, 1),
                  width = weft_dim(g, x, 2);
    return weft_reshape(
        g, weft_mean(g, weft_reshape(g, x, WEFT_SHAPE(batch, n, tokens, width)), 1u << 1),
        WEFT_SHAPE(batch, tokens, width));
}

/* Bias of the joined keys of all subsequences (B n,S/n+L). Padding is hidden. */
static weft_value key_bias(weft_graph *g, const condition *to, int64_t n, bool grouped)
{
    const int64_t more = n > 1 ? weft_nn_skip_padding(to->tokens, n) : 0;
    weft_value video = to->video_real_bs, text = to->text_real_bl;
    if (!weft_value_ok(video) && !weft_value_ok(text) && !more)
        return WEFT_NONE;
    if (!weft_value_ok(video))
        video = weft_fill(g, WEFT_F32, WEFT_SHAPE(to->batch, to->tokens), 1);
    if (!weft_value_ok(text))
        text = weft_fill(g, WEFT_F32, WEFT_SHAPE(to->batch, to->text), 1);
    video = more ? weft_pad(g, video, 1, 0, more) : video;
    const weft_value both[2] = {n > 1 ? weft_nn_skip_split(g, video, n, grouped) : video,
                                repeat(g, text, n)};
    return weft_nn_hide(g, weft_concat(g, both, 2, 1));
}

/* q, k, v (B,S,H,D) of a stream. */
static void project(weft_graph *g, const suv *c, int stream, weft_value x, const condition *to,
                    weft_value qkv[3])
{
    static const char *const names[STREAMS][5] = {
        {"to_q", "to_k", "to_v", "norm_q", "norm_k"},
        {"add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k"},
    };
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_split_heads(g, weft_nn_dense(g, names[stream][i], x, width_of(c), c->bias),
                                     c->heads);
        if (i == 2)
            return;
        qkv[i] = weft_nn_rms_norm(g, names[stream][3 + i], qkv[i], c->eps);
        if (stream == VIDEO)
            qkv[i] = rotate(g, c, qkv[i], to);
    }
}

/* h[]: inputs, and outputs before the last linear layers. `last`: the text's output is unused. */
static void attend(weft_graph *g, const suv *c, weft_value h[STREAMS], const condition *to,
                   int64_t n, bool grouped, bool last)
{
    weft_value q[STREAMS], k[STREAMS], v[STREAMS], qkv[3];
    const int64_t more = n > 1 ? weft_nn_skip_padding(to->tokens, n) : 0;
    for (int s = 0; s < STREAMS; s++) {
        project(g, c, s, h[s], to, qkv);
        for (int i = 0; i < 3 && s == VIDEO && n > 1; i++)
            qkv[i] =
                weft_nn_skip_split(g, more ? weft_pad(g, qkv[i], 1, 0, more) : qkv[i], n, grouped);
        q[s] = s == TEXT ? repeat(g, qkv[0], n) : qkv[0];
        k[s] = s == TEXT ? repeat(g, qkv[1], n) : qkv[1];
        v[s] = s == TEXT ? repeat(g, qkv[2], n) : qkv[2];
    }
    if (last)
        q[VIDEO] = weft_mmdit_with_no_effect(g, q[VIDEO], q[TEXT]);
    weft_nn_attend_jointly(g, STREAMS, q, k, v, key_bias(g, to, n, grouped), h);
    if (n > 1)
        h[VIDEO] = weft_slice(g, weft_nn_skip_join(g, h[VIDEO], n, grouped), 1, 0, to->tokens);
    h[VIDEO] = weft_nn_join_heads(g, h[VIDEO]);
    if (!last)
        h[TEXT] = mean_of(g, weft_nn_join_heads(g, h[TEXT]), n);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Rows of a modulation: shift, scale and gate of the video, then of the text. */
static weft_value modulation(weft_graph *g, const suv *c, const condition *to)
{
    const weft_value mod =
        weft_nn_linear(g, "linear", to->temb, 6 * width_of(c), WEFT_LINEAR_XAVIER);
    return weft_reshape(g, mod, WEFT_SHAPE(to->batch, 6, width_of(c)));
}

static weft_value modulated(weft_graph *g, const suv *c, const char *norm, weft_value x,
                            weft_value mod, int stream)
{
    return weft_nn_modulate(g, weft_nn_layer_norm(g, norm, x, c->eps),
                            weft_nn_row(g, mod, 3 * stream + 1), weft_nn_row(g, mod, 3 * stream));
}

static const char *const norm_names[STREAMS] = {"norm", "norm_enc"},
                         *const out_names[STREAMS] = {"to_out.0", "to_add_out"},
                         *const ff_names[STREAMS] = {"ff", "ff_enc"};

/* "net.0.proj", GELU, "net.2", without biases. */
static weft_value feed_forward(weft_graph *g, const suv *c, const char *name, weft_value x)
{
    weft_graph_push(g, "%s.net", name);
    x = weft_gelu_tanh(g, weft_nn_linear_plain(g, "0.proj", x, 4 * width_of(c)));
    x = weft_nn_linear_plain(g, "2", x, width_of(c));
    weft_graph_pop(g);
    return x;
}

static void block(weft_graph *g, const suv *c, weft_value x[STREAMS], const condition *to,
                  int64_t n, bool grouped, bool last)
{
    weft_value h[STREAMS];
    const int streams = last ? 1 : STREAMS; /* with outputs */
    weft_graph_push(g, "norm1");
    weft_value mod = modulation(g, c, to);
    for (int s = 0; s < STREAMS; s++)
        h[s] = modulated(g, c, norm_names[s], x[s], mod, s);
    weft_graph_pop(g);
    weft_graph_push(g, "attn1");
    attend(g, c, h, to, n, grouped, last);
    for (int s = 0; s < streams; s++)
        h[s] = weft_nn_linear(g, out_names[s], h[s], width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    for (int s = 0; s < streams; s++)
        x[s] = weft_nn_gated_add(g, x[s], h[s], weft_nn_row(g, mod, 3 * s + 2));
    weft_graph_push(g, "norm2");
    mod = modulation(g, c, to);
    for (int s = 0; s < streams; s++)
        h[s] = modulated(g, c, norm_names[s], x[s], mod, s);
    weft_graph_pop(g);
    for (int s = 0; s < streams; s++)
        x[s] = weft_nn_gated_add(g, x[s], feed_forward(g, c, ff_names[s], h[s]),
                                 weft_nn_row(g, mod, 3 * s + 2));
}

/* Parameters of the layers that join a stream with the output of the opposite stage. */
typedef struct join {
    weft_nn_layer norm, linear;
} join;

static join join_of(weft_graph *g, const suv *c, int stream, int64_t index)
{
    static const char *const names[STREAMS] = {"skip_norm_linear", "skip_norm_linear_enc"};
    const int64_t width = width_of(c);
    join l = {0};
    weft_graph_push(g, "%s.%d", names[stream], (int)index);
    if (!c->identity)
        l.norm = weft_nn_norm_of(g, "0", 2 * width, true);
    l.linear = weft_nn_linear_of(g, "1", 2 * width, width, true, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return l;
}

/* (B,S,2C) -> (B,S,C) */
static weft_value join_by(weft_graph *g, const suv *c, const join *l, weft_value x, weft_value skip)
{
    x = weft_concat(g, (const weft_value[]){x, skip}, 2, 2);
    if (!c->identity)
        x = weft_nn_layer_norm_by(g, &l->norm, x, c->eps);
    return weft_nn_linear_by(g, &l->linear, x);
}

/* The joins are nodes of the first block of their stage, so that pipeline stages have blocks and no
 * smaller units: a skip would pass a unit that joins only the other stream. */
static void run_stages(weft_graph *g, const suv *c, weft_value x[STREAMS], const condition *to)
{
    weft_value skip[MAX_STAGES][STREAMS];
    const int64_t half = c->stages / 2;
    for (int64_t i = 0; i < c->stages; i++) {
        const int64_t n = c->sparse ? c->skip[i] : 1;
        const bool joins = c->skips && i > half;
        join l[STREAMS];
        for (int s = 0; s < STREAMS && joins; s++)
            l[s] = join_of(g, c, s, i - half - 1);
        for (int64_t k = 0; k < c->layers[i]; k++) {
            weft_graph_push(g, "transformer_blocks.%d.%d", (int)i, (int)k);
            for (int s = 0; s < STREAMS && joins && k == 0; s++)
                x[s] = join_by(g, c, &l[s], x[s], skip[c->stages - 1 - i][s]);
            block(g, c, x, to, n, n > 1 && k % 2 == 1, i + 1 == c->stages && k + 1 == c->layers[i]);
            weft_graph_pop(g);
        }
        memcpy(skip[i], x, sizeof skip[i]);
    }
}

/* ---- the model ------------------------------------------------------------------------------ */

/* A token is real if any of its latents is real. */
static weft_value pool_mask(weft_graph *g, const suv *c, weft_value mask_btyx,
                            const int64_t size[3], int64_t batch)
{
    if (!weft_value_ok(mask_btyx))
        return WEFT_NONE;
    weft_value m = weft_cast(g, mask_btyx, WEFT_F32);
    m = weft_reshape(g, m, WEFT_SHAPE(batch, size[0], size[1], c->patch, size[2], c->patch));
    m = weft_clamp(g, weft_sum(g, m, 1u << 3 | 1u << 5), 0, 1);
    return weft_reshape(g, m, WEFT_SHAPE(batch, size[0] * size[1] * size[2]));
}

static weft_value embed_condition(weft_graph *g, const suv *c, const weft_ports *in)
{
    weft_graph_push(g, "time_text_embed");
    const weft_value time = weft_nn_embedder(
        g, "timestep_embedder", weft_nn_sinusoid(g, c->temb, in->at[WEFT_PORT_TIMESTEP]), c->temb,
        WEFT_NN_SILU);
    const weft_value pooled =
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_POOLED], c->temb, WEFT_NN_SILU);
    weft_graph_pop(g);
    return weft_unary(g, WEFT_OP_SILU, weft_add(g, time, pooled));
}

static weft_value project_out(weft_graph *g, const suv *c, weft_value x, const condition *to)
{
    x = weft_nn_layer_norm(g, "norm_final", x, c->eps);
    weft_graph_push(g, "norm_out");
    weft_value mod = weft_nn_linear(g, "linear", to->temb, 2 * width_of(c), WEFT_LINEAR_XAVIER);
    mod = weft_reshape(g, mod, WEFT_SHAPE(to->batch, 2, width_of(c))); /* shift, scale */
    x = modulated(g, c, "norm", x, mod, VIDEO);
    weft_graph_pop(g);
    return weft_nn_linear(g, "proj_out", x, c->patch * c->patch * c->out_channels,
                          WEFT_LINEAR_ZERO);
}

static weft_value forward(weft_graph *g, const suv *c, const weft_ports *in)
{
    const int64_t patch[3] = {1, c->patch, c->patch};
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    int64_t size[3];
    condition to;
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    to.batch = weft_dim(g, in->at[WEFT_PORT_LATENTS], 0);
    to.tokens = size[0] * size[1] * size[2];
    to.text = weft_dim(g, in->at[WEFT_PORT_TEXT], 1);
    weft_value x[STREAMS] = {weft_nn_patch(g, "patch_embed.proj", in->at[WEFT_PORT_LATENTS],
                                           width_of(c), patch, WEFT_PATCH_2D, true),
                             weft_nn_linear(g, "caption_projection", in->at[WEFT_PORT_TEXT],
                                            width_of(c), WEFT_LINEAR_XAVIER)};
    to.temb = embed_condition(g, c, in);
    to.video_real_bs = pool_mask(g, c, in->at[WEFT_PORT_LATENT_MASK], size, to.batch);
    to.text_real_bl = weft_value_ok(mask) ? weft_cast(g, mask, WEFT_F32) : WEFT_NONE;
    rope_tables(g, c, size, &to);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    run_stages(g, c, x, &to);
    return weft_nn_unpatch(g, project_out(g, c, x[VIDEO], &to), size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const suv *c = config;
    if (c->head_dim % 16)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "head_dim", c->head_dim),
                          "%" PRId64 " is not a multiple of 16, which rotary embedding by frames, "
                          "rows and columns needs",
                          c->head_dim);
    if (c->stages % 2 == 0 || c->stages != c->sparsities)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_layers", c->stages),
                          "%" PRId64 " stages, and \"sparse_n\" has %" PRId64
                          " items; both need the same odd number",
                          c->stages, c->sparsities);
    for (int64_t i = 0; i < c->stages; i++)
        if (c->layers[i] % 2)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "num_layers", c->layers[i]),
                              "%" PRId64 " blocks in a stage; an even number is needed, because "
                              "single tokens and groups alternate",
                              c->layers[i]);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const suv *c = config;
    switch (port) {
    case WEFT_PORT_POOLED: return WEFT_SHAPE(s->batch, c->pooled_dim);
    case WEFT_PORT_LATENT_MASK: return WEFT_SHAPE(s->batch, s->frames, s->height, s->width);
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const suv *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* clang-format off */
#define AT(member) offsetof(suv, member)
static const weft_field fields[] = {
    {"num_layers", WEFT_FIELD_I64S, AT(layers), "[2, 4, 6, 8, 6, 4, 2]", 2, 1024,
     .capacity = MAX_STAGES, .count = AT(stages), .help = "blocks of each stage, even numbers"},
    {"sparse_n", WEFT_FIELD_I64S, AT(skip), "[1, 2, 4, 8, 4, 2, 1]", 1, 64,
     .capacity = MAX_STAGES, .count = AT(sparsities),
     .help = "subsequences in which a stage's video tokens attend; 1: full attention"},
    {"sparse1d", WEFT_FIELD_BOOL, AT(sparse), "true",
     .help = "attention in subsequences; false: full attention in all stages"},
    {"skip_connection", WEFT_FIELD_BOOL, AT(skips), "true",
     .help = "a stage after the middle also reads the output of the stage opposite"},
    {"skip_connection_zero_init", WEFT_FIELD_BOOL, AT(identity), "true",
     .help = "no norm before the linear layer that joins both"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "24", 1, 1024,
     .help = "attention heads; heads x head width is the model's width"},
    {"head_dim", WEFT_FIELD_I64, AT(head_dim), "128", 16, 4096,
     .help = "width of a head, a multiple of 16"},
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "32"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "32"),
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "true",
     .help = "bias of queries, keys and values"},
    {"timestep_embed_dim", WEFT_FIELD_I64, AT(temb), "1024", 2, 1 << 16,
     .help = "width of the embedding of timestep and pooled text"},
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "2048"),
    {"pooled_projection_dim", WEFT_FIELD_I64, AT(pooled_dim), "1280", 1, 1 << 16,
     .help = "width of the pooled embedding"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-6"),
    {"double_ff", WEFT_FIELD_FIXED, .fallback = "true"},
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"norm_cls", WEFT_FIELD_FIXED, .fallback = "\"layer_norm\""},
    {"interpolation_scale_h", WEFT_FIELD_FIXED, .fallback = "1.0"},
    {"interpolation_scale_w", WEFT_FIELD_FIXED, .fallback = "1.0"},
    {"interpolation_scale_t", WEFT_FIELD_FIXED, .fallback = "1.0"},
    {"explicit_uniform_rope", WEFT_FIELD_FIXED, .fallback = "false"},
    {"norm_elementwise_affine", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"dropout", WEFT_FIELD_IGNORED, .fallback = "0.0"},
    {"sample_size_h", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"sample_size_w", WEFT_FIELD_IGNORED, .fallback = "null"},
    {"sample_size_t", WEFT_FIELD_IGNORED, .fallback = "null"},
};

static const weft_named_config sizes[] = {
    {"opensoraplan-1.5", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,     false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,    false, "timestep"},
    {WEFT_PORT_TEXT,        false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,   false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_POOLED,      false, "pooled_projections"},
    {WEFT_PORT_LATENT_MASK, false, "attention_mask", .optional = true},
    {WEFT_PORT_PREDICTION,  true,  "sample"},
};

/* Layers of the last block's text, which files have after training with tensor parallelism. */
static const char *const unused_layers[] = {".attn1.to_add_out.", ".norm2.norm_enc.", ".ff_enc.",
                                            NULL};
static const weft_key_mapping mappings[] = {
    {"original", "transformer_blocks.0.0.attn1.add_q_proj.weight", NULL, 0,
     .unused = unused_layers},
};

/* The pipeline's templates, cleaned as it cleans them. */
#define PIPELINE_TEXTS \
    .clean = WEFT_CLEAN_LOWER, .prompt_before = "high quality, ", \
    .negative_before = \
        "worst quality, normal quality, low quality, low res, blurry, jpeg artifacts, grainy, " \
        "watermark, banner, cropped, out of frame, out of focus, bad anatomy, bad proportions, " \
        "deformed, disconnected limbs, disfigured, username, error, sketch, duplicate, ugly, " \
        "monochrome, horror, geometry, mutation, disgusting, overexposed, underexposed. "
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     PIPELINE_TEXTS},
    {"text_encoder_2", "tokenizer_2", .pooled = WEFT_PORT_POOLED, .length = 77, PIPELINE_TEXTS},
};

const weft_family weft_family_suv_dit = {
    .class_name = "SparseUMMDiT", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "weft", .pipeline = "OpenSoraPlanPipeline", .autoencoder = "WFVAEModel",
    .fps = 24, .noise_levels = WEFT_LEVELS_EVEN,
    .marks = {"sparse_n", "skip_connection"},
    .config_bytes = sizeof(suv), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
