/* A transformer block in the nine pieces of Aquarius' Table 2, as items to keep, recompute or
 * offload. */
#ifndef WEFT_PLAN_PUBLISHED_BLOCK_ITEMS_H
#define WEFT_PLAN_PUBLISHED_BLOCK_ITEMS_H

#include "plan/pipeline/activation_planner.h"

/* Sizes per device at tensor and sequence parallel degree tp; 2-byte activations. */
typedef struct weft_block_shape {
    double batch, tokens, hidden, heads, tp;
    double layers;
} weft_block_shape;
enum { WEFT_BLOCK_PIECES = 9 };
typedef struct weft_block_rates { /* achieved */
    double gemm, attention;       /* FLOP/s */
    double memory;                /* B/s */
    double link;                  /* B/s between the tp ranks */
    double host;                  /* B/s to host memory; 0: no offload */
} weft_block_rates;
/* Fills item[WEFT_BLOCK_PIECES]: bytes by the paper's formulas, seconds by the rates. */
void weft_block_items(const weft_block_shape *shape, const weft_block_rates *rates,
                      weft_activation_item *item);

#endif
