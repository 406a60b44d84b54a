/* Copies of constants for backends that store another type than the graph's, or that cannot access
 * its memory. All programs of the process share one copy per constant, type and device. */
#ifndef WEFT_EXEC_CONSTANTS_H
#define WEFT_EXEC_CONSTANTS_H

#include "kernel/kernel.h"

typedef struct weft_constant_copy weft_constant_copy;
/* Returns a copy of `count` elements at `data` in type `to` on the device. Reuses an existing copy,
 * otherwise converts one. `data` must outlive the copy. Release with weft_constant_release. */
weft_status weft_constant_hold(const weft_device *device, const void *data, weft_dtype from,
                               weft_dtype to, int64_t count, weft_constant_copy **copy);
void *weft_constant_data(const weft_constant_copy *copy);
void weft_constant_release(weft_constant_copy *copy); /* Accepts NULL. */

#endif
