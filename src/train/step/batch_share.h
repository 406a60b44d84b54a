/* Exchange of samples between ranks that have the same items (data/loader_share.h): each reads a
 * part of a batch and receives the others from the other members of its group. */
#ifndef WEFT_TRAIN_STEP_BATCH_SHARE_H
#define WEFT_TRAIN_STEP_BATCH_SHARE_H

#include "comm/group.h"
#include "data/loader.h"
#include "train/step/stage_programs.h"

typedef struct weft_batch_share {
    weft_group *group; /* NULL: no other rank has the items of this one */
    int member, members;
    weft_buf own, other; /* parts of the last batch */
} weft_batch_share;

/* Collective. Finds the ranks with the items of this rank. */
weft_status weft_batch_share_open(weft_comm *comm, const weft_stage_programs *programs,
                                  weft_batch_share *share);
void weft_batch_share_free(weft_batch_share *share);
/* Collective in the group. Completes the batch that weft_loader_next returned. */
weft_status weft_batch_share_exchange(weft_batch_share *share, weft_loader *loader);

#endif
