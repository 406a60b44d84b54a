/* Code that NVRTC compiles at run time. It is stored on the disk with the verdicts, by source,
 * headers, version of NVRTC and architecture. */
#ifndef WEFT_KERNEL_CUDA_COMPILED_CODE_H
#define WEFT_KERNEL_CUDA_COMPILED_CODE_H

#include "base/status.h"

/* Reads the stored code of a source for the GPU of this process, or compiles and stores it.
 * `name` is its kernel, `kind` a part of the file's name ("-chain-"). The caller frees *code, a
 * module for weft_cuda_module_add(). Requires weft_nvrtc_version() > 0. */
weft_status weft_compiled_code(const char *kind, const char *name, const char *source, char **code);

#endif
