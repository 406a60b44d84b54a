/* LongCat-Video transformers (the authors' LongCatVideoTransformer3DModel). No package has the
 * model; the source is github.com/meituan-longcat/LongCat-Video, longcat_video/modules. Parameters
 * have the names of the public checkpoint.
 *
 *   latents --patch--> x (B,S,C); text --MLP--> y (B,L,C)
 *   timestep, per sample or per frame --MLP--> t (B,W) or (B,T,W)
 *   block:  x += gate1 attn(mod1(norm x))    six rows, a linear layer of t in every block
 *           x += cross(norm x, y)
 *           x += gate2 ffn(mod2(norm x))     SwiGLU
 *   x --> norm, modulate, project --> prediction
 *
 * Given frames are the first ones and have the timestep 0. Their tokens attend to each other only,
 * and not to the text: the linear layer after the attention to the text is skipped as well. The
 * other tokens attend to all.
 * With a cache (model/frame_cache.h), a call has the given frames alone, which add their keys and
 * values, or the other frames, which see them.
 * With enable_bsa, queries of a block of frames, rows and columns attend to the blocks of keys
 * whose mean is most like the queries' own. Tokens have the order of blocks between the first layer
 * and the last one. Given frames choose from blocks of given frames, and are whole blocks. A single
 * frame has full attention.
 * The prediction is data - noise, the negative of the velocity of flow matching.
 * Shape letters: B batch, T frames, S video tokens, L text tokens, C width, W width of t,
 * H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/frame_cache.h"
#include "model/model.h"
#include "nn/chosen_blocks.h"
#include "nn/experts.h"
#include "nn/nn.h"

typedef struct longcat {
    int64_t in_channels, out_channels, width, layers, heads, text_dim, mlp_ratio;
    int64_t time_width, frequencies, patch[3];
    bool zero_padding, sparse;
    double sparsity;                /* share of the blocks of keys that queries do not attend to */
    int64_t block[3], key_block[3]; /* frames, rows, columns of tokens in a block */
} longcat;
_Static_assert(sizeof(longcat) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static const double eps = 1e-6;

/* Two thirds of the usual inner width, rounded up. */
static int64_t inner_of(const longcat *c)
{
    enum { MULTIPLE = 256 };
    const int64_t inner = 2 * c->width * c->mlp_ratio / 3;
    return (inner + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

/* Inputs of every block. */
typedef struct shared {
    int64_t size[3];  /* tokens along frames, rows, columns */
    int64_t block[3]; /* of a block, whose order the tokens have; 0: the order of the video */
    weft_value time;  /* silu of the embedded timestep, (B,W) or (B,T,W) */
    weft_value text, hidden;
    weft_value rope[WEFT_MAX_OUTPUTS];
    weft_value given, others; /* segments of attention; WEFT_NONE: no frame is given */
    weft_value noised;        /* 0 for given frames, shaped as rows of modulation */
    weft_value apart;         /* (B,1,M,N): hides blocks of keys from queries of given frames */
    const weft_frame_cache *cache;
    int64_t layer;
} shared;

/* ---- modulation ----------------------------------------------------------------------------- */

/* Rows of frames (B,T,C) as they broadcast to tokens: (B,T,1,C), or (B,T/t,1,t,1,C) in blocks. */
static weft_value of_frames(weft_graph *g, const shared *s, weft_value rows)
{
    const weft_shape shape = weft_value_get(g, rows)->shape;
    const int64_t batch = shape.dim[0], frames = shape.dim[1], t = s->block[0],
                  width = shape.dim[2];
    return weft_reshape(g, rows,
                        t ? WEFT_SHAPE(batch, frames / t, 1, t, 1, width)
                          : WEFT_SHAPE(batch, frames, 1, width));
}

/* "adaLN_modulation": `count` rows (B,1,C), or rows of frames with a timestep per frame. */
static void modulation(weft_graph *g, const longcat *c, const shared *s, int count, weft_value *row)
{
    const weft_shape time = weft_value_get(g, s->time)->shape;
    const int last = time.rank - 1;
    const weft_value rows =
        weft_nn_linear(g, "adaLN_modulation.1", s->time, count * c->width, WEFT_LINEAR_ZERO);
    for (int i = 0; i < count; i++) {
        const weft_value own = weft_slice(g, rows, last, i * c->width, c->width);
        row[i] = last == 2 ? of_frames(g, s, own)
                           : weft_reshape(g, own, WEFT_SHAPE(time.dim[0], 1, c->width));
    }
}

/* x (B,S,C) with the dims of `row`, if it is of frames, and back. */
static weft_value by_frames(weft_graph *g, const shared *s, weft_value row, weft_value x)
{
    const int rank = weft_value_get(g, row)->shape.rank;
    if (rank == 3)
        return x;
    const int64_t batch = weft_dim(g, x, 0), width = weft_dim(g, x, 2), *t = s->block,
                  *size = s->size;
    return weft_reshape(g, x,
                        rank == 4
                            ? WEFT_SHAPE(batch, size[0], size[1] * size[2], width)
                            : WEFT_SHAPE(batch, size[0] / t[0], size[1] / t[1] * (size[2] / t[2]),
                                         t[0], t[1] * t[2], width));
}

static weft_value by_tokens(weft_graph *g, weft_value x)
{
    const weft_shape s = weft_value_get(g, x)->shape;
    return s.rank == 3 ? x : weft_reshape(g, x, WEFT_SHAPE(s.dim[0], -1, s.dim[s.rank - 1]));
}

static weft_value modulated(weft_graph *g, const shared *s, weft_value x, weft_value shift,
                            weft_value scale)
{
    x = by_frames(g, s, shift, weft_nn_plain_norm(g, x, eps));
    return by_tokens(g, weft_nn_modulate(g, x, scale, shift));
}

static weft_value gated_add(weft_graph *g, const shared *s, weft_value x, weft_value h,
                            weft_value gate)
{
    return by_tokens(
        g, weft_nn_gated_add(g, by_frames(g, s, gate, x), by_frames(g, s, gate, h), gate));
}

/* ---- block-sparse attention ----------------------------------------------------------------- */

/* Orders the tokens of x (B,S,...) or (S,...) by blocks, or back. */
static weft_value by_blocks(weft_graph *g, const shared *s, weft_value x, bool back)
{
    return s->block[0] ? weft_nn_by_blocks(g, x, s->size, s->block, back) : x;
}

/* Sets the order of tokens. */
static void order_tokens(weft_graph *g, const longcat *c, shared *s)
{
    if (!c->sparse || s->size[0] == 1)
        return;
    for (int d = 0; d < 3; d++) {
        if (s->size[d] % c->block[d]) {
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%" PRId64 " x %" PRId64 " x %" PRId64 " tokens of frames, rows and "
                            "columns do not have whole blocks of %" PRId64 " x %" PRId64
                            " x %" PRId64 ", which enable_bsa needs",
                            s->size[0], s->size[1], s->size[2], c->block[0], c->block[1],
                            c->block[2]);
            return;
        }
        s->block[d] = c->block[d];
    }
}

/* Hides blocks of noisy keys from queries of given frames. mask (B,T): 0 for given frames. The
 * first frame of a block says it for all. */
static void hide_noisy(weft_graph *g, shared *s, weft_value mask)
{
    const int64_t batch = weft_dim(g, mask, 0), layers = s->size[0] / s->block[0],
                  each = s->size[1] / s->block[1] * (s->size[2] / s->block[2]);
    const weft_value first =
        weft_slice(g, weft_reshape(g, mask, WEFT_SHAPE(batch, layers, s->block[0])), 2, 0, 1);
    const weft_value noisy = weft_broadcast(g, first, WEFT_SHAPE(batch, layers, each)),
                     key = weft_reshape(g, noisy, WEFT_SHAPE(batch, 1, 1, layers * each)),
                     query = weft_reshape(g, noisy, WEFT_SHAPE(batch, 1, layers * each, 1));
    s->apart = weft_affine(g, weft_mul(g, weft_affine(g, query, -1, 1), key), -1e30, 0);
}

static weft_value attend_chosen(weft_graph *g, const longcat *c, const shared *s,
                                const weft_value part[3])
{
    const weft_attr_top_share top = {.share = 1 - c->sparsity};
    weft_value scores =
        weft_nn_block_scores(g, part[0], part[1], s->block[0] * s->block[1] * s->block[2]);
    if (weft_value_ok(s->apart))
        scores = weft_add(g, scores, s->apart);
    return weft_nn_attend_blocks(g, part[0], part[1], part[2],
                                 weft_emit(g, WEFT_OP_TOP_SHARE, &scores, 1, &top));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Splits the output (B,N,count C) of one linear layer into heads, and normalizes all but the
 * values, which are last. */
static void split(weft_graph *g, const longcat *c, weft_value x, int count, weft_value *part)
{
    static const char *const norms[] = {"q_norm", "k_norm"};
    for (int i = 0; i < count; i++) {
        part[i] = weft_nn_split_heads(g, weft_slice(g, x, 2, i * c->width, c->width), c->heads);
        if (i < count - 1)
            part[i] = weft_nn_rms_norm(g, norms[i + 3 - count], part[i], eps);
    }
}

static weft_value attend_video(weft_graph *g, const longcat *c, const shared *s, weft_value x)
{
    weft_value part[3], mixed;
    weft_graph_push(g, "attn");
    split(g, c, weft_nn_linear(g, "qkv", x, 3 * c->width, WEFT_LINEAR_XAVIER), 3, part);
    for (int i = 0; i < 2; i++)
        part[i] = weft_nn_rope(g, part[i], s->rope, false);
    const weft_value own[] = {part[0], part[1], part[2]};
    if (s->cache)
        weft_frame_cache_join(g, s->cache, s->layer, part + 1, part + 1);
    if (s->block[0]) {
        mixed = attend_chosen(g, c, s, s->cache && s->cache->adds ? own : part);
    } else if (s->cache) {
        mixed = weft_nn_attend_segments(g, part[0], part[1], part[2], s->cache->keys);
    } else if (weft_value_ok(s->given)) {
        weft_graph_push(g, "frames"); /* queries outside a segment have zeros */
        mixed = weft_add(g, weft_nn_attend_segments(g, part[0], part[1], part[2], s->given),
                         weft_nn_attend_segments(g, part[0], part[1], part[2], s->others));
        weft_graph_pop(g);
    } else {
        mixed = weft_nn_attend(g, part[0], part[1], part[2], WEFT_NONE);
    }
    const weft_value out =
        weft_nn_linear(g, "proj", weft_nn_join_heads(g, mixed), c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value attend_text(weft_graph *g, const longcat *c, const shared *s, weft_value x)
{
    weft_value q, kv[2];
    weft_graph_push(g, "cross_attn");
    q = weft_nn_linear(g, "q_linear", x, c->width, WEFT_LINEAR_XAVIER);
    q = weft_nn_rms_norm(g, "q_norm", weft_nn_split_heads(g, q, c->heads), eps);
    split(g, c, weft_nn_linear(g, "kv_linear", s->text, 2 * c->width, WEFT_LINEAR_XAVIER), 2, kv);
    const weft_value mixed = weft_nn_attend(g, q, kv[0], kv[1], s->hidden);
    weft_value out =
        weft_nn_linear(g, "proj", weft_nn_join_heads(g, mixed), c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    if (weft_value_ok(s->noised))
        out = by_tokens(g, weft_mul(g, by_frames(g, s, s->noised, out), s->noised));
    return out;
}

static weft_value block(weft_graph *g, const longcat *c, const shared *s, weft_value x)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    weft_value row[ROWS];
    modulation(g, c, s, ROWS, row);
    weft_value h = attend_video(g, c, s, modulated(g, s, x, row[SHIFT1], row[SCALE1]));
    x = gated_add(g, s, x, h, row[GATE1]);
    if (!s->cache || !s->cache->adds)
        x = weft_add(g, x,
                     attend_text(g, c, s, weft_nn_layer_norm(g, "pre_crs_attn_norm", x, eps)));
    h = modulated(g, s, x, row[SHIFT2], row[SCALE2]);
    weft_graph_push(g, "ffn");
    h = weft_nn_swiglu(g, h, inner_of(c));
    weft_graph_pop(g);
    return gated_add(g, s, x, h, row[GATE2]);
}

/* ---- the model ------------------------------------------------------------------------------ */

/* A segment of attention per sample, i32 (B,1,4): queries from `from` to `to`, keys up to `to`. */
static weft_value segment(weft_graph *g, weft_value none, weft_value from, weft_value to)
{
    enum { BOUNDS = 4 };
    const weft_value bounds = weft_concat(g, (weft_value[]){from, to, none, to}, BOUNDS, 1);
    return weft_cast(g, weft_reshape(g, bounds, WEFT_SHAPE(weft_dim(g, none, 0), 1, BOUNDS)),
                     WEFT_I32);
}

/* Separates the tokens of given frames, which come first, from the rest. mask (B,T): 0
 * for given frames. Both are segments of their own, because their keys overlap. */
static void mark_given(weft_graph *g, shared *s, weft_value mask)
{
    const int64_t frames = weft_dim(g, mask, 1), each = s->size[1] * s->size[2];
    const double all = (double)(frames * each);
    const weft_value given = weft_affine(g, weft_sum(g, mask, 1u << 1), -(double)each, all),
                     none = weft_affine(g, given, 0, 0); /* (B,1) */
    s->given = segment(g, none, none, given);
    s->others = segment(g, none, given, weft_affine(g, given, 0, all));
    s->noised = of_frames(g, s, weft_reshape(g, mask, WEFT_SHAPE(weft_dim(g, mask, 0), frames, 1)));
    if (s->block[0])
        hide_noisy(g, s, mask);
}

/* Embeds the timestep (B) or (B,T). With a mask, the timestep of given frames is 0. */
static void embed_time(weft_graph *g, const longcat *c, weft_value time, weft_value mask, shared *s)
{
    if (weft_value_ok(mask)) {
        if (weft_value_get(g, time)->shape.rank == 1)
            time = weft_reshape(g, time, WEFT_SHAPE(weft_dim(g, time, 0), 1));
        time = weft_mul(g, weft_broadcast(g, time, weft_value_get(g, mask)->shape), mask);
    }
    weft_value h = weft_nn_sinusoid(g, c->frequencies, time);
    weft_graph_push(g, "t_embedder.mlp");
    h = weft_nn_linear(g, "0", h, c->time_width, WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "2", weft_unary(g, WEFT_OP_SILU, h), c->time_width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    s->time = weft_unary(g, WEFT_OP_SILU, h);
}

static void embed_text(weft_graph *g, const longcat *c, weft_value text, weft_value mask, shared *s)
{
    weft_graph_push(g, "y_embedder.y_proj");
    text = weft_gelu_tanh(g, weft_nn_linear(g, "0", text, c->width, WEFT_LINEAR_XAVIER));
    s->text = weft_nn_linear(g, "2", text, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    s->hidden = WEFT_NONE;
    if (!weft_value_ok(mask))
        return;
    const weft_value real = weft_cast(g, mask, WEFT_F32);
    if (!c->zero_padding)
        s->hidden = weft_nn_hide(g, real);
    else
        s->text = weft_mul(
            g, s->text,
            weft_reshape(g, real, WEFT_SHAPE(weft_dim(g, real, 0), weft_dim(g, real, 1), 1)));
}

/* Frames, rows and columns share the pairs of a head as in Wan. */
static void video_rope(weft_graph *g, const longcat *c, shared *s)
{
    const int64_t head = c->width / c->heads, side = head / 6, *size = s->size;
    weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                 .step = {1, 1, 1},
                                 .grid = {size[0], size[1], size[2]},
                                 .pairs = {head / 2 - 2 * side, side, side},
                                 .len = size[0] * size[1] * size[2]};
    if (s->cache) {
        attr.grid[0] += s->cache->size.rest; /* the largest positions */
        weft_nn_rope_at(g, &attr, s->cache->position, s->rope);
    } else {
        weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, s->rope);
    }
    for (int i = 0; i < 2; i++)
        s->rope[i] = by_blocks(g, s, s->rope[i], false);
}

/* latents (B,T,Y,X,in), timestep (B) or (B,T) in [0, 1000], text (B,L,text_dim), frame mask (B,T)
 * -> prediction (B,T,Y,X,out) */
static weft_value forward(weft_graph *g, const longcat *c, const weft_ports *in)
{
    enum { SHIFT, SCALE, ROWS };
    const weft_value frames = in->at[WEFT_PORT_FRAME_MASK];
    weft_value row[ROWS], mask = WEFT_NONE;
    shared s = {.given = WEFT_NONE,
                .others = WEFT_NONE,
                .noised = WEFT_NONE,
                .apart = WEFT_NONE,
                .cache = in->cache};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, s.size);
    order_tokens(g, c, &s);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    if (weft_value_ok(frames)) {
        mask = weft_cast(g, frames, WEFT_F32);
        mark_given(g, &s, mask);
    }
    embed_time(g, c, in->at[WEFT_PORT_TIMESTEP], mask, &s);
    embed_text(g, c, in->at[WEFT_PORT_TEXT], in->at[WEFT_PORT_TEXT_MASK], &s);
    video_rope(g, c, &s);
    weft_value x = weft_nn_patch(g, "x_embedder.proj", in->at[WEFT_PORT_LATENTS], c->width,
                                 c->patch, WEFT_PATCH_3D, true);
    x = by_blocks(g, &s, x, false);
    for (int64_t i = 0; i < c->layers; i++) {
        s.layer = i;
        weft_graph_push(g, "blocks.%d", (int)i);
        x = block(g, c, &s, x);
        weft_graph_pop(g);
    }
    weft_graph_push(g, "final_layer");
    modulation(g, c, &s, ROWS, row);
    x = modulated(g, &s, x, row[SHIFT], row[SCALE]);
    x = weft_nn_linear(g, "linear", x, c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    return weft_nn_unpatch(g, by_blocks(g, &s, x, true), s.size, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const longcat *c = config;
    if (c->width % c->heads || c->width / c->heads % 8)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_heads", c->heads),
                          "\"hidden_size\" %" PRId64 " is not a multiple of 8 times the heads, "
                          "which rotary embedding needs",
                          c->width);
    if (c->sparse && !(c->sparsity > 0 && c->sparsity < 1))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "bsa_params.sparsity", c->sparsity),
                          "with enable_bsa, the share is above 0 and below 1");
    for (int d = 0; d < 3 && c->sparse; d++)
        if (c->key_block[d] != c->block[d])
            return weft_error(
                WEFT_MSG_MODEL_CONFIG,
                WEFT_AT_FIELD(locations, "bsa_params.chunk_3d_shape_k", c->key_block[d]),
                "blocks of keys do not have the sides of blocks of queries, which is not "
                "supported");
    return c->patch[0] != 1
               ? weft_error(
                     WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "patch_size", c->patch[0]),
                     "a token has %" PRId64 " frames, but timesteps are per frame: 1", c->patch[0])
               : WEFT_OK;
}

static void grid(const void *config, weft_grid *grid)
{
    const longcat *c = config;
    for (int d = 0; d < 3; d++)
        grid->factor[d] = c->patch[d] * (c->sparse && d ? c->block[d] : 1);
    grid->block = c->sparse ? c->block[0] : 0;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const longcat *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_FRAME_MASK: return WEFT_SHAPE(s->batch, s->frames);
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* Latent frames of refined videos: whole blocks, of 4 frames without block-sparse attention. */
static int64_t refine_whole(const longcat *c)
{
    enum { WHOLE = 4 };
    return c->sparse && WHOLE % c->block[0] ? c->block[0] : WHOLE;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const longcat *c = config;
    cond->form = WEFT_FRAME_CONDITION_FRAME_MASK;
    cond->whole = c->sparse ? c->block[0] : 0;
    cond->caches_given = cond->apart = true;
    cond->tail_steps = 10;
    cond->refine_level = 0.5;
    cond->refine_whole = refine_whole(c);
}

/* clang-format off */
#define AT(member) offsetof(longcat, member)
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    {"hidden_size", WEFT_FIELD_I64, AT(width), "4096", 8, 1 << 20, .help = "width"},
    {"depth", WEFT_FIELD_I64, AT(layers), "48", 0, 1024, .help = "blocks"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "32", 1, 1024, .help = "attention heads"},
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "4096"),
    {"mlp_ratio", WEFT_FIELD_I64, AT(mlp_ratio), "4", 1, 64,
     .help = "inner width of the feed-forward layers over the width, of which two thirds remain, "
             "rounded up to a multiple of 256"},
    {"adaln_tembed_dim", WEFT_FIELD_I64, AT(time_width), "512", 1, 1 << 16,
     .help = "width of the embedded timestep"},
    {"frequency_embedding_size", WEFT_FIELD_I64, AT(frequencies), "256", 2, 1 << 16,
     .help = "width of the timestep's sinusoid, even"},
    WEFT_PATCH_SIDES_FIELD(AT(patch), "[1, 2, 2]"),
    {"text_tokens_zero_pad", WEFT_FIELD_BOOL, AT(zero_padding), "false",
     .help = "tokens after the text are zeros that are attended to; false: they are hidden"},
    {"enable_bsa", WEFT_FIELD_BOOL, AT(sparse), "false",
     .help = "queries of a block of tokens attend to the most similar blocks of keys only"},
    {"sparsity", WEFT_FIELD_F64, AT(sparsity), "0.9375", 0, 1,
     .also = "bsa_params.sparsity", .object = "bsa_params",
     .help = "enable_bsa: share of the blocks of keys that queries do not attend to"},
    {"chunk_3d_shape_q", WEFT_FIELD_I64S, AT(block), "[4, 4, 4]", 1, 1 << 10, .capacity = 3,
     .length = weft_three, .also = "bsa_params.chunk_3d_shape_q", .object = "bsa_params",
     .help = "enable_bsa: frames, rows and columns of tokens in a block of queries"},
    {"chunk_3d_shape_k", WEFT_FIELD_I64S, AT(key_block), "[4, 4, 4]", 1, 1 << 10, .capacity = 3,
     .length = weft_three, .also = "bsa_params.chunk_3d_shape_k", .object = "bsa_params",
     .help = "enable_bsa: the same sides, of a block of keys"},
    {"cdf_threshold", WEFT_FIELD_FIXED, .fallback = "null", .also = "bsa_params.cdf_threshold",
     .object = "bsa_params"},
    {"enable_flashattn3", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"enable_flashattn2", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"enable_xformers", WEFT_FIELD_IGNORED, .fallback = "false"},
    {"cp_split_hw", WEFT_FIELD_IGNORED, .fallback = "null"},
};

static const weft_named_config sizes[] = {
    {"longcat-video", "{\"text_tokens_zero_pad\": true}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_FRAME_MASK, false, "frame_mask", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"original", "blocks.0.pre_crs_attn_norm.weight", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .clean = WEFT_CLEAN_PROMPT},
};

/* ---- recipes ---- */

#define TOKENS {WEFT_S, 1}
#define HEADS {WEFT_S, 2}
#define ALL {WEFT_R, 0}
/* A fused weight is split by rows that do not match heads. The weight is gathered, and each rank
 * takes its heads of q, k and v. */
#define FUSED(name, axis)                                                         \
    {name ".weight",              axis, {WEFT_S, 0}, .gather = true, .params = true}, \
    {name ".bias",                axis, {WEFT_S, 0}, .gather = true, .params = true}, \
    {name ":columns",             axis, ALL, .optional = true},                   \
    {name ":slice",               axis, {WEFT_S, 0}, .optional = true}
/* Tensor parallel (Shoeybi et al., Megatron-LM). The variadic arguments give the layout of the
 * outputs of row-split layers. */
#define TENSOR_PARALLEL(axis, ...)                                                \
    FUSED("*blocks.*.attn.qkv", axis),                                            \
    FUSED("*blocks.*.cross_attn.kv_linear", axis),                                \
    {"*cross_attn.q_linear.weight", axis, {WEFT_S, 0}},                           \
    {"*cross_attn.q_linear.bias",   axis, {WEFT_S, 0}},                           \
    {"*ffn.w1.weight",              axis, {WEFT_S, 0}},                           \
    {"*ffn.w3.weight",              axis, {WEFT_S, 0}},                           \
    {"*ffn.w2.weight",              axis, {WEFT_S, 1}},                           \
    {"*attn.proj.weight",           axis, {WEFT_S, 1}},                           \
    {"*attn.proj:linear",           axis, __VA_ARGS__},                           \
    {"batch.cache.*",              axis, HEADS, .optional = true},                \
    {"*ffn.w2:linear",              axis, __VA_ARGS__},                           \
    {"*",                           axis, ALL, .params = true, .optional = true}
#define SEQUENCE(axis) {"*blocks.*:layer_norm", axis, TOKENS}
/* Every rank has some heads of all tokens on both axes of contexts, if frames are given. */
#define GIVEN(axis) {"*attn.frames:attention", axis, HEADS, .optional = true}, \
                    {"*attn.frames:add",       axis, TOKENS, .optional = true}, \
                    {"*attn.keys:concat",      axis, HEADS, .optional = true}, \
                    {"batch.cache.*",          axis, HEADS, .optional = true}
static const weft_recipe_row
    tp_rows[] = {TENSOR_PARALLEL("tp", ALL)},
    sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS), SEQUENCE("sp")},
    cp_rows[] = {SEQUENCE("cp"), GIVEN("cp"), {"*attn:attention", "cp", TOKENS}},
    ring_rows[] = {SEQUENCE("ring"), GIVEN("ring"),
                   {"*.cross_attn:attention", "ring", TOKENS},
                   {"*.attn:attention", "ring", TOKENS, .by = "ring", .optional = true}};
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp   = LIST("tp",   "tensor parallel",                     tp_rows),
    ring = LIST("ring", "context parallel, keys go round",     ring_rows),
    cp   = LIST("cp",   "context parallel, tokens into heads", cp_rows),
    sp   = LIST("sp",   "tensor parallel, tokens in between",  sp_rows);
static const weft_recipe_list *const recipes[] = {&tp, &ring, &cp, &sp};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_longcat_dit = {
    .class_name = "LongCatVideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "dit", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "longcat_video", .pipeline = "LongCatVideoPipeline",
    .autoencoder = "AutoencoderKLWan",
    .marks = {"adaln_tembed_dim", "text_tokens_zero_pad"},
    .config_bytes = sizeof(longcat), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .negative = true, .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "a first frame, or first frames of a video",
    .block_sparse = "enable_bsa",
    .fps = 15, .guidance = "zero_star", .noise_levels = WEFT_LEVELS_EVEN_TO_0001,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .lora_targets = (const char *const[]){"qkv", "q_linear", "kv_linear", "proj", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
