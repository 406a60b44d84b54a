/* The implementation of ops by cuDNN: plans of shapes, and their launches. */
#ifndef WEFT_KERNEL_CUDA_CUDNN_IMPL_H
#define WEFT_KERNEL_CUDA_CUDNN_IMPL_H

#include "kernel/kernel.h"

/* Returns the version of the library, 92800 for 9.28.0; 0: it is missing or switched off. */
int64_t weft_cudnn_version(void);
/* Creates a plan for the shapes of args that weft_cudnn_accepts() (cudnn_ops.h). Variants 0, 1, ...
 * are plans in cuDNN's order. WEFT_E_UNSUPPORTED: no such variant. */
weft_status_code weft_cudnn_prepare(const weft_kernel_args *args, int variant, void **plan);
void weft_cudnn_release(void *plan); /* accepts NULL */
/* Adds the work to args->stream. args->workspace has weft_cudnn_workspace() bytes, and the
 * addresses of all operands are multiples of CUDNN_ALIGNMENT. */
weft_status_code weft_cudnn_launch(const weft_kernel_args *args, void *plan);

/* Sets *json to cuDNN's description of the process' GPU (heap, the caller's); NULL: no library. */
weft_status_code weft_cudnn_device(char **json);

#endif
