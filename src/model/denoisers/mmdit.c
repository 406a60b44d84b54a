#include "model/denoisers/mmdit.h"

#include "graph/builder_helpers.h"

#include <math.h>

static const double eps = WEFT_MMDIT_EPS;

static int64_t width_of(const weft_mmdit *c)
{
    return c->heads * c->head_dim;
}

static const weft_mmdit_names usual = {
    {"norm1", "norm1_context"}, "linear", {"ff.net", "ff_context.net"}};

static const weft_mmdit_names *names_of(const weft_mmdit *c)
{
    return c->names ? c->names : &usual;
}

weft_value weft_mmdit_modulation(weft_graph *g, const weft_nn_layer *layer, weft_value temb_bc,
                                 int64_t rows)
{
    const weft_value mod = weft_nn_linear_by(g, layer, weft_unary(g, WEFT_OP_SILU, temb_bc));
    if (!weft_value_ok(mod))
        return mod;
    weft_shape shape = weft_value_get(g, mod)->shape;
    const int last = shape.rank++ - 1;
    shape.dim[last + 1] = shape.dim[last] / rows;
    shape.dim[last] = rows;
    return weft_reshape(g, mod, shape);
}

/* q, k, v of one stream, (B,S,H,D) each. */
static void project(weft_graph *g, const weft_mmdit *c, const weft_nn_layer layer[3],
                    const weft_nn_layer norm[2], const weft_mmdit_stream *s, weft_value h,
                    weft_value qkv[3])
{
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_split_heads(g, weft_nn_linear_by(g, &layer[i], h), c->heads);
        if (i == 2)
            return;
        qkv[i] = weft_nn_rms_norm_by(g, &norm[i], qkv[i], eps);
        if (!s->text || c->text_rope)
            qkv[i] = weft_nn_rope(g, qkv[i], s->rope, false);
    }
}

static void attend(weft_graph *g, int count, weft_value qkv[3][WEFT_MMDIT_STREAMS], weft_value bias,
                   weft_value *h)
{
    weft_nn_attend_jointly(g, count, qkv[0], qkv[1], qkv[2], bias, h);
    for (int s = 0; s < count; s++)
        h[s] = weft_nn_join_heads(g, h[s]);
}

weft_value weft_mmdit_with_no_effect(weft_graph *g, weft_value x_bshd, weft_value unused_bshd)
{
    return weft_add(g, x_bshd, weft_affine(g, weft_sum(g, unused_bshd, 1u << 1), 0, 0));
}

/* Attention of the joint attention's output x (B,S,C) to the normed text (B,L,C). Queries have
 * rotary positions, keys have not. */
static weft_value attend_to_text(weft_graph *g, const weft_mmdit *c, const weft_mmdit_stream *s,
                                 weft_value x, weft_value text)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"}, *const norms[] = {"norm_q",
                                                                                   "norm_k"};
    weft_value qkv[3];
    weft_graph_push(g, "cross_attn");
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_linear(g, names[i], i ? text : x, width_of(c), WEFT_LINEAR_XAVIER);
        qkv[i] = weft_nn_split_heads(g, qkv[i], c->heads);
        if (i < 2)
            qkv[i] = weft_nn_rms_norm(g, norms[i], qkv[i], eps);
    }
    qkv[0] = weft_nn_rope(g, qkv[0], s->rope, false);
    x = weft_nn_join_heads(g, weft_nn_attend(g, qkv[0], qkv[1], qkv[2], *c->text_cross));
    x = weft_nn_linear(g, "to_out.0", x, width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

/* Layers of a double block for one kind of stream. */
typedef struct side {
    weft_nn_layer modulation, qkv[3], norm[2], out, ff[2];
} side;

static side side_of(weft_graph *g, const weft_mmdit *c, bool text)
{
    static const char *const names[2][6] = {
        {"to_q", "to_k", "to_v", "norm_q", "norm_k", "to_out.0"},
        {"add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k", "to_add_out"},
    };
    const weft_mmdit_names *own = names_of(c);
    const int64_t width = width_of(c), inner = c->inner;
    side l = {0};
    weft_graph_push(g, "%s", own->modulation[text]);
    if (!c->given_mod)
        l.modulation = weft_nn_linear_of(g, own->layer, width, 6 * width, true, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    weft_graph_push(g, "attn");
    for (int i = 0; i < 3; i++)
        l.qkv[i] = weft_nn_linear_of(g, names[text][i], width, width, true, WEFT_LINEAR_XAVIER);
    for (int i = 0; i < 2; i++)
        l.norm[i] = weft_nn_norm_of(g, names[text][3 + i], c->head_dim, false);
    l.out = weft_nn_linear_of(g, names[text][5], width, width, true, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    weft_graph_push(g, "%s", own->ff[text]);
    l.ff[0] = weft_nn_linear_of(g, "0.proj", width, inner, true, WEFT_LINEAR_XAVIER);
    l.ff[1] = weft_nn_linear_of(g, "2", inner, width, true, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return l;
}

void weft_mmdit_double(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    const side of[2] = {side_of(g, c, false), side_of(g, c, true)};
    weft_value mod[WEFT_MMDIT_STREAMS], h[WEFT_MMDIT_STREAMS], qkv[3][WEFT_MMDIT_STREAMS], one[3];
    for (int s = 0; s < count; s++) {
        weft_graph_push(g, "%s", names_of(c)->modulation[stream[s].text]);
        mod[s] = c->given_mod ? stream[s].mod
                              : weft_mmdit_modulation(g, &of[stream[s].text].modulation,
                                                      stream[s].temb_bc, ROWS);
        h[s] = weft_nn_modulate(g, weft_nn_plain_norm(g, stream[s].x, eps),
                                weft_nn_row(g, mod[s], SCALE1), weft_nn_row(g, mod[s], SHIFT1));
        weft_graph_pop(g);
    }
    const weft_value text = h[count - 1];
    weft_graph_push(g, "attn");
    for (int s = 0; s < count; s++) {
        const side *l = &of[stream[s].text];
        project(g, c, l->qkv, l->norm, &stream[s], h[s], one);
        for (int i = 0; i < 3; i++)
            qkv[i][s] = one[i];
        if (stream[s].last)
            qkv[0][0] = weft_mmdit_with_no_effect(g, qkv[0][0], one[0]);
    }
    attend(g, count, qkv, bias, h);
    for (int s = 0; s < count; s++)
        h[s] = weft_nn_linear_by(g, &of[stream[s].text].out, h[s]);
    weft_graph_pop(g);
    for (int s = 0; s < count; s++) {
        const side *l = &of[stream[s].text];
        weft_value x = weft_nn_gated_add(g, stream[s].x, h[s], weft_nn_row(g, mod[s], GATE1));
        if (s == 0 && c->text_cross)
            x = weft_add(g, x, attend_to_text(g, c, &stream[s], h[s], text));
        weft_value y =
            weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), weft_nn_row(g, mod[s], SCALE2),
                             weft_nn_row(g, mod[s], SHIFT2));
        weft_graph_push(g, "%s", names_of(c)->ff[stream[s].text]);
        y = weft_nn_linear_by(g, &l->ff[1], weft_gelu_tanh(g, weft_nn_linear_by(g, &l->ff[0], y)));
        weft_graph_pop(g);
        stream[s].x = weft_nn_gated_add(g, x, y, weft_nn_row(g, mod[s], GATE2));
    }
}

void weft_mmdit_single(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias)
{
    enum { SHIFT, SCALE, GATE, ROWS };
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    const int64_t width = width_of(c), inner = c->inner;
    weft_nn_layer layer[3], norm[2];
    weft_value mod[WEFT_MMDIT_STREAMS], h[WEFT_MMDIT_STREAMS], qkv[3][WEFT_MMDIT_STREAMS], one[3];
    weft_nn_layer modulates = {0};
    if (!c->given_mod)
        modulates =
            weft_nn_linear_of(g, "norm.linear", width, ROWS * width, true, WEFT_LINEAR_XAVIER);
    const weft_nn_layer mlp = weft_nn_linear_of(g, "proj_mlp", width, inner, true,
                                                WEFT_LINEAR_XAVIER),
                        out = weft_nn_linear_of(g, "proj_out", width + inner, width, true,
                                                WEFT_LINEAR_XAVIER);
    weft_graph_push(g, "attn");
    for (int i = 0; i < 3; i++)
        layer[i] = weft_nn_linear_of(g, names[i], width, width, true, WEFT_LINEAR_XAVIER);
    norm[0] = weft_nn_norm_of(g, "norm_q", c->head_dim, false);
    norm[1] = weft_nn_norm_of(g, "norm_k", c->head_dim, false);
    weft_graph_pop(g);
    weft_value normed[WEFT_MMDIT_STREAMS];
    for (int s = 0; s < count; s++) {
        mod[s] = c->given_mod ? stream[s].mod
                              : weft_mmdit_modulation(g, &modulates, stream[s].temb_bc, ROWS);
        normed[s] = weft_nn_modulate(g, weft_nn_plain_norm(g, stream[s].x, eps),
                                     weft_nn_row(g, mod[s], SCALE), weft_nn_row(g, mod[s], SHIFT));
    }
    weft_graph_push(g, "attn");
    for (int s = 0; s < count; s++) {
        project(g, c, layer, norm, &stream[s], normed[s], one);
        for (int i = 0; i < 3; i++)
            qkv[i][s] = one[i];
    }
    attend(g, count, qkv, bias, h);
    weft_graph_pop(g);
    if (c->text_cross)
        h[0] = weft_add(g, h[0], attend_to_text(g, c, &stream[0], h[0], normed[count - 1]));
    for (int s = 0; s < count; s++) {
        const weft_value wide = weft_gelu_tanh(g, weft_nn_linear_by(g, &mlp, normed[s]));
        const weft_value both = weft_concat(g, (weft_value[]){h[s], wide}, 2, 2);
        stream[s].x = weft_nn_gated_add(g, stream[s].x, weft_nn_linear_by(g, &out, both),
                                        weft_nn_row(g, mod[s], GATE));
    }
}

void weft_mmdit_video_rope(weft_graph *g, double theta, const int64_t axes[3], int64_t first,
                           const int64_t size[3], weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const weft_attr_rope_table attr = {
        .theta = {theta, theta, theta},
        .origin = {(double)first, 0, 0},
        .step = {1, 1, 1},
        .grid = {size[0], size[1], size[2]},
        .pairs = {axes[0] / 2, axes[1] / 2, axes[2] / 2},
        .len = size[0] * size[1] * size[2],
    };
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
}

weft_value weft_mmdit_angles(weft_graph *g, weft_value at_bn, double theta, int64_t pairs)
{
    float *f = weft_calloc(pairs + 1, sizeof *f);
    if (!f)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for frequencies");
    for (int64_t i = 0; i < pairs; i++)
        f[i] = 1.0f / (float)pow(theta, (double)i / (double)pairs);
    const weft_value frequencies = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, pairs), f);
    weft_free(f);
    return weft_mul(g, at_bn, frequencies);
}

weft_value weft_mmdit_key_bias(weft_graph *g, weft_value mask, int64_t tokens)
{
    if (!weft_value_ok(mask))
        return WEFT_NONE;
    const weft_value parts[] = {weft_fill(g, WEFT_F32, WEFT_SHAPE(weft_dim(g, mask, 0), tokens), 0),
                                weft_nn_hide(g, weft_cast(g, mask, WEFT_F32))};
    return weft_concat(g, parts, 2, 1);
}

weft_value weft_mmdit_image_tokens(weft_graph *g, weft_value image_bld, int64_t width)
{
    const double norm_eps = 1e-5;
    const int64_t own = weft_dim(g, image_bld, 2);
    weft_graph_push(g, "image_embedder");
    weft_value x = weft_nn_layer_norm(g, "norm_in", image_bld, norm_eps);
    x = weft_nn_linear(g, "linear_1", x, own, WEFT_LINEAR_XAVIER);
    x = weft_nn_linear(g, "linear_2", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), width,
                       WEFT_LINEAR_XAVIER);
    x = weft_nn_layer_norm(g, "norm_out", x, norm_eps);
    weft_graph_pop(g);
    return x;
}

weft_value weft_mmdit_last(weft_graph *g, const weft_mmdit *c, weft_value x, weft_value temb_bc,
                           int64_t out)
{
    weft_graph_push(g, "norm_out");
    const weft_nn_layer layer =
        weft_nn_linear_of(g, "linear", width_of(c), 2 * width_of(c), true, WEFT_LINEAR_XAVIER);
    const weft_value mod = weft_mmdit_modulation(g, &layer, temb_bc, 2); /* scale, shift */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), weft_nn_row(g, mod, 0),
                         weft_nn_row(g, mod, 1));
    weft_graph_pop(g);
    return weft_nn_linear(g, "proj_out", x, out, WEFT_LINEAR_ZERO);
}
