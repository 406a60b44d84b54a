/* Inside format/: the checksum that a safetensors file has of itself.
 *
 *   "__metadata__": {"format": "pt", "weft.xxh3": "0123456789abcdef"}
 *
 * XXH3 of the whole file, with zeros in the place of these digits. Files of others have none. */
#ifndef WEFT_FORMAT_SAFETENSORS_SUM_H
#define WEFT_FORMAT_SAFETENSORS_SUM_H

#include "format/safetensors.h"

#define WEFT_TENSORS_SUM    "weft.xxh3"
#define WEFT_TENSORS_NO_SUM "0000000000000000"
enum { WEFT_TENSORS_SUM_BYTES = 16 };

/* Where the digits stand in the first bytes of a file, up to the data; -1: nowhere. */
int64_t weft_tensors_sum_at(const void *header, int64_t bytes);

#endif
