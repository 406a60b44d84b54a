/* The blocks of Cosmos' diffusion transformers. */
#include "model/denoisers/cosmos_blocks.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"

#include <math.h>

enum { SHIFT, SCALE, GATE };
enum { BASE_FPS = 24 };
static const double eps = 1e-6, qk_eps = 1e-5, image_eps = 1e-6;
const char *const weft_cosmos_pos_embed_words[] = {"\"learnable\"", "null", NULL};

int64_t weft_cosmos_width(const weft_cosmos *c)
{
    return c->heads * c->head_dim;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* RoPE pairs and bases of the axes. Bases grow with the scale of an axis (NTK). */
static void axes_of(const weft_cosmos *c, int64_t pairs[3], double theta[3])
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

static void rope_tables(weft_graph *g, const weft_cosmos *c, weft_value fps_b,
                        const int64_t size[3], weft_value cos_sin[WEFT_MAX_OUTPUTS])
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
static weft_value learned_positions(weft_graph *g, const weft_cosmos *c, const int64_t size[3])
{
    static const char *const names[] = {"pos_emb_t", "pos_emb_h", "pos_emb_w"};
    const int64_t width = weft_cosmos_width(c);
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
static weft_value by_frames(weft_graph *g, const weft_cosmos_condition *to, weft_value x)
{
    if (!to->frames)
        return x;
    return weft_reshape(
        g, x,
        WEFT_SHAPE(weft_dim(g, x, 0), to->size[0], to->size[1] * to->size[2], weft_dim(g, x, 2)));
}

static weft_value by_tokens(weft_graph *g, const weft_cosmos_condition *to, weft_value x)
{
    if (!to->frames)
        return x;
    return weft_reshape(
        g, x,
        WEFT_SHAPE(weft_dim(g, x, 0), to->size[0] * to->size[1] * to->size[2], weft_dim(g, x, 3)));
}

/* Modulation of a norm: `rows` values of (B,1,C), or (B,T,1,C). */
static void modulation(weft_graph *g, const weft_cosmos *c, const char *name,
                       const weft_cosmos_condition *to, int rows, weft_value row[])
{
    const int64_t width = weft_cosmos_width(c);
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

static weft_value modulated(weft_graph *g, const char *name, const weft_cosmos_condition *to,
                            weft_value x, const weft_value row[])
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_plain_norm(g, x, eps);
    weft_graph_pop(g);
    return by_tokens(g, to, weft_nn_modulate(g, by_frames(g, to, x), row[SCALE], row[SHIFT]));
}

static weft_value heads_of(weft_graph *g, const weft_cosmos *c, const char *name, weft_value x)
{
    return weft_nn_split_heads(g, weft_nn_linear_plain(g, name, x, weft_cosmos_width(c)), c->heads);
}

/* Attention to the image tokens, with queries of their own. */
static weft_value attend_image(weft_graph *g, const weft_cosmos *c, weft_value x_bsc,
                               weft_value image_bnc)
{
    const weft_value q =
        weft_nn_rms_norm(g, "q_img_norm", heads_of(g, c, "q_img", x_bsc), image_eps);
    const weft_value k =
        weft_nn_rms_norm(g, "k_img_norm", heads_of(g, c, "k_img", image_bnc), image_eps);
    const weft_value v = heads_of(g, c, "v_img", image_bnc);
    return weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
}

/* `image_bnc` WEFT_NONE: none */
static weft_value attention(weft_graph *g, const weft_cosmos *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, weft_value image_bnc, const weft_value *rope)
{
    weft_graph_push(g, "%s", name);
    weft_value q = heads_of(g, c, "to_q", x_bsc), k = heads_of(g, c, "to_k", context_blc);
    const weft_value v = heads_of(g, c, "to_v", context_blc);
    q = weft_nn_rms_norm(g, "norm_q", q, qk_eps);
    k = weft_nn_rms_norm(g, "norm_k", k, qk_eps);
    if (rope) {
        q = weft_nn_rope(g, q, rope, true);
        k = weft_nn_rope(g, k, rope, true);
    }
    weft_value mixed = weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
    if (weft_value_ok(image_bnc))
        mixed = weft_add(g, mixed, attend_image(g, c, x_bsc, image_bnc));
    const weft_value out = weft_nn_linear_plain(g, "to_out.0", mixed, weft_cosmos_width(c));
    weft_graph_pop(g);
    return out;
}

static weft_value feed_forward(weft_graph *g, const weft_cosmos *c, weft_value x)
{
    const int64_t width = weft_cosmos_width(c);
    weft_graph_push(g, "ff.net");
    x = weft_nn_linear_plain(g, "0.proj", x, (int64_t)((double)width * c->mlp_ratio));
    x = weft_nn_linear_plain(g, "2", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), width);
    weft_graph_pop(g);
    return x;
}

weft_value weft_cosmos_block(weft_graph *g, const weft_cosmos *c, weft_value x,
                             const weft_cosmos_condition *to)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    if (weft_value_ok(to->positions))
        x = weft_add(g, x, to->positions);
    for (int i = 0; i < 3; i++) {
        weft_value row[3];
        modulation(g, c, norms[i], to, 3, row);
        weft_value h = modulated(g, norms[i], to, x, row);
        h = i == 0   ? attention(g, c, "attn1", h, h, WEFT_NONE, to->rope)
            : i == 1 ? attention(g, c, "attn2", h, to->text_blc, to->image_bnc, NULL)
                     : feed_forward(g, c, h);
        x = by_tokens(g, to,
                      weft_nn_gated_add(g, by_frames(g, to, x), by_frames(g, to, h), row[GATE]));
    }
    return x;
}

weft_value weft_cosmos_last_norm(weft_graph *g, const weft_cosmos *c, weft_value x,
                                 const weft_cosmos_condition *to)
{
    weft_value row[2];
    modulation(g, c, "norm_out", to, 2, row);
    return modulated(g, "norm_out", to, x, row);
}

/* ---- inputs --------------------------------------------------------------------------------- */

weft_value weft_cosmos_padding(weft_graph *g, const weft_ports *in)
{
    const weft_value x = in->at[WEFT_PORT_LATENTS], mask = in->at[WEFT_PORT_PADDING];
    const int64_t rows = weft_dim(g, x, 2), columns = weft_dim(g, x, 3);
    const weft_shape all = WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), rows, columns, 1);
    if (!weft_value_ok(mask))
        return weft_fill(g, WEFT_F32, all, 0);
    /* the first pixel of a latent (nearest) */
    weft_value m =
        weft_reshape(g, mask, WEFT_SHAPE(1, rows, WEFT_COSMOS_PIXELS, columns, WEFT_COSMOS_PIXELS));
    m = weft_slice(g, weft_slice(g, m, 2, 0, 1), 4, 0, 1);
    return weft_broadcast(g, weft_reshape(g, m, WEFT_SHAPE(1, 1, rows, columns, 1)), all);
}

weft_value weft_cosmos_marks(weft_graph *g, const weft_ports *in)
{
    if (weft_value_ok(in->at[WEFT_PORT_CONDITION]))
        return in->at[WEFT_PORT_CONDITION];
    weft_shape one = weft_value_get(g, in->at[WEFT_PORT_LATENTS])->shape;
    one.dim[4] = 1;
    return weft_fill(g, WEFT_F32, one, 0);
}

static void embed_time(weft_graph *g, const weft_cosmos *c, weft_value t, weft_cosmos_condition *to)
{
    const int64_t width = weft_cosmos_width(c);
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

static weft_value projected(weft_graph *g, const char *name, weft_value x, int64_t width)
{
    return weft_nn_activate(g, WEFT_NN_GELU_ERF,
                            weft_nn_linear(g, name, x, width, WEFT_LINEAR_XAVIER));
}

/* The pipelines give zeros for all image tokens. Attention to equal tokens is attention to one. */
static weft_value embed_image(weft_graph *g, const weft_cosmos *c, const weft_ports *in)
{
    weft_value image = in->at[WEFT_PORT_IMAGE];
    if (!weft_value_ok(image))
        image = weft_fill(g, WEFT_F32,
                          WEFT_SHAPE(weft_dim(g, in->at[WEFT_PORT_TEXT], 0), 1, c->image_dim), 0);
    return projected(g, "img_context_proj.0", image, c->image_to);
}

void weft_cosmos_embed(weft_graph *g, const weft_cosmos *c, const weft_ports *in,
                       weft_cosmos_condition *to)
{
    embed_time(g, c, in->at[WEFT_PORT_TIMESTEP], to);
    rope_tables(g, c, in->at[WEFT_PORT_FPS], to->size, to->rope);
    to->positions = c->pos_embed == WEFT_COSMOS_POS_EMBED_LEARNED
                        ? learned_positions(g, c, to->size)
                        : WEFT_NONE;
    to->text_blc = in->at[WEFT_PORT_TEXT];
    if (c->project)
        to->text_blc = projected(g, "crossattn_proj.0", to->text_blc, c->project_to);
    to->image_bnc = c->image_dim ? embed_image(g, c, in) : WEFT_NONE;
}

weft_status weft_cosmos_check(const weft_cosmos *c, const weft_config_locations *locations)
{
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
    if (c->image_dim && c->image_to != weft_cosmos_width(c))
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "img_context_dim_out", c->image_to),
            "%" PRId64 " differs from the width of the model, %" PRId64 "; write the same value",
            c->image_to, weft_cosmos_width(c));
    return WEFT_OK;
}
