/* Measured bandwidth of the connections between devices of ranks. */
#ifndef WEFT_COMM_LINK_RATES_H
#define WEFT_COMM_LINK_RATES_H

#include "comm/group.h"
#include "kernel/kernel.h"

typedef struct weft_link_rates {
    const char *library; /* NULL: the devices are not connected, and the rates are 0 */
    /* Bytes per second in each direction, in a ring of all ranks */
    double ring;
    /* Bytes of an all_reduce per second, times 2 (n - 1) / n: the rate of each connection */
    double all_reduce;
} weft_link_rates;

/* Collective: connects the devices of the group's ranks and measures messages of `bytes`. The rates
 * are the slowest rank's. */
weft_status weft_link_rates_measure(weft_group *group, const weft_device *device, int64_t bytes,
                                    weft_link_rates *rates);

#endif
