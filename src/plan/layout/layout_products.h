/* Enumerates the products of parallel degrees. */
#ifndef WEFT_PLAN_LAYOUT_LAYOUT_PRODUCTS_H
#define WEFT_PLAN_LAYOUT_LAYOUT_PRODUCTS_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_LAYOUT_DEGREES = 8 };

typedef weft_status_code weft_layout_products_fn(void *user, const int64_t *degree);

/* Calls `visit` with every list of `count` degrees (at most WEFT_LAYOUT_DEGREES) whose product is
 * `ranks` and whose degree i is at most most[i] (0: no limit). Larger first degrees come first. */
weft_status weft_layout_products(int64_t ranks, const int64_t *most, int count,
                                 weft_layout_products_fn *visit, void *user);

#endif
