/* Weights between stores and files. Names in the store carry a prefix that files do not have:
 * "vae.encoder.conv_in.weight" in the store is "encoder.conv_in.weight" in the VAE's folder. */
#ifndef WEFT_RUNTIME_WEIGHTS_H
#define WEFT_RUNTIME_WEIGHTS_H

#include "runtime/runtime.h"

/* How a file's names become the graph's: of `theirs` into out[size]; false: too long. `has` tells
 * which names the file has. */
typedef struct weft_weights_names {
    bool (*rename)(const void *user, bool (*has)(void *file, const char *name), void *file,
                   const char *theirs, char *out, size_t size);
    const void *user;
} weft_weights_names;

/* Fills every param of `graph` whose name begins with `prefix` from the safetensors at `path`
 * (file, index or folder), which hold whole tensors: each rank takes its part of them, converted to
 * the store's type (floats from any). All parameters that are missing are listed in one error, and
 * so are those of another shape and, unless `partial`, tensors of the file that the graph does not
 * have. Nothing is changed on an error. `names` NULL: they are the graph's. */
weft_status weft_weights_load(weft_store *store, const weft_graph *graph, const char *prefix,
                              const char *path, bool partial, const weft_weights_names *names);

/* The type of the file's matrices and kernels (rank 2 and more) if it is BF16 or F16 for all of
 * them, else F32. */
weft_status weft_weights_dtype(const char *path, weft_dtype *dtype);

/* Writes params of `graph` under `prefix`, whole, to <folder>/<stem>.safetensors (sharded beyond
 * max_shard_bytes; 0: one file). dtype F32, BF16 or F16. Collective when `comm` is there: tensor by
 * tensor the parts come to rank 0, which writes; all return when the files are there. `comm` NULL:
 * this rank writes what it has, and refuses a part (WEFT_E_ARG). */
weft_status weft_weights_save(weft_store *store, weft_comm *comm, const weft_graph *graph,
                              const char *prefix, const char *folder, const char *stem,
                              weft_dtype dtype, int64_t max_shard_bytes);

#endif
