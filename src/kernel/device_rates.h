/* Measured bandwidths of a device whose memory the host does not access. */
#ifndef WEFT_KERNEL_DEVICE_RATES_H
#define WEFT_KERNEL_DEVICE_RATES_H

#include "kernel/kernel.h"

/* Bytes per second of the fastest of a few copies. */
typedef struct weft_device_rates {
    double copy;      /* inside the device: read and written bytes */
    double to_device; /* from pinned memory */
    double to_host;   /* to pinned memory */
} weft_device_rates;

/* Copies up to `bytes`, at most an eighth of the device's free memory. Nothing else should use the
 * device. */
weft_status weft_device_rates_measure(const weft_device *device, int64_t bytes,
                                      weft_device_rates *rates);

#endif
