/* A list of names in a message: the first names, then "...", and the number of all names. */
#ifndef WEFT_BASE_LISTING_H
#define WEFT_BASE_LISTING_H

#include "base/memory.h"

typedef struct weft_listing {
    weft_buf text;
    int64_t count;
} weft_listing; /* zero-initialise */

void weft_listing_add(weft_listing *listing, const char *name);
/* "a, b, ..."; "" without names. */
const char *weft_listing_text(const weft_listing *listing);
void weft_listing_free(weft_listing *listing);

#endif
