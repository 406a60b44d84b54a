#ifndef WEFT_TRANSFORM_MEMORY_VIEWS_H
#define WEFT_TRANSFORM_MEMORY_VIEWS_H

#include "base/status.h"

struct lifetime;

/* Chooses slices and concats that need no copy, and sets alias_of, shift, first and view. */
weft_status weft_lifetime_find_views(struct lifetime *l);

#endif
