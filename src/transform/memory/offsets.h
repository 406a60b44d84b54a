/* Offsets for buffers with known live ranges in one memory block. */
#ifndef WEFT_TRANSFORM_MEMORY_OFFSETS_H
#define WEFT_TRANSFORM_MEMORY_OFFSETS_H

#include "base/memory.h"

/* A buffer of `bytes` that is live from node `first` to node `last`, inclusive. */
typedef struct weft_offset_request {
    int32_t value; /* value id, for the caller */
    int32_t first, last;
    int64_t bytes, offset; /* offset: the result */
} weft_offset_request;

/* Sets offsets so that buffers with overlapping live ranges do not overlap. Reorders `box`.
 * `nodes`: upper bound of `last`. *height: bytes needed. *live: peak of live bytes, a lower bound
 * of *height. */
weft_status weft_offset_requests_plan(weft_offset_request *box, int32_t count, int32_t nodes,
                                      int64_t *height, int64_t *live);

#endif
