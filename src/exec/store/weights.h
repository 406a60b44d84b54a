/* Weights between stores and files. Names in the store have a prefix that names in files lack:
 * "vae.encoder.conv_in.weight" in the store is "encoder.conv_in.weight" in the VAE's folder. */
#ifndef WEFT_EXEC_STORE_WEIGHTS_H
#define WEFT_EXEC_STORE_WEIGHTS_H

#include "comm/comm.h"
#include "exec/store/store.h"
#include "format/tensors/tensors.h"
#include "graph/op.h"

/* Adds every missing param of `graph` that is not frozen as zeros, for a caller that loads each
 * one. weft_store_init would draw values that weft_weights_load replaces. */
weft_status weft_weights_reserve(weft_store *store, weft_graph *graph);
/* Adds states, too, with their initial values. */
weft_status weft_weights_prepare(weft_store *store, weft_graph *graph);
/* Fills every param of `graph` whose name begins with `prefix` from `file`, which contains complete
 * tensors. Each rank reads its shard, converts floats to the store's type and dequantizes, a few
 * MiB at a time. One error lists all missing params, all params of another shape or, unless
 * `partial`, all tensors unknown to the graph. These errors leave the store unchanged. Closes
 * `file`. */
weft_status weft_weights_load(weft_store *store, const weft_graph *graph, const char *prefix,
                              weft_tensors *file, bool partial);

/* Adds the offloaded params of `graph` under `prefix` (weft_attr_source.offloaded) without a copy,
 * with data in the map of `file`. Skips a param if the file has another type, or if this rank's
 * rows are not contiguous in the file. `file` must stay open as long as the store.
 * weft_weights_load skips the added params. */
weft_status weft_weights_lend(weft_store *store, const weft_graph *graph, const char *prefix,
                              const weft_tensors *file);

/* Checks the tensors of the file that the store does not have, such as the decoder's after an
 * encoder was planned. NaN or infinity is an error. weft_weights_load checks the others. */
weft_status weft_weights_check_rest(weft_store *store, const char *prefix,
                                    const weft_tensors *file);
/* Type in which to store the file's matrices and kernels (rank 2 and more). BF16 or F16 if all of
 * them have this type, BF16 if one is quantized or F8, otherwise F32. */
weft_status weft_weights_dtype(const char *path, weft_dtype *dtype);
/* Counts the matrices of the files, and those whose values bf16 rounds if weft_weights_dtype
 * selects bf16 for quantized matrices: each by at most WEFT_BF16_ROUNDING of its value. Values of
 * fp8 without a factor are exact. */
#define WEFT_BF16_ROUNDING 0x1p-9
weft_status weft_weights_rounded(const char *path, int64_t *matrices, int64_t *rounded);

/* Writes the complete params of `graph` under `prefix` to <folder>/<stem>.safetensors, in several
 * files beyond max_shard_bytes (0: one file). dtype is F32, BF16 or F16. Collective with `comm`:
 * rank 0 gathers and writes one tensor at a time, and all ranks return when the files exist. `comm`
 * NULL: this rank writes its tensors; a shard is WEFT_E_ARG. */
weft_status weft_weights_save(weft_store *store, weft_comm *comm, const weft_graph *graph,
                              const char *prefix, const char *folder, const char *stem,
                              weft_dtype dtype, int64_t max_shard_bytes);
/* Tensors of the files in addition to a graph's params, or fewer. */
typedef struct weft_weights_change {
    const char *without; /* params whose name after the prefix begins so; NULL: all are written */
    const weft_stored_tensor *also; /* a tensor of another file, on rank 0; NULL: none */
} weft_weights_change;
weft_status weft_weights_save_changed(weft_store *store, weft_comm *comm, const weft_graph *graph,
                                      const char *prefix, weft_weights_change change,
                                      const char *folder, const char *stem, weft_dtype dtype,
                                      int64_t max_shard_bytes);

#endif
