/* AMT-S (Li et al. 2023): the network that computes the frame between two frames, with which VBench
 * measures motion smoothness. Parameters have the names and shapes of its published
 * file.
 *
 * The network is a row of convolutional parts. Between the parts, flow fields warp features and
 * look up correlations; the caller does this (evaluate/frame_interpolation.h). Y and X are height
 * and width of the images, multiples of 16. All values are (1,1,Y',X',C), channels last.
 *
 *   part      input                                              output
 *   FEATURES  x: image                                           y: (Y/8, X/8, 84)
 *   PYRAMID   x: image                                           y1..y4: Y/2 20, Y/4 32, Y/8 44,
 *                                                                Y/16 56
 *   DECODE4   x: both y4, time (1)                      Y/16     y: (Y/8, X/8, 4 + 44)
 *   DECODE3   x: state 44, both warped y3, flow 4       Y/8      y: (Y/4, X/4, 4 + 32)
 *   DECODE2   x: state 32, both warped y2, flow 4       Y/4      y: (Y/2, X/2, 4 + 20)
 *   DECODE1   x: state 20, both warped y1, flow 4       Y/2      y: (Y, X, 24)
 *   UPDATEn   state, flow 4, corr 392                   Y/8      state, flow: changes of both
 *   COMBINE   x: three predictions (9)                  Y        y: (Y, X, 3)
 */
#ifndef WEFT_MODEL_CRITICS_AMT_H
#define WEFT_MODEL_CRITICS_AMT_H

#include "graph/graph.h"

typedef enum weft_amt_part {
    WEFT_AMT_FEATURES,
    WEFT_AMT_PYRAMID,
    WEFT_AMT_DECODE4,
    WEFT_AMT_DECODE3,
    WEFT_AMT_DECODE2,
    WEFT_AMT_DECODE1,
    WEFT_AMT_UPDATE4,
    WEFT_AMT_UPDATE3,
    WEFT_AMT_UPDATE2,
    WEFT_AMT_COMBINE,
    WEFT_AMT_PARTS
} weft_amt_part;

enum {
    WEFT_AMT_LEVELS = 4, /* of the correlations */
    WEFT_AMT_RADIUS = 3, /* of a lookup */
    WEFT_AMT_FLOWS = 3,  /* predictions that are combined */
    WEFT_AMT_WIDTH = 84, /* channels of FEATURES */
    WEFT_AMT_CORR = 2 * WEFT_AMT_LEVELS * (2 * WEFT_AMT_RADIUS + 1) * (2 * WEFT_AMT_RADIUS + 1),
};
/* Channels of y1..y4. */
extern const int64_t weft_amt_channels[4];

/* Builds a part for images of height x width. The weights of transposed convolutions
 * ("convblock.2.weight") are expected with rows and columns of their kernel in reverse order. */
void weft_amt_build(weft_graph *g, weft_amt_part part, int64_t height, int64_t width);

#endif
