/* Batches that several ranks have in common: ranks that split a sample or the model (tp, cp, pp)
 * need the same items. With `members` of weft_loader_config each reads a part. A thread of the
 * caller exchanges the parts while the ranks compute with an earlier batch:
 *
 *     share_wait     until this rank has read its part of a batch
 *     share_heads    ids and captions of the part as bytes, for the other members
 *     share_take     ids and captions of another member's part
 *     share_data     memory of a member's part: sent from there, received there
 *
 * Parts change their members from batch to batch, so that small batches are read in turns. */
#ifndef WEFT_DATA_LOADER_SHARE_H
#define WEFT_DATA_LOADER_SHARE_H

#include "data/loader.h"

struct weft_loader_slot; /* loader_internal.h */

/* Memory of a member's part of a batch. */
typedef struct weft_share_data {
    float *data, *extra;
    int64_t bytes, extra_bytes; /* 0: the part is empty */
} weft_share_data;

/* Waits for this rank's part of batch `step`, which is the batch that weft_loader_next returned
 * last or a later one that is planned. Returns the error of its samples. */
weft_status weft_loader_share_wait(weft_loader *loader, int64_t step);
/* Appends the heads of this rank's part of a batch after share_wait. */
void weft_loader_share_heads(const weft_loader *loader, int64_t step, weft_buf *heads);
/* Sets the ids and captions of a member's part from its heads. */
weft_status weft_loader_share_take(weft_loader *loader, int64_t step, const void *heads,
                                   int64_t bytes);
weft_share_data weft_loader_share_data(const weft_loader *loader, int64_t step, int member);
/* Bytes of samples that this rank read for the batches that weft_loader_next returned. */
int64_t weft_loader_read_bytes(const weft_loader *loader);

/* Sets the part of a planned slot that this rank reads, and announces its samples to the storage.
 * The caller has the lock. */
void weft_loader_set_part(const weft_loader *loader, struct weft_loader_slot *slot, int64_t step);

#endif
