#ifndef WEFT_TRANSFORM_NUMERIC_MIXED_PRECISION_H
#define WEFT_TRANSFORM_NUMERIC_MIXED_PRECISION_H

#include "graph/op.h"

/* Flags of weft_pass_mixed_precision. */
enum {
    WEFT_MIXED_REDUCE_BF16 = 1, /* gradients are all-reduced in bf16, not f32 */
    /* Nodes of a model outside of its blocks stay in f32: embeddings, and the layers
     * that make the prediction. They have few FLOPs, and no later layer averages their rounding. */
    WEFT_MIXED_ENDS_F32 = 2
};

/* Mixed precision: models compute in bf16. Parameters, losses, ops that need f32 and gradient
 * all-reduces stay in f32. `how`: flags. For forward graphs of one rank. */
weft_status weft_pass_mixed_precision(const weft_graph *g, int how, weft_graph **out);

#endif
