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

#include "base/dtype.h"
#include "base/json.h"
#include "base/memory.h"

enum { WEFT_TENSORS_MAX_RANK = 8 };

typedef struct weft_stored_tensor {
    const char *name; /* owned by the reader */
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_TENSORS_MAX_RANK];
    int64_t count, bytes;
    const void *data; /* in the memory map, alignment 1: copy before use as anything but bytes */
    const char *file; /* for messages */
} weft_stored_tensor;

typedef struct weft_tensors weft_tensors;

/* `path`: a .safetensors file, a .safetensors.index.json, or a folder, which must hold one of the
 * stems "diffusion_pytorch_model" and "model". Tensors are mapped, not read. */
weft_status weft_tensors_open(const char *path, weft_tensors **tensors);
void weft_tensors_close(weft_tensors *tensors); /* accepts NULL */
/* Reads all files and holds them against the checksums that weft's writer puts into their metadata;
 * files of others pass. */
weft_status weft_tensors_verify(const weft_tensors *tensors);
int64_t weft_tensors_count(const weft_tensors *tensors);
/* Sorted by name. */
const weft_stored_tensor *weft_tensors_at(const weft_tensors *tensors, int64_t index);
/* Gives the tensors other names, by which they are found from then on: `rename` writes a tensor's
 * into out[size]; false: too long a one. */
weft_status weft_tensors_rename(weft_tensors *tensors,
                                bool (*rename)(void *user, const char *name, char *out,
                                               size_t size),
                                void *user);
/* NULL: none. */
const weft_stored_tensor *weft_tensors_find(const weft_tensors *tensors, const char *name);
/* The "__metadata__" string of the first file, or NULL. */
const char *weft_tensors_metadata(const weft_tensors *tensors, const char *key);
/* Converts to f32 in to[count]; F8E4M3 and integers by value. */
void weft_tensor_to_f32(const weft_stored_tensor *tensor, float *to);

/* Writing: declare every tensor, then give the data in the same order. Files are atomic; with more
 * than one shard the index comes last, so a killed writer leaves no folder that looks whole. */
typedef struct weft_tensors_writer weft_tensors_writer;
/* Writes <folder>/<stem>.safetensors, or shards of at most `max_shard_bytes` (0: one file). */
weft_status weft_tensors_writer_create(const char *folder, const char *stem,
                                       int64_t max_shard_bytes, weft_tensors_writer **writer);
weft_status weft_tensors_writer_metadata(weft_tensors_writer *writer, const char *key,
                                         const char *value);
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
