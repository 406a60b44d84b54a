/* What every user of a device needs: which memory the host may access, pinned memory, and copies
 * between host memory and a device. */
#ifndef WEFT_KERNEL_DEVICE_H
#define WEFT_KERNEL_DEVICE_H

#include "kernel/kernel.h"

/* Returns true if the host must not access the memory of the device: only kernels and the device's
 * own calls may. False for the host, and for devices whose memory has no values. */
static inline bool weft_device_is_apart(const weft_device *device)
{
    return device->host_copy && !device->meta;
}

/* The device of a backend; NULL: none was chosen, and the host is used. */
static inline const weft_device *weft_backend_device(const weft_backend *backend)
{
    return backend ? backend->device : NULL;
}

/* See weft_backend. NULL: none was chosen; false. */
static inline bool weft_backend_joins_pointwise(const weft_backend *backend)
{
    return backend && backend->joins_pointwise && backend->joins_pointwise();
}

/* Returns memory of the host that copies of the device may read and write, 64-byte aligned. NULL:
 * out of memory. */
void *weft_device_alloc_host(const weft_device *device, int64_t bytes);
void weft_device_free_host(const weft_device *device, void *data); /* accepts NULL */
/* Bytes that one of `ranks` ranks of this machine can still allocate: the memory of a device is not
 * shared with other ranks, the memory of the host is. NULL: the host. */
int64_t weft_device_available(const weft_device *device, int ranks);
/* Bytes that weights and programs may use of a device that is apart: 1/32 of its memory stays free
 * for libraries and for measurements of kernels. */
int64_t weft_device_usable(const weft_device *device);
/* Fails like weft_memory_check if the device has less memory than `bytes` for `what`. */
weft_status weft_device_check_memory(const weft_device *device, int64_t bytes, const char *what);
/* Returns an error with the predicted bytes of `what` (plural), which the device did not allocate,
 * its free and used bytes, and the remedy. */
weft_status_code weft_device_no_memory(const weft_device *device, int64_t bytes, const char *what);

/* Copies between any host memory and a device that is apart, in slices through pinned memory. One
 * stream and one thread at a time; other threads wait. */
typedef struct weft_staging weft_staging;
weft_status weft_staging_create(const weft_device *device, weft_staging **staging);
void weft_staging_free(weft_staging *staging); /* accepts NULL */
/* Converts `count` elements like weft_convert and copies them to the device. The elements of `from`
 * are read when the call returns, and `to` is written after weft_staging_finish(). */
weft_status weft_staging_write(weft_staging *staging, void *to, weft_dtype to_dtype,
                               const void *from, weft_dtype from_dtype, int64_t count);
weft_status weft_staging_zero(weft_staging *staging, void *to, int64_t bytes);
weft_status weft_staging_finish(weft_staging *staging);
/* Copies `count` elements to the host and converts them. */
weft_status weft_staging_read(weft_staging *staging, void *to, weft_dtype to_dtype,
                              const void *from, weft_dtype from_dtype, int64_t count);

#endif
