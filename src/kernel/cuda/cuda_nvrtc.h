/* NVRTC, NVIDIA's compiler of CUDA C++, loaded at run time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_NVRTC_H
#define WEFT_KERNEL_CUDA_CUDA_NVRTC_H

#include "base/status.h"

/* Returns the version of NVRTC (12090 is 12.9), loaded at the first call; 0: it is missing, or
 * WEFT_NVRTC=off. WEFT_NVRTC_LIBRARY is the path of another library. */
int64_t weft_nvrtc_version(void);
/* Compiles a source, which may include the embedded headers of kernels, to PTX. The PTX
 * has the architecture and version of the embedded kernels: GPUs newer than NVRTC and drivers older
 * than NVRTC load it. Products and sums are not contracted. The caller frees *ptx.
 * WEFT_E_UNSUPPORTED, with the log of the compiler. Requires weft_nvrtc_version() > 0. */
weft_status weft_nvrtc_compile(const char *name, const char *source, char **ptx);

#endif
