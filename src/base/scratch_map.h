/* Memory that is backed by a file, so that its pages need not stay resident in this process. */
#ifndef WEFT_BASE_SCRATCH_MAP_H
#define WEFT_BASE_SCRATCH_MAP_H

#include "base/memory.h"

/* Maps `bytes` zeros, page aligned, in a file of the folder `dir` (created if missing). The file
 * has no name, so the system removes it when the process ends. Its blocks are reserved. WEFT_E_IO:
 * the disk has too little free space; the message has the free bytes and the caller's `remedy`. */
weft_status weft_scratch_map(const char *dir, int64_t bytes, const char *remedy, void **data);
void weft_scratch_unmap(void *data, int64_t bytes); /* accepts NULL */

/* A scratch file, or with `dir` NULL zeroed memory of the heap. */
typedef struct weft_scratch {
    void *data;
    int64_t mapped; /* bytes of a file's; 0: of the heap */
} weft_scratch;
weft_status weft_scratch_reserve(const char *dir, int64_t bytes, const char *remedy,
                                 weft_scratch *out);
/* Evicts file-backed pages from this process; their content is kept. */
void weft_scratch_drop(const weft_scratch *scratch);
void weft_scratch_release(weft_scratch *scratch); /* accepts one of zeros */

#endif
