/* The implementation of ops by cuDNN: plans of shapes, and their launches. */
#ifndef WEFT_KERNEL_CUDA_CUDNN_IMPL_H
#define WEFT_KERNEL_CUDA_CUDNN_IMPL_H

#include "kernel/cuda/cuda_impl.h"

/* Returns the version of the library, 92800 for 9.28.0; 0: it is missing or switched off. */
int64_t weft_cudnn_version(void);
/* Creates plans for the shapes of args that weft_cudnn_accepts() (cudnn_ops.h), as in
 * weft_cuda_impl. Variants are places in cuDNN's order, which has gaps for unusable plans. */
weft_status_code weft_cudnn_prepare(const weft_kernel_args *args, int first, int most,
                                    weft_cuda_plan *plan, int *count);
void weft_cudnn_release(void *plan); /* accepts NULL */
/* Adds the work to args->stream. args->workspace has weft_cudnn_workspace() bytes, and the
 * addresses of all operands are multiples of CUDNN_ALIGNMENT. */
weft_status_code weft_cudnn_launch(const weft_kernel_args *args, void *plan);

/* Sets *json to cuDNN's description of the process' GPU (heap, the caller's); NULL: no library. */
weft_status_code weft_cudnn_device(char **json);

#endif
