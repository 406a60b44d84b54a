#ifndef WEFT_TRANSFORM_MEMORY_RESHARD_H
#define WEFT_TRANSFORM_MEMORY_RESHARD_H

#include "graph/op.h"

/* Reshard after forward: gathers sharded parameters again in the backward instead of keeping the
 * complete parameters until then. Results are bitwise identical. */
weft_status weft_pass_reshard(const weft_graph *g, weft_graph **out);

#endif
