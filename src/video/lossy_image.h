/* JPEG and WebP images in memory. */
#ifndef WEFT_VIDEO_LOSSY_IMAGE_H
#define WEFT_VIDEO_LOSSY_IMAGE_H

#include "base/memory.h"

/* Appends packed u8 [height, width, 3] as a JPEG, 4:2:0, of a fixed quality (about 90 of 100). The
 * bytes depend on the pixels and the version of FFmpeg only. Odd sizes lose their last row or
 * column. */
weft_status weft_jpeg_encode(const uint8_t *rgb, int64_t width, int64_t height, weft_buf *jpeg);
/* Appends packed u8 [height, width, 3] as a WebP of quality 80. */
weft_status weft_webp_encode(const uint8_t *rgb, int64_t width, int64_t height, weft_buf *webp);
/* Whether this FFmpeg has an encoder for WebP. */
bool weft_webp_is_available(void);

#endif
