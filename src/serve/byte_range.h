/* The header `Range` of HTTP: one range of bytes. */
#ifndef WEFT_SERVE_BYTE_RANGE_H
#define WEFT_SERVE_BYTE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_range_kind {
    WEFT_RANGE_WHOLE,   /* no range, several ranges, or another unit: send all bytes */
    WEFT_RANGE_PART,    /* send *first .. *first + *count - 1 */
    WEFT_RANGE_OUTSIDE, /* no byte of the file: status 416 */
} weft_range_kind;

/* Reads "bytes=2-5", "bytes=2-" or "bytes=-5" for a file of `bytes` bytes. `header` may be NULL. */
weft_range_kind weft_byte_range(const char *header, int64_t bytes, int64_t *first, int64_t *count);

#endif
