/* Signatures of parts of pictures, and which shots show the same by them although one is a part of
 * the other's picture, or something lies over it, or its colours were graded or taken away.
 *
 * A whole picture's hash (phash.h) changes with any of these. Here each second of footage has
 * points: corners at five scales, each with the signs of the low frequencies of the patch around
 * it, which know neither brightness nor contrast; a crop moves them all by one scale and shift. And
 * each quarter of a second has a look, a very small picture. Points say which shots may show the
 * same and how one lies over the other; looks say whether they do: what lies still (a room, a
 * table) is the same in another take, what moves is not.
 *
 *      look of A                 look of B: a crop of it with a logo
 *     +----------------+        +----------------+
 *     | . . . . . . .  |        |+--+  .    .    |    x_B = scale * x_A + shift
 *     |  +----------+  |  --->  ||##|    .       |    ##: blocks that differ at all times
 *     |  |  .   . . |  |        |+--+ .     .  . |
 *     |  +----------+  |        |   .     .      |
 *     +----------------+        +----------------+
 */
#ifndef WEFT_CURATE_PARTS_H
#define WEFT_CURATE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_LOOK_WIDTH = 32,
    WEFT_LOOK_HEIGHT = 18,
    WEFT_LOOK_COLUMNS = 8,
    WEFT_LOOK_ROWS = 6,
    WEFT_LOOK_BLOCKS = WEFT_LOOK_COLUMNS * WEFT_LOOK_ROWS,
    WEFT_POINTS = 32, /* of a picture, at most */
    /* Steps of hashes (an eighth of a second each) from one to the next, by the source's time. */
    WEFT_LOOK_STEP = 2,
    WEFT_POINTS_STEP = 8,
};

/* Means of cells of the whole frame, its bars too. */
typedef struct weft_look {
    uint8_t luma[WEFT_LOOK_HEIGHT][WEFT_LOOK_WIDTH];
    uint8_t cb[WEFT_LOOK_BLOCKS], cr[WEFT_LOOK_BLOCKS];
} weft_look;

typedef struct weft_point {
    uint32_t word[2]; /* signs; of the patch or of its mirror image, whichever has the first bit */
    uint8_t x, y;     /* of 256 parts of the width and of the height */
    uint8_t level;    /* scale: each is 2^(1/3) coarser than the one before */
    uint8_t is_mirrored; /* the word is of the mirror image */
} weft_point;

/* The points of one picture. */
typedef struct weft_points {
    int32_t count;
    weft_point point[WEFT_POINTS];
} weft_points;

/* `plane` are Y, Cb, Cr, u8 [height, width] with strides; width and height are multiples of those
 * of a look. */
void weft_look_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                    int64_t height, weft_look *look);
/* `luma` is u8 [height, width], shown as aspect : 1. */
void weft_points_make(const uint8_t *luma, int64_t stride, int64_t width, int64_t height,
                      double aspect, weft_points *points);

/* One shot as it is compared. Times are in steps of hashes from the shot's first. */
typedef struct weft_parts {
    double aspect;                  /* of the frame as shown */
    const weft_points *points;      /* borrowed */
    int64_t pictures;               /* of points */
    int64_t points_at, points_step; /* time of the first picture of points, and between them */
    const weft_look *look;          /* borrowed */
    int64_t looks, looks_at;
} weft_parts;

/* How one shot lies over the other: x_b = scale_x * x_a + shift_x of the width, x_a mirrored before
 * if so; hash t of a goes with hash t - later of b. */
typedef struct weft_parts_map {
    double scale_x, scale_y, shift_x, shift_y;
    bool mirrored;
    int64_t later;
    int points; /* that agree on it */
} weft_parts_map;

typedef struct weft_parts_match {
    weft_parts_map map;
    double share;  /* of the shorter shot's looks that the other has */
    double common; /* of the smaller picture's structure that the other shows */
    double moving; /* of what moves there that moves alike in the other */
    double gain;   /* saturation of b where that of a is 1 */
    double colour; /* levels by which chroma differs where luma does not, at most, beside a grade */
} weft_parts_match;

enum { WEFT_PARTS_MAPS = 8 };
/* The ways in which b may lie over a by their points; their number, the best first. */
int weft_parts_maps(const weft_parts *a, const weft_parts *b, weft_parts_map maps[WEFT_PARTS_MAPS]);
/* Holds the looks against each other in one of these ways. */
weft_parts_match weft_parts_compare(const weft_parts *a, const weft_parts *b,
                                    const weft_parts_map *map);

#endif
