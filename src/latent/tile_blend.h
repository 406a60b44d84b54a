/* Blends tiles into one output, row by row and in place, as the references do. A tile fades in over
 * the tile above, then over the tile to its left, each after its own blending. Of the preceding
 * tiles, only the strips that later tiles overlap are retained. With weft_tiling.sums the tile
 * above is the one before its columns were blended. */
#ifndef WEFT_LATENT_TILE_BLEND_H
#define WEFT_LATENT_TILE_BLEND_H

#include "model/tiling.h"

/*     above[j], the last rows of the tile above in column j        left, the last columns
 *     ┌───────┬───────┬───                                         of the tile before
 *     │ (0,0) │ (0,1) │
 *     ├───────┼───────┼─── */
typedef struct weft_tile_blend {
    const weft_tiling *tiling; /* borrowed */
    int64_t frames, channels;  /* frame capacity, channels of the output */
    /* output (frames, rows, columns, channels), sizes from tiling->out */
    float *to;
    float *above, *left, *tile; /* overlap strips, one tile frame; NULL: one tile */
} weft_tile_blend;

/* Allocates a blend of up to `frames` frames. */
weft_status weft_tile_blend_create(const weft_tiling *tiling, int64_t frames, int64_t channels,
                                   weft_tile_blend *blend);
void weft_tile_blend_free(weft_tile_blend *blend);
/* Returns the bytes that weft_tile_blend_create allocates. */
int64_t weft_tile_blend_bytes(const weft_tiling *tiling, int64_t frames, int64_t channels);
/* Adds frames [first, first + count) of tile (row, column), as (count, rows, columns, channels).
 * The tiles of each frame must arrive row by row. */
void weft_tile_blend_add(weft_tile_blend *blend, int64_t row, int64_t column, int64_t first,
                         int64_t count, const float *tile);
/* b = a (1 - weight) + b weight. */
void weft_tile_blend_fade(const float *a, float weight, int64_t count, float *b);

#endif
