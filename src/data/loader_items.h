/* Items that are loaded without their batch, and the decoding threads of a loader. */
#ifndef WEFT_DATA_LOADER_ITEMS_H
#define WEFT_DATA_LOADER_ITEMS_H

#include "data/loader_order.h"

/* An item that was loaded without its batch. */
typedef struct weft_loaded_item {
    int64_t sample; /* index in the dataset */
    uint64_t id;
    bool replaced;       /* true: replaces an unusable sample */
    const char *caption; /* "" when dropped or absent; valid until the next load */
    /* memory of the caption, reused by the next load. Start with zeros; the caller calls
     * weft_free(text.data) at the end. */
    weft_part_bytes text;
} weft_loaded_item;
/* Announces items that the caller will load with weft_loader_load_item, each once and with `to`.
 * Decoding threads without a batch to decode decode the items into separate memory. */
weft_status weft_loader_prefetch_items(weft_loader *loader, const weft_item *item, int64_t count);
/* Loads one item into `to` (floats of its bucket) and its extra part into `extra` (extra_floats).
 * Any rank may load any item; the data are the same as in weft_loader_next. Decodes in the caller's
 * thread unless the item was prefetched. `to` NULL: loads the caption only. */
weft_status weft_loader_load_item(weft_loader *loader, const weft_item *item, float *to,
                                  float *extra, weft_loaded_item *taken);

/* Starts the decoding threads of a new loader. */
weft_status weft_loader_start_workers(weft_loader *loader);
/* Ends the decoding threads and drops the prefetched items. */
void weft_loader_stop_workers(weft_loader *loader);
/* Waits until no thread decodes, drops the prefetched items and empties all slots. The caller has
 * the lock. */
void weft_loader_empty(weft_loader *loader);

#endif
