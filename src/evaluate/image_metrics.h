/* Similarity of two videos. Frames are u8 RGB (frames, height, width, 3). */
#ifndef WEFT_EVALUATE_IMAGE_METRICS_H
#define WEFT_EVALUATE_IMAGE_METRICS_H

#include "base/json.h"
#include "base/status.h"

#include <stdint.h>

/* Returns the peak signal-to-noise ratio in dB over all 8-bit values of all channels. INFINITY:
 * identical videos. */
double weft_psnr(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height, int64_t width);

/* Mean over the videos that differ. Identical videos have no finite ratio and are counted
 * separately. */
typedef struct weft_psnr_mean {
    double sum; /* dB */
    int64_t differing, identical;
} weft_psnr_mean;
void weft_psnr_add(weft_psnr_mean *mean, double psnr);
/* Returns INFINITY if no video differs. */
double weft_psnr_mean_of(const weft_psnr_mean *mean);
/* Returns a new reference: a number, or null for INFINITY. */
json_t *weft_psnr_json(double psnr);
/* Writes "31.20", or "inf" for null, and returns `text`. */
const char *weft_psnr_text(const json_t *psnr, char text[32]);

/* Structural similarity of the luma, mean over pixels and frames (Wang et al. 2004: Gaussian window
 * of 11 pixels, sigma 1.5, K1 0.01, K2 0.03), over windows inside the frame. Frames under 11
 * pixels: WEFT_E_SHAPE. */
weft_status weft_ssim(const uint8_t *a, const uint8_t *b, int64_t frames, int64_t height,
                      int64_t width, double *ssim);
/* Replaces each box of bt x by x bx values by its average (boxes at the ends may be smaller): the
 * reconstruction of a code of the same size without training. */
void weft_box_average(const uint8_t *from, int64_t frames, int64_t height, int64_t width,
                      int64_t bt, int64_t by, int64_t bx, uint8_t *to);

#endif
