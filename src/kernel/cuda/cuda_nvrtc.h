/* NVRTC, NVIDIA's compiler of CUDA C++, loaded at run time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_NVRTC_H
#define WEFT_KERNEL_CUDA_CUDA_NVRTC_H

#include "base/status.h"

#include <stdbool.h>

/* Returns the version of NVRTC (12090 is 12.9), loaded at the first call; 0: it is missing, or
 * WEFT_NVRTC=off. WEFT_NVRTC_LIBRARY is the path of another library. */
int64_t weft_nvrtc_version(void);

/* The code that NVRTC compiles for a GPU:
 *
 *   machine code of its architecture (sm_90)
 *   PTX of the newest architecture of NVRTC (compute_90)      the GPU is newer than NVRTC
 *   PTX of the embedded kernels' architecture and version     the driver is older than NVRTC */
typedef struct weft_nvrtc_target {
    int arch;      /* 90 is 9.0 */
    bool machine;  /* machine code, else PTX */
    bool portable; /* with the version of the embedded kernels, which an older driver loads */
} weft_nvrtc_target;
/* `arch`: of the GPU; `driver`: version of CUDA that the driver has (12090 is 12.9). */
weft_nvrtc_target weft_nvrtc_target_of(int arch, int driver);

/* Compiles a source, which may include the embedded kernels and their headers. Products and sums
 * are not contracted. The caller frees *code, which a byte of 0 follows. WEFT_E_UNSUPPORTED, with
 * the log of the compiler. Requires weft_nvrtc_version() > 0. */
weft_status weft_nvrtc_compile(const char *name, const char *source,
                               const weft_nvrtc_target *target, char **code, int64_t *bytes);

#endif
