/* safetensors files and the sharded diffusers layout.
 *
 *   file:   u64 header bytes (little endian)
 *           | JSON {"name": {"dtype", "shape", "data_offsets"}, "__metadata__"} | data
 *   folder: <stem>.safetensors, or
 *           <stem>-00001-of-000NN.safetensors with <stem>.safetensors.index.json
 *
 * Reading validates everything before any tensor is handed out: header length, JSON, dtypes, shapes
 * against byte counts, offsets inside the file, without overlaps and holes, names once. */
#ifndef WEFT_FORMAT_SAFETENSORS_H
#define WEFT_FORMAT_SAFETENSORS_H

#include "format/tensors.h"

/* Writing: declare every tensor, then give the data in the same order. Files are atomic; with more
 * than one shard the index comes last, so a killed writer leaves no folder that looks whole. */
typedef struct weft_tensors_writer weft_tensors_writer;
/* Writes <folder>/<stem>.safetensors, or shards of at most `max_shard_bytes` (0: one file). */
weft_status weft_tensors_writer_create(const char *folder, const char *stem,
                                       int64_t max_shard_bytes, weft_tensors_writer **writer);
weft_status weft_tensors_writer_metadata(weft_tensors_writer *writer, const char *key,
                                         const char *value);
/* Before the first data: waits for no disk. What a machine that fails leaves under this name is
 * told by weft_tensors_verify; a killed process leaves the file whole, or the one before it. */
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
