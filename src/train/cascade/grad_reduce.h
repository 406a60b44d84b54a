/* Sums of gradients over all ranks, beside the cascades that still run.
 *
 * Each rank's own terms lie in the states "grad.*". A state is final on a rank when its last DiT
 * cascade of the iteration has added to it, which its backward does one after the other, the last
 * layers first. States are cut into buckets in about that order, the same on all ranks, and the sum
 * of a bucket starts on a rank as soon as all its states, and all buckets before it, are final:
 *
 *     rank 0   [s0.dit ──────────][s3.dit: forward, backward ─────]│
 *     rank 1   [s1.dit ───────────────────]  idle                  │ wait
 *     rank 2   [s2.dit ──────────────────────]                     │
 *     sums      of ranks 1 and 2 wait for rank 0      [ 0 ][ 1 ][ 2 ][ 3 ]   what is behind the bar
 *                                                                           is exposed
 *
 * Sums have a channel of their own and go in one order on all ranks: when they start changes no bit
 * of them. */
#ifndef WEFT_TRAIN_CASCADE_SUMS_H
#define WEFT_TRAIN_CASCADE_SUMS_H

#include "runtime/runtime.h"

typedef struct weft_sums weft_sums;
/* Of the states "grad.*" that `update` has, which are in `store`; all are borrowed, and `group` has
 * all ranks. Sums are where the terms were, on every rank. */
weft_status weft_sums_create(weft_group *group, const weft_backend *backend, weft_store *store,
                             const weft_graph *update, weft_sums **out);
void weft_sums_free(weft_sums *sums); /* accepts NULL */
/* An iteration begins: no state is final. */
void weft_sums_begin(weft_sums *sums);
/* `state` has all terms of this rank; one that is not summed is passed over. */
void weft_sums_final(weft_sums *sums, const weft_tensor *state);
/* All but those that `program` writes are; NULL: all are. */
void weft_sums_rest(weft_sums *sums, const weft_program *program);
/* All have been summed over all ranks. */
weft_status weft_sums_wait(weft_sums *sums);
/* That this rank sends for them in an iteration. */
int64_t weft_sums_bytes(const weft_sums *sums);

#endif
