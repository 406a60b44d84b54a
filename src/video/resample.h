/* Resizing pictures as the Python tools do that models were trained with: a windowed filter over
 * all pixels that a new one covers, columns first and then rows, 8 bits in between. */
#ifndef WEFT_VIDEO_RESAMPLE_H
#define WEFT_VIDEO_RESAMPLE_H

#include "base/status.h"

#include <stdint.h>

typedef enum weft_resample {
    WEFT_RESAMPLE_LANCZOS,  /* three lobes; what pictures for an autoencoder are resized with */
    WEFT_RESAMPLE_BICUBIC,  /* a = -0.5; pictures for CLIP */
    WEFT_RESAMPLE_BILINEAR, /* a triangle */
} weft_resample;

/* u8 [from_h, from_w, channels] -> [to_h, to_w, channels], channels 1 to 4. A side that stays is
 * copied. */
weft_status weft_image_resample(weft_resample filter, const uint8_t *from, int64_t from_w,
                                int64_t from_h, int64_t channels, uint8_t *to, int64_t to_w,
                                int64_t to_h);

#endif
