/* Parts of tensors: boxes inside a whole tensor. Files that hold them: runtime/part_files.h.
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
/* Which copy of its part of `value` this rank holds, of how many: ranks that differ only along axes
 * that do not split it hold the same. On axis `apart` (-1: none) ranks hold different things. */
int weft_tensor_replica(const weft_graph *graph, weft_value value, int apart, int *replicas);
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

#endif
