/* Conversion of wide-gamut and high-dynamic-range frames to 8-bit RGB with BT.709 primaries.
 * Private to video/. */
#ifndef WEFT_VIDEO_TONE_H
#define WEFT_VIDEO_TONE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_tone weft_tone;

/* True for the PQ and HLG transfer functions. */
bool weft_transfer_is_hdr(int transfer);
/* True if colours of this AVColorTransferCharacteristic and AVColorPrimaries need more than a
 * matrix: HDR, BT.2020, P3. */
bool weft_tone_needed(int transfer, int primaries);

/* Maps light in units of the reference white of 203 cd/m2 (ITU-R BT.2408-7, table 1). PQ follows
 * SMPTE ST 2084; HLG follows ITU-R BT.2100-2 with the system gamma 1.2 of a display of 1000 cd/m2;
 * others follow the sRGB curve. Converts to BT.709 primaries. HDR is unchanged up to 0.6 and rolls
 * off above: reference white becomes 0.853 and no light exceeds 1. The sRGB curve is applied
 * last. */
weft_status weft_tone_create(int transfer, int primaries, weft_tone **out);
void weft_tone_free(weft_tone *tone);                                    /* accepts NULL */
bool weft_tone_fits(const weft_tone *tone, int transfer, int primaries); /* false for NULL */
/* `wide` is u16 [h, w, 3], full range; strides in bytes. */
void weft_tone_map(const weft_tone *tone, const uint8_t *wide, int64_t wide_stride, uint8_t *rgb,
                   int64_t stride, int64_t w, int64_t h);
/* Tone maps gray: luma code 0 .. 1 to luma code 0 .. 1. For frames that are only analysed. */
double weft_tone_luma(int transfer, double code);

#endif
