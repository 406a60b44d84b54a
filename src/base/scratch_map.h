/* Memory that is a file: what lies in it need not stay in this process' memory. */
#ifndef WEFT_BASE_SCRATCH_MAP_H
#define WEFT_BASE_SCRATCH_MAP_H

#include "base/memory.h"

/* `bytes` zeros in a file of the folder `dir` (made if need be), page aligned. It has no name, so
 * it is gone with the process however that ends. Its room is reserved: WEFT_E_IO says what is free
 * where that is too little. */
weft_status weft_scratch_map(const char *dir, int64_t bytes, void **data);
void weft_scratch_unmap(void *data, int64_t bytes); /* accepts NULL */

#endif
