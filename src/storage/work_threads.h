/* Transfers of many files at a time. */
#ifndef WEFT_STORAGE_WORK_THREADS_H
#define WEFT_STORAGE_WORK_THREADS_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_WORK_THREADS = 6 };

/* Calls `work` for items 0 to `items` - 1 from WEFT_WORK_THREADS threads, in this order, and waits.
 * Returns the first error, after which no further item is begun and waits end. The threads ignore
 * Ctrl-C if the caller does (stoppable_wait.h). */
weft_status weft_work_run(int64_t items, weft_status_code (*work)(void *user, int64_t item),
                          void *user);

#endif
