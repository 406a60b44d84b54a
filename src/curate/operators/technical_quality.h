/* Technical quality of frames, from their luma at full size. */
#ifndef WEFT_CURATE_OPERATORS_TECHNICAL_QUALITY_H
#define WEFT_CURATE_OPERATORS_TECHNICAL_QUALITY_H

#include "base/status.h"
#include "curate/operators/operators_config.h"

#include <stdint.h>

/* Luma u8 [height, width] of packed RGB. */
void weft_luma_of(const uint8_t *rgb, int64_t pixels, uint8_t *luma);
/* A measure of a luma plane:
 *
 *   blur         mean width of horizontal edges in pixels, 2 to 64; 64 without edges
 *   exposure     share of pixels of at most 8 or at least 247 levels
 *   blockiness   step at borders of 8 x 8 blocks relative to the steps inside, minus 1, at least 0;
 *                blocks may begin at any pixel
 *   noise        standard deviation in levels, of the flattest tenth of the blocks of 16 x 16 */
double weft_technical_measure(weft_operator_measure measure, const uint8_t *luma, int64_t width,
                              int64_t height);
/* Mean over frames u8 [count, height, width, 3]. WEFT_MEASURE_DIFFERENCE: the mean absolute
 * difference of the luma of successive frames; 0 of one frame. */
weft_status weft_technical_quality(weft_operator_measure measure, const uint8_t *rgb, int64_t count,
                                   int64_t width, int64_t height, double *score);

#endif
