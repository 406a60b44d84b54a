#include "prompt/all_layers.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

weft_value weft_all_layers_join(weft_graph *g, weft_value layers_bnld)
{
    weft_value x = layers_bnld;
    const int64_t batch = weft_dim(g, x, 0), layers = weft_dim(g, x, 1), length = weft_dim(g, x, 2),
                  width = weft_dim(g, x, 3);
    const double n = (double)width, eps = 1e-8;
    const uint32_t last = 1u << 3;
    x = weft_sub(g, x, weft_affine(g, weft_sum(g, x, last), 1 / n, 0));
    weft_value square = weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, x), last);
    square = weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1 / (n > 1 ? n - 1 : 1), 0));
    x = weft_div(g, x, weft_affine(g, square, 1, eps));
    return weft_reshape(g, weft_permute(g, x, (int[]){0, 2, 1, 3}),
                        WEFT_SHAPE(batch, length, layers * width));
}
