/* Orientation of a photograph, read from the EXIF data of a JPEG file. */
#ifndef WEFT_VIDEO_EXIF_H
#define WEFT_VIDEO_EXIF_H

#include <stdint.h>

enum { WEFT_EXIF_BYTES = 1 << 17 }; /* bytes from the start of a file that suffice */

/* Clockwise rotation that shows the image upright: 0, 90, 180 or 270 degrees, from the first bytes
 * of a file. 0 if the file is not a JPEG, has no orientation, or is mirrored. */
int weft_exif_rotation(const uint8_t *data, int64_t bytes);

#endif
