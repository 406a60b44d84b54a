/* Kernels that are compiled for a shape, and the members of their parameters that become constants.
 *
 *   weft_norm   norms.cu   columns = 1536, kind = 258, x.type = 1, beta.data = NULL, ...
 *
 * Numbers of rows and of batch items stay variables, so that shapes share code. */
#ifndef WEFT_KERNEL_CUDA_SPECIAL_TABLE_H
#define WEFT_KERNEL_CUDA_SPECIAL_TABLE_H

#include "base/memory.h"
#include "kernel/cuda/launch.h"

#include <stdbool.h>

/* An integer (4 or 8 bytes), or a pointer, which is a constant only where it is NULL. */
typedef struct weft_special_member {
    const char *path; /* "shape.dim[1].by" */
    uint16_t offset, bytes;
    bool is_pointer;
} weft_special_member;

typedef struct weft_special_kernel {
    const char *name; /* of the embedded kernel */
    const char *file; /* "norms": kernels/norms.cu has it */
    size_t args_bytes;
    const weft_special_member *member;
    int members;
} weft_special_kernel;

/* Returns NULL if the kernel of the launch is not in the table. */
const weft_special_kernel *weft_special_kernel_of(const weft_cuda_launch *launch);
/* A hash of the kernel and of the values of its members. */
uint64_t weft_special_hash(const weft_special_kernel *kernel, const void *args);
/* Appends the assignments of the constants: "given.columns = 1536; ...". */
void weft_special_put_constants(const weft_special_kernel *kernel, const void *args, weft_buf *out);

#endif
