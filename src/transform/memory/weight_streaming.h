#ifndef WEFT_TRANSFORM_MEMORY_WEIGHT_STREAMING_H
#define WEFT_TRANSFORM_MEMORY_WEIGHT_STREAMING_H

#include "graph/op.h"

/* Marks parameters of at least WEFT_OFFLOAD_LEAST bytes as offloaded (weft_attr_source.offloaded).
 * Each block that reads one fetches it, at most `prefetch_bytes` ahead of use; 0: bytes of the
 * largest block. Tables whose rows are looked up are read in place. For forward graphs; runs as the
 * last pass. Results are bitwise identical. */
weft_status weft_pass_stream(const weft_graph *g, int64_t prefetch_bytes, weft_graph **out);

#endif
