#include "nn/chosen_blocks.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <math.h>

/* Exchanges two neighbouring dims of x, whose elements are (outer, one, other, rest). */
static weft_value exchange(weft_graph *g, weft_value x, int64_t outer, int64_t one, int64_t other)
{
    if (one == 1 || other == 1)
        return x;
    const weft_shape whole = weft_value_get(g, x)->shape;
    const int64_t rest = weft_shape_count(&whole) / (outer * one * other);
    x = weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(outer, one, other, rest)),
                     (int[]){0, 2, 1, 3});
    return weft_reshape(g, x, whole);
}

weft_value weft_nn_by_blocks(weft_graph *g, weft_value x, const int64_t size[3],
                             const int64_t block[3], bool back)
{
    if (!weft_value_ok(x))
        return x;
    const int64_t batch = weft_value_get(g, x)->shape.rank == 2 ? 1 : weft_dim(g, x, 0),
                  layers = batch * size[0] / block[0], rows = size[1] / block[1],
                  columns = size[2] / block[2], face = block[0] * block[1];
    if (back)
        return exchange(g, exchange(g, x, layers * rows, columns, face), layers, rows, block[0]);
    return exchange(g, exchange(g, x, layers, block[0], rows), layers * rows, face, columns);
}

/* Means of the blocks of x (B,S,H,D): (B,H,S/tokens,D). */
static weft_value means(weft_graph *g, weft_value x, int64_t tokens)
{
    const weft_shape s = weft_value_get(g, x)->shape;
    x = weft_unary(g, WEFT_OP_STOP, x);
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] / tokens, tokens, s.dim[2], s.dim[3]));
    x = weft_reshape(g, weft_mean(g, x, 1u << 2),
                     WEFT_SHAPE(s.dim[0], s.dim[1] / tokens, s.dim[2], s.dim[3]));
    return weft_permute(g, x, (int[]){0, 2, 1, 3});
}

weft_value weft_nn_block_scores(weft_graph *g, weft_value q, weft_value k, int64_t tokens)
{
    if (!weft_value_ok(q) || !weft_value_ok(k))
        return WEFT_NONE;
    const weft_value a = means(g, q, tokens), b = means(g, k, tokens);
    return weft_cast(g, weft_matmul(g, a, b, false, true), WEFT_F32);
}

weft_value weft_nn_attend_blocks(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                 weft_value chosen)
{
    if (!weft_value_ok(q))
        return WEFT_NONE;
    const weft_attr_attention attr = {.scale = 1 / sqrt((double)weft_dim(g, q, 3))};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION, (weft_value[]){q, k, v, chosen}, 4, &attr, out);
    return out[0];
}
