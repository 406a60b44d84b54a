/* Threads that fetch blocks of files before they are read, in the order in which they were asked
 * for. A failed fetch is silent: the read that follows reports it. */
#ifndef WEFT_STORAGE_BLOCK_PREFETCH_H
#define WEFT_STORAGE_BLOCK_PREFETCH_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_PREFETCH_THREADS = 4, WEFT_PREFETCH_MOST = 256 };

typedef struct weft_block_prefetch weft_block_prefetch;
/* `fetch` is called by the threads with a name, the first byte of a block, and a number of adjacent
 * blocks. Blocks that wait are joined as long as no thread gets more than its share. */
weft_status weft_block_prefetch_start(void (*fetch)(void *user, const char *name, int64_t at,
                                                    int64_t blocks),
                                      void *user, weft_block_prefetch **prefetch);
/* Drops what is not fetched yet, and ends the threads: their waits (stoppable_wait.h) end at once.
 * Accepts NULL. */
void weft_block_prefetch_stop(weft_block_prefetch *prefetch);
/* Asks for a block, unless it is waiting already or WEFT_PREFETCH_MOST are. */
void weft_block_prefetch_add(weft_block_prefetch *prefetch, const char *name, int64_t at);

#endif
