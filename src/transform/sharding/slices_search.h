/* Searches for the layer slices, head groups and token chunks with the lowest estimated cost
 * (weft_comm_overlap). The settings tried do not depend on the model:
 *
 *   1. off; 2, 4 and 8 slices of both kinds of layers, each with these early exchanges: none, one
 *      slice of each kind, all but one slice of positions (ScaleFusion's Fig. 10 and 11)
 *   2. from the best: half or all of its slices early; twice the slices; then each number halved or
 *      doubled while that is faster
 *   3. from the best: 2, 4, 8 head groups, while the estimate changes
 *   4. from the best: 2, 4, 8 token chunks, likewise
 *
 * At most 48 settings are tried, and 5 if the model has nothing to cut. */
#ifndef WEFT_TRANSFORM_SHARDING_SLICES_SEARCH_H
#define WEFT_TRANSFORM_SHARDING_SLICES_SEARCH_H

#include "base/memory.h"
#include "transform/sharding/slices.h"

/* Estimate of a step on the rank with the most work, in seconds. */
typedef struct weft_comm_overlap_estimate {
    bool fits;
    const char *why; /* reason if it does not fit; valid during the search */
    double seconds, kernels, waits, hidden;
} weft_comm_overlap_estimate;
typedef weft_status weft_comm_overlap_estimate_fn(void *user, const weft_comm_overlap *overlap,
                                                  weft_comm_overlap_estimate *out);

/* Sets the open settings of *overlap (weft_comm_overlap_has_auto); ties go to the first tried.
 * `out`: a line with the result and the next best. Returns WEFT_E_INFEASIBLE if no setting fits. */
weft_status weft_comm_overlap_search(weft_comm_overlap_estimate_fn *estimate, void *user,
                                     weft_comm_overlap *overlap, weft_buf *out);

#endif
