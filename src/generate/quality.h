/* How alike two videos are. Frames are u8 RGB (frames, height, width, 3). */
#ifndef WEFT_GENERATE_QUALITY_H
#define WEFT_GENERATE_QUALITY_H

#include "base/status.h"

#include <stdint.h>

/* Peak signal-to-noise ratio in dB over all values; 100 for equal videos. */
double weft_psnr(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height, int64_t width);
/* Structural similarity of the luma, mean over pixels and frames (Wang et al. 2004: Gaussian window
 * of 11 pixels, sigma 1.5, K1 0.01, K2 0.03), over the windows that lie inside. Frames under 11
 * pixels: WEFT_E_SHAPE. */
weft_status weft_ssim(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height,
                      int64_t width, double *ssim);
/* The video averaged over boxes of bt x by x bx and held in each (cut boxes at the ends are
 * smaller): what a code of that many samples reaches without learning anything. */
void weft_box_average(const uint8_t *from, int64_t frames, int64_t height, int64_t width,
                      int64_t bt, int64_t by, int64_t bx, uint8_t *to);

#endif
