/* A receiver of the bytes of a range, for data that need not be in memory as a whole. */
#ifndef WEFT_STORAGE_BYTE_SINK_H
#define WEFT_STORAGE_BYTE_SINK_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_byte_sink {
    /* Takes the bytes from `at` on, counted from the first byte of the range. The calls are in
     * order. A transfer that is repeated may begin at 0 again. An error ends the transfer, which
     * returns it. */
    weft_status (*take)(void *user, int64_t at, const void *data, int64_t bytes);
    void *user;
} weft_byte_sink;

#endif
