#ifndef WEFT_TRANSFORM_MEMORY_RECOMPUTE_NODES_H
#define WEFT_TRANSFORM_MEMORY_RECOMPUTE_NODES_H

#include "graph/op.h"

/* The first node of the backward; the node count if the graph has none. */
int32_t weft_rewrite_backward(const weft_graph *g);
/* Creates a copy of `g` whose backward recomputes the results of the nodes in `recompute`. Marks
 * the nodes in `offload` (NULL: none). */
weft_status weft_rewrite_recompute(const weft_graph *g, const bool *recompute, const bool *offload,
                                   const char *pass, weft_graph **out);

#endif
