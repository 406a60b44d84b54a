/* Tensor shards: boxes inside a complete tensor. Files with shards: exec/store/shard_files.h.
 *
 * A tensor of the store is this rank's box of the complete one:
 *
 *            0        start[1]             whole.dim[1]
 *      0     +--------+--------------------+
 *            |                             |
 *   start[0] +        +-----------+        |      replica: number of this rank's copy of the box,
 *            |        |   shape   |        |      where several ranks hold the same box
 *            |        +-----------+        |
 *            +-----------------------------+ */
#ifndef WEFT_EXEC_STORE_TENSOR_SHARD_H
#define WEFT_EXEC_STORE_TENSOR_SHARD_H

#include "comm/comm.h"
#include "exec/store/store.h"
#include "graph/op.h"

typedef struct weft_box {
    weft_shape shape;
    int64_t start[WEFT_MAX_RANK];
} weft_box;

weft_box weft_box_whole(const weft_shape *whole);
weft_box weft_box_of(const weft_tensor *tensor);
bool weft_box_inside(const weft_box *box, const weft_shape *whole);
/* The intersection of two dense boxes of one tensor as runs that are contiguous in both: run i is
 * `length` elements, at the offsets of weft_box_run_offset(). No intersection: 0 runs. */
typedef struct weft_box_runs {
    int64_t start[WEFT_MAX_RANK], size[WEFT_MAX_RANK];
    int inner; /* dims from here on are inside a run */
    int64_t runs, length;
} weft_box_runs;
weft_box_runs weft_box_overlap(const weft_box *a, const weft_box *b);
/* Offset of a run in the dense elements of `box`. */
int64_t weft_box_run_offset(const weft_box *box, const weft_box_runs *runs, int64_t run);
/* Copies the intersection of two dense boxes of one tensor from `from` to `to`, with weft_convert
 * between float types. Returns the number of elements. `from_data` need not be aligned. */
int64_t weft_box_copy(const weft_box *to, void *to_data, weft_dtype to_dtype, const weft_box *from,
                      const void *from_data, weft_dtype from_dtype);

/* Returns true if the box is the complete tensor. */
bool weft_tensor_is_whole(const weft_tensor *tensor);
/* Returns true if this rank sends the box in weft_tensor_gather: replica 0 of a box that is not
 * empty. */
bool weft_tensor_is_writer(const weft_tensor *tensor);

/* Gathers the complete tensor on `root`. Collective: every rank passes its own box. *made (freed by
 * the caller) is NULL on other ranks, and on root if its box is complete in memory of the host.
 * Root needs memory for the complete tensor and one box. `comm` NULL: one rank; WEFT_E_ARG if its
 * box is not complete. After an error the caller must call weft_comm_abort. */
weft_status weft_tensor_gather(weft_comm *comm, int root, const weft_tensor *tensor, void **made);

#endif
