/* The learned seconds in the queue's file. They hold for the conditions under which they were
 * measured: the next start under other conditions begins without them. */
#ifndef WEFT_SERVE_LEARNED_STORE_H
#define WEFT_SERVE_LEARNED_STORE_H

#include "serve/learned_seconds.h"
#include "serve/queue_file.h"

/* Replaces the stored seconds. `conditions`: a hash. Does not wait for the disk: after a failure of
 * the machine the seconds of an earlier job are found. */
weft_status weft_learned_store_write(weft_queue_store *store, uint64_t conditions,
                                     const weft_learned_seconds *learned);
/* Reads the seconds; empty: none were stored under these conditions. */
weft_status weft_learned_store_read(weft_queue_store *store, uint64_t conditions,
                                    weft_learned_seconds *learned);

#endif
