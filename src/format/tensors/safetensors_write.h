#ifndef WEFT_FORMAT_TENSORS_SAFETENSORS_WRITE_H
#define WEFT_FORMAT_TENSORS_SAFETENSORS_WRITE_H

#include "base/dtype.h"
#include "base/status.h"
#include "format/tensors/safetensors.h"

/* Writes <folder>/<stem>.safetensors, or shards of at most `max_shard_bytes` (0: one file). */
weft_status weft_tensors_writer_create(const char *folder, const char *stem,
                                       int64_t max_shard_bytes, weft_tensors_writer **writer);
weft_status weft_tensors_writer_metadata(weft_tensors_writer *writer, const char *key,
                                         const char *value);
/* Call before the first data: commit does not wait for the disk. After a crash of the machine
 * weft_tensors_verify detects a damaged file. A killed process leaves the complete new file or the
 * old one. */
void weft_tensors_writer_hasten(weft_tensors_writer *writer);
weft_status weft_tensors_writer_declare(weft_tensors_writer *writer, const char *name,
                                        weft_dtype dtype, int rank, const int64_t *dim);
/* The next declared tensor: `data` in `from` (F32 is converted to the declared dtype; otherwise
 * they are equal). */
weft_status weft_tensors_writer_data(weft_tensors_writer *writer, const char *name, weft_dtype from,
                                     const void *data);
/* The next `bytes` of a tensor that is given in several pieces, as it is declared; the last piece
 * completes it. */
weft_status weft_tensors_writer_some(weft_tensors_writer *writer, const char *name,
                                     const void *data, int64_t bytes);
/* All data given: commits. The writer must still be freed. */
weft_status weft_tensors_writer_finish(weft_tensors_writer *writer);
/* Without finish: removes what was written. */
void weft_tensors_writer_free(weft_tensors_writer *writer);

#endif
