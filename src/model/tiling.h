/* How a video is encoded and decoded in tiles: where they begin, how far they overlap, and what of
 * each is kept. Numbers only, by the rules of the references (family.h, weft_tile_rule).
 *
 * Along one side, in units of what goes in (size, step) and of what comes out (blend, keep):
 *
 *     |<----- size ----->|                  tile 0
 *               |<----- size ----->|        tile 1, `step` on; the last ones are cut at the border
 *     |<- step->|
 *     |<- keep ->|                          of what comes out of each the first `keep` are taken,
 *               |<-blend->|                 and the first `blend` of the next fade in over the end
 *                                           of the one before, as that is after its own fading */
#ifndef WEFT_MODEL_TILING_H
#define WEFT_MODEL_TILING_H

#include "model/model.h"

/* What is asked for, in pixels: frames, rows, columns. 0: the family's own. */
typedef struct weft_tile {
    bool on; /* pictures that are larger than a tile are taken in tiles */
    int64_t size[3], step[3];
} weft_tile;

/* "on", "off", "WIDTHxHEIGHT" or "WIDTHxHEIGHT+OVERLAP" of `where` (--tile); a message names `also`
 * ("auto, ") as known, too. */
weft_status weft_tile_parse(const char *text, const char *where, const char *also, weft_tile *tile);

typedef struct weft_tile_side {
    int64_t size, step, blend, keep;
} weft_tile_side;

typedef struct weft_tiling {
    bool in_time, in_space;
    weft_tile_side side[3]; /* frames, rows, columns; in time all but the first tile lose a frame */
    int64_t cell;           /* rows and columns of what comes out that fade alike */
    int64_t in[3], out[3];  /* frames, rows, columns of all that goes in, and of what comes out */
    int64_t up[3], down[3]; /* n of a tile come out as n up / down, in time 1 + (n - 1) up / down */
    bool causal;
} weft_tiling;

/* Of one half of an autoencoder over a video of frames, rows and columns of pixels. WEFT_E_ARG
 * where such tiles cannot be. */
weft_status weft_tiling_of(const weft_model *model, const weft_tile *asked, bool decoder,
                           const int64_t pixels[3], weft_tiling *tiling);
/* Tiles along a side (1 where it is not tiled). */
int64_t weft_tiling_count(const weft_tiling *tiling, int side);
/* Where tile `index` begins in what goes in, and how long it is. */
int64_t weft_tiling_first(const weft_tiling *tiling, int side, int64_t index);
int64_t weft_tiling_length(const weft_tiling *tiling, int side, int64_t index);
/* What comes out of `length` of a side. */
int64_t weft_tiling_made(const weft_tiling *tiling, int side, int64_t length);

#endif
