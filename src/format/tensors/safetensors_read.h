#ifndef WEFT_FORMAT_TENSORS_SAFETENSORS_READ_H
#define WEFT_FORMAT_TENSORS_SAFETENSORS_READ_H

#include "base/fs.h"
#include "format/tensors/tensors.h"

/* The offset of the checksum's digits in the header of a file; -1: the file has none. */
int64_t weft_tensors_sum_at(const void *header, int64_t bytes);

/* Reads all files and compares them with the checksums in their metadata, which weft's writer adds.
 * Files without a checksum pass. */
weft_status weft_tensors_verify(const weft_tensors *tensors);

/* Appends the tensors of a mapped file, and checks that their data are inside the map. */
weft_status weft_safetensors_read(weft_tensors *ts, const char *path, const weft_map *map);

#endif
