/* One run at a time writes into a folder.
 *
 * <folder>/.lock is locked (flock) by rank 0 for as long as its process lives: the lock of a run
 * that was killed is gone by itself, whatever the file says. The file names the holder for
 * messages. Where the file system knows no locks, the holder that it names is looked for instead:
 * on this machine by its process, on another one by nothing, so that the message says which file to
 * remove. */
#ifndef WEFT_TRAIN_RUN_LOCK_H
#define WEFT_TRAIN_RUN_LOCK_H

#include "base/status.h"

#include <stdbool.h>

typedef struct weft_run_lock weft_run_lock;
/* Makes `folder` and locks it. Waits up to `patience` seconds: the processes of a run that was just
 * killed may be dying still. WEFT_E_PERMISSION names the holder. */
weft_status weft_run_lock_take(const char *folder, double patience, weft_run_lock **lock);
/* `discard`: the run failed. Removes the folders that taking the lock has made if the run has left
 * nothing in them. Accepts NULL. */
void weft_run_lock_release(weft_run_lock *lock, bool discard);

#endif
