/* Ids outside a table: kernels report them in pinned memory, and the host reads it after a wait. */
#ifndef WEFT_KERNEL_CUDA_CUDA_IDS_H
#define WEFT_KERNEL_CUDA_CUDA_IDS_H

#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/launch.h"

weft_status weft_cuda_ids_open(const weft_cuda_gpu *gpu, weft_cuda_queue *queue);
/* Returns the error of the report, and clears it. The queue's kernels are done. */
weft_status weft_cuda_ids_check(weft_cuda_queue *queue);
void weft_cuda_ids_close(const weft_cuda_gpu *gpu, weft_cuda_queue *queue);

#endif
