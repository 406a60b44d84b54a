/* Batches that several ranks have in common: ranks that split a sample or the model (tp, cp, pp)
 * need the same items. With `members` of weft_loader_config each reads a part, and the parts are
 * exchanged:
 *
 *     weft_loader_next   batch of the items, of which this rank has read its part
 *     share_write        the part as bytes, for the other members
 *     share_read         the part of another member
 *
 * Parts change their members from batch to batch, so that small batches are read in turns. */
#ifndef WEFT_DATA_LOADER_SHARE_H
#define WEFT_DATA_LOADER_SHARE_H

#include "data/loader.h"

struct weft_loader_slot; /* loader_internal.h */

/* Appends this rank's part of the batch that weft_loader_next returned last. */
void weft_loader_share_write(const weft_loader *loader, weft_buf *part);
/* Sets the items of another member's part in that batch. */
weft_status weft_loader_share_read(weft_loader *loader, const void *part, int64_t bytes);
/* Bytes of samples that this rank read for the batches that weft_loader_next returned. */
int64_t weft_loader_read_bytes(const weft_loader *loader);

/* Sets the part of a planned slot that this rank reads, and announces its samples to the storage.
 * The caller has the lock. */
void weft_loader_set_part(const weft_loader *loader, struct weft_loader_slot *slot, int64_t step);

#endif
