#ifndef WEFT_TRANSFORM_MEMORY_COMM_ORDER_H
#define WEFT_TRANSFORM_MEMORY_COMM_ORDER_H

#include "graph/op.h"

/* Starts collectives as early and uses their results as late as dependencies allow. Removes dead
 * nodes. `prefetch_bytes`: maximum bytes of parameters gathered before their use; 0: bytes of the
 * two largest. */
weft_status weft_pass_order(const weft_graph *g, int64_t prefetch_bytes, weft_graph **out);

#endif
