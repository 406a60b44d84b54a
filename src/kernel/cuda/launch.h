/* Launches of kernels, as the host code of an op describes them to a driver or its emulation. */
#ifndef WEFT_KERNEL_CUDA_LAUNCH_H
#define WEFT_KERNEL_CUDA_LAUNCH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* One launch. The only parameter of a kernel is one struct, passed by value. */
typedef struct weft_cuda_launch {
    const char *kernel; /* name in the module */
    uint32_t grid[3], block[3];
    uint32_t shared;  /* bytes of dynamic shared memory */
    const void *args; /* the struct; borrowed until add() returns */
    size_t args_bytes;
} weft_cuda_launch;

/* Accepts launches in the order of their execution. */
typedef struct weft_cuda_queue weft_cuda_queue;
struct weft_cuda_queue {
    weft_status_code (*add)(weft_cuda_queue *queue, const weft_cuda_launch *launch);
    /* An id outside its table that a kernel found, as BAD_ID of kernel_args.h; 0: none. The word is
     * in memory that the GPU and the host access. NULL: kernels do not report. */
    uint64_t *bad_id;
    /* The next bytes of the node's workspace are a part of their own: launches that use other parts
     * do not conflict with its launches. NULL: parts do not matter. */
    void (*split)(weft_cuda_queue *queue, const void *part, int64_t bytes);
};

#endif
