/* Parts of tensors: boxes inside a whole tensor, and files that hold parts.
 *
 * A tensor of the store is this rank's box of the whole one:
 *
 *            0        start[1]             whole.dim[1]
 *      0     +--------+--------------------+
 *            |                             |
 *   start[0] +        +-----------+        |      replica: which copy of this box this rank holds,
 *            |        |   shape   |        |      where several ranks hold the same; number 0 is
 *            |        +-----------+        |      the one that writes it
 *            +-----------------------------+
 */
#ifndef WEFT_RUNTIME_PART_H
#define WEFT_RUNTIME_PART_H

#include "runtime/runtime.h"

typedef struct weft_box {
    weft_shape shape;
    int64_t start[WEFT_MAX_RANK];
} weft_box;

weft_box weft_box_whole(const weft_shape *whole);
weft_box weft_box_of(const weft_tensor *tensor);
bool weft_box_inside(const weft_box *box, const weft_shape *whole);
/* Copies, where two dense boxes of one whole tensor meet, from one to the other, converting floats
 * as weft_convert does; returns how many elements. `from_data` need not be aligned. */
int64_t weft_box_copy(const weft_box *to, void *to_data, weft_dtype to_dtype, const weft_box *from,
                      const void *from_data, weft_dtype from_dtype);

/* What this rank holds of a source (or all of another value) of a sharded graph; no data, and the
 * name is the graph's. */
weft_tensor weft_tensor_of(const weft_graph *graph, weft_value value);
/* The same type, shape, whole and start. */
bool weft_tensor_matches(const weft_tensor *a, const weft_tensor *b);
/* True when the box is all of the whole tensor. */
bool weft_tensor_is_whole(const weft_tensor *tensor);
/* True when this rank is the one that writes the box; false for an empty one. */
bool weft_tensor_is_writer(const weft_tensor *tensor);

/* The whole tensor on `root`: collective, every rank calls it with its own box of the same tensor.
 * *made (freed by the caller) is NULL where nothing was gathered: on other ranks, and where root's
 * box is all. Root needs memory for the whole tensor and one box. `comm` NULL: one rank; WEFT_E_ARG
 * when its box is not all. After a failure the ranks no longer agree: weft_comm_give_up. */
weft_status weft_tensor_gather(weft_comm *comm, int root, const weft_tensor *tensor, void **made);

/* ---- files of parts ------------------------------------------------------------------------ */

/* A part's name in a file says where it belongs, per dim begin:end/whole, so that no file ever
 * holds a part under the whole tensor's name:
 *
 *   adamw.m.proj.weight[0:8/16,0:32/32]     rows 0 to 7 of 16
 *   adamw.m.proj.bias                       all of it
 *
 * Each rank writes the boxes that it is the writer of, each box is written once by all together,
 * and any mesh can read them.
 *
 * Writes the boxes of this rank's tensors whose names begin with `prefix` to
 * <folder>/<stem>.safetensors (one rank), or <stem>-rank-00002-of-00008.safetensors; no file when
 * there is nothing to write. No messages are exchanged. */
weft_status weft_parts_save(weft_store *store, const char *prefix, const char *folder,
                            const char *stem, int rank, int ranks);
/* Fills every tensor under `prefix` from all such files of <folder>/<stem>, whatever mesh wrote
 * them. Each must be covered exactly, with the same whole shape and type, and the files must hold
 * nothing else: errors name what is missing, unknown or there twice. */
weft_status weft_parts_load(weft_store *store, const char *prefix, const char *folder,
                            const char *stem);

#endif
