/* Kernels on the GPU: PTX that the build embeds, compiled by the driver when a kernel is first
 * needed. */
#ifndef WEFT_KERNEL_CUDA_CUDA_MODULE_H
#define WEFT_KERNEL_CUDA_CUDA_MODULE_H

#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/launch.h"

/* The PTX of one source file. The build writes the list (cmake/kernels.cmake); its last item has no
 * name. */
typedef struct weft_cuda_image {
    const char *name;          /* "norms" */
    const unsigned char *text; /* ends with 0 */
} weft_cuda_image;
extern const weft_cuda_image weft_cuda_images[];

/* The sources and headers of kernels, by the name that sources include: NVRTC compiles with
 * them. */
extern const weft_cuda_image weft_cuda_headers[];

/* Most modules that are added at run time: the table of kernels keeps room for the embedded
 * modules. */
enum { WEFT_CUDA_MODULES_ADDED = 1024 };
/* Adds the module of the kernel `name`, PTX or machine code, which the driver loads at the first
 * launch. Name and code stay until the process ends; then the caller does not own `code`.
 * WEFT_E_UNSUPPORTED: the process has WEFT_CUDA_MODULES_ADDED. */
weft_status weft_cuda_module_add(const char *name, char *code);
/* WEFT_E_UNSUPPORTED: the build had no clang, so this weft has no kernels for GPUs. */
weft_status weft_cuda_module_check(void);
/* Adds a kernel to the work of a stream. Fails if no image has the kernel, or the launch exceeds a
 * limit of the GPU. A grid with a side of 0 has no work. */
weft_status weft_cuda_module_launch(const weft_cuda_gpu *gpu, cuda_stream stream,
                                    const weft_cuda_launch *launch);

#endif
