/* Image resizing that reproduces the Python libraries of model training: a windowed filter over all
 * source pixels of each output pixel. Columns first, then rows, with 8 bits in between. */
#ifndef WEFT_VIDEO_RESAMPLE_H
#define WEFT_VIDEO_RESAMPLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_resample {
    WEFT_RESAMPLE_LANCZOS,  /* three lobes; for autoencoder inputs */
    WEFT_RESAMPLE_BICUBIC,  /* a = -0.5; for CLIP inputs */
    WEFT_RESAMPLE_BILINEAR, /* triangle filter */
} weft_resample;

/* Resizes u8 [from_h, from_w, channels] to [to_h, to_w, channels], channels 1 to 4. A side of
 * unchanged length is copied. */
weft_status weft_image_resample(weft_resample filter, const uint8_t *from, int64_t from_w,
                                int64_t from_h, int64_t channels, uint8_t *to, int64_t to_w,
                                int64_t to_h);
/* Resizes numbers, which are neither rounded nor limited to [0,1]. */
weft_status weft_image_resample_f32(weft_resample filter, const float *from, int64_t from_w,
                                    int64_t from_h, int64_t channels, float *to, int64_t to_w,
                                    int64_t to_h);
/* Resizes without a filter (base/interpolation.h) to f32 in [0,255], not rounded.
 * Bicubic values may lie outside. */
weft_status weft_image_interpolate(bool bicubic, const uint8_t *from, int64_t from_w,
                                   int64_t from_h, int64_t channels, float *to, int64_t to_w,
                                   int64_t to_h);

#endif
