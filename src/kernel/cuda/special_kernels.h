/* Kernels of the process that NVRTC compiled for a shape, with the sizes as constants
 * (special_table.h). They compute as the embedded kernels do, in the same order. */
#ifndef WEFT_KERNEL_CUDA_SPECIAL_KERNELS_H
#define WEFT_KERNEL_CUDA_SPECIAL_KERNELS_H

#include "kernel/cuda/special_table.h"

/* Returns the name of the kernel for the constants of the launch; NULL: not compiled. The name
 * stays until the process ends. */
const char *weft_special_find(const weft_cuda_launch *launch);
/* Compiles it, or finds it. Sets *name to NULL if the kernel is not in the table.
 * WEFT_E_UNSUPPORTED: NVRTC does not compile it. */
weft_status weft_special_get(const weft_cuda_launch *launch, const char **name);
enum { WEFT_SPECIAL_NAME = 64 };
/* Writes the source, which includes embedded headers, and the name of its kernel. */
weft_status weft_special_source(const weft_special_kernel *kernel, const void *args,
                                char name[WEFT_SPECIAL_NAME], weft_buf *source);

#endif
