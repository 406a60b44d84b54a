/* Inside format/: the checksum of a safetensors file in its own metadata.
 *
 *   "__metadata__": {"format": "pt", "weft.xxh3": "0123456789abcdef"}
 *
 * XXH3 of the whole file, with zeros in place of the digits. Files of other writers have none. */
#ifndef WEFT_FORMAT_TENSORS_SAFETENSORS_SUM_H
#define WEFT_FORMAT_TENSORS_SAFETENSORS_SUM_H

#include "format/tensors/safetensors.h"

#define WEFT_TENSORS_SUM    "weft.xxh3"
#define WEFT_TENSORS_NO_SUM "0000000000000000"
enum { WEFT_TENSORS_SUM_BYTES = 16 };

#endif
