#ifndef WEFT_BASE_LARGE_PAGES_H
#define WEFT_BASE_LARGE_PAGES_H

#include <stdint.h>

/* Asks the system for pages of 2 MiB for a new block of weft_alloc_aligned(). Blocks below 32 MiB
 * and blocks of a replaced source of memory stay as they are. Kernels read columns, and rows of a
 * head, that are some KiB apart. With pages of 4 KiB such reads often wait for the address of a
 * page. */
void weft_use_large_pages(void *block, int64_t bytes);

#endif
