#ifndef WEFT_DATA_LOADER_DECODE_H
#define WEFT_DATA_LOADER_DECODE_H

#include "data/loader_internal.h"

/* State of loading one item. */
typedef struct weft_load_state {
    weft_part_bytes bytes;     /* stored bytes of the part being decoded */
    weft_sample_outcome fault; /* outcome of the sample if loading fails */
    int64_t read;              /* bytes of samples that were read */
} weft_load_state;

/* Sets item i of a slot, without its data. */
void weft_loader_set_item(const weft_loader *loader, weft_loader_slot *slot, int64_t i,
                          const weft_item *item);
int weft_loader_item_bucket(const weft_loader_slot *slot, int64_t i);
/* Returns the memory of item i. */
float *weft_loader_item_data(const weft_loader *loader, const weft_loader_slot *slot, int64_t i);
/* Decodes item i of a slot. Replaces an unusable sample by the next one of its bucket, or with
 * no_stand_ins leaves zeros. This is deterministic because the same bytes fail on every rank. */
weft_status weft_loader_decode_item(weft_loader *loader, weft_loader_slot *slot, int64_t i,
                                    weft_load_state *state);

#endif
