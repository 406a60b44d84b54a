#ifndef WEFT_TRANSFORM_MEMORY_PREFETCH_H
#define WEFT_TRANSFORM_MEMORY_PREFETCH_H

#include "graph/op.h"
#include "graph/rewrite.h"

/* Sorts `needs` by consumer and sets the start of each fetch, at node `begin` at the earliest. At
 * most *prefetch_bytes are fetched ahead of use; 0 is replaced by the bytes of the two largest. */
void weft_prefetch_schedule(weft_prefetch *needs, int64_t count, int32_t begin,
                            int64_t *prefetch_bytes);
/* Begins a rewrite. `pass`: its name, for messages. */
weft_status weft_offload_rewrite_begin(const weft_graph *g, const char *pass,
                                       int64_t prefetch_bytes, weft_offload_rewrite *m);
/* Call also after weft_rewrite_finish. */
void weft_offload_rewrite_free(weft_offload_rewrite *m);
weft_status weft_offload_rewrite_need(weft_offload_rewrite *m, int32_t value, int32_t consumer);
/* Emits an offload or a fetch of a value of the new graph, in the scope of `scope_node`. */
weft_value weft_offload_rewrite_emit(weft_offload_rewrite *m, weft_op op, weft_value in,
                                     const weft_node *scope_node, bool backward);

#endif
