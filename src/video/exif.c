#include "video/exif.h"

#include <stdbool.h>
#include <string.h>

/* A number of 2 or 4 bytes in the block's own order. */
static int64_t number(const uint8_t *at, int bytes, bool big)
{
    int64_t n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | at[big ? i : bytes - 1 - i];
    return n;
}

/* TIFF: "II" or "MM", 42, offset of the first directory: a count, then entries of 12 bytes, each
 * tag, type, count, value. Orientation is tag 0x0112, of type 3 (2 bytes). */
static int from_tiff(const uint8_t *data, int64_t bytes)
{
    enum { HEAD = 8, ENTRY = 12 };
    if (bytes < HEAD || (memcmp(data, "II", 2) != 0 && memcmp(data, "MM", 2) != 0))
        return 0;
    const bool big = data[0] == 'M';
    const int64_t at = number(data + 4, 4, big);
    if (number(data + 2, 2, big) != 42 || at + 2 > bytes)
        return 0;
    const int64_t count = number(data + at, 2, big);
    const uint8_t *entry = data + at + 2;
    for (int64_t i = 0; i < count && at + 2 + (i + 1) * ENTRY <= bytes; i++, entry += ENTRY) {
        if (number(entry, 2, big) != 0x0112 || number(entry + 2, 2, big) != 3)
            continue;
        const int64_t orientation = number(entry + 8, 2, big);
        return orientation == 3 ? 180 : orientation == 6 ? 90 : orientation == 8 ? 270 : 0;
    }
    return 0;
}

/* A JPEG is FF D8 and segments: FF, kind, length (2 bytes, includes itself), data. The EXIF block
 * is a kind E1 that begins with "Exif\0\0". Image data begins at DA. */
int weft_exif_rotation(const uint8_t *data, int64_t bytes)
{
    if (bytes < 4 || data[0] != 0xFF || data[1] != 0xD8)
        return 0;
    for (int64_t at = 2; at + 4 <= bytes && data[at] == 0xFF && data[at + 1] != 0xDA;) {
        const int64_t length = number(data + at + 2, 2, true), end = at + 2 + length;
        if (length < 2 || end > bytes)
            return 0;
        if (data[at + 1] == 0xE1 && length >= 8 && memcmp(data + at + 4, "Exif\0", 6) == 0)
            return from_tiff(data + at + 10, end - at - 10);
        at = end;
    }
    return 0;
}
