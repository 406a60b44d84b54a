/* Ensures that only one run at a time writes into a folder.
 *
 * Rank 0 locks <folder>/.lock (flock) while its process runs. The operating system releases the
 * lock of a killed run, whatever the file contains. The file names the holder for messages. On a
 * file system without locks, the named holder is checked instead. On this machine its process is
 * looked up. A holder on another machine cannot be checked, so the error names the file to
 * remove. */
#ifndef WEFT_TRAIN_CHECKPOINT_RUN_LOCK_H
#define WEFT_TRAIN_CHECKPOINT_RUN_LOCK_H

#include "base/status.h"

#include <stdbool.h>

typedef struct weft_run_lock weft_run_lock;
/* Creates `folder` and locks it. Waits up to `patience` seconds, because the processes of a run
 * that was just killed may still be exiting. The error folder-locked names the holder. */
weft_status weft_run_lock_take(const char *folder, double patience, weft_run_lock **lock);
/* Whether weft_run_lock_take created the folder: it has no file from before. NULL: false. */
bool weft_run_lock_created(const weft_run_lock *lock);
/* Unlocks the folder. `discard`: the run failed; removes the folders that weft_run_lock_take
 * created if the run left them empty. Accepts NULL. */
void weft_run_lock_release(weft_run_lock *lock, bool discard);

#endif
