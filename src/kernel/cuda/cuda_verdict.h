/* Verdicts: which ops of backend `cuda` agree with the reference on this GPU. A file has the
 * verdicts of one GPU model, driver and set of kernels, and later runs use it.
 *
 * A program has the precision of its model: in a program of bf16, some nodes compute in f32. */
#ifndef WEFT_KERNEL_CUDA_CUDA_VERDICT_H
#define WEFT_KERNEL_CUDA_CUDA_VERDICT_H

#include "graph/op.h"

typedef enum weft_verdict {
    WEFT_VERDICT_NONE, /* not compared */
    WEFT_VERDICT_PASSED,
    WEFT_VERDICT_FAILED
} weft_verdict;

/* Verdicts of the process. Not thread-safe, except weft_cuda_verdict_check() while nothing else
 * runs. */
void weft_cuda_verdicts_forget(void);
void weft_cuda_verdict_set(bool bf16, weft_op op, weft_verdict verdict);
weft_verdict weft_cuda_verdict_get(bool bf16, weft_op op);
/* Selects the precision of the programs that are prepared from now on. */
void weft_cuda_verdicts_use(bool bf16);

/* Path of the file for this GPU: WEFT_GPU_VERDICTS names the folder (default:
 * XDG_CACHE_HOME/weft/gpu or ~/.cache/weft/gpu). Heap. */
weft_status weft_cuda_verdicts_path(char **path);
/* Replaces the verdicts of the process by the file's. *found: the file has verdicts of the
 * precision. A missing or damaged file, or one of other kernels, has none. */
weft_status weft_cuda_verdicts_load(bool bf16, bool *found);
weft_status weft_cuda_verdicts_save(void);

/* WEFT_E_UNSUPPORTED: the op failed the comparison in the selected precision. */
weft_status weft_cuda_verdict_check(weft_op op);

#endif
