#ifndef WEFT_KERNEL_HOST_H
#define WEFT_KERNEL_HOST_H

#include "kernel/kernel.h"

/* The memory of this process. Kernels run on the calling thread. */
extern const weft_device weft_device_host;
/* Threads that host kernels use when called from this thread. Setting returns the previous
 * number. */
int weft_host_threads(void);
int weft_host_set_threads(int threads);

#endif
