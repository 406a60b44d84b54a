/* Memory of the backend `far`. Programs have addresses without access; the values
 * are at a fixed distance, which only the threads of streams add.
 *
 *   base            base + SPAN
 *   |  values  ...  |  addresses of the device: no access  |
 *
 * An address is used once: memory that was freed cannot be accessed either. Data ends at a page
 * without access. */
#ifndef WEFT_KERNEL_FAR_FAR_MEMORY_H
#define WEFT_KERNEL_FAR_FAR_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Returns 64-byte aligned memory of NaN; NULL: out of memory or of addresses. */
void *far_alloc(int64_t bytes);
void far_free(void *data);
int64_t far_size(const void *data); /* bytes of the allocation */
/* True if all bytes are inside one allocation. */
bool far_holds(const void *data, int64_t bytes);
/* The address of the values. */
void *far_near(const void *data);
/* Names the node in messages of a fault on this thread: of the host, the last one that it started;
 * of a stream, the one that runs. The text is borrowed. */
void far_memory_name(const char *text);

#endif
