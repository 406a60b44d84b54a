/* The blocks of Wan's diffusion transformers and what their families share. */
#include "model/denoisers/wan_blocks.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/frame_cache.h"
#include "model/model.h"

#include <math.h>

/* Y and X get floor(D/6) of the head's pairs each. */
static void rope_from(weft_graph *g, const weft_wan *c, const int64_t size[3], int64_t first,
                      double time_step, weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t pairs = c->head_dim / 2, side = c->head_dim / 6, frame = size[1] * size[2];
    const weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                       .step = {time_step, 1, 1},
                                       .grid = {size[0], size[1], size[2]},
                                       .pairs = {pairs - 2 * side, side, side},
                                       .start = first * frame,
                                       .len = (size[0] - first) * frame};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
}

void weft_wan_rope(weft_graph *g, const weft_wan *c, const int64_t size[3], double time_step,
                   weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    rope_from(g, c, size, 0, time_step, cos_sin);
}

void weft_wan_rope_of_block(weft_graph *g, const weft_wan *c, const int64_t size[3], int64_t block,
                            weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    rope_from(g, c, size, size[0] - block, 1, cos_sin);
}

void weft_wan_rope_at(weft_graph *g, const weft_wan *c, const weft_value position[3],
                      double time_step, weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t pairs = c->head_dim / 2, side = c->head_dim / 6, most = c->rope_max_seq_len;
    const weft_attr_rope_table table = {.theta = {10000, 10000, 10000},
                                        .step = {time_step, 1, 1},
                                        .grid = {most, most, most},
                                        .pairs = {pairs - 2 * side, side, side}};
    weft_nn_rope_at(g, &table, position, cos_sin);
}

/* Cross-attention to the image tokens: separate keys and values for the same queries. The result is
 * added to the attention to the text. */
static weft_value attend_image(weft_graph *g, const weft_wan *c, weft_value q_bsc,
                               weft_value image_blc)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_value v = weft_nn_linear(g, "add_v_proj", image_blc, width, WEFT_LINEAR_XAVIER);
    weft_value k = weft_nn_linear(g, "add_k_proj", image_blc, width, WEFT_LINEAR_XAVIER);
    k = weft_nn_rms_norm(g, "norm_added_k", k, c->eps);
    return weft_nn_attention(g, q_bsc, k, v, c->heads, NULL);
}

/* The keys or values x (B,S,H,D) that the block with tokens from `own` on sees. `at`: its place
 * among the tokens of the video. */
static weft_value visible(weft_graph *g, const weft_wan_condition *to, weft_value x, int64_t at,
                          int64_t own)
{
    const int64_t block = to->block_tokens, window = to->window_tokens, end = at + block;
    const bool slides = window && end > window;
    const int64_t sink = slides ? to->sink_tokens : 0, begin = slides ? end - window + sink : 0;
    weft_value part[3];
    int parts = 0;
    if (sink)
        part[parts++] = weft_slice(g, x, 1, 0, sink);
    if (own == at) {
        part[parts++] = weft_slice(g, x, 1, begin, end - begin);
    } else {
        if (at > begin)
            part[parts++] = weft_slice(g, x, 1, begin, at - begin);
        part[parts++] = weft_slice(g, x, 1, own, block);
    }
    if (parts == 1)
        return part[0];
    weft_graph_pop(g);
    weft_graph_push(g, "keys");
    const weft_value all = weft_concat(g, part, parts, 1);
    weft_graph_pop(g);
    weft_graph_push(g, "back");
    return all;
}

/* Self-attention in blocks of frames: q, k, v (B,S,H,D). */
static weft_value attend_back(weft_graph *g, const weft_value qkv[3], const weft_wan_condition *to)
{
    const int64_t block = to->block_tokens, tokens = weft_dim(g, qkv[0], 1),
                  blocks = tokens / block;
    weft_value *part = weft_arena_calloc(weft_graph_arena(g), blocks, sizeof *part);
    weft_value all = WEFT_NONE;
    weft_graph_push(g, "back");
    for (int64_t i = 0; part && i < blocks; i++) {
        const int64_t own = i * block, at = own < to->clean_tokens ? own : own - to->clean_tokens;
        part[i] =
            weft_nn_attend(g, weft_slice(g, qkv[0], 1, own, block), visible(g, to, qkv[1], at, own),
                           visible(g, to, qkv[2], at, own), WEFT_NONE);
    }
    if (part)
        all = weft_concat(g, part, (int)blocks, 1);
    weft_graph_pop(g);
    return all;
}

/* Like weft_nn_attention with positions, in the blocks of the conditioning. */
static weft_value attend_self(weft_graph *g, const weft_value qkv_bsc[3], int64_t heads,
                              const weft_wan_condition *to)
{
    weft_value qkv[3];
    if (!to->cache && (!to->block_tokens || to->block_tokens == weft_dim(g, qkv_bsc[0], 1)))
        return weft_nn_attention_segments(g, qkv_bsc, heads, to->rope,
                                          to->packed ? to->packed->segments : WEFT_NONE);
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_split_heads(g, qkv_bsc[i], heads);
        if (i < 2)
            qkv[i] = weft_nn_rope(g, qkv[i], to->rope, false);
    }
    if (!to->cache)
        return weft_nn_join_heads(g, attend_back(g, qkv, to));
    weft_frame_cache_join(g, to->cache, to->layer, qkv + 1, qkv + 1);
    return weft_nn_join_heads(
        g, weft_nn_attend_segments(g, qkv[0], qkv[1], qkv[2],
                                   to->cache->past ? WEFT_NONE : to->cache->keys));
}

/* "attn1" attends to x itself, "attn2" to the text and the image. */
static weft_value attention(weft_graph *g, const weft_wan *c, bool cross, weft_value x_bsc,
                            const weft_wan_condition *to)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_value context = cross ? to->text_blc : x_bsc;
    weft_value qkv[3], mixed;
    weft_graph_push(g, cross ? "attn2" : "attn1");
    qkv[0] = weft_nn_linear(g, "to_q", x_bsc, width, WEFT_LINEAR_XAVIER);
    qkv[1] = weft_nn_linear(g, "to_k", context, width, WEFT_LINEAR_XAVIER);
    qkv[2] = weft_nn_linear(g, "to_v", context, width, WEFT_LINEAR_XAVIER);
    qkv[0] = weft_nn_rms_norm(g, "norm_q", qkv[0], c->eps);
    qkv[1] = weft_nn_rms_norm(g, "norm_k", qkv[1], c->eps);
    if (cross)
        mixed = weft_nn_attention_segments(g, qkv, c->heads, NULL,
                                           to->packed ? to->packed->text_segments : WEFT_NONE);
    else
        mixed = attend_self(g, qkv, c->heads, to);
    if (cross && weft_value_ok(to->image_blc))
        mixed = weft_add(g, mixed, attend_image(g, c, qkv[0], to->image_blc));
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

weft_value weft_wan_table(weft_graph *g, const weft_wan *c, int64_t rows)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0 / sqrt((double)width)};
    return weft_param(g, "scale_shift_table", WEFT_F32, WEFT_SHAPE(1, rows, width), init);
}

/* Row of a modulation table: (B,1,C), (B,S,C), or with a timestep per frame (B,T,1,C). */
static weft_value row_of(weft_graph *g, const weft_wan_condition *to, weft_value mod, int64_t index)
{
    const weft_value row = weft_nn_row(g, mod, index);
    if (to->packed)
        return weft_nn_rows_of_tokens(g, to->packed->owner, row);
    return to->frames
               ? weft_reshape(g, row,
                              WEFT_SHAPE(weft_dim(g, row, 0), to->frames, 1, weft_dim(g, row, 2)))
               : row;
}

/* Reshapes x to match its modulations, and back. */
static weft_value by_frames(weft_graph *g, const weft_wan_condition *to, weft_value x)
{
    return to->frames ? weft_reshape(g, x,
                                     WEFT_SHAPE(weft_dim(g, x, 0), to->frames,
                                                weft_dim(g, x, 1) / to->frames, weft_dim(g, x, 2)))
                      : x;
}

static weft_value by_tokens(weft_graph *g, const weft_wan_condition *to, weft_value x)
{
    return to->frames
               ? weft_reshape(g, x,
                              WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1) * weft_dim(g, x, 2),
                                         weft_dim(g, x, 3)))
               : x;
}

/* The norm of x, with the rows `shift` and `shift` + 1 (scale) of the modulation table. */
static weft_value modulated(weft_graph *g, const weft_wan *c, const weft_wan_condition *to,
                            weft_value x, weft_value mod, int64_t shift)
{
    const weft_value by = row_of(g, to, mod, shift), scale = row_of(g, to, mod, shift + 1);
    x = by_frames(g, to, weft_nn_plain_norm(g, x, c->eps));
    return by_tokens(g, to, weft_nn_modulate(g, x, scale, by));
}

static weft_value gated_add(weft_graph *g, const weft_wan_condition *to, weft_value x, weft_value h,
                            weft_value gate)
{
    x = by_frames(g, to, x);
    return by_tokens(g, to, weft_nn_gated_add(g, x, by_frames(g, to, h), gate));
}

weft_value weft_wan_block(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                          const weft_wan_condition *to)
{
    enum { SHIFT1, GATE1 = 2, SHIFT2, GATE2 = 5, ROWS }; /* each scale follows its shift */
    const weft_value mod = weft_add(g, to->modulation, weft_wan_table(g, c, ROWS));

    weft_value h = attention(g, c, false, modulated(g, c, to, x_bsc, mod, SHIFT1), to);
    x_bsc = gated_add(g, to, x_bsc, h, row_of(g, to, mod, GATE1));

    h = c->cross_attn_norm ? weft_nn_layer_norm(g, "norm2", x_bsc, c->eps) : x_bsc;
    x_bsc = weft_add(g, x_bsc, attention(g, c, true, h, to));

    h = modulated(g, c, to, x_bsc, mod, SHIFT2);
    h = weft_nn_feed_forward(g, "ffn", h, c->ffn_dim, WEFT_NN_GELU_TANH);
    return gated_add(g, to, x_bsc, h, row_of(g, to, mod, GATE2));
}

weft_value weft_wan_blocks(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                           const weft_wan_condition *to)
{
    weft_wan_condition own = *to;
    for (own.layer = 0; own.layer < c->layers; own.layer++) {
        weft_graph_push(g, "blocks.%d", (int)own.layer);
        x_bsc = weft_wan_block(g, c, x_bsc, &own);
        weft_graph_pop(g);
    }
    return x_bsc;
}

weft_value weft_wan_end(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                        const weft_wan_condition *to, weft_value table, const int64_t size[3])
{
    const weft_value mod = weft_add(g, to->time, table); /* shift, scale */
    x_bsc = modulated(g, c, to, x_bsc, mod, 0);
    x_bsc =
        weft_nn_linear(g, "proj_out", x_bsc,
                       c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels, WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x_bsc, size, c->patch);
}

weft_value weft_wan_last(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                         const weft_wan_condition *to, const int64_t size[3])
{
    return weft_wan_end(g, c, x_bsc, to, weft_wan_table(g, c, 2), size);
}

/* Image tokens (B,L,image_dim) -> (B,L,C). The tokens of two images per sample are concatenated and
 * have learned positions. */
static weft_value embed_image(weft_graph *g, const weft_wan *c, weft_value image_bld)
{
    const double eps = 1e-5;
    weft_graph_push(g, "image_embedder");
    if (c->image_positions)
        image_bld = weft_add(g, image_bld,
                             weft_param(g, "pos_embed", WEFT_F32,
                                        WEFT_SHAPE(1, c->image_positions, c->image_dim),
                                        (weft_init){.kind = WEFT_INIT_ZERO}));
    weft_value h = weft_nn_layer_norm(g, "norm1", image_bld, eps);
    weft_graph_push(g, "ff.net");
    h = weft_nn_linear(g, "0.proj", h, c->image_dim, WEFT_LINEAR_XAVIER);
    h = weft_nn_activate(g, WEFT_NN_GELU_ERF, h);
    h = weft_nn_linear(g, "2", h, c->heads * c->head_dim, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    h = weft_nn_layer_norm(g, "norm2", h, eps);
    weft_graph_pop(g);
    return h;
}

weft_value weft_wan_sinusoid(weft_graph *g, const weft_wan *c, weft_value timestep)
{
    weft_graph_push(g, "condition_embedder");
    const weft_value sinusoid = weft_nn_sinusoid(g, c->freq_dim, timestep);
    weft_graph_pop(g);
    return sinusoid;
}

weft_value weft_wan_sinusoid_f64(weft_graph *g, const weft_wan *c, weft_value timestep)
{
    const int64_t half = c->freq_dim / 2;
    if (!weft_value_ok(timestep))
        return timestep;
    weft_shape shape = weft_value_get(g, timestep)->shape, row = {.rank = shape.rank + 1};
    float *frequency = weft_arena_calloc(weft_graph_arena(g), half, sizeof *frequency);
    if (!frequency)
        return WEFT_NONE;
    for (int64_t i = 0; i < half; i++)
        frequency[i] = (float)pow(10000, -(double)i / (double)half);
    shape.dim[shape.rank++] = 1;
    for (int d = 0; d < row.rank; d++)
        row.dim[d] = d == row.rank - 1 ? half : 1;
    const weft_value angle =
        weft_mul(g, weft_reshape(g, timestep, shape), weft_constant(g, WEFT_F32, row, frequency));
    const weft_value parts[2] = {weft_unary(g, WEFT_OP_COS, angle),
                                 weft_unary(g, WEFT_OP_SIN, angle)};
    return weft_concat(g, parts, 2, row.rank - 1);
}

void weft_wan_embed(weft_graph *g, const weft_wan *c, weft_value sinusoid, const weft_ports *in,
                    weft_wan_condition *to)
{
    const int64_t width = c->heads * c->head_dim, batch = weft_dim(g, sinusoid, 0),
                  times = weft_dim(g, sinusoid, 1);
    const bool several = weft_value_ok(sinusoid) && weft_value_get(g, sinusoid)->shape.rank == 3;
    weft_graph_push(g, "condition_embedder");
    to->time = weft_nn_embedder(g, "time_embedder", sinusoid, width, WEFT_NN_SILU);
    to->modulation = weft_nn_linear(g, "time_proj", weft_unary(g, WEFT_OP_SILU, to->time),
                                    6 * width, WEFT_LINEAR_XAVIER);
    to->modulation =
        weft_reshape(g, to->modulation,
                     several ? WEFT_SHAPE(batch, times, 6, width) : WEFT_SHAPE(batch, 6, width));
    to->time = weft_reshape(
        g, to->time, several ? WEFT_SHAPE(batch, times, 1, width) : WEFT_SHAPE(batch, 1, width));
    to->text_blc =
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    to->image_blc = c->image_dim ? embed_image(g, c, in->at[WEFT_PORT_IMAGE]) : WEFT_NONE;
    if (to->packed) /* the text of all samples of a row */
        to->text_blc =
            weft_reshape(g, to->text_blc,
                         WEFT_SHAPE(to->packed->rows,
                                    to->packed->samples * weft_dim(g, to->text_blc, 1), width));
    weft_graph_pop(g);
}

bool weft_wan_count_tokens(weft_graph *g, const weft_wan *c, weft_value latents, int64_t size[3])
{
    weft_nn_count_tokens(g, latents, c->patch, size);
    for (int i = 0; i < 3; i++)
        if (size[i] > c->rope_max_seq_len)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%" PRId64 " patches along %s exceed rope_max_seq_len %" PRId64,
                            size[i], (const char *[]){"T", "Y", "X"}[i], c->rope_max_seq_len);
    return weft_graph_check(g) == WEFT_OK;
}

/* Like weft_wan_count_tokens, for one timestep or one per token. */
static bool count_tokens(weft_graph *g, const weft_wan *c, const weft_ports *in, int64_t size[3])
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    if (!weft_wan_count_tokens(g, c, in->at[WEFT_PORT_LATENTS], size))
        return false;
    const int64_t tokens = size[0] * size[1] * size[2];
    if (weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2 && weft_dim(g, t, 1) != tokens)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " timesteps for %" PRId64 " tokens",
                        weft_dim(g, t, 1), tokens);
    return weft_graph_check(g) == WEFT_OK;
}

weft_value weft_wan_forward(weft_graph *g, const weft_wan *c, const weft_ports *in,
                            double time_step)
{
    int64_t size[3];
    weft_wan_condition to = {.packed = in->packed};
    if (in->packed)
        weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, size);
    else if (!count_tokens(g, c, in, size))
        return WEFT_NONE;
    if (in->packed)
        weft_wan_rope_at(g, c, in->packed->position, time_step, to.rope);
    else
        weft_wan_rope(g, c, size, time_step, to.rope);
    const weft_value x = weft_nn_patch(g, "patch_embedding", in->at[WEFT_PORT_LATENTS],
                                       c->heads * c->head_dim, c->patch, WEFT_PATCH_3D, true);
    weft_wan_embed(g, c, weft_wan_sinusoid(g, c, in->at[WEFT_PORT_TIMESTEP]), in, &to);
    return weft_wan_last(g, c, weft_wan_blocks(g, c, x, &to), &to, size);
}

/* ---- what the families share ---------------------------------------------------------------- */

weft_status weft_wan_check(const void *config, const weft_config_locations *locations)
{
    const weft_wan *c = config;
    if (c->head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", c->head_dim);
    const int64_t width = c->heads * c->head_dim;
    if ((c->image_dim != 0) != (c->image_kv_dim != 0) || (c->image_dim && c->image_kv_dim != width))
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "added_kv_proj_dim", c->image_kv_dim),
            "with image tokens (\"image_dim\") this is the model's width %" PRId64 "; "
            "without, both are null",
            width);
    if (c->image_positions && !c->image_dim)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "pos_embed_seq_len", c->image_positions),
                          "positions of image tokens need \"image_dim\", which is null");
    return WEFT_OK;
}

/* Default number of tokens of CLIP's vision transformer. */
static const int64_t clip_tokens = 257;

weft_shape weft_wan_shape(const void *config, const weft_model_size *s, weft_port port)
{
    const weft_wan *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_IMAGE:
        return c->image_dim ? WEFT_SHAPE(s->batch,
                                         c->image_positions ? c->image_positions
                                         : s->image         ? s->image
                                                            : clip_tokens,
                                         c->image_dim)
                            : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

void weft_wan_grid(const void *config, weft_grid *grid)
{
    const weft_wan *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->patch[i];
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* Without latents on extra channels, given frames replace noisy latents (2.2 TI2V-5B). */
void weft_wan_frame_condition(const void *config, weft_frame_condition *cond)
{
    const weft_wan *c = config;
    const bool channels = c->in_channels > c->out_channels;
    *cond = (weft_frame_condition){.form = channels ? WEFT_FRAME_CONDITION_CHANNELS
                                                    : WEFT_FRAME_CONDITION_TIMES,
                                   .marks = channels,
                                   .grey = channels,
                                   .last = channels,
                                   .last_must = channels && c->image_positions,
                                   .asks = !channels};
}

/* clang-format off */
/* ---- recipes: names are those of a model with or without a scope around it ---- */

/* Tensor parallel (Shoeybi et al., Megatron-LM): q, k, v and the first feed-forward linear are
 * split by columns, the following linears `to_out` and `ffn.net.2` by rows, with a reduction. The
 * norms of q and k run over all heads and need a sum over ranks. */
#define TOKENS {WEFT_S, 1}
#define ALL {WEFT_R, 0}
#define TENSOR_PARALLEL(axis, behind)                                   \
    {"*attn*.to_q.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_q.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.to_k.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_k.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.to_v.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_v.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.norm_q.weight",     axis, {WEFT_S, 0}},                    \
    {"*attn*.norm_k.weight",     axis, {WEFT_S, 0}},                    \
    {"*attn*.add_k_proj.weight", axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_k_proj.bias",   axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_v_proj.weight", axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_v_proj.bias",   axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.norm_added_k.weight", axis, {WEFT_S, 0}, .optional = true},\
    {"*attn*.to_out.0.weight",   axis, {WEFT_S, 1}},                    \
    {"*.ffn.net.0.proj.weight",  axis, {WEFT_S, 0}},                    \
    {"*.ffn.net.0.proj.bias",    axis, {WEFT_S, 0}},                    \
    {"*.ffn.net.2.weight",       axis, {WEFT_S, 1}},                    \
    {"*_adapter.*.to_q.weight",  axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_q.bias",    axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_k.weight",  axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_k.bias",    axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_v.weight",  axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_v.bias",    axis, {WEFT_S, 0}, .optional = true},  \
    {"*_adapter.*.to_out.weight", axis, {WEFT_S, 1}, .optional = true}, \
    {"*_adapter.*.to_out:linear", axis, behind, .optional = true},      \
    {"batch.cache.*",            axis, {WEFT_S, 2}, .optional = true},  \
    {"*attn*.to_out.0:linear",   axis, behind},                         \
    {"*.ffn.net.2:linear",       axis, behind}

static const weft_recipe_row tp_rows[] = {
    TENSOR_PARALLEL("tp", ALL),
};

/* Self-attention in blocks of frames: every rank has some heads of all tokens on both axes, because
 * the slices of queries, keys and values have different tokens. */
#define BACK(axis)                                                      \
    {"*attn1.back:slice",        axis, {WEFT_S, 2}, .optional = true},  \
    {"*attn1.back:attention",    axis, {WEFT_S, 2}, .optional = true},  \
    {"*attn1.back:concat",       axis, {WEFT_S, 1}, .optional = true},  \
    {"*attn1.keys:concat",       axis, {WEFT_S, 2}, .optional = true},  \
    {"batch.cache.*",            axis, {WEFT_S, 2}, .optional = true}

/* Adapters with attention inside latent frames: heads of all tokens, as above. */
#define FRAMES(axis)                                                        \
    {"*_adapter.*.tokens:layer_norm", axis, {WEFT_S, 1}, .optional = true}, \
    {"*_adapter.*.frames:reshape",    axis, {WEFT_S, 2}, .optional = true}, \
    {"*_adapter.*.frames:attention",  axis, {WEFT_S, 2}, .optional = true}, \
    {"*_adapter.*.joined:reshape",    axis, {WEFT_S, 1}, .optional = true}

/* Context parallel (Jacobs et al., DeepSpeed-Ulysses): tokens are split from the first norm onward.
 * An all-to-all before self-attention turns the split of tokens into a split of heads, and another
 * one turns it back. */
static const weft_recipe_row cp_rows[] = {
    {"*blocks.*:layer_norm",     "cp", {WEFT_S, 1}},
    BACK("cp"),
    FRAMES("cp"),
    {"*attn*:attention",         "cp", {WEFT_S, 1}},
};

/* Ring attention (Liu et al.): keys and values circulate and heads stay unsplit, so ranks may
 * outnumber heads. The exchange runs during attention. Every rank has the text's keys. */
static const weft_recipe_row ring_rows[] = {
    {"*blocks.*:layer_norm",     "ring", {WEFT_S, 1}},
    BACK("ring"),
    FRAMES("ring"),
    {"*attn1*:attention",        "ring", {WEFT_S, 1}, .by = "ring", .optional = true},
    {"*attn*:attention",         "ring", {WEFT_S, 1}},
};

/* Tensor parallel with sequence parallelism (Korthikanti et al., MLSys'23): norms and residuals
 * work on local tokens. The output of a row-split linear is reduce-scattered, and gathered before
 * the next linear. */
static const weft_recipe_row sp_rows[] = {
    TENSOR_PARALLEL("sp", TOKENS),
    {"*blocks.*:layer_norm",     "sp", {WEFT_S, 1}},
    {"*_adapter.*.tokens:layer_norm", "sp", {WEFT_S, 1}, .optional = true},
};

/* If two axes split one dim, the first axis is the outer one: heads by tp, then by cp; tokens by
 * ring, then by cp. The cp ranks then share one block of the ring. */
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp   = LIST("tp",   "tensor parallel",                     tp_rows),
    ring = LIST("ring", "context parallel, keys go round",     ring_rows),
    cp   = LIST("cp",   "context parallel, tokens into heads", cp_rows),
    sp   = LIST("sp",   "tensor parallel, tokens in between",  sp_rows);
const weft_recipe_list *const weft_wan_recipes[WEFT_WAN_RECIPES] = {&tp, &ring, &cp, &sp};

/* The encoder has no mask: zeros after the text are attended to. */
const weft_text_encoder_row weft_wan_text_encoders[WEFT_WAN_TEXT_ENCODERS] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .clean = WEFT_CLEAN_PROMPT,
     .zeros = true},
};
/* clang-format on */
