/* Keypoints and thumbnails of frames, for partial duplicates: shots with the same content although
 * one is a crop of the other, has an overlay, or has changed or removed colours.
 *
 * Each of these changes the hash of a complete frame (phash.h). Therefore each second of video has
 * keypoints: corners at five scales, each with the signs of the low frequencies of the patch around
 * the corner. Signs are independent of brightness and contrast; a crop changes all positions by one
 * scale and shift. Each quarter of a second has a thumbnail. Keypoints select the candidate shots
 * and the map between their frames. Thumbnails decide: still content (a room, a table) is the same
 * in another take, moving content is not.
 *
 *      thumbnail of A            thumbnail of B: a crop of A with a logo
 *     +----------------+        +----------------+
 *     | . . . . . . .  |        |+--+  .    .    |    x_B = scale * x_A + shift
 *     |  +----------+  |  --->  ||##|    .       |    ##: blocks that differ at all times
 *     |  |  .   . . |  |        |+--+ .     .  . |
 *     |  +----------+  |        |   .     .      |
 *     +----------------+        +----------------+ */
#ifndef WEFT_CURATE_DUPLICATES_KEYPOINTS_H
#define WEFT_CURATE_DUPLICATES_KEYPOINTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_THUMBNAIL_WIDTH = 32,
    WEFT_THUMBNAIL_HEIGHT = 18,
    WEFT_THUMBNAIL_COLUMNS = 8,
    WEFT_THUMBNAIL_ROWS = 6,
    WEFT_THUMBNAIL_BLOCKS = WEFT_THUMBNAIL_COLUMNS * WEFT_THUMBNAIL_ROWS,
    WEFT_KEYPOINTS = 32, /* maximum per frame */
    /* Interval in hash steps (an eighth of a second of the source's time each). */
    WEFT_THUMBNAIL_STEP = 2,
    WEFT_KEYPOINTS_STEP = 8,
};

/* Means of cells of the complete frame, including bars. */
typedef struct weft_thumbnail {
    uint8_t luma[WEFT_THUMBNAIL_HEIGHT][WEFT_THUMBNAIL_WIDTH];
    uint8_t cb[WEFT_THUMBNAIL_BLOCKS], cr[WEFT_THUMBNAIL_BLOCKS];
} weft_thumbnail;

typedef struct weft_point {
    uint32_t word[2]; /* signs of the patch or of its mirror image, whichever sets the first bit */
    uint8_t x, y;     /* position in 256ths of width and height */
    uint8_t scale;    /* index; each scale is 2^(1/3) coarser than the previous */
    uint8_t is_mirrored; /* word is of the mirror image */
} weft_point;

/* Keypoints of one frame. */
typedef struct weft_keypoints {
    int32_t count;
    weft_point point[WEFT_KEYPOINTS];
} weft_keypoints;

/* Computes a thumbnail. `plane` are Y, Cb, Cr, u8 [height, width] with strides; width and height
 * are multiples of the thumbnail's. */
void weft_thumbnail_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                         int64_t height, weft_thumbnail *thumbnail);
/* Computes keypoints. `luma` is u8 [height, width]; `aspect` is the display aspect. */
void weft_keypoints_make(const uint8_t *luma, int64_t stride, int64_t width, int64_t height,
                         double aspect, weft_keypoints *keypoints);

/* One shot for comparison. Times are in hash steps from the shot's first hash. */
typedef struct weft_parts {
    double aspect;                        /* display aspect of the frame */
    const weft_keypoints *keypoints;      /* borrowed */
    int64_t keypoint_frames;              /* frames with keypoints */
    int64_t keypoints_at, keypoints_step; /* first keypoint frame, and interval */
    const weft_thumbnail *thumbnail;      /* borrowed */
    int64_t thumbnails, thumbnails_at;
} weft_parts;

/* Map from shot a to shot b: x_b = scale_x * x_a + shift_x of the width; x_a is mirrored first if
 * `mirrored`. Hash t of a corresponds to hash t - later of b. */
typedef struct weft_parts_map {
    double scale_x, scale_y, shift_x, shift_y;
    bool mirrored;
    int64_t later;
    int inliers; /* keypoint pairs that fit the map */
} weft_parts_map;

typedef struct weft_parts_match {
    weft_parts_map map;
    double share;  /* share of the shorter shot's thumbnails found in the other */
    double common; /* share of the smaller frame's structure found in the other */
    double moving; /* share of moving structure that moves alike in the other */
    double gain;   /* saturation of b relative to a */
    double colour; /* maximum chroma difference where luma agrees, after removing a grade */
} weft_parts_match;

enum { WEFT_PARTS_MAPS = 8 };

#endif
