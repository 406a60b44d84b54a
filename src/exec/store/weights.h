/* Weights between stores and files. Names in the store carry a prefix that files do not have:
 * "vae.encoder.conv_in.weight" in the store is "encoder.conv_in.weight" in the VAE's folder. */
#ifndef WEFT_RUNTIME_WEIGHTS_H
#define WEFT_RUNTIME_WEIGHTS_H

#include "format/tensors.h"
#include "runtime/runtime.h"

/* Fills every param of `graph` whose name begins with `prefix` from `file`, which holds whole
 * tensors under the params' names: each rank takes its part of them, converted to the store's type
 * (floats from any, expanded where they are packed, a few MiB at a time). All parameters that are
 * missing are listed in one error, and so are those of another shape and, unless `partial`, tensors
 * of the file that the graph does not have. Nothing is changed on an error. `file` is closed. */
weft_status weft_weights_load(weft_store *store, const weft_graph *graph, const char *prefix,
                              weft_tensors *file, bool partial);

/* Adds those params of `graph` under `prefix` that lie elsewhere (weft_attr_source.away) and that
 * `file` has as the graph wants them, of their type and with this rank's rows together: their data
 * stays in the file's map, which must be open as long as the store. weft_weights_load then leaves
 * them alone. */
weft_status weft_weights_lend(weft_store *store, const weft_graph *graph, const char *prefix,
                              const weft_tensors *file);

/* What to keep the file's matrices and kernels (rank 2 and more) in: BF16 or F16 if all of them
 * are, BF16 for what is packed in fewer bits, else F32. */
weft_status weft_weights_dtype(const char *path, weft_dtype *dtype);

/* Writes params of `graph` under `prefix`, whole, to <folder>/<stem>.safetensors (sharded beyond
 * max_shard_bytes; 0: one file). dtype F32, BF16 or F16. Collective when `comm` is there: tensor by
 * tensor the parts come to rank 0, which writes; all return when the files are there. `comm` NULL:
 * this rank writes what it has, and refuses a part (WEFT_E_ARG). */
weft_status weft_weights_save(weft_store *store, weft_comm *comm, const weft_graph *graph,
                              const char *prefix, const char *folder, const char *stem,
                              weft_dtype dtype, int64_t max_shard_bytes);

#endif
