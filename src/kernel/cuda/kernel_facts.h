/* Facts of a kernel that need no GPU: its occupancy, and whether it uses tensor cores. */
#ifndef WEFT_KERNEL_CUDA_KERNEL_FACTS_H
#define WEFT_KERNEL_CUDA_KERNEL_FACTS_H

#include <stdbool.h>

/* Columns of tools/gpu_budgets.txt. NONE: another GPU. */
typedef enum weft_gpu_arch {
    WEFT_SM_80, /* A100 */
    WEFT_SM_89, /* RTX 4090 */
    WEFT_SM_90, /* H100, H200 */
    WEFT_SM_NONE
} weft_gpu_arch;

/* Returns the occupancy in percent; -1: not known. */
int weft_cuda_kernel_occupancy(const char *kernel, weft_gpu_arch arch);
/* Returns true if the embedded PTX of the kernel has mma instructions. */
bool weft_cuda_kernel_uses_mma(const char *kernel);

#endif
