/* Encoded rows of samples of the next step, on the ranks that encoded them. An iteration with
 * `encoders: ahead` fills the store, and the next one takes the rows out. All ranks have the same
 * entries, also for rows that only other ranks encoded. */
#ifndef WEFT_TRAIN_CASCADE_KEPT_ROWS_H
#define WEFT_TRAIN_CASCADE_KEPT_ROWS_H

#include "comm/comm.h"
#include "train/cascade/iteration_layout.h"

typedef struct weft_kept_rows {
    struct weft_kept_row *item;
    int64_t count, capacity;
} weft_kept_rows;

/* Adds the rows of a batch of the stage's loader and a module. Takes ownership of `held`, also on
 * errors. NULL: this rank has none. */
weft_status weft_kept_rows_add(weft_kept_rows *kept, int64_t batch, weft_cascade_module module,
                               weft_send_buffer *held);
/* Removes an entry and passes its rows to the caller. False: no rank has such rows. */
bool weft_kept_rows_take(weft_kept_rows *kept, int64_t batch, weft_cascade_module module,
                         weft_send_buffer **held);
/* Frees all entries. The empty store can be filled again. */
void weft_kept_rows_clear(weft_kept_rows *kept);

#endif
