/* Memory that is a file: what lies in it need not stay in this process' memory. */
#ifndef WEFT_BASE_SCRATCH_MAP_H
#define WEFT_BASE_SCRATCH_MAP_H

#include "base/memory.h"

/* `bytes` zeros in a file of the folder `dir` (made if need be), page aligned. It has no name, so
 * it is gone with the process however that ends. Its room is reserved: where that is too little
 * WEFT_E_IO says what is free, and the caller's `remedy`. */
weft_status weft_scratch_map(const char *dir, int64_t bytes, const char *remedy, void **data);
void weft_scratch_unmap(void *data, int64_t bytes); /* accepts NULL */

/* The same, or with `dir` NULL zeros of the heap. */
typedef struct weft_scratch {
    void *data;
    int64_t mapped; /* bytes of a file's; 0: of the heap */
} weft_scratch;
weft_status weft_scratch_reserve(const char *dir, int64_t bytes, const char *remedy,
                                 weft_scratch *out);
/* What is a file's leaves this process' memory, and stays what it is. */
void weft_scratch_drop(const weft_scratch *scratch);
void weft_scratch_release(weft_scratch *scratch); /* accepts one of zeros */

#endif
