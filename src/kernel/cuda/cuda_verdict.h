/* Verdicts: which implementations of ops of backend `cuda` agree with the reference on this GPU. A
 * file has the verdicts of one GPU model, driver, set of kernels and versions of libraries, and
 * later runs use it.
 *
 * A program has one precision (weft_kernel_args.products): in bf16, some nodes compute in f32. */
#ifndef WEFT_KERNEL_CUDA_CUDA_VERDICT_H
#define WEFT_KERNEL_CUDA_CUDA_VERDICT_H

#include "base/json.h"
#include "kernel/cuda/cuda_impl.h"

typedef enum weft_verdict {
    WEFT_VERDICT_NONE, /* not compared */
    WEFT_VERDICT_PASSED,
    WEFT_VERDICT_FAILED,
    WEFT_VERDICT_STOPPED /* the GPU did not survive the implementation */
} weft_verdict;

/* Verdicts of the process, by the index of an implementation in the list. Not thread-safe. */
void weft_cuda_verdicts_forget(void);
void weft_cuda_verdict_set(weft_products products, int impl, weft_op op, weft_verdict verdict);
weft_verdict weft_cuda_verdict_get(weft_products products, int impl, weft_op op);
const char *weft_verdict_name(weft_verdict verdict); /* "none", "passed" */
/* Returns the precision whose verdicts programs of a precision use: their own, or the first that
 * was compared. */
weft_products weft_cuda_verdicts_precision(weft_products products);
const char *weft_cuda_precision_name(weft_products products); /* "f32", "bf16", "tf32" */

/* Notes in a file that a library's implementation is being tried, and removes the note after the
 * work ended. The note of a process that hangs or loses its GPU stays, and makes the verdict
 * STOPPED when it is loaded. weft's own kernels need no notes. Requires the lock of the files. */
weft_status weft_cuda_trial_begin(weft_products products, int impl, weft_op op);
weft_status weft_cuda_trial_end(int impl);
/* Names the implementation in an error of the GPU, and returns it. The note stays, unless the error
 * is the memory's or weft's own kernel was tried. */
weft_status_code weft_cuda_trial_stop(int impl, weft_op op, weft_status_code status);

/* Folder of the files, created if it is missing: WEFT_GPU_VERDICTS (default:
 * XDG_CACHE_HOME/weft/gpu or ~/.cache/weft/gpu). Returns the path of this GPU's file with the given
 * end (".json"). Heap. */
weft_status weft_cuda_verdicts_path(const char *end, char **path);
/* The GPU, driver, weft, kernels and libraries that the files are of. The caller owns *key. */
weft_status weft_cuda_verdicts_key(json_t **key);
/* Waits until no other process uses the files of this GPU. After an error *lock is -1, which
 * weft_cuda_files_unlock() accepts. */
weft_status weft_cuda_files_lock(int *lock);
void weft_cuda_files_unlock(int lock);
/* Replaces the verdicts of the process by the file's. *found: the file has verdicts of the
 * precision. A missing or damaged file, or one of other kernels, has none. Requires the lock. */
weft_status weft_cuda_verdicts_load(weft_products products, bool *found);
weft_status weft_cuda_verdicts_save(void);

#endif
