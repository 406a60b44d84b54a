/* Offsets for buffers of known lives in one piece of memory. */
#ifndef WEFT_PASS_OFFSETS_H
#define WEFT_PASS_OFFSETS_H

#include "base/memory.h"

/* A buffer: `bytes` from node `first` to node `last`, inclusive. */
typedef struct weft_brick {
    int32_t value; /* the caller's */
    int32_t first, last;
    int64_t bytes, offset; /* offset: what is asked for */
} weft_brick;

/* Places the boxes so that no two that live at the same time overlap, in an order of its own;
 * `nodes`: no box lives longer. *height: the memory that they need; *live: the most bytes live at
 * one node, which no placement can beat. */
weft_status weft_bricks_place(weft_brick *box, int32_t count, int32_t nodes, int64_t *height,
                              int64_t *live);

#endif
