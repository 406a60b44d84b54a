#include "train/graph/adversarial_term.h"

#include "graph/autodiff.h"
#include "graph/builder_helpers.h"

/* The gradient of a scalar. Its nodes are marked as forward nodes because the forward uses them. */
static weft_value slope(weft_graph *g, weft_value of, weft_value at)
{
    weft_value grad;
    const int32_t first = weft_graph_node_count(g);
    weft_autodiff(g, of, &at, 1, &grad);
    for (int32_t n = first; n < weft_graph_node_count(g); n++)
        weft_graph_node_mut(g, n)->backward = false;
    return grad;
}

/* Norm of the gradient at `last` for the gradient `seed` at `made`. */
static weft_value norm_at(weft_graph *g, weft_value made, weft_value seed, weft_value last)
{
    weft_value grad;
    const int32_t first = weft_graph_node_count(g);
    weft_autodiff_from(g, &made, &seed, 1, &last, 1, &grad);
    for (int32_t n = first; n < weft_graph_node_count(g); n++)
        weft_graph_node_mut(g, n)->backward = false;
    if (!weft_value_ok(grad))
        return weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR, "the last layer makes nothing");
    return weft_unary(g, WEFT_OP_SQRT, weft_sum_all(g, weft_unary(g, WEFT_OP_SQUARE, grad)));
}

void weft_adversarial_term_build(weft_graph *g, weft_value made, weft_value seen,
                                 weft_value objective, weft_value against, weft_value last,
                                 weft_value factor, weft_adversarial_term *out)
{
    const double eps = 1e-4, most = 1e4;
    const weft_value towards = slope(g, objective, seen), adversarial = slope(g, against, seen);
    *out = (weft_adversarial_term){WEFT_NONE, factor, {WEFT_NONE, WEFT_NONE}};
    if (weft_graph_check(g) != WEFT_OK)
        return;
    if (weft_value_ok(last)) {
        out->norm[0] = norm_at(g, made, towards, last);
        out->norm[1] = norm_at(g, made, adversarial, last);
        const weft_value ratio = weft_div(g, out->norm[0], weft_affine(g, out->norm[1], 1, eps));
        out->weight = weft_mul(g, weft_clamp(g, ratio, 0, most), factor);
    }
    const weft_value both = weft_add(g, towards, weft_mul(g, adversarial, out->weight));
    const weft_value dot = weft_sum_all(g, weft_mul(g, made, weft_unary(g, WEFT_OP_STOP, both)));
    out->pull = weft_sub(g, dot, weft_unary(g, WEFT_OP_STOP, dot));
}
