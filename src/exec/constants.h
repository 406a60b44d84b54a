/* Copies of constants for backends that keep another type than the graph's: one of each in the
 * process, whichever programs use it. */
#ifndef WEFT_RUNTIME_CONSTANTS_H
#define WEFT_RUNTIME_CONSTANTS_H

#include "kernel/kernel.h"

typedef struct weft_constant_copy weft_constant_copy;
/* `count` elements at `data` (which graphs share, and which outlives the copy) as `to` on the
 * device: made now, or the one that is held already. */
weft_status weft_constant_hold(const weft_device *device, const void *data, weft_dtype from,
                               weft_dtype to, int64_t count, weft_constant_copy **copy);
void *weft_constant_data(const weft_constant_copy *copy);
void weft_constant_release(weft_constant_copy *copy); /* accepts NULL */

#endif
