/* The GPUs of a machine and the cores near them: which rank uses which GPU. */
#ifndef WEFT_KERNEL_CUDA_GPU_PLACES_H
#define WEFT_KERNEL_CUDA_GPU_PLACES_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_GPU_PLACES = 64 };

/* The GPUs of this process. CUDA_VISIBLE_DEVICES restricts and orders the list. */
typedef struct weft_gpu_list {
    int32_t count;
    uint64_t id;                   /* of the GPUs in their order: equal for equal lists */
    int32_t numa[WEFT_GPU_PLACES]; /* NUMA node by GPU; -1: unknown, or near several */
} weft_gpu_list;

/* Reads the list without a context on a GPU. At most WEFT_GPU_PLACES GPUs are listed. */
weft_status weft_gpu_list_read(weft_gpu_list *list);
/* Sets gpu[rank] for the ranks of a machine, in their order. `rank_numa`: the NUMA node to which
 * the launcher bound the rank; -1: none. A rank gets the first free GPU of its node, and the other
 * ranks then get the free GPUs in their order. More ranks than GPUs share the GPUs evenly. */
void weft_gpu_assign(const int32_t *rank_numa, int ranks, const weft_gpu_list *list, int *gpu);
/* Binds the threads of this process to its processors near GPU `ordinal`, and returns their number.
 * 0: unknown, or the process has none or only such processors; its binding stays. */
int weft_gpu_bind_near(int ordinal);

#endif
