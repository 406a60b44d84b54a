/* All-reduces gradients over all ranks while cascades still run.
 *
 * The local gradients of a rank are in the states "grad.*". A state is ready on a rank when the
 * rank's last DiT cascade of the iteration has added to it. A backward finishes the states in
 * sequence, last layers first. States form gradient buckets in about that order, the same on all
 * ranks. The all-reduce of a bucket starts on a rank when its states, and all buckets before it,
 * are ready:
 *
 *     rank 0   [s0.dit ──────────][s3.dit: forward, backward ─────]│
 *     rank 1   [s1.dit ───────────────────]  idle                  │ wait
 *     rank 2   [s2.dit ──────────────────────]                     │
 *     reduce    ranks 1 and 2 wait for rank 0         [ 0 ][ 1 ][ 2 ][ 3 ]   the time after the bar
 *                                                                           is exposed
 *
 * The all-reduces have a separate channel and one order on all ranks. Their start times do not
 * change the results. */
#ifndef WEFT_TRAIN_CASCADE_GRAD_REDUCE_H
#define WEFT_TRAIN_CASCADE_GRAD_REDUCE_H

#include "comm/coll_schedule.h"
#include "comm/group.h"
#include "exec/program.h"
#include "kernel/kernel.h"

typedef struct weft_grad_reduce weft_grad_reduce;
/* Prepares the all-reduces of the states "grad.*" of `update`, which are in `store`. The results
 * replace the local gradients on every rank. `group` has all ranks. All arguments are borrowed. */
weft_status weft_grad_reduce_create(weft_group *group, const weft_backend *backend,
                                    weft_store *store, const weft_graph *update,
                                    weft_grad_reduce **out);
void weft_grad_reduce_free(weft_grad_reduce *reduce); /* accepts NULL */
/* Begins an iteration: no state is ready. */
void weft_grad_reduce_begin(weft_grad_reduce *reduce);
/* Marks `state` as ready on this rank, after the work that `stream` of the program has now. Ignores
 * a state that is not reduced. */
void weft_grad_reduce_mark_ready(weft_grad_reduce *reduce, const weft_tensor *state,
                                 weft_device_stream *stream);
/* Marks all states as ready that `program` does not write. NULL: all states. */
void weft_grad_reduce_mark_others(weft_grad_reduce *reduce, const weft_program *program);
/* Waits for all all-reduces. */
weft_status weft_grad_reduce_wait(weft_grad_reduce *reduce);
/* Returns the bytes that this rank sends per iteration. */
int64_t weft_grad_reduce_bytes(const weft_grad_reduce *reduce);
/* Predicts the seconds of all all-reduces without other work, and of the last one, by the
 * algorithms that run. */
weft_status weft_grad_reduce_predict(const weft_grad_reduce *reduce, const weft_link_costs *costs,
                                     double *seconds, double *last);
/* Broadcasts the `bytes` bytes of a state from member 0 of the group. */
weft_status weft_grad_reduce_broadcast(weft_group *group, const weft_tensor *state, int64_t bytes);

#endif
