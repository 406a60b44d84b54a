/* The frame between two frames, by AMT-S with the user's weights. */
#ifndef WEFT_EVALUATE_FRAME_INTERPOLATION_H
#define WEFT_EVALUATE_FRAME_INTERPOLATION_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_frame_interpolation weft_frame_interpolation;

/* Opens the weights: amt-s.pth of AMT, or the same tensors as safetensors. Missing tensors and
 * other shapes are errors of the first frames. */
weft_status weft_frame_interpolation_open(const char *path, weft_frame_interpolation **network);
void weft_frame_interpolation_close(weft_frame_interpolation *network); /* accepts NULL */

/* Least height and width of frames. Correlations of smaller frames have levels without extent. */
enum { WEFT_INTERPOLATION_LEAST = 113 };
/* Computes the frame in the middle between two RGB frames of height x width, in 8 bits (rounded
 * down). The edges are repeated up to a multiple of 16. */
weft_status weft_frame_interpolation_run(weft_frame_interpolation *network, const uint8_t *before,
                                         const uint8_t *after, int64_t height, int64_t width,
                                         uint8_t *middle);

#endif
