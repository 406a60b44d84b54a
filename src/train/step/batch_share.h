/* Exchange of samples between ranks that have the same items (data/loader_share.h): each reads a
 * part of a batch and receives the others from the other members of its group.
 *
 *     main thread    step s            step s + 1         a batch is complete before its step
 *     this thread    parts of s + 1    parts of s + 2
 */
#ifndef WEFT_TRAIN_STEP_BATCH_SHARE_H
#define WEFT_TRAIN_STEP_BATCH_SHARE_H

#include "comm/group.h"
#include "data/loader.h"
#include "train/step/stage_programs.h"

typedef struct weft_batch_exchange weft_batch_exchange;

typedef struct weft_batch_share {
    weft_group *group; /* NULL: no other rank has the items of this one */
    int member, members;
    weft_batch_exchange *exchange; /* NULL: not started */
} weft_batch_share;

/* Collective. Finds the ranks with the items of this rank. */
weft_status weft_batch_share_open(weft_comm *comm, const weft_stage_programs *programs,
                                  weft_batch_share *share);
/* Ends the exchange of the batch that is already announced. Call it before the loader is closed. */
void weft_batch_share_free(weft_batch_share *share);
/* Returns the next batch of the loader with the items of all members, and begins the exchange of
 * the batch after it in another thread. Collective in the group. */
weft_status weft_batch_share_next(weft_batch_share *share, weft_loader *loader, weft_batch *batch);
/* Bytes that an exchange between `members` ranks needs in addition to the loader's batches.
 * `part_bytes`: of the largest part. */
weft_status weft_batch_share_bytes(int members, int64_t part_bytes, int64_t *bytes);

#endif
