#ifndef WEFT_TRANSFORM_NUMERIC_POINTWISE_H
#define WEFT_TRANSFORM_NUMERIC_POINTWISE_H

#include "graph/op.h"

/* Joins elementwise ops that read each other's results into nodes of WEFT_OP_POINTWISE. A step
 * rounds its result to the type of the node before, so results are bitwise identical. Chains of
 * values of up to 256 KiB have at least `small_steps` steps (at least 2): a stream joins launches
 * of casts and additions of such values (kernel/cuda/launch_window.h), so that short chains are not
 * faster. */
enum { WEFT_POINTWISE_SMALL_STEPS = 4 };
weft_status weft_pass_pointwise(const weft_graph *g, int small_steps, weft_graph **out);

#endif
