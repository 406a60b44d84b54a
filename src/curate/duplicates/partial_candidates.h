/* Candidate pairs of partial duplicates among many shots, without comparing all pairs. */
#ifndef WEFT_CURATE_DUPLICATES_PARTIAL_CANDIDATES_H
#define WEFT_CURATE_DUPLICATES_PARTIAL_CANDIDATES_H

#include "base/status.h"
#include "curate/duplicates/keypoints.h"

typedef struct weft_near_pair {
    uint32_t later, earlier;
} weft_near_pair;

/* Pairs of shots with several common keypoints, sorted by the later shot, then by the earlier one;
 * heap, the caller frees. Keypoints match if all signs agree in a set of low frequencies large
 * enough that few match by chance. With n keypoints a set has log2 n + 4 bits; there are four sets,
 * each sorted. Time is n log n and memory n: each keypoint matches at most 12 others of its key, of
 * the first shots and of the last preceding one. */
weft_status weft_near_parts(const weft_parts *const *shots, int64_t count, weft_near_pair **pairs,
                            int64_t *found);

/* Comparison of uint64_t for qsort. */
int weft_near_ascending(const void *a, const void *b);

#endif
