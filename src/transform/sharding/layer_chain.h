#ifndef WEFT_TRANSFORM_SHARDING_LAYER_CHAIN_H
#define WEFT_TRANSFORM_SHARDING_LAYER_CHAIN_H

#include "graph/op.h"
#include "transform/sharding/pp_stages.h"

/* Finds the blocks of a model: the numbered scopes directly below `trunk` ("transformer":
 * transformer.blocks.0, transformer.in_blocks.3, ...), in graph order. Returns WEFT_E_UNSUPPORTED
 * if the graph has no blocks. */
weft_status weft_layer_chain_make(const weft_graph *graph, const char *trunk,
                                  weft_layer_chain *chain);
void weft_layer_chain_free(weft_layer_chain *chain);

#endif
