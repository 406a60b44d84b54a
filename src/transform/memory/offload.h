#ifndef WEFT_TRANSFORM_MEMORY_OFFLOAD_H
#define WEFT_TRANSFORM_MEMORY_OFFLOAD_H

#include "graph/op.h"

/* Offloads the outputs of nodes marked `offload` when they are computed, and fetches them before
 * the backward reads them. Also offloads states between runs if their names match `patterns` and
 * they have at least WEFT_OFFLOAD_LEAST bytes. `prefetch_bytes`: maximum bytes in flight per
 * direction; 0: bytes of the two largest. Runs as the last pass, because later passes would reorder
 * its copies. Results are bitwise identical. */
enum { WEFT_OFFLOAD_LEAST = 64 << 10 };

weft_status weft_pass_offload(const weft_graph *g, const char *const *patterns, int count,
                              int64_t prefetch_bytes, weft_graph **out);
/* Returns true if a state of this name and size is offloaded. */
bool weft_offload_state(const char *const *patterns, int count, const char *name, int64_t bytes);

#endif
