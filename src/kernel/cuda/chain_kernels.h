/* Generated kernels of the process (compiled_code.h). */
#ifndef WEFT_KERNEL_CUDA_CHAIN_KERNELS_H
#define WEFT_KERNEL_CUDA_CHAIN_KERNELS_H

#include "kernel/cuda/chain_source.h"
#include "kernel/cuda/launch.h"

typedef struct weft_chain_kernel {
    char name[WEFT_CHAIN_NAME];
    struct weft_chain_proof *proofs; /* by chain_impl.c; requires weft_chain_lock() */
    struct weft_chain_kernel *next;
} weft_chain_kernel;

/* Generates and compiles the kernel of the node, or finds it; stays until the process ends.
 * Requires the lock. */
weft_status weft_chain_kernel_get(const weft_kernel_args *args, weft_chain_kernel **kernel);
void weft_chain_lock(void);
void weft_chain_unlock(void);
/* Adds the launch of the node's kernel with this name. */
weft_status_code weft_chain_launch(const weft_kernel_args *args, const char *name,
                                   weft_cuda_queue *queue);
/* A name of the node's kernel that stays, also without NVRTC; NULL: out of memory. For reports. */
const char *weft_chain_name(const weft_kernel_args *args);

#endif
