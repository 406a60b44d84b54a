#ifndef WEFT_TRANSFORM_NUMERIC_MIXED_PRECISION_H
#define WEFT_TRANSFORM_NUMERIC_MIXED_PRECISION_H

#include "graph/op.h"

/* Mixed precision: models compute in bf16. Parameters, losses and ops that need f32 stay in f32; so
 * do gradient all-reduces unless `bf16_reduce`. For forward graphs of one rank. */
weft_status weft_pass_mixed_precision(const weft_graph *g, bool bf16_reduce, weft_graph **out);

#endif
