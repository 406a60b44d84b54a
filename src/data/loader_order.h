/* The items of later batches, and the position of a loader for checkpoints. */
#ifndef WEFT_DATA_LOADER_ORDER_H
#define WEFT_DATA_LOADER_ORDER_H

#include "data/loader.h"

struct weft_loader_slot; /* loader_internal.h */

/* An item of a global batch, before decoding. */
typedef struct weft_item {
    int64_t sample; /* index in the dataset */
    int64_t epoch, sequence_index;
    int bucket;
} weft_item;
/* Sets *bucket to the bucket of the batch that follows the next one by `batches_ahead` batches. If
 * `out` is not NULL, writes the items of all ranks to out[*count]; `out` must fit the largest batch
 * of the config. Does not decode, so an item may turn out unusable and be replaced. */
weft_status weft_loader_peek(weft_loader *loader, int64_t batches_ahead, int *bucket,
                             weft_item *out, int64_t *count);

/* Returns the position of the next batch as a small JSON object (new reference). Restoring needs
 * the same shards, buckets and seed (compared by a fingerprint). The number of ranks may differ. */
json_t *weft_loader_state(const weft_loader *loader);
weft_status weft_loader_restore(weft_loader *loader, const json_t *state, const char *where);

/* Returns the item at `sequence_index` of a bucket's endless sequence. The caller has the lock, or
 * no worker runs. */
weft_item weft_loader_item_at(const weft_loader *loader, int bucket, int64_t sequence_index);
/* Advances the position by the batch that weft_loader_next returns. The caller has the lock. */
void weft_loader_return(weft_loader *loader, const struct weft_loader_slot *slot);
/* Plans the next batch: fills its slot with the items of this rank. Used by weft_loader_next. */
void weft_loader_plan_next(weft_loader *loader);

#endif
