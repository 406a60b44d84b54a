#ifndef WEFT_TRANSFORM_NUMERIC_TF32_H
#define WEFT_TRANSFORM_NUMERIC_TF32_H

#include "graph/op.h"

/* Lets kernels round the operands of products, convolutions and attention to TF32 where they are
 * f32 (weft_op_tf32). Values keep their types. */
weft_status weft_pass_tf32(const weft_graph *g, weft_graph **out);

#endif
