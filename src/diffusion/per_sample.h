/* Broadcasts one value per sample over the elements of the sample. */
#ifndef WEFT_DIFFUSION_PER_SAMPLE_H
#define WEFT_DIFFUSION_PER_SAMPLE_H

#include "graph/builder_helpers.h"
#include "graph/graph.h"

/* (B) -> (B,1,...,1) of the rank of `like`. */
static inline weft_value weft_per_sample(weft_graph *g, weft_value x_b, weft_value like)
{
    if (!weft_value_ok(like) || !weft_value_ok(x_b))
        return WEFT_NONE;
    weft_shape shape = weft_value_get(g, like)->shape;
    for (int d = 1; d < shape.rank; d++)
        shape.dim[d] = 1;
    return weft_reshape(g, x_b, shape);
}

#endif
