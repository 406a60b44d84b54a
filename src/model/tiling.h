/* Geometry of tiled encoding and decoding of a video: origin, overlap and kept extent of each tile,
 * by the rules of the references (family.h, weft_tile_rule). No data is processed here.
 *
 * Along one side, in units of the input (size, step) and of the output (blend, keep):
 *
 *     |<----- size ----->|                  tile 0
 *               |<----- size ----->|        tile 1, at `step`; the last tiles are cut at the border
 *     |<- step->|
 *     |<- keep ->|                          The first `keep` of each tile's output are used.
 *               |<-blend->|                 The first `blend` of a tile fade in over the end of the
 *                                           preceding tile, after that tile's own blending.
 *
 * With `sums` the first tile that reaches the border is the last one, and all of its output is
 * used. Rows and columns of a tile are blended separately, which is a sum with linear weights. */
#ifndef WEFT_MODEL_TILING_H
#define WEFT_MODEL_TILING_H

#include "model/model.h"

/* Requested tiling in pixels: frames, rows, columns. 0: the family's own. */
typedef struct weft_tile {
    bool on;  /* tile frames that are larger than a tile */
    bool off; /* do not tile frames, even if the family always does (weft_tile_rule.sums) */
    int64_t size[3], step[3];
} weft_tile;

/* Parses "on", "off", "WIDTHxHEIGHT" or "WIDTHxHEIGHT+OVERLAP". Errors have class `kind` and
 * location `at`. The error text lists `also` ("auto, ") as further accepted values. */
weft_status weft_tile_parse(const char *text, weft_message_class kind,
                            const weft_message_fields *at, const char *also, weft_tile *tile);

typedef struct weft_tile_side {
    int64_t size, step, blend, out_step;
} weft_tile_side;

typedef struct weft_tiling {
    bool in_time, in_space;
    /* frames, rows, columns; without `sums`, temporal tiles after the first drop one frame */
    weft_tile_side side[3];
    bool sums;             /* as in weft_tile_rule */
    int64_t cell;          /* output pixels with one blend weight, per side */
    int64_t in[3], out[3]; /* frames, rows, columns of the complete input and output */
    /* n inputs make n up / down outputs; causal frames: 1 + (n - 1) up / down */
    int64_t up[3], down[3];
    bool causal;
} weft_tiling;

/* Computes the tiling of one half of an autoencoder for a video of `pixels` frames, rows and
 * columns. Returns WEFT_E_ARG if the requested tiles are impossible. */
weft_status weft_tiling_of(const weft_model *model, const weft_tile *asked, bool decoder,
                           const int64_t pixels[3], weft_tiling *tiling);
/* Returns the number of tiles along a side (1: not tiled). */
int64_t weft_tiling_count(const weft_tiling *tiling, int side);
/* First input index and input length of tile `index`. */
int64_t weft_tiling_first(const weft_tiling *tiling, int side, int64_t index);
int64_t weft_tiling_length(const weft_tiling *tiling, int side, int64_t index);
/* Returns the output length for `length` inputs of a side. */
int64_t weft_tiling_made(const weft_tiling *tiling, int side, int64_t length);

#endif
