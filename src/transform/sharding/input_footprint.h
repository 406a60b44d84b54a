#ifndef WEFT_TRANSFORM_SHARDING_INPUT_FOOTPRINT_H
#define WEFT_TRANSFORM_SHARDING_INPUT_FOOTPRINT_H

#include "graph/op.h"

/* Sets read[i] to true if rank `rank` of the mesh reads element i of `input`. Follows views and
 * local slices in `g`, the sharded graph of any rank with the same shape of `input`. The caller
 * clears read[]. */
weft_status weft_input_footprint(const weft_graph *g, weft_value input, int rank, bool *read);

#endif
