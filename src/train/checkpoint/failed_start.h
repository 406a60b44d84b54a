/* Removal of the files of a run that failed before its first step. */
#ifndef WEFT_TRAIN_CHECKPOINT_FAILED_START_H
#define WEFT_TRAIN_CHECKPOINT_FAILED_START_H

/* Removes from the run folder `out` the files that a start writes before the first step, and the
 * folders that are empty then. Keeps the encoded latents, the lock file and all files that a start
 * does not write. Only for a folder that the failed start created: see weft_run_lock_created.
 * The last error of the thread is not changed, and a file that cannot be removed stays. */
void weft_failed_start_remove(const char *out);

#endif
