#include "train/graph/sample_dropout.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

weft_value weft_sample_kept(weft_graph *g, weft_value key, weft_rng_purpose purpose, double dropout,
                            int rank)
{
    const double sharp = 1e9; /* the step from 0 to 1 is within the distance of two draws */
    weft_shape each = {.rank = rank};
    for (int i = 0; i < rank; i++)
        each.dim[i] = i ? 1 : weft_dim(g, key, 0);
    const weft_value draw = weft_random_like(g, WEFT_OP_RANDOM_UNIFORM, key, purpose, each);
    return weft_clamp(g, weft_affine(g, draw, sharp, -dropout * sharp), 0, 1);
}

weft_value weft_sample_choose(weft_graph *g, weft_value kept, weft_value x, weft_value other)
{
    return weft_add(g, weft_mul(g, x, kept), weft_mul(g, other, weft_affine(g, kept, -1, 1)));
}
