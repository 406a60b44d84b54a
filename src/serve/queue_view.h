/* The unfinished jobs in their order, read from the store once per change of the store. */
#ifndef WEFT_SERVE_QUEUE_VIEW_H
#define WEFT_SERVE_QUEUE_VIEW_H

#include "serve/queue_store.h"

/* Zero-initialised: nothing was read. */
typedef struct weft_queue_view {
    weft_queue_entry *entries; /* sorted, with the seconds that remain; owned */
    int64_t count;
    double first_seconds; /* predicted seconds of the first job, without its progress */
    int64_t version;      /* of the store; 0: nothing was read */
} weft_queue_view;

/* Reads the jobs if the store has changed. `elapsed`: seconds since the running job started.
 * `left`: remaining seconds by its progress; negative: unknown. */
weft_status weft_queue_view_update(weft_queue_view *view, weft_queue_store *store, double elapsed,
                                   double left);
void weft_queue_view_free(weft_queue_view *view);

#endif
