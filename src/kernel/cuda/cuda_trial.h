/* Trials of implementations at the shapes of a node: whether they work, and their time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_TRIAL_H
#define WEFT_KERNEL_CUDA_CUDA_TRIAL_H

#include "kernel/cuda/cuda_impl.h"

/* Operands of the shapes of a node in memory of their own, and a stream. */
typedef struct weft_cuda_bench weft_cuda_bench;

/* WEFT_MSG_MEMORY_NEEDED: the GPU has no memory for the operands. */
weft_status weft_cuda_bench_open(const weft_kernel_args *args, weft_cuda_bench **bench);
void weft_cuda_bench_close(weft_cuda_bench *bench); /* accepts NULL */

typedef struct weft_cuda_trial {
    bool tried;      /* a variant works; the members below are of the fastest one */
    bool gpu_failed; /* the status is an error of the GPU, which ends the process' work */
    bool differs;    /* results differ bitwise from weft's own kernels */
    double seconds;
    weft_cuda_plan plan; /* the caller's */
} weft_cuda_trial;

/* Runs every variant of an implementation and measures its time. Returns the error of the last
 * variant if none works. */
weft_status_code weft_cuda_trial_run(weft_cuda_bench *bench, const weft_cuda_impl *impl,
                                     weft_cuda_trial *trial);

/* Computes random operands by weft's own kernel and by the implementation, and sets
 * trial->differs if an output differs. The operands stay. */
weft_status_code weft_cuda_trial_compare(weft_cuda_bench *bench, const weft_cuda_impl *impl,
                                         weft_cuda_trial *trial);

#endif
