/* Packs samples of all buckets into rows of tokens (sequence packing).
 *
 *   buckets in turns --one sample at a time--> window --fullest--> row 0, row 1, ... of a batch
 *
 * The oldest sample of the window begins a row. The samples that fill the rest best follow
 * (data/row_fill.h), then the largest that still fit. Rows depend on data, config and seed only,
 * and every sample leaves the window. */
#ifndef WEFT_DATA_LOADER_PACKING_H
#define WEFT_DATA_LOADER_PACKING_H

#include "base/config.h"
#include "base/json.h"
#include "data/loader_order.h"

extern const weft_section weft_row_packing_section;

/* Samples that were drawn and are in no row yet, oldest first. */
typedef struct weft_pack_window {
    weft_item *item; /* [packing.window], owned */
    int64_t count;
} weft_pack_window;

weft_status weft_pack_window_create(const weft_row_packing *packing, weft_pack_window *window);
void weft_pack_window_free(weft_pack_window *window);
void weft_pack_window_copy(weft_pack_window *to, const weft_pack_window *from);

/* Reserves memory to choose the samples of rows, and frees the memory. */
weft_status weft_pack_rows_create(weft_loader *loader);
void weft_pack_rows_free(weft_loader *loader);
/* Takes the items of the next row from the endless sequences and returns their number, at most
 * packing.samples. Advances taken[] (samples of each bucket) and the window. */
int64_t weft_pack_row(weft_loader *loader, int64_t *taken, weft_pack_window *window,
                      weft_item *row);
/* Plans the next batch of rows, as weft_loader_plan_next. */
void weft_loader_plan_rows(weft_loader *loader, struct weft_loader_slot *slot);
/* Sets the tokens of the samples in the next `batches` batches, over all ranks. */
weft_status weft_loader_peek_tokens(weft_loader *loader, int64_t batches, int64_t *tokens);

/* The window as [[bucket, index], ...] for a checkpoint (new reference), and back. `taken` as
 * restored. */
json_t *weft_pack_window_write(const weft_pack_window *window);
weft_status weft_pack_window_read(const weft_loader *loader, const json_t *state,
                                  const int64_t *taken, const char *where,
                                  weft_pack_window *window);

#endif
