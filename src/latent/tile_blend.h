/* Tiles laid beside one another and blended, in the order of rows and in place, as references do: a
 * tile fades in over the one above, then over the one to its left, each as it is after its own
 * fading. Of the tiles before only the strips that somebody still fades over are kept. */
#ifndef WEFT_LATENT_MOSAIC_H
#define WEFT_LATENT_MOSAIC_H

#include "model/tiling.h"

/*     above[j], the last rows of the tile above in column j        left, the last columns
 *     ┌───────┬───────┬───                                        of the tile before
 *     │ (0,0) │ (0,1) │
 *     ├───────┼───────┼───                                                            */
typedef struct weft_mosaic {
    const weft_tiling *tiling;  /* borrowed */
    int64_t frames, channels;   /* of what is laid */
    float *to;                  /* (frames, rows, columns, channels) of tiling->out */
    float *above, *left, *tile; /* tile: a frame of one; NULL where there is one tile */
} weft_mosaic;

/* Room for so many frames at most. */
weft_status weft_mosaic_create(const weft_tiling *tiling, int64_t frames, int64_t channels,
                               weft_mosaic *mosaic);
void weft_mosaic_free(weft_mosaic *mosaic);
/* Bytes of that. */
int64_t weft_mosaic_bytes(const weft_tiling *tiling, int64_t frames, int64_t channels);
/* Frames [first, first + count) of tile (row, column): (count, rows, columns, channels). Of each
 * frame tiles come row by row. */
void weft_mosaic_lay(weft_mosaic *mosaic, int64_t row, int64_t column, int64_t first, int64_t count,
                     const float *tile);
/* b = a (1 - weight) + b weight. */
void weft_mosaic_fade(const float *a, float weight, int64_t count, float *b);

#endif
