/* How far a picture moved, for videos whose decoder tells no motion vectors (VP9, HEVC, AV1). */
#ifndef WEFT_CURATE_MOTION_H
#define WEFT_CURATE_MOTION_H

#include <stdint.h>

/* Mean displacement over all blocks of 16 x 16, in pixels, from `then` to `now`: two luma pictures,
 * width and height multiples of 16, rows `stride` bytes apart. Blocks are matched within a few
 * pixels and then to a fraction of one; flat ones rest, and those that match nowhere say nothing.
 * Negative: most match nowhere (another shot, noise). */
double weft_block_motion(const uint8_t *now, int64_t now_stride, const uint8_t *then,
                         int64_t then_stride, int width, int height);

#endif
