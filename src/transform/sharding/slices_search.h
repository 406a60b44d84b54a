/* Which slices, groups of heads and chunks of tokens cost least (weft_slices), by prices that are
 * given: numbers only. What is priced, and how many of them, does not depend on the model:
 *
 *   1. off; as many slices of both kinds of layers, 2, 4 and 8, with nothing lifted, one slice of
 *      each lifted, and all but one of places (ScaleFusion's Fig. 10 and 11)
 *   2. of the best of these: half or all of its slices lifted, both kinds; twice as many slices
 *   3. of the best: 2, 4, 8 groups of heads, as long as more of them cost something else
 *   4. of the best: 2, 4, 8 chunks of tokens likewise
 *
 * which is 20 at most, and 5 where there is nothing of the kind. */
#ifndef WEFT_PASS_SLICES_SEARCH_H
#define WEFT_PASS_SLICES_SEARCH_H

#include "pass/pass.h"

/* Seconds of a step on the rank that has most to do. */
typedef struct weft_slices_price {
    bool fits;
    const char *why; /* not; lives as long as the search */
    double seconds, kernels, waits, hidden;
} weft_slices_price;
typedef weft_status weft_slices_price_fn(void *user, const weft_slices *slices,
                                         weft_slices_price *out);

/* Sets what *slices leaves open (weft_slices_open); a tie goes to the first. `told`: a line on it
 * and on the next best. WEFT_E_INFEASIBLE: none fits. */
weft_status weft_slices_search(weft_slices_price_fn *price, void *user, weft_slices *slices,
                               weft_buf *told);

#endif
