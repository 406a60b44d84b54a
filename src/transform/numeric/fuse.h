#ifndef WEFT_TRANSFORM_NUMERIC_FUSE_H
#define WEFT_TRANSFORM_NUMERIC_FUSE_H

#include "graph/op.h"

/* Fuses a linear layer and its activation into one node if no other node reads the value between
 * them. The fused kernel rounds this value as before, so results are bitwise identical. */
weft_status weft_pass_fuse(const weft_graph *g, weft_graph **out);

#endif
