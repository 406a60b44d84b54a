/* The GPU of this process; CUDA_VISIBLE_DEVICES restricts the choice. A rank has one. Ranks of a
 * machine get GPUs near their cores (comm/rank_gpus.h); without this choice a process gets the GPU
 * of its local rank. */
#ifndef WEFT_KERNEL_CUDA_CUDA_GPU_H
#define WEFT_KERNEL_CUDA_CUDA_GPU_H

#include "kernel/cuda/cuda_driver.h"

typedef struct weft_cuda_gpu {
    const weft_cuda_driver *driver;
    cuda_gpu gpu;
    cuda_context context;
    int ordinal, count; /* of the GPUs that the process may use */
    int major, minor;   /* compute capability */
    int processors;     /* multiprocessors */
    int shared;         /* bytes of shared memory that a block may opt in to */
    int64_t pitch;      /* most bytes between two rows of a strided copy */
    int64_t memory;     /* bytes */
    int version;        /* of CUDA that the driver has: 12090 is 12.9 */
    char name[96];
} weft_cuda_gpu;

/* Returns the GPU of this process, and makes its context current in the calling thread.
 * WEFT_E_UNSUPPORTED: no driver or no GPU. */
weft_status weft_cuda_gpu_get(const weft_cuda_gpu **gpu);
/* The error of a failed call (weft_cuda_error) with the GPU, because a machine has several. */
weft_status_code weft_cuda_gpu_error(const weft_cuda_gpu *gpu, cuda_result result,
                                     const char *what);
/* Lets the process use GPU `ordinal` instead of the one of its local rank. Call before the GPU is
 * used; later calls have no effect. */
void weft_cuda_gpu_choose(int ordinal);
/* The context stays when the process ends: its release would wait for work that does not end. */
void weft_cuda_gpu_abandon(void);
/* Rank of this process among the ranks of its machine, from the launcher's environment; 0: not
 * started by a launcher. */
int weft_cuda_local_rank(void);

#endif
