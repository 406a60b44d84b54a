#include "model/ltx2_layers.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <math.h>

static const double qk_eps = 1e-6;

/* Item i of `count` numbers from 0 to 1 in even steps, in the order of the reference's rounding. */
static double even(int64_t i, int64_t count, bool wide)
{
    const double step = count > 1 ? 1.0 / (double)(count - 1) : 0;
    const float narrow = (float)step;
    if (wide)
        return i < count / 2 ? step * (double)i : 1.0 - step * (double)(count - 1 - i);
    return (double)(i < count / 2 ? narrow * (float)i : 1.0f - narrow * (float)(count - 1 - i));
}

/* Frequencies (1,1,count,1) from pi/2 to theta pi/2. */
static weft_value frequencies(weft_graph *g, const weft_ltx2_rope *rope, int64_t count)
{
    const double pi = 3.14159265358979323846;
    float *f = weft_calloc(count + 1, sizeof *f);
    if (!f)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for frequencies");
    for (int64_t i = 0; i < count; i++) {
        const double power = pow(rope->theta, even(i, count, rope->double_precision));
        f[i] = rope->double_precision ? (float)(power * pi / 2) : (float)power * (float)pi / 2;
    }
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, count, 1), f);
    weft_free(f);
    return v;
}

void weft_ltx2_rope_tables(weft_graph *g, const weft_ltx2_rope *rope, weft_value positions,
                           const float *whole, int64_t width, int64_t heads,
                           weft_ltx2_tables *tables)
{
    const int64_t batch = weft_dim(g, positions, 0), tokens = weft_dim(g, positions, 1),
                  axes = weft_dim(g, positions, 2);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    const int64_t count = width / (2 * axes), still = width / 2 - axes * count;
    const weft_value part =
        weft_div(g, positions, weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 1, axes), whole));
    const weft_value at =
        weft_reshape(g, weft_affine(g, part, 2, -1), WEFT_SHAPE(batch, tokens, 1, axes));
    const weft_value angle = weft_reshape(g, weft_mul(g, frequencies(g, rope, count), at),
                                          WEFT_SHAPE(batch, tokens, axes * count));
    tables->heads = heads;
    for (int i = 0; i < 2; i++) {
        weft_value v = weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle);
        if (still)
            v = weft_concat(
                g,
                (weft_value[]){weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens, still), i ? 0 : 1),
                               v},
                2, 2);
        tables->cos_sin[i] =
            weft_reshape(g, v, WEFT_SHAPE(batch, tokens, heads, width / 2 / heads));
    }
}

static weft_value rotated(weft_graph *g, weft_value x_bsc, const weft_ltx2_tables *rope,
                          int64_t heads, bool halves)
{
    const bool other = rope && rope->heads != heads && halves;
    if (!rope)
        return weft_nn_split_heads(g, x_bsc, heads);
    if (!other)
        return weft_nn_rope(g, weft_nn_split_heads(g, x_bsc, heads), rope->cos_sin, halves);
    const weft_value x =
        weft_nn_rope(g, weft_nn_split_heads(g, x_bsc, rope->heads), rope->cos_sin, true);
    return weft_nn_split_heads(g, weft_nn_join_heads(g, x), heads);
}

/* The attention h of samples with 1 in `attended` (B), the values v of samples with 0. */
static weft_value perturb(weft_graph *g, weft_value attended, weft_value h, weft_value v)
{
    const weft_value on = weft_reshape(g, attended, WEFT_SHAPE(weft_dim(g, attended, 0), 1, 1, 1));
    return weft_add(g, weft_mul(g, h, on), weft_mul(g, v, weft_affine(g, on, -1, 1)));
}

weft_value weft_ltx2_attend(weft_graph *g, const weft_ltx2_attention *a, const char *name,
                            weft_value x, weft_value context,
                            const weft_ltx2_tables *const ropes[2], weft_value bias)
{
    const int64_t heads = a->heads, inner = heads * a->head_dim, width = weft_dim(g, x, 2);
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_dense(g, "to_q", x, inner, a->bias),
               k = weft_nn_dense(g, "to_k", context, inner, a->bias);
    const weft_value v =
        weft_nn_split_heads(g, weft_nn_dense(g, "to_v", context, inner, a->bias), heads);
    q = rotated(g, weft_nn_rms_norm(g, "norm_q", q, qk_eps), ropes ? ropes[0] : NULL, heads,
                a->halves);
    k = rotated(g, weft_nn_rms_norm(g, "norm_k", k, qk_eps), ropes ? ropes[1] : NULL, heads,
                a->halves);
    weft_value h = weft_nn_attend(g, q, k, v, bias);
    if (a->attended)
        h = perturb(g, *a->attended, h, v);
    if (a->gated) {
        const weft_value logits = weft_nn_linear(g, "to_gate_logits", x, heads, WEFT_LINEAR_ZERO);
        const weft_value gates = weft_affine(g, weft_unary(g, WEFT_OP_SIGMOID, logits), 2, 0);
        h = weft_mul(
            g, h,
            weft_reshape(g, gates, WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), heads, 1)));
    }
    h = weft_nn_dense(g, "to_out.0", weft_nn_join_heads(g, h), width, a->out_bias);
    weft_graph_pop(g);
    return h;
}

weft_value weft_ltx2_feed_forward(weft_graph *g, const char *name, weft_value x, bool bias)
{
    const int64_t width = weft_dim(g, x, 2);
    weft_graph_push(g, "%s", name);
    x = weft_nn_activate(g, WEFT_NN_GELU_TANH, weft_nn_dense(g, "net.0.proj", x, 4 * width, bias));
    x = weft_nn_dense(g, "net.2", x, width, bias);
    weft_graph_pop(g);
    return x;
}
