/* safetensors files and the sharded diffusers layout.
 *
 *   file:   u64 header bytes (little endian)
 *           | JSON {"name": {"dtype", "shape", "data_offsets"}, "__metadata__"} | data
 *   folder: <stem>.safetensors, or
 *           <stem>-00001-of-000NN.safetensors with <stem>.safetensors.index.json
 *
 * Reading validates everything before any tensor is handed out: header length, JSON, dtypes, shapes
 * against byte counts, offsets inside the file, without overlaps and holes, names once. */
#ifndef WEFT_FORMAT_TENSORS_SAFETENSORS_H
#define WEFT_FORMAT_TENSORS_SAFETENSORS_H

#include "format/tensors/tensors.h"

/* Writing: declare every tensor, then give the data in the same order. Files are atomic; with more
 * than one shard the index comes last, so a killed writer leaves no folder that looks whole. */
typedef struct weft_tensors_writer weft_tensors_writer;

#endif
