/* Block motion estimation, for videos whose decoder exports no motion vectors (VP9, HEVC, AV1). */
#ifndef WEFT_CURATE_MOTION_H
#define WEFT_CURATE_MOTION_H

#include <stdint.h>

/* Mean displacement of all 16 x 16 blocks, in pixels, from `then` to `now`. Both are luma planes,
 * width and height multiples of 16, rows `stride` bytes apart. Blocks are matched within a few
 * pixels, then to a fraction of a pixel. Flat blocks count as still; blocks without a match are
 * ignored. Negative: most blocks have no match (another shot, noise). */
double weft_block_motion(const uint8_t *now, int64_t now_stride, const uint8_t *then,
                         int64_t then_stride, int width, int height);

#endif
