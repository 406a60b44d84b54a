/* How a photograph was held: the orientation that cameras write into the head of a JPEG file. */
#ifndef WEFT_VIDEO_EXIF_H
#define WEFT_VIDEO_EXIF_H

#include <stdint.h>

enum { WEFT_EXIF_BYTES = 1 << 17 }; /* of a file's beginning that are enough */

/* Degrees clockwise that show the picture upright, 0, 90, 180 or 270, from the first bytes of a
 * file; 0 where it is no JPEG, says nothing, or is mirrored. */
int weft_exif_rotation(const uint8_t *data, int64_t bytes);

#endif
