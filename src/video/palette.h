/* Palette images: selects 256 colours for one frame and draws the frame with these colours. */
#ifndef WEFT_VIDEO_PALETTE_H
#define WEFT_VIDEO_PALETTE_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_PALETTE_COLOURS = 256 };

/* Working memory for frames of one width. */
typedef struct weft_palette weft_palette;

weft_status weft_palette_create(int64_t width, weft_palette **palette);
/* Chooses the colours of packed u8 [height, width, 3] by median cut (Heckbert 1982), at the mean of
 * the axis of greatest variance. Writes the colours as opaque 0xAARRGGBB, and the index of each
 * pixel. Diffuses pixel errors to neighbours (Floyd and Steinberg 1976), so that gradients have no
 * bands. The output is deterministic. */
void weft_palette_draw(weft_palette *palette, const uint8_t *rgb, int64_t height,
                       uint32_t colours[WEFT_PALETTE_COLOURS], uint8_t *index, int64_t stride);
void weft_palette_free(weft_palette *palette); /* accepts NULL */

#endif
