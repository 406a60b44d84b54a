#include "model/denoisers/token_refiner.h"

#include "graph/builder_helpers.h"
#include "model/denoisers/mmdit.h"

static const double eps = WEFT_MMDIT_EPS;

static int64_t width_of(const weft_token_refiner *c)
{
    return c->heads * c->head_dim;
}

weft_value weft_token_mask(weft_graph *g, weft_value mask, weft_value x)
{
    return weft_value_ok(mask)
               ? weft_cast(g, mask, WEFT_F32)
               : weft_fill(g, WEFT_F32, WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1)), 1);
}

/* Attention to the real tokens and the first one; padding attends only to the first. */
static weft_value attend_with_first(weft_graph *g, const weft_value qkv[3], weft_value mask_bl)
{
    const int64_t batch = weft_dim(g, mask_bl, 0), text = weft_dim(g, mask_bl, 1);
    const weft_value first =
        weft_concat(g,
                    (weft_value[]){weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1), 1),
                                   weft_fill(g, WEFT_F32, WEFT_SHAPE(1, text - 1), 0)},
                    2, 1);
    const weft_value seen = weft_clamp(g, weft_add(g, mask_bl, first), 0, 1);
    const weft_value real = weft_reshape(g, mask_bl, WEFT_SHAPE(batch, text, 1, 1));
    const weft_value mixed = weft_nn_attend(g, qkv[0], qkv[1], qkv[2], weft_nn_hide(g, seen));
    const weft_value padded =
        weft_mul(g, weft_slice(g, qkv[2], 1, 0, 1), weft_affine(g, real, -1, 1));
    return weft_add(g, weft_mul(g, mixed, real), padded);
}

static weft_value attention(weft_graph *g, const weft_token_refiner *c, weft_value h_blc,
                            weft_value mask_bl)
{
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    weft_value qkv[3];
    weft_graph_push(g, "attn");
    for (int i = 0; i < 3; i++)
        qkv[i] = weft_nn_split_heads(
            g, weft_nn_linear(g, names[i], h_blc, width_of(c), WEFT_LINEAR_XAVIER), c->heads);
    const weft_value out =
        c->first_visible ? attend_with_first(g, qkv, mask_bl)
                         : weft_nn_attend(g, qkv[0], qkv[1], qkv[2], weft_nn_hide(g, mask_bl));
    const weft_value y =
        weft_nn_linear(g, "to_out.0", weft_nn_join_heads(g, out), width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return y;
}

static weft_value block(weft_graph *g, const weft_token_refiner *c, weft_value x_blc,
                        weft_value temb_bc, weft_value mask_bl)
{
    const int64_t width = width_of(c);
    weft_value gates = weft_nn_linear(g, "norm_out.linear", weft_unary(g, WEFT_OP_SILU, temb_bc),
                                      2 * width, WEFT_LINEAR_XAVIER);
    gates = weft_reshape(g, gates, WEFT_SHAPE(weft_dim(g, gates, 0), 2, width));
    weft_value h = attention(g, c, weft_nn_layer_norm(g, "norm1", x_blc, eps), mask_bl);
    x_blc = weft_nn_gated_add(g, x_blc, h, weft_nn_row(g, gates, 0));
    h = weft_nn_layer_norm(g, "norm2", x_blc, eps);
    /* the refiner's width factor is 4, independent of the config's */
    h = weft_nn_feed_forward(g, "ff", h, 4 * width, WEFT_NN_SILU);
    return weft_nn_gated_add(g, x_blc, h, weft_nn_row(g, gates, 1));
}

weft_value weft_token_refine(weft_graph *g, const weft_token_refiner *c, weft_value text,
                             weft_value mask_bl, weft_value timestep_b)
{
    const int64_t width = width_of(c), batch = weft_dim(g, text, 0);
    const weft_value mask = weft_reshape(g, mask_bl, WEFT_SHAPE(batch, weft_dim(g, text, 1), 1));
    weft_graph_push(g, "context_embedder");
    weft_value pooled =
        weft_div(g, weft_sum(g, weft_mul(g, text, mask), 1u << 1), weft_sum(g, mask, 1u << 1));
    pooled = weft_reshape(g, pooled, WEFT_SHAPE(batch, weft_dim(g, text, 2)));
    weft_graph_push(g, "time_text_embed");
    const weft_value temb = weft_add(
        g,
        weft_nn_embedder(g, "timestep_embedder", weft_nn_sinusoid(g, WEFT_MMDIT_TIME, timestep_b),
                         width, WEFT_NN_SILU),
        weft_nn_embedder(g, "text_embedder", pooled, width, WEFT_NN_SILU));
    weft_graph_pop(g);
    weft_value x = weft_nn_linear(g, "proj_in", text, width, WEFT_LINEAR_XAVIER);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "token_refiner.refiner_blocks.%d", (int)i);
        x = block(g, c, x, temb, mask_bl);
        weft_graph_pop(g);
    }
    weft_graph_pop(g);
    return x;
}
