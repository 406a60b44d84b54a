/* The backend `cuda`: the kernels of src/kernel/cuda on an NVIDIA GPU. */
#ifndef WEFT_KERNEL_CUDA_CUDA_BACKEND_H
#define WEFT_KERNEL_CUDA_CUDA_BACKEND_H

#include "kernel/kernel.h"

extern const weft_backend weft_backend_cuda;

#endif
